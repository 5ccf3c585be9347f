//! Where volumes lie and what they share.

use serde_json::{Value, json};

use super::*;

fn volumes(spec: Value) -> PodVolumes {
    let pod: Pod =
        serde_json::from_value(json!({"spec": {"containers": [], "volumes": spec}})).expect("pod");
    let payloads = [("conf".to_owned(), VolumePayload::default())].into();
    plain_volumes(&pod, &payloads)
}

#[test]
fn each_kind_lies_where_upstream_puts_it() {
    let dirs: Vec<_> = volumes(json!([
        {"name": "a", "emptyDir": {}},
        {"name": "b", "hostPath": {"path": "/x"}},
        {"name": "conf", "configMap": {"name": "m"}},
        {"name": "unresolved", "secret": {"secretName": "s"}},
        {"name": "c", "glusterfs": {"endpoints": "e", "path": "p"}},
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
        ]
    );
}

#[test]
fn volumes_of_a_persistent_volume_lie_under_its_name_and_share_a_device() {
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
        })),
        read_only: false,
        mount_options: Vec::new(),
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
