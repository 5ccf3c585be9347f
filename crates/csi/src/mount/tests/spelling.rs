//! Paths, generated names and volume data files equal upstream's.

use windlass_types::PodUid;

use super::fixture::{DRIVER, Fixture, NODE, inline, persistent, pod};
use crate::mount::paths::{CsiDevice, attachment_name, check_names, inline_handle};
use crate::mount::volume_data::VolumeData;
use crate::port::NodeCapability;

/// sha256 of `vol-1`.
const SHA: &str = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49";
/// sha256 of `vol-1host.csi.k8s.ionode-a`.
const ATTACHMENT: &str = "csi-561749c3f967f757a1bf0f461fddd04395babf66cdbb8fa340eabf28392e1213";
/// sha256 of `uid-1scratch`.
const INLINE: &str = "csi-a919eb5a57ed1bf8c61a802fc713b36e9bfa4fbf009dfb5f4206d253a3a3dc32";

#[test]
fn paths_match_upstream() {
    let fixture = Fixture::new(&[]);
    let paths = fixture.paths();
    let check = |path: std::path::PathBuf, expected: &str| {
        let relative = path.strip_prefix(fixture.dir.path()).unwrap();
        assert_eq!(relative.to_str().unwrap(), expected);
    };
    let uid = PodUid::from("uid-1".to_owned());
    let device = CsiDevice {
        driver: DRIVER.to_owned(),
        handle: "vol-1".to_owned(),
    };
    check(
        paths.global_mount(&device),
        &format!("plugins/kubernetes.io/csi/host.csi.k8s.io/{SHA}/globalmount"),
    );
    check(
        paths.target(&uid, "pv-1"),
        "pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount",
    );
    check(
        paths.device_link(&uid, "pv-1"),
        "pods/uid-1/volumeDevices/kubernetes.io~csi/pv-1",
    );
    check(
        paths.block_data_dir("pv-1"),
        "plugins/kubernetes.io/csi/volumeDevices/pv-1/data",
    );
    check(
        paths.block_staging("pv-1"),
        "plugins/kubernetes.io/csi/volumeDevices/staging/pv-1",
    );
    check(
        paths.block_target(&uid, "pv-1"),
        "plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid-1",
    );
}

#[test]
fn generated_names_match_upstream() {
    let uid = PodUid::from("uid-1".to_owned());
    assert_eq!(attachment_name("vol-1", DRIVER, NODE), ATTACHMENT);
    assert_eq!(inline_handle(&uid, "scratch"), INLINE);
}

#[test]
fn device_name_round_trips() {
    let check = |driver: &str, handle: &str, name: &str| {
        let device = CsiDevice {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
        };
        assert_eq!(device.name().0, name);
        assert_eq!(CsiDevice::parse(&device.name()), Some(device));
    };
    check("d.io", "v", "kubernetes.io/csi/d.io^v");
    check("d.io", "a/b^c", "kubernetes.io/csi/d.io^a/b^c");
    let local = windlass_types::DeviceName("kubernetes.io/local-volume/pv".to_owned());
    assert_eq!(CsiDevice::parse(&local), None);
}

#[test]
fn unsafe_names_are_rejected() {
    let uid = PodUid::from("uid-1".to_owned());
    let check = |driver: &str, volume: &str, expected: &str| {
        let result = check_names(&uid, driver, volume).map_err(|error| error.to_string());
        assert_eq!(result.err().unwrap_or_default(), expected);
    };
    check("d.io", "pv", "");
    check(
        "../x",
        "pv",
        "CSI driver name \"../x\" cannot be used as a file name",
    );
    check(
        "d.io",
        "..",
        "volume name \"..\" cannot be used as a file name",
    );
    check(
        "d.io",
        "publish",
        "volume name \"publish\" cannot be used as a file name",
    );
}

#[test]
fn volume_data_matches_upstream_plus_completed_key() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let (pod, volume) = (pod("uid-1"), persistent(|_| {}));
    fixture.stage(&pod, &volume).unwrap();
    fixture.set_up(&pod, &volume).unwrap();
    fixture.set_up(&pod, &inline()).unwrap();
    let check = |dir: &str, expected: &str| {
        let path = fixture.dir.path().join(dir).join("vol_data.json");
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            format!("{expected}\n")
        );
    };
    check(
        &format!("plugins/kubernetes.io/csi/host.csi.k8s.io/{SHA}"),
        r#"{"driverName":"host.csi.k8s.io","volumeHandle":"vol-1","windlassCompleted":"true"}"#,
    );
    check(
        "pods/uid-1/volumes/kubernetes.io~csi/pv-1",
        &format!(
            r#"{{"attachmentID":"{ATTACHMENT}","driverName":"host.csi.k8s.io","nodeName":"node-a","specVolID":"pv-1","volumeHandle":"vol-1","volumeLifecycleMode":"Persistent","windlassCompleted":"true"}}"#
        ),
    );
    check(
        "pods/uid-1/volumes/kubernetes.io~csi/scratch",
        &format!(
            r#"{{"attachmentID":"{}","driverName":"host.csi.k8s.io","nodeName":"node-a","specVolID":"scratch","volumeHandle":"{INLINE}","volumeLifecycleMode":"Ephemeral","windlassCompleted":"true"}}"#,
            attachment_name(INLINE, DRIVER, NODE)
        ),
    );
}

#[test]
fn invalid_volume_data_is_an_error() {
    let check = |text: &str, expected: &str| {
        let result = VolumeData::decode(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(result.err().unwrap_or_default(), expected, "{text}");
    };
    check(r#"{"driverName":"d","volumeHandle":"v","later":"x"}"#, "");
    check("", "EOF while parsing a value at line 1 column 0");
    check(
        r#"{"driverName":"d","volumeHa"#,
        "EOF while parsing a string at line 1 column 27",
    );
    check(
        "[]",
        "invalid type: sequence, expected a map at line 1 column 0",
    );
    check(
        r#"{"driverName":"d"}"#,
        "neither driverName nor volumeHandle may be missing",
    );
    check(
        r#"{"driverName":"","volumeHandle":"v"}"#,
        "neither driverName nor volumeHandle may be missing",
    );
}

#[test]
fn discovered_volumes_have_their_shared_device() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let paths = fixture.paths();
    let (pod, uid) = (pod("uid-1"), PodUid::from("uid-1".to_owned()));
    let block = persistent(|csi| {
        csi.volume_name = "pv-2".to_owned();
        csi.handle = Some("vol-2".to_owned());
        csi.block = true;
    });
    for volume in [persistent(|_| {}), block] {
        fixture.stage(&pod, &volume).unwrap();
        fixture.set_up(&pod, &volume).unwrap();
    }
    fixture.set_up(&pod, &inline()).unwrap();
    let device = |volume: &str, block: bool| {
        let device = paths.shared_device(&uid, volume, block);
        device.map(|device| device.0).unwrap_or_default()
    };
    assert_eq!(
        device("pv-1", false),
        "kubernetes.io/csi/host.csi.k8s.io^vol-1"
    );
    assert_eq!(
        device("pv-2", true),
        "kubernetes.io/csi/host.csi.k8s.io^vol-2"
    );
    assert_eq!(device("scratch", false), "");
    let staged: Vec<String> = paths
        .staged_devices()
        .unwrap()
        .into_iter()
        .map(|d| d.0)
        .collect();
    assert_eq!(
        staged,
        [
            "kubernetes.io/csi/host.csi.k8s.io^vol-1",
            "kubernetes.io/csi/host.csi.k8s.io^vol-2"
        ]
    );
}
