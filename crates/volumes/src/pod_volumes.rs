//! All volumes of one pod under its directory.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use windlass_core::projection::{VolumePayload, VolumePayloads};
use windlass_core::quantity::Quantity;
use windlass_core::resources::pod_limit;
use windlass_types::corev1::{ResourceRequirements, Volume};
use windlass_types::{Pod, PodExt, Timestamp};

use crate::atomic_writer::{WriteOptions, write_payload};
use crate::empty_dir::{self, Ownership};
use crate::error::VolumeError;
use crate::host_path::check_host_path;
use crate::mount_info::mounts_beneath;
use crate::nested::{make_nested_mount_points, nested_mount_points};

/// Directory of upstream's emptyDir plugin under `volumes/`.
const EMPTY_DIR_PLUGIN: &str = "kubernetes.io~empty-dir";

/// Directories below `volumes/` in which this agent mounts.
const PLUGINS: [&str; 5] = [
    EMPTY_DIR_PLUGIN,
    "kubernetes.io~configmap",
    "kubernetes.io~secret",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
];

/// Where a volume's content is on the node; `None` for a type this agent cannot make.
pub fn volume_path(pod_dir: &Path, volume: &Volume) -> Option<PathBuf> {
    if let Some(source) = &volume.host_path {
        return Some(PathBuf::from(&source.path));
    }
    let plugin = match payload_kind(volume) {
        Some((_, plugin)) => plugin,
        None if volume.empty_dir.is_some() => EMPTY_DIR_PLUGIN,
        None => return None,
    };
    Some(pod_dir.join("volumes").join(plugin).join(&volume.name))
}

/// Sets up every volume of the pod that a container uses or not, as upstream does. Stops at
/// the first that fails. `payloads` are what the volumes show of the API server, `now` dates
/// them.
pub fn set_up_pod_volumes(
    pod_dir: &Path,
    pod: &Pod,
    payloads: &VolumePayloads,
    now: Timestamp,
) -> Result<(), VolumeError> {
    for volume in PodExt::spec(pod).volumes.iter().flatten() {
        set_up_volume(pod_dir, pod, volume, payloads.get(&volume.name), now)?;
    }
    Ok(())
}

/// Brings what running containers see of the API server up to date. A volume that fails keeps
/// what it shows and does not keep the others from theirs.
///
/// # Errors
/// The first failure.
pub fn refresh_pod_volumes(
    pod_dir: &Path,
    pod: &Pod,
    payloads: &VolumePayloads,
    now: Timestamp,
) -> Result<(), VolumeError> {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    let mut result = Ok(());
    for volume in volumes.filter(|volume| payload_kind(volume).is_some()) {
        let payload = payloads.get(&volume.name);
        result = result.and(set_up_volume(pod_dir, pod, volume, payload, now));
    }
    result
}

/// Sets up one volume.
pub fn set_up_volume(
    pod_dir: &Path,
    pod: &Pod,
    volume: &Volume,
    payload: Option<&VolumePayload>,
    now: Timestamp,
) -> Result<(), VolumeError> {
    // validation refuses such names long before; here they would leave the pod's directory
    if volume.name.is_empty() || volume.name.contains('/') || volume.name.starts_with('.') {
        return Err(VolumeError::Invalid {
            volume: volume.name.clone(),
            message: "not a volume name".to_owned(),
        });
    }
    if let Some(source) = &volume.host_path {
        return check_host_path(&volume.name, source);
    }
    let Some(dir) = volume_path(pod_dir, volume) else {
        return Err(VolumeError::Unsupported {
            volume: volume.name.clone(),
            kind: kind_of(volume).to_owned(),
        });
    };
    let Some(source) = &volume.empty_dir else {
        return show_payload(&dir, pod, volume, payload, now);
    };
    let size_limit = match &source.size_limit {
        None => None,
        Some(quantity) => Some(parse_size(&volume.name, &quantity.0)?),
    };
    empty_dir::set_up(
        &volume.name,
        source,
        &dir,
        memory_size(pod, size_limit),
        ownership(pod),
    )
}

/// Unmounts every memory volume of a pod and whatever containers left mounted in its volumes,
/// deepest first. Content goes with it.
pub fn tear_down_pod_volumes(pod_dir: &Path) -> Result<(), VolumeError> {
    for plugin in PLUGINS {
        let volumes = pod_dir.join("volumes").join(plugin);
        let mounts = mounts_beneath(&volumes)
            .map_err(|error| VolumeError::io("list the mounts below", &volumes, error))?;
        for mount in mounts.iter().rev() {
            unmount(&mount.path, UnmountFlags::NOFOLLOW)
                .map_err(|error| VolumeError::io("unmount", &mount.path, error))?;
        }
    }
    Ok(())
}

fn show_payload(
    dir: &Path,
    pod: &Pod,
    volume: &Volume,
    payload: Option<&VolumePayload>,
    now: Timestamp,
) -> Result<(), VolumeError> {
    let Some(payload) = payload else {
        return Err(VolumeError::NoContent {
            volume: volume.name.clone(),
            kind: kind_of(volume),
        });
    };
    let nested = nested_mount_points(pod, &volume.name);
    let ownership = ownership(pod);
    let size = memory_size(pod, None);
    empty_dir::make_directory(dir, payload.in_memory, size, ownership)?;
    make_nested_mount_points(dir, &nested)?;
    let options = WriteOptions {
        fs_group: ownership.fs_group,
        now,
    };
    let written = write_payload(&volume.name, dir, &payload.files, options)?;
    tracing::debug!(volume = %dir.display(), ?written, "content");
    Ok(())
}

fn ownership(pod: &Pod) -> Ownership {
    let context = PodExt::spec(pod).security_context.as_ref();
    let fs_group = context
        .and_then(|context| context.fs_group)
        .and_then(|gid| u32::try_from(gid).ok());
    Ownership { fs_group }
}

/// Field name and plugin directory of a volume that shows a payload.
fn payload_kind(volume: &Volume) -> Option<(&'static str, &'static str)> {
    let kinds = [
        (volume.config_map.is_some(), "configMap", PLUGINS[1]),
        (volume.secret.is_some(), "secret", PLUGINS[2]),
        (volume.downward_api.is_some(), "downwardAPI", PLUGINS[3]),
        (volume.projected.is_some(), "projected", PLUGINS[4]),
    ];
    let found = kinds.into_iter().find(|(on, _, _)| *on)?;
    Some((found.1, found.2))
}

/// Size of a memory volume: its own limit or the pod's memory limit, whichever is less, because
/// what is written counts against that. With neither the kernel's default holds, half of the
/// node's memory (upstream: the node's allocatable memory).
fn memory_size(pod: &Pod, size_limit: Option<u64>) -> Option<u64> {
    let limits = |resources: Option<&ResourceRequirements>| {
        let limits = resources.and_then(|r| r.limits.as_ref());
        limits.is_some_and(|l| l.contains_key("memory"))
    };
    let mut all = pod.init_containers().iter().chain(pod.containers());
    let limited = limits(PodExt::spec(pod).resources.as_ref())
        || all.all(|container| limits(container.resources.as_ref()));
    // one container without a limit leaves the pod without one
    let pod_limit = limited.then(|| pod_limit(pod, "memory")).flatten();
    let pod_limit = pod_limit.and_then(|q| u64::try_from(q.value()).ok());
    [size_limit, pod_limit]
        .into_iter()
        .flatten()
        .filter(|size| *size > 0)
        .min()
}

fn parse_size(volume: &str, text: &str) -> Result<u64, VolumeError> {
    text.parse::<Quantity>()
        .ok()
        .and_then(|quantity| u64::try_from(quantity.value()).ok())
        .ok_or_else(|| VolumeError::Invalid {
            volume: volume.to_owned(),
            message: format!("sizeLimit {text:?} is not a size"),
        })
}

/// The field that is set, for the error text.
fn kind_of(volume: &Volume) -> &'static str {
    if let Some((kind, _)) = payload_kind(volume) {
        return kind;
    }
    let kinds = [
        (
            "persistentVolumeClaim",
            volume.persistent_volume_claim.is_some(),
        ),
        ("csi", volume.csi.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("image", volume.image.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("fc", volume.fc.is_some()),
    ];
    kinds
        .into_iter()
        .find_map(|(name, set)| set.then_some(name))
        .unwrap_or("other than emptyDir and hostPath")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use windlass_types::corev1::{Container, PodSpec};

    use super::*;

    fn container(limit: Option<&str>) -> Container {
        let limits = limit.map(|text| [("memory".to_owned(), Quantity(text.into()))].into());
        Container {
            resources: limits.map(|limits| ResourceRequirements {
                limits: Some(limits),
                ..ResourceRequirements::default()
            }),
            ..Container::default()
        }
    }

    #[test]
    fn a_memory_volume_is_no_larger_than_its_limit_and_the_pods() {
        let check = |limits: &[Option<&str>], own: Option<u64>, expected: Option<u64>| {
            let pod = Pod {
                spec: Some(PodSpec {
                    containers: limits.iter().map(|l| container(*l)).collect(),
                    ..PodSpec::default()
                }),
                ..Pod::default()
            };
            assert_eq!(memory_size(&pod, own), expected, "{limits:?} {own:?}");
        };
        check(&[None], None, None);
        check(&[None], Some(7), Some(7));
        check(&[Some("1Ki"), Some("1Ki")], None, Some(2048));
        check(&[Some("1Ki"), Some("1Ki")], Some(4096), Some(2048));
        check(&[Some("1Ki"), Some("1Ki")], Some(7), Some(7));
        check(&[Some("1Ki"), None], Some(4096), Some(4096));
        check(&[Some("1Ki")], Some(0), Some(1024));
    }
}
