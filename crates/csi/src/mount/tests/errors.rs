//! State and error text after failures.

use std::time::Duration;

use windlass_types::{PodUid, Retry};

use super::super::MountError;
use super::fixture::{DRIVER, Fault, Fixture, inline, persistent, pod};
use crate::port::{Attachment, CsiDriverSpec, NodeCapability};

const RPC: &str = "rpc error: code = InvalidArgument desc = no";

#[test]
fn missing_driver_is_an_error_until_it_registers() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let absent = "driver name host.csi.k8s.io not found in the list of registered CSI drivers";
    fixture.drivers.remove(DRIVER);
    let error = fixture.stage(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: {absent}"
        )
    );
    assert_eq!(error.retry(), Retry::Later);
    let error = fixture.set_up(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {absent}")
    );
    fixture.assert_clean("no call was made");
    fixture.register();
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();

    fixture.drivers.remove(DRIVER);
    let error = fixture.tear_down(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {absent}")
    );
    assert_eq!(fixture.state().mounts.len(), 2);
    fixture.register();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.drivers.remove(DRIVER);
    let error = fixture.unstage(&volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: {absent}"
        )
    );
    fixture.register();
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("after all");
}

#[test]
fn rejected_mount_leaves_nothing() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.next("stage", Fault::Refuse);
    let error = fixture.stage(&pod, &volume).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_final()), (RPC, true));
    fixture.assert_clean("stage refused");
    fixture.stage(&pod, &volume).unwrap();
    fixture.next("publish", Fault::Refuse);
    let error = fixture.set_up(&pod, &volume).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_final()), (RPC, true));
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("publish refused");
}

#[test]
fn uncertain_mount_is_unmounted_later() {
    for fault in [Fault::LoseRequest, Fault::LoseAnswer] {
        for restarted in [false, true] {
            let mut fixture = Fixture::new(&[NodeCapability::Stage]);
            let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
            fixture.next("stage", fault);
            let error = fixture.stage(&pod, &volume).unwrap_err();
            assert!(!error.is_final());
            assert_eq!(fixture.paths().staged_devices().unwrap().len(), 1);
            fixture.stage(&pod, &volume).unwrap();
            fixture.next("publish", fault);
            let error = fixture.set_up(&pod, &volume).unwrap_err();
            assert_eq!(
                error.to_string(),
                "rpc error: code = DeadlineExceeded desc = late"
            );
            if restarted {
                fixture.restart();
            }
            fixture.tear_down(&pod, &volume).unwrap();
            fixture.unstage(&volume).unwrap();
            assert!(fixture.journal().contains("unpublish vol-1"));
            fixture.assert_clean(&format!("{fault:?}"));
        }
    }
}

#[test]
fn rejection_after_an_uncertain_mount_removes_nothing() {
    let fixture = Fixture::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.next("publish", Fault::LoseAnswer);
    fixture.set_up(&pod, &volume).unwrap_err();
    fixture.next("publish", Fault::Refuse);
    fixture.set_up(&pod, &volume).unwrap_err();
    fixture.journal();
    fixture.tear_down(&pod, &volume).unwrap();
    assert!(fixture.journal().starts_with("unpublish vol-1"));
    fixture.assert_clean("after all");
}

#[test]
fn unpublish_without_unmount_is_an_error() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.next("unpublish", Fault::Lie);
    let error = fixture.tear_down(&pod, &volume).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "kubernetes.io/csi: Unmounter.TearDownAt failed: the driver did not unmount /"
        ),
        "{error}"
    );
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("the second time");
}

#[test]
fn failed_unmount_has_upstream_text_and_is_repeatable() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseAnswer] {
        fixture.next("unpublish", fault);
        let error = fixture.tear_down(&pod, &volume).unwrap_err().to_string();
        let prefix = "kubernetes.io/csi: Unmounter.TearDownAt failed: rpc error: code = ";
        assert!(error.starts_with(prefix), "{error}");
    }
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.next("unstage", Fault::Refuse);
    assert_eq!(
        fixture.unstage(&volume).unwrap_err().to_string(),
        format!("kubernetes.io/csi: attacher.UnmountDevice failed: {RPC}")
    );
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("at last");
}

#[test]
fn invalid_volume_data_blocks_only_mounted_volumes() {
    let fixture = Fixture::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let dir = fixture
        .dir
        .path()
        .join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
    let tear = || std::fs::write(dir.join("vol_data.json"), "{\"driver").unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.journal();
    tear();
    let error = fixture.tear_down(&pod, &volume).unwrap_err().to_string();
    assert!(
        error.contains("vol_data.json]: EOF while parsing"),
        "{error}"
    );
    assert!(
        error.ends_with("mount is mounted and left alone"),
        "{error}"
    );
    assert_eq!(fixture.journal(), "");
    // set-up rewrites the volume data
    fixture.set_up(&pod, &volume).unwrap();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.assert_clean("written again");

    std::fs::create_dir_all(&dir).unwrap();
    tear();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.assert_clean("nothing was mounted");
}

#[test]
fn device_with_invalid_data_is_restaged_or_unstaged_by_name() {
    let mut fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    let tear = |fixture: &Fixture| {
        let dir = fixture
            .dir
            .path()
            .join("plugins/kubernetes.io/csi/host.csi.k8s.io");
        let device = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap();
        std::fs::write(device.path().join("vol_data.json"), "[").unwrap();
    };
    fixture.stage(&pod, &volume).unwrap();
    tear(&fixture);
    fixture.restart();
    assert_eq!(fixture.paths().staged_devices().unwrap(), []);
    fixture.stage(&pod, &volume).unwrap();
    assert_eq!(fixture.paths().staged_devices().unwrap().len(), 1);
    tear(&fixture);
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("by its name");
}

#[test]
fn unattached_volume_is_not_mounted() {
    let check = |attachment: Option<Attachment>, expected: &str| {
        let fixture = Fixture::new(&[NodeCapability::Stage]);
        fixture.state().spec = None;
        fixture.state().attachment = attachment;
        let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
        let result = fixture
            .stage(&pod, &volume)
            .map_err(|error| error.to_string());
        assert_eq!(result.err().unwrap_or_default(), expected);
        if !expected.is_empty() {
            fixture.assert_clean(expected);
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
async fn attach_limit_is_refreshed_when_node_is_full() {
    let check = |period: Option<u64>, node_full: bool, checked: bool| {
        let fixture = Fixture::new(&[]);
        fixture.state().spec = Some(CsiDriverSpec {
            allocatable_update: period.map(Duration::from_secs),
            ..CsiDriverSpec::default()
        });
        fixture.state().attachment = Some(Attachment {
            error: Some("no room".to_owned()),
            node_full,
            ..Attachment::default()
        });
        fixture.state().max_volumes = Some(3);
        assert_eq!(fixture.is_node_full(&persistent(|_| {})), checked);
        let limit = fixture.drivers.get(DRIVER).unwrap().info.max_volumes;
        assert_eq!(limit, checked.then_some(3));
    };
    check(Some(60), true, true);
    check(Some(60), false, false);
    // a fixed limit is not refreshed
    check(None, true, false);
    let fixture = Fixture::new(&[]);
    assert!(
        !fixture.is_node_full(&inline()),
        "inline volumes are not attached"
    );
    fixture.state().unreachable = true;
    assert!(
        !fixture.is_node_full(&persistent(|_| {})),
        "API server unreachable"
    );
}

#[test]
fn volume_mode_must_be_allowed_by_csi_driver_object() {
    let check = |spec: Option<(bool, bool)>, is_inline: bool, expected: &str| {
        let fixture = Fixture::new(&[]);
        fixture.state().spec = spec.map(|(persistent, ephemeral)| CsiDriverSpec {
            attach_required: false,
            persistent,
            ephemeral,
            ..CsiDriverSpec::default()
        });
        let attached = Attachment {
            attached: true,
            ..Attachment::default()
        };
        fixture.state().attachment = Some(attached);
        let volume = if is_inline {
            inline()
        } else {
            persistent(|_| {})
        };
        let result = fixture.set_up(&pod("uid-1"), &volume);
        let result = result
            .map_err(|error| error.to_string())
            .err()
            .unwrap_or_default();
        let prefix = "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: ";
        assert_eq!(result.strip_prefix(prefix).unwrap_or(&result), expected);
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
fn failed_ownership_change_fails_the_set_up() {
    let fixture = Fixture::new(&[]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.state().keep_group = true;
    let error = fixture.set_up(&pod, &volume).unwrap_err();
    assert_eq!(
        error.to_string(),
        "applyFSGroup failed for vol vol-1: read-only file system"
    );
    assert!(!error.is_final());
    fixture.state().keep_group = false;
    fixture.set_up(&pod, &volume).unwrap();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.assert_clean("after all");
}

#[test]
fn mount_without_api_server_fails_and_names_the_object() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.state().unreachable = true;
    let error = fixture.stage(&pod, &volume).unwrap_err().to_string();
    assert_eq!(
        error,
        "kubernetes.io/csi: attacher.MountDevice failed to get CSIDriver: API server unreachable"
    );
    let error = fixture.set_up(&pod, &volume).unwrap_err().to_string();
    assert!(error.ends_with("API server unreachable"), "{error}");
    fixture.assert_clean("no call was made");
}

#[test]
fn device_used_by_pod_with_invalid_data_is_not_unstaged() {
    let mut fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    let dir = fixture.paths().volume_dir(&PodUid::new("uid-1"), "pv-1");
    std::fs::write(dir.join("vol_data.json"), "").unwrap();
    fixture.restart();
    fixture.journal();
    let error = fixture.unstage(&volume).unwrap_err();
    assert!(matches!(error, MountError::InUse { .. }), "{error}");
    assert_eq!(fixture.journal(), "");
    fixture.set_up(&pod, &volume).unwrap();
    fixture.tear_down(&pod, &volume).unwrap();
    fixture.unstage(&volume).unwrap();
    fixture.assert_clean("at last");
}
