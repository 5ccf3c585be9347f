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

/// From seed 4000203: its result could not be written, but the API server has it as ready.
#[test]
fn new_ready_pod_stays_ready_behind_a_full_disk() {
    check(
        "windlass-sim 1 4000203 safety 664.519
623.854 api 403 any 36.211
636.331 kill-at 105 before 0.001
646.519 disk full 15.851
655.413 create web-5
663.378 create env-6
",
    );
}

/// From seeds 4000146, 4000360 and 4000405: a request of the previous agent run takes effect after the
/// first of this one was sent.
#[test]
fn request_of_a_killed_agent_may_take_effect_late() {
    check(
        "windlass-sim 1 4000146 liveness 1388.212
1362.185 api slow status 49.850
1381.011 kill-at 11 after 1.082
1381.030 create host-17
",
    );
    check(
        "windlass-sim 1 4000360 safety 7.514
0.016 api slow status 19.623
0.031 create device-19
1.514 kill 0.000
",
    );
    check(
        "windlass-sim 1 4000405 safety 106.800
0.018 static-add scheduler
0.127 kill-at 119 before 3.414
100.771 static-remove scheduler
100.783 api slow status 0.595
100.800 create pair-5
",
    );
}

/// The result that could not be written is written when the disk is free again, long before the kill.
#[test]
fn unready_pod_stays_unready_behind_a_disk_that_was_full() {
    check(
        "windlass-sim 1 1 safety 300
2.000 create web-1
20.000 disk full 10.000
22.000 respond web-1 error 200.000
100.000 kill 0.001
",
    );
}

/// From seed 6000007: the status in the API server has the address of the previous sandbox.
#[test]
fn probe_of_a_replaced_sandbox_is_not_late() {
    check(
        "windlass-sim 1 6000007 liveness 60.124
0.013 create live-18
0.199 api 500 status 43.925
10.840 sandbox-end live-18
",
    );
}

/// From seed 6000108: a stop that began late, because the runtime was down, is resumed by the next run.
#[test]
fn resumed_stop_may_end_at_the_deletion_timestamp() {
    check(
        "windlass-sim 1 6000108 liveness 1444.440
1382.962 create stubborn-11
1389.286 create sidecar-12
1399.609 delete sidecar-12 20
1399.620 kill-at 111 before 0.000
1414.444 runtime-restart 26.261
1417.895 create env-14
1427.189 delete stubborn-11
",
    );
}

/// From seeds 5000155, 6000057 and 6000064: it ends ten minutes after the last restart.
#[test]
fn back_off_ends_while_the_agent_does_not_run() {
    check(
        "windlass-sim 1 5000155 safety 1017.034
0.011 create crash-3
70.653 kill-at 13 before 142.176
70.664 create hog-6
107.388 runtime down list-sandboxes 893.317
722.174 kill-at 90 after 150.474
",
    );
    check(
        "windlass-sim 1 6000057 liveness 668.543
0.011 create crash-6
74.138 reboot 578.175
",
    );
    check(
        "windlass-sim 1 6000064 liveness 690.125
0.011 create crash-5
8.807 upgrade 665.198
",
    );
}

/// From seed 7000130.
#[test]
fn failing_container_that_exits_with_0_has_succeeded() {
    check(
        "windlass-sim 1 7000130 liveness 601.291
0.011 create fail-1
0.272 exit fail-1 0
0.291 converge 600.000 300.000
",
    );
}

/// From seed 7000199.
#[test]
fn back_off_that_a_crash_of_the_host_reverts_is_lost() {
    check(
        "windlass-sim 1 7000199 liveness 220.708
0.013 create crash-12
63.391 disk torn 139.751
219.537 reboot 0.001
",
    );
}

/// From seed 8000023: the clock of the node is ahead of the deletionTimestamp.
#[test]
fn resumed_stop_with_a_clock_ahead_may_be_short() {
    check(
        "windlass-sim 1 8000023 liveness 605.015
0.016 static-add proxy
0.034 clock 3600
141.796 create stubborn-7
152.971 create device-12
591.143 kill-at 108 after 0.000
591.154 delete device-12 20
594.505 create host-18
601.947 delete stubborn-7
601.952 static-remove proxy
",
    );
}

/// From seed 9000085: a container of the next evicted pod is stopped because of an edit.
#[test]
fn edit_beside_an_eviction_is_no_second_eviction() {
    check(
        "windlass-sim 1 9000085 safety 573.883
69.142 create stubborn-23
513.501 create stubborn-26
567.127 pressure disk 4.844
567.138 edit stubborn-26
",
    );
}

/// From seed 10000174: a probe that hangs when faults end fails afterwards.
#[test]
fn node_converges_after_the_last_hung_probe() {
    check(
        "windlass-sim 1 10000174 liveness 101.141
0.019 create live-21
33.114 respond live-21 hung 105.184
95.141 converge 600.000 300.000
",
    );
}

/// From seed 12000170: the clock is set back while a status update waits for its retry.
#[test]
fn status_update_is_retried_after_the_clock_is_set_back() {
    check(
        "windlass-sim 1 12000170 liveness 155.699
0.013 create device-7
0.249 api 409 status 89.450
0.262 pressure memory 5.128
5.650 clock -3600
5.661 create sidecar-9
",
    );
}

/// From seed 12000388: the runtime does not respond when an owner of a device is removed.
#[test]
fn device_of_an_unobserved_pod_is_not_released() {
    check(
        "windlass-sim 1 12000388 liveness 264.169
0.015 create device-14
0.204 runtime-restart 819.649
0.214 kill 1.513
5.478 delete device-14 0
5.489 create device-16
262.872 calm
",
    );
}

/// From seed 12100210: a pod is resized beyond the node before the agent knows it.
#[test]
fn pod_resized_before_its_admission_may_be_rejected() {
    check(
        "windlass-sim 1 12100210 liveness 2590.770
1757.914 create sized-2
1818.228 resize sized-2 900000
1887.847 kill-at 74 before 0.001
1912.809 api 410 pods 215.558
1989.740 create sized-18
1989.758 resize sized-18 900000
1989.770 converge 600.000 300.000
",
    );
}

/// From seed 13000002: an armed kill is a fault, too, and ends when faults end.
#[test]
fn armed_kill_ends_with_the_faults() {
    check(
        "windlass-sim 1 13000002 liveness 601.062
0.017 api silent-watches any 0.001
0.032 create host-12
0.049 kill-at 86 after 694.897
0.062 converge 600.000 300.000
",
    );
}

/// From seed 13000172: a request of a killed agent takes effect after one of the next agent run.
#[test]
fn restart_count_of_a_late_request_may_be_lower() {
    check(
        "windlass-sim 1 13000172 liveness 34.145
0.013 api slow any 30.532
22.999 create secret-22
30.336 reboot 0.245
",
    );
}

/// From seed 13000087: an eviction that waits for the runtime is not in the status.
#[test]
fn evicted_pod_is_not_probed_while_the_runtime_is_down() {
    check(
        "windlass-sim 1 13000087 liveness 580.423
0.013 create live-1
0.030 runtime slow run-sandbox 70.265
0.047 reboot 39.292
562.625 runtime-restart 13.650
569.423 pressure memory 0.926
",
    );
}
