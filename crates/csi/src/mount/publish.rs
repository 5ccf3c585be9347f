//! Publishing of volumes with a file system, at `mount` in the volume directory of a pod.

use std::path::{Path, PathBuf};

use windlass_types::{MountedContent, MountedVolume, PodUid};

use super::error::MountError;
use super::inputs::{
    TOKENS, check_lifecycle_mode, group_to_apply, mount_context, pod_info, with_context,
};
use super::paths::above;
use super::stage::{is_completed, is_mounted, remove_mount_dir};
use super::volume_data::{VolumeData, make_dir};
use super::{CheckedVolume, CsiVolumes, VolumeHost, pod_queue};
use crate::port::{CsiDriverSpec, NodeCapability, PublishRequest};

impl CsiVolumes {
    pub(super) async fn set_up_mount(
        &self,
        checked: &CheckedVolume<'_>,
    ) -> Result<MountedVolume, MountError> {
        let target = self.deps.paths.target(&checked.uid, checked.name());
        let step = "mounter.SetupAt failed to check volume lifecycle mode";
        let spec = self.spec(checked, step).await;
        let label = spec
            .as_ref()
            .ok()
            .and_then(|s| mount_context(checked, s.as_ref()));
        let mounted = MountedVolume {
            content: MountedContent::Path(target.clone()),
            read_only: checked.volume.read_only,
            relabel: !checked.volume.read_only && label.is_none(),
        };
        if !self.is_published(checked, &target).await? {
            self.publish(checked, &target, spec, false).await?;
            return Ok(mounted);
        }
        let again = matches!(&spec, Ok(Some(spec)) if spec.requires_republish);
        if again && let Err(error) = self.publish(checked, &target, spec, true).await {
            // the volume stays published
            let volume = &checked.volume.name;
            tracing::warn!(pod = %checked.uid, %volume, %error, "republishing a volume failed");
        }
        Ok(mounted)
    }

    /// Whether publishing completed, in this agent run or a previous one.
    async fn is_published(
        &self,
        checked: &CheckedVolume<'_>,
        target: &Path,
    ) -> Result<bool, MountError> {
        if self.done.lock().published.contains(&checked.key()) {
            return Ok(true);
        }
        let target = target.to_owned();
        let published = self
            .files(&checked.queue(), "inspecting a volume", move |host| {
                Ok(is_completed(host, &target))
            })
            .await?;
        if published {
            self.done.lock().published.insert(checked.key());
        }
        Ok(published)
    }

    async fn publish(
        &self,
        checked: &CheckedVolume<'_>,
        target: &Path,
        spec: Result<Option<CsiDriverSpec>, MountError>,
        again: bool,
    ) -> Result<(), MountError> {
        let no_client = "mounter.SetUpAt failed to get CSI client";
        let unknown_capability =
            "mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability";
        let driver = self
            .driver(&checked.device, no_client, unknown_capability)
            .await?;
        let spec = spec?;
        let spec = spec.as_ref();
        check_lifecycle_mode(checked, spec)?;
        let mut request = self.request(checked);
        if checked.csi.handle.is_some() && driver.can(NodeCapability::Stage) {
            request.staging_path = Some(self.deps.paths.global_mount(&checked.device));
        }
        let step = "mounter.SetUpAt failed to fetch publishContext";
        request.publish_context = self.publish_context(checked, spec, step).await?;
        let secret = checked.csi.publish_secret.as_ref();
        request.secrets = self.secrets("NodePublishSecretRef", secret).await?;
        if let Some(spec) = spec {
            if spec.pod_info_on_mount {
                request.context.extend(pod_info(checked));
            }
            match self.tokens(checked, spec).await? {
                Some(tokens) if spec.tokens_in_secrets => {
                    request
                        .secrets
                        .insert(TOKENS.to_owned(), tokens.into_bytes());
                }
                Some(tokens) => {
                    request.context.insert(TOKENS.to_owned(), tokens);
                }
                None => {}
            }
        }
        let label = mount_context(checked, spec);
        request.mount_flags = with_context(request.mount_flags, label.as_deref());
        let by_driver = driver.can(NodeCapability::MountGroup);
        if by_driver {
            request.mount_group = checked.fs_group();
        }

        let node = &self.deps.node_name;
        let data =
            VolumeData::for_volume(checked.name(), &checked.device, node, Some(checked.mode()));
        let data = data.with_context(label.as_deref());
        let written = match again {
            true => data.clone().completed(),
            false => data.clone(),
        };
        let (dir, place) = (above(target).to_owned(), target.to_owned());
        let existed = self
            .files(&checked.queue(), "publishing a volume", move |_| {
                make_dir(&dir)?;
                let existed = place.symlink_metadata().is_ok();
                written.save(&dir)?;
                Ok(existed)
            })
            .await?;
        let request = PublishRequest {
            volume: request,
            target_path: target.to_owned(),
            read_only: checked.volume.read_only,
        };
        if let Err(error) = driver
            .node
            .publish(request)
            .await
            .map_err(MountError::Mount)
        {
            // an existing target may have been published by a previous call
            if error.is_final() && !existed {
                self.remove_failed_mount(&checked.queue(), target.to_owned())
                    .await;
            }
            return Err(error);
        }
        if let Some(gid) = group_to_apply(checked, spec).filter(|_| !by_driver) {
            let host = &self.deps.host;
            let owned = host
                .set_ownership(
                    &checked.queue(),
                    checked.pod,
                    &checked.volume.name,
                    target,
                    gid,
                )
                .await;
            owned.map_err(|message| MountError::Ownership {
                handle: checked.device.handle.clone(),
                message,
            })?;
        }
        if !again {
            let dir = above(target).to_owned();
            self.files(&checked.queue(), "publishing a volume", move |_| {
                data.completed().save(&dir)
            })
            .await?;
            self.done.lock().published.insert(checked.key());
        }
        Ok(())
    }

    pub(super) async fn tear_down_mount(
        &self,
        uid: &PodUid,
        volume: &str,
    ) -> Result<(), MountError> {
        const STEP: &str = "Unmounter.TearDownAt failed";
        let target = self.deps.paths.target(uid, volume);
        let queue = pod_queue(uid);
        let place = target.clone();
        let data = self
            .files(&queue, "releasing a volume", move |host| {
                published_volume_data(host, place)
            })
            .await?;
        if let Some(device) = data.and_then(|data| data.device()) {
            let driver = self.deps.drivers.get(&device.driver);
            let driver = driver.map_err(MountError::driver(
                "Unmounter.TearDownAt failed to get CSI client",
            ))?;
            let unpublished = driver.node.unpublish(&device.handle, &target).await;
            unpublished.map_err(MountError::driver(STEP))?;
        }
        self.files(&queue, "releasing a volume", move |host| {
            remove_mount_dir(host, &target, STEP)
        })
        .await
    }
}

/// The volume data of a target. Invalid data is an error only if something is mounted: otherwise
/// there is nothing to unpublish.
fn published_volume_data(
    host: &dyn VolumeHost,
    target: PathBuf,
) -> Result<Option<VolumeData>, MountError> {
    let dir = above(&target);
    let message = match VolumeData::load(dir) {
        Ok(Some(data)) => return Ok(Some(data)),
        Ok(None) => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    if is_mounted(host, &target)? {
        return Err(MountError::VolumeData {
            path: dir.join(super::paths::VOLUME_DATA_FILE),
            message,
            mounted: target,
        });
    }
    if dir.exists() {
        let dir = dir.display();
        tracing::warn!(%dir, %message, "volume without volume data file and without mount");
    }
    Ok(None)
}
