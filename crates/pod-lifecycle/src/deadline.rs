//! The active deadline of a pod (`activeDeadlineSeconds`).
//!
//! The time counts from the pod's `startTime`. For a static pod after an agent restart it counts
//! from its oldest sandbox or container.

use windlass_types::corev1::PodStatus;
use windlass_types::{ObservedPod, Pod, PodExt, Reason, Timestamp};

use windlass_types::{Phase, PhaseOverride};

/// `status.message` and event message, as upstream.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Input of [`deadline`].
#[derive(Clone, Copy, Debug)]
pub struct DeadlineInput<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// Its last reported status; without one it has no start time.
    pub status: &'a PodStatus,
    /// The observed pod.
    pub observed: &'a ObservedPod,
    /// The current time.
    pub now: Timestamp,
}

/// State of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// No deadline, not started, or in a terminal phase.
    None,
    /// The deadline is in the future.
    Ahead(Timestamp),
    /// The pod must fail.
    Passed,
}

/// Compares the time that a pod was active with its deadline (upstream `pastActiveDeadline`).
pub fn deadline(input: DeadlineInput<'_>) -> Deadline {
    let DeadlineInput {
        pod,
        status,
        observed,
        now,
    } = input;
    if Phase::is_terminal_in(status) || pod.status.as_ref().is_some_and(Phase::is_terminal_in) {
        return Deadline::None;
    }
    let seconds = PodExt::spec(pod).active_deadline_seconds;
    let (Some(seconds), Some(since)) = (seconds, active_since(pod, status, observed)) else {
        return Deadline::None;
    };
    // a deadline beyond the range of timestamps never passes
    let length = whole_seconds(seconds);
    match since.checked_add(length) {
        Ok(at) if at <= now => Deadline::Passed,
        Ok(at) => Deadline::Ahead(at),
        Err(_) => Deadline::None,
    }
}

/// Returns the phase of a pod after its deadline.
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
    let reported = [api, status.start_time.as_ref()];
    let reported = reported.into_iter().flatten().map(|time| time.0);
    let sandboxes = observed.sandboxes.iter().map(|s| s.created_at);
    let containers = observed.containers.iter().map(|c| c.created_at);
    reported.chain(sandboxes).chain(containers).min()
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use windlass_types::metav1::Time;

    use super::*;
    use windlass_pod_text::{at, observed, pod};

    impl fmt::Display for Deadline {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::None => f.write_str("no deadline"),
                Self::Ahead(at) => write!(f, "until {}", at.as_second()),
                Self::Passed => f.write_str("passed"),
            }
        }
    }

    /// `start` is the reported start time in seconds; each word of `text` is 10 s newer than the
    /// one before.
    fn check(seconds: Option<i64>, start: Option<i64>, phase: &str, text: &str, lines: [&str; 3]) {
        let mut pod = pod("Always a");
        pod.spec.as_mut().expect("spec").active_deadline_seconds = seconds;
        let status = PodStatus {
            phase: Some(phase.to_owned()),
            start_time: start.map(|t| Time(at(t))),
            ..PodStatus::default()
        };
        let observed = observed(&pod, text);
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
                "{seconds:?} {start:?} {phase} {text} at {now}"
            );
        }
    }

    #[test]
    fn pod_is_active_until_its_deadline() {
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
    fn deadline_counts_from_runtime_objects_after_agent_restart() {
        let lines = ["until 30", "passed", "passed"];
        check(Some(30), Some(28), "Running", "sb0 a=run", lines);
        check(Some(30), None, "Running", "sb0! sb1 a=exit1", lines);
    }

    #[test]
    fn terminal_pod_has_no_deadline() {
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
    fn phase_override_has_upstream_message() {
        let phase_override = phase_override();
        assert_eq!(phase_override.phase, Phase::Failed);
        assert_eq!(phase_override.reason, "DeadlineExceeded");
        assert_eq!(
            phase_override.message,
            "Pod was active on the node longer than the specified deadline"
        );
    }
}
