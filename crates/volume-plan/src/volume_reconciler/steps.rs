//! Steps that the reconciler returns; `Display` prints each on one line.

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

/// One volume of one pod.
#[derive(Clone, Debug)]
pub struct VolumeWork {
    /// The pod.
    pub pod: SharedPod,
    /// Key of the volume, for the result.
    pub key: VolumeKey,
    /// The volume.
    pub volume: Arc<PodVolume>,
}

/// Step to execute. Each step with a [`super::StepResult`] returns exactly one.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reconstruct the volumes of the previous agent run.
    Reconstruct,
    /// Discover the volumes of a pod on the disk before its tear-down.
    Discover(PodUid),
    /// Stage a device on this node.
    Stage(DeviceName, VolumeWork),
    /// Unstage an unused device.
    Unstage(DeviceName),
    /// Mount a volume for its pod.
    Mount(VolumeWork),
    /// Expand a mounted volume; the flag is true if its driver rejected that before.
    Expand(VolumeWork, bool),
    /// Check why a volume is not attached, and refresh the limit of the driver if the node is full.
    CheckAttachLimit(VolumeWork),
    /// Reject the pod: the node cannot attach its volumes.
    Reject(SharedPod, String),
    /// Cancel the cancellable operations in progress of a pod.
    CancelOperations(PodUid),
    /// Unmount a volume of a pod.
    Unmount(PodUid, VolumeKey, DiscoveredVolume),
    /// Reply to a set-up request.
    ReplySetUp(RequestId, Result<ReadyVolumes, VolumesNotReady>),
    /// Reply to a tear-down request.
    ReplyTearDown(RequestId, Result<(), VolumesNotReady>),
    /// Requeue the pod: its volumes are ready or fail differently, or a tear-down can be retried.
    RequeuePod(PodUid),
    /// Record an event of a pod.
    Record(SharedPod, EventType, Reason, String),
    /// Record an event of a PVC.
    RecordPvc(ObjectReference, EventType, Reason, String),
    /// Report `status.volumesInUse`.
    ReportInUse(BTreeSet<DeviceName>),
}

impl fmt::Display for VolumeWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pod.uid(), self.volume.name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconstruct => f.write_str("reconstruct"),
            Self::Discover(uid) => write!(f, "discover({uid})"),
            Self::Stage(device, _) => write!(f, "stage({device})"),
            Self::Unstage(device) => write!(f, "unstage({device})"),
            Self::Mount(work) => write!(f, "mount({work})"),
            Self::Expand(work, false) => write!(f, "expand({work})"),
            Self::Expand(work, true) => write!(f, "expand({work} again)"),
            Self::CheckAttachLimit(work) => write!(f, "check-attach-limit({work})"),
            Self::Reject(pod, message) => write!(f, "reject({}: {message})", pod.uid()),
            Self::CancelOperations(uid) => write!(f, "cancel({uid})"),
            Self::Unmount(uid, _, found) => write!(f, "unmount({uid}/{})", found.name),
            Self::ReplySetUp(request, Ok(ready)) => {
                write!(f, "ready#{}({}", request.0, ready.mounted.len())?;
                match ready.kept.is_empty() {
                    true => f.write_str(")"),
                    false => write!(f, ", kept: {})", ready.kept.join("; ")),
                }
            }
            Self::ReplyTearDown(request, Ok(())) => write!(f, "torn-down#{}", request.0),
            Self::ReplySetUp(request, Err(error)) | Self::ReplyTearDown(request, Err(error)) => {
                write!(
                    f,
                    "failed#{}({}: {})",
                    request.0,
                    error.reason.as_str(),
                    error.message
                )
            }
            Self::RequeuePod(uid) => write!(f, "requeue({uid})"),
            Self::Record(pod, _, reason, message) => {
                write!(f, "event({} {}: {message})", pod.uid(), reason.as_str())
            }
            Self::RecordPvc(pvc, _, reason, message) => {
                let name = pvc.name.as_deref().unwrap_or_default();
                write!(f, "pvc-event({name} {}: {message})", reason.as_str())
            }
            Self::ReportInUse(devices) => {
                let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
                write!(f, "in-use({})", names.join(" "))
            }
        }
    }
}
