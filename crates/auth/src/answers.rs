//! Answers that are kept for a while, and questions that are asked once.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::kept::Kept;

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

/// How many answers are kept, and how many questions may be under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) kept: usize,
    pub(crate) asked: usize,
    /// Of these, for strangers; what is left is a reserve of those who are none.
    pub(crate) of_strangers: usize,
    /// Of these, for strangers of one network.
    pub(crate) of_one_network: usize,
}

/// For whom a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Somebody who was somebody lately.
    Known,
    /// Anybody, from this network.
    Stranger(Option<IpAddr>),
}

/// Answers to one kind of question.
#[derive(Debug)]
pub(crate) struct Answers<V> {
    bounds: Bounds,
    state: Arc<Mutex<State<V>>>,
}

#[derive(Debug)]
struct State<V> {
    kept: Kept<V>,
    asked: HashMap<Key, (watch::Receiver<Option<V>>, Asker)>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got<V> {
    /// It was known.
    Kept(V),
    /// It was asked for, by this caller or by another.
    Asked(V),
    /// Too much is being asked.
    Busy,
}

impl<V: Clone + Send + Sync + 'static> Answers<V> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            state: Arc::new(Mutex::new(State {
                kept: Kept::new(bounds.kept),
                asked: HashMap::new(),
            })),
        }
    }

    /// The answer to `key`; `ask` gets it for `asker` and says for how long it may be kept. It goes on when this
    /// caller goes away, others may wait for it.
    pub(crate) async fn get<F>(&self, key: Key, asker: Asker, ask: impl FnOnce() -> F) -> Got<V>
    where
        F: Future<Output = (V, Duration)> + Send + 'static,
    {
        let mut answer = {
            let mut state = lock(&self.state);
            if let Some(value) = state.kept.get(&key) {
                return Got::Kept(value.clone());
            }
            match state.asked.get(&key) {
                Some((answer, _)) => answer.clone(),
                None if !state.has_place(asker, &self.bounds) => return Got::Busy,
                None => {
                    let (sender, answer) = watch::channel(None);
                    state.asked.insert(key, (answer.clone(), asker));
                    self.begin(key, ask(), sender);
                    answer
                }
            }
        };
        match answer.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(value)) => Got::Asked(value.clone()),
            // the process is about to end
            _ => Got::Busy,
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
            state.asked.remove(&key);
            if !keep.is_zero() {
                state.kept.keep(key, value.clone(), keep);
            }
            drop(state);
            sender.send_replace(Some(value));
        });
    }
}

impl<V> State<V> {
    /// Whether one question more may be under way. Strangers are counted, those who are none only
    /// all together: there are no more of them than good tokens.
    fn has_place(&self, asker: Asker, bounds: &Bounds) -> bool {
        let (mut strangers, mut own) = (0, 0);
        for (_, other) in self.asked.values() {
            strangers += usize::from(*other != Asker::Known);
            own += usize::from(*other == asker);
        }
        let fits = strangers < bounds.of_strangers && own < bounds.of_one_network;
        (fits || asker == Asker::Known) && self.asked.len() < bounds.asked
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

    fn answers(kept: usize, asked: usize) -> Answers<usize> {
        Answers::new(Bounds {
            kept,
            asked,
            of_strangers: asked,
            of_one_network: asked,
        })
    }

    /// Asks; the answer is how often was asked so far, and takes a second.
    async fn ask(answers: &Answers<usize>, name: &str, count: &Arc<AtomicUsize>) -> Got<usize> {
        let count = Arc::clone(count);
        let asking = async move {
            sleep(Duration::from_secs(1)).await;
            (count.fetch_add(1, Ordering::Relaxed) + 1, MINUTE)
        };
        answers.get(key([name]), Asker::Known, || asking).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_are_one_question_also_if_the_first_goes_away() {
        let answers = Arc::new(answers(8, 1));
        let count = Arc::default();
        let gone = tokio::time::timeout(Duration::from_millis(1), ask(&answers, "a", &count));
        assert!(gone.await.is_err());
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let (answers, count) = (Arc::clone(&answers), Arc::clone(&count));
                tokio::spawn(async move { ask(&answers, "a", &count).await })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.expect("no panic"), Got::Asked(1));
        }
        assert_eq!(ask(&answers, "a", &count).await, Got::Kept(1));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_until_its_time_is_over() {
        let answers = answers(8, 1);
        let count = Arc::default();
        assert_eq!(ask(&answers, "a", &count).await, Got::Asked(1));
        advance(MINUTE - Duration::from_millis(2)).await;
        assert_eq!(ask(&answers, "a", &count).await, Got::Kept(1));
        advance(Duration::from_millis(2)).await;
        assert_eq!(ask(&answers, "a", &count).await, Got::Asked(2));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_and_answers_have_their_bounds() {
        let answers = Arc::new(answers(2, 1));
        let count: Arc<AtomicUsize> = Arc::default();
        let first = {
            let (answers, count) = (Arc::clone(&answers), Arc::clone(&count));
            tokio::spawn(async move { ask(&answers, "a", &count).await })
        };
        tokio::task::yield_now().await;
        assert_eq!(ask(&answers, "b", &count).await, Got::Busy);
        assert_eq!(first.await.expect("no panic"), Got::Asked(1));
        for name in ["b", "c"] {
            ask(&answers, name, &count).await;
        }
        let state = lock(&answers.state);
        assert!(state.kept.get(&key(["a"])).is_none());
        assert!(state.asked.is_empty());
    }

    #[test]
    fn strangers_have_a_share_those_of_one_network_a_smaller_one_and_the_known_what_is_left() {
        let bounds = Bounds {
            kept: 1,
            asked: 5,
            of_strangers: 3,
            of_one_network: 2,
        };
        let of = |name: char| match name {
            'k' => Asker::Known,
            name => Asker::Stranger(Some(IpAddr::from([10, 0, name as u8, 0]))),
        };
        // those who ask already, and of k, a, b and c those who may too
        let check = |there: &str, expected: &str| {
            let mut state = State::<usize> {
                kept: Kept::new(1),
                asked: HashMap::new(),
            };
            for (at, name) in there.chars().enumerate() {
                let (_, answer) = watch::channel(None);
                let key = key([at.to_string().as_str()]);
                state.asked.insert(key, (answer, of(name)));
            }
            let may = "kabc"
                .chars()
                .filter(|it| state.has_place(of(*it), &bounds));
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
