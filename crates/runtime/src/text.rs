//! Texts that match the Go kubelet.

use windlass_types::{Pod, PodExt};

/// Upstream's `format.Pod`: `name_namespace(uid)`.
pub(crate) fn pod_text(pod: &Pod) -> String {
    format!("{}({})", pod.full_name(), pod.uid())
}
