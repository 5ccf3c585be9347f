//! A driver that was away comes: nobody sits out a pause that was for want of it.

use super::*;

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const UNSTAGE: &str = "unstage(kubernetes.io/csi/d^c)";

#[test]
fn what_a_driver_failed_is_tried_as_soon_as_a_driver_comes() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ()), empty("a")]);
    world.fails("mount(p/a)", "disk full");
    world.fails(STAGE, "no driver");
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.hear(Input::DriverRegistered), STAGE);
    world.ok(STAGE);
    // one failure less
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
    // the disk has nothing to do with drivers
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.hear(Input::DriverRegistered), "");
}

#[test]
fn a_device_that_waits_for_its_driver_is_taken_back_as_soon_as_it_comes() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ())]);
    world.ok(STAGE);
    world.ok("mount(p/c)");
    world.release("p", TearDownRequester::Worker);
    world.ends("find(p)", Ok(vec![found("csi", "pv-c", Some("c"))]));
    assert_eq!(
        world.ok("unmount(p/pv-c)"),
        format!("released#2, {UNSTAGE}")
    );
    world.fails(UNSTAGE, "no driver");
    assert_eq!(world.hear(Input::DriverRegistered), UNSTAGE);
    assert_eq!(world.ok(UNSTAGE), "");
    assert_eq!(world.hear(Input::DriverRegistered), "");
}

#[test]
fn a_release_that_a_driver_failed_is_asked_for_again_as_soon_as_a_driver_comes() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ()), empty("a")]);
    world.ok(STAGE);
    world.ok("mount(p/a)");
    world.ok("mount(p/c)");
    let left = || {
        let csi = found("csi", "pv-c", Some("c"));
        vec![csi, found("empty-dir", "a", None)]
    };
    world.release("p", TearDownRequester::Worker);
    assert_eq!(
        world.ends("find(p)", Ok(left())),
        "unmount(p/pv-c), unmount(p/a)"
    );
    assert_eq!(world.ok("unmount(p/a)"), "");
    assert_eq!(
        world.fails("unmount(p/pv-c)", "no driver"),
        "not#2(FailedMount: UnmountVolume.TearDown failed for volume \"pv-c\" : no driver)"
    );
    assert_eq!(world.hear(Input::DriverRegistered), "wake(p)");
    // once for each failure
    assert_eq!(world.hear(Input::DriverRegistered), "");
    assert_eq!(world.release("p", TearDownRequester::Worker), "find(p)");
    world.ends("find(p)", Ok(left()));
    world.ok("unmount(p/pv-c)");
    // a disk has nothing to do with drivers
    world.fails("unmount(p/a)", "busy");
    assert_eq!(world.hear(Input::DriverRegistered), "");
}
