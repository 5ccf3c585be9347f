//! Enforces node allocatable: limits all pods and the daemons of the node (upstream
//! `enforceNodeAllocatableCgroups`).
//!
//! A task of the agent. It ends when every limit is set; a limit that fails is set again each
//! minute, with an event. A missing cgroup of daemons does not end the agent.

use std::time::Duration;

use windlass_runtime_config::node_cgroups::NodeLimit;
use windlass_types::Reason;
use windlass_types::view::EventType;

use super::PodCgroupError;
use crate::PodRuntime;

/// Interval of the retries of a failed limit, as upstream.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of the attempts to read the cgroup driver of a runtime that is not reachable yet.
const DRIVER_INTERVAL: Duration = Duration::from_secs(5);

impl PodRuntime {
    /// Sets the limits of node allocatable and records an event for each attempt. Returns when all
    /// are set.
    pub async fn enforce_node_allocatable(&self) {
        let Some(mut limits) = self.node_limits().await else {
            return;
        };
        loop {
            let mut failed = Vec::new();
            for limit in limits {
                if !self.enforce(&limit).await {
                    failed.push(limit);
                }
            }
            if failed.is_empty() {
                return;
            }
            limits = failed;
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits for the cgroup driver and returns all limits; `None` without cgroups.
    async fn node_limits(&self) -> Option<Vec<NodeLimit>> {
        loop {
            match self.cgroups().await {
                Ok(None) => return None,
                Ok(Some(cgroups)) => {
                    let settings = self.deps().cgroups.as_ref()?;
                    let limits = [cgroups.pods_limit()].into_iter();
                    return Some(limits.chain(settings.reserved.iter().cloned()).collect());
                }
                Err(PodCgroupError::Driver(error)) => {
                    tracing::debug!(%error, "cgroup driver unknown; limits are set later");
                }
                Err(PodCgroupError::Files(error)) => {
                    tracing::warn!(%error, "cgroups of pods not available");
                }
            }
            tokio::time::sleep(DRIVER_INTERVAL).await;
        }
    }

    async fn enforce(&self, limit: &NodeLimit) -> bool {
        let Ok(Some(cgroups)) = self.cgroups().await else {
            return false;
        };
        let (cgroups, wanted) = (cgroups.clone(), limit.clone());
        let set = self.in_node_queue("limiting the node", move || cgroups.enforce(&wanted));
        let events = &self.deps().events;
        match set.await {
            Ok(()) => {
                let reason = Reason::NodeAllocatableEnforced;
                events.record_node(EventType::Normal, reason, &limit.enforced());
                true
            }
            Err(error) => {
                let reason = Reason::FailedNodeAllocatableEnforcement;
                let message = limit.failed(&error);
                tracing::warn!(message, "node allocatable not enforced");
                events.record_node(EventType::Warning, reason, &message);
                false
            }
        }
    }
}
