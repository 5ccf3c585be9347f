//! All volumes of one pod under its directory.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use windlass_core::quantity::Quantity;
use windlass_core::resources::pod_limit;
use windlass_types::corev1::{ResourceRequirements, Volume};
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
        memory_size(pod, size_limit),
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
