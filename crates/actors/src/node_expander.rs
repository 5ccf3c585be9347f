//! The port by which the VolumeManager tells the API server how claims' volumes grow.

use std::fmt::Debug;

use async_trait::async_trait;
use windlass_types::{ExpansionDecision, Pod, Timestamp};

/// What the API server says of claims whose volumes are to grow, and what it is told of them
/// (upstream `NodeExpander`). A claim is named within the namespace of the pod that uses it.
///
/// Every call ends with an error, in words, at its deadline rather than never, and may be repeated.
#[async_trait]
pub trait NodeExpander: Send + Sync + Debug + 'static {
    /// Reads the claim anew, for what is to be done about its volume, whose PersistentVolume has
    /// `capacity` bytes. If that is to grow it, the claim is marked `NodeResizeInProgress`.
    /// `failed_before`: the driver has refused to grow it before.
    async fn turn(
        &self,
        pod: &Pod,
        claim: &str,
        capacity: u64,
        failed_before: bool,
    ) -> Result<ExpansionDecision, String>;

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
