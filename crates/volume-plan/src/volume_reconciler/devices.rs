//! Devices that several pods may share: staged once, taken back after the last of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::DeviceName;

use super::expansion::DeviceSize;
use super::messages::{self, EventText, VolumeOperation};
use super::{Failure, ClockReading, Step, StepError, ReconstructionState, VolumeReconciler, VolumeWork};
use crate::volume_source::{PodVolume, VolumeSource};

/// One device.
#[derive(Debug, Default)]
pub(super) struct DeviceState {
    state: StageState,
    /// It may be staged: found so, or tried.
    pub(super) maybe_staged: bool,
    /// A controller attaches it.
    attached: bool,
    /// It could not be taken back.
    failure: Option<Failure>,
    pub(super) size: DeviceSize,
}

#[derive(Debug, Default)]
enum StageState {
    /// Not staged in this life.
    #[default]
    Unknown,
    Staging(ClockReading),
    Staged,
    Unstaging(ClockReading),
}

/// Whether a volume may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceReadiness {
    Open,
    /// Its device is not ready.
    Shut,
}

impl VolumeReconciler {
    /// Open if the volume's device, if it has one, is staged. Otherwise staging is begun if that is
    /// possible.
    pub(super) fn ensure_staged(&mut self, work: &VolumeWork, now: ClockReading, steps: &mut Vec<Step>) -> DeviceReadiness {
        let Some(device) = work.volume.device() else {
            return DeviceReadiness::Ready;
        };
        let known = self.devices.get(&device);
        match known.map(|known| &known.state) {
            Some(StageState::Staged) => return DeviceReadiness::Ready,
            Some(StageState::Staging(_) | StageState::Unstaging(_)) => return DeviceReadiness::NotReady,
            Some(StageState::Unknown) | None => {}
        }
        if self.attach_blocker(&work.volume, &device).is_none() {
            let known = self.devices.entry(device.clone()).or_default();
            (known.state, known.maybe_staged) = (StageState::Staging(now), true);
            known.attached = attach_required(&work.volume);
            steps.push(Step::Stage(device, work.clone()));
        }
        DeviceReadiness::NotReady
    }

    pub(super) fn staged(
        &mut self,
        device: &DeviceName,
        result: Result<(), StepError>,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let Some(known) = self.devices.get_mut(device) else {
            return;
        };
        match result {
            Ok(()) => known.state = StageState::Staged,
            Err(error) => {
                known.state = StageState::Unknown;
                self.not_staged(device, &error, now, steps);
            }
        }
    }

    pub(super) fn unstaged(
        &mut self,
        device: &DeviceName,
        result: Result<(), StepError>,
        now: ClockReading,
    ) {
        let Some(known) = self.devices.get_mut(device) else {
            return;
        };
        known.state = StageState::Unknown;
        match result {
            Ok(()) => {
                (known.maybe_staged, known.failure) = (false, None);
                known.size = DeviceSize::default();
            }
            Err(error) => {
                let text = EventText {
                    reason: VolumeOperation::Stage.reason(false),
                    message: error.message,
                };
                let before = known.failure.as_ref();
                known.failure = Some(Failure::after(before, text, error.retry, now));
            }
        }
    }

    /// Takes back what nobody uses, and says which devices are in use.
    pub(super) fn advance_devices(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        let users = self.pods.values().flat_map(|pod| pod.volumes.values());
        let used: BTreeSet<_> = users
            .filter(|volume| volume.desired.is_some() || volume.on_disk)
            .filter_map(|volume| volume.device.clone())
            .collect();
        let knows_all = self.knows_all_users();
        self.devices.retain(|device, known| {
            if used.contains(device) {
                known.failure = None;
                return true;
            }
            if !matches!(known.state, StageState::Unknown | StageState::Staged) {
                return true;
            }
            let pauses = known.failure.as_ref().is_some_and(|f| f.not_before > now.monotonic);
            if known.maybe_staged && knows_all && !pauses {
                known.state = StageState::Unstaging(now);
                steps.push(Step::Unstage(device.clone()));
            }
            known.maybe_staged
        });
        self.report_in_use(&used, steps);
    }

    /// Devices that could not be taken back are tried again at once.
    pub(super) fn retry_devices(&mut self) {
        for failure in self
            .devices
            .values_mut()
            .filter_map(|it| it.failure.as_mut())
        {
            failure.not_before = Duration::ZERO;
        }
    }

    /// Everybody who may use a device is known.
    fn knows_all_users(&self) -> bool {
        self.sources_ready && matches!(self.reconstruction, ReconstructionState::Done)
    }

    pub(super) fn device_wake_ups(&self) -> impl Iterator<Item = Duration> {
        let knows_all = self.knows_all_users();
        let pausing =
            move |known: &&DeviceState| matches!(known.state, StageState::Unknown) && knows_all;
        let devices = self.devices.values().filter(pausing);
        devices.filter_map(|known| Some(known.failure.as_ref()?.not_before))
    }

    fn report_in_use(&mut self, used: &BTreeSet<DeviceName>, steps: &mut Vec<Step>) {
        let volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        let desired = volumes
            .filter_map(|volume| volume.desired.as_deref())
            .filter(|volume| attach_required(volume))
            .filter_map(PodVolume::device);
        let staged = self.devices.iter().filter(|(_, known)| known.attached);
        let staged = staged.map(|(device, _)| device.clone());
        // what an earlier life said stays until it is known whether somebody uses it
        let knows_all = self.knows_all_users();
        let kept = |device: &&DeviceName| {
            !knows_all || used.contains(*device) || self.devices.contains_key(*device)
        };
        let before = self.api_in_use.iter().filter(kept).cloned();
        let in_use: BTreeSet<_> = desired.chain(staged).chain(before).collect();
        if self.in_use.as_ref() != Some(&in_use) && (self.has_node_status || !in_use.is_empty()) {
            steps.push(Step::ReportInUse(in_use.clone()));
            self.in_use = Some(in_use);
        }
    }

    /// What a controller has yet to do for the volume.
    pub(super) fn attach_blocker(&self, volume: &PodVolume, device: &DeviceName) -> Option<EventText> {
        if !attach_required(volume) {
            return None;
        }
        let name = volume.display_name();
        if !self.api_in_use.contains(device) {
            return Some(messages::not_in_use(name, device));
        }
        let attached = self.attached.contains(device);
        (!attached).then(|| messages::not_attached(name, device))
    }

    /// What a volume that has not begun waits for.
    pub(super) fn waiting_for(&self, volume: &Arc<PodVolume>) -> EventText {
        let (name, block) = (volume.display_name(), volume.source.is_block());
        let device = volume.device();
        let known = device.as_ref().and_then(|device| self.devices.get(device));
        match known.map(|known| &known.state) {
            Some(StageState::Staging(since)) => {
                return messages::in_progress(VolumeOperation::Stage, block, name, since.wall);
            }
            Some(StageState::Unstaging(since)) => return messages::waiting_for_unstage(name, since.wall),
            Some(StageState::Unknown | StageState::Staged) | None => {}
        }
        let attach = device.and_then(|device| self.attach_blocker(volume, &device));
        attach.unwrap_or_else(|| messages::waiting_for_pod_volumes(name))
    }
}

/// A controller attaches the volume to the node.
fn attach_required(volume: &PodVolume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.attach_required,
        _ => false,
    }
}
