//! Port to single volumes: set-up, tear-down and measurement.
//!
//! Every call may be repeated at any time, also after `kill -9`, and has a deadline.
//! [`crate::HostVolumes`] implements it on the node, [`crate::MemoryVolumes`] for simulations.
//! `windlass_volume_plan::volume_reconciler` decides which calls are made, the VolumeManager makes them.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
pub use windlass_types::DiscoveredVolume;
use windlass_types::{DeviceName, EventRecorder, MountedVolume, PodUid, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::PodVolume;

use crate::error::VolumeError;
use crate::usage::Measured;

/// A volume of a pod to set up.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// The pod.
    pub pod: SharedPod,
    /// The volume.
    pub volume: PodVolume,
    /// Timestamp of written content.
    pub now: Timestamp,
}

/// Sets up and tears down volumes.
#[async_trait]
pub trait VolumePlugins: Send + Sync + Debug + 'static {
    /// Volumes of one pod on the node; empty without a pod directory.
    async fn find(&self, uid: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError>;

    /// Pods that have a directory.
    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError>;

    /// Devices that are staged on the node.
    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError>;

    /// Stages the device of a volume (NodeStageVolume, the global mount of a local device). No-op for
    /// a volume without a device.
    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError>;

    /// Unstages a device that no pod uses. A device that is not staged is not an error.
    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError>;

    /// Sets up a volume, whose device is staged, for one pod. An existing volume is only updated.
    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError>;

    /// Expands a mounted volume to this many bytes, or to the size of its device. No-op for volumes
    /// without a size.
    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError>;

    /// Whether a volume is not attached because the node is at the attach limit of its driver; if so,
    /// the limit is refreshed.
    async fn is_node_full(&self, _volume: &PodVolume) -> bool {
        false
    }

    /// Tears down a volume of a pod, including mounts of its containers, and the content if the pod
    /// owns it. A missing volume is not an error.
    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError>;

    /// Cancels long operations in progress for a pod, such as an ownership change, before its volumes
    /// are torn down. Operations that cannot be cancelled continue.
    async fn cancel_operations(&self, _uid: &PodUid) {}

    /// Usage of a volume. `None` for volumes that are not measured, such as hostPath or a driver
    /// without usage. May take long for a large tree; dropping the future cancels it.
    async fn usage(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        let _ = (uid, volume);
        Ok(None)
    }

    /// Sets the recorder of pod events, which is created after the plugins.
    fn set_event_recorder(&self, _events: Arc<dyn EventRecorder>) {}
}
