//! All volumes of one pod under its directory.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use windlass_core::quantity::Quantity;
use windlass_types::corev1::Volume;
use windlass_types::{Pod, PodExt};

use crate::empty_dir::{self, Ownership};
use crate::error::VolumeError;
use crate::host_path::check_host_path;
use crate::mount_info::mounts_beneath;

/// Directory of upstream's emptyDir plugin under `volumes/`.
const EMPTY_DIR_PLUGIN: &str = "kubernetes.io~empty-dir";

/// Where a volume's content is on the node; `None` for a type this agent cannot make.
pub fn volume_path(pod_dir: &Path, volume: &Volume) -> Option<PathBuf> {
    if let Some(source) = &volume.host_path {
        return Some(PathBuf::from(&source.path));
    }
    volume.empty_dir.as_ref()?;
    Some(
        pod_dir
            .join("volumes")
            .join(EMPTY_DIR_PLUGIN)
            .join(&volume.name),
    )
}

/// Sets up every volume of the pod that a container uses or not, as upstream does. Stops at
/// the first that fails.
pub fn set_up_pod_volumes(pod_dir: &Path, pod: &Pod) -> Result<(), VolumeError> {
    for volume in PodExt::spec(pod).volumes.iter().flatten() {
        set_up_volume(pod_dir, pod, volume)?;
    }
    Ok(())
}

/// Sets up one volume.
pub fn set_up_volume(pod_dir: &Path, pod: &Pod, volume: &Volume) -> Result<(), VolumeError> {
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
    let (Some(source), Some(dir)) = (&volume.empty_dir, volume_path(pod_dir, volume)) else {
        return Err(VolumeError::Unsupported {
            volume: volume.name.clone(),
            kind: kind_of(volume).to_owned(),
        });
    };
    let size_limit = match &source.size_limit {
        None => None,
        Some(quantity) => Some(parse_size(&volume.name, &quantity.0)?),
    };
    let fs_group = PodExt::spec(pod)
        .security_context
        .as_ref()
        .and_then(|context| context.fs_group)
        .and_then(|gid| u32::try_from(gid).ok());
    empty_dir::set_up(
        &volume.name,
        source,
        &dir,
        size_limit,
        Ownership { fs_group },
    )
}

/// Unmounts every memory volume of a pod and whatever containers left mounted in its volumes,
/// deepest first. Content goes with it.
pub fn tear_down_pod_volumes(pod_dir: &Path) -> Result<(), VolumeError> {
    let volumes = pod_dir.join("volumes").join(EMPTY_DIR_PLUGIN);
    let mounts = mounts_beneath(&volumes)
        .map_err(|error| VolumeError::io("list the mounts below", &volumes, error))?;
    for mount in mounts.iter().rev() {
        unmount(&mount.path, UnmountFlags::NOFOLLOW)
            .map_err(|error| VolumeError::io("unmount", &mount.path, error))?;
    }
    Ok(())
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
    let kinds = [
        ("configMap", volume.config_map.is_some()),
        ("secret", volume.secret.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("projected", volume.projected.is_some()),
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
