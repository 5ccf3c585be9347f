//! Devices that several pods may share: staged once, taken back after the last of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::DeviceName;

use super::growth::DeviceSize;
use super::words::{self, Words, Work};
use super::{Failure, Moment, Step, StepError, SurveyState, VolumePlan, VolumeWork};
use crate::volume_source::{PodVolume, VolumeSource};

/// One device.
#[derive(Debug, Default)]
pub(super) struct DeviceState {
    stand: Stand,
    /// It may be staged: found so, or tried.
    pub(super) touched: bool,
    /// A controller attaches it.
    attached: bool,
    /// It could not be taken back.
    failure: Option<Failure>,
    pub(super) size: DeviceSize,
}

#[derive(Debug, Default)]
enum Stand {
    /// Not staged in this life.
    #[default]
    Unknown,
    Staging(Moment),
    Staged,
    Unstaging(Moment),
}

/// Whether a volume may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// Its device is not ready.
    Shut,
}

impl VolumePlan {
    /// Open if the volume's device, if it has one, is staged. Otherwise staging is begun if that is
    /// possible.
    pub(super) fn pass(&mut self, work: &VolumeWork, at: Moment, steps: &mut Vec<Step>) -> Gate {
        let Some(device) = work.volume.device() else {
            return Gate::Open;
        };
        let known = self.devices.get(&device);
        match known.map(|known| &known.stand) {
            Some(Stand::Staged) => return Gate::Open,
            Some(Stand::Staging(_) | Stand::Unstaging(_)) => return Gate::Shut,
            Some(Stand::Unknown) | None => {}
        }
        if self.attach_words(&work.volume, &device).is_none() {
            let known = self.devices.entry(device.clone()).or_default();
            (known.stand, known.touched) = (Stand::Staging(at), true);
            known.attached = attach_required(&work.volume);
            steps.push(Step::Stage(device, work.clone()));
        }
        Gate::Shut
    }

    pub(super) fn staged(
        &mut self,
        device: &DeviceName,
        result: Result<(), StepError>,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let Some(known) = self.devices.get_mut(device) else {
            return;
        };
        match result {
            Ok(()) => known.stand = Stand::Staged,
            Err(error) => {
                known.stand = Stand::Unknown;
                self.not_staged(device, &error, at, steps);
            }
        }
    }

    pub(super) fn unstaged(
        &mut self,
        device: &DeviceName,
        result: Result<(), StepError>,
        at: Moment,
    ) {
        let Some(known) = self.devices.get_mut(device) else {
            return;
        };
        known.stand = Stand::Unknown;
        match result {
            Ok(()) => {
                (known.touched, known.failure) = (false, None);
                known.size = DeviceSize::default();
            }
            Err(error) => {
                let words = Words {
                    reason: Work::Stage.reason(false),
                    message: error.message,
                };
                let before = known.failure.as_ref();
                known.failure = Some(Failure::after(before, words, error.retry, at));
            }
        }
    }

    /// Takes back what nobody uses, and says which devices are in use.
    pub(super) fn advance_devices(&mut self, at: Moment, steps: &mut Vec<Step>) {
        let users = self.pods.values().flat_map(|pod| pod.volumes.values());
        let used: BTreeSet<_> = users
            .filter(|volume| volume.wanted.is_some() || volume.on_disk)
            .filter_map(|volume| volume.device.clone())
            .collect();
        let known_all = self.knows_all();
        self.devices.retain(|device, known| {
            if used.contains(device) {
                known.failure = None;
                return true;
            }
            if !matches!(known.stand, Stand::Unknown | Stand::Staged) {
                return true;
            }
            let pauses = known.failure.as_ref().is_some_and(|f| f.again > at.uptime);
            if known.touched && known_all && !pauses {
                known.stand = Stand::Unstaging(at);
                steps.push(Step::Unstage(device.clone()));
            }
            known.touched
        });
        self.tell_in_use(&used, steps);
    }

    /// Devices that could not be taken back are tried again at once.
    pub(super) fn try_devices_again(&mut self) {
        for failure in self
            .devices
            .values_mut()
            .filter_map(|it| it.failure.as_mut())
        {
            failure.again = Duration::ZERO;
        }
    }

    /// Everybody who may use a device is known.
    fn knows_all(&self) -> bool {
        self.sources_ready && matches!(self.survey, SurveyState::Done)
    }

    pub(super) fn devices_wake_at(&self) -> impl Iterator<Item = Duration> {
        let known_all = self.knows_all();
        let pausing =
            move |known: &&DeviceState| matches!(known.stand, Stand::Unknown) && known_all;
        let devices = self.devices.values().filter(pausing);
        devices.filter_map(|known| Some(known.failure.as_ref()?.again))
    }

    fn tell_in_use(&mut self, used: &BTreeSet<DeviceName>, steps: &mut Vec<Step>) {
        let volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        let wanted = volumes
            .filter_map(|volume| volume.wanted.as_deref())
            .filter(|volume| attach_required(volume))
            .filter_map(PodVolume::device);
        let staged = self.devices.iter().filter(|(_, known)| known.attached);
        let staged = staged.map(|(device, _)| device.clone());
        // what an earlier life said stays until it is known whether somebody uses it
        let known_all = self.knows_all();
        let kept = |device: &&DeviceName| {
            !known_all || used.contains(*device) || self.devices.contains_key(*device)
        };
        let before = self.told_in_use.iter().filter(kept).cloned();
        let in_use: BTreeSet<_> = wanted.chain(staged).chain(before).collect();
        if self.in_use.as_ref() != Some(&in_use) && (self.node_seen || !in_use.is_empty()) {
            steps.push(Step::InUse(in_use.clone()));
            self.in_use = Some(in_use);
        }
    }

    /// What a controller has yet to do for the volume.
    pub(super) fn attach_words(&self, volume: &PodVolume, device: &DeviceName) -> Option<Words> {
        if !attach_required(volume) {
            return None;
        }
        let name = volume.told_name();
        if !self.told_in_use.contains(device) {
            return Some(words::not_in_use(name, device));
        }
        let attached = self.attached.contains(device);
        (!attached).then(|| words::not_attached(name, device))
    }

    /// What a volume that has not begun waits for.
    pub(super) fn waits_for(&self, volume: &Arc<PodVolume>) -> Words {
        let (name, block) = (volume.told_name(), volume.source.is_block());
        let device = volume.device();
        let known = device.as_ref().and_then(|device| self.devices.get(device));
        match known.map(|known| &known.stand) {
            Some(Stand::Staging(since)) => {
                return words::under_way(Work::Stage, block, name, since.now);
            }
            Some(Stand::Unstaging(since)) => return words::waits_for_unstage(name, since.now),
            Some(Stand::Unknown | Stand::Staged) | None => {}
        }
        let attach = device.and_then(|device| self.attach_words(volume, &device));
        attach.unwrap_or_else(|| words::waits_for_others(name))
    }
}

/// A controller attaches the volume to the node.
fn attach_required(volume: &PodVolume) -> bool {
    match &volume.source {
        VolumeSource::Csi(csi) => csi.attach_required,
        _ => false,
    }
}
