//! Mounts of a container: volumes, `/etc/hosts` and the termination log.

use std::net::IpAddr;
use std::path::Path;

use windlass_types::corev1::{Container, VolumeMount};
use windlass_types::cri::{Mount, MountPropagation, MountedImage};
use windlass_types::{MountedContent, Pod};

use super::sub_paths::{sub_path_of, target};
use super::{ContainerInput, termination_message_path};
use crate::config_error::ConfigError;
use crate::hosts::provides_hosts_file;

const ETC_HOSTS: &str = "/etc/hosts";

/// Returns all mounts in spec order. `envs` is the final environment of the container.
pub(super) fn mounts(
    input: ContainerInput<'_>,
    envs: &[(String, String)],
) -> Result<Vec<Mount>, ConfigError> {
    let container = input.container;
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        mounts.push(volume_mount(input, mount, index, envs)?);
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

/// Returns true if the container gets the `etc-hosts` file of the pod: there is one, and the
/// container has no mount of its own there.
pub fn gets_hosts_file(pod: &Pod, container: &Container, pod_ips: &[IpAddr]) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    provides_hosts_file(pod, pod_ips) && mounts.all(|mount| mount.mount_path != ETC_HOSTS)
}

/// Returns true if a mount depends on a feature of the runtime handler.
pub fn wants_recursive_read_only(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| {
        !matches!(
            mount.recursive_read_only.as_deref(),
            None | Some("Disabled")
        )
    })
}

fn volume_mount(
    input: ContainerInput<'_>,
    mount: &VolumeMount,
    index: usize,
    envs: &[(String, String)],
) -> Result<Mount, ConfigError> {
    let missing = || ConfigError::MissingVolume {
        volume: mount.name.clone(),
        container: input.container.name.clone(),
    };
    let volume = input.volumes.get(&mount.name).ok_or_else(missing)?;
    let sub_path = sub_path_of(mount, envs)?;
    let (host_path, image) = match &volume.content {
        // the subpath is bound there already
        MountedContent::Path(path) if sub_path.is_some() => {
            (text(&target(input, mount, path, index)), None)
        }
        MountedContent::Path(path) => (text(path), None),
        MountedContent::Image { .. } => {
            let image = input.images.get(&mount.name).ok_or_else(missing)?;
            let image = MountedImage {
                sub_path: sub_path.unwrap_or_default(),
                ..image.clone()
            };
            (String::new(), Some(image))
        }
        // a device has no file system
        MountedContent::Device(_) => return Err(missing()),
    };
    let propagation = propagation(mount)?;
    if propagation != MountPropagation::Private
        && !input.node.root_shared
        && Path::new(&host_path).starts_with(&input.node.paths.root_dir)
    {
        return Err(ConfigError::RootNotShared {
            volume: mount.name.clone(),
            root_dir: text(&input.node.paths.root_dir),
        });
    }
    let recursive_read_only = recursive_read_only(mount, input.recursive_read_only)
        .map_err(ConfigError::RecursiveReadOnly)?;
    let container_path = if mount.mount_path.starts_with('/') {
        mount.mount_path.clone()
    } else {
        format!("/{}", mount.mount_path)
    };
    Ok(Mount {
        container_path,
        host_path,
        readonly: mount.read_only.unwrap_or(false) || volume.read_only,
        recursive_read_only,
        selinux_relabel: input.node.selinux_enabled && volume.relabel,
        propagation,
        image,
    })
}

/// Returns whether a mount is read-only recursively, or the error of upstream.
fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    let name = &mount.name;
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    if mount.read_only != Some(true) {
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not read-only"
        ));
    }
    if let Some(other) = mount.mount_propagation.as_deref().filter(|p| *p != "None") {
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with \
             propagation {other:?}"
        ));
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not supported by the \
             runtime"
        )),
        other => Err(format!("unknown recursive read-only mode {other:?}")),
    }
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

fn text(path: &Path) -> String {
    path.display().to_string()
}
