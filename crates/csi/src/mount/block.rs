//! Block volumes: a device node that the driver publishes, and a link to it in the pod's directory.
//!
//! `volumeDevices/<volume>/data` has the notes, `staging/<volume>` is the driver's, and it puts the
//! device at `publish/<volume>/<pod UID>`. The link is there before the driver is called: by it a
//! later agent finds the volume. Upstream's second bind mount of the device, and the loop device by
//! which it keeps it open, are not made; those that it left are taken away.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use windlass_types::{MountedContent, MountedVolume, PodUid};

use super::error::MountError;
use super::inputs::pod_info;
use super::notes::{Notes, make_dir, remove_empty, remove_notes};
use super::paths::{CsiDevice, CsiPaths, above};
use super::{Asked, CsiVolumes, VolumeHost, device_lane, pod_lane};
use crate::port::{NodeAbility, PublishRequest};

impl CsiVolumes {
    pub(super) async fn stage_block(&self, asked: &Asked<'_>) -> Result<(), MountError> {
        if self.done().staged.contains(&asked.device.name()) {
            return Ok(());
        }
        let driver = self
            .driver(
                &asked.device,
                "blockMapper.SetUpDevice failed to get CSI client",
                "blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability",
            )
            .await?;
        // the notes are for what is published, too
        let node = &self.deps.node_name;
        let notes = Notes::of_volume(asked.name(), &asked.device, node, None);
        let staging = self.deps.paths.block_staging(asked.name());
        let stages = driver.can(NodeAbility::Stage);
        let mut request = self.request(asked);
        if stages {
            let spec = self.spec(asked).await;
            let spec = spec.map_err(MountError::object(
                "blockMapper.SetupDevice failed to check CSIDriver",
            ))?;
            request.publish_context = self
                .publish_context(
                    asked,
                    spec.as_ref(),
                    "blockMapper.SetupDevice failed to get volume attachment",
                )
                .await?;
            request.secrets = self
                .secrets("NodeStageSecretRef", asked.csi.stage_secret.as_ref())
                .await?;
            request.staging_path = Some(staging.clone());
        }
        let lane = device_lane(&asked.device);
        let dir = self.deps.paths.block_notes_dir(asked.name());
        self.files(&lane, "staging a block volume", move |_| {
            notes.save(&dir)?;
            if stages { make_dir(&staging) } else { Ok(()) }
        })
        .await?;
        if stages && let Err(error) = driver.node.stage(request).await.map_err(MountError::Mount) {
            if error.is_final() {
                self.forget_block(asked).await;
            }
            return Err(error);
        }
        self.done().staged.insert(asked.device.name());
        Ok(())
    }

    /// Nothing came of staging a block volume that nobody has.
    async fn forget_block(&self, asked: &Asked<'_>) {
        let (paths, volume) = (self.deps.paths.clone(), asked.name().to_owned());
        let lane = device_lane(&asked.device);
        let removed = self
            .files(&lane, "removing a block volume", move |host| {
                remove_block(host, &paths, &volume)
            })
            .await;
        if let Err(error) = removed {
            tracing::warn!(%error, "directories after a failed mount");
        }
    }

    pub(super) async fn set_up_block(
        &self,
        asked: &Asked<'_>,
    ) -> Result<MountedVolume, MountError> {
        let paths = &self.deps.paths;
        let link = paths.device_link(&asked.uid, asked.name());
        let shown = MountedVolume {
            content: MountedContent::Device(link.clone()),
            read_only: asked.volume.read_only,
            relabel: false,
        };
        if self.done().published.contains(&asked.key()) {
            return Ok(shown);
        }
        let driver = self
            .driver(
                &asked.device,
                "blockMapper.MapPodDevice failed to get CSI client",
                "blockMapper.MapPodDevice failed to check STAGE_UNSTAGE_VOLUME capability",
            )
            .await?;
        let spec = self.spec(asked).await;
        let spec = spec.map_err(MountError::object(
            "blockMapper.MapPodDevice failed to check CSIDriver",
        ))?;
        let spec = spec.as_ref();
        let mut request = self.request(asked);
        if driver.can(NodeAbility::Stage) {
            request.staging_path = Some(paths.block_staging(asked.name()));
        }
        request.publish_context = self
            .publish_context(
                asked,
                spec,
                "blockMapper.MapPodDevice failed to get volume attachment",
            )
            .await?;
        request.secrets = self
            .secrets("NodePublishSecretRef", asked.csi.publish_secret.as_ref())
            .await?;
        if spec.is_some_and(|spec| spec.pod_info_on_mount) {
            request.context.extend(pod_info(asked));
        }
        let target = paths.block_target(&asked.uid, asked.name());
        let node = &self.deps.node_name;
        let notes = Notes::of_volume(asked.name(), &asked.device, node, None);
        let (place, dir) = (target.clone(), paths.block_notes_dir(asked.name()));
        self.files(&asked.lane(), "publishing a block volume", move |_| {
            notes.save(&dir)?;
            make_dir(above(&place))?;
            make_link(&place, &link)
        })
        .await?;
        let request = PublishRequest {
            volume: request,
            target_path: target,
            read_only: asked.volume.read_only,
        };
        // the link stays after a failure: whoever releases the pod unpublishes, which is harmless
        driver
            .node
            .publish(request)
            .await
            .map_err(MountError::Mount)?;
        self.done().published.insert(asked.key());
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
        let dir = paths.block_notes_dir(volume);
        let lane = pod_lane(uid);
        let place = target.clone();
        let device = self
            .files(&lane, "releasing a block volume", move |_| {
                notes_of_block(&dir, &place)
            })
            .await?;
        let bound = paths.block_bind(uid, volume);
        let released = self.deps.host.release_device(&lane, &bound).await;
        released.map_err(MountError::Files)?;
        if let Some(device) = device {
            let driver = self.deps.drivers.get(&device.driver);
            let driver = driver.map_err(MountError::driver(
                "blockMapper.UnmapPodDevice failed to get CSI client",
            ))?;
            let unpublished = driver.node.unpublish(&device.handle, &target).await;
            unpublished.map_err(MountError::driver(STEP))?;
        }
        self.files(&lane, "releasing a block volume", move |host| {
            let mounted = host
                .is_mounted(&target)
                .map_err(MountError::io("look for a mount at", &target))?;
            if mounted {
                return Err(MountError::StillMounted {
                    step: STEP,
                    path: target,
                });
            }
            remove_empty(&target)?;
            remove_empty(&link)
        })
        .await
    }

    /// Takes back every block volume on a device; more than one PersistentVolume may name it.
    pub(super) async fn unstage_blocks(&self, device: &CsiDevice) -> Result<(), MountError> {
        const STEP: &str = "blockMapper.unstageVolumeForBlock failed";
        let lane = device_lane(device);
        let (paths, wanted) = (self.deps.paths.clone(), device.clone());
        let volumes = self
            .files(&lane, "unstaging a block volume", move |_| {
                let dir = paths.block_dir();
                let all = paths.block_volumes();
                let mut all = all.map_err(MountError::io("look for volumes below", &dir))?;
                all.retain(|(_, of)| *of == wanted);
                Ok(all)
            })
            .await?;
        for (volume, _) in volumes {
            let driver = self
                .driver(
                    device,
                    "blockMapper.TearDownDevice failed to get CSI client",
                    "blockMapper.unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME \
                     capability",
                )
                .await?;
            if driver.can(NodeAbility::Stage) {
                let staging = self.deps.paths.block_staging(&volume);
                let unstaged = driver.node.unstage(&device.handle, &staging).await;
                unstaged.map_err(MountError::driver(STEP))?;
            }
            let paths = self.deps.paths.clone();
            self.files(&lane, "unstaging a block volume", move |host| {
                remove_block(host, &paths, &volume)
            })
            .await?;
        }
        Ok(())
    }
}

/// The device that is published at `target`. Without usable notes there is none to unpublish, which
/// is right only if nothing is there.
fn notes_of_block(dir: &Path, target: &Path) -> Result<Option<CsiDevice>, MountError> {
    let message = match Notes::load(dir) {
        Ok(notes) => match notes.and_then(|notes| notes.device()) {
            Some(device) => return Ok(Some(device)),
            None => "it does not exist".to_owned(),
        },
        Err(error) => error.to_string(),
    };
    match target.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => Err(MountError::Notes {
            path: dir.join(super::paths::NOTES),
            message,
            mounted: target.to_owned(),
        }),
    }
}

/// A link at `link` that leads to `target`, whatever was there.
fn make_link(target: &Path, link: &Path) -> Result<(), MountError> {
    let failed = MountError::io("link", link);
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    make_dir(above(link))?;
    remove_empty(link)?;
    symlink(target, link).map_err(failed)
}

/// Removes what the node keeps of a block volume that nobody has, its notes last.
fn remove_block(host: &dyn VolumeHost, paths: &CsiPaths, volume: &str) -> Result<(), MountError> {
    remove_empty(&paths.block_publish_dir(volume))?;
    // upstream's rule: what a driver leaves in its staging directory goes with it
    for dir in [
        paths.block_staging(volume),
        paths.block_volume_dir(volume).join("dev"),
    ] {
        let failed = MountError::io("remove dir", &dir);
        host.remove_tree(&dir).map_err(failed)?;
    }
    let notes = paths.block_notes_dir(volume);
    remove_notes(&notes)?;
    remove_empty(&notes)?;
    remove_empty(&paths.block_volume_dir(volume))
}
