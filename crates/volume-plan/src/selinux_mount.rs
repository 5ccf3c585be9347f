//! The SELinux label that a volume is mounted with, instead of relabelling each of its files.
//!
//! A mount has one label, so it is taken from the containers that use the volume, and only where they
//! agree. It applies to PersistentVolumes for one pod (`ReadWriteOncePod`), and to all of them with
//! the feature gate `SELinuxMount` (KEP-1710). Whether its driver can is the driver's to say.

use std::collections::BTreeSet;

use windlass_types::corev1::{Container, SELinuxOptions};
use windlass_types::{Pod, PodExt};

use crate::volume_source::{PodVolume, VolumeSource};

/// What a node with SELinux says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxMounts {
    /// Label of the files of containers, such as `system_u:object_r:container_file_t:s0`.
    pub file_label: String,
    /// Feature gate `SELinuxMount`: volumes of any access mode.
    pub every_access_mode: bool,
}

/// Containers of one pod disagree about a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("multiple SELinux labels found: {}", .0.join(","))]
pub struct ConflictingLabels(pub Vec<String>);

/// The label for the mount; `None` leaves labels to the runtime.
///
/// # Errors
/// The containers that use the volume have different labels.
pub fn mount_label(
    pod: &Pod,
    volume: &PodVolume,
    node: &SelinuxMounts,
) -> Result<Option<String>, ConflictingLabels> {
    if !applies(volume, node) || relabels(pod) {
        return Ok(None);
    }
    let containers = pod.init_containers().iter().chain(pod.containers());
    let users = containers.filter(|container| mounts(container, &volume.name));
    let labels: BTreeSet<Option<String>> = users
        .filter_map(|container| options(pod, container))
        .map(|options| file_label(options, &node.file_label))
        .collect();
    if labels.len() > 1 {
        let labels = labels.into_iter().map(Option::unwrap_or_default);
        return Err(ConflictingLabels(labels.collect()));
    }
    Ok(labels.into_iter().next().flatten())
}

/// The label of files in `/etc/selinux/<type>/contexts/lxc_contexts`, where runtimes have it from.
pub fn file_label_of(lxc_contexts: &str) -> Option<String> {
    let lines = lxc_contexts.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(key, _)| key.trim() == "file");
    let (_, value) = values.next()?;
    let label = value.trim().trim_matches('"');
    (!label.is_empty()).then(|| label.to_owned())
}

fn applies(volume: &PodVolume, node: &SelinuxMounts) -> bool {
    match &volume.source {
        // an inline volume has no PersistentVolume
        VolumeSource::Csi(csi) if csi.handle.is_some() && !csi.block => {
            node.every_access_mode || csi.access_modes == ["ReadWriteOncePod"]
        }
        _ => false,
    }
}

/// `seLinuxChangePolicy: Recursive`: the pod wants its files relabelled.
fn relabels(pod: &Pod) -> bool {
    let context = PodExt::spec(pod).security_context.as_ref();
    context.and_then(|c| c.se_linux_change_policy.as_deref()) == Some("Recursive")
}

fn mounts(container: &Container, volume: &str) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| mount.name == volume)
}

/// The container's own, or else the pod's.
fn options<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SELinuxOptions> {
    let own = container.security_context.as_ref();
    let own = own.and_then(|context| context.se_linux_options.as_ref());
    let of_pod = PodExt::spec(pod).security_context.as_ref();
    own.or_else(|| of_pod.and_then(|context| context.se_linux_options.as_ref()))
}

/// The files' label with the user and level of the processes. Without a level the runtime makes one
/// up, which nobody knows before.
fn file_label(options: &SELinuxOptions, base: &str) -> Option<String> {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let level = given(&options.level)?;
    let mut parts = base.splitn(4, ':');
    let user = parts.next()?;
    let (role, kind) = (parts.next()?, parts.next()?);
    let user = given(&options.user).unwrap_or_else(|| user.to_owned());
    Some(format!("{user}:{role}:{kind}:{level}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::volume_source::CsiVolume;

    fn volume(access_modes: &[&str]) -> PodVolume {
        let csi = CsiVolume {
            volume_name: "pv".to_owned(),
            driver: "driver".to_owned(),
            handle: Some("handle".to_owned()),
            fs_type: String::new(),
            attributes: Default::default(),
            block: false,
            access_modes: access_modes.iter().map(|mode| (*mode).to_owned()).collect(),
            stage_secret: None,
            publish_secret: None,
            expand_secret: None,
            size: None,
            attach_required: false,
        };
        PodVolume {
            name: "data".to_owned(),
            source: VolumeSource::Csi(Box::new(csi)),
            read_only: false,
            mount_options: Vec::new(),
            pvc: None,
        }
    }

    /// Options of the pod and of containers that mount the volume.
    fn pod(spec: Value, containers: &[Value]) -> Pod {
        let containers: Vec<Value> = containers
            .iter()
            .map(|options| {
                json!({
                    "name": "c",
                    "securityContext": {"seLinuxOptions": options},
                    "volumeMounts": [{"name": "data", "mountPath": "/d"}],
                })
            })
            .collect();
        let mut whole = json!({"spec": {"containers": containers}});
        whole["spec"]["securityContext"] = spec;
        serde_json::from_value(whole).expect("pod")
    }

    fn line(pod: &Pod, volume: &PodVolume, every_access_mode: bool) -> String {
        let node = SelinuxMounts {
            file_label: "system_u:object_r:container_file_t:s0".to_owned(),
            every_access_mode,
        };
        match mount_label(pod, volume, &node) {
            Ok(label) => label.unwrap_or_else(|| "-".to_owned()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_volume_for_one_pod_is_mounted_with_the_label_of_its_containers() {
        let check = |spec: Value, containers: &[Value], expected: &str| {
            let pod = pod(spec, containers);
            assert_eq!(line(&pod, &volume(&["ReadWriteOncePod"]), false), expected);
        };
        let level = json!({"level": "s0:c1,c2"});
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        check(json!({}), std::slice::from_ref(&level), label);
        check(json!({"seLinuxOptions": level}), &[json!(null)], label);
        check(json!({}), &[level.clone(), json!(null)], label);
        check(
            json!({"seLinuxOptions": level}),
            &[json!({"level": "s0:c3", "user": "staff_u", "type": "spc_t"})],
            "staff_u:object_r:container_file_t:s0:c3",
        );
        check(
            json!({"seLinuxOptions": level, "seLinuxChangePolicy": "Recursive"}),
            &[json!(null)],
            "-",
        );
        check(json!({}), &[json!(null)], "-");
        check(json!({}), &[json!({"type": "spc_t"})], "-");
        check(
            json!({}),
            &[level, json!({"level": "s0:c3"})],
            "multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,system_u:object_r:container_file_t:s0:c3",
        );
    }

    #[test]
    fn other_volumes_keep_the_labels_of_their_files() {
        let pod = pod(
            json!({"seLinuxOptions": {"level": "s0:c1"}}),
            &[json!(null)],
        );
        let label = "system_u:object_r:container_file_t:s0:c1";
        let many = volume(&["ReadWriteOnce", "ReadWriteOncePod"]);
        assert_eq!(line(&pod, &many, false), "-");
        assert_eq!(line(&pod, &many, true), label);
        let mut other = volume(&["ReadWriteOncePod"]);
        if let VolumeSource::Csi(csi) = &mut other.source {
            csi.handle = None;
        }
        assert_eq!(line(&pod, &other, true), "-", "inline");
        other.source = VolumeSource::EmptyDir(Default::default());
        assert_eq!(line(&pod, &other, true), "-");
    }

    #[test]
    fn the_label_of_files_is_read_where_runtimes_read_it() {
        let text = "process = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";
        let label = file_label_of(text);
        assert_eq!(
            label.as_deref(),
            Some("system_u:object_r:container_file_t:s0")
        );
        assert_eq!(file_label_of("file = \"\"\n"), None);
        assert_eq!(file_label_of(""), None);
    }
}
