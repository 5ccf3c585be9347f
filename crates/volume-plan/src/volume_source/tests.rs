//! Directories, devices and sources of volumes.

use serde_json::{Value, json};

use windlass_pod_inputs::pod_references::volume_use;

use super::*;

mod expansion;
mod in_tree;
mod pvc;

fn volumes(spec: Value) -> PodVolumes {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "default"}, "spec": {"containers": [], "volumes": spec},
    }))
    .expect("pod");
    let payloads = [("conf".to_owned(), VolumePayload::default())].into();
    plain_volumes(&pod, &payloads)
}

#[test]
fn volume_directories_are_upstreams() {
    let dirs: Vec<_> = volumes(json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "hostPath": {"path": "/x"}},
        {"name": "conf", "configMap": {"name": "m"}},
        {"name": "unresolved", "secret": {"secretName": "s"}},
        {"name": "c", "glusterfs": {"endpoints": "e", "path": "p"}},
        {"name": "d", "nfs": {"server": "s", "path": "/p"}},
        {"name": "e", "csi": {"driver": "d"}},
        {"name": "f", "image": {"reference": "i"}},
    ]))
    .iter()
    .map(|volume| {
        let dir = volume.dir(Path::new("/pod"));
        let dir = dir.map_or("-".to_owned(), |dir| dir.display().to_string());
        format!("{} {dir}", volume.name)
    })
    .collect();
    assert_eq!(
        dirs,
        [
            "a /pod/volumes/kubernetes.io~empty-dir/a",
            "b -",
            "conf /pod/volumes/kubernetes.io~configmap/conf",
            "unresolved -",
            "c -",
            "d /pod/volumes/kubernetes.io~nfs/d",
            "e /pod/volumes/kubernetes.io~csi/e",
            "f -",
        ]
    );
}

#[test]
fn inline_volumes_follow_pod_spec() {
    let check = |spec: Value, expected: &str| {
        let volume = volumes(json!([spec])).remove(0);
        let read_only = if volume.read_only { " read-only" } else { "" };
        assert_eq!(
            format!("{}{read_only}", pvc::source_line(&volume.source)),
            expected
        );
    };
    check(
        json!({"name": "v", "nfs": {"server": "s", "path": "/p", "readOnly": true}}),
        "nfs s:/p read-only",
    );
    check(
        json!({"name": "v", "nfs": {"server": "s", "path": "/p"}}),
        "nfs s:/p",
    );
    check(
        json!({"name": "v", "image": {"reference": "r/i:latest"}}),
        "image r/i:latest Always read-only",
    );
    check(
        json!({"name": "v", "image": {"reference": "r/i:v1", "pullPolicy": ""}}),
        "image r/i:v1 IfNotPresent read-only",
    );
    check(
        json!({"name": "v", "image": {"reference": "r/i", "pullPolicy": "Never"}}),
        "image r/i Never read-only",
    );
    check(
        json!({"name": "v", "csi": {
            "driver": "d", "readOnly": true, "fsType": "xfs", "volumeAttributes": {"a": "b"},
            "nodePublishSecretRef": {"name": "key"},
        }}),
        "csi d inline fs=xfs a=b publish=default/key read-only",
    );
    check(
        json!({"name": "v", "iscsi": {
            "targetPortal": "p", "iqn": "i", "lun": 0,
        }}),
        "unsupported iscsi",
    );
}

#[test]
fn volumes_that_change_or_are_measured_need_resync() {
    for (source, expected) in [
        (json!({"configMap": {"name": "c"}}), true),
        (json!({"persistentVolumeClaim": {"claimName": "c"}}), true),
        (json!({"ephemeral": {}}), true),
        (json!({"csi": {"driver": "d"}}), true),
        (json!({"emptyDir": {}}), true),
        (json!({"hostPath": {"path": "/"}}), false),
    ] {
        let mut volume = source.clone();
        volume["name"] = "v".into();
        let volume: Volume = serde_json::from_value(volume).expect("a volume");
        assert_eq!(needs_resync(&volume), expected, "{source}");
    }
}

#[test]
fn volume_uses_include_all_container_kinds() {
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "initContainers": [{"name": "i", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
        "containers": [{"name": "c", "volumeDevices": [{"name": "b", "devicePath": "/dev/b"}]}],
        "ephemeralContainers": [{"name": "e", "volumeMounts": [{"name": "b", "mountPath": "/b"}]}],
    }}))
    .expect("pod");
    let used = |name| {
        let uses = volume_use(&pod, name);
        (uses.mounts, uses.devices)
    };
    assert_eq!(used("a"), (true, false));
    assert_eq!(used("b"), (true, true));
    assert_eq!(used("c"), (false, false));
}

#[test]
fn persistent_volume_name_is_directory_and_device() {
    let csi = |handle: Option<&str>, block| PodVolume {
        name: "data".into(),
        source: VolumeSource::Csi(Box::new(CsiVolume {
            volume_name: "pv-1".into(),
            driver: "host.example".into(),
            handle: handle.map(str::to_owned),
            fs_type: String::new(),
            attributes: BTreeMap::new(),
            block,
            access_modes: Vec::new(),
            stage_secret: None,
            publish_secret: None,
            expand_secret: None,
            size: None,
            attach_required: true,
        })),
        read_only: false,
        mount_options: Vec::new(),
        pvc: None,
    };
    let check = |volume: PodVolume, dir: &str, device: Option<&str>| {
        assert_eq!(volume.dir(Path::new("/pod")), Some(PathBuf::from(dir)));
        assert_eq!(volume.device().map(|name| name.0).as_deref(), device);
    };
    check(
        csi(Some("h"), false),
        "/pod/volumes/kubernetes.io~csi/pv-1",
        Some("kubernetes.io/csi/host.example^h"),
    );
    check(
        csi(None, false),
        "/pod/volumes/kubernetes.io~csi/pv-1",
        None,
    );
    check(
        csi(Some("h"), true),
        "/pod/volumeDevices/kubernetes.io~csi/pv-1",
        Some("kubernetes.io/csi/host.example^h"),
    );
}
