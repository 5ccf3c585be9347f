//! Ports so small that every crate may hold them: the clock, the event recorder, the sizes of
//! claims.

use std::fmt::Debug;

use crate::Timestamp;
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
}

/// Tells the API server that the file system behind a claim has grown (upstream
/// `MarkNodeExpansionFinishedWithRecovery`).
///
/// Must not block: implementations ask the server elsewhere, and try again. A word that is lost is
/// said again: the next sync of a pod finds the claim smaller than its volume.
pub trait ClaimSizes: Send + Sync + Debug + 'static {
    /// The claim, in the namespace of the pod that uses it, has this many bytes now.
    fn grown(&self, pod: &Pod, claim: &str, bytes: u64);
}
