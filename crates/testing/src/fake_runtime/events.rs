//! Event streams of the fake runtime.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use windlass_cri::{CriCode, CriError, CriResult};
use windlass_types::cri::RuntimeEvent;

use super::operation::Operation;

/// Event service of the fake runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventMode {
    /// CRI `GetContainerEvents`, whose events have the pod UID.
    #[default]
    Cri,
    /// The event service of containerd only, whose events have no UID.
    Containerd,
    /// None: `Unimplemented`.
    Off,
}

/// Subscribers and event faults.
#[derive(Debug, Default)]
pub(super) struct EventHub {
    mode: EventMode,
    subscribers: Vec<UnboundedSender<CriResult<RuntimeEvent>>>,
    pub(super) drop_next: usize,
    pub(super) duplicate_next: usize,
    pub(super) late: Option<Duration>,
}

impl EventHub {
    pub(super) fn mode(&self) -> EventMode {
        self.mode
    }

    pub(super) fn set_mode(&mut self, mode: EventMode) {
        self.mode = mode;
        self.disconnect();
    }

    pub(super) fn subscribe(&mut self) -> UnboundedReceiver<CriResult<RuntimeEvent>> {
        // unbounded: the model must not block
        let (sender, receiver) = unbounded_channel();
        self.subscribers.push(sender);
        receiver
    }

    /// Sends an event, drops it, or returns it with its delay.
    pub(super) fn publish(&mut self, event: RuntimeEvent) -> Option<(Duration, RuntimeEvent)> {
        if self.drop_next > 0 {
            self.drop_next -= 1;
            return None;
        }
        match self.late {
            Some(late) => Some((late, event)),
            None => {
                self.deliver(event);
                None
            }
        }
    }

    pub(super) fn deliver(&mut self, mut event: RuntimeEvent) {
        if self.mode == EventMode::Containerd {
            event.uid = None;
        }
        self.send(&event);
        if self.duplicate_next > 0 {
            self.duplicate_next -= 1;
            self.send(&event);
        }
    }

    fn send(&mut self, event: &RuntimeEvent) {
        self.subscribers
            .retain(|subscriber| subscriber.send(Ok(event.clone())).is_ok());
    }

    /// Ends every stream with a connection error.
    pub(super) fn disconnect(&mut self) {
        for subscriber in self.subscribers.drain(..) {
            let operation = Operation::Events.as_str();
            let error = CriError::new(
                operation,
                CriCode::Unavailable,
                "error reading from server: EOF",
            );
            // fails if the subscriber is dropped
            let _ = subscriber.send(Err(error));
        }
    }
}
