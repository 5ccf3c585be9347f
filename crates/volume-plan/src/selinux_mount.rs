//! SELinux label for mounting a volume, instead of relabeling its files.
//!
//! The containers that use the volume must have the same label. Applies to `ReadWriteOncePod`
//! PersistentVolumes, and to all of them with the feature gate `SELinuxMount` (KEP-1710). The
//! driver must support it.

use std::collections::BTreeSet;

use windlass_types::corev1::{Container, SELinuxOptions};
use windlass_types::{Pod, PodExt};

use crate::volume_source::{PodVolume, VolumeSource};

/// SELinux settings of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelinuxMounts {
    /// Label of container files, such as `system_u:object_r:container_file_t:s0`.
    pub file_label: String,
    /// Feature gate `SELinuxMount`: applies to all access modes.
    pub every_access_mode: bool,
}

/// The containers that use a volume have different labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("multiple SELinux labels found: {}", .0.join(","))]
pub struct ConflictingLabels(pub Vec<String>);

/// Returns the label for the mount; `None` if the container runtime labels the files.
///
/// # Errors
/// The containers that use the volume have different labels.
pub fn mount_label(
    pod: &Pod,
    volume: &PodVolume,
    node: &SelinuxMounts,
) -> Result<Option<String>, ConflictingLabels> {
    if !applies(volume, node) || is_relabeled_recursively(pod) {
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

/// Returns the file label of `/etc/selinux/<type>/contexts/lxc_contexts`, as container runtimes do.
pub fn read_file_label(lxc_contexts: &str) -> Option<String> {
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

/// Returns true for `seLinuxChangePolicy: Recursive`.
fn is_relabeled_recursively(pod: &Pod) -> bool {
    let context = PodExt::spec(pod).security_context.as_ref();
    context.and_then(|c| c.se_linux_change_policy.as_deref()) == Some("Recursive")
}

fn mounts(container: &Container, volume: &str) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| mount.name == volume)
}

/// Returns the options of the container, or else of the pod.
fn options<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SELinuxOptions> {
    let own = container.security_context.as_ref();
    let own = own.and_then(|context| context.se_linux_options.as_ref());
    let of_pod = PodExt::spec(pod).security_context.as_ref();
    own.or_else(|| of_pod.and_then(|context| context.se_linux_options.as_ref()))
}

/// Returns the file label with the user and level of the processes; `None` without a level, because
/// the container runtime then generates one.
fn file_label(options: &SELinuxOptions, base: &str) -> Option<String> {
    let non_empty = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let level = non_empty(&options.level)?;
    let mut parts = base.splitn(4, ':');
    let user = parts.next()?;
    let (role, kind) = (parts.next()?, parts.next()?);
    let user = non_empty(&options.user).unwrap_or_else(|| user.to_owned());
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
    fn single_pod_volume_is_mounted_with_container_label() {
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
    fn other_volumes_have_no_mount_label() {
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
    fn file_label_is_read_from_lxc_contexts() {
        let text = "process = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";
        let label = read_file_label(text);
        assert_eq!(
            label.as_deref(),
            Some("system_u:object_r:container_file_t:s0")
        );
        assert_eq!(read_file_label("file = \"\"\n"), None);
        assert_eq!(read_file_label(""), None);
    }
}
