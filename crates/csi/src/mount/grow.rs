//! Expansion of mounted volumes, and how full they are.

use std::path::PathBuf;

use windlass_volume_plan::volume_source::PodVolume;
use windlass_types::{PodUid, SharedPod};

use super::error::MountError;
use super::inputs::Driver;
use super::notes::Notes;
use super::{Asked, CsiVolumes, asked, paths, pod_lane};
use crate::port::{NodeAbility, VolumeUsage};

impl CsiVolumes {
    /// NodeExpandVolume of a published volume: it is to have this many bytes.
    ///
    /// # Errors
    /// What did not work; [`MountError::growth_fault`] tells what follows.
    pub async fn expand(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        bytes: u64,
    ) -> Result<(), MountError> {
        let asked = asked(pod, volume)?;
        let driver = self
            .driver(
                &asked.device,
                "Expander.NodeExpand failed",
                "Expander.NodeExpand failed to check if node supports expansion",
            )
            .await?;
        if !driver.can(NodeAbility::Expand) {
            return Err(MountError::NoExpansion(asked.device.driver));
        }
        let mut request = self.request(&asked);
        request.secrets = self
            .secrets("NodeExpandSecretRef", asked.csi.expand_secret.as_ref())
            .await?;
        request.staging_path = self.staging_path(&asked, &driver);
        let at = self.published_at(&asked.uid, asked.name(), asked.csi.block);
        // what is told is what was asked for, as upstream: a driver rounds, or says nothing
        let grown = driver.node.expand(request, bytes, at).await;
        grown.map(drop).map_err(MountError::of_growth)
    }

    /// NodeGetVolumeStats of a published volume; `None` if it is not published, or its driver does
    /// not measure.
    ///
    /// # Errors
    /// What did not work.
    pub async fn usage(
        &self,
        uid: &PodUid,
        volume: &str,
        block: bool,
    ) -> Result<Option<VolumeUsage>, MountError> {
        paths::check_names(uid, "unknown", volume)?;
        let dir = self.deps.paths.notes_dir(uid, volume, block);
        let device = self
            .files(&pod_lane(uid), "looking at a volume", move |_| {
                Ok(Notes::load(&dir).ok().flatten().and_then(|n| n.device()))
            })
            .await?;
        let Some(device) = device else {
            return Ok(None);
        };
        let driver = self
            .driver(
                &device,
                "failed to get CSI client",
                "failed to check for GET_VOLUME_STATS capability",
            )
            .await?;
        if !driver.can(NodeAbility::Usage) {
            return Ok(None);
        }
        let path = self.published_at(uid, volume, block);
        let usage = driver.node.usage(&device.handle, &path, None).await;
        usage.map(Some).map_err(MountError::Mount)
    }

    fn published_at(&self, uid: &PodUid, volume: &str, block: bool) -> PathBuf {
        match block {
            true => self.deps.paths.block_target(uid, volume),
            false => self.deps.paths.target(uid, volume),
        }
    }

    fn staging_path(&self, asked: &Asked<'_>, driver: &Driver) -> Option<PathBuf> {
        let paths = &self.deps.paths;
        let path = match asked.csi.block {
            true => paths.block_staging(asked.name()),
            false => paths.global_mount(&asked.device),
        };
        driver.can(NodeAbility::Stage).then_some(path)
    }
}
