//! What users are told of a volume, in upstream's words where upstream has any.

use std::time::Duration;

use windlass_types::{DeviceName, Reason, Timestamp, api_time};

use super::StepError;
use crate::volume_source::PodVolume;

/// A reason and a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EventText {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Something that is done with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeOperation {
    Stage,
    Mount,
    /// Grow what the pod has.
    Expand,
    /// Grow what the pod does not have before.
    ExpandNew,
    Unmount,
}

impl VolumeOperation {
    /// Upstream's name of the operation.
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

/// It failed.
pub(super) fn failed(work: VolumeOperation, volume: &PodVolume, error: &str) -> EventText {
    let block = volume.source.is_block();
    EventText {
        reason: work.reason(block),
        message: failed_message(work, block, volume.display_name(), error),
    }
}

/// It failed by itself.
pub(super) fn step_failed(work: VolumeOperation, volume: &PodVolume, error: &StepError) -> EventText {
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

/// The same of a volume of which only the directory is known.
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

/// It goes on for too long.
pub(super) fn overdue(work: VolumeOperation, volume: &PodVolume, limit: Duration) -> EventText {
    let text = format!("did not end within {} s, is waited for", limit.as_secs());
    failed(work, volume, &text)
}

/// It goes on.
pub(super) fn in_progress(work: VolumeOperation, block: bool, name: &str, since: Timestamp) -> EventText {
    let operation = work.operation(block);
    let since = api_time(since);
    EventText {
        reason: Reason::FailedMount,
        message: format!("{operation} of volume {name:?} is under way since {since}"),
    }
}

/// Nobody has begun yet: the pod has enough under way.
pub(super) fn waiting_for_pod_volumes(name: &str) -> EventText {
    EventText {
        reason: Reason::FailedMount,
        message: format!("volume {name:?} waits for others of its pod"),
    }
}

/// The device is being taken back after its last user.
pub(super) fn waiting_for_unstage(name: &str, since: Timestamp) -> EventText {
    let since = api_time(since);
    EventText {
        reason: Reason::FailedMount,
        message: format!("UnmountDevice of volume {name:?} is under way since {since}"),
    }
}

/// The controller has to see that the node is about to use the volume.
pub(super) fn not_in_use(name: &str, device: &DeviceName) -> EventText {
    let text = "Volume has not been added to the list of VolumesInUse in the node's volume status";
    EventText {
        reason: Reason::FailedAttachVolume,
        message: format!("{text} for volume {name:?} (UniqueName: \"{device}\")"),
    }
}

/// The controller has not attached it.
pub(super) fn not_attached(name: &str, device: &DeviceName) -> EventText {
    EventText {
        reason: Reason::FailedAttachVolume,
        message: format!(
            "Volume not attached according to node status for volume {name:?} \
             (UniqueName: \"{device}\")"
        ),
    }
}

/// Another pod has it.
pub(super) const ONE_POD: &str =
    "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// All of them in one: the first one's reason.
pub(super) fn joined<'a>(all: impl IntoIterator<Item = &'a EventText>) -> Option<EventText> {
    let mut all = all.into_iter();
    let mut text = all.next()?.clone();
    for further in all {
        text.message.push_str("; ");
        text.message.push_str(&further.message);
    }
    Some(text)
}
