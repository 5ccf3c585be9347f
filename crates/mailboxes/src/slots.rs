//! A coalescing channel with one slot per key; values of the same key are merged.
//!
//! Memory is bounded by the number of keys (pods). Senders never wait and never fail. The receiver
//! is a stream of `(key, value)` in the order in which slots were filled.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_metrics::MailboxMetrics;

use crate::kind::ActorKind;

/// Merges values of the same key.
pub trait Merge {
    /// Merges `newer` into the queued value; equivalent to both in sequence.
    fn merge(&mut self, newer: Self);
}

struct State<K, V> {
    values: BTreeMap<K, V>,
    order: VecDeque<(K, Instant)>,
    waker: Option<Waker>,
    senders: usize,
}

struct Shared<K, V> {
    kind: ActorKind,
    state: Mutex<State<K, V>>,
}

impl<K, V> Shared<K, V> {
    fn with<R>(&self, f: impl FnOnce(&mut State<K, V>) -> R) -> R {
        f(&mut self.state.lock())
    }
}

/// The cloneable sender.
pub struct SlotSender<K, V>(Arc<Shared<K, V>>);

/// The receiver: a stream for `StreamHandler`.
pub struct SlotReceiver<K, V> {
    shared: Arc<Shared<K, V>>,
    metrics: MailboxMetrics,
}

impl<K, V> fmt::Debug for SlotSender<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotSender")
            .field("kind", &self.0.kind)
            .finish()
    }
}

impl<K, V> fmt::Debug for SlotReceiver<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotReceiver")
            .field("kind", &self.shared.kind)
            .finish()
    }
}

/// Creates the coalescing channel of one actor.
pub fn slots<K, V>(
    kind: ActorKind,
    metrics: &MailboxMetrics,
) -> (SlotSender<K, V>, SlotReceiver<K, V>) {
    let shared = Arc::new(Shared {
        kind,
        state: Mutex::new(State {
            values: BTreeMap::new(),
            order: VecDeque::new(),
            waker: None,
            senders: 1,
        }),
    });
    (
        SlotSender(Arc::clone(&shared)),
        SlotReceiver {
            shared,
            metrics: metrics.clone(),
        },
    )
}

impl<K, V> Clone for SlotSender<K, V> {
    fn clone(&self) -> Self {
        self.0.with(|state| state.senders += 1);
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Drop for SlotSender<K, V> {
    fn drop(&mut self) {
        let waker = self.0.with(|state| {
            state.senders -= 1;
            if state.senders == 0 {
                state.waker.take()
            } else {
                None
            }
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<K: Ord + Clone, V: Merge> SlotSender<K, V> {
    /// Puts a value into the slot of the key, merging it with a queued one.
    pub fn put(&self, key: K, value: V) {
        let waker = self.0.with(|state| {
            match state.values.get_mut(&key) {
                Some(waiting) => waiting.merge(value),
                None => {
                    state.order.push_back((key.clone(), Instant::now()));
                    state.values.insert(key, value);
                }
            }
            state.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Updates the metrics for the number of filled slots and the age of the oldest.
    pub fn publish_metrics(&self, metrics: &MailboxMetrics) {
        let (depth, oldest) = self.0.with(|state| {
            (
                state.order.len(),
                state
                    .order
                    .front()
                    .map_or(0.0, |(_, at)| at.elapsed().as_secs_f64()),
            )
        });
        let name = format!("{}/slots", self.0.kind);
        metrics.depth.with_label_values(&[&name]).set(depth as f64);
        metrics.oldest.with_label_values(&[&name]).set(oldest);
    }
}

impl<K: Ord + Clone, V> Stream for SlotReceiver<K, V> {
    type Item = (K, V);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<(K, V)>> {
        self.shared.with(|state| {
            while let Some((key, _)) = state.order.pop_front() {
                if let Some(value) = state.values.remove(&key) {
                    self.metrics
                        .messages
                        .with_label_values(&[self.shared.kind.as_str()])
                        .inc();
                    return Poll::Ready(Some((key, value)));
                }
            }
            if state.senders == 0 {
                return Poll::Ready(None);
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    impl Merge for Vec<u8> {
        fn merge(&mut self, newer: Self) {
            self.extend(newer);
        }
    }

    #[tokio::test]
    async fn values_of_same_key_merge_and_keys_keep_order() {
        let metrics = crate::test_metrics();
        let (sender, receiver) =
            slots::<&str, Vec<u8>>(ActorKind::new("PodWorkers", 256), &metrics);
        sender.put("b", vec![1]);
        sender.put("a", vec![2]);
        sender.put("b", vec![3]);
        drop(sender);
        let all: Vec<_> = receiver.collect().await;
        assert_eq!(all, [("b", vec![1, 3]), ("a", vec![2])]);
    }

    #[tokio::test]
    async fn waiting_receiver_wakes_on_put() {
        let metrics = crate::test_metrics();
        let (sender, mut receiver) = slots::<u8, Vec<u8>>(ActorKind::new("Pleg", 256), &metrics);
        let task = tokio::spawn(async move { receiver.next().await });
        tokio::task::yield_now().await;
        sender.put(7, vec![1]);
        assert_eq!(task.await.expect("no panic"), Some((7, vec![1])));
    }
}
