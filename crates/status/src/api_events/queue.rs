//! Bounded queue between recorders and sender; an overflow drops the oldest event.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use windlass_metrics::Counter;
use windlass_pod_status::event_correlator::RecordedEvent;
use windlass_types::Timestamp;

/// Capacity, as upstream. A pod start records about ten events; with messages of at most 4 KiB the
/// queue takes at most 4.5 MiB.
pub(super) const QUEUE_BOUND: usize = 1000;
/// Maximum backward step of the wall clock that is corrected.
const CLOCK_JITTER: Duration = Duration::from_secs(1);

/// The queue. Clones share it.
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
    waiting: VecDeque<RecordedEvent>,
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

    /// Appends an event; never waits. Equal times are set 1 ns apart, because the event name
    /// contains the time.
    pub(super) fn push(&self, mut occurrence: RecordedEvent) {
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

    /// Waits for an event and removes the oldest.
    pub(super) async fn next(&self) -> RecordedEvent {
        loop {
            if let Some(occurrence) = self.with(|state| state.waiting.pop_front()) {
                return occurrence;
            }
            // `Notify` keeps a permit for an event that was added in between
            self.0.filled.notified().await;
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.state.lock())
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
