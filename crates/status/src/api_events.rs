//! Events of the API: what is recorded is shown locally at once, and sent when that is possible.
//!
//! [`ApiEvents`] records: onto the board and into the log like [`EventLog`], and into a bounded
//! queue. [`EventSender`] empties the queue: it correlates, then creates or patches, one event
//! after the other, and holds on to an event while the server cannot be reached (twelve tries,
//! ten seconds apart). Events are best effort, so a full queue loses its oldest; whoever records
//! never waits.

mod queue;
mod sender;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use windlass_pod_status::event_series::{Occurrence, node_reference, pod_reference};
use windlass_metrics::Metrics;
use windlass_types::corev1::ObjectReference;
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, Pod, Reason};

use crate::events::EventLog;
use queue::EventQueue;

pub use sender::EventSender;

/// Records events locally and for the API server. Clones share the queue.
#[derive(Clone, Debug)]
pub struct ApiEvents {
    log: EventLog,
    clock: Arc<dyn Clock>,
    node_name: Arc<str>,
    queue: EventQueue,
}

impl ApiEvents {
    /// A recorder around `log`, and what sends its events once it is [run](EventSender::run).
    pub fn new(
        log: EventLog,
        clock: Arc<dyn Clock>,
        node_name: &str,
        metrics: &Metrics,
    ) -> (Self, EventSender) {
        let queue = EventQueue::new(metrics.events_dropped.clone());
        let sender = EventSender::new(queue.clone(), node_name);
        let recorder = Self {
            log,
            clock,
            node_name: node_name.into(),
            queue,
        };
        (recorder, sender)
    }

    fn send(&self, object: ObjectReference, event_type: EventType, reason: Reason, message: &str) {
        let occurrence = Occurrence {
            object,
            event_type,
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            at: self.clock.now(),
        };
        self.queue.push(occurrence.bounded());
    }
}

impl EventRecorder for ApiEvents {
    fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        self.log.record(pod, container, event_type, reason, message);
        self.send(pod_reference(pod, container), event_type, reason, message);
    }

    fn record_node(&self, event_type: EventType, reason: Reason, message: &str) {
        self.log.record_node(event_type, reason, message);
        let node = node_reference(&self.node_name);
        self.send(node, event_type, reason, message);
    }

    fn record_object(
        &self,
        object: ObjectReference,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        let what = (object.kind.as_deref(), object.name.as_deref());
        tracing::debug!(object = ?what, %reason, message, "event of an object");
        self.send(object, event_type, reason, message);
    }
}
