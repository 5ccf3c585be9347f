//! The volumes that the node makes by itself, each under its pod's directory.

use std::path::Path;

use rustix::mount::{UnmountFlags, unmount};
use windlass_core::projection::VolumePayload;
use windlass_core::quantity::Quantity;
use windlass_core::resources::pod_limit;
use windlass_core::volume_source::{PodVolume, VolumeSource};
use windlass_types::corev1::ResourceRequirements;
use windlass_types::{MountedContent, MountedVolume, Pod, PodExt, Timestamp};

use crate::atomic_writer::{WriteOptions, write_payload};
use crate::empty_dir::{self, Ownership};
use crate::error::VolumeError;
use crate::host_path::check_host_path;
use crate::mount_info::mounts_beneath;
use crate::nested::{make_nested_mount_points, nested_mount_points};
use crate::port::FoundVolume;
use crate::remove::remove_tree;

/// Kinds whose content belongs to the pod and goes with it. Of any other nothing may be removed but
/// the empty directory that it was mounted on.
const OWN_CONTENT: [&str; 5] = [
    "kubernetes.io~empty-dir",
    "kubernetes.io~configmap",
    "kubernetes.io~secret",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
];

/// Sets up one volume that needs nothing but files and memory of the node.
///
/// # Errors
/// [`VolumeError::Unsupported`] for any other.
pub fn set_up_volume(
    pod_dir: &Path,
    pod: &Pod,
    volume: &PodVolume,
    now: Timestamp,
) -> Result<MountedVolume, VolumeError> {
    let name = &volume.name;
    // validation refuses such names long before; here they would leave the pod's directory
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(VolumeError::Invalid {
            volume: name.clone(),
            message: "not a volume name".to_owned(),
        });
    }
    let unsupported = || VolumeError::Unsupported {
        volume: name.clone(),
        kind: kind_of(&volume.source),
    };
    let dir = volume.dir(pod_dir);
    let (path, own) = match (&volume.source, dir) {
        (VolumeSource::HostPath(source), _) => {
            check_host_path(name, source)?;
            (source.path.clone().into(), false)
        }
        (VolumeSource::EmptyDir(source), Some(dir)) => {
            let size_limit = match &source.size_limit {
                None => None,
                Some(quantity) => Some(parse_size(name, &quantity.0)?),
            };
            let size = memory_size(pod, size_limit);
            empty_dir::set_up(name, source, &dir, size, ownership(pod))?;
            (dir, true)
        }
        (VolumeSource::Payload(_, payload), Some(dir)) => {
            show_payload(&dir, pod, name, payload, now)?;
            (dir, true)
        }
        (VolumeSource::Image(image), _) => {
            return Ok(MountedVolume {
                content: MountedContent::Image {
                    reference: image.reference.clone(),
                    pull_policy: image.pull_policy.clone(),
                },
                read_only: true,
                relabel: false,
            });
        }
        (VolumeSource::Unresolved(kind), _) => {
            return Err(VolumeError::NoContent {
                volume: name.clone(),
                kind: kind.clone(),
            });
        }
        _ => return Err(unsupported()),
    };
    Ok(MountedVolume {
        content: MountedContent::Path(path),
        // content that others own is read-only whatever a mount says
        read_only: volume.read_only || matches!(volume.source, VolumeSource::Payload(..)),
        relabel: own,
    })
}

/// Unmounts a volume of a pod and whatever containers left mounted in it, deepest first. Content
/// of the pod's own goes with it.
pub fn tear_down_volume(pod_dir: &Path, found: &FoundVolume) -> Result<(), VolumeError> {
    let above = if found.block {
        "volumeDevices"
    } else {
        "volumes"
    };
    let dir = pod_dir
        .join(above)
        .join(&found.plugin_dir)
        .join(&found.name);
    unmount_beneath(&dir)?;
    if OWN_CONTENT.contains(&found.plugin_dir.as_str()) {
        return remove_tree(&dir).map_err(|source| VolumeError::Leftover { source });
    }
    match std::fs::remove_dir(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(VolumeError::io("remove", &dir, error))
        }
        _ => Ok(()),
    }
}

/// Unmounts everything at and below a directory, deepest first.
pub(crate) fn unmount_beneath(dir: &Path) -> Result<(), VolumeError> {
    let mounts = mounts_beneath(dir)
        .map_err(|error| VolumeError::io("list the mounts below", dir, error))?;
    for mount in mounts.iter().rev() {
        unmount(&mount.path, UnmountFlags::NOFOLLOW)
            .map_err(|error| VolumeError::io("unmount", &mount.path, error))?;
    }
    Ok(())
}

fn show_payload(
    dir: &Path,
    pod: &Pod,
    volume: &str,
    payload: &VolumePayload,
    now: Timestamp,
) -> Result<(), VolumeError> {
    let nested = nested_mount_points(pod, volume);
    let ownership = ownership(pod);
    let size = memory_size(pod, None);
    empty_dir::make_directory(dir, payload.in_memory, size, ownership)?;
    make_nested_mount_points(dir, &nested)?;
    let options = WriteOptions {
        fs_group: ownership.fs_group,
        now,
    };
    let written = write_payload(volume, dir, &payload.files, options)?;
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
fn kind_of(source: &VolumeSource) -> String {
    match source {
        VolumeSource::EmptyDir(_) => "emptyDir",
        VolumeSource::HostPath(_) => "hostPath",
        VolumeSource::Payload(kind, _) => kind.field(),
        VolumeSource::Image(_) => "image",
        VolumeSource::Local(_) => "local",
        VolumeSource::Nfs(_) => "nfs",
        VolumeSource::Csi(_) => "csi",
        VolumeSource::Unresolved(kind) | VolumeSource::Unsupported(kind) => kind,
    }
    .to_owned()
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
