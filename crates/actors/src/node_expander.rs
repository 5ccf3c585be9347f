//! Port for volume expansion on the node: reads and updates the status of PVCs.

use std::fmt::Debug;

use async_trait::async_trait;
use windlass_types::{ExpansionDecision, Pod, Timestamp};

/// Reads and updates PVCs for volume expansion (upstream `NodeExpander`).
///
/// The namespace of a PVC is that of the pod. Every call has a deadline and may be repeated.
#[async_trait]
pub trait NodeExpander: Send + Sync + Debug + 'static {
    /// Reads the PVC, whose PersistentVolume has `capacity` bytes, and decides. Before an expansion
    /// the PVC is marked `NodeResizeInProgress`. `failed_before`: the driver failed before.
    async fn expansion_decision(
        &self,
        pod: &Pod,
        claim: &str,
        capacity: u64,
        failed_before: bool,
    ) -> Result<ExpansionDecision, String>;

    /// Reports the new size (upstream `MarkNodeExpansionFinishedWithRecovery`).
    async fn report_expanded(&self, pod: &Pod, claim: &str, bytes: u64) -> Result<(), String>;

    /// Reports a failed expansion; `infeasible`: the driver can never provide the size (upstream
    /// `MarkNodeExpansionFailedCondition`, `MarkNodeExpansionInfeasible`).
    async fn report_failure(
        &self,
        pod: &Pod,
        claim: &str,
        infeasible: bool,
        why: &str,
        now: Timestamp,
    ) -> Result<(), String>;
}
