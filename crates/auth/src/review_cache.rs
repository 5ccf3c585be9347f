//! A cache of reviews that shares concurrent requests and limits those in flight.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::ttl_cache::TtlCache;

/// The digest of a request, so that neither tokens nor users are kept as keys.
pub(crate) type Key = [u8; 32];

/// Returns the digest of some parts; each counts with its length.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// Limits of a [`ReviewCache`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) max_entries: usize,
    pub(crate) max_in_flight: usize,
    /// Maximum of these for unauthenticated callers; the rest is reserved for the others.
    pub(crate) max_unauthenticated: usize,
    /// Maximum of these for unauthenticated callers of one network.
    pub(crate) max_per_network: usize,
}

/// The caller that a review is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerClass {
    /// A caller whose token was accepted recently.
    RecentlyAuthenticated,
    /// An unknown caller from this network.
    Unauthenticated(Option<IpAddr>),
}

/// Results of one kind of review.
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

/// The result of [`ReviewCache::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<V> {
    /// The cached value.
    Hit(V),
    /// The value was fetched for this caller or for a concurrent one.
    Fetched(V),
    /// Too many reviews are in flight.
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

    /// Returns the cached value of `key`, or the result of `fetch` with its TTL. A dropped caller
    /// does not cancel the fetch: others may wait for it.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        caller: CallerClass,
        fetch: impl FnOnce() -> F,
    ) -> Lookup<V>
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let mut answer = {
            let mut state = self.state.lock();
            if let Some(value) = state.entries.get(&key) {
                return Lookup::Hit(value.clone());
            }
            match state.in_flight.get(&key) {
                Some((answer, _)) => answer.clone(),
                None if !state.has_capacity(caller, &self.limits) => return Lookup::Overloaded,
                None => {
                    let (sender, answer) = watch::channel(None);
                    state.in_flight.insert(key, (answer.clone(), caller));
                    self.begin(key, fetch(), sender);
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

    fn begin<F>(&self, key: Key, fetch: F, sender: watch::Sender<Option<V>>)
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        tokio::spawn(async move {
            let (value, ttl) = fetch.await;
            let mut state = state.lock();
            state.in_flight.remove(&key);
            if !ttl.is_zero() {
                state.entries.insert(key, value.clone(), ttl);
            }
            drop(state);
            sender.send_replace(Some(value));
        });
    }
}

impl<V> State<V> {
    /// Returns whether one more review may start. Recently authenticated callers have no limit of
    /// their own: valid tokens bound their number.
    fn has_capacity(&self, caller: CallerClass, limits: &CacheLimits) -> bool {
        let (mut unauthenticated, mut own) = (0, 0);
        for (_, other) in self.in_flight.values() {
            unauthenticated += usize::from(*other != CallerClass::RecentlyAuthenticated);
            own += usize::from(*other == caller);
        }
        let fits = unauthenticated < limits.max_unauthenticated && own < limits.max_per_network;
        (fits || caller == CallerClass::RecentlyAuthenticated)
            && self.in_flight.len() < limits.max_in_flight
    }
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

    /// Looks `name` up; a fetch takes a second and returns the number of fetches.
    async fn ask(
        cache: &ReviewCache<usize>,
        name: &str,
        count: &Arc<AtomicUsize>,
    ) -> Lookup<usize> {
        let count = Arc::clone(count);
        let fetch = async move {
            sleep(Duration::from_secs(1)).await;
            (count.fetch_add(1, Ordering::Relaxed) + 1, MINUTE)
        };
        cache
            .get(key([name]), CallerClass::RecentlyAuthenticated, || fetch)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_fetch_even_if_the_first_leaves() {
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
    async fn cached_value_expires_after_its_ttl() {
        let cache = cache(8, 1);
        let count = Arc::default();
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Fetched(1));
        advance(MINUTE - Duration::from_millis(2)).await;
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Hit(1));
        advance(Duration::from_millis(2)).await;
        assert_eq!(ask(&cache, "a", &count).await, Lookup::Fetched(2));
    }

    #[tokio::test(start_paused = true)]
    async fn entries_and_fetches_in_flight_are_bounded() {
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
        let state = cache.state.lock();
        assert!(state.entries.get(&key(["a"])).is_none());
        assert!(state.in_flight.is_empty());
    }

    #[test]
    fn capacity_is_shared_by_caller_class_and_network() {
        let limits = CacheLimits {
            max_entries: 1,
            max_in_flight: 5,
            max_unauthenticated: 3,
            max_per_network: 2,
        };
        let class = |name: char| match name {
            'k' => CallerClass::RecentlyAuthenticated,
            name => CallerClass::Unauthenticated(Some(IpAddr::from([10, 0, name as u8, 0]))),
        };
        // callers with a review in flight, and which of k, a, b and c may start one
        let check = |there: &str, expected: &str| {
            let mut state = State::<usize> {
                entries: TtlCache::new(1),
                in_flight: HashMap::new(),
            };
            for (at, name) in there.chars().enumerate() {
                let (_, answer) = watch::channel(None);
                let key = key([at.to_string().as_str()]);
                state.in_flight.insert(key, (answer, class(name)));
            }
            let may = "kabc"
                .chars()
                .filter(|it| state.has_capacity(class(*it), &limits));
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
    fn key_depends_on_the_length_of_each_part() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
    }
}
