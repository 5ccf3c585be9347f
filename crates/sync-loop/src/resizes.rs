//! The queue of resizes that wait for their allocation. Pure.

use std::collections::BTreeSet;

use windlass_node_rules::resize::resize_order;
use windlass_types::PodUid;

use crate::desired::DesiredPods;

/// Sync ticks until the first periodic retry, 30 s.
const FIRST_RETRY_TICKS: u32 = 30;
/// Sync ticks between periodic retries, 3 min.
const RETRY_TICKS: u32 = 180;

/// Cause of a retry: label of `kubelet_pod_deferred_accepted_resizes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryTrigger {
    /// Pods were added, or all sources became ready.
    PodsAdded,
    /// The spec of a pod changed.
    PodUpdated,
    /// Pods were removed.
    PodsRemoved,
    /// A pod became terminal.
    PodTerminated,
    /// A pod was resized to less.
    PodResized,
    /// Nothing was freed for 3 min.
    Periodic,
}

impl RetryTrigger {
    /// Returns the label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PodsAdded => "pods_added",
            Self::PodUpdated => "pod_updated",
            Self::PodsRemoved => "pods_removed",
            Self::PodTerminated => "pod_terminated",
            Self::PodResized => "pod_resized",
            Self::Periodic => "periodic_retry",
        }
    }
}

/// Pods whose resize is tried, at the latest after a number of sync ticks of one second.
#[derive(Debug)]
pub(crate) struct ResizeQueue {
    queued: BTreeSet<PodUid>,
    ticks: u32,
}

impl Default for ResizeQueue {
    fn default() -> Self {
        Self {
            queued: BTreeSet::new(),
            ticks: FIRST_RETRY_TICKS,
        }
    }
}

impl ResizeQueue {
    /// Adds a pod.
    pub(crate) fn push(&mut self, uid: PodUid) {
        self.queued.insert(uid);
    }

    /// Removes a pod.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        self.queued.remove(uid);
    }

    /// Handles a sync tick; true if a periodic retry is due.
    pub(crate) fn tick(&mut self) -> bool {
        self.ticks = self.ticks.saturating_sub(1);
        self.ticks == 0
    }

    /// Seconds until the next periodic retry.
    pub(crate) fn seconds(&self) -> u32 {
        self.ticks
    }

    /// Begins a retry and returns the pods in their order: none before all sources are ready.
    pub(crate) fn begin(&mut self, desired: &DesiredPods, sources_ready: bool) -> Vec<PodUid> {
        if !sources_ready {
            self.ticks = FIRST_RETRY_TICKS;
            return Vec::new();
        }
        self.ticks = RETRY_TICKS;
        self.queued.retain(|uid| desired.live(uid).is_some());
        let mut ordered: Vec<_> = self
            .queued
            .iter()
            .filter_map(|uid| {
                let order = resize_order(desired.live(uid)?, desired.get(uid)?);
                Some((order, uid.clone()))
            })
            .collect();
        ordered.sort();
        ordered.into_iter().map(|(_, uid)| uid).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Times of periodic retries.

    use super::*;

    #[test]
    fn retries_are_due_after_30_s_then_every_3_min() {
        let desired = DesiredPods::default();
        let mut queue = ResizeQueue::default();
        let mut check = |sources_ready: Option<bool>, ticks: usize| {
            if let Some(ready) = sources_ready {
                queue.begin(&desired, ready);
            }
            let due = (1..).find(|_| queue.tick());
            assert_eq!(due, Some(ticks), "{sources_ready:?}");
        };
        check(None, 30);
        check(Some(false), 30);
        check(Some(true), 180);
    }
}
