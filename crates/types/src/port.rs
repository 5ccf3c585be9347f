//! The ports that any crate may use: the clock and the event recorder.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::Timestamp;
use crate::corev1::ObjectReference;
use crate::pod::Pod;
use crate::probe::ContainerProbe;
use crate::reason::Reason;
use crate::view::EventType;

/// Source of the current time: the wall clock, or a virtual clock in simulations.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// Records Kubernetes events (upstream `record.EventRecorder`).
///
/// Must not block: implementations aggregate in memory and forward elsewhere.
pub trait EventRecorder: Send + Sync + Debug + 'static {
    /// Records an event of a pod; `container` names the container concerned, if one.
    fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    );

    /// Records an event of a container that one of its probes caused. By default as [`record`].
    ///
    /// [`record`]: EventRecorder::record
    fn record_probe(
        &self,
        pod: &Pod,
        probe: ContainerProbe<'_>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        self.record(pod, Some(probe.container), event_type, reason, message);
    }

    /// Records an event of a pod with annotations. By default as [`record`], without them.
    ///
    /// [`record`]: EventRecorder::record
    fn record_annotated(
        &self,
        pod: &Pod,
        event_type: EventType,
        reason: Reason,
        message: &str,
        _annotations: &BTreeMap<String, String>,
    ) {
        self.record(pod, None, event_type, reason, message);
    }

    /// Records an event of the node.
    fn record_node(&self, event_type: EventType, reason: Reason, message: &str);

    /// Records an event of another object, such as a PVC. By default it is dropped.
    fn record_object(
        &self,
        _object: ObjectReference,
        _event_type: EventType,
        _reason: Reason,
        _message: &str,
    ) {
    }
}
