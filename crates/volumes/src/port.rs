//! Port to whatever sets up and releases single volumes.
//!
//! Every call may be repeated at any time, also by a new agent after `kill -9`, and ends: with an
//! error at its deadline rather than never. [`crate::HostVolumes`] is the node, models implement
//! it for simulations. Who calls what when is decided in `windlass_volume_plan::volume_plan` and kept by
//! the VolumeManager.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_volume_plan::volume_source::PodVolume;
pub use windlass_types::DiscoveredVolume;
use windlass_types::{DeviceName, EventRecorder, MountedVolume, PodUid, SharedPod, Timestamp};

use crate::error::VolumeError;
use crate::usage::Measured;

/// One volume of a pod, to be set up.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// The pod.
    pub pod: SharedPod,
    /// The volume.
    pub volume: PodVolume,
    /// Dates what is written.
    pub now: Timestamp,
}

/// Sets up and releases volumes.
#[async_trait]
pub trait VolumePlugins: Send + Sync + Debug + 'static {
    /// Volumes of one pod that lie on the node; none if it has no directory.
    async fn find(&self, uid: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError>;

    /// Pods that have a directory.
    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError>;

    /// Devices that are staged on the node, whoever staged them.
    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError>;

    /// Makes a volume's device ready for the pods of this node (NodeStageVolume, the global mount of
    /// a local device). A volume without a device is ready.
    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError>;

    /// Takes a device back that no pod uses any more. One that is not staged is fine.
    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError>;

    /// Shows a volume, whose device is staged, to one pod. What is set up already is brought up to
    /// date and otherwise left alone.
    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError>;

    /// Grows the file system of a mounted volume to this many bytes, or to what its device has;
    /// what has nothing to grow has grown.
    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError>;

    /// Why a controller does not attach a volume: true if its driver said that the node has no room
    /// for it. The driver is asked then how many volumes fit by now.
    async fn is_node_full(&self, _volume: &PodVolume) -> bool {
        false
    }

    /// Takes a volume from a pod, with what its containers left mounted in it, and with its content
    /// where that belongs to the pod. One that is not there is fine.
    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError>;

    /// The pod is to lose its volumes: what is under way for it and may take long, such as giving a
    /// large volume to a group, ends early with an error. What cannot be ended goes on.
    async fn cancel_operations(&self, _uid: &PodUid) {}

    /// What a volume that is set up holds. `None` if nobody can tell: it is not the node's to
    /// measure, as a hostPath, or its driver does not say. May take as long as counting a large
    /// tree does; dropping the future ends it.
    async fn usage(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        let _ = (uid, volume);
        Ok(None)
    }

    /// Where events of pods go from now on: the plugins are made before there is anybody to tell.
    fn set_event_recorder(&self, _events: Arc<dyn EventRecorder>) {}
}
