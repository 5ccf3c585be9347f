//! Volumes as they were set up, and why one is not.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Reason, Retry, Timestamp};

/// The volumes of one pod by their name in its spec, ready for its containers.
pub type MountedVolumes = std::collections::BTreeMap<String, MountedVolume>;

/// All volumes of one pod, ready for its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyVolumes {
    /// By name.
    pub mounted: Arc<MountedVolumes>,
    /// Of those that could not be brought up to date and show what they showed before: why, in
    /// upstream's words.
    pub kept: Vec<String>,
}

/// One volume that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedVolume {
    /// What containers are given.
    pub content: MountedContent,
    /// Containers may not write, whatever their mount says.
    pub read_only: bool,
    /// The content is the pod's own and may be labelled for SELinux by the runtime.
    pub relabel: bool,
}

/// What a container that uses a volume is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountedContent {
    /// A file or directory of the node, bound into the container.
    Path(PathBuf),
    /// A block device of the node (`volumeMode: Block`), for `volumeDevices`.
    Device(PathBuf),
    /// An image or artifact that the runtime mounts; it is pulled when a container needs it.
    Image {
        /// As the pod names it.
        reference: String,
        /// `Always`, `IfNotPresent` or `Never`.
        pull_policy: String,
    },
}

impl MountedVolume {
    /// The path on the node, unless the runtime itself provides the content.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.content {
            MountedContent::Path(path) | MountedContent::Device(path) => Some(path),
            MountedContent::Image { .. } => None,
        }
    }
}

/// A device that several pods of a node may share: `<plugin>^<handle>`, such as
/// `kubernetes.io/csi/host.csi.k8s.io^vol-1` (upstream `UniqueVolumeName`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(pub String);

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A volume of a pod as it lies on the node, whoever set it up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoveredVolume {
    /// Directory of its kind, such as `kubernetes.io~csi`.
    pub plugin_dir: String,
    /// Its own directory.
    pub name: String,
    /// It lies under `volumeDevices` instead of `volumes`.
    pub block: bool,
    /// The device that it shares with other pods, as its own notes say.
    pub device: Option<DeviceName>,
}

/// The volumes of a pod are not ready, or not gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumesNotReady {
    /// For the blocker: `FailedMount`, `FailedAttachVolume`, `FailedMapVolume`.
    pub reason: Reason,
    /// Which volume, and what happened or is waited for.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
    /// When the VolumeManager tries again by itself; the pod is woken when it is through.
    pub retry_at: Option<Timestamp>,
}

impl fmt::Display for VolumesNotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VolumesNotReady {}
