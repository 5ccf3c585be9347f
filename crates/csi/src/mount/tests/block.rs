//! Block volumes.

use windlass_types::MountedContent;

use super::world::{DRIVER, Fault, World, persistent, pod};
use crate::port::NodeAbility;

#[test]
fn a_block_volume_is_a_device_behind_a_link_of_its_pod() {
    let world = World::new(&[NodeAbility::Stage]);
    let volume = persistent(|csi| csi.block = true);
    let (first, second) = (pod("uid-1"), pod("uid-2"));
    for pod in [&first, &second] {
        world.stage(pod, &volume).unwrap();
        let mounted = world.set_up(pod, &volume).unwrap();
        let MountedContent::Device(link) = mounted.content else {
            panic!("{mounted:?}");
        };
        assert!(link.read_link().unwrap().exists());
        world.set_up(pod, &volume).unwrap();
    }
    let dir = "plugins/kubernetes.io/csi/volumeDevices";
    assert_eq!(
        world.journal(),
        format!(
            "stage vol-1 {dir}/staging/pv-1, publish vol-1 {dir}/publish/pv-1/uid-1, \
             publish vol-1 {dir}/publish/pv-1/uid-2"
        )
    );
    let told = world.state().last_publish.clone().unwrap();
    assert!(told.volume.block);
    assert_eq!(
        (told.volume.fs_type.as_str(), told.volume.mount_flags.len()),
        ("", 0)
    );

    world.tear_down(&first, &volume).unwrap();
    let error = world.unstage(&volume).unwrap_err().to_string();
    assert!(error.ends_with("publish/pv-1/uid-2"), "{error}");
    world.tear_down(&second, &volume).unwrap();
    world.unstage(&volume).unwrap();
    assert_eq!(
        world.journal(),
        format!(
            "unpublish vol-1 {dir}/publish/pv-1/uid-1, unpublish vol-1 {dir}/publish/pv-1/uid-2, \
             unstage vol-1 {dir}/staging/pv-1"
        )
    );
    world.assert_clean("after the last pod");
}

#[test]
fn a_failed_block_volume_leaves_nothing_that_is_not_taken_back() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        let world = World::new(&[NodeAbility::Stage]);
        let (pod, volume) = (pod("uid-1"), persistent(|csi| csi.block = true));
        world.next("stage", fault);
        world.stage(&pod, &volume).unwrap_err();
        if fault == Fault::Refuse {
            world.assert_clean("stage refused");
        }
        world.stage(&pod, &volume).unwrap();
        world.next("publish", fault);
        world.set_up(&pod, &volume).unwrap_err();
        world.drivers.remove(DRIVER);
        assert_eq!(
            world.tear_down(&pod, &volume).unwrap_err().to_string(),
            "kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: \
             driver name host.csi.k8s.io not found in the list of registered CSI drivers"
        );
        world.register();
        world.tear_down(&pod, &volume).unwrap();
        world.unstage(&volume).unwrap();
        world.assert_clean(&format!("{fault:?}"));
    }
}

#[test]
fn what_upstream_bound_of_a_block_volume_goes_before_its_driver_is_asked_for_it() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|csi| csi.block = true));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    let dir = "plugins/kubernetes.io/csi/volumeDevices";
    let bound = world.paths().block_bind(&"uid-1".into(), "pv-1");
    std::fs::create_dir_all(bound.parent().unwrap()).unwrap();
    std::fs::write(&bound, "").unwrap();
    world.state().mounts.insert(bound);
    world.journal();
    world.tear_down(&pod, &volume).unwrap();
    world.unstage(&volume).unwrap();
    assert_eq!(
        world.journal(),
        format!(
            "release {dir}/pv-1/dev/uid-1, unpublish vol-1 {dir}/publish/pv-1/uid-1, \
             unstage vol-1 {dir}/staging/pv-1"
        )
    );
    world.assert_clean("after the pod");
}
