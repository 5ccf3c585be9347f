//! What is called when, and that nothing is called without need.

use super::world::{Fault, World, inline, persistent, pod};
use crate::port::NodeAbility;

const SHA: &str = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49";

fn staged() -> String {
    format!("vol-1 plugins/kubernetes.io/csi/host.csi.k8s.io/{SHA}/globalmount")
}

#[test]
fn a_volume_of_two_pods_is_staged_once_published_twice_and_taken_back_in_reverse() {
    let world = World::new(&[NodeAbility::Stage]);
    let (first, second) = (pod("uid-1"), pod("uid-2"));
    let volume = persistent(|_| {});
    for pod in [&first, &second] {
        world.stage(pod, &volume).unwrap();
        let mounted = world.set_up(pod, &volume).unwrap();
        assert!(mounted.relabel && !mounted.read_only);
    }
    let at = |uid: &str| format!("vol-1 pods/{uid}/volumes/kubernetes.io~csi/pv-1/mount");
    assert_eq!(
        world.journal(),
        format!(
            "stage {}, publish {one}, group 2000 data pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount, \
             publish {two}, group 2000 data pods/uid-2/volumes/kubernetes.io~csi/pv-1/mount",
            staged(),
            one = at("uid-1"),
            two = at("uid-2"),
        )
    );
    world.tear_down(&first, &volume).unwrap();
    assert_eq!(world.journal(), format!("unpublish {}", at("uid-1")));
    world.tear_down(&second, &volume).unwrap();
    world.unstage(&volume).unwrap();
    assert_eq!(
        world.journal(),
        format!("unpublish {}, unstage {}", at("uid-2"), staged())
    );
    world.assert_clean("after the last pod");
}

#[test]
fn a_device_that_a_pod_has_is_not_taken_back() {
    let mut world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.journal();
    world.restart();
    let error = world.unstage(&volume).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "device kubernetes.io/csi/host.csi.k8s.io^vol-1 is published to the pod at /"
        ),
        "{error}"
    );
    assert!(
        error.ends_with("pods/uid-1/volumes/kubernetes.io~csi/pv-1"),
        "{error}"
    );
    assert_eq!(world.journal(), "");
}

#[test]
fn a_driver_that_does_not_stage_is_only_asked_to_publish() {
    let world = World::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    assert!(world.journal().starts_with("publish vol-1 pods/"));
    assert_eq!(
        world
            .state()
            .last_publish
            .as_ref()
            .unwrap()
            .volume
            .staging_path,
        None
    );
    world.tear_down(&pod, &volume).unwrap();
    world.unstage(&volume).unwrap();
    assert!(world.journal().starts_with("unpublish vol-1 pods/"));
    world.assert_clean("after the pod");
}

#[test]
fn an_inline_volume_is_published_under_a_handle_of_its_pod_and_never_staged() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), inline());
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    let handle = crate::mount::inline_handle(&"uid-1".to_owned().into(), "scratch");
    let at = "pods/uid-1/volumes/kubernetes.io~csi/scratch/mount";
    assert_eq!(
        world.journal(),
        format!("publish {handle} {at}, group 2000 data {at}")
    );
    world.tear_down(&pod, &volume).unwrap();
    assert_eq!(world.journal(), format!("unpublish {handle} {at}"));
    world.assert_clean("after the pod");
}

#[test]
fn what_is_set_up_costs_no_call_and_no_driver() {
    let mut world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.journal();
    world.drivers.remove(super::world::DRIVER);
    world.state().unreachable = true;
    for restarted in [false, true] {
        if restarted {
            world.restart();
        }
        world.stage(&pod, &volume).unwrap();
        world.set_up(&pod, &volume).unwrap();
        assert_eq!(world.journal(), "", "restarted: {restarted}");
    }
}

#[test]
fn after_a_reboot_everything_is_mounted_anew() {
    let mut world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.journal();
    {
        let mut state = world.state();
        state.mounts.clear();
        state.staged.clear();
        state.published.clear();
    }
    world.restart();
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    let journal = world.journal();
    assert!(journal.starts_with("stage vol-1"), "{journal}");
    assert!(journal.contains("publish vol-1"), "{journal}");
}

#[test]
fn one_driver_that_hangs_delays_no_other_pod() {
    let world = World::new(&[]);
    let volume = persistent(|_| {});
    world.next("publish", Fault::Hang);
    assert!(world.try_set_up(&pod("uid-1"), &volume).is_none());
    world.set_up(&pod("uid-2"), &volume).unwrap();
}

#[test]
fn a_driver_that_can_grows_a_volume_to_the_size_that_is_asked_for() {
    let check = |abilities: &[NodeAbility], line: &str| {
        let world = World::new(abilities);
        let volume = persistent(|_| {});
        world.expand(&pod("uid-1"), &volume, 20).unwrap();
        assert_eq!(world.journal(), line);
    };
    let both = [NodeAbility::Stage, NodeAbility::Expand];
    let at = "pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount";
    check(&both, &format!("expand vol-1 to 20 staged true {at}"));
    check(
        &[NodeAbility::Expand],
        &format!("expand vol-1 to 20 staged false {at}"),
    );
}

#[test]
fn what_a_driver_says_against_growing_is_told_apart() {
    let check = |abilities: &[NodeAbility], fault: Option<Fault>, expected: &str| {
        let world = World::new(abilities);
        if let Some(fault) = fault {
            world.next("expand", fault);
        }
        let error = world.expand(&pod("uid-1"), &persistent(|_| {}), 20);
        let error = error.unwrap_err();
        let line = format!("{:?} {:?}: {error}", error.growth_fault(), error.retry());
        assert_eq!(line, expected);
    };
    let can = [NodeAbility::Expand];
    check(
        &[],
        None,
        "Unsupported Later: NodeExpand is not supported by the CSI driver host.csi.k8s.io",
    );
    let refused = "Expander.NodeExpand failed to expand the volume";
    check(
        &can,
        Some(Fault::Refuse),
        &format!("Infeasible Never: {refused} rpc error: code = InvalidArgument desc = no"),
    );
    check(
        &can,
        Some(Fault::Code("FailedPrecondition")),
        &format!("InUse Later: {refused} : rpc error: code = FailedPrecondition desc = no"),
    );
    check(
        &can,
        Some(Fault::Code("Internal")),
        &format!("Failed Later: {refused} : rpc error: code = Internal desc = no"),
    );
}

#[test]
fn usage_is_asked_of_a_driver_that_measures_and_of_published_volumes() {
    let world = World::new(&[NodeAbility::Usage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    assert_eq!(world.usage(&pod, &volume).unwrap(), None);
    world.set_up(&pod, &volume).unwrap();
    world.journal();
    let usage = world.usage(&pod, &volume).unwrap().unwrap();
    assert_eq!(usage.entries[0].used, 4);
    assert_eq!(
        world.journal(),
        "usage vol-1 pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"
    );
    world.state().abilities.clear();
    assert_eq!(world.usage(&pod, &volume).unwrap(), None);
}
