//! Publishing of volumes with a file system: at `mount` in the volume's directory of a pod.

use std::path::{Path, PathBuf};

use windlass_types::{MountedContent, MountedVolume, PodUid};

use super::error::MountError;
use super::inputs::{
    TOKENS, check_lifecycle_mode, group_to_apply, mount_context, pod_info, with_context,
};
use super::notes::{Notes, make_dir};
use super::paths::above;
use super::stage::{is_completed, remove_mount_dir};
use super::{Asked, CsiVolumes, VolumeHost, pod_lane};
use crate::port::{CsiDriverSpec, NodeAbility, ObjectError, PublishRequest};

impl CsiVolumes {
    pub(super) async fn set_up_mount(
        &self,
        asked: &Asked<'_>,
    ) -> Result<MountedVolume, MountError> {
        let target = self.deps.paths.target(&asked.uid, asked.name());
        let spec = self.spec(asked).await;
        let label = spec
            .as_ref()
            .ok()
            .and_then(|s| mount_context(asked, s.as_ref()));
        let shown = MountedVolume {
            content: MountedContent::Path(target.clone()),
            read_only: asked.volume.read_only,
            relabel: !asked.volume.read_only && label.is_none(),
        };
        if !self.is_published(asked, &target).await? {
            self.publish(asked, &target, spec, false).await?;
            return Ok(shown);
        }
        let again = matches!(&spec, Ok(Some(spec)) if spec.requires_republish);
        if again && let Err(error) = self.publish(asked, &target, spec, true).await {
            // the pod has the volume, and keeps what it shows
            let volume = &asked.volume.name;
            tracing::warn!(pod = %asked.uid, %volume, %error, "volume not published again");
        }
        Ok(shown)
    }

    /// Published by this agent, or by an earlier one that saw it done.
    async fn is_published(&self, asked: &Asked<'_>, target: &Path) -> Result<bool, MountError> {
        if self.done().published.contains(&asked.key()) {
            return Ok(true);
        }
        let target = target.to_owned();
        let published = self
            .files(&asked.lane(), "looking at a volume", move |host| {
                Ok(is_completed(host, &target))
            })
            .await?;
        if published {
            self.done().published.insert(asked.key());
        }
        Ok(published)
    }

    async fn publish(
        &self,
        asked: &Asked<'_>,
        target: &Path,
        spec: Result<Option<CsiDriverSpec>, ObjectError>,
        again: bool,
    ) -> Result<(), MountError> {
        let driver = self
            .driver(
                &asked.device,
                "mounter.SetUpAt failed to get CSI client",
                "mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability",
            )
            .await?;
        let spec = spec.map_err(MountError::object(
            "mounter.SetupAt failed to check volume lifecycle mode",
        ))?;
        let spec = spec.as_ref();
        check_lifecycle_mode(asked, spec)?;
        let mut request = self.request(asked);
        if asked.csi.handle.is_some() && driver.can(NodeAbility::Stage) {
            request.staging_path = Some(self.deps.paths.global_mount(&asked.device));
        }
        request.publish_context = self
            .publish_context(
                asked,
                spec,
                "mounter.SetUpAt failed to fetch publishContext",
            )
            .await?;
        request.secrets = self
            .secrets("NodePublishSecretRef", asked.csi.publish_secret.as_ref())
            .await?;
        if let Some(spec) = spec {
            if spec.pod_info_on_mount {
                request.context.extend(pod_info(asked));
            }
            match self.tokens(asked, spec).await? {
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
        let label = mount_context(asked, spec);
        request.mount_flags = with_context(request.mount_flags, label.as_deref());
        let by_driver = driver.can(NodeAbility::MountGroup);
        if by_driver {
            request.mount_group = asked.fs_group();
        }

        let node = &self.deps.node_name;
        let notes = Notes::of_volume(asked.name(), &asked.device, node, Some(asked.mode()));
        let notes = notes.with_context(label.as_deref());
        let written = if again {
            notes.clone().completed()
        } else {
            notes.clone()
        };
        let (dir, place) = (above(target).to_owned(), target.to_owned());
        let existed = self
            .files(&asked.lane(), "publishing a volume", move |_| {
                make_dir(&dir)?;
                let existed = place.symlink_metadata().is_ok();
                written.save(&dir)?;
                Ok(existed)
            })
            .await?;
        let request = PublishRequest {
            volume: request,
            target_path: target.to_owned(),
            read_only: asked.volume.read_only,
        };
        if let Err(error) = driver
            .node
            .publish(request)
            .await
            .map_err(MountError::Mount)
        {
            // what was there before may have been published by an earlier call
            if error.is_final() && !existed {
                self.forget_failed(&asked.lane(), target.to_owned()).await;
            }
            return Err(error);
        }
        if let Some(gid) = group_to_apply(asked, spec).filter(|_| !by_driver) {
            let host = &self.deps.host;
            let owned = host
                .set_ownership(&asked.lane(), asked.pod, &asked.volume.name, target, gid)
                .await;
            owned.map_err(|message| MountError::Ownership {
                handle: asked.device.handle.clone(),
                message,
            })?;
        }
        if !again {
            let dir = above(target).to_owned();
            self.files(&asked.lane(), "publishing a volume", move |_| {
                notes.completed().save(&dir)
            })
            .await?;
            self.done().published.insert(asked.key());
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
        let lane = pod_lane(uid);
        let place = target.clone();
        let noted = self
            .files(&lane, "releasing a volume", move |host| {
                notes_of_target(host, place)
            })
            .await?;
        if let Some(device) = noted.and_then(|notes| notes.device()) {
            let driver = self.deps.drivers.get(&device.driver);
            let driver = driver.map_err(MountError::driver(
                "Unmounter.TearDownAt failed to get CSI client",
            ))?;
            let unpublished = driver.node.unpublish(&device.handle, &target).await;
            unpublished.map_err(MountError::driver(STEP))?;
        }
        self.files(&lane, "releasing a volume", move |host| {
            remove_mount_dir(host, &target, STEP)
        })
        .await
    }
}

/// The notes about what is at a target. Notes that say nothing are no reason to keep a pod for ever
/// if nothing is mounted: then there is nothing to take back.
fn notes_of_target(host: &dyn VolumeHost, target: PathBuf) -> Result<Option<Notes>, MountError> {
    let dir = above(&target);
    let message = match Notes::load(dir) {
        Ok(Some(notes)) => return Ok(Some(notes)),
        Ok(None) => "it does not exist".to_owned(),
        Err(error) => error.to_string(),
    };
    let mounted = host
        .is_mounted(&target)
        .map_err(MountError::io("look for a mount at", &target))?;
    if mounted {
        return Err(MountError::Notes {
            path: dir.join(super::paths::NOTES),
            message,
            mounted: target,
        });
    }
    if dir.exists() {
        let dir = dir.display();
        tracing::warn!(%dir, %message, "a volume without notes, and nothing mounted");
    }
    Ok(None)
}
