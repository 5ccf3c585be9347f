//! `requiresRepublish`: the driver is asked again and again, and the pod keeps what it has.

use super::world::{DRIVER, Fault, World, inline, pod};
use crate::port::CsiDriverSpec;

fn world() -> World {
    let world = World::new(&[]);
    world.state().spec = Some(CsiDriverSpec {
        ephemeral: true,
        requires_republish: true,
        ..CsiDriverSpec::default()
    });
    world
}

#[test]
fn each_set_up_publishes_again() {
    let mut world = world();
    let (pod, volume) = (pod("uid-1"), inline());
    world.set_up(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.restart();
    world.set_up(&pod, &volume).unwrap();
    assert_eq!(world.journal().matches("publish csi-").count(), 3);
}

#[test]
fn a_failure_to_publish_again_costs_the_pod_nothing() {
    let world = world();
    let (pod, volume) = (pod("uid-1"), inline());
    world.set_up(&pod, &volume).unwrap();
    let mounts = world.state().mounts.clone();
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        world.next("publish", fault);
        world.set_up(&pod, &volume).unwrap();
        assert_eq!(world.state().mounts, mounts, "{fault:?}");
    }
    world.state().unreachable = true;
    world.set_up(&pod, &volume).unwrap();
    world.state().unreachable = false;
    world.drivers.remove(DRIVER);
    world.set_up(&pod, &volume).unwrap();
    world.register();
    world.tear_down(&pod, &volume).unwrap();
    world.assert_clean("taken back by its notes");
}

#[test]
fn a_failure_is_no_reason_to_believe_that_a_volume_was_never_done() {
    let mut world = world();
    let (pod, volume) = (pod("uid-1"), inline());
    world.set_up(&pod, &volume).unwrap();
    world.next("publish", Fault::LoseAnswer);
    world.set_up(&pod, &volume).unwrap();
    world.restart();
    world.drivers.remove(DRIVER);
    world.set_up(&pod, &volume).unwrap();
}
