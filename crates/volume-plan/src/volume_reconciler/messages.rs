//! Reasons and messages of events and errors: upstream's texts where upstream has one.

use std::time::Duration;

use windlass_types::{DeviceName, Reason, Timestamp, api_time};

use super::StepError;
use crate::volume_source::PodVolume;

/// Reason and message of an event or error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventText {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Operation on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeOperation {
    Stage,
    Mount,
    /// Expand a volume that the pod has already.
    Expand,
    /// Expand a new volume before the pod gets it.
    ExpandNew,
    Unmount,
}

impl VolumeOperation {
    /// Returns upstream's name of the operation.
    fn operation(self, block: bool) -> &'static str {
        match (self, block) {
            (Self::Stage, false) => "MountVolume.MountDevice",
            (Self::Stage, true) => "MapVolume.SetUpDevice",
            (Self::Mount, false) => "MountVolume.SetUp",
            (Self::Mount, true) => "MapVolume.MapPodDevice",
            (Self::Expand, _) => "NodeExpandVolume.NodeExpandVolume",
            (Self::ExpandNew, false) => "MountVolume.Setup",
            (Self::ExpandNew, true) => "MapVolume.MarkVolumeAsMounted",
            (Self::Unmount, false) => "UnmountVolume.TearDown",
            (Self::Unmount, true) => "UnmapVolume.UnmapBlockVolume",
        }
    }

    pub(super) fn reason(self, block: bool) -> Reason {
        match (self, block) {
            (Self::Expand, _) => Reason::VolumeResizeFailed,
            (_, true) => Reason::FailedMapVolume,
            (_, false) => Reason::FailedMount,
        }
    }
}

/// Returns the text of a failed operation.
pub(super) fn failed(work: VolumeOperation, volume: &PodVolume, error: &str) -> EventText {
    let block = volume.source.is_block();
    EventText {
        reason: work.reason(block),
        message: failed_message(work, block, volume.display_name(), error),
    }
}

/// Returns the text of a failed step.
pub(super) fn step_failed(
    work: VolumeOperation,
    volume: &PodVolume,
    error: &StepError,
) -> EventText {
    let block = volume.source.is_block();
    let operation = error.operation.unwrap_or(work.operation(block));
    let (name, message) = (volume.display_name(), &error.message);
    let while_doing = match work {
        VolumeOperation::ExpandNew => " while expanding volume",
        _ => "",
    };
    EventText {
        reason: work.reason(block),
        message: format!("{operation} failed{while_doing} for volume {name:?} : {message}"),
    }
}

/// Returns the text of a failed unmount of a discovered volume.
pub(super) fn unmount_failed(block: bool, name: &str, error: &str) -> EventText {
    EventText {
        reason: Reason::FailedMount,
        message: failed_message(VolumeOperation::Unmount, block, name, error),
    }
}

fn failed_message(work: VolumeOperation, block: bool, name: &str, error: &str) -> String {
    let operation = work.operation(block);
    format!("{operation} failed for volume {name:?} : {error}")
}

/// Returns the text of a hung step.
pub(super) fn hung(work: VolumeOperation, volume: &PodVolume, limit: Duration) -> EventText {
    let text = format!("not finished after {} s, still waiting", limit.as_secs());
    failed(work, volume, &text)
}

/// Returns the text of an operation in progress.
pub(super) fn in_progress(
    work: VolumeOperation,
    block: bool,
    name: &str,
    since: Timestamp,
) -> EventText {
    let operation = work.operation(block);
    let since = api_time(since);
    EventText {
        reason: Reason::FailedMount,
        message: format!("{operation} of volume {name:?} in progress since {since}"),
    }
}

/// Returns the text of a volume that waits for other steps of its pod.
pub(super) fn waiting_for_pod_volumes(name: &str) -> EventText {
    EventText {
        reason: Reason::FailedMount,
        message: format!("volume {name:?} is waiting for other volumes of the pod"),
    }
}

/// Returns the text of a volume whose device is being unstaged.
pub(super) fn waiting_for_unstage(name: &str, since: Timestamp) -> EventText {
    let since = api_time(since);
    EventText {
        reason: Reason::FailedMount,
        message: format!("UnmountDevice of volume {name:?} in progress since {since}"),
    }
}

/// Returns the text of a device that is missing in the `volumesInUse` of the Node status.
pub(super) fn not_in_use(name: &str, device: &DeviceName) -> EventText {
    let text = "Volume has not been added to the list of VolumesInUse in the node's volume status";
    EventText {
        reason: Reason::FailedAttachVolume,
        message: format!("{text} for volume {name:?} (UniqueName: \"{device}\")"),
    }
}

/// Returns the text of a device that the controller has not attached.
pub(super) fn not_attached(name: &str, device: &DeviceName) -> EventText {
    EventText {
        reason: Reason::FailedAttachVolume,
        message: format!(
            "Volume not attached according to node status for volume {name:?} \
             (UniqueName: \"{device}\")"
        ),
    }
}

/// Cause for a `ReadWriteOncePod` volume of another pod.
pub(super) const ONE_POD: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// Joins all messages; the reason is that of the first.
pub(super) fn joined<'a>(all: impl IntoIterator<Item = &'a EventText>) -> Option<EventText> {
    let mut all = all.into_iter();
    let mut text = all.next()?.clone();
    for further in all {
        text.message.push_str("; ");
        text.message.push_str(&further.message);
    }
    Some(text)
}
