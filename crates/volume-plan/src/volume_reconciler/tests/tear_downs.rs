//! Tear-downs: discovery, order, failures.

use super::*;

/// A pod with a mounted volume.
fn with_pod() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[empty("a")]);
    assert_eq!(fixture.ok("mount(p/a)"), "ready#1(1)");
    fixture
}

fn a() -> Vec<DiscoveredVolume> {
    vec![found("empty-dir", "a", None)]
}

#[test]
fn tear_down_unmounts_all_volumes_on_disk_and_drops_state() {
    let mut fixture = with_pod();
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "discover(p)"
    );
    let on_disk = vec![found("empty-dir", "a", None), found("secret", "old", None)];
    assert_eq!(
        fixture.ends("discover(p)", Ok(on_disk)),
        "unmount(p/a), unmount(p/old)"
    );
    assert_eq!(fixture.ok("unmount(p/old)"), "");
    assert_eq!(fixture.ok("unmount(p/a)"), "torn-down#2");
    assert!(fixture.reconciler.pods.is_empty());
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn failed_unmount_is_reported_and_retried_on_next_request() {
    let mut fixture = with_pod();
    fixture.tear_down("p", TearDownRequester::Worker);
    fixture.ends("discover(p)", Ok(a()));
    assert_eq!(
        fixture.fails("unmount(p/a)", "device or resource busy"),
        "failed#2(FailedMount: UnmountVolume.TearDown failed for volume \"a\" : device or resource \
         busy)"
    );
    assert_eq!(fixture.timer(), "idle");
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "discover(p)"
    );
    assert_eq!(fixture.ends("discover(p)", Ok(a())), "unmount(p/a)");
    assert_eq!(fixture.ok("unmount(p/a)"), "torn-down#3");
}

#[test]
fn failed_discovery_fails_tear_down() {
    let mut fixture = with_pod();
    fixture.tear_down("p", TearDownRequester::Worker);
    assert_eq!(
        fixture.fails("discover(p)", "cannot list"),
        "failed#2(FailedMount: cannot list)"
    );
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "discover(p)"
    );
}

#[test]
fn tear_down_waits_for_step_in_progress_and_reports_it() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[empty("a")]);
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "failed#1(FailedMount: the pod's volumes are being torn down), cancel(p)"
    );
    let hangs = "MountVolume.SetUp of volume \"a\" in progress since 2023-11-14T22:13:20Z";
    assert_eq!(
        fixture.tick(10.0),
        format!("failed#2(FailedMount: {hangs})")
    );
    fixture.at(50.0);
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "cancel(p)"
    );
    // a failed undesired mount has no event and no retry
    assert_eq!(fixture.fails("mount(p/a)", "gone"), "discover(p)");
    assert_eq!(fixture.ends("discover(p)", Ok(a())), "unmount(p/a)");
    let hangs = "UnmountVolume.TearDown of volume \"a\" in progress since 2023-11-14T22:14:10Z";
    assert_eq!(fixture.tick(109.0), "", "a removal may take a minute");
    assert_eq!(
        fixture.tick(110.0),
        format!("failed#3(FailedMount: {hangs})")
    );
    // the worker, which got a reply, tries again at once
    assert_eq!(fixture.ok("unmount(p/a)"), "requeue(p)");
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Worker),
        "discover(p)"
    );
    assert_eq!(fixture.ends("discover(p)", Ok(vec![])), "torn-down#4");
}

#[test]
fn only_removals_for_a_worker_are_reported_late() {
    let (worker, housekeeping) = (TearDownRequester::Worker, TearDownRequester::Housekeeping);
    let empty = || found("empty-dir", "a", None);
    let mixed = vec![empty(), found("nfs", "b", None)];
    for (by, volumes, expected) in [
        (worker, vec![empty()], "60s"),
        (worker, vec![found("nfs", "b", None)], "10s"),
        (worker, mixed.clone(), "10s"),
        (housekeeping, vec![empty()], "10s"),
    ] {
        let mut fixture = Fixture::new();
        fixture.tear_down("p", by);
        assert_eq!(fixture.timer(), "10s", "discovering");
        fixture.ends("discover(p)", Ok(volumes.clone()));
        assert_eq!(fixture.timer(), expected, "{by:?} {volumes:?}");
    }
    // what remains decides
    let mut fixture = Fixture::new();
    fixture.tear_down("p", worker);
    fixture.ends("discover(p)", Ok(mixed));
    assert_eq!(fixture.ok("unmount(p/b)"), "");
    assert_eq!(fixture.timer(), "60s");
}

#[test]
fn set_up_during_tear_down_waits_and_mounts_again() {
    let mut fixture = with_pod();
    fixture.tear_down("p", TearDownRequester::Worker);
    assert_eq!(fixture.set_up("p", &[empty("a")]), "");
    assert_eq!(fixture.ends("discover(p)", Ok(a())), "unmount(p/a)");
    assert_eq!(fixture.ok("unmount(p/a)"), "torn-down#2, mount(p/a)");
    assert_eq!(fixture.ok("mount(p/a)"), "ready#3(1)");
}

#[test]
fn housekeeping_tear_down_of_desired_pod_is_rejected() {
    let mut fixture = with_pod();
    assert_eq!(
        fixture.tear_down("p", TearDownRequester::Housekeeping),
        "failed#2(FailedMount: the pod is desired again)"
    );
    assert_eq!(
        fixture.tear_down("q", TearDownRequester::Housekeeping),
        "discover(q)"
    );
    assert_eq!(fixture.ends("discover(q)", Ok(vec![])), "torn-down#3");
}
