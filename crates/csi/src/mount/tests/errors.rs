//! What a failure leaves, and in which words it is told.

use std::time::Duration;

use windlass_types::{PodUid, Retry};

use super::super::MountError;
use super::world::{DRIVER, Fault, World, inline, persistent, pod};
use crate::port::{Attachment, CsiDriverSpec, NodeAbility};

const RPC: &str = "rpc error: code = InvalidArgument desc = no";

#[test]
fn an_absent_driver_is_named_and_serves_as_soon_as_it_is_there() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let absent = "driver name host.csi.k8s.io not found in the list of registered CSI drivers";
    world.drivers.remove(DRIVER);
    let error = world.stage(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {absent}"
        )
    );
    assert_eq!(error.retry(), Retry::Later);
    let error = world.set_up(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {absent}")
    );
    world.assert_clean("nothing was asked");
    world.register();
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();

    world.drivers.remove(DRIVER);
    let error = world.tear_down(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {absent}")
    );
    assert_eq!(world.state().mounts.len(), 2);
    world.register();
    world.tear_down(&pod, &volume).unwrap();
    world.drivers.remove(DRIVER);
    let error = world.unstage(&volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: {absent}"
        )
    );
    world.register();
    world.unstage(&volume).unwrap();
    world.assert_clean("after all");
}

#[test]
fn a_refused_mount_leaves_nothing() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.next("stage", Fault::Refuse);
    let error = world.stage(&pod, &volume).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_final()), (RPC, true));
    world.assert_clean("stage refused");
    world.stage(&pod, &volume).unwrap();
    world.next("publish", Fault::Refuse);
    let error = world.set_up(&pod, &volume).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_final()), (RPC, true));
    world.unstage(&volume).unwrap();
    world.assert_clean("publish refused");
}

#[test]
fn a_mount_of_which_nobody_knows_is_kept_in_mind_and_taken_back() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
        for restarted in [false, true] {
            let mut world = World::new(&[NodeAbility::Stage]);
            let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
            world.next("stage", fault);
            let error = world.stage(&pod, &volume).unwrap_err();
            assert!(!error.is_final());
            assert_eq!(world.paths().staged_devices().unwrap().len(), 1);
            world.stage(&pod, &volume).unwrap();
            world.next("publish", fault);
            let error = world.set_up(&pod, &volume).unwrap_err();
            assert_eq!(
                error.to_string(),
                "rpc error: code = DeadlineExceeded desc = late"
            );
            if restarted {
                world.restart();
            }
            world.tear_down(&pod, &volume).unwrap();
            world.unstage(&volume).unwrap();
            assert!(world.journal().contains("unpublish vol-1"));
            world.assert_clean(&format!("{fault:?}"));
        }
    }
}

#[test]
fn a_refusal_after_a_mount_of_which_nobody_knows_takes_nothing_away() {
    let world = World::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.next("publish", Fault::LoseAnswer);
    world.set_up(&pod, &volume).unwrap_err();
    world.next("publish", Fault::Refuse);
    world.set_up(&pod, &volume).unwrap_err();
    world.journal();
    world.tear_down(&pod, &volume).unwrap();
    assert!(world.journal().starts_with("unpublish vol-1"));
    world.assert_clean("after all");
}

#[test]
fn a_driver_that_says_a_volume_is_gone_while_it_is_there_is_not_believed() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.next("unpublish", Fault::Lie);
    let error = world.tear_down(&pod, &volume).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "kubernetes.io/csi: Unmounter.TearDownAt failed: the driver did not unmount /"
        ),
        "{error}"
    );
    world.tear_down(&pod, &volume).unwrap();
    world.unstage(&volume).unwrap();
    world.assert_clean("the second time");
}

#[test]
fn a_failed_unmount_is_told_in_upstreams_words_and_repeated() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        world.next("unpublish", fault);
        let error = world.tear_down(&pod, &volume).unwrap_err().to_string();
        let words = "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = ";
        assert!(error.starts_with(words), "{error}");
    }
    world.tear_down(&pod, &volume).unwrap();
    world.next("unstage", Fault::Refuse);
    assert_eq!(
        world.unstage(&volume).unwrap_err().to_string(),
        format!("kubernetes.io/csi: attacher.UnmountDevice failed: {RPC}")
    );
    world.unstage(&volume).unwrap();
    world.assert_clean("at last");
}

#[test]
fn torn_notes_hold_back_what_is_mounted_and_nothing_else() {
    let world = World::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let dir = world
        .dir
        .path()
        .join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
    let tear = || std::fs::write(dir.join("vol_data.json"), "{\"driver").unwrap();
    world.set_up(&pod, &volume).unwrap();
    world.journal();
    tear();
    let error = world.tear_down(&pod, &volume).unwrap_err().to_string();
    assert!(
        error.contains("vol_data.json]: EOF while parsing"),
        "{error}"
    );
    assert!(
        error.ends_with("mount is mounted and left alone"),
        "{error}"
    );
    assert_eq!(world.journal(), "");
    // whoever sets the volume up knows what it is
    world.set_up(&pod, &volume).unwrap();
    world.tear_down(&pod, &volume).unwrap();
    world.assert_clean("noted again");

    std::fs::create_dir_all(&dir).unwrap();
    tear();
    world.tear_down(&pod, &volume).unwrap();
    world.assert_clean("nothing was mounted");
}

#[test]
fn a_device_with_torn_notes_is_staged_again_or_taken_back_by_its_name() {
    let mut world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let tear = |world: &World| {
        let dir = world
            .dir
            .path()
            .join("plugins/kubernetes.io/csi/host.csi.k8s.io");
        let device = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap();
        std::fs::write(device.path().join("vol_data.json"), "[").unwrap();
    };
    world.stage(&pod, &volume).unwrap();
    tear(&world);
    world.restart();
    assert_eq!(world.paths().staged_devices().unwrap(), []);
    world.stage(&pod, &volume).unwrap();
    assert_eq!(world.paths().staged_devices().unwrap().len(), 1);
    tear(&world);
    world.unstage(&volume).unwrap();
    world.assert_clean("by its name");
}

#[test]
fn a_volume_that_no_controller_attached_is_not_mounted() {
    let check = |attachment: Option<Attachment>, expected: &str| {
        let world = World::new(&[NodeAbility::Stage]);
        world.state().spec = None;
        world.state().attachment = attachment;
        let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
        let said = world
            .stage(&pod, &volume)
            .map_err(|error| error.to_string());
        assert_eq!(said.err().unwrap_or_default(), expected);
        if !expected.is_empty() {
            world.assert_clean(expected);
        }
    };
    let attached = Attachment {
        attached: true,
        ..Attachment::default()
    };
    check(Some(attached), "");
    check(
        None,
        "volumeattachments.storage.k8s.io \
         \"csi-561749c3f967f757a1bf0f461fddd04395babf66cdbb8fa340eabf28392e1213\" not found",
    );
    check(
        Some(Attachment::default()),
        "waiting for external-attacher of host.csi.k8s.io CSI driver to attach volume vol-1",
    );
    let failed = Attachment {
        error: Some("disk is on fire".to_owned()),
        ..Attachment::default()
    };
    check(Some(failed), "disk is on fire");
}

#[tokio::test(start_paused = true)]
async fn a_driver_whose_limit_may_change_is_asked_for_it_when_the_node_has_no_room() {
    let check = |period: Option<u64>, node_full: bool, asked: bool| {
        let world = World::new(&[]);
        world.state().spec = Some(CsiDriverSpec {
            allocatable_update: period.map(Duration::from_secs),
            ..CsiDriverSpec::default()
        });
        world.state().attachment = Some(Attachment {
            error: Some("no room".to_owned()),
            node_full,
            ..Attachment::default()
        });
        world.state().max_volumes = Some(3);
        assert_eq!(world.is_node_full(&persistent(|_| {})), asked);
        let known = world.drivers.get(DRIVER).unwrap().info.max_volumes;
        assert_eq!(known, asked.then_some(3));
    };
    check(Some(60), true, true);
    check(Some(60), false, false);
    // whose limit never changes is not doubted
    check(None, true, false);
    let world = World::new(&[]);
    assert!(!world.is_node_full(&inline()), "nobody attaches it");
    world.state().unreachable = true;
    assert!(!world.is_node_full(&persistent(|_| {})), "nobody knows");
}

#[test]
fn a_driver_has_only_the_volumes_that_its_object_names() {
    let check = |spec: Option<(bool, bool)>, is_inline: bool, expected: &str| {
        let world = World::new(&[]);
        world.state().spec = spec.map(|(persistent, ephemeral)| CsiDriverSpec {
            attach_required: false,
            persistent,
            ephemeral,
            ..CsiDriverSpec::default()
        });
        let attached = Attachment {
            attached: true,
            ..Attachment::default()
        };
        world.state().attachment = Some(attached);
        let volume = if is_inline {
            inline()
        } else {
            persistent(|_| {})
        };
        let said = world.set_up(&pod("uid-1"), &volume);
        let said = said
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        let prefix = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: ";
        assert_eq!(said.strip_prefix(prefix).unwrap_or(&said), expected);
    };
    check(None, false, "");
    check(
        None,
        true,
        "volume mode \"Ephemeral\" not supported by driver host.csi.k8s.io (no CSIDriver object)",
    );
    check(Some((true, true)), true, "");
    check(
        Some((true, false)),
        true,
        "volume mode \"Ephemeral\" not supported by driver host.csi.k8s.io \
         (only supports [\"Persistent\"])",
    );
    check(
        Some((false, true)),
        false,
        "volume mode \"Persistent\" not supported by driver host.csi.k8s.io \
         (only supports [\"Ephemeral\"])",
    );
}

#[test]
fn a_volume_whose_group_cannot_be_set_is_mounted_but_not_ready() {
    let world = World::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.state().keep_group = true;
    let error = world.set_up(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        "applyFSGroup failed for vol vol-1: read-only file system"
    );
    assert!(!error.is_final());
    world.state().keep_group = false;
    world.set_up(&pod, &volume).unwrap();
    world.tear_down(&pod, &volume).unwrap();
    world.assert_clean("after all");
}

#[test]
fn without_the_api_server_nothing_new_is_mounted_and_what_was_asked_is_said() {
    let world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.state().unreachable = true;
    let error = world.stage(&pod, &volume).unwrap_err().to_string();
    assert_eq!(
        error,
        "kubernetes.io/csi: attacher.MountDevice failed to get CSIDriver: the API server is away"
    );
    let error = world.set_up(&pod, &volume).unwrap_err().to_string();
    assert!(error.ends_with("the API server is away"), "{error}");
    world.assert_clean("nothing was asked");
}

#[test]
fn a_device_that_a_pod_with_torn_notes_has_is_not_unstaged() {
    let mut world = World::new(&[NodeAbility::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    world.stage(&pod, &volume).unwrap();
    world.set_up(&pod, &volume).unwrap();
    let dir = world.paths().volume_dir(&PodUid::new("uid-1"), "pv-1");
    std::fs::write(dir.join("vol_data.json"), "").unwrap();
    world.restart();
    world.journal();
    let error = world.unstage(&volume).unwrap_err();
    assert!(matches!(error, MountError::InUse { .. }), "{error}");
    assert_eq!(world.journal(), "");
    world.set_up(&pod, &volume).unwrap();
    world.tear_down(&pod, &volume).unwrap();
    world.unstage(&volume).unwrap();
    world.assert_clean("at last");
}
