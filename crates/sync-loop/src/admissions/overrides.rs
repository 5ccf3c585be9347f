//! Terminal phases of pods that the node terminates, in the checkpoint.
//!
//! The checkpoint has such a pod with its terminal status, and with the grace period of the
//! termination in its spec. An agent that was killed before the end of the pod continues the
//! termination, and does not start the pod again.

use std::time::Duration;

use windlass_types::corev1::{PodCondition, PodStatus};
use windlass_types::{Phase, PhaseOverride, PodExt, SharedPod};

/// Condition of a pod that the node terminates.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// A termination by the node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Override {
    pub(crate) cause: PhaseOverride,
    /// Grace period; `None` is that of the pod.
    pub(crate) grace: Option<Duration>,
}

/// Returns the pod with a terminal status.
pub(super) fn with_override(pod: &SharedPod, termination: &Override) -> SharedPod {
    let Override { cause, grace } = termination;
    let mut pod = SharedPod::clone(pod);
    if let Some(grace) = grace {
        let spec = SharedPod::make_mut(&mut pod).spec.get_or_insert_default();
        spec.termination_grace_period_seconds = i64::try_from(grace.as_secs()).ok();
    }
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
pub(crate) fn take_override(pod: &mut SharedPod) -> Option<Override> {
    let status = pod.status.as_ref()?;
    let phase = Phase::from_status(status).filter(|phase| phase.is_terminal())?;
    let cause = PhaseOverride {
        phase,
        reason: status.reason.clone().unwrap_or_default(),
        message: status.message.clone().unwrap_or_default(),
        disruption: disruption(status),
    };
    let grace = PodExt::spec(&**pod).termination_grace_period_seconds;
    let grace = grace.and_then(|seconds| u64::try_from(seconds).ok());
    let status = SharedPod::make_mut(pod).status.get_or_insert_default();
    (status.phase, status.reason, status.message) = (None, None, None);
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != DISRUPTION_TARGET);
    Some(Override {
        cause,
        grace: grace.map(Duration::from_secs),
    })
}

fn disruption(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == DISRUPTION_TARGET)?;
    condition.message.clone()
}
