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
    assert_eq!(world.hear(Input::DriverCame), STAGE);
    world.ok(STAGE);
    // one failure less
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
    // the disk has nothing to do with drivers
    assert_eq!(world.timer(), "0.5s");
    assert_eq!(world.hear(Input::DriverCame), "");
}

#[test]
fn a_device_that_waits_for_its_driver_is_taken_back_as_soon_as_it_comes() {
    let mut world = World::new();
    world.ask("p", &[csi("c", |_| ())]);
    world.ok(STAGE);
    world.ok("mount(p/c)");
    world.release("p", Releaser::Worker);
    world.ends("find(p)", Ok(vec![found("csi", "pv-c", Some("c"))]));
    assert_eq!(
        world.ok("unmount(p/pv-c)"),
        format!("released#2, {UNSTAGE}")
    );
    world.fails(UNSTAGE, "no driver");
    assert_eq!(world.hear(Input::DriverCame), UNSTAGE);
    assert_eq!(world.ok(UNSTAGE), "");
    assert_eq!(world.hear(Input::DriverCame), "");
}
