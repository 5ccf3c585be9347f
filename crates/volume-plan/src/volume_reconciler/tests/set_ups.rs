//! Set-ups: readiness, failures, back-off, timeouts, events, wake-ups.

use super::*;

#[test]
fn pod_is_ready_with_all_volumes_and_repeat_has_no_steps() {
    let mut fixture = Fixture::new();
    let volumes = [empty("a"), empty("b")];
    assert_eq!(fixture.set_up("p", &volumes), "mount(p/a), mount(p/b)");
    assert_eq!(fixture.ok("mount(p/b)"), "");
    assert_eq!(fixture.ok("mount(p/a)"), "ready#1(2)");
    assert_eq!(fixture.timer(), "idle");
    assert_eq!(fixture.set_up("p", &volumes), "ready#2(2)");
    assert_eq!(fixture.timer(), "idle");
    assert_eq!(fixture.set_up("q", &[]), "ready#3(0)");
}

#[test]
fn repeat_sets_up_changed_and_csi_volumes_only() {
    let mut fixture = Fixture::new();
    let volumes = [empty("a"), empty("b"), csi("c", |_| ())];
    let c = "stage(kubernetes.io/csi/d^c)";
    assert_eq!(
        fixture.set_up("p", &volumes),
        format!("{c}, mount(p/a), mount(p/b)")
    );
    assert_eq!(fixture.ok("mount(p/a)"), "");
    assert_eq!(fixture.ok("mount(p/b)"), "");
    assert_eq!(fixture.ok(c), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(3)");
    let mut changed = volumes.clone();
    changed[1].mount_options.push("ro".into());
    assert_eq!(fixture.set_up("p", &changed), "mount(p/c), mount(p/b)");
    assert_eq!(fixture.ok("mount(p/b)"), "");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#2(3)");
}

#[test]
fn volume_changed_during_set_up_is_set_up_again() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("p", &[empty("a")]), "mount(p/a)");
    let mut changed = empty("a");
    changed.mount_options.push("ro".into());
    assert_eq!(fixture.set_up("p", &[changed]), "");
    assert_eq!(fixture.ok("mount(p/a)"), "mount(p/a)");
    assert_eq!(fixture.ok("mount(p/a)"), "ready#1(1), ready#2(1)");
}

#[test]
fn failure_before_mount_has_upstream_operation_name() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.set_up("p", &[empty("a")]), "mount(p/a)");
    let error = StepError {
        operation: Some("MountVolume.NewMounter initialization"),
        message: "path \"/x\" does not exist".to_owned(),
        retry: Retry::Later,
    };
    let failed = "MountVolume.NewMounter initialization failed for volume \"a\" : path \"/x\" does not exist";
    assert_eq!(
        fixture.ends("mount(p/a)", Err(error)),
        format!("event(p FailedMount: {failed}), failed#1(FailedMount: {failed})")
    );
}

#[test]
fn first_failure_replies_and_other_steps_continue() {
    let mut fixture = Fixture::new();
    let volumes = [empty("a"), empty("b")];
    assert_eq!(fixture.set_up("p", &volumes), "mount(p/a), mount(p/b)");
    let failed = "MountVolume.SetUp failed for volume \"a\" : full";
    assert_eq!(
        fixture.fails("mount(p/a)", "full"),
        format!("event(p FailedMount: {failed}), failed#1(FailedMount: {failed})")
    );
    assert_eq!(fixture.timer(), "0.5s");
    assert_eq!(fixture.ok("mount(p/b)"), "");
    // a request during the back-off fails immediately
    assert_eq!(
        fixture.set_up("p", &volumes),
        format!("failed#2(FailedMount: {failed})")
    );
    assert_eq!(fixture.tick(0.5), "mount(p/a)");
    // a request during the retry gets its result
    assert_eq!(fixture.set_up("p", &volumes), "");
    assert_eq!(fixture.ok("mount(p/a)"), "ready#3(2), requeue(p)");
    assert_eq!(fixture.timer(), "idle");
}

#[test]
fn reply_lists_all_failures() {
    let mut fixture = Fixture::new();
    let volumes = [empty("a"), empty("b")];
    fixture.set_up("p", &volumes);
    fixture.fails("mount(p/a)", "full");
    let b = "MountVolume.SetUp failed for volume \"b\" : gone";
    assert_eq!(
        fixture.fails("mount(p/b)", "gone"),
        format!("event(p FailedMount: {b}), requeue(p)")
    );
    assert_eq!(
        fixture.set_up("p", &volumes),
        format!("failed#2(FailedMount: MountVolume.SetUp failed for volume \"a\" : full; {b})")
    );
}

#[test]
fn backoff_doubles_to_max_without_requeue() {
    let mut fixture = Fixture::new();
    fixture.set_up("p", &[empty("a")]);
    let mut pauses = Vec::new();
    let mut second = 0.0;
    for n in 0..11 {
        let line = fixture.fails("mount(p/a)", "full");
        assert_eq!(line.contains("failed#1"), n == 0, "{line}");
        assert!(
            line.starts_with("event(p FailedMount"),
            "one per attempt: {line}"
        );
        assert!(!line.contains("requeue"), "{line}");
        let pause = fixture
            .reconciler
            .next_wake_up(fixture.elapsed)
            .expect("armed")
            .as_secs_f64();
        pauses.push(pause);
        second += pause;
        assert_eq!(fixture.tick(second), "mount(p/a)");
    }
    let expected = [
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0, 122.0,
    ];
    assert_eq!(pauses, expected);
    assert_eq!(fixture.ok("mount(p/a)"), "requeue(p)");
}

#[test]
fn set_up_timeout_names_hung_step_and_its_end_requeues() {
    let mut fixture = Fixture::new();
    let volumes = [empty("a"), empty("b")];
    fixture.set_up("p", &volumes);
    fixture.ok("mount(p/a)");
    assert_eq!(fixture.timer(), "10s");
    let hangs = "MountVolume.SetUp of volume \"b\" in progress since 2023-11-14T22:13:20Z";
    assert_eq!(
        fixture.tick(10.0),
        format!(
            "failed#1(FailedMount: {hangs}), \
             event(p FailedMount: Unable to attach or mount volumes: {hangs})"
        )
    );
    assert_eq!(fixture.timer(), "110s");
    assert_eq!(
        fixture.tick(120.0),
        "event(p FailedMount: MountVolume.SetUp failed for volume \"b\" : not finished after \
         120 s, still waiting)"
    );
    assert_eq!(fixture.timer(), "idle");
    // it is not started twice
    assert_eq!(fixture.set_up("p", &volumes), "");
    assert_eq!(
        fixture.tick(130.0),
        format!("failed#2(FailedMount: {hangs})")
    );
    fixture.at(500.0);
    assert_eq!(fixture.ok("mount(p/b)"), "requeue(p)");
    assert_eq!(fixture.set_up("p", &volumes), "ready#3(2)");
}

#[test]
fn pod_has_at_most_eight_concurrent_steps() {
    let mut fixture = Fixture::new();
    let names: Vec<_> = (0..20).map(|n| format!("v{n:02}")).collect();
    let volumes: Vec<_> = names.iter().map(|name| empty(name)).collect();
    let line = fixture.set_up("p", &volumes);
    assert_eq!(line.matches("mount(").count(), 8);
    assert_eq!(fixture.ok("mount(p/v03)"), "mount(p/v08)");
    for name in &names {
        if name != "v03" {
            fixture.ok(&format!("mount(p/{name})"));
        }
    }
    assert_eq!(fixture.set_up("p", &volumes), "ready#2(20)");
}

#[test]
fn two_names_of_one_pvc_are_one_writable_volume() {
    let mut fixture = Fixture::new();
    let mut reads = csi("c", |_| ());
    (reads.name, reads.read_only) = ("reads".into(), true);
    let writes = csi("c", |_| ());
    let stage = "stage(kubernetes.io/csi/d^c)";
    assert_eq!(fixture.set_up("p", &[reads, writes]), stage);
    assert_eq!(fixture.ok(stage), "mount(p/c)");
    assert_eq!(fixture.ok("mount(p/c)"), "ready#1(2)");
}
