//! Staging of volumes with a file system: once on the node, in a directory named after the handle.

use std::path::{Path, PathBuf};

use super::error::MountError;
use super::inputs::{mount_context, with_context};
use super::paths::{CsiDevice, above};
use super::volume_data::{VolumeData, make_dir, remove_empty, remove_volume_data};
use super::{CheckedVolume, CsiVolumes, IoQueueKind, VolumeHost, device_queue};
use crate::port::NodeCapability;

impl CsiVolumes {
    pub(super) async fn stage_mount(&self, checked: &CheckedVolume<'_>) -> Result<(), MountError> {
        if self.is_staged(&checked.device).await? {
            return Ok(());
        }
        let no_client = "attacher.MountDevice failed to create newCsiDriverClient";
        let unknown_capability =
            "attacher.MountDevice failed to check for STAGE_UNSTAGE_VOLUME capability";
        let driver = self
            .driver(&checked.device, no_client, unknown_capability)
            .await?;
        if !driver.can(NodeCapability::Stage) {
            return Ok(());
        }
        let step = "attacher.MountDevice failed to get CSIDriver";
        let spec = self.spec(checked, step).await?;
        let spec = spec.as_ref();
        let mut request = self.request(checked);
        let step = "attacher.MountDevice failed to get attachment";
        request.publish_context = self.publish_context(checked, spec, step).await?;
        let secret = checked.csi.stage_secret.as_ref();
        request.secrets = self.secrets("NodeStageSecretRef", secret).await?;
        let label = mount_context(checked, spec);
        request.mount_flags = with_context(request.mount_flags, label.as_deref());
        if driver.can(NodeCapability::MountGroup) {
            request.mount_group = checked.fs_group();
        }
        let target = self.deps.paths.global_mount(&checked.device);
        request.staging_path = Some(target.clone());

        let data = VolumeData::for_device(&checked.device).with_context(label.as_deref());
        let queue = device_queue(&checked.device);
        let (written, dir) = (data.clone(), target.clone());
        self.files(&queue, "staging a volume", move |_| {
            make_dir(&dir)?;
            written.save(above(&dir))
        })
        .await?;
        if let Err(error) = driver.node.stage(request).await.map_err(MountError::Mount) {
            if error.is_final() {
                self.remove_failed_mount(&queue, target).await;
            }
            return Err(error);
        }
        let dir = above(&target).to_owned();
        self.files(&queue, "staging a volume", move |_| {
            data.completed().save(&dir)
        })
        .await?;
        self.done.lock().staged.insert(checked.device.name());
        Ok(())
    }

    /// Whether staging completed, in this agent run or a previous one.
    async fn is_staged(&self, device: &CsiDevice) -> Result<bool, MountError> {
        if self.done.lock().staged.contains(&device.name()) {
            return Ok(true);
        }
        let target = self.deps.paths.global_mount(device);
        let staged = self
            .files(&device_queue(device), "inspecting a staged volume", {
                move |host| Ok(is_completed(host, &target))
            })
            .await?;
        if staged {
            self.done.lock().staged.insert(device.name());
        }
        Ok(staged)
    }

    pub(super) async fn unstage_mount(&self, device: &CsiDevice) -> Result<(), MountError> {
        const STEP: &str = "attacher.UnmountDevice failed";
        windlass_pod_inputs::paths::check_component("CSI driver name", &device.driver)?;
        let target = self.deps.paths.global_mount(device);
        let queue = device_queue(device);
        let (dir, name) = (target.clone(), device.name());
        let exists = self
            .files(&queue, "unstaging a volume", move |host| {
                let mounted = is_mounted(host, &dir)?;
                // an invalid file counts too: the device name has the same data
                let has_data = !matches!(VolumeData::load(above(&dir)), Ok(None));
                if !mounted && !has_data {
                    // a previous attempt was interrupted after its last call
                    remove_mount_dir(host, &dir, STEP)?;
                }
                // a pod with a lost volume data file still uses the device
                let pods = host.mounts_in_pods(&dir);
                let pods = pods.map_err(MountError::io("look for mounts of", &dir))?;
                if let Some(path) = pods.into_iter().next() {
                    return Err(MountError::InUse { device: name, path });
                }
                Ok(mounted || has_data)
            })
            .await?;
        if !exists {
            return Ok(());
        }
        let no_client = "attacher.UnmountDevice failed to create newCsiDriverClient";
        let unknown_capability =
            "attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set";
        let driver = self.driver(device, no_client, unknown_capability).await?;
        if driver.can(NodeCapability::Stage) {
            let unstaged = driver.node.unstage(&device.handle, &target).await;
            unstaged.map_err(MountError::driver(STEP))?;
        }
        self.files(&queue, "unstaging a volume", move |host| {
            remove_mount_dir(host, &target, STEP)
        })
        .await
    }

    /// Removes directory and volume data file of a failed mount, so that tear-down does not call the
    /// driver. A failed removal is retried by tear-down.
    pub(super) async fn remove_failed_mount(&self, queue: &IoQueueKind, target: PathBuf) {
        let removed = self
            .files(queue, "removing a mount directory", move |host| {
                remove_mount_dir(host, &target, "removing a mount directory")
            })
            .await;
        if let Err(error) = removed {
            tracing::warn!(%error, "removing the mount directory after a failed mount failed");
        }
    }
}

/// Whether the call completed and its mount works. False for invalid volume data and for a mount
/// whose server is gone: the call is then repeated.
pub(super) fn is_completed(host: &dyn VolumeHost, target: &Path) -> bool {
    let has_data = matches!(VolumeData::load(above(target)), Ok(Some(data)) if data.is_completed());
    has_data && matches!(host.is_mounted(target), Ok(true)) && std::fs::metadata(target).is_ok()
}

/// Removes the mount directory, then the volume data file, then their parent: the file exists as
/// long as the volume may.
pub(super) fn remove_mount_dir(
    host: &dyn VolumeHost,
    target: &Path,
    step: &'static str,
) -> Result<(), MountError> {
    check_unmounted(host, target, step)?;
    remove_empty(target)?;
    remove_volume_data(above(target))?;
    remove_empty(above(target))
}

/// Checks that the driver has unmounted the volume.
pub(super) fn check_unmounted(
    host: &dyn VolumeHost,
    target: &Path,
    step: &'static str,
) -> Result<(), MountError> {
    let path = target.to_owned();
    match is_mounted(host, target)? {
        true => Err(MountError::StillMounted { step, path }),
        false => Ok(()),
    }
}

pub(super) fn is_mounted(host: &dyn VolumeHost, target: &Path) -> Result<bool, MountError> {
    let mounted = host.is_mounted(target);
    mounted.map_err(MountError::io("look for a mount at", target))
}
