//! The event streams of the model runtime.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use windlass_cri::{CriCode, CriError, CriResult};
use windlass_types::cri::RuntimeEvent;

use super::operation::Operation;

/// Which event service the model runtime has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventMode {
    /// CRI's `GetContainerEvents`; events carry the pod's UID.
    #[default]
    Cri,
    /// Only containerd's own service; events carry no UID.
    Containerd,
    /// None: `Unimplemented`.
    Off,
}

/// Who listens, and what goes wrong with the next events.
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
        // Unbounded, as nothing may wait inside the model: tests are short.
        let (sender, receiver) = unbounded_channel();
        self.subscribers.push(sender);
        receiver
    }

    /// Sends an event, unless it gets lost; one that is late is given back with its delay.
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

    /// Ends every stream with the error of a lost connection.
    pub(super) fn disconnect(&mut self) {
        for subscriber in self.subscribers.drain(..) {
            let operation = Operation::Events.as_str();
            let error = CriError::new(
                operation,
                CriCode::Unavailable,
                "error reading from server: EOF",
            );
            // A subscriber that is gone has nothing to hear.
            let _ = subscriber.send(Err(error));
        }
    }
}
