//! Events for the API server, recorded locally at once and sent later.
//!
//! [`ApiEvents`] records like [`EventLog`], and into a bounded queue. [`EventSender`] correlates
//! and sends the events one by one, and retries while the API server is unreachable (12 attempts,
//! 10 s apart). Events are best effort: a full queue drops its oldest, and recording never waits.

mod queue;
mod sender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_metrics::Metrics;
use windlass_pod_status::event_correlator::{RecordedEvent, node_reference, pod_reference};
use windlass_types::corev1::ObjectReference;
use windlass_types::view::EventType;
use windlass_types::{Clock, ContainerProbe, EventRecorder, Pod, Reason};

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
    /// Creates a recorder around `log` and the sender of its events, to be [run](EventSender::run).
    pub fn new(
        log: EventLog,
        clock: Arc<dyn Clock>,
        node_name: &str,
        metrics: &Metrics,
    ) -> (Self, EventSender) {
        let queue = EventQueue::new(metrics.pod_status.events_dropped.clone());
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
        let event = self.event(object, event_type, reason, message);
        self.queue.push(event.bounded());
    }

    fn event(
        &self,
        object: ObjectReference,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) -> RecordedEvent {
        RecordedEvent {
            object,
            event_type,
            reason: reason.as_str().to_owned(),
            message: message.to_owned(),
            annotations: BTreeMap::new(),
            at: self.clock.now(),
        }
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

    fn record_probe(
        &self,
        pod: &Pod,
        probe: ContainerProbe<'_>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        self.log
            .record_probe(pod, probe, event_type, reason, message);
        let container = pod_reference(pod, Some(probe.container));
        self.send(container, event_type, reason, message);
    }

    fn record_annotated(
        &self,
        pod: &Pod,
        event_type: EventType,
        reason: Reason,
        message: &str,
        annotations: &BTreeMap<String, String>,
    ) {
        self.log.record(pod, None, event_type, reason, message);
        let event = RecordedEvent {
            annotations: annotations.clone(),
            ..self.event(pod_reference(pod, None), event_type, reason, message)
        };
        self.queue.push(event.bounded());
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
        tracing::debug!(object = ?what, %reason, message, "object event");
        self.send(object, event_type, reason, message);
    }
}
