//! What a driver is told.

use std::collections::BTreeMap;

use windlass_volume_plan::volume_source::PodVolume;

use super::world::{World, inline, persistent, pod, secret};
use crate::port::{
    Attachment, CsiDriverSpec, FsGroupPolicy, NodeAbility, PublishRequest, TokenRequest,
};

fn published(world: &World, volume: &PodVolume) -> PublishRequest {
    world.set_up(&pod("uid-1"), volume).unwrap();
    world.state().last_publish.clone().unwrap()
}

fn texts(data: &BTreeMap<String, Vec<u8>>) -> BTreeMap<&str, &str> {
    let text = |bytes| std::str::from_utf8(bytes).unwrap();
    data.iter().map(|(k, v)| (k.as_str(), text(v))).collect()
}

#[test]
fn a_volume_is_told_as_its_persistent_volume_says() {
    let world = World::new(&[NodeAbility::Stage]);
    let volume = persistent(|csi| {
        csi.stage_secret = secret("stage");
        csi.publish_secret = secret("publish");
        csi.access_modes = vec!["ReadWriteMany".to_owned()];
    });
    world.state().spec = None;
    world.state().attachment = Some(Attachment {
        attached: true,
        metadata: BTreeMap::from([("lun".to_owned(), "3".to_owned())]),
        error: None,
        node_full: false,
    });
    world.stage(&pod("uid-1"), &volume).unwrap();
    let staged = world.state().last_stage.clone().unwrap();
    let published = published(&world, &volume);
    for told in [&staged, &published.volume] {
        assert_eq!(told.publish_context["lun"], "3");
        assert_eq!(told.fs_type, "ext4");
        assert_eq!(told.mount_flags, ["noatime"]);
        assert_eq!(told.access_modes, ["ReadWriteMany"]);
        assert_eq!(told.context["tier"], "fast");
        assert_eq!(told.context.len(), 1);
        assert_eq!(told.mount_group, None);
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
fn a_driver_that_wants_to_know_the_pod_is_told() {
    let world = World::new(&[]);
    let spec = world.state().spec.clone().unwrap();
    world.state().spec = Some(CsiDriverSpec {
        pod_info_on_mount: true,
        ..spec
    });
    let told = |volume: &PodVolume| {
        let context = published(&world, volume).volume.context;
        let mut told = Vec::from_iter(context);
        told.retain(|(key, _)| key.starts_with("csi."));
        let line = told.iter().map(|(key, value)| format!("{key}={value}"));
        line.collect::<Vec<_>>()
            .join(" ")
            .replace("csi.storage.k8s.io/", "")
    };
    let pod = "pod.name=web pod.namespace=shop pod.uid=uid-1 serviceAccount.name=robot";
    assert_eq!(told(&inline()), format!("ephemeral=true {pod}"));
    assert_eq!(told(&persistent(|_| {})), format!("ephemeral=false {pod}"));
}

#[test]
fn tokens_are_in_the_context_or_among_the_secrets() {
    let request = |audience: &str| TokenRequest {
        audience: audience.to_owned(),
        expiration_seconds: None,
    };
    let tokens = r#"{"":{"expirationTimestamp":"2026-11-22T00:00:00Z","token":"web for \"\""},"vault":{"expirationTimestamp":"2026-11-22T00:00:00Z","token":"web for \"vault\""}}"#;
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    for in_secrets in [false, true] {
        let world = World::new(&[]);
        world.state().spec = Some(CsiDriverSpec {
            ephemeral: true,
            token_requests: vec![request("vault"), request("")],
            tokens_in_secrets: in_secrets,
            ..CsiDriverSpec::default()
        });
        let told = published(&world, &inline()).volume;
        let secrets = texts(&told.secrets);
        let context = told.context.get(key).map(String::as_str);
        assert_eq!(context, (!in_secrets).then_some(tokens));
        assert_eq!(secrets.get(key).copied(), in_secrets.then_some(tokens));
        assert!(!format!("{told:?}").contains("web for"));
    }
}

#[test]
fn the_group_is_set_by_the_driver_or_by_the_node_or_by_nobody() {
    let check = |policy: FsGroupPolicy, abilities: &[NodeAbility], volume: &PodVolume, by: &str| {
        let world = World::new(abilities);
        let spec = world.state().spec.clone().unwrap();
        world.state().spec = Some(CsiDriverSpec {
            fs_group_policy: policy,
            ..spec
        });
        let told = published(&world, volume).volume.mount_group;
        let walked = world.journal().contains("group 2000 data");
        let line = match (told, walked) {
            (Some(2000), false) => "driver",
            (None, true) => "node",
            (None, false) => "nobody",
            other => panic!("{other:?}"),
        };
        assert_eq!(line, by, "{policy:?} {abilities:?} {volume:?}");
    };
    use FsGroupPolicy::{File, None as Nobody, ReadWriteOnceWithFsType as Once};
    let ordinary = persistent(|_| {});
    let plain = persistent(|csi| csi.fs_type.clear());
    let many = persistent(|csi| csi.access_modes = vec!["ReadWriteMany".to_owned()]);
    let one_pod = persistent(|csi| csi.access_modes = vec!["ReadWriteOncePod".to_owned()]);
    let mut read_only = persistent(|_| {});
    read_only.read_only = true;
    check(Once, &[], &ordinary, "node");
    check(Once, &[], &one_pod, "node");
    check(Once, &[], &plain, "nobody");
    check(Once, &[], &many, "nobody");
    check(Once, &[], &inline(), "node");
    check(File, &[], &plain, "node");
    check(File, &[], &many, "node");
    check(File, &[], &read_only, "nobody");
    check(Nobody, &[], &ordinary, "nobody");
    check(Once, &[NodeAbility::MountGroup], &ordinary, "driver");
    check(Nobody, &[NodeAbility::MountGroup], &ordinary, "driver");
}

#[test]
fn a_read_only_volume_is_published_and_shown_read_only() {
    let world = World::new(&[]);
    let mut volume = persistent(|_| {});
    volume.read_only = true;
    assert!(published(&world, &volume).read_only);
    let shown = world.set_up(&pod("uid-1"), &volume).unwrap();
    assert!(shown.read_only && !shown.relabel);
}

#[test]
fn a_label_is_a_mount_option_for_a_driver_that_can_and_a_relabel_for_others() {
    for can in [false, true] {
        let world = World::new(&[]);
        let spec = world.state().spec.clone().unwrap();
        world.state().spec = Some(CsiDriverSpec {
            se_linux_mount: can,
            ..spec
        });
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let volume = persistent(|_| {});
        let shown = world
            .set_up_labelled(&pod("uid-1"), &volume, label)
            .unwrap();
        let told = world
            .state()
            .last_publish
            .clone()
            .unwrap()
            .volume
            .mount_flags;
        let option = format!("context=\"{label}\"");
        assert_eq!((told.contains(&option), shown.relabel), (can, !can));
        let notes = world
            .dir
            .path()
            .join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
        let notes = std::fs::read_to_string(notes.join("vol_data.json")).unwrap();
        assert_eq!(notes.contains("seLinuxMountContext"), can);
    }
}
