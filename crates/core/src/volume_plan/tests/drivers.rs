//! A driver that was away comes: nobody sits out a pause that was for want of it.

use super::*;

const STAGE: &str = "stage(kubernetes.io/csi/d^c)";
const UNSTAGE: &str = "unstage(kubernetes.io/csi/d^c)";

fn lies() -> Vec<FoundVolume> {
    vec![found("csi", "pv-c", Some("c"))]
}

#[test]
fn what_a_driver_failed_is_tried_as_soon_as_a_driver_comes() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ()), empty("a")]);
    world.fails("mount(p/a)", "disk full");
    world.fails(STAGE, "no driver");
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.hear(Input::DriverCame), STAGE);
    world.ok(STAGE);
    // one failure less
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
    // the disk has nothing to do with drivers
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.hear(Input::DriverCame), "");
}

#[test]
fn whoever_could_not_release_a_volume_is_woken_and_a_device_is_taken_back() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ())]);
    world.ok(STAGE);
    world.ok("mount(p/c)");
    world.release("p", Releaser::Worker);
    world.ends("find(p)", Ok(lies()));
    assert!(
        world
            .fails("unmount(p/pv-c)", "no driver")
            .starts_with("not#2")
    );
    assert_eq!(world.hear(Input::DriverCame), "wake(p)");
    world.release("p", Releaser::Worker);
    world.ends("find(p)", Ok(lies()));
    assert_eq!(
        world.ok("unmount(p/pv-c)"),
        format!("released#3, {UNSTAGE}")
    );
    world.fails(UNSTAGE, "no driver");
    assert_eq!(world.hear(Input::DriverCame), UNSTAGE);
    assert_eq!(world.ok(UNSTAGE), "");
    assert_eq!(world.hear(Input::DriverCame), "");
}
