//! Volumes that are set up, discovered or not ready.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Reason, Retry, Timestamp};

/// The ready volumes of one pod by name.
pub type MountedVolumes = std::collections::BTreeMap<String, MountedVolume>;

/// The volumes of one pod, all ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyVolumes {
    /// By name.
    pub mounted: Arc<MountedVolumes>,
    /// Upstream error messages of volumes that keep an older payload.
    pub kept: Vec<String>,
}

/// A ready volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    /// Content for the containers.
    pub content: MountedContent,
    /// Read-only for all containers.
    pub read_only: bool,
    /// The runtime may relabel the content for SELinux.
    pub relabel: bool,
}

/// Content of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedContent {
    /// A file or directory of the node, bound into the container.
    Path(PathBuf),
    /// A block device of the node (`volumeMode: Block`), for `volumeDevices`.
    Device(PathBuf),
    /// An image or artifact that the runtime mounts; pulled when a container needs it.
    Image {
        /// Reference in the pod spec.
        reference: String,
        /// `Always`, `IfNotPresent` or `Never`.
        pull_policy: String,
    },
}

impl MountedVolume {
    /// Returns the path on the node; `None` for an image.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.content {
            MountedContent::Path(path) | MountedContent::Device(path) => Some(path),
            MountedContent::Image { .. } => None,
        }
    }
}

/// Unique name of a device that several pods may share: `<plugin>^<handle>`, such as
/// `kubernetes.io/csi/host.csi.k8s.io^vol-1` (upstream `UniqueVolumeName`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(pub String);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume of a pod that was discovered on the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoveredVolume {
    /// Directory of its plugin, such as `kubernetes.io~csi`.
    pub plugin_dir: String,
    /// Its own directory.
    pub name: String,
    /// True below `volumeDevices`, false below `volumes`.
    pub block: bool,
    /// The device, from its volume data file.
    pub device: Option<DeviceName>,
}

/// The volumes of a pod are not ready, or not torn down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesNotReady {
    /// For the blocker: `FailedMount`, `FailedAttachVolume`, `FailedMapVolume`.
    pub reason: Reason,
    /// The volume and the error or the operation in progress.
    pub message: String,
    /// Retry class.
    pub retry: Retry,
    /// When the VolumeManager retries; the pod is requeued after that.
    pub retry_at: Option<Timestamp>,
}

impl fmt::Display for VolumesNotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VolumesNotReady {}
