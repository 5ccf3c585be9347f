//! The queue between recorders and sender: bounded, the oldest goes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_pod_status::event_series::Occurrence;
use windlass_metrics::Counter;
use windlass_types::Timestamp;

/// Upstream's number. A start of 110 pods makes about ten events each; with messages cut to
/// 4 KiB the queue takes 4.5 MiB at the very most, some 500 KiB in practice.
pub(super) const QUEUE_BOUND: usize = 1000;
/// A clock that was set back by more than this is believed.
const CLOCK_JITTER: Duration = Duration::from_secs(1);

/// Clones are ways to the same queue.
#[derive(Clone, Debug)]
pub(super) struct EventQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    filled: Notify,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Occurrence>,
    newest: Option<Timestamp>,
}

impl EventQueue {
    pub(super) fn new(dropped: Counter) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            filled: Notify::new(),
            dropped,
        }))
    }

    /// Puts an occurrence at the end; never waits. Two at the same moment are set one nanosecond
    /// apart, because an event is named after its time.
    pub(super) fn push(&self, mut occurrence: Occurrence) {
        let overflow = self.with(|state| {
            occurrence.at = after(state.newest, occurrence.at);
            state.newest = Some(occurrence.at);
            state.waiting.push_back(occurrence);
            state.waiting.len() > QUEUE_BOUND && state.waiting.pop_front().is_some()
        });
        if overflow {
            self.0.dropped.inc();
        }
        self.0.filled.notify_one();
    }

    /// Takes the oldest, as soon as there is one.
    pub(super) async fn next(&self) -> Occurrence {
        loop {
            if let Some(occurrence) = self.with(|state| state.waiting.pop_front()) {
                return occurrence;
            }
            // a permit is kept if something came in between
            self.0.filled.notified().await;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn after(newest: Option<Timestamp>, at: Timestamp) -> Timestamp {
    match newest {
        Some(newest) if at <= newest && newest.duration_since(at).unsigned_abs() < CLOCK_JITTER => {
            newest
                .checked_add(Duration::from_nanos(1))
                .unwrap_or(newest)
        }
        _ => at,
    }
}
