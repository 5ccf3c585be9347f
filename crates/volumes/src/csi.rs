//! CSI volumes: the host port of [`CsiVolumes`], and unmounting of nested mounts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rustix::mount::{UnmountFlags, unmount};
use windlass_csi::{
    CsiDrivers, CsiObjects, CsiPaths, CsiVolumes, CsiVolumesDeps, FileWork, IoQueueKind, UsageUnit,
    VolumeHost, VolumeUsage,
};
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::{DiscoveredVolume, PodUid, SharedPod};
use windlass_volume_plan::volume_source::CSI_PLUGIN;
use windlass_volume_plan::volume_usage::{StatsSource, VolumeStats};

use crate::block::release_node;
use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueueError, pod_volumes_queue};
use crate::machine::Machine;
use crate::mount_info::{mount_at, mounts_beneath, mounts_like};
use crate::pod_volumes::pod_group;
use crate::remove::remove_tree;
use crate::usage::Measured;
use crate::walks::OwnershipChange;

/// Directory of CSI volumes below a pod.
pub(crate) const CSI_DIR: &str = "kubernetes.io~csi";

/// Dependencies of CSI volumes.
#[derive(Clone, Debug)]
pub struct CsiConfig {
    /// Name of this node.
    pub node_name: String,
    /// Registered drivers.
    pub drivers: CsiDrivers,
    /// API server objects.
    pub objects: Arc<dyn CsiObjects>,
}

/// CSI volumes on this host.
pub(crate) fn csi_volumes(machine: &Arc<Machine>, config: CsiConfig) -> CsiVolumes {
    CsiVolumes::new(CsiVolumesDeps {
        paths: CsiPaths::new(machine.paths.clone()),
        node_name: config.node_name,
        drivers: config.drivers,
        objects: config.objects,
        host: Arc::new(CsiHost(Arc::clone(machine))),
    })
}

/// Whether it is a CSI volume.
pub(crate) fn is_csi(volume: &DiscoveredVolume) -> bool {
    volume.plugin_dir == CSI_DIR
}

/// The error without an API server, whose objects CSI volumes need.
pub(crate) fn without_csi() -> VolumeError {
    VolumeError::failed(format!(
        "{CSI_PLUGIN}: the agent is not connected to an API server"
    ))
}

/// Unmounts mounts of containers in a volume; the driver unmounts the volume itself.
pub(crate) async fn release_nested(
    machine: &Machine,
    queue: &IoQueue,
    uid: &PodUid,
    volume: &str,
) -> Result<(), VolumeError> {
    let target = CsiPaths::new(machine.paths.clone()).target(uid, volume);
    let work = move || unmount_below(&target);
    machine.step(queue, "tearing down a volume", work).await
}

fn unmount_below(target: &Path) -> Result<(), VolumeError> {
    let failed = |action, error: io::Error| VolumeError::io(action, target, error);
    let mut mounts = mounts_beneath(target).map_err(|e| failed("list the mounts below", e))?;
    let own = mount_at(target).map_err(|e| failed("look for a mount at", e))?;
    mounts.retain(|mount| own.as_ref().is_none_or(|own| mount.path != own.path));
    for mount in mounts.iter().rev() {
        unmount(&mount.path, UnmountFlags::NOFOLLOW)
            .map_err(|error| VolumeError::io("unmount", &mount.path, error))?;
    }
    Ok(())
}

/// Usage that a driver reported; `None` without bytes.
pub(crate) fn measured(driver: &str, usage: &VolumeUsage) -> Option<Measured> {
    let of = |unit| usage.entries.iter().find(|entry| entry.unit == unit);
    let bytes = of(UsageUnit::Bytes)?;
    let inodes = of(UsageUnit::Inodes);
    let stats = VolumeStats {
        capacity: bytes.total,
        available: bytes.available,
        used: bytes.used,
        inodes: inodes.map_or(0, |inodes| inodes.total),
        inodes_free: inodes.map_or(0, |inodes| inodes.available),
        inodes_used: inodes.map_or(0, |inodes| inodes.used),
    };
    Some((stats, StatsSource::Driver(driver.to_owned())))
}

/// Sets the device of a discovered volume from its volume data file. Blocks.
pub(crate) fn set_device(paths: &NodePaths, uid: &PodUid, volume: &mut DiscoveredVolume) {
    let paths = CsiPaths::new(paths.clone());
    volume.device = paths.shared_device(uid, &volume.name, volume.block);
}

fn io_queue(queue: &IoQueueKind) -> IoQueue {
    match queue {
        IoQueueKind::Pod(uid) => IoQueue::Disk(pod_volumes_queue(uid)),
        IoQueueKind::Device(device) => IoQueue::Device(device.0.clone()),
    }
}

/// The host port of CSI volumes.
#[derive(Debug)]
struct CsiHost(Arc<Machine>);

#[async_trait]
impl VolumeHost for CsiHost {
    async fn run(
        &self,
        queue: &IoQueueKind,
        action: &'static str,
        work: FileWork,
    ) -> Result<(), String> {
        let work = move || {
            work();
            Ok::<(), IoQueueError>(())
        };
        let ended = self.0.queues.run_in(&io_queue(queue), action, work).await;
        ended.map_err(|error| error.to_string())
    }

    fn is_mounted(&self, path: &Path) -> io::Result<bool> {
        Ok(mount_at(path)?.is_some())
    }

    fn mounts_in_pods(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let pods = self.0.paths.pods_dir();
        let pods = pods.canonicalize().unwrap_or(pods);
        let mut others = mounts_like(path)?;
        others.retain(|mount| mount.path.starts_with(&pods));
        Ok(others.into_iter().map(|mount| mount.path).collect())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        remove_tree(path).map_err(io::Error::other)
    }

    async fn release_device(&self, queue: &IoQueueKind, node: &Path) -> Result<(), String> {
        let released = release_node(&self.0, &io_queue(queue), node.to_owned()).await;
        released.map_err(|error| error.to_string())
    }

    async fn set_ownership(
        &self,
        queue: &IoQueueKind,
        pod: &SharedPod,
        volume: &str,
        dir: &Path,
        fs_group: u32,
    ) -> Result<(), String> {
        let Some(group) = pod_group(pod, false) else {
            return Err(format!("volume {volume}: the pod has no group {fs_group}"));
        };
        let wanted = OwnershipChange {
            pod,
            queue: io_queue(queue),
            dir,
            pod_path: dir,
            group,
        };
        let changed = self.0.change_ownership(wanted).await;
        changed.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests;
