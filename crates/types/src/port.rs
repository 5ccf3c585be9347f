//! Ports so small that every crate may hold them: the clock and the event recorder.

use std::fmt::Debug;

use crate::Timestamp;
use crate::corev1::ObjectReference;
use crate::pod::Pod;
use crate::reason::Reason;
use crate::view::EventType;

/// Where the present comes from. Production reads the wall clock, simulations a virtual one.
pub trait Clock: Send + Sync + Debug + 'static {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// Records what happened to a pod for its user (upstream `record.EventRecorder`).
///
/// Must not block: implementations aggregate in memory and forward elsewhere.
pub trait EventRecorder: Send + Sync + Debug + 'static {
    /// Records one event; `container` names the container concerned, if one.
    fn record(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    );

    /// Records one event of the node itself.
    fn record_node(&self, event_type: EventType, reason: Reason, message: &str);

    /// Records one event of another object, such as a claim. Who only knows pods leaves it out.
    fn record_object(
        &self,
        _object: ObjectReference,
        _event_type: EventType,
        _reason: Reason,
        _message: &str,
    ) {
    }
}
