//! Expansion of published volumes, and their usage.

use std::path::PathBuf;

use windlass_types::{PodUid, SharedPod};
use windlass_volume_plan::volume_source::PodVolume;

use super::error::MountError;
use super::inputs::Driver;
use super::volume_data::VolumeData;
use super::{CheckedVolume, CsiVolumes, check_volume, paths, pod_queue};
use crate::port::{NodeCapability, VolumeUsage};

impl CsiVolumes {
    /// NodeExpandVolume of a published volume to this many bytes.
    ///
    /// # Errors
    /// A step failed; [`MountError::expansion_error`] classifies it.
    pub async fn expand(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        bytes: u64,
    ) -> Result<(), MountError> {
        let checked = check_volume(pod, volume)?;
        let no_client = "Expander.NodeExpand failed";
        let unknown_capability = "Expander.NodeExpand failed to check if node supports expansion";
        let driver = self
            .driver(&checked.device, no_client, unknown_capability)
            .await?;
        if !driver.can(NodeCapability::Expand) {
            return Err(MountError::NoExpansion(checked.device.driver));
        }
        let mut request = self.request(&checked);
        let secret = checked.csi.expand_secret.as_ref();
        request.secrets = self.secrets("NodeExpandSecretRef", secret).await?;
        request.staging_path = self.staging_path(&checked, &driver);
        let at = self.published_path(&checked.uid, checked.name(), checked.csi.block);
        // the reported size is ignored, as upstream: drivers round it or omit it
        let expanded = driver.node.expand(request, bytes, at).await;
        expanded.map(drop).map_err(MountError::from_expansion)
    }

    /// NodeGetVolumeStats of a published volume; `None` if it is not published or its driver lacks the
    /// capability.
    ///
    /// # Errors
    /// A step failed.
    pub async fn usage(
        &self,
        uid: &PodUid,
        volume: &str,
        block: bool,
    ) -> Result<Option<VolumeUsage>, MountError> {
        paths::check_names(uid, "unknown", volume)?;
        let dir = self.deps.paths.volume_data_dir(uid, volume, block);
        let device = self
            .files(&pod_queue(uid), "reading a volume data file", move |_| {
                Ok(VolumeData::load(&dir)
                    .ok()
                    .flatten()
                    .and_then(|n| n.device()))
            })
            .await?;
        let Some(device) = device else {
            return Ok(None);
        };
        let no_client = "failed to get CSI client";
        let unknown_capability = "failed to check for GET_VOLUME_STATS capability";
        let driver = self.driver(&device, no_client, unknown_capability).await?;
        if !driver.can(NodeCapability::Usage) {
            return Ok(None);
        }
        let path = self.published_path(uid, volume, block);
        let usage = driver.node.usage(&device.handle, &path, None).await;
        usage.map(Some).map_err(MountError::Mount)
    }

    fn published_path(&self, uid: &PodUid, volume: &str, block: bool) -> PathBuf {
        match block {
            true => self.deps.paths.block_target(uid, volume),
            false => self.deps.paths.target(uid, volume),
        }
    }

    fn staging_path(&self, checked: &CheckedVolume<'_>, driver: &Driver) -> Option<PathBuf> {
        let paths = &self.deps.paths;
        let path = match checked.csi.block {
            true => paths.block_staging(checked.name()),
            false => paths.global_mount(&checked.device),
        };
        driver.can(NodeCapability::Stage).then_some(path)
    }
}
