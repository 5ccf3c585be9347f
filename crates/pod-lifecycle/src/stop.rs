//! How the time that a container gets to end is spent (upstream `killContainer`).
//!
//! One number is shared out in this order: the preStop hook, the wait for other containers that
//! end first, and the time between stop signal and SIGKILL. The clock starts when the stop is
//! asked for. Only the last part has a floor, so a pod outlives its grace period by that much.

use std::time::Duration;

use windlass_types::{ContainerState, ObservedPod, Pod, PodExt, Reason, Timestamp, names};

/// From stop signal to SIGKILL it is never less (upstream `minimumGracePeriodInSeconds`).
pub const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Exit code of a container whose end was not seen (upstream `TerminatePod`).
pub const UNSEEN_EXIT_CODE: i32 = 137;
/// Message of such a container.
pub const UNSEEN_END: &str = "The container could not be located when the pod was terminated";

/// No stop of a pod has less; a deletion by force has this much.
pub(crate) const MIN_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// The time a container gets to end (upstream `setTerminationGracePeriod`): the deletion's, else
/// `probe`, else the pod's. `probe` is the grace period of the probe that the container failed.
pub fn effective_grace_period(pod: &Pod, probe: Option<Duration>) -> Duration {
    let seconds = |s: i64| Duration::from_secs(u64::try_from(s).unwrap_or(0));
    match (pod.metadata.deletion_grace_period_seconds, probe) {
        (Some(deletion), _) => seconds(deletion),
        (None, Some(probe)) => probe,
        (None, None) => seconds(pod.termination_grace_seconds()),
    }
}

/// True if an earlier life of the agent knew of the pod's deletion and began to stop it: the mark
/// was in the checkpoint.
pub fn is_resumed_stop(pod: &Pod) -> bool {
    let restored = pod.annotation(names::ANN_RESTORED).is_some();
    restored && pod.metadata.deletion_timestamp.is_some()
}

/// What is left of the grace period of a pod that an earlier life of the agent began to stop:
/// until its deletion mark, but not more than `grace` and not less than [`MIN_GRACE_PERIOD`].
/// Without a mark it is all of `grace`.
pub fn remaining_grace_period(pod: &Pod, grace: Duration, now: Timestamp) -> Duration {
    let Some(mark) = &pod.metadata.deletion_timestamp else {
        return grace;
    };
    let left = Duration::try_from(mark.0.duration_since(now)).unwrap_or(Duration::ZERO);
    left.max(MIN_GRACE_PERIOD).min(grace)
}

/// After this long a stop is said to have exceeded its grace period (upstream `killPodNow`).
pub fn is_overdue_after(grace: Duration) -> Duration {
    (grace + grace / 2).max(Duration::from_secs(10))
}

/// What is known of a pod that could not be read after its stop, while the runtime lists nothing of
/// it as alive: as it was observed last, but what ran then has ended, and when and how was not seen
/// (upstream `TerminatePod`).
pub fn with_unseen_ends(last: &ObservedPod) -> ObservedPod {
    let mut pod = last.clone();
    for sandbox in &mut pod.sandboxes {
        sandbox.ready = false;
    }
    for container in pod.containers.iter_mut().filter(|c| c.state.may_run()) {
        container.state = ContainerState::Exited;
        container.exit_code = UNSEEN_EXIT_CODE;
        container.finished_at = None;
        container.reason = Reason::ContainerStatusUnknown.as_str().to_owned();
        container.message = UNSEEN_END.to_owned();
    }
    pod
}

/// The stop of one container. Its parts are asked for in their order, each with the time since the
/// stop was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopBudget {
    /// All the time there is.
    pub grace: Duration,
    /// It has a preStop hook that has not run yet.
    pub hook: bool,
    /// Other containers end before it.
    pub ordered: bool,
}

impl StopBudget {
    /// How long the hook is waited for; `None` if it is not run. One that takes longer goes on,
    /// but nobody waits.
    pub fn pre_stop_timeout(self, elapsed: Duration) -> Option<Duration> {
        self.left(elapsed).filter(|_| self.hook)
    }

    /// How long the containers that end before this one are waited for.
    pub fn ordering_timeout(self, elapsed: Duration) -> Option<Duration> {
        self.left(elapsed).filter(|_| self.ordered)
    }

    /// The time from stop signal to SIGKILL, in whole seconds, because the CRI knows no others. A
    /// second that has begun is not taken off.
    pub fn stop_timeout(self, elapsed: Duration) -> Duration {
        let left = self.grace.saturating_sub(elapsed).as_secs_f64().ceil();
        Duration::from_secs(left as u64).max(MIN_STOP_TIMEOUT)
    }

    fn left(self, elapsed: Duration) -> Option<Duration> {
        Some(self.grace.saturating_sub(elapsed)).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn pod(metadata: Value, spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("pod")
    }

    #[test]
    fn the_grace_is_the_deletions_else_the_probes_else_the_pods() {
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
    fn a_stop_was_begun_before_if_the_checkpoint_had_the_deletion_mark() {
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
    fn a_stop_that_goes_on_after_a_restart_has_what_is_left_until_the_deletion_mark() {
        let check = |mark: Option<&str>, grace: u64, expected: u64| {
            let pod = pod(
                json!({"deletionTimestamp": mark}),
                json!({"containers": []}),
            );
            let now = "2026-01-01T12:00:00Z".parse().expect("time");
            assert_eq!(remaining_grace_period(&pod, seconds(grace), now), seconds(expected));
        };
        check(None, 30, 30);
        check(Some("2026-01-01T12:00:20Z"), 30, 20);
        // a clock that is behind gives nobody more than was asked for
        check(Some("2026-01-01T12:05:00Z"), 30, 30);
        check(Some("2026-01-01T12:00:00Z"), 30, 1);
        check(Some("2026-01-01T11:00:00Z"), 30, 1);
        check(Some("2026-01-01T12:00:20Z"), 5, 5);
    }

    #[test]
    fn a_stop_is_overdue_after_one_and_a_half_graces_but_not_before_ten_seconds() {
        for (grace, after) in [(0, 10), (6, 10), (8, 12), (30, 45)] {
            assert_eq!(is_overdue_after(seconds(grace)), seconds(after));
        }
    }

    #[test]
    fn the_grace_is_spent_on_the_hook_then_the_turn_then_the_signal() {
        let check = |stop: StopBudget, elapsed_ms: u64, expected: &str| {
            let elapsed = Duration::from_millis(elapsed_ms);
            let step = |name: &str, time: Option<Duration>| match time {
                Some(time) => format!("{name} {time:?}"),
                None => format!("no {name}"),
            };
            let line = [
                step("hook", stop.pre_stop_timeout(elapsed)),
                step("turn", stop.ordering_timeout(elapsed)),
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
        check(plain, 0, "no hook, no turn, signal 30s");
        check(hook, 0, "hook 30s, no turn, signal 30s");
        check(hook, 12_500, "hook 17.5s, no turn, signal 18s");
        check(both, 10_000, "hook 20s, turn 20s, signal 20s");
        // the floor belongs to the signal alone
        check(both, 29_000, "hook 1s, turn 1s, signal 2s");
        check(both, 30_000, "no hook, no turn, signal 2s");
        check(both, 31_000, "no hook, no turn, signal 2s");
        // no time at all: not even the hook is run
        let none = StopBudget {
            grace: Duration::ZERO,
            ..both
        };
        check(none, 0, "no hook, no turn, signal 2s");
    }
}
