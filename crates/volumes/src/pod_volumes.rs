//! Volumes that need only files and memory of the node, each in its pod's directory.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use windlass_pod_inputs::projection::VolumePayload;
use windlass_types::corev1::EmptyDirVolumeSource;
use windlass_types::{MountedContent, MountedVolume, Pod, PodExt, Timestamp};
use windlass_volume_plan::empty_dir::{
    EMPTY_DIR_PLUGIN, EmptyDirMedium, empty_dir_medium, memory_volume_size,
};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};

use crate::atomic_writer::{WriteOptions, ensure_payload, write_payload};
use crate::empty_dir::{EmptyDir, remove_meta_dir};
use crate::error::VolumeError;
use crate::host_path::check_host_path;
use crate::mount_info::mounts_beneath;
use crate::nested::{make_nested_mount_points, nested_mount_points};
use crate::ownership::{GroupPolicy, VolumeGroup};
use crate::port::DiscoveredVolume;
use crate::remove::remove_tree;

/// Plugins whose content belongs to the pod and is removed with it. For others only the empty mount
/// directory is removed.
const OWN_CONTENT: [&str; 5] = [
    EMPTY_DIR_PLUGIN,
    "kubernetes.io~configmap",
    "kubernetes.io~secret",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
];

/// Pod and directory of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeSite<'a> {
    /// Directory of the pod.
    pub pod_dir: &'a Path,
    /// The pod.
    pub pod: &'a Pod,
    /// Timestamp of written content.
    pub now: Timestamp,
    /// Memory that all pods of the node may use, in bytes; 0 if unknown.
    pub allocatable_memory: u64,
}

/// Sets up a volume that needs only files and memory of the node.
///
/// # Errors
/// [`VolumeError::Unsupported`] for other volumes.
pub(crate) fn set_up_volume(
    site: VolumeSite<'_>,
    volume: &PodVolume,
) -> Result<MountedVolume, VolumeError> {
    let name = &volume.name;
    // validation already rejects such names; here they would escape the pod directory
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
    let dir = volume.dir(site.pod_dir);
    let (path, own) = match (&volume.source, dir) {
        (VolumeSource::HostPath(source), _) => {
            check_host_path(name, source)?;
            (source.path.clone().into(), false)
        }
        (VolumeSource::EmptyDir(source), Some(dir)) => {
            make_empty_dir(site, name, source, &dir)?;
            (dir, true)
        }
        (VolumeSource::Payload(_, payload), Some(dir)) => {
            set_up_payload(&dir, site, name, payload)?;
            (dir, true)
        }
        (VolumeSource::PayloadUnavailable(_, why), Some(dir)) => {
            if !ensure_payload(&dir)? {
                return Err(VolumeError::PayloadUnavailable(why.clone()));
            }
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
            return Err(VolumeError::RequiresApiServer {
                volume: name.clone(),
                kind: kind.clone(),
            });
        }
        (VolumeSource::Invalid(message), _) => {
            return Err(VolumeError::Invalid {
                volume: name.clone(),
                message: message.clone(),
            });
        }
        _ => return Err(unsupported()),
    };
    Ok(MountedVolume {
        content: MountedContent::Path(path),
        // payload volumes are always read-only
        read_only: volume.read_only || volume.source.has_payload(),
        relabel: own,
    })
}

/// `fsGroup` and `fsGroupChangePolicy` of a pod.
pub(crate) fn pod_group(pod: &Pod, read_only: bool) -> Option<VolumeGroup> {
    let context = PodExt::spec(pod).security_context.as_ref()?;
    let policy = match context.fs_group_change_policy.as_deref() {
        Some("OnRootMismatch") => GroupPolicy::OnRootMismatch,
        _ => GroupPolicy::Always,
    };
    let gid = context.fs_group.and_then(|gid| u32::try_from(gid).ok())?;
    Some(VolumeGroup {
        gid,
        policy,
        read_only,
    })
}

/// Unmounts a volume of a pod and all mounts in it, deepest first, and removes content that the pod
/// owns.
pub(crate) fn tear_down_volume(
    pod_dir: &Path,
    found: &DiscoveredVolume,
) -> Result<(), VolumeError> {
    let dir = volume_path(pod_dir, found);
    if found.plugin_dir == EMPTY_DIR_PLUGIN {
        remove_meta_dir(&meta_dir(pod_dir, &found.name))?;
    }
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

/// Path of a volume in its pod directory.
pub(crate) fn volume_path(pod_dir: &Path, found: &DiscoveredVolume) -> PathBuf {
    let above = if found.block {
        "volumeDevices"
    } else {
        "volumes"
    };
    let kind = pod_dir.join(above).join(&found.plugin_dir);
    kind.join(&found.name)
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

fn make_empty_dir(
    site: VolumeSite<'_>,
    volume: &str,
    source: &EmptyDirVolumeSource,
    dir: &Path,
) -> Result<(), VolumeError> {
    let medium = empty_dir_medium(site.pod, source, site.allocatable_memory);
    let medium = medium.map_err(|error| VolumeError::Invalid {
        volume: volume.to_owned(),
        message: error.to_string(),
    })?;
    let empty_dir = EmptyDir {
        dir,
        medium,
        fs_group: pod_group(site.pod, false).map(|group| group.gid),
        meta_dir: Some(&meta_dir(site.pod_dir, volume)),
    };
    empty_dir.set_up()
}

fn set_up_payload(
    dir: &Path,
    site: VolumeSite<'_>,
    volume: &str,
    payload: &VolumePayload,
) -> Result<(), VolumeError> {
    let nested = nested_mount_points(site.pod, volume);
    let fs_group = pod_group(site.pod, true).map(|group| group.gid);
    let medium = match payload.in_memory {
        false => EmptyDirMedium::Disk,
        true => EmptyDirMedium::Memory {
            size: memory_volume_size(site.pod, None, site.allocatable_memory),
        },
    };
    let empty_dir = EmptyDir {
        dir,
        medium,
        fs_group,
        meta_dir: None,
    };
    empty_dir.set_up()?;
    make_nested_mount_points(dir, &nested)?;
    let now = site.now;
    let options = WriteOptions { fs_group, now };
    let written = write_payload(volume, dir, &payload.files, options)?;
    tracing::debug!(volume = %dir.display(), ?written, "payload written");
    Ok(())
}

/// `plugins/kubernetes.io~empty-dir/<volume>` below the pod's directory.
fn meta_dir(pod_dir: &Path, volume: &str) -> PathBuf {
    pod_dir.join("plugins").join(EMPTY_DIR_PLUGIN).join(volume)
}

/// The volume type, for the error text.
fn kind_of(source: &VolumeSource) -> String {
    match source {
        VolumeSource::EmptyDir(_) => "emptyDir",
        VolumeSource::HostPath(_) => "hostPath",
        VolumeSource::Payload(kind, _) | VolumeSource::PayloadUnavailable(kind, _) => kind.field(),
        VolumeSource::Image(_) => "image",
        VolumeSource::Local(_) => "local",
        VolumeSource::Nfs(_) => "nfs",
        VolumeSource::Csi(_) => "csi",
        VolumeSource::Unresolved(kind) | VolumeSource::Unsupported(kind) => kind,
        VolumeSource::Invalid(_) => "invalid",
    }
    .to_owned()
}
