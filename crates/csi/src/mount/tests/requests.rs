//! Contents of requests to a driver.

use std::collections::BTreeMap;

use windlass_volume_plan::volume_source::PodVolume;

use super::fixture::{Fixture, inline, persistent, pod, secret};
use crate::port::{
    Attachment, CsiDriverSpec, FsGroupPolicy, NodeCapability, PublishRequest, TokenRequest,
};

fn published(fixture: &Fixture, volume: &PodVolume) -> PublishRequest {
    fixture.set_up(&pod("uid-1"), volume).unwrap();
    fixture.state().last_publish.clone().unwrap()
}

fn texts(data: &BTreeMap<String, Vec<u8>>) -> BTreeMap<&str, &str> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    data.iter().map(|(k, v)| (k.as_str(), text(v))).collect()
}

#[test]
fn requests_have_the_fields_of_the_persistent_volume() {
    let fixture = Fixture::new(&[NodeCapability::Stage]);
    let volume = persistent(|csi| {
        csi.stage_secret = secret("stage");
        csi.publish_secret = secret("publish");
        csi.access_modes = vec!["ReadWriteMany".to_owned()];
    });
    fixture.state().spec = None;
    fixture.state().attachment = Some(Attachment {
        attached: true,
        metadata: BTreeMap::from([("lun".to_owned(), "3".to_owned())]),
        error: None,
        node_full: false,
    });
    fixture.stage(&pod("uid-1"), &volume).unwrap();
    let staged = fixture.state().last_stage.clone().unwrap();
    let published = published(&fixture, &volume);
    for request in [&staged, &published.volume] {
        assert_eq!(request.publish_context["lun"], "3");
        assert_eq!(request.fs_type, "ext4");
        assert_eq!(request.mount_flags, ["noatime"]);
        assert_eq!(request.access_modes, ["ReadWriteMany"]);
        assert_eq!(request.context["tier"], "fast");
        assert_eq!(request.context.len(), 1);
        assert_eq!(request.mount_group, None);
    }
    assert_eq!(texts(&staged.secrets), BTreeMap::from([("from", "stage")]));
    assert_eq!(
        texts(&published.volume.secrets),
        BTreeMap::from([("from", "publish")])
    );
    assert_eq!(published.volume.staging_path, staged.staging_path);
    assert!(!published.read_only);
}

#[test]
fn pod_info_on_mount_adds_pod_fields() {
    let fixture = Fixture::new(&[]);
    let spec = fixture.state().spec.clone().unwrap();
    fixture.state().spec = Some(CsiDriverSpec {
        pod_info_on_mount: true,
        ..spec
    });
    let request = |volume: &PodVolume| {
        let context = published(&fixture, volume).volume.context;
        let mut request = Vec::from_iter(context);
        request.retain(|(key, _)| key.starts_with("csi."));
        let line = request.iter().map(|(key, value)| format!("{key}={value}"));
        line.collect::<Vec<_>>()
            .join(" ")
            .replace("csi.storage.k8s.io/", "")
    };
    let pod = "pod.name=web pod.namespace=shop pod.uid=uid-1 serviceAccount.name=robot";
    assert_eq!(request(&inline()), format!("ephemeral=true {pod}"));
    assert_eq!(
        request(&persistent(|_| {})),
        format!("ephemeral=false {pod}")
    );
}

#[test]
fn tokens_are_in_context_or_secrets() {
    let request = |audience: &str| TokenRequest {
        audience: audience.to_owned(),
        expiration_seconds: None,
    };
    let tokens = r#"{"":{"expirationTimestamp":"2026-11-22T00:00:00Z","token":"web for \"\""},"vault":{"expirationTimestamp":"2026-11-22T00:00:00Z","token":"web for \"vault\""}}"#;
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    for in_secrets in [false, true] {
        let fixture = Fixture::new(&[]);
        fixture.state().spec = Some(CsiDriverSpec {
            ephemeral: true,
            token_requests: vec![request("vault"), request("")],
            tokens_in_secrets: in_secrets,
            ..CsiDriverSpec::default()
        });
        let request = published(&fixture, &inline()).volume;
        let secrets = texts(&request.secrets);
        let context = request.context.get(key).map(String::as_str);
        assert_eq!(context, (!in_secrets).then_some(tokens));
        assert_eq!(secrets.get(key).copied(), in_secrets.then_some(tokens));
        assert!(!format!("{request:?}").contains("web for"));
    }
}

#[test]
fn fs_group_is_applied_by_driver_node_or_not_at_all() {
    let check =
        |policy: FsGroupPolicy, capabilities: &[NodeCapability], volume: &PodVolume, by: &str| {
            let fixture = Fixture::new(capabilities);
            let spec = fixture.state().spec.clone().unwrap();
            fixture.state().spec = Some(CsiDriverSpec {
                fs_group_policy: policy,
                ..spec
            });
            let request = published(&fixture, volume).volume.mount_group;
            let by_node = fixture.journal().contains("group 2000 data");
            let line = match (request, by_node) {
                (Some(2000), false) => "driver",
                (None, true) => "node",
                (None, false) => "none",
                other => panic!("{other:?}"),
            };
            assert_eq!(line, by, "{policy:?} {capabilities:?} {volume:?}");
        };
    use FsGroupPolicy::{File, None as NoPolicy, ReadWriteOnceWithFsType as Once};
    let ordinary = persistent(|_| {});
    let plain = persistent(|csi| csi.fs_type.clear());
    let many = persistent(|csi| csi.access_modes = vec!["ReadWriteMany".to_owned()]);
    let one_pod = persistent(|csi| csi.access_modes = vec!["ReadWriteOncePod".to_owned()]);
    let mut read_only = persistent(|_| {});
    read_only.read_only = true;
    check(Once, &[], &ordinary, "node");
    check(Once, &[], &one_pod, "node");
    check(Once, &[], &plain, "none");
    check(Once, &[], &many, "none");
    check(Once, &[], &inline(), "node");
    check(File, &[], &plain, "node");
    check(File, &[], &many, "node");
    check(File, &[], &read_only, "none");
    check(NoPolicy, &[], &ordinary, "none");
    check(Once, &[NodeCapability::MountGroup], &ordinary, "driver");
    check(NoPolicy, &[NodeCapability::MountGroup], &ordinary, "driver");
}

#[test]
fn read_only_volume_is_published_and_mounted_read_only() {
    let fixture = Fixture::new(&[]);
    let mut volume = persistent(|_| {});
    volume.read_only = true;
    assert!(published(&fixture, &volume).read_only);
    let mounted = fixture.set_up(&pod("uid-1"), &volume).unwrap();
    assert!(mounted.read_only && !mounted.relabel);
}

#[test]
fn selinux_label_is_mount_option_or_relabel() {
    for supported in [false, true] {
        let fixture = Fixture::new(&[]);
        let spec = fixture.state().spec.clone().unwrap();
        fixture.state().spec = Some(CsiDriverSpec {
            se_linux_mount: supported,
            ..spec
        });
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let volume = persistent(|_| {});
        let mounted = fixture
            .set_up_labelled(&pod("uid-1"), &volume, label)
            .unwrap();
        let request = fixture
            .state()
            .last_publish
            .clone()
            .unwrap()
            .volume
            .mount_flags;
        let option = format!("context=\"{label}\"");
        assert_eq!(
            (request.contains(&option), mounted.relabel),
            (supported, !supported)
        );
        let data = fixture
            .dir
            .path()
            .join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
        let data = std::fs::read_to_string(data.join("vol_data.json")).unwrap();
        assert_eq!(data.contains("seLinuxMountContext"), supported);
    }
}
