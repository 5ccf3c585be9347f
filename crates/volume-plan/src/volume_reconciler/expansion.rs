//! Expansion of mounted volumes: once per node and size, for any number of pods.
//!
//! The size of a device on this node is known from the PVC when the device is first used, and then
//! from the node's own expansions. So a volume of several nodes is expanded on each of them,
//! although the PVC reports the new size after the first.

use std::sync::Arc;

use windlass_types::view::EventType;
use windlass_types::{PodExt, PodUid, Reason, Retry, SharedPod};

use super::messages::{self, VolumeOperation};
use super::pods::{NextOperation, VolumeState};
use super::{ClockReading, ExpansionResult, Step, StepError, VolumeKey, VolumeReconciler};
use crate::volume_source::{PodVolume, pvc_reference};

/// Size of a device on this node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceSize {
    bytes: Option<u64>,
    /// The driver does not expand the device while it is in use.
    skip_in_use: bool,
    /// The driver has rejected an expansion.
    pub(super) rejected: bool,
}

impl DeviceSize {
    /// Returns true if the node may have to expand the volume.
    pub(super) fn needs_expansion(self, volume: &PodVolume) -> bool {
        let Some(size) = volume
            .size()
            .filter(|_| !volume.read_only && !self.skip_in_use)
        else {
            return false;
        };
        size.actionable
            && size.desired
                > self
                    .bytes
                    .filter(|bytes| *bytes > 0)
                    .unwrap_or(size.reported)
    }
}

impl VolumeState {
    /// Returns the operation that an expansion is reported as.
    pub(super) fn expansion_operation(&self) -> VolumeOperation {
        match self.is_only_expanding() {
            true => VolumeOperation::Expand,
            false => VolumeOperation::ExpandNew,
        }
    }
}

impl VolumeReconciler {
    /// Returns the size of the device of a step in progress; initially as reported by the PVC.
    pub(super) fn device_size(&mut self, uid: &PodUid, key: &VolumeKey) -> DeviceSize {
        let volume = self.pods.get(uid).and_then(|pod| pod.volumes.get(key));
        let in_progress = volume.and_then(|volume| volume.in_progress.as_ref());
        let Some(volume) = in_progress.map(|in_progress| Arc::clone(&in_progress.volume)) else {
            return DeviceSize::default();
        };
        let (Some(device), Some(size)) = (volume.device(), volume.size()) else {
            return DeviceSize::default();
        };
        let known = self.devices.entry(device).or_default();
        known.size.bytes.get_or_insert(size.reported);
        known.size
    }

    pub(super) fn size_of_device(&self, volume: &PodVolume) -> DeviceSize {
        let device = volume.device();
        let known = device.and_then(|device| self.devices.get(&device));
        known.map(|known| known.size).unwrap_or_default()
    }

    /// Returns true if no expansion has to start: it is done, or in progress for another pod.
    pub(super) fn is_expansion_pending(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        volume: &Arc<PodVolume>,
    ) -> bool {
        let size = self.size_of_device(volume);
        if !size.needs_expansion(volume) {
            if let Some(known) = self.pods.get_mut(uid).and_then(|s| s.volumes.get_mut(key)) {
                (known.next, known.failure) = (NextOperation::Nothing, None);
            }
            return true;
        }
        let device = volume.device();
        let mut volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        volumes.any(|other| {
            let expands =
                |work| matches!(work, VolumeOperation::Expand | VolumeOperation::ExpandNew);
            let in_progress = other.in_progress.as_ref();
            in_progress.is_some_and(|it| expands(it.work)) && other.device == device
        })
    }

    pub(super) fn expanded(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<ExpansionResult, StepError>,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let mut size = self.device_size(uid, key);
        match &result {
            Ok(ExpansionResult::Expanded(bytes) | ExpansionResult::AlreadyExpanded(bytes)) => {
                (size.bytes, size.rejected) = (Some(*bytes), false);
            }
            Ok(ExpansionResult::SkippedInUse) => size.skip_in_use = true,
            Ok(ExpansionResult::Rejected(_)) => size.rejected = true,
            Ok(ExpansionResult::Deferred) | Err(_) => {}
        }
        let Some((pod, volume, target)) = self.take_step_in_progress(uid, key) else {
            return;
        };
        let (error, again) = match result {
            Ok(ExpansionResult::Rejected(error)) => {
                let again = error.retry != Retry::Never;
                (Some(error), again)
            }
            Err(error) => (Some(error), true),
            Ok(ExpansionResult::Expanded(_)) => {
                if let Some(pod) = pod {
                    report_expanded(pod, &target, steps);
                }
                (None, false)
            }
            Ok(_) => (None, false),
        };
        if let Some(error) = error {
            let text = messages::step_failed(volume.expansion_operation(), &target, &error);
            volume.failed(pod, text, error.retry, now, steps);
        }
        if !again {
            // the pod gets the volume, even if it can never be expanded
            volume.expansion_tried = true;
            volume.succeeded(&target, size);
        }
        if let Some(known) = target
            .device()
            .and_then(|device| self.devices.get_mut(&device))
        {
            known.size = size;
        }
    }
}

/// Records on pod and PVC that the volume was expanded.
fn report_expanded(pod: &SharedPod, volume: &PodVolume, steps: &mut Vec<Step>) {
    let node = PodExt::spec(&**pod).node_name.as_deref();
    let (name, node) = (volume.display_name(), node.unwrap_or_default());
    let text = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
    let reason = Reason::FileSystemResizeSuccessful;
    record_events(pod, volume, (EventType::Normal, reason), &text, steps);
}

/// Records on pod and PVC, at the first mount, that a read-only volume is not expanded.
pub(super) fn report_read_only(pod: &SharedPod, volume: &PodVolume, steps: &mut Vec<Step>) {
    let expands = |volume: &PodVolume| volume.size().is_some_and(|s| s.desired > s.reported);
    if volume.read_only && expands(volume) {
        let name = volume.display_name();
        let text = format!(
            "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file \
             system"
        );
        let what = (EventType::Warning, Reason::FileSystemResizeFailed);
        record_events(pod, volume, what, &text, steps);
    }
}

fn record_events(
    pod: &SharedPod,
    volume: &PodVolume,
    (event_type, reason): (EventType, Reason),
    text: &str,
    steps: &mut Vec<Step>,
) {
    let of_pod = SharedPod::clone(pod);
    steps.push(Step::Record(of_pod, event_type, reason, text.to_owned()));
    if let Some(size) = volume.size() {
        let pvc = pvc_reference(pod.namespace(), size);
        let text = text.to_owned();
        steps.push(Step::RecordPvc(pvc, event_type, reason, text));
    }
}
