//! Plans that found a defect, as the simulator shrank them.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use windlass_simulator::{Plan, RunOptions, run};

/// Runs a plan, which must not violate an invariant.
fn check(plan: &str) {
    let plan: Plan = plan.parse().expect("a plan");
    let report = run(&plan, &RunOptions::default());
    if let Some(violation) = report.violation {
        panic!("{violation}\n{}", report.log.join("\n"));
    }
}

#[test]
fn pod_runs_after_a_reboot_with_an_earlier_clock() {
    // the new sandbox was replaced again and again, because the old one was created later
    check(
        "windlass-sim 1 26 safety 60
2.000 static-add proxy
4.000 clock -3600
5.000 reboot 1.000
",
    );
}

#[test]
fn restarted_container_runs_after_the_clock_is_set_back() {
    // the ended instance was created later than the running one, which was stopped
    check(
        "windlass-sim 1 504 safety 60
2.000 create crash-1
6.000 clock -3600
",
    );
}

/// From seeds 100068, 100072 and 1000124: a probe on hold is not late.
#[test]
fn failed_liveness_probe_waits_for_its_container() {
    check(
        "windlass-sim 1 100068 safety 23.545
0.019 create live-24
0.035 runtime failed stop 0.001
0.250 respond live-24 error 12.636
",
    );
    check(
        "windlass-sim 1 100072 safety 858.395
0.016 create live-22
837.045 respond live-22 refused 15.656
844.632 runtime down start 12.763
",
    );
    check(
        "windlass-sim 1 1000124 safety 51.209
0.014 kill-at 34 before 0.001
0.033 create live-6
13.750 respond live-6 hung 199.138
35.208 runtime failed stop 0.001
",
    );
}

#[test]
fn container_is_not_started_again_after_a_failed_read() {
    check(
        "windlass-sim 1 1000054 safety 26.663
9.582 runtime slow create 45.169
19.501 create device-13
20.461 runtime lost-reply list-sandboxes 0.001
",
    );
}

#[test]
fn container_whose_stop_failed_is_not_killed_at_once() {
    // its sandbox was stopped nevertheless
    check(
        "windlass-sim 1 1000049 safety 60
0.014 create stubborn-13
0.032 runtime failed stop 0.001
0.213 delete stubborn-13
",
    );
}

/// From seed 100035: the watch that fell silent ends before the deletion counts as late.
#[test]
fn deletion_behind_a_silent_watch_is_not_late() {
    check(
        "windlass-sim 1 100035 safety 900
0.013 create secret-15
0.025 api silent-watches any 0.001
0.039 delete secret-15
",
    );
}
