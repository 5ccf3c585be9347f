//! Port to whatever sets up and releases single volumes.
//!
//! Every call may be repeated at any time, also by a new agent after `kill -9`, and ends: with an
//! error at its deadline rather than never. [`crate::HostVolumes`] is the node, models implement
//! it for simulations. Who calls what when is decided in `windlass_core::volume_plan` and kept by
//! the VolumeManager.

use std::fmt::Debug;

use async_trait::async_trait;
use windlass_core::volume_source::PodVolume;
use windlass_types::{DeviceName, MountedVolume, PodUid, SharedPod, Timestamp};

use crate::error::VolumeError;

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

/// A volume of a pod as it lies on the node, whoever set it up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundVolume {
    /// Directory of its kind, such as `kubernetes.io~csi`.
    pub plugin_dir: String,
    /// Its own directory.
    pub name: String,
    /// It lies under `volumeDevices` instead of `volumes`.
    pub block: bool,
    /// The device that it shares with other pods, as its own notes say.
    pub device: Option<DeviceName>,
}

/// Sets up and releases volumes.
#[async_trait]
pub trait VolumePlugins: Send + Sync + Debug + 'static {
    /// Volumes of one pod that lie on the node; none if it has no directory.
    async fn find(&self, uid: &PodUid) -> Result<Vec<FoundVolume>, VolumeError>;

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

    /// Grows the file system of a mounted volume to the size that its request asks for; tells the
    /// size in bytes, `None` if there was nothing to do.
    async fn expand(&self, request: &VolumeRequest) -> Result<Option<u64>, VolumeError>;

    /// Takes a volume from a pod, with what its containers left mounted in it, and with its content
    /// where that belongs to the pod. One that is not there is fine.
    async fn tear_down(&self, uid: &PodUid, volume: &FoundVolume) -> Result<(), VolumeError>;
}
