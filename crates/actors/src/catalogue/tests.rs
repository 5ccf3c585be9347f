//! Merges of messages.

use windlass_types::Phase;

use super::*;

fn cause(reason: &str) -> PhaseOverride {
    PhaseOverride {
        phase: Phase::Failed,
        reason: reason.to_owned(),
        message: String::new(),
        disruption: None,
    }
}

fn termination(seconds: u64, reason: &str) -> TerminatePod {
    TerminatePod {
        grace: Some(Duration::from_secs(seconds)),
        reason: format!("because of {reason}"),
        phase_override: cause(reason),
    }
}

/// A kill of the user, without a phase override.
fn deletion(seconds: u64, reason: &str) -> KillPod {
    KillPod {
        phase_override: None,
        ..termination(seconds, reason).into()
    }
}

/// The kill as `grace cause: reason`.
fn line(kill: &KillPod) -> String {
    let grace = kill.grace.map_or(0, |grace| grace.as_secs());
    let cause = kill.phase_override.as_ref().map(|cause| &*cause.reason);
    format!("{grace} {}: {}", cause.unwrap_or("none"), kill.reason)
}

#[test]
fn terminations_keep_first_cause_with_its_reason() {
    let mut waiting = termination(20, "Terminated");
    waiting.merge(termination(3, "Evicted"));
    assert_eq!(line(&waiting.into()), "3 Terminated: because of Terminated");
}

#[test]
fn merged_kills_keep_reason_of_first_phase_override() {
    let evicted = || KillPod::from(termination(20, "Evicted"));
    let shut_down = || KillPod::from(termination(30, "Terminated"));
    for (first, second, expected) in [
        (deletion(9, "a"), deletion(5, "b"), "5 none: because of b"),
        (deletion(9, "a"), evicted(), "9 Evicted: because of Evicted"),
        (evicted(), deletion(5, "b"), "5 Evicted: because of Evicted"),
        (evicted(), shut_down(), "20 Evicted: because of Evicted"),
    ] {
        let mut waiting = first;
        waiting.merge(second);
        assert_eq!(line(&waiting), expected);
    }
}
