//! What a container sees of the node: its volumes, `/etc/hosts`, its termination log.

use std::net::IpAddr;
use std::path::Path;

use windlass_types::corev1::{Container, VolumeMount};
use windlass_types::cri::{Mount, MountPropagation};
use windlass_types::Pod;

use super::{ContainerInput, termination_message_path};
use crate::config_error::ConfigError;
use crate::hosts::provides_hosts_file;

const ETC_HOSTS: &str = "/etc/hosts";

/// All mounts, in the order of the pod spec.
pub(super) fn mounts(input: ContainerInput<'_>) -> Result<Vec<Mount>, ConfigError> {
    let container = input.container;
    let unsupported = |field| ConfigError::Unsupported {
        field,
        container: container.name.clone(),
    };
    if container
        .volume_devices
        .as_ref()
        .is_some_and(|d| !d.is_empty())
    {
        return Err(unsupported("volumeDevices"));
    }
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        // mounting the whole volume instead would show the container what it must not see
        if is_set(&mount.sub_path) || is_set(&mount.sub_path_expr) {
            return Err(unsupported("volumeMounts.subPath"));
        }
        if mount.recursive_read_only.as_deref() == Some("Enabled") {
            return Err(unsupported("volumeMounts.recursiveReadOnly"));
        }
        mounts.push(volume_mount(input, mount)?);
    }
    let relabel = input.node.selinux_enabled;
    if let Some(file) = input.hosts_file
        && gets_hosts_file(input.pod, container, input.pod_ips)
    {
        mounts.push(Mount {
            container_path: ETC_HOSTS.to_owned(),
            host_path: text(file),
            selinux_relabel: relabel,
            ..Mount::default()
        });
    }
    if let Some(file) = input.termination_log {
        mounts.push(Mount {
            container_path: termination_message_path(container).to_owned(),
            host_path: text(file),
            selinux_relabel: relabel,
            ..Mount::default()
        });
    }
    Ok(mounts)
}

/// True for a container that sees the pod's `etc-hosts` file: the pod has one, and the container
/// mounts nothing of its own there.
pub fn gets_hosts_file(pod: &Pod, container: &Container, pod_ips: &[IpAddr]) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    provides_hosts_file(pod, pod_ips) && mounts.all(|mount| mount.mount_path != ETC_HOSTS)
}

fn volume_mount(input: ContainerInput<'_>, mount: &VolumeMount) -> Result<Mount, ConfigError> {
    let missing = || ConfigError::MissingVolume {
        volume: mount.name.clone(),
        container: input.container.name.clone(),
    };
    let volume = input.volumes.get(&mount.name).ok_or_else(missing)?;
    let host_path = volume.path().ok_or_else(missing)?;
    let container_path = if mount.mount_path.starts_with('/') {
        mount.mount_path.clone()
    } else {
        format!("/{}", mount.mount_path)
    };
    Ok(Mount {
        container_path,
        host_path: text(host_path),
        readonly: mount.read_only.unwrap_or(false) || volume.read_only,
        selinux_relabel: input.node.selinux_enabled && volume.relabel,
        propagation: propagation(mount)?,
    })
}

fn propagation(mount: &VolumeMount) -> Result<MountPropagation, ConfigError> {
    match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => Ok(MountPropagation::Private),
        Some("HostToContainer") => Ok(MountPropagation::HostToContainer),
        Some("Bidirectional") => Ok(MountPropagation::Bidirectional),
        Some(other) => Err(ConfigError::Invalid {
            field: format!("volumeMounts[{}].mountPropagation", mount.name),
            value: other.to_owned(),
            hint: ": use None, HostToContainer or Bidirectional",
        }),
    }
}

fn is_set(field: &Option<String>) -> bool {
    field.as_deref().is_some_and(|t| !t.is_empty())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
