//! Grace periods, and how a container stop spends its grace period (upstream `killContainer`).
//!
//! The preStop hook, the wait for containers that stop first, and the stop timeout share one grace
//! period, in this order. Only the stop timeout has a minimum, which may exceed the grace period.

use std::time::Duration;

use windlass_types::cri::SandboxSummary;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{
    ContainerState, ObservedPod, ObservedSandbox, Pod, PodExt, Reason, SandboxId, Timestamp,
};

/// Minimum grace period of a pod; a force deletion has it.
pub const MIN_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Minimum time between stop signal and SIGKILL (upstream `minimumGracePeriodInSeconds`).
pub const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Exit code of a container whose exit was not observed (upstream `TerminatePod`).
pub const UNOBSERVED_EXIT_CODE: i32 = 137;
/// Termination message of such a container.
pub const UNOBSERVED_EXIT_MESSAGE: &str =
    "The container could not be located when the pod was terminated";

/// Returns the effective grace period (upstream `setTerminationGracePeriod`): the deletion grace
/// period, else `probe`, the probe grace period, else the termination grace period of the pod.
pub fn effective_grace_period(pod: &Pod, probe: Option<Duration>) -> Duration {
    let seconds = |s: i64| Duration::from_secs(u64::try_from(s).unwrap_or(0));
    match (pod.metadata.deletion_grace_period_seconds, probe) {
        (Some(deletion), _) => seconds(deletion),
        (None, Some(probe)) => probe,
        (None, None) => seconds(pod.termination_grace_seconds()),
    }
}

/// True if the previous agent run began to terminate the pod: the checkpoint has its
/// deletionTimestamp.
pub fn is_resumed_stop(pod: &Pod) -> bool {
    pod.is_restored() && pod.metadata.deletion_timestamp.is_some()
}

/// Returns the remaining grace period of a pod that the previous agent run began to terminate:
/// until its deletionTimestamp, between [`MIN_GRACE_PERIOD`] and `grace`. Without one it is
/// `grace`.
pub fn remaining_grace_period(pod: &Pod, grace: Duration, now: Timestamp) -> Duration {
    let Some(deletion) = &pod.metadata.deletion_timestamp else {
        return grace;
    };
    let left = Duration::try_from(deletion.0.duration_since(now)).unwrap_or(Duration::ZERO);
    left.max(MIN_GRACE_PERIOD).min(grace)
}

/// Returns the time after which a stop has exceeded its grace period (upstream `killPodNow`).
pub fn overdue_threshold(grace: Duration) -> Duration {
    (grace + grace / 2).max(Duration::from_secs(10))
}

/// Returns true if the sandboxes of a pod may be stopped. That kills what runs in them, so a container
/// that could not be stopped keeps them for the rest of the grace period. `waited` is the time since
/// the first attempt. Upstream stops them at once.
pub fn may_stop_sandboxes(all_stopped: bool, waited: Duration, grace: Duration) -> bool {
    all_stopped || waited >= grace
}

/// Returns the last observed state of a stopped pod with its running containers as exited (upstream
/// `TerminatePod`). The time and cause of those exits were not observed.
pub fn with_unobserved_exits(last: &ObservedPod) -> ObservedPod {
    let mut pod = last.clone();
    for sandbox in &mut pod.sandboxes {
        sandbox.ready = false;
    }
    for container in pod.containers.iter_mut().filter(|c| c.state.may_run()) {
        container.state = ContainerState::Exited;
        container.exit_code = UNOBSERVED_EXIT_CODE;
        container.finished_at = None;
        container.reason = Reason::ContainerStatusUnknown.as_str().to_owned();
        container.message = UNOBSERVED_EXIT_MESSAGE.to_owned();
    }
    pod
}

/// What a pod stop requires of one sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxToStop {
    /// The runtime's ID.
    pub id: SandboxId,
    /// `SANDBOX_READY`.
    pub ready: bool,
    /// When the runtime created it.
    pub created_at: Timestamp,
}

impl SandboxToStop {
    /// True if a stop that the runtime rejected leaves nothing that runs: processes and network
    /// namespaces do not outlive a boot. A power cut can damage the files of CNI so that the runtime
    /// never stops the sandbox. `booted` is the start of the machine, `None` if unknown.
    pub fn can_be_left(&self, booted: Option<Timestamp>) -> bool {
        !self.ready && booted.is_some_and(|booted| self.created_at < booted)
    }
}

impl From<SandboxSummary> for SandboxToStop {
    fn from(listed: SandboxSummary) -> Self {
        Self {
            id: listed.id,
            ready: listed.ready,
            created_at: listed.created_at,
        }
    }
}

impl From<&ObservedSandbox> for SandboxToStop {
    fn from(observed: &ObservedSandbox) -> Self {
        Self {
            id: observed.id.clone(),
            ready: observed.ready,
            created_at: observed.created_at,
        }
    }
}

/// Grace period of one container stop. `elapsed` is the time since the stop was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopBudget {
    /// Grace period of the whole stop.
    pub grace: Duration,
    /// The container has a preStop hook that has not run yet.
    pub hook: bool,
    /// Other containers stop before it.
    pub ordered: bool,
}

impl StopBudget {
    /// Returns how long to wait for the preStop hook; `None` without one. The hook may continue
    /// after that.
    pub fn pre_stop_timeout(self, elapsed: Duration) -> Option<Duration> {
        self.remaining(elapsed).filter(|_| self.hook)
    }

    /// Returns how long to wait for the containers that stop before this one.
    pub fn ordering_timeout(self, elapsed: Duration) -> Option<Duration> {
        self.remaining(elapsed).filter(|_| self.ordered)
    }

    /// Returns the argument of CRI `StopContainer`, rounded up to whole seconds.
    pub fn stop_timeout(self, elapsed: Duration) -> Duration {
        let elapsed = match mutated(Mutation::GraceAfterHook) {
            true => Duration::ZERO,
            false => elapsed,
        };
        let left = self.grace.saturating_sub(elapsed).as_secs_f64().ceil();
        Duration::from_secs(left as u64).max(MIN_STOP_TIMEOUT)
    }

    fn remaining(self, elapsed: Duration) -> Option<Duration> {
        Some(self.grace.saturating_sub(elapsed)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_types::names;

    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn pod(metadata: Value, spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("pod")
    }

    #[test]
    fn grace_is_from_deletion_else_probe_else_pod() {
        let check = |metadata: Value, spec: Value, probe: Option<u64>, expected: u64| {
            let spec_line = format!("{metadata} {spec} {probe:?}");
            let grace = effective_grace_period(&pod(metadata, spec), probe.map(seconds));
            assert_eq!(grace, seconds(expected), "{spec_line}");
        };
        let containers = json!({"containers": []});
        let own = json!({"containers": [], "terminationGracePeriodSeconds": 45});
        let deleted = json!({"deletionGracePeriodSeconds": 7});
        check(json!({}), containers.clone(), None, 30);
        check(json!({}), own.clone(), None, 45);
        check(json!({}), own.clone(), Some(5), 5);
        check(json!({}), own.clone(), Some(90), 90);
        check(deleted.clone(), own.clone(), None, 7);
        check(deleted, own.clone(), Some(5), 7);
        check(json!({"deletionGracePeriodSeconds": 0}), own, Some(5), 0);
        let negative = json!({"containers": [], "terminationGracePeriodSeconds": -1});
        check(json!({}), negative, None, 0);
    }

    #[test]
    fn sandbox_is_kept_for_a_container_that_is_not_stopped() {
        let check = |all_stopped, waited, expected| {
            let allowed = may_stop_sandboxes(all_stopped, seconds(waited), seconds(30));
            assert_eq!(allowed, expected, "{all_stopped} {waited}");
        };
        check(true, 0, true);
        check(false, 0, false);
        check(false, 29, false);
        check(false, 30, true);
    }

    #[test]
    fn stop_is_resumed_if_checkpoint_has_deletion_timestamp() {
        let check = |restored: bool, deleted: bool, expected: bool| {
            let mut metadata = json!({});
            if restored {
                metadata["annotations"] = json!({(names::ANN_RESTORED): "true"});
            }
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-01-01T12:00:00Z");
            }
            let line = metadata.to_string();
            let pod = pod(metadata, json!({"containers": []}));
            assert_eq!(is_resumed_stop(&pod), expected, "{line}");
        };
        check(true, true, true);
        check(true, false, false);
        check(false, true, false);
        check(false, false, false);
    }

    #[test]
    fn resumed_stop_has_remaining_grace_until_deletion_timestamp() {
        let check = |deletion: Option<&str>, grace: u64, expected: u64| {
            let pod = pod(
                json!({"deletionTimestamp": deletion}),
                json!({"containers": []}),
            );
            let now = "2026-01-01T12:00:00Z".parse().expect("time");
            assert_eq!(
                remaining_grace_period(&pod, seconds(grace), now),
                seconds(expected)
            );
        };
        check(None, 30, 30);
        check(Some("2026-01-01T12:00:20Z"), 30, 20);
        // a slow clock does not extend the grace period
        check(Some("2026-01-01T12:05:00Z"), 30, 30);
        check(Some("2026-01-01T12:00:00Z"), 30, 1);
        check(Some("2026-01-01T11:00:00Z"), 30, 1);
        check(Some("2026-01-01T12:00:20Z"), 5, 5);
    }

    #[test]
    fn only_dead_sandbox_of_an_earlier_boot_can_be_left() {
        let booted = "2026-01-01T12:00:00Z".parse().ok();
        let check = |ready: bool, created_at: &str, booted, expected: bool| {
            let sandbox = SandboxToStop {
                id: "s1".into(),
                ready,
                created_at: created_at.parse().expect("time"),
            };
            assert_eq!(sandbox.can_be_left(booted), expected, "{sandbox:?}");
        };
        check(false, "2026-01-01T11:59:59Z", booted, true);
        check(true, "2026-01-01T11:59:59Z", booted, false);
        check(false, "2026-01-01T12:00:00Z", booted, false);
        check(false, "2026-01-01T13:00:00Z", booted, false);
        check(false, "2026-01-01T11:59:59Z", None, false);
    }

    #[test]
    fn stop_is_overdue_after_1_5_graces_and_at_least_10_s() {
        for (grace, after) in [(0, 10), (6, 10), (8, 12), (30, 45)] {
            assert_eq!(overdue_threshold(seconds(grace)), seconds(after));
        }
    }

    #[test]
    fn grace_is_spent_on_hook_then_ordering_then_signal() {
        let check = |stop: StopBudget, elapsed_ms: u64, expected: &str| {
            let elapsed = Duration::from_millis(elapsed_ms);
            let step = |name: &str, time: Option<Duration>| match time {
                Some(time) => format!("{name} {time:?}"),
                None => format!("no {name}"),
            };
            let line = [
                step("hook", stop.pre_stop_timeout(elapsed)),
                step("ordering", stop.ordering_timeout(elapsed)),
                step("signal", Some(stop.stop_timeout(elapsed))),
            ];
            assert_eq!(line.join(", "), expected, "{stop:?} after {elapsed:?}");
        };
        let plain = StopBudget {
            grace: seconds(30),
            hook: false,
            ordered: false,
        };
        let hook = StopBudget {
            hook: true,
            ..plain
        };
        let both = StopBudget {
            ordered: true,
            ..hook
        };
        check(plain, 0, "no hook, no ordering, signal 30s");
        check(hook, 0, "hook 30s, no ordering, signal 30s");
        check(hook, 12_500, "hook 17.5s, no ordering, signal 18s");
        check(both, 10_000, "hook 20s, ordering 20s, signal 20s");
        // only the stop timeout has a minimum
        check(both, 29_000, "hook 1s, ordering 1s, signal 2s");
        check(both, 30_000, "no hook, no ordering, signal 2s");
        check(both, 31_000, "no hook, no ordering, signal 2s");
        // without a grace period the hook does not run
        let none = StopBudget {
            grace: Duration::ZERO,
            ..both
        };
        check(none, 0, "no hook, no ordering, signal 2s");
    }
}
