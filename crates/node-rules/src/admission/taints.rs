//! Matches taints of the node with tolerations of the pod.

use windlass_types::corev1::{Node, PodSpec, Taint, Toleration};
use windlass_types::{Pod, PodExt};

/// Returns whether the pod does not tolerate a `NoExecute` taint; other effects are for the
/// scheduler.
pub(super) fn has_untolerated_no_execute(spec: &PodSpec, node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref());
    let mut taints = taints.unwrap_or_default().iter();
    taints.any(|t| t.effect == "NoExecute" && !tolerates(spec, t))
}

pub(super) fn tolerates_memory_pressure(pod: &Pod) -> bool {
    let taint = Taint {
        key: "node.kubernetes.io/memory-pressure".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    tolerates(PodExt::spec(pod), &taint)
}

fn tolerates(spec: &PodSpec, taint: &Taint) -> bool {
    let mut tolerations = spec.tolerations.iter().flatten();
    tolerations.any(|t| covers(t, taint))
}

/// An empty effect matches all effects, an empty key with `Exists` all keys.
fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => text(&toleration.value) == text(&taint.value),
        Some("Exists") => true,
        // Gt and Lt are behind an alpha gate
        Some(_) => false,
    }
}
