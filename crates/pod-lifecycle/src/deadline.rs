//! The active deadline of a pod (`activeDeadlineSeconds`).
//!
//! The time counts from the pod's `startTime`. For a static pod after an agent restart it counts
//! from its oldest sandbox or container.

use windlass_types::corev1::PodStatus;
use windlass_types::{ObservedPod, Pod, PodExt, Reason, Timestamp};

use windlass_types::{Phase, PhaseOverride};

/// `status.message` and event message, as upstream.
pub const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// Input of [`is_past_deadline`].
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

/// True if the pod must fail: it was active until its deadline (upstream `pastActiveDeadline`).
pub fn is_past_deadline(input: DeadlineInput<'_>) -> bool {
    deadline(input).is_some_and(|at| at <= input.now)
}

/// Deadline of the pod; `None` without one, if not started, or in a terminal phase.
fn deadline(input: DeadlineInput<'_>) -> Option<Timestamp> {
    let DeadlineInput {
        pod,
        status,
        observed,
        ..
    } = input;
    if Phase::is_terminal_in(status) || pod.status.as_ref().is_some_and(Phase::is_terminal_in) {
        return None;
    }
    let seconds = PodExt::spec(pod).active_deadline_seconds?;
    let since = active_since(pod, status, observed)?;
    // a deadline beyond the range of timestamps never passes
    since.checked_add(whole_seconds(seconds)).ok()
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
    use windlass_types::metav1::Time;

    use super::*;
    use windlass_pod_text::{at, observed, pod};

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
            let input = DeadlineInput {
                pod: &pod,
                status: &status,
                observed: &observed,
                now: at(now),
            };
            let line = match deadline(input) {
                _ if is_past_deadline(input) => "passed".to_owned(),
                Some(end) => format!("until {}", end.as_second() - at(0).as_second()),
                None => "no deadline".to_owned(),
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
