//! Passes over time.

use std::time::Duration;

use super::{EvictionSettings, EvictionState};
use crate::interval::{MAX_INTERVAL, URGENT_INTERVAL};
use crate::layout::FileSystems;
use crate::memory_rule::MemoryRule;
use crate::signal::Signal;
use crate::test_figures::{now, observations, pods, settings};

/// Passes at the given seconds, each with observations and the line that it prints.
fn check(settings: &EvictionSettings, passes: &[(u64, &str, &str)]) {
    let mut state = EvictionState::default();
    for (second, observed, expected) in passes {
        let observed_now = observations(observed, *second);
        let pass = state.pass(now(*second), &observed_now, settings);
        assert_eq!(pass.to_string(), *expected, "at {second}s: {observed}");
    }
}

const HARD: &str = "hard memory.available=100Mi";

#[test]
fn hard_threshold_is_due_at_once() {
    check(
        &settings(HARD),
        &[
            (0, "memory.available=100Mi/1Gi", "no pressure; idle"),
            (
                10,
                "memory.available=90Mi/1Gi",
                "MemoryPressure; due memory.available<100Mi (90Mi); evict for memory.available",
            ),
        ],
    );
    let pids = settings("hard pid.available=10%");
    check(
        &pids,
        &[
            (0, "pid.available=3276/32768", "no pressure; idle"),
            (
                10,
                "pid.available=3275/32768",
                "PIDPressure; due pid.available<10% (3275); evict for pid.available",
            ),
        ],
    );
}

#[test]
fn signal_without_observation_or_threshold_is_not_met() {
    check(&settings(HARD), &[(0, "", "no pressure; idle")]);
    let empty = settings("");
    check(
        &empty,
        &[(0, "memory.available=0/1Gi", "no pressure; idle")],
    );
    let off = settings("hard memory.available=100%");
    check(&off, &[(0, "memory.available=0/1Gi", "no pressure; idle")]);
}

#[test]
fn observation_that_did_not_advance_evicts_nothing() {
    let due = "MemoryPressure; due memory.available<100Mi (90Mi); ";
    check(
        &settings(HARD),
        &[
            (
                0,
                "memory.available=90Mi/1Gi @0",
                &format!("{due}evict for memory.available"),
            ),
            (10, "memory.available=90Mi/1Gi @0", &format!("{due}idle")),
            (
                20,
                "memory.available=90Mi/1Gi @20",
                &format!("{due}evict for memory.available"),
            ),
            // the wall clock was set back
            (
                30,
                "memory.available=90Mi/1Gi @5",
                &format!("{due}evict for memory.available"),
            ),
        ],
    );
}

#[test]
fn stale_signal_does_not_hide_other_one() {
    let both = settings("hard memory.available=100Mi; hard pid.available=100");
    let mut state = EvictionState::default();
    let first = observations("memory.available=90Mi/1Gi @0", 0);
    state.pass(now(0), &first, &both);
    let mut second = observations("pid.available=50/1000", 10);
    second.signals.extend(first.signals);
    assert_eq!(
        state.pass(now(10), &second, &both).to_string(),
        "MemoryPressure PIDPressure; due memory.available<100Mi (90Mi); \
         due pid.available<100 (50); evict for pid.available"
    );
}

#[test]
fn soft_threshold_is_due_after_its_grace_period() {
    let soft = settings("soft memory.available=1Gi; grace memory.available=90s");
    let waiting = |left: &str| {
        format!("MemoryPressure; memory.available<1Gi for 1m30s (512Mi) in {left}; idle")
    };
    check(
        &soft,
        &[
            (0, "memory.available=512Mi/4Gi", &waiting("1m30s")),
            (60, "memory.available=512Mi/4Gi", &waiting("30s")),
            // met without interruption: the period starts again
            (70, "memory.available=2Gi/4Gi", "MemoryPressure; idle"),
            (80, "memory.available=512Mi/4Gi", &waiting("1m30s")),
            (169, "memory.available=512Mi/4Gi", &waiting("1s")),
            (
                170,
                "memory.available=512Mi/4Gi",
                "MemoryPressure; due memory.available<1Gi for 1m30s (512Mi); \
                 evict for memory.available",
            ),
            // not measured: as if it were not met
            (180, "", "MemoryPressure; idle"),
            (190, "memory.available=512Mi/4Gi", &waiting("1m30s")),
        ],
    );
}

#[test]
fn due_threshold_stays_until_minimum_reclaim() {
    let with_reclaim = settings("hard memory.available=100Mi; reclaim memory.available=50Mi");
    check(
        &with_reclaim,
        &[
            // not due yet: the reclaim does not count
            (0, "memory.available=120Mi/1Gi", "no pressure; idle"),
            (
                10,
                "memory.available=90Mi/1Gi",
                "MemoryPressure; due memory.available<100Mi (90Mi); evict for memory.available",
            ),
            (
                20,
                "memory.available=149Mi/1Gi",
                "MemoryPressure; due memory.available<100Mi (149Mi); evict for memory.available",
            ),
            (30, "memory.available=150Mi/1Gi", "MemoryPressure; idle"),
            (40, "memory.available=120Mi/1Gi", "MemoryPressure; idle"),
        ],
    );
}

#[test]
fn soft_threshold_in_grace_period_ignores_minimum_reclaim() {
    let soft = settings(
        "soft memory.available=1Gi; grace memory.available=90s; reclaim memory.available=1Gi",
    );
    check(
        &soft,
        &[
            (
                0,
                "memory.available=512Mi/4Gi",
                "MemoryPressure; memory.available<1Gi for 1m30s (512Mi) in 1m30s; idle",
            ),
            (10, "memory.available=1.5Gi/4Gi", "MemoryPressure; idle"),
        ],
    );
}

#[test]
fn condition_stays_for_transition_period() {
    check(
        &settings(HARD),
        &[
            (
                0,
                "memory.available=90Mi/1Gi",
                "MemoryPressure; due memory.available<100Mi (90Mi); evict for memory.available",
            ),
            (299, "memory.available=500Mi/1Gi", "MemoryPressure; idle"),
            (300, "memory.available=500Mi/1Gi", "no pressure; idle"),
        ],
    );
    let at_once = EvictionSettings {
        pressure_transition_period: Duration::ZERO,
        ..settings(HARD)
    };
    // as upstream: without a period the condition is never true
    check(
        &at_once,
        &[(
            0,
            "memory.available=90Mi/1Gi",
            "no pressure; due memory.available<100Mi (90Mi); evict for memory.available",
        )],
    );
}

#[test]
fn memory_comes_before_disk_and_hard_before_soft() {
    let all = settings(
        "hard nodefs.available=10%; hard pid.available=100; soft memory.available=1Gi; \
         grace memory.available=0s; soft imagefs.available=50%; grace imagefs.available=0s; \
         hard memory.available=100Mi; pods",
    );
    check(
        &all,
        &[(
            0,
            "memory.available=90Mi/4Gi allocatableMemory.available=80Mi/4Gi pid.available=1/1k \
             nodefs.available=1/1Gi imagefs.available=1/1Gi",
            "MemoryPressure DiskPressure PIDPressure; due memory.available<100Mi (90Mi); \
             due memory.available<1Gi for 0s (90Mi); due allocatableMemory.available<100Mi (80Mi); \
             due allocatableMemory.available<1Gi (80Mi); due nodefs.available<10% (1); \
             due imagefs.available<50% for 0s (1); \
             due pid.available<100 (1); evict for memory.available",
        )],
    );
}

#[test]
fn disk_signals_reclaim_on_node_first() {
    let hard = "hard nodefs.available=10%; hard imagefs.available=15%";
    let check = |file_systems, observed, expected: &str| {
        let settings = EvictionSettings {
            file_systems,
            ..settings(hard)
        };
        let observed = observations(observed, 0);
        let pass = EvictionState::default().pass(now(0), &observed, &settings);
        assert_eq!(pass.decision.to_string(), expected, "{file_systems}");
    };
    let node = "nodefs.available=1Gi/20Gi";
    let images = "imagefs.available=1Gi/20Gi";
    let containers = "containerfs.available=1Gi/20Gi";
    let both = "dead containers, unused images";
    use FileSystems::{SeparateImages, Shared, SplitImages};
    check(
        Shared,
        node,
        &format!("reclaim {both} for nodefs.available"),
    );
    check(
        Shared,
        images,
        &format!("reclaim {both} for imagefs.available"),
    );
    check(SeparateImages, node, "evict for nodefs.available");
    check(
        SeparateImages,
        images,
        &format!("reclaim {both} for imagefs.available"),
    );
    check(
        SeparateImages,
        containers,
        &format!("reclaim {both} for containerfs.available"),
    );
    check(
        SplitImages,
        node,
        "reclaim dead containers for nodefs.available",
    );
    check(
        SplitImages,
        images,
        "reclaim unused images for imagefs.available",
    );
    check(
        SplitImages,
        containers,
        "reclaim dead containers for containerfs.available",
    );
}

#[test]
fn reclaim_that_suffices_evicts_nothing() {
    let config = "hard nodefs.available=1Gi; reclaim nodefs.available=500Mi; \
                  hard imagefs.available=1Gi; hard memory.available=100Mi; \
                  soft nodefs.inodesFree=1000; grace nodefs.inodesFree=1m";
    let check = |after: &str, expected: &str| {
        let settings = settings(config);
        let mut state = EvictionState::default();
        let before = observations("nodefs.available=512Mi/20Gi", 0);
        let pass = state.pass(now(0), &before, &settings);
        let super::Decision::Reclaim(met, _) = pass.decision else {
            panic!("{pass}");
        };
        let after_reclaim = observations(after, 5);
        let decision = state.after_reclaim(now(5), &met, &after_reclaim, &settings);
        assert_eq!(decision.to_string(), expected, "{after}");
    };
    let evict = "evict for nodefs.available";
    check("nodefs.available=2Gi/20Gi", "idle");
    check("nodefs.available=512Mi/20Gi", evict);
    check("nodefs.available=1200Mi/20Gi", evict);
    check("nodefs.available=1524Mi/20Gi", "idle");
    // another disk threshold is met now
    check(
        "nodefs.available=2Gi/20Gi imagefs.available=1Mi/20Gi",
        evict,
    );
    // neither memory nor a soft threshold in its grace period evicts for the disk
    check("nodefs.available=2Gi/20Gi memory.available=1Mi/1Gi", "idle");
    check("nodefs.available=2Gi/20Gi nodefs.inodesFree=1/1M", "idle");
    check("", "idle");
}

#[test]
fn page_cache_is_no_pressure_unless_upstream_rule() {
    let ours = settings(HARD);
    let upstream = EvictionSettings {
        memory_rule: MemoryRule::Upstream,
        ..settings(HARD)
    };
    let due = "MemoryPressure; due memory.available<100Mi (50Mi); evict for memory.available";
    let cache = "memory.available=50Mi/4Gi cache=2Gi memavail=2Gi";
    check(&ours, &[(0, cache, "no pressure; idle")]);
    check(&upstream, &[(0, cache, due)]);
    let hog = "memory.available=50Mi/4Gi cache=20Mi memavail=60Mi";
    check(&ours, &[(0, hog, due)]);
    check(&upstream, &[(0, hog, due)]);
    let kernel = "memory.available=150Mi/4Gi cache=1Mi memavail=50Mi";
    check(&ours, &[(0, kernel, due)]);
    check(&upstream, &[(0, kernel, "no pressure; idle")]);
}

#[test]
fn page_cache_keeps_due_memory_threshold_resolved() {
    let ours = settings("hard memory.available=100Mi; reclaim memory.available=50Mi");
    check(
        &ours,
        &[
            (
                0,
                "memory.available=50Mi/4Gi",
                "MemoryPressure; due memory.available<100Mi (50Mi); evict for memory.available",
            ),
            (
                10,
                "memory.available=50Mi/4Gi cache=1Gi",
                "MemoryPressure; idle",
            ),
        ],
    );
}

#[test]
fn one_victim_is_chosen_and_none_twice() {
    let hard = settings(HARD);
    let observed = observations("memory.available=50Mi/4Gi", 0);
    let pass = EvictionState::default().pass(now(0), &observed, &hard);
    let met = pass.due[0];
    let choose = |lines: &[&str]| {
        let victim = hard.choose_victim(&met, &pods(lines));
        victim.map_or("no victim".to_owned(), |victim| victim.to_string())
    };
    let hog = "hog memory=1Gi";
    let web = "web memory=10Mi";
    assert_eq!(choose(&[web, hog]), "evict shop/hog in 1s");
    assert_eq!(
        choose(&[web, "hog memory=1Gi evicted"]),
        "evict shop/web in 1s"
    );
    assert_eq!(choose(&["api memory=1Gi critical"]), "no victim");
    assert_eq!(choose(&[]), "no victim");
}

#[test]
fn pass_survives_extreme_values() {
    let all: Vec<String> = Signal::ALL
        .iter()
        .map(|signal| format!("hard {signal}=99%; reclaim {signal}=100%"))
        .collect();
    let settings = settings(&all.join("; "));
    let mut state = EvictionState::default();
    let extremes = ["0/0", "0/9223372036854775807", "9223372036854775807/0"];
    for (second, extreme) in extremes.iter().cycle().take(12).enumerate() {
        let text: Vec<String> = Signal::ALL
            .iter()
            .map(|s| format!("{s}={extreme}"))
            .collect();
        // time may stand still or run backwards
        let second = second as u64 % 3;
        let pass = state.pass(now(second), &observations(&text.join(" "), 0), &settings);
        assert!(pass.next <= MAX_INTERVAL && pass.next >= URGENT_INTERVAL);
    }
}
