//! Terminal phases of pods that the node terminates, in the checkpoint.
//!
//! The checkpoint has such a pod with its terminal status. An agent that was killed before the end
//! of the pod continues the termination, and does not start the pod again.

use windlass_types::corev1::{PodCondition, PodStatus};
use windlass_types::{Phase, PhaseOverride, SharedPod};

/// Condition of a pod that the node terminates.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Returns the pod with a terminal status.
pub(super) fn with_override(pod: &SharedPod, cause: &PhaseOverride) -> SharedPod {
    let mut pod = SharedPod::clone(pod);
    let status = SharedPod::make_mut(&mut pod).status.get_or_insert_default();
    status.phase = Some(cause.phase.as_str().to_owned());
    status.reason = Some(cause.reason.clone());
    status.message = Some(cause.message.clone());
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != DISRUPTION_TARGET);
    if let Some(message) = &cause.disruption {
        conditions.push(PodCondition {
            type_: DISRUPTION_TARGET.to_owned(),
            status: "True".to_owned(),
            message: Some(message.clone()),
            ..PodCondition::default()
        });
    }
    pod
}

/// Takes the terminal status out of a restored pod, so that its worker decides about the status.
pub(crate) fn take_override(pod: &mut SharedPod) -> Option<PhaseOverride> {
    let status = pod.status.as_ref()?;
    let phase = Phase::from_status(status).filter(|phase| phase.is_terminal())?;
    let cause = PhaseOverride {
        phase,
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
        disruption: disruption(status),
    };
    let status = SharedPod::make_mut(pod).status.get_or_insert_default();
    (status.phase, status.reason, status.message) = (None, None, None);
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != DISRUPTION_TARGET);
    Some(cause)
}

fn disruption(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == DISRUPTION_TARGET)?;
    condition.message.clone()
}
