//! Block volumes.

use windlass_types::MountedContent;

use super::fixture::{DRIVER, Fault, Fixture, persistent, pod};
use crate::port::NodeCapability;

#[test]
fn block_volume_is_a_device_behind_a_link_of_its_pod() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let volume = persistent(|csi| csi.block = true);
    let (first, second) = (pod("uid-1"), pod("uid-2"));
    for pod in [&first, &second] {
        fixture.stage(pod, &volume).unwrap();
        let mounted = fixture.set_up(pod, &volume).unwrap();
        let MountedContent::Device(link) = mounted.content else {
            panic!("{mounted:?}");
        };
        assert!(link.read_link().unwrap().exists());
        fixture.set_up(pod, &volume).unwrap();
    }
    let dir = "plugins/kubernetes.io/csi/volumeDevices";
    assert_eq!(
        fixture.journal(),
        format!(
            "stage vol-1 {dir}/staging/pv-1, publish vol-1 {dir}/publish/pv-1/uid-1, \
             publish vol-1 {dir}/publish/pv-1/uid-2"
        )
    );
    let request = fixture.state().last_publish.clone().unwrap();
    assert!(request.volume.block);
    assert_eq!(
        (
            request.volume.fs_type.as_str(),
            request.volume.mount_flags.len()
        ),
        ("", 0)
    );

    fixture.tear_down(&first, &volume).unwrap();
    let error = fixture.unstage(&volume).unwrap_err().to_string();
    assert!(error.ends_with("publish/pv-1/uid-2"), "{error}");
    fixture.tear_down(&second, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    assert_eq!(
        fixture.journal(),
        format!(
            "unpublish vol-1 {dir}/publish/pv-1/uid-1, unpublish vol-1 {dir}/publish/pv-1/uid-2, \
             unstage vol-1 {dir}/staging/pv-1"
        )
    );
    fixture.assert_clean("after the last pod");
}

#[test]
fn failed_block_volume_is_cleaned_up() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        let fixture = Fixture::new(&[NodeCapability::Stage]);
        let (pod, volume) = (pod("uid-1"), persistent(|csi| csi.block = true));
        fixture.next("stage", fault);
        fixture.stage(&pod, &volume).unwrap_err();
        if fault == Fault::Refuse {
            fixture.assert_clean("stage refused");
        }
        fixture.stage(&pod, &volume).unwrap();
        fixture.next("publish", fault);
        fixture.set_up(&pod, &volume).unwrap_err();
        fixture.drivers.remove(DRIVER);
        assert_eq!(
            fixture.tear_down(&pod, &volume).unwrap_err().to_string(),
            "kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: \
             driver name host.csi.k8s.io not found in the list of registered CSI drivers"
        );
        fixture.register();
        fixture.tear_down(&pod, &volume).unwrap();
        fixture.unstage(&volume).unwrap();
        fixture.assert_clean(&format!("{fault:?}"));
    }
}

#[test]
fn bind_mount_of_go_kubelet_is_removed_before_unpublish() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|csi| csi.block = true));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    let dir = "plugins/kubernetes.io/csi/volumeDevices";
    let bound = fixture.paths().block_bind(&"uid-1".into(), "pv-1");
    std::fs::create_dir_all(bound.parent().unwrap()).unwrap();
    std::fs::write(&bound, "").unwrap();
    fixture.state().mounts.insert(bound);
    fixture.journal();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    assert_eq!(
        fixture.journal(),
        format!(
            "release {dir}/pv-1/dev/uid-1, unpublish vol-1 {dir}/publish/pv-1/uid-1, \
             unstage vol-1 {dir}/staging/pv-1"
        )
    );
    fixture.assert_clean("after the pod");
}
