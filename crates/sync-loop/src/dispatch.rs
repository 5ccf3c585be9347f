//! Updates of one worker that result from a change to the desired pods.

use std::fmt;
use std::time::Duration;

use windlass_actors::{KillPod, PhaseOverride, TerminatePod, UpdatePod, VolumesChanged};
use windlass_node_rules::admission::Rejection;
use windlass_node_rules::preemption::{PREEMPTED, preempted};
use windlass_types::{PodExt, PodUid, Reason, SharedPod};

/// Returns the dispatch for changed volumes: a resync, or the termination of the pod.
pub(crate) fn volumes_changed(uid: PodUid, changed: VolumesChanged) -> Dispatch {
    let Some(message) = changed.no_room else {
        return Dispatch::Sync(uid);
    };
    let reason = Reason::VolumeAttachmentLimitExceeded.as_str();
    let request = TerminatePod {
        grace: None,
        phase_override: Rejection::new(reason, &message).into(),
        reason: message,
    };
    Dispatch::Kill(uid, request.into())
}

/// Returns the dispatch for a preempted pod; it has its own grace period.
pub(crate) fn preempt(uid: PodUid) -> Dispatch {
    let request = TerminatePod {
        grace: None,
        reason: PREEMPTED.to_owned(),
        phase_override: preempted(),
    };
    Dispatch::Kill(uid, request.into())
}

/// Update of one worker: the decision of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub enum Dispatch {
    /// Run this pod.
    Run(SharedPod),
    /// Resync the pod.
    Sync(PodUid),
    /// Delete gracefully: deletionTimestamp is set.
    Delete(SharedPod),
    /// Terminate: the pod has a terminal phase at the API server.
    Terminate(SharedPod),
    /// Reject: the pod fails without running.
    Reject(SharedPod, PhaseOverride),
    /// Remove: the source no longer has the pod.
    Remove(PodUid),
    /// Kill: the node shuts down, the pod is evicted, or it is an orphaned pod.
    Kill(PodUid, KillPod),
}

impl Dispatch {
    /// UID of the pod.
    pub(crate) fn uid(&self) -> PodUid {
        match self {
            Self::Run(pod) | Self::Delete(pod) | Self::Terminate(pod) | Self::Reject(pod, _) => {
                pod.uid()
            }
            Self::Sync(uid) | Self::Remove(uid) | Self::Kill(uid, _) => uid.clone(),
        }
    }

    /// Converts it to the message for the pod worker.
    pub(crate) fn into_update(self) -> (PodUid, UpdatePod) {
        let kill = |reason: &str| KillPod {
            grace: None,
            reason: reason.to_owned(),
            removed: false,
            orphan: None,
            phase_override: None,
        };
        let (uid, run, kill) = match self {
            Self::Run(pod) => (pod.uid(), Some(pod), None),
            Self::Sync(uid) => (uid, None, None),
            Self::Delete(pod) => {
                let seconds = pod.metadata.deletion_grace_period_seconds;
                let grace = seconds.and_then(|s| u64::try_from(s).ok());
                let kill = KillPod {
                    grace: grace.map(Duration::from_secs),
                    ..kill("the pod was deleted")
                };
                (pod.uid(), Some(pod), Some(kill))
            }
            Self::Terminate(pod) => (
                pod.uid(),
                Some(pod),
                Some(kill("the pod has a terminal phase")),
            ),
            Self::Reject(pod, phase_override) => {
                let kill = KillPod {
                    phase_override: Some(phase_override),
                    ..kill("the pod was rejected")
                };
                (pod.uid(), Some(pod), Some(kill))
            }
            Self::Remove(uid) => {
                let kill = KillPod {
                    removed: true,
                    ..kill("the pod was removed from its source")
                };
                (uid, None, Some(kill))
            }
            Self::Kill(uid, kill) => (uid, None, Some(kill)),
        };
        let update = UpdatePod {
            run,
            kill,
            run_after_kill: false,
        };
        (uid, update)
    }
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(pod) => write!(f, "run({})", pod.uid()),
            Self::Sync(uid) => write!(f, "sync({uid})"),
            Self::Delete(pod) => write!(f, "delete({})", pod.uid()),
            Self::Terminate(pod) => write!(f, "terminate({})", pod.uid()),
            Self::Reject(pod, phase_override) => {
                write!(f, "reject({} {})", pod.uid(), phase_override.reason)
            }
            Self::Remove(uid) => write!(f, "remove({uid})"),
            Self::Kill(uid, kill) => match &kill.phase_override {
                Some(cause) => write!(f, "kill({uid} {})", cause.reason),
                None => write!(f, "kill({uid})"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_volumes_cause_resync_or_termination() {
        let check = |no_room: Option<&str>, expected: &str| {
            let changed = VolumesChanged {
                no_room: no_room.map(str::to_owned),
            };
            let line = match volumes_changed("web".into(), changed) {
                Dispatch::Kill(_, kill) => {
                    let phase_override = kill.phase_override.expect("a phase_override");
                    let PhaseOverride {
                        reason, message, ..
                    } = phase_override;
                    format!("{reason} within {:?}: {message}", kill.grace)
                }
                other => other.to_string(),
            };
            assert_eq!(line, expected);
        };
        check(None, "sync(web)");
        check(
            Some("full"),
            "VolumeAttachmentLimitExceeded within None: Pod was rejected: full",
        );
    }
}
