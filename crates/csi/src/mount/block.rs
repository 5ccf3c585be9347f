//! Block volumes: a device node that the driver publishes, and a link to it in the pod's directory.
//!
//! `volumeDevices/<volume>/data` contains the volume data file, `staging/<volume>` belongs to the
//! driver, which publishes the device at `publish/<volume>/<pod UID>`. The link is created before
//! the driver is called, so that the next agent run finds the volume. Upstream's second bind mount
//! and its loop device are not made; those that the Go kubelet left are removed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use windlass_types::{MountedContent, MountedVolume, PodUid};

use super::error::MountError;
use super::inputs::pod_info;
use super::paths::{CsiDevice, CsiPaths, above};
use super::stage::check_unmounted;
use super::volume_data::{VolumeData, make_dir, remove_empty, remove_volume_data};
use super::{CheckedVolume, CsiVolumes, VolumeHost, device_queue, pod_queue};
use crate::port::{NodeCapability, PublishRequest};

impl CsiVolumes {
    pub(super) async fn stage_block(&self, checked: &CheckedVolume<'_>) -> Result<(), MountError> {
        if self.done.lock().staged.contains(&checked.device.name()) {
            return Ok(());
        }
        let no_client = "blockMapper.SetUpDevice failed to get CSI client";
        let unknown_capability =
            "blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability";
        let driver = self
            .driver(&checked.device, no_client, unknown_capability)
            .await?;
        // the file also serves the published volumes
        let node = &self.deps.node_name;
        let data = VolumeData::for_volume(checked.name(), &checked.device, node, None);
        let staging = self.deps.paths.block_staging(checked.name());
        let stages = driver.can(NodeCapability::Stage);
        let mut request = self.request(checked);
        if stages {
            let step = "blockMapper.SetupDevice failed to check CSIDriver";
            let spec = self.spec(checked, step).await?;
            let step = "blockMapper.SetupDevice failed to get volume attachment";
            request.publish_context = self.publish_context(checked, spec.as_ref(), step).await?;
            let secret = checked.csi.stage_secret.as_ref();
            request.secrets = self.secrets("NodeStageSecretRef", secret).await?;
            request.staging_path = Some(staging.clone());
        }
        let queue = device_queue(&checked.device);
        let dir = self.deps.paths.block_data_dir(checked.name());
        self.files(&queue, "staging a block volume", move |_| {
            data.save(&dir)?;
            if stages { make_dir(&staging) } else { Ok(()) }
        })
        .await?;
        if stages && let Err(error) = driver.node.stage(request).await.map_err(MountError::Mount) {
            if error.is_final() {
                self.forget_block(checked).await;
            }
            return Err(error);
        }
        self.done.lock().staged.insert(checked.device.name());
        Ok(())
    }

    /// Removes the directories of a block volume after failed staging.
    async fn forget_block(&self, checked: &CheckedVolume<'_>) {
        let (paths, volume) = (self.deps.paths.clone(), checked.name().to_owned());
        let queue = device_queue(&checked.device);
        let removed = self
            .files(&queue, "removing a block volume", move |host| {
                remove_block(host, &paths, &volume)
            })
            .await;
        if let Err(error) = removed {
            tracing::warn!(%error, "removing directories after a failed mount failed");
        }
    }

    pub(super) async fn set_up_block(
        &self,
        checked: &CheckedVolume<'_>,
    ) -> Result<MountedVolume, MountError> {
        let paths = &self.deps.paths;
        let link = paths.device_link(&checked.uid, checked.name());
        let shown = MountedVolume {
            content: MountedContent::Device(link.clone()),
            read_only: checked.volume.read_only,
            relabel: false,
        };
        if self.done.lock().published.contains(&checked.key()) {
            return Ok(shown);
        }
        let no_client = "blockMapper.MapPodDevice failed to get CSI client";
        let unknown_capability =
            "blockMapper.MapPodDevice failed to check STAGE_UNSTAGE_VOLUME capability";
        let driver = self
            .driver(&checked.device, no_client, unknown_capability)
            .await?;
        let step = "blockMapper.MapPodDevice failed to check CSIDriver";
        let spec = self.spec(checked, step).await?;
        let spec = spec.as_ref();
        let mut request = self.request(checked);
        if driver.can(NodeCapability::Stage) {
            request.staging_path = Some(paths.block_staging(checked.name()));
        }
        let step = "blockMapper.MapPodDevice failed to get volume attachment";
        request.publish_context = self.publish_context(checked, spec, step).await?;
        let secret = checked.csi.publish_secret.as_ref();
        request.secrets = self.secrets("NodePublishSecretRef", secret).await?;
        if spec.is_some_and(|spec| spec.pod_info_on_mount) {
            request.context.extend(pod_info(checked));
        }
        let target = paths.block_target(&checked.uid, checked.name());
        let node = &self.deps.node_name;
        let data = VolumeData::for_volume(checked.name(), &checked.device, node, None);
        let (place, dir) = (target.clone(), paths.block_data_dir(checked.name()));
        self.files(&checked.queue(), "publishing a block volume", move |_| {
            data.save(&dir)?;
            make_dir(above(&place))?;
            make_link(&place, &link)
        })
        .await?;
        let request = PublishRequest {
            volume: request,
            target_path: target,
            read_only: checked.volume.read_only,
        };
        // the link stays after a failure, so that tear-down unpublishes, which is harmless
        driver
            .node
            .publish(request)
            .await
            .map_err(MountError::Mount)?;
        self.done.lock().published.insert(checked.key());
        Ok(shown)
    }

    pub(super) async fn tear_down_block(
        &self,
        uid: &PodUid,
        volume: &str,
    ) -> Result<(), MountError> {
        const STEP: &str = "blockMapper.unpublishVolumeForBlock failed";
        let paths = self.deps.paths.clone();
        let (target, link) = (
            paths.block_target(uid, volume),
            paths.device_link(uid, volume),
        );
        let dir = paths.block_data_dir(volume);
        let queue = pod_queue(uid);
        let place = target.clone();
        let device = self
            .files(&queue, "releasing a block volume", move |_| {
                published_device(&dir, &place)
            })
            .await?;
        let bound = paths.block_bind(uid, volume);
        let released = self.deps.host.release_device(&queue, &bound).await;
        released.map_err(MountError::Files)?;
        if let Some(device) = device {
            let driver = self.deps.drivers.get(&device.driver);
            let driver = driver.map_err(MountError::driver(
                "blockMapper.UnmapPodDevice failed to get CSI client",
            ))?;
            let unpublished = driver.node.unpublish(&device.handle, &target).await;
            unpublished.map_err(MountError::driver(STEP))?;
        }
        self.files(&queue, "releasing a block volume", move |host| {
            check_unmounted(host, &target, STEP)?;
            remove_empty(&target)?;
            remove_empty(&link)
        })
        .await
    }

    /// Unstages every block volume of a device; several PersistentVolumes may name it.
    pub(super) async fn unstage_blocks(&self, device: &CsiDevice) -> Result<(), MountError> {
        const STEP: &str = "blockMapper.unstageVolumeForBlock failed";
        let queue = device_queue(device);
        let (paths, wanted) = (self.deps.paths.clone(), device.clone());
        let volumes = self
            .files(&queue, "unstaging a block volume", move |_| {
                let dir = paths.block_dir();
                let all = paths.block_volumes();
                let mut all = all.map_err(MountError::io("look for volumes below", &dir))?;
                all.retain(|(_, of)| *of == wanted);
                Ok(all)
            })
            .await?;
        for (volume, _) in volumes {
            let no_client = "blockMapper.TearDownDevice failed to get CSI client";
            let unknown_capability = "blockMapper.unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME \
                          capability";
            let driver = self.driver(device, no_client, unknown_capability).await?;
            if driver.can(NodeCapability::Stage) {
                let staging = self.deps.paths.block_staging(&volume);
                let unstaged = driver.node.unstage(&device.handle, &staging).await;
                unstaged.map_err(MountError::driver(STEP))?;
            }
            let paths = self.deps.paths.clone();
            self.files(&queue, "unstaging a block volume", move |host| {
                remove_block(host, &paths, &volume)
            })
            .await?;
        }
        Ok(())
    }
}

/// The device that is published at `target`. Unusable volume data is an error if `target` exists.
fn published_device(dir: &Path, target: &Path) -> Result<Option<CsiDevice>, MountError> {
    let message = match VolumeData::load(dir) {
        Ok(data) => match data.and_then(|data| data.device()) {
            Some(device) => return Ok(Some(device)),
            None => "it does not exist".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    match target.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => Err(MountError::VolumeData {
            path: dir.join(super::paths::VOLUME_DATA_FILE),
            message,
            mounted: target.to_owned(),
        }),
    }
}

/// Creates or replaces the link at `link` to `target`.
fn make_link(target: &Path, link: &Path) -> Result<(), MountError> {
    let failed = MountError::io("link", link);
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    make_dir(above(link))?;
    remove_empty(link)?;
    symlink(target, link).map_err(failed)
}

/// Removes the directories of an unused block volume, its volume data file last.
fn remove_block(host: &dyn VolumeHost, paths: &CsiPaths, volume: &str) -> Result<(), MountError> {
    remove_empty(&paths.block_publish_dir(volume))?;
    // as upstream, files that the driver left in its staging directory are removed
    for dir in [
        paths.block_staging(volume),
        paths.block_volume_dir(volume).join("dev"),
    ] {
        let failed = MountError::io("remove dir", &dir);
        host.remove_tree(&dir).map_err(failed)?;
    }
    let data = paths.block_data_dir(volume);
    remove_volume_data(&data)?;
    remove_empty(&data)?;
    remove_empty(&paths.block_volume_dir(volume))
}
