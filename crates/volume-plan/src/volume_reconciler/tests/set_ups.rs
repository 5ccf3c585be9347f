//! Setting up: readiness, failures, pauses, patience, events, wake-ups.

use super::*;

#[test]
fn a_pod_is_ready_when_all_of_its_volumes_are_and_a_repeat_costs_nothing() {
    let mut world = World::new();
    let volumes = [empty("a"), empty("b")];
    assert_eq!(world.ask("p", &volumes), "mount(p/a), mount(p/b)");
    assert_eq!(world.ok("mount(p/b)"), "");
    assert_eq!(world.ok("mount(p/a)"), "ready#1(2)");
    assert_eq!(world.timer(), "idle");
    assert_eq!(world.ask("p", &volumes), "ready#2(2)");
    assert_eq!(world.timer(), "idle");
    assert_eq!(world.ask("q", &[]), "ready#3(0)");
}

#[test]
fn only_what_changed_is_set_up_again_and_a_driver_is_asked_each_time() {
    let mut world = World::new();
    let volumes = [empty("a"), empty("b"), csi("c", |_| ())];
    let c = "stage(kubernetes.io/csi/d^c)";
    assert_eq!(
        world.ask("p", &volumes),
        format!("{c}, mount(p/a), mount(p/b)")
    );
    assert_eq!(world.ok("mount(p/a)"), "");
    assert_eq!(world.ok("mount(p/b)"), "");
    assert_eq!(world.ok(c), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#1(3)");
    let mut changed = volumes.clone();
    changed[1].mount_options.push("ro".into());
    assert_eq!(world.ask("p", &changed), "mount(p/c), mount(p/b)");
    assert_eq!(world.ok("mount(p/b)"), "");
    assert_eq!(world.ok("mount(p/c)"), "ready#2(3)");
}

#[test]
fn what_changes_while_it_is_set_up_is_set_up_once_more() {
    let mut world = World::new();
    assert_eq!(world.ask("p", &[empty("a")]), "mount(p/a)");
    let mut changed = empty("a");
    changed.mount_options.push("ro".into());
    assert_eq!(world.ask("p", &[changed]), "");
    assert_eq!(world.ok("mount(p/a)"), "mount(p/a)");
    assert_eq!(world.ok("mount(p/a)"), "ready#1(1), ready#2(1)");
}

#[test]
fn what_failed_before_the_step_proper_is_told_by_upstreams_name_of_it() {
    let mut world = World::new();
    assert_eq!(world.ask("p", &[empty("a")]), "mount(p/a)");
    let error = StepError {
        operation: Some("MountVolume.NewMounter initialization"),
        message: "path \"/x\" does not exist".to_owned(),
        retry: Retry::Later,
    };
    let failed = "MountVolume.NewMounter initialization failed for volume \"a\" : path \"/x\" does not exist";
    assert_eq!(
        world.ends("mount(p/a)", Err(error)),
        format!("event(p FailedMount: {failed}), not#1(FailedMount: {failed})")
    );
}

#[test]
fn the_first_failure_answers_and_the_others_go_on() {
    let mut world = World::new();
    let volumes = [empty("a"), empty("b")];
    assert_eq!(world.ask("p", &volumes), "mount(p/a), mount(p/b)");
    let failed = "MountVolume.SetUp failed for volume \"a\" : full";
    assert_eq!(
        world.fails("mount(p/a)", "full"),
        format!("event(p FailedMount: {failed}), not#1(FailedMount: {failed})")
    );
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.ok("mount(p/b)"), "");
    // who asks during the pause hears of it at once
    assert_eq!(
        world.ask("p", &volumes),
        format!("not#2(FailedMount: {failed})")
    );
    assert_eq!(world.tick(0.5), "mount(p/a)");
    // who asks while it is tried again hears what comes of it
    assert_eq!(world.ask("p", &volumes), "");
    assert_eq!(world.ok("mount(p/a)"), "ready#3(2), wake(p)");
    assert_eq!(world.timer(), "idle");
}

#[test]
fn all_that_failed_is_told() {
    let mut world = World::new();
    let volumes = [empty("a"), empty("b")];
    world.ask("p", &volumes);
    world.fails("mount(p/a)", "full");
    let b = "MountVolume.SetUp failed for volume \"b\" : gone";
    assert_eq!(
        world.fails("mount(p/b)", "gone"),
        format!("event(p FailedMount: {b}), wake(p)")
    );
    assert_eq!(
        world.ask("p", &volumes),
        format!("not#2(FailedMount: MountVolume.SetUp failed for volume \"a\" : full; {b})")
    );
}

#[test]
fn pauses_double_from_half_a_second_to_two_minutes_and_the_same_failure_wakes_nobody() {
    let mut world = World::new();
    world.ask("p", &[empty("a")]);
    let mut pauses = Vec::new();
    let mut second = 0.0;
    for n in 0..11 {
        let line = world.fails("mount(p/a)", "full");
        assert_eq!(line.contains("not#1"), n == 0, "{line}");
        assert!(
            line.starts_with("event(p FailedMount"),
            "one for each try: {line}"
        );
        assert!(!line.contains("wake"), "{line}");
        let pause = world
            .plan
            .wakes_in(world.uptime)
            .expect("armed")
            .as_secs_f64();
        pauses.push(pause);
        second += pause;
        assert_eq!(world.tick(second), "mount(p/a)");
    }
    let expected = [
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0, 122.0,
    ];
    assert_eq!(pauses, expected);
    assert_eq!(world.ok("mount(p/a)"), "wake(p)");
}

#[test]
fn patience_ends_with_the_name_of_what_hangs_and_the_pod_is_woken_when_it_ends() {
    let mut world = World::new();
    let volumes = [empty("a"), empty("b")];
    world.ask("p", &volumes);
    world.ok("mount(p/a)");
    assert_eq!(world.timer(), "10s");
    let hangs = "MountVolume.SetUp of volume \"b\" is under way since 2023-11-14T22:13:20Z";
    assert_eq!(
        world.tick(10.0),
        format!(
            "not#1(FailedMount: {hangs}), \
             event(p FailedMount: Unable to attach or mount volumes: {hangs})"
        )
    );
    assert_eq!(world.timer(), "110s");
    assert_eq!(
        world.tick(120.0),
        "event(p FailedMount: MountVolume.SetUp failed for volume \"b\" : did not end within \
         120 s, is waited for)"
    );
    assert_eq!(world.timer(), "idle");
    // nobody begins it a second time
    assert_eq!(world.ask("p", &volumes), "");
    assert_eq!(world.tick(130.0), format!("not#2(FailedMount: {hangs})"));
    world.at(500.0);
    assert_eq!(world.ok("mount(p/b)"), "wake(p)");
    assert_eq!(world.ask("p", &volumes), "ready#3(2)");
}

#[test]
fn no_more_than_eight_steps_of_a_pod_are_under_way() {
    let mut world = World::new();
    let names: Vec<_> = (0..20).map(|n| format!("v{n:02}")).collect();
    let volumes: Vec<_> = names.iter().map(|name| empty(name)).collect();
    let line = world.ask("p", &volumes);
    assert_eq!(line.matches("mount(").count(), 8);
    assert_eq!(world.ok("mount(p/v03)"), "mount(p/v08)");
    for name in &names {
        if name != "v03" {
            world.ok(&format!("mount(p/{name})"));
        }
    }
    assert_eq!(world.ask("p", &volumes), "ready#2(20)");
}

#[test]
fn two_names_of_one_claim_are_one_volume_and_the_one_that_may_write_is_set_up() {
    let mut world = World::new();
    let mut reads = csi("c", |_| ());
    (reads.name, reads.read_only) = ("reads".into(), true);
    let writes = csi("c", |_| ());
    let stage = "stage(kubernetes.io/csi/d^c)";
    assert_eq!(world.ask("p", &[reads, writes]), stage);
    assert_eq!(world.ok(stage), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "ready#1(2)");
}
