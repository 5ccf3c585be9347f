//! Staging of volumes with a file system: once on the node, in a directory named after the handle.

use std::path::PathBuf;

use super::error::MountError;
use super::inputs::{mount_context, with_context};
use super::notes::{Notes, make_dir, remove_empty, remove_notes};
use super::paths::{CsiDevice, above};
use super::{Asked, CsiVolumes, FileLane, VolumeHost, device_lane};
use crate::port::NodeAbility;

impl CsiVolumes {
    pub(super) async fn stage_mount(&self, asked: &Asked<'_>) -> Result<(), MountError> {
        if self.is_staged(&asked.device).await? {
            return Ok(());
        }
        let driver = self
            .driver(
                &asked.device,
                "attacher.MountDevice failed to create newCsiDriverClient",
                "attacher.MountDevice failed to check for STAGE_UNSTAGE_VOLUME capability",
            )
            .await?;
        if !driver.can(NodeAbility::Stage) {
            return Ok(());
        }
        let spec = self.spec(asked).await;
        let spec = spec.map_err(MountError::object(
            "attacher.MountDevice failed to get CSIDriver",
        ))?;
        let spec = spec.as_ref();
        let mut request = self.request(asked);
        request.publish_context = self
            .publish_context(asked, spec, "attacher.MountDevice failed to get attachment")
            .await?;
        request.secrets = self
            .secrets("NodeStageSecretRef", asked.csi.stage_secret.as_ref())
            .await?;
        let label = mount_context(asked, spec);
        request.mount_flags = with_context(request.mount_flags, label.as_deref());
        if driver.can(NodeAbility::MountGroup) {
            request.mount_group = asked.fs_group();
        }
        let target = self.deps.paths.global_mount(&asked.device);
        request.staging_path = Some(target.clone());

        let notes = Notes::of_device(&asked.device).with_context(label.as_deref());
        let lane = device_lane(&asked.device);
        let (written, dir) = (notes.clone(), target.clone());
        self.files(&lane, "staging a volume", move |_| {
            make_dir(&dir)?;
            written.save(above(&dir))
        })
        .await?;
        if let Err(error) = driver.node.stage(request).await.map_err(MountError::Mount) {
            if error.is_final() {
                self.forget_failed(&lane, target).await;
            }
            return Err(error);
        }
        let dir = above(&target).to_owned();
        self.files(&lane, "staging a volume", move |_| {
            notes.completed().save(&dir)
        })
        .await?;
        self.done().staged.insert(asked.device.name());
        Ok(())
    }

    /// Staged by this agent, or by an earlier one that saw it done.
    async fn is_staged(&self, device: &CsiDevice) -> Result<bool, MountError> {
        if self.done().staged.contains(&device.name()) {
            return Ok(true);
        }
        let target = self.deps.paths.global_mount(device);
        let staged = self
            .files(&device_lane(device), "looking at a staged volume", {
                move |host| Ok(is_completed(host, &target))
            })
            .await?;
        if staged {
            self.done().staged.insert(device.name());
        }
        Ok(staged)
    }

    pub(super) async fn unstage_mount(&self, device: &CsiDevice) -> Result<(), MountError> {
        const STEP: &str = "attacher.UnmountDevice failed";
        windlass_pod_inputs::paths::check_component("CSI driver name", &device.driver)?;
        let target = self.deps.paths.global_mount(device);
        let lane = device_lane(device);
        let (dir, name) = (target.clone(), device.name());
        let there = self
            .files(&lane, "unstaging a volume", move |host| {
                let mounted = host
                    .is_mounted(&dir)
                    .map_err(MountError::io("look for a mount at", &dir))?;
                // torn notes say nothing that the name of the device does not say, too
                let noted = !matches!(Notes::load(above(&dir)), Ok(None));
                if !mounted && !noted {
                    // an earlier attempt was interrupted after its last call
                    remove_mount_dir(host, &dir, STEP)?;
                }
                // a pod whose notes are lost still has it
                let pods = host.mounts_in_pods(&dir);
                let pods = pods.map_err(MountError::io("look for mounts of", &dir))?;
                if let Some(path) = pods.into_iter().next() {
                    return Err(MountError::InUse { device: name, path });
                }
                Ok(mounted || noted)
            })
            .await?;
        if !there {
            return Ok(());
        }
        let driver = self
            .driver(
                device,
                "attacher.UnmountDevice failed to create newCsiDriverClient",
                "attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set",
            )
            .await?;
        if driver.can(NodeAbility::Stage) {
            let unstaged = driver.node.unstage(&device.handle, &target).await;
            unstaged.map_err(MountError::driver(STEP))?;
        }
        self.files(&lane, "unstaging a volume", move |host| {
            remove_mount_dir(host, &target, STEP)
        })
        .await
    }

    /// Nothing came of a mount: its directory and notes go, so that nobody asks the driver to take
    /// back what it never gave. What cannot be removed is found by whoever takes the volume back.
    pub(super) async fn forget_failed(&self, lane: &FileLane, target: PathBuf) {
        let removed = self
            .files(lane, "removing a mount directory", move |host| {
                remove_mount_dir(host, &target, "removing a mount directory")
            })
            .await;
        if let Err(error) = removed {
            tracing::warn!(%error, "mount directory after a failed mount");
        }
    }
}

/// The driver said that it is done, and what it did is there. Broken notes, and a mount that nobody
/// serves any more, are a reason to ask the driver again.
pub(super) fn is_completed(host: &dyn VolumeHost, target: &std::path::Path) -> bool {
    let noted = matches!(Notes::load(above(target)), Ok(Some(notes)) if notes.is_completed());
    noted && matches!(host.is_mounted(target), Ok(true)) && std::fs::metadata(target).is_ok()
}

/// Removes the directory that a volume was mounted at, the notes beside it, and the directory of
/// both, in this order: while the volume may be there its notes are, too.
pub(super) fn remove_mount_dir(
    host: &dyn VolumeHost,
    target: &std::path::Path,
    step: &'static str,
) -> Result<(), MountError> {
    let mounted = host
        .is_mounted(target)
        .map_err(MountError::io("look for a mount at", target))?;
    if mounted {
        return Err(MountError::StillMounted {
            step,
            path: target.to_owned(),
        });
    }
    remove_empty(target)?;
    remove_notes(above(target))?;
    remove_empty(above(target))
}
