//! Volumes that nobody attaches.

use super::*;

fn attached_elsewhere() -> PodVolume {
    csi("c", |volume| volume.attach_required = true)
}

fn answered(world: &mut World, full: bool) -> String {
    let Some(Step::CheckAttachLimit(work)) = world.open.remove("ask-limit(p/c)") else {
        panic!("nobody asks");
    };
    world.hear(Input::Done(Done::AttachLimitChecked(
        work.pod.uid(),
        work.key,
        full,
    )))
}

/// A pod that has waited for as long as anybody is waited for.
fn waiting() -> World {
    let mut world = World::new();
    let name = device("c");
    let in_use = format!("in-use({name})");
    assert_eq!(
        world.ask("p", &[attached_elsewhere(), empty("e")]),
        format!("mount(p/e), {in_use}")
    );
    world.ok("mount(p/e)");
    world.node(&[], &["c"]);
    assert!(world.tick(10.0).starts_with("not#1(FailedAttachVolume: "));
    assert_eq!(world.timer(), "113s");
    assert_eq!(world.tick(123.0), "ask-limit(p/c)");
    assert_eq!(world.timer(), "idle");
    world
}

#[test]
fn a_pod_whose_volume_the_node_has_no_room_for_is_rejected() {
    let mut world = waiting();
    assert_eq!(
        answered(&mut world, true),
        "reject(p: Node has reached its volume attachment limit, rejecting pod. unmounted \
         volumes=[c], unattached volumes=[c], failed to process volumes=[]: context deadline \
         exceeded)"
    );
    // once: it is up to the pod's end now, however long that takes
    for later in [246.0, 369.0] {
        assert_eq!(world.tick(later), "");
        assert_eq!(world.timer(), "idle");
    }
}

#[test]
fn a_volume_that_is_merely_slow_is_asked_about_again_until_it_is_attached() {
    let mut world = waiting();
    assert_eq!(answered(&mut world, false), "");
    assert_eq!(world.timer(), "123s");
    assert_eq!(world.tick(246.0), "ask-limit(p/c)");
    // it came before the answer, which counts no longer
    let stage = format!("stage({})", device("c"));
    assert_eq!(world.node(&["c"], &["c"]), stage);
    assert_eq!(answered(&mut world, true), "");
    assert_eq!(world.ok(&stage), "mount(p/c)");
    assert_eq!(world.ok("mount(p/c)"), "wake(p)");
    assert_eq!(world.timer(), "idle");
}
