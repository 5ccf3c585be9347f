//! ReviewCache that are kept for a while, and questions that are asked once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::ttl_cache::TtlCache;

/// What was asked, as a digest: neither tokens nor users are kept as keys.
pub(crate) type Key = [u8; 32];

/// The digest of some parts; each counts with its length.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// How many cache are kept, and how many questions may be under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) max_entries: usize,
    pub(crate) max_in_flight: usize,
    /// Of these, for strangers; what is left is a reserve of those who are none.
    pub(crate) max_unauthenticated: usize,
    /// Of these, for strangers of one network.
    pub(crate) max_per_network: usize,
}

/// For whom a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerClass {
    /// Somebody who was somebody lately.
    RecentlyAuthenticated,
    /// Anybody, from this network.
    Unauthenticated(Option<IpAddr>),
}

/// ReviewCache to one kind of question.
#[derive(Debug)]
pub(crate) struct ReviewCache<V> {
    limits: CacheLimits,
    state: Arc<Mutex<State<V>>>,
}

#[derive(Debug)]
struct State<V> {
    entries: TtlCache<V>,
    in_flight: HashMap<Key, (watch::Receiver<Option<V>>, CallerClass)>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    /// It was known.
    Hit(V),
    /// It was asked for, by this caller or by another.
    Fetched(V),
    /// Too much is being asked.
    Overloaded,
}

impl<V: Clone + Send + Sync + 'static> ReviewCache<V> {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            state: Arc::new(Mutex::new(State {
                entries: TtlCache::new(limits.max_entries),
                in_flight: HashMap::new(),
            })),
        }
    }

    /// The answer to `key`; `ask` gets it for `caller` and says for how long it may be kept. It goes on when this
    /// caller goes away, others may wait for it.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        caller: CallerClass,
        ask: impl FnOnce() -> F,
    ) -> Lookup<V>
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let mut answer = {
            let mut state = lock(&self.state);
            if let Some(value) = state.entries.get(&key) {
                return Lookup::Hit(value.clone());
            }
            match state.in_flight.get(&key) {
                Some((answer, _)) => answer.clone(),
                None if !state.has_capacity(caller, &self.limits) => return Lookup::Overloaded,
                None => {
                    let (sender, answer) = watch::channel(None);
                    state.in_flight.insert(key, (answer.clone(), caller));
                    self.begin(key, ask(), sender);
                    answer
                }
            }
        };
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(value)) => Lookup::Fetched(value.clone()),
            // the process is about to end
            _ => Lookup::Overloaded,
        }
    }

    fn begin<F>(&self, key: Key, ask: F, sender: watch::Sender<Option<V>>)
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        tokio::spawn(async move {
            let (value, keep) = ask.await;
            let mut state = lock(&state);
            state.in_flight.remove(&key);
            if !keep.is_zero() {
                state.entries.insert(key, value.clone(), keep);
            }
            drop(state);
            sender.send_replace(Some(value));
        });
    }
}

impl<V> State<V> {
    /// Whether one question more may be under way. Strangers are counted, those who are none only
    /// all together: there are no more of them than good tokens.
    fn has_capacity(&self, caller: CallerClass, limits: &CacheLimits) -> bool {
        let (mut strangers, mut own) = (0, 0);
        for (_, other) in self.in_flight.values() {
            strangers += usize::from(*other != CallerClass::RecentlyAuthenticated);
            own += usize::from(*other == caller);
        }
        let fits = strangers < limits.max_unauthenticated && own < limits.max_per_network;
        (fits || caller == CallerClass::RecentlyAuthenticated)
            && self.in_flight.len() < limits.max_in_flight
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn cache(max_entries: usize, max_in_flight: usize) -> ReviewCache<usize> {
        ReviewCache::new(CacheLimits {
            max_entries,
            max_in_flight,
            max_unauthenticated: max_in_flight,
            max_per_network: max_in_flight,
        })
    }

    /// Asks; the answer is how often was asked so far, and takes a second.
    async fn ask(
        cache: &ReviewCache<usize>,
        name: &str,
        count: &Arc<AtomicUsize>,
    ) -> Lookup<usize> {
        let count = Arc::clone(count);
        let asking = async move {
            sleep(Duration::from_secs(1)).await;
            (count.fetch_add(1, Ordering::Relaxed) + 1, MINUTE)
        };
        cache
            .get(key([name]), CallerClass::RecentlyAuthenticated, || asking)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_are_one_question_also_if_the_first_goes_away() {
        let cache = Arc::new(cache(8, 1));
        let count = Arc::default();
        let gone = tokio::time::timeout(Duration::from_millis(1), ask(&cache, "a", &count));
        assert!(gone.await.is_err());
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let (cache, count) = (Arc::clone(&cache), Arc::clone(&count));
                tokio::spawn(async move { ask(&cache, "a", &count).await })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.expect("no panic"), Lookup::Fetched(1));
        }
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Hit(1));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_until_its_time_is_over() {
        let cache = cache(8, 1);
        let count = Arc::default();
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Fetched(1));
        advance(MINUTE - Duration::from_millis(2)).await;
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Hit(1));
        advance(Duration::from_millis(2)).await;
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Fetched(2));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_and_answers_have_their_bounds() {
        let cache = Arc::new(cache(2, 1));
        let count: Arc<AtomicUsize> = Arc::default();
        let first = {
            let (cache, count) = (Arc::clone(&cache), Arc::clone(&count));
            tokio::spawn(async move { ask(&cache, "a", &count).await })
        };
        tokio::task::yield_now().await;
        assert_eq!(ask(&cache, "b", &count).await, Lookup::Overloaded);
        assert_eq!(first.await.expect("no panic"), Lookup::Fetched(1));
        for name in ["b", "c"] {
            ask(&cache, name, &count).await;
        }
        let state = lock(&cache.state);
        assert!(state.entries.get(&key(["a"])).is_none());
        assert!(state.in_flight.is_empty());
    }

    #[test]
    fn strangers_have_a_share_those_of_one_network_a_smaller_one_and_the_known_what_is_left() {
        let limits = CacheLimits {
            max_entries: 1,
            max_in_flight: 5,
            max_unauthenticated: 3,
            max_per_network: 2,
        };
        let of = |name: char| match name {
            'k' => CallerClass::RecentlyAuthenticated,
            name => CallerClass::Unauthenticated(Some(IpAddr::from([10, 0, name as u8, 0]))),
        };
        // those who ask already, and of k, a, b and c those who may too
        let check = |there: &str, expected: &str| {
            let mut state = State::<usize> {
                entries: TtlCache::new(1),
                in_flight: HashMap::new(),
            };
            for (at, name) in there.chars().enumerate() {
                let (_, answer) = watch::channel(None);
                let key = key([at.to_string().as_str()]);
                state.in_flight.insert(key, (answer, of(name)));
            }
            let may = "kabc"
                .chars()
                .filter(|it| state.has_capacity(of(*it), &limits));
            assert_eq!(may.collect::<String>(), expected, "{there}");
        };
        check("", "kabc");
        check("aa", "kbc");
        check("aab", "k");
        check("aabk", "k");
        check("aabkk", "");
        check("kkk", "kabc");
        check("kkkaa", "");
    }

    #[test]
    fn parts_are_told_apart_by_their_lengths() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    }
}
