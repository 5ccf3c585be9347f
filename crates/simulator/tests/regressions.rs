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

/// From seeds 2000051 and 2000053: the checkpoint has the pod from before the edit.
#[test]
fn edited_pod_keeps_running_behind_an_older_checkpoint() {
    check(
        "windlass-sim 1 2000053 liveness 36.063
0.013 create config-21
0.027 disk full 154.365
0.039 edit config-21
0.052 kill-at 69 after 0.000
0.063 converge 600.000 300.000
",
    );
    check(
        "windlass-sim 1 2000051 liveness 240.105
0.026 create pair-11
0.039 api failed-watches any 185.130
0.058 api closed-watches any 0.001
138.917 edit pair-11
160.492 disk io-error 5.099
164.524 api outage any 217.459
176.358 kill 0.001
229.105 calm
229.105 converge 600.000 300.000
",
    );
}

/// From seed 3000005: a container that exits with 0 at the eviction of its pod makes it Succeeded.
#[test]
fn exit_at_the_instant_of_an_eviction_may_succeed() {
    check(
        "windlass-sim 1 3000005 liveness 2160.553
1706.753 create env-1
2160.527 pressure memory 1.433
2160.541 exit env-1 0
2160.553 converge 600.000 300.000
",
    );
}

/// From seed 2000131: the wall clock measures the deadline of a pod.
#[test]
fn clock_that_is_set_back_moves_the_deadline() {
    check(
        "windlass-sim 1 2000131 liveness 0.181
0.015 create deadline-14
0.165 clock -3600
0.181 converge 600.000 300.000
",
    );
}
