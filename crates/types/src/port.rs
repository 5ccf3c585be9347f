//! Ports so small that every crate may hold them: the clock, the event recorder, the sizes of
//! claims.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::Timestamp;
use crate::corev1::ObjectReference;
use crate::growth::GrowthTurn;
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

/// What the API server says of claims whose volumes are to grow, and what it is told of them
/// (upstream `NodeExpander`). A claim is named within the namespace of the pod that uses it.
///
/// Every call ends with an error, in words, at its deadline rather than never, and may be repeated.
#[async_trait]
pub trait ClaimSizes: Send + Sync + Debug + 'static {
    /// Reads the claim anew, for what is to be done about its volume, whose PersistentVolume has
    /// `capacity` bytes. If that is to grow it, the claim is marked `NodeResizeInProgress`.
    /// `failed_before`: the driver has refused to grow it before.
    async fn turn(
        &self,
        pod: &Pod,
        claim: &str,
        capacity: u64,
        failed_before: bool,
    ) -> Result<GrowthTurn, String>;

    /// The volume has this many bytes now (upstream `MarkNodeExpansionFinishedWithRecovery`).
    async fn grown(&self, pod: &Pod, claim: &str, bytes: u64) -> Result<(), String>;

    /// The volume did not grow, and why; `infeasible`: it never will to that size (upstream
    /// `MarkNodeExpansionFailedCondition`, `MarkNodeExpansionInfeasible`).
    async fn not_grown(
        &self,
        pod: &Pod,
        claim: &str,
        infeasible: bool,
        why: &str,
        now: Timestamp,
    ) -> Result<(), String>;
}
