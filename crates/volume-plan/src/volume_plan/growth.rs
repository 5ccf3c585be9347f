//! Volumes that grow while they are mounted: once on this node for each size, whatever the number of
//! pods.
//!
//! A node knows what a device has on it from the claim, when it first sees both, and from what it
//! did itself. So a volume that several nodes mount grows on each of them, although the claim says
//! that it has grown when the first is done.

use std::sync::Arc;

use windlass_types::view::EventType;
use windlass_types::{PodExt, PodUid, Reason, Retry, SharedPod};

use super::pods::{Due, VolumeState};
use super::words::{self, Work};
use super::{Expanded, Moment, Step, StepError, VolumeKey, VolumePlan};
use crate::volume_source::{PodVolume, claim_reference};

/// What is known of the size of a device on this node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceSize {
    /// Bytes.
    has: Option<u64>,
    /// It does not grow while it is in use here.
    left: bool,
    /// Its driver has refused to grow it.
    pub(super) refused: bool,
}

impl DeviceSize {
    /// The node has to look whether it is to grow the volume.
    pub(super) fn is_to_grow(self, volume: &PodVolume) -> bool {
        let Some(size) = volume.size().filter(|_| !volume.read_only && !self.left) else {
            return false;
        };
        size.open && size.wanted > self.has.filter(|has| *has > 0).unwrap_or(size.known)
    }
}

impl VolumeState {
    /// What its growth is called.
    pub(super) fn growth_work(&self) -> Work {
        match self.only_grows() {
            true => Work::Expand,
            false => Work::ExpandNew,
        }
    }
}

impl VolumePlan {
    /// What is known of the device behind a volume; of one that is seen for the first time, what
    /// its claim says.
    pub(super) fn device_size(&mut self, uid: &PodUid, key: &VolumeKey) -> DeviceSize {
        let volume = self.pods.get(uid).and_then(|pod| pod.volumes.get(key));
        let under_way = volume.and_then(|volume| volume.under_way.as_ref());
        let Some(volume) = under_way.map(|under_way| Arc::clone(&under_way.volume)) else {
            return DeviceSize::default();
        };
        let (Some(device), Some(size)) = (volume.device(), volume.size()) else {
            return DeviceSize::default();
        };
        let known = self.devices.entry(device).or_default();
        known.size.has.get_or_insert(size.known);
        known.size
    }

    pub(super) fn size_of_device(&self, volume: &PodVolume) -> DeviceSize {
        let device = volume.device();
        let known = device.and_then(|device| self.devices.get(&device));
        known.map(|known| known.size).unwrap_or_default()
    }

    /// True if there is nothing to begin: the volume grows for another pod, or has grown.
    pub(super) fn growth_waits(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        volume: &Arc<PodVolume>,
    ) -> bool {
        let size = self.size_of_device(volume);
        if !size.is_to_grow(volume) {
            if let Some(known) = self.pods.get_mut(uid).and_then(|s| s.volumes.get_mut(key)) {
                (known.due, known.failure) = (Due::Nothing, None);
            }
            return true;
        }
        let device = volume.device();
        let mut volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        volumes.any(|other| {
            let grows = |work| matches!(work, Work::Expand | Work::ExpandNew);
            let under_way = other.under_way.as_ref();
            under_way.is_some_and(|it| grows(it.work)) && other.device == device
        })
    }

    pub(super) fn expanded(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<Expanded, StepError>,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let mut size = self.device_size(uid, key);
        match &result {
            Ok(Expanded::Grown(bytes) | Expanded::Has(bytes)) => {
                (size.has, size.refused) = (Some(*bytes), false);
            }
            Ok(Expanded::Left) => size.left = true,
            Ok(Expanded::Refused(_)) => size.refused = true,
            Ok(Expanded::NotNow) | Err(_) => {}
        }
        let Some((pod, volume, asked)) = self.ended(uid, key) else {
            return;
        };
        let (error, again) = match result {
            Ok(Expanded::Refused(error)) => {
                let again = error.retry != Retry::Never;
                (Some(error), again)
            }
            Err(error) => (Some(error), true),
            Ok(Expanded::Grown(_)) => {
                if let Some(pod) = pod {
                    tell_grown(pod, &asked, steps);
                }
                (None, false)
            }
            Ok(_) => (None, false),
        };
        if let Some(error) = error {
            let words = words::step_failed(volume.growth_work(), &asked, &error);
            volume.failed(pod, words, error.retry, at, steps);
        }
        if !again {
            // the pod has what there is, also where that can never be more
            volume.tried = true;
            volume.succeeded(&asked, size);
        }
        if let Some(known) = asked
            .device()
            .and_then(|device| self.devices.get_mut(&device))
        {
            known.size = size;
        }
    }
}

/// Pod and claim hear that the volume has grown.
fn tell_grown(pod: &SharedPod, volume: &PodVolume, steps: &mut Vec<Step>) {
    let node = PodExt::spec(&**pod).node_name.as_deref();
    let (name, node) = (volume.told_name(), node.unwrap_or_default());
    let text = format!("MountVolume.NodeExpandVolume succeeded for volume {name:?} {node}");
    let reason = Reason::FileSystemResizeSuccessful;
    tell_both(pod, volume, (EventType::Normal, reason), &text, steps);
}

/// Pod and claim hear that a volume which is mounted for the first time does not grow, because the
/// pod may only read it.
pub(super) fn tell_read_only(pod: &SharedPod, volume: &PodVolume, steps: &mut Vec<Step>) {
    let grows = |volume: &PodVolume| volume.size().is_some_and(|s| s.wanted > s.known);
    if volume.read_only && grows(volume) {
        let name = volume.told_name();
        let text = format!(
            "MountVolume.NodeExpandVolume failed for volume {name:?} requested read-only file \
             system"
        );
        let what = (EventType::Warning, Reason::FileSystemResizeFailed);
        tell_both(pod, volume, what, &text, steps);
    }
}

fn tell_both(
    pod: &SharedPod,
    volume: &PodVolume,
    (event_type, reason): (EventType, Reason),
    text: &str,
    steps: &mut Vec<Step>,
) {
    let of_pod = SharedPod::clone(pod);
    steps.push(Step::Record(of_pod, event_type, reason, text.to_owned()));
    if let Some(size) = volume.size() {
        let claim = claim_reference(pod.namespace(), size);
        let text = text.to_owned();
        steps.push(Step::RecordClaim(claim, event_type, reason, text));
    }
}
