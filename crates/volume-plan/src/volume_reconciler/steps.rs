//! What is to be done, each in one line.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use windlass_types::corev1::ObjectReference;
use windlass_types::view::EventType;
use windlass_types::{
    DeviceName, DiscoveredVolume, PodExt, PodUid, ReadyVolumes, Reason, SharedPod, VolumesNotReady,
};

use super::{RequestId, VolumeKey};
use crate::volume_source::PodVolume;

/// One volume of one pod, to be worked on.
#[derive(Clone, Debug)]
pub struct VolumeWork {
    /// The pod.
    pub pod: SharedPod,
    /// Which of its volumes, for the answer.
    pub key: VolumeKey,
    /// The volume.
    pub volume: Arc<PodVolume>,
}

/// Something to carry out. Those that end with a [`super::Done`] do so once.
#[derive(Clone, Debug)]
pub enum Step {
    /// Look at what an earlier life left.
    Reconstruction,
    /// Look for the volumes of a pod that is to lose them.
    Find(PodUid),
    /// Make a device ready for the pods of this node.
    Stage(DeviceName, VolumeWork),
    /// Take a device back that nobody uses.
    Unstage(DeviceName),
    /// Show a volume to its pod.
    Mount(VolumeWork),
    /// Grow the file system of a mounted volume; whether its driver refused that before.
    Expand(VolumeWork, bool),
    /// Ask why a volume is not attached, and its driver for its limit if the node is full.
    CheckAttachLimit(VolumeWork),
    /// The pod is to fail: the node has no room for its volumes.
    Reject(SharedPod, String),
    /// The pod is to lose its volumes: end early what is under way for it and can be ended.
    GiveUp(PodUid),
    /// Take a volume from its pod.
    Unmount(PodUid, VolumeKey, DiscoveredVolume),
    /// Answer a set-up.
    Ready(RequestId, Result<ReadyVolumes, VolumesNotReady>),
    /// Answer a release.
    Released(RequestId, Result<(), VolumesNotReady>),
    /// The pod, which was told otherwise before, has its volumes now or fails otherwise, or may be
    /// released now.
    Wake(PodUid),
    /// Record an event of a pod.
    Record(SharedPod, EventType, Reason, String),
    /// Record an event of a claim.
    RecordClaim(ObjectReference, EventType, Reason, String),
    /// `status.volumesInUse` is to be these.
    InUse(BTreeSet<DeviceName>),
}

impl fmt::Display for VolumeWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pod.uid(), self.volume.name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconstruct => f.write_str("reconstruction"),
            Self::Find(uid) => write!(f, "find({uid})"),
            Self::Stage(device, _) => write!(f, "stage({device})"),
            Self::Unstage(device) => write!(f, "unstage({device})"),
            Self::Mount(work) => write!(f, "mount({work})"),
            Self::Expand(work, false) => write!(f, "expand({work})"),
            Self::Expand(work, true) => write!(f, "expand({work} again)"),
            Self::CheckAttachLimit(work) => write!(f, "ask-limit({work})"),
            Self::Reject(pod, message) => write!(f, "reject({}: {message})", pod.uid()),
            Self::GiveUp(uid) => write!(f, "give-up({uid})"),
            Self::Unmount(uid, _, found) => write!(f, "unmount({uid}/{})", found.name),
            Self::Ready(request, Ok(ready)) => {
                write!(f, "ready#{}({}", request.0, ready.mounted.len())?;
                match ready.kept.is_empty() {
                    true => f.write_str(")"),
                    false => write!(f, ", kept: {})", ready.kept.join("; ")),
                }
            }
            Self::Released(request, Ok(())) => write!(f, "released#{}", request.0),
            Self::Ready(request, Err(error)) | Self::Released(request, Err(error)) => {
                write!(
                    f,
                    "not#{}({}: {})",
                    request.0,
                    error.reason.as_str(),
                    error.message
                )
            }
            Self::Wake(uid) => write!(f, "wake({uid})"),
            Self::Record(pod, _, reason, message) => {
                write!(f, "event({} {}: {message})", pod.uid(), reason.as_str())
            }
            Self::RecordClaim(claim, _, reason, message) => {
                let name = claim.name.as_deref().unwrap_or_default();
                write!(f, "claim-event({name} {}: {message})", reason.as_str())
            }
            Self::InUse(devices) => {
                let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
                write!(f, "in-use({})", names.join(" "))
            }
        }
    }
}
