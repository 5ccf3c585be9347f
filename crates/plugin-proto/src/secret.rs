//! `Debug` for messages that carry secrets, so that no log line can print them.

use std::fmt;

use crate::csi_v1::volume_capability::MountVolume;
use crate::csi_v1::{NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};

/// Secrets, and contexts: a token of a pod's account may be in them.
impl fmt::Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .finish_non_exhaustive()
    }
}

/// As above.
impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("volume_capability", &self.volume_capability)
            .field("readonly", &self.readonly)
            .finish_non_exhaustive()
    }
}

/// As above.
impl fmt::Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("capacity_range", &self.capacity_range)
            .finish_non_exhaustive()
    }
}

/// Mount flags: CSI says that they may hold secrets.
impl fmt::Debug for MountVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountVolume")
            .field("fs_type", &self.fs_type)
            .field("volume_mount_group", &self.volume_mount_group)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::csi_v1::volume_capability::{AccessType, MountVolume};
    use crate::csi_v1::{
        NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, VolumeCapability,
    };

    #[test]
    fn no_request_to_a_driver_prints_a_secret() {
        let secrets = BTreeMap::from([("key".to_owned(), "hidden".to_owned())]);
        let mount = MountVolume {
            mount_flags: vec!["password=hidden".into()],
            ..Default::default()
        };
        let capability = VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            ..Default::default()
        };
        let stage = NodeStageVolumeRequest {
            volume_id: "volume".into(),
            secrets: secrets.clone(),
            publish_context: secrets.clone(),
            volume_context: secrets.clone(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        let publish = NodePublishVolumeRequest {
            volume_id: "volume".into(),
            secrets: secrets.clone(),
            publish_context: secrets.clone(),
            volume_context: secrets.clone(),
            volume_capability: Some(capability.clone()),
            ..Default::default()
        };
        let expand = NodeExpandVolumeRequest {
            volume_id: "volume".into(),
            secrets,
            volume_capability: Some(capability),
            ..Default::default()
        };
        for text in [
            format!("{stage:?}"),
            format!("{publish:?}"),
            format!("{expand:?}"),
        ] {
            assert!(
                text.contains("volume") && !text.contains("hidden"),
                "{text}"
            );
        }
    }
}
