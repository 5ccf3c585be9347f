//! Devices that pods may share: staged once, unstaged after the last pod.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::DeviceName;

use super::expansion::DeviceSize;
use super::messages::{self, EventText, VolumeOperation};
use super::{
    ClockReading, Failure, ReconstructionState, Step, StepError, VolumeReconciler, VolumeWork,
};
use crate::volume_source::{PodVolume, VolumeSource};

/// One device.
#[derive(Debug, Default)]
pub(super) struct DeviceState {
    stage: StageState,
    pub(super) maybe_staged: bool,
    /// A controller attaches the device.
    attached: bool,
    /// Last failure to unstage it.
    failure: Option<Failure>,
    pub(super) size: DeviceSize,
}

#[derive(Debug, Default)]
enum StageState {
    /// Not staged in this agent run.
    #[default]
    Unknown,
    Staging(ClockReading),
    Staged,
    Unstaging(ClockReading),
}

/// Whether the device of a volume is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceReadiness {
    Ready,
    NotReady,
}

impl VolumeReconciler {
    /// Returns whether the device of the volume is staged, and starts staging if possible. Volumes
    /// without a device are ready.
    pub(super) fn ensure_staged(
        &mut self,
        work: &VolumeWork,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) -> DeviceReadiness {
        let Some(device) = work.volume.device() else {
            return DeviceReadiness::Ready;
        };
        let state = self.devices.get(&device);
        match state.map(|state| &state.stage) {
            Some(StageState::Staged) => return DeviceReadiness::Ready,
            Some(StageState::Staging(_) | StageState::Unstaging(_)) => {
                return DeviceReadiness::NotReady;
            }
            Some(StageState::Unknown) | None => {}
        }
        if self.attach_blocker(&work.volume, &device).is_none() {
            let state = self.devices.entry(device.clone()).or_default();
            (state.stage, state.maybe_staged) = (StageState::Staging(now), true);
            state.attached = attach_required(&work.volume);
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
        let Some(state) = self.devices.get_mut(device) else {
            return;
        };
        match result {
            Ok(()) => state.stage = StageState::Staged,
            Err(error) => {
                state.stage = StageState::Unknown;
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
        let Some(state) = self.devices.get_mut(device) else {
            return;
        };
        state.stage = StageState::Unknown;
        match result {
            Ok(()) => {
                (state.maybe_staged, state.failure) = (false, None);
                state.size = DeviceSize::default();
            }
            Err(error) => {
                let text = EventText {
                    reason: VolumeOperation::Stage.reason(false),
                    message: error.message,
                };
                let before = state.failure.as_ref();
                state.failure = Some(Failure::after(before, text, error.retry, now));
            }
        }
    }

    /// Unstages unused devices and reports the devices in use.
    pub(super) fn advance_devices(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        let users = self.pods.values().flat_map(|pod| pod.volumes.values());
        let used: BTreeSet<_> = users
            .filter(|volume| volume.desired.is_some() || volume.on_disk)
            .filter_map(|volume| volume.device.clone())
            .collect();
        let knows_all = self.knows_all_users();
        self.devices.retain(|device, state| {
            if used.contains(device) {
                state.failure = None;
                return true;
            }
            if !matches!(state.stage, StageState::Unknown | StageState::Staged) {
                return true;
            }
            let pauses = state
                .failure
                .as_ref()
                .is_some_and(|f| f.not_before > now.monotonic);
            if state.maybe_staged && knows_all && !pauses {
                state.stage = StageState::Unstaging(now);
                steps.push(Step::Unstage(device.clone()));
            }
            state.maybe_staged
        });
        self.report_in_use(&used, steps);
    }

    /// Retries devices that could not be unstaged.
    pub(super) fn retry_devices(&mut self) {
        for failure in self
            .devices
            .values_mut()
            .filter_map(|it| it.failure.as_mut())
        {
            failure.not_before = Duration::ZERO;
        }
    }

    /// Returns true if all users of devices are state.
    fn knows_all_users(&self) -> bool {
        self.sources_ready && matches!(self.reconstruction, ReconstructionState::Done)
    }

    pub(super) fn device_wake_ups(&self) -> impl Iterator<Item = Duration> {
        let knows_all = self.knows_all_users();
        let pausing =
            move |state: &&DeviceState| matches!(state.stage, StageState::Unknown) && knows_all;
        let devices = self.devices.values().filter(pausing);
        devices.filter_map(|state| Some(state.failure.as_ref()?.not_before))
    }

    fn report_in_use(&mut self, used: &BTreeSet<DeviceName>, steps: &mut Vec<Step>) {
        let volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        let desired = volumes
            .filter_map(|volume| volume.desired.as_deref())
            .filter(|volume| attach_required(volume))
            .filter_map(PodVolume::device);
        let staged = self.devices.iter().filter(|(_, state)| state.attached);
        let staged = staged.map(|(device, _)| device.clone());
        // entries of the previous agent run stay until all users are state
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

    /// Returns why the device is not attached yet; `None` if it is, or needs no controller.
    pub(super) fn attach_blocker(
        &self,
        volume: &PodVolume,
        device: &DeviceName,
    ) -> Option<EventText> {
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

    /// Returns what a volume without a step in progress waits for.
    pub(super) fn waiting_for(&self, volume: &Arc<PodVolume>) -> EventText {
        let (name, block) = (volume.display_name(), volume.source.is_block());
        let device = volume.device();
        let state = device.as_ref().and_then(|device| self.devices.get(device));
        match state.map(|state| &state.stage) {
            Some(StageState::Staging(since)) => {
                return messages::in_progress(VolumeOperation::Stage, block, name, since.wall);
            }
            Some(StageState::Unstaging(since)) => {
                return messages::waiting_for_unstage(name, since.wall);
            }
            Some(StageState::Unknown | StageState::Staged) | None => {}
        }
        let attach = device.and_then(|device| self.attach_blocker(volume, &device));
        attach.unwrap_or_else(|| messages::waiting_for_pod_volumes(name))
    }
}

/// Returns true if a controller attaches the volume to the node.
fn attach_required(volume: &PodVolume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.attach_required,
        _ => false,
    }
}
