//! When a pod has been active for longer than `activeDeadlineSeconds` lets it.
//!
//! The time counts from the pod's `startTime`. A static pod's is not kept anywhere when the agent
//! restarts: then it counts from the oldest thing that the runtime has of the pod, which is made
//! moments after it.

use std::fmt;

use windlass_types::corev1::PodStatus;
use windlass_types::{ObservedPod, Pod, PodExt, Reason, Timestamp};

use windlass_types::{Phase, PhaseOverride};

/// `status.message` and the event's text, in upstream's words.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// What is known of the pod.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineInput<'a> {
    /// The pod as asked.
    pub pod: &'a Pod,
    /// Its status as it was reported last; one that was never reported has no start time.
    pub status: &'a PodStatus,
    /// The pod as found.
    pub observed: &'a ObservedPod,
    /// The present.
    pub now: Timestamp,
}

/// How a pod stands to its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// It has none, is not active yet, or is done.
    None,
    /// It may be active until then.
    Ahead(Timestamp),
    /// It is to be ended as Failed.
    Passed,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no deadline"),
            Self::Ahead(at) => write!(f, "until {}", at.as_second()),
            Self::Passed => f.write_str("passed"),
        }
    }
}

/// Compares the time that a pod was active with its deadline (upstream `pastActiveDeadline`).
pub fn deadline(input: DeadlineInput<'_>) -> Deadline {
    let DeadlineInput {
        pod,
        status,
        observed,
        now,
    } = input;
    let phases = [pod.status.as_ref(), Some(status)];
    let mut phases = phases.into_iter().flatten().filter_map(|status| {
        let phase = status.phase.as_deref()?;
        Phase::parse(phase)
    });
    if phases.any(Phase::is_terminal) {
        return Deadline::None;
    }
    let seconds = PodExt::spec(pod).active_deadline_seconds;
    let (Some(seconds), Some(since)) = (seconds, active_since(pod, status, observed)) else {
        return Deadline::None;
    };
    // what is further away than time goes is never reached
    let length = whole_seconds(seconds);
    match since.checked_add(length) {
        Ok(at) if at <= now => Deadline::Passed,
        Ok(at) => Deadline::Ahead(at),
        Err(_) => Deadline::None,
    }
}

/// What a pod becomes whose deadline has passed.
pub fn phase_override() -> PhaseOverride {
    PhaseOverride {
        phase: Phase::Failed,
        reason: Reason::DeadlineExceeded.as_str().to_owned(),
        message: MESSAGE.to_owned(),
        disruption: None,
    }
}

fn whole_seconds(seconds: i64) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn active_since(pod: &Pod, status: &PodStatus, observed: &ObservedPod) -> Option<Timestamp> {
    let api = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
    let told = [api, status.start_time.as_ref()];
    let told = told.into_iter().flatten().map(|time| time.0);
    let sandboxes = observed.sandboxes.iter().map(|s| s.created_at);
    let containers = observed.containers.iter().map(|c| c.created_at);
    told.chain(sandboxes).chain(containers).min()
}

#[cfg(test)]
mod tests {
    use windlass_types::metav1::Time;

    use super::*;
    use windlass_pod_text::{at, observed, pod};

    /// `told` is the status' start, seconds after the tests' zero; `found` as in the tables of
    /// actions, where each word is ten seconds younger than the one before.
    fn check(seconds: Option<i64>, told: Option<i64>, phase: &str, found: &str, lines: [&str; 3]) {
        let mut pod = pod("Always a");
        pod.spec.as_mut().expect("spec").active_deadline_seconds = seconds;
        let status = PodStatus {
            phase: Some(phase.to_owned()),
            start_time: told.map(|t| Time(at(t))),
            ..PodStatus::default()
        };
        let observed = observed(&pod, found);
        for (now, expected) in [29, 30, 31].into_iter().zip(lines) {
            let found = deadline(DeadlineInput {
                pod: &pod,
                status: &status,
                observed: &observed,
                now: at(now),
            });
            let zero = at(0).as_second();
            let line = match found {
                Deadline::Ahead(end) => format!("until {}", end.as_second() - zero),
                other => other.to_string(),
            };
            assert_eq!(
                line, expected,
                "{seconds:?} {told:?} {phase} {found} at {now}"
            );
        }
    }

    #[test]
    fn a_pod_may_be_active_for_its_deadline_and_no_second_longer() {
        let never = ["no deadline"; 3];
        check(None, Some(0), "Running", "sb0 a=run", never);
        check(Some(5), None, "Pending", "", never);
        check(
            Some(30),
            Some(0),
            "Running",
            "",
            ["until 30", "passed", "passed"],
        );
        check(Some(30), Some(5), "Pending", "", ["until 35"; 3]);
        check(Some(i64::MAX), Some(5), "Running", "", never);
    }

    #[test]
    fn what_the_runtime_has_is_older_than_a_start_that_was_told_after_a_restart() {
        let lines = ["until 30", "passed", "passed"];
        check(Some(30), Some(28), "Running", "sb0 a=run", lines);
        check(Some(30), None, "Running", "sb0! sb1 a=exit1", lines);
    }

    #[test]
    fn a_pod_that_is_done_is_not_failed_afterwards() {
        check(
            Some(30),
            Some(0),
            "Succeeded",
            "sb0 a=exit0",
            ["no deadline"; 3],
        );
        check(
            Some(30),
            Some(0),
            "Failed",
            "sb0 a=exit1",
            ["no deadline"; 3],
        );
    }

    #[test]
    fn the_verdict_has_the_words_that_users_look_for() {
        let phase_override = phase_override();
        assert_eq!(phase_override.phase, Phase::Failed);
        assert_eq!(phase_override.reason, "DeadlineExceeded");
        assert_eq!(
            phase_override.message,
            "Pod was active on the node longer than the specified deadline"
        );
    }
}
