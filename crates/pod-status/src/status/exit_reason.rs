//! The reason of a container's exit.
//!
//! The runtime's reason stands. It is completed in one case: the runtime reports a plain failure,
//! but the kernel killed a process of the container for memory. The runtime misses that if it sees
//! the exit first, and on cgroup v2 if a child was killed and the main process failed because of
//! it.

use std::time::Duration;

use windlass_types::corev1::ContainerStateTerminated;
use windlass_types::{ObservedContainer, Reason};

/// Time in which a process may fail because a child was killed. A later exit has another cause.
const OOM_KILL_WINDOW: Duration = Duration::from_secs(10);

/// Returns the reason of an exit. `known` is the end of this container instance that was reported
/// before: an agent restart forgets the kills, the reason stays.
pub(super) fn exit_reason<'a>(
    instance: &'a ObservedContainer,
    known: Option<&ContainerStateTerminated>,
) -> &'a str {
    let reason = match (instance.reason.as_str(), instance.exit_code) {
        ("", 0) => Reason::Completed.as_str(),
        ("", _) => Reason::Error.as_str(),
        (text, _) => text,
    };
    // success is success, whatever was killed before
    if instance.exit_code == 0 || reason != Reason::Error.as_str() {
        return reason;
    }
    let oom_killed = Reason::OomKilled.as_str();
    let was_reported = known.is_some_and(|end| end.reason.as_deref() == Some(oom_killed));
    match was_reported || failed_after_oom_kill(instance) {
        true => oom_killed,
        false => reason,
    }
}

/// True if the last kill was shortly before the exit. A kill is noticed after it happened, so it may
/// seem later than the exit; nothing of an exited container can be killed.
fn failed_after_oom_kill(instance: &ObservedContainer) -> bool {
    let (Some(kills), Some(finished)) = (&instance.oom_kills, instance.finished_at) else {
        return false;
    };
    let Ok(window_end) = kills.last.checked_add(OOM_KILL_WINDOW) else {
        return true;
    };
    finished <= window_end
}

#[cfg(test)]
mod tests {
    use windlass_types::{OomKills, Timestamp};

    use super::*;

    /// Compares the reason of an exit at second 100 with `exit code, runtime's reason, second of the
    /// last kill`.
    #[track_caller]
    fn check(exit_code: i32, reason: &str, kill: Option<i64>, expected: &str) {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let instance = ObservedContainer {
            exit_code,
            reason: reason.to_owned(),
            finished_at: Some(at(100)),
            oom_kills: kill.map(|second| OomKills {
                cgroup: "/kubepods/podu/c".to_owned(),
                count: 1,
                last: at(second),
            }),
            ..ObservedContainer::default()
        };
        let found = exit_reason(&instance, None);
        assert_eq!(found, expected, "{exit_code} {reason} {kill:?}");
    }

    #[test]
    fn runtime_reason_stands_without_oom_kill() {
        check(0, "", None, "Completed");
        check(1, "", None, "Error");
        check(137, "Error", None, "Error");
        check(137, "OOMKilled", None, "OOMKilled");
        check(128, "StartError", None, "StartError");
    }

    #[test]
    fn failure_after_oom_kill_is_oom_killed() {
        // the runtime saw the exit before the kill
        check(137, "Error", Some(100), "OOMKilled");
        // a child was killed, and the main process failed
        check(1, "Error", Some(99), "OOMKilled");
        check(137, "", Some(90), "OOMKilled");
        // noticed late
        check(137, "Error", Some(103), "OOMKilled");
    }

    #[test]
    fn success_and_later_exits_are_not_oom_killed() {
        check(0, "", Some(100), "Completed");
        check(0, "Completed", Some(100), "Completed");
        check(0, "Error", Some(100), "Error");
        check(1, "Error", Some(89), "Error");
        check(137, "Error", Some(0), "Error");
        check(128, "StartError", Some(100), "StartError");
        check(1, "ContainerCannotRun", Some(100), "ContainerCannotRun");
    }

    #[test]
    fn reported_reason_is_kept_over_a_restart() {
        let instance = ObservedContainer {
            exit_code: 137,
            reason: "Error".to_owned(),
            ..ObservedContainer::default()
        };
        let end = |reason: &str| ContainerStateTerminated {
            reason: Some(reason.to_owned()),
            ..ContainerStateTerminated::default()
        };
        assert_eq!(exit_reason(&instance, Some(&end("OOMKilled"))), "OOMKilled");
        assert_eq!(exit_reason(&instance, Some(&end("Error"))), "Error");
    }
}
