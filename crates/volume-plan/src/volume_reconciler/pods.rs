//! Desired and actual volumes of each pod.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::EventType;
use windlass_types::{
    DeviceName, DiscoveredVolume, MountedVolume, MountedVolumes, PodExt, PodUid, ReadyVolumes,
    Reason, Retry, SharedPod, VolumesNotReady,
};

use super::attach_limit::Unattached;
use super::devices::DeviceReadiness;
use super::expansion::{self, DeviceSize};
use super::messages::{self, EventText, VolumeOperation};
use super::tear_down::PodTearDown;
use super::{
    ClockReading, Failure, HUNG_STEP_THRESHOLD, MAX_CONCURRENT_STEPS, RequestId, Step, StepError,
    VolumeKey, VolumeReconciler, VolumeWork,
};
use crate::volume_source::{PodVolume, PodVolumes, VolumeSource};

/// One pod.
#[derive(Debug, Default)]
pub(super) struct PodState {
    /// The pod, while its volumes are desired.
    pub(super) pod: Option<SharedPod>,
    /// Volume names of its spec.
    names: Vec<Name>,
    pub(super) volumes: BTreeMap<VolumeKey, VolumeState>,
    waiters: Vec<Waiter>,
    pub(super) tear_down: Option<PodTearDown>,
    /// A CSI driver failed to unmount a volume in the last tear-down.
    pub(super) driver_failed: bool,
    /// Failures as last reported to the pod, which waits for a change.
    reported: Option<Vec<EventText>>,
    /// The last reply listed a volume with a stale payload.
    reported_stale: bool,
    /// The pod was rejected because of the attach limit.
    pub(super) rejected: bool,
}

#[derive(Debug)]
struct Name {
    name: String,
    key: VolumeKey,
    read_only: bool,
}

/// Caller that waits for a reply until this monotonic time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) request: RequestId,
    pub(super) until: Duration,
}

/// One volume of a pod.
#[derive(Debug, Default)]
pub(super) struct VolumeState {
    pub(super) desired: Option<Arc<PodVolume>>,
    pub(super) next: NextOperation,
    /// The volume as last mounted.
    pub(super) mounted: Option<(Arc<PodVolume>, MountedVolume)>,
    /// The expansion has finished, with any result; the next sync may retry it.
    pub(super) expansion_tried: bool,
    /// A reply included the volume.
    is_in_use: bool,
    /// The last failed expansion, while the volume is set up again.
    expansion_failure: Option<Failure>,
    pub(super) device: Option<DeviceName>,
    /// It may exist on the disk.
    pub(super) on_disk: bool,
    /// Set while a controller has not attached it.
    pub(super) unattached: Option<Unattached>,
    pub(super) in_progress: Option<InProgress>,
    pub(super) failure: Option<Failure>,
}

/// Next operation of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NextOperation {
    /// The volume is as desired, or not desired.
    #[default]
    Nothing,
    Mount,
    Expand,
}

/// Step in progress.
#[derive(Clone, Debug)]
pub(super) struct InProgress {
    pub(super) work: VolumeOperation,
    pub(super) volume: Arc<PodVolume>,
    since: ClockReading,
    /// The step was reported as hung.
    reported: bool,
}

impl VolumeKey {
    fn from_volume(volume: &PodVolume) -> Self {
        match volume.source.plugin_dir() {
            Some(kind) => Self::at(volume.source.is_block(), kind, volume.dir_name()),
            None => Self(volume.name.clone()),
        }
    }

    pub(super) fn from_discovered(found: &DiscoveredVolume) -> Self {
        Self::at(found.block, &found.plugin_dir, &found.name)
    }

    pub(super) fn is_csi(&self) -> bool {
        self.0.split('/').nth(1) == Some("kubernetes.io~csi")
    }

    fn at(block: bool, kind: &str, name: &str) -> Self {
        let above = if block { "volumeDevices" } else { "volumes" };
        Self(format!("{above}/{kind}/{name}"))
    }
}

impl VolumeState {
    fn set_desired(&mut self, volume: &PodVolume) {
        if self.desired.as_deref() != Some(volume) {
            self.desired = Some(Arc::new(volume.clone()));
            self.device = volume.device();
            (self.failure, self.expansion_failure) = (None, None);
        } else if self.next == NextOperation::Expand {
            if self.is_in_use && self.in_progress.is_some() {
                // the next sync sets the volume up again
                return;
            }
            self.expansion_failure = self.failure.take();
        }
        self.expansion_tried = false;
        let mounted = self.mounted.as_ref().map(|(mounted, _)| &**mounted);
        // a driver may change an unchanged volume; an unavailable payload is reported again
        let again = matches!(
            volume.source,
            VolumeSource::Csi(_) | VolumeSource::PayloadUnavailable(..)
        );
        self.next = match mounted == Some(volume) && !again {
            true => NextOperation::Nothing,
            false => NextOperation::Mount,
        };
    }

    pub(super) fn mark_undesired(&mut self) {
        (self.desired, self.next, self.failure) = (None, NextOperation::Nothing, None);
        self.expansion_failure = None;
    }

    /// Resets the actual state before an unmount.
    pub(super) fn reset(&mut self) {
        (self.mounted, self.expansion_tried, self.is_in_use) = (None, false, false);
        if self.desired.is_some() {
            self.next = NextOperation::Mount;
        }
    }

    /// Returns the volume if its next operation can start.
    fn startable(&self, now: ClockReading) -> Option<&Arc<PodVolume>> {
        if self.next == NextOperation::Nothing
            || self.in_progress.is_some()
            || self.is_backing_off(now)
        {
            return None;
        }
        self.desired.as_ref()
    }

    fn is_backing_off(&self, now: ClockReading) -> bool {
        self.failure
            .as_ref()
            .is_some_and(|f| f.not_before > now.monotonic)
    }

    /// Returns true before the first mount, without a step in progress.
    pub(super) fn waits_for_device(&self) -> bool {
        self.next == NextOperation::Mount && self.in_progress.is_none() && self.mounted.is_none()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    fn ready(&self) -> Option<&MountedVolume> {
        let is_settled = self.next == NextOperation::Nothing
            && self.in_progress.is_none()
            && self.failure.is_none();
        let ready = is_settled || self.is_only_expanding() || self.stale_payload().is_some();
        let (_, mounted) = self.mounted.as_ref().filter(|_| ready)?;
        Some(mounted)
    }

    /// Returns true if only an expansion is pending that containers do not wait for: the pod uses
    /// the volume, or another node has reported the new size (upstream: a mounted volume stays
    /// usable if its expansion fails, but a new one is not used before).
    pub(super) fn is_only_expanding(&self) -> bool {
        let is_reported =
            |volume: &PodVolume| volume.size().is_some_and(|s| s.reported >= s.desired);
        self.next == NextOperation::Expand
            && (self.is_in_use || self.desired.as_deref().is_some_and(is_reported))
    }

    /// Returns why a mounted payload is stale. The pod keeps the volume (upstream: it stays
    /// mounted, only the remount fails).
    fn stale_payload(&self) -> Option<&Failure> {
        let desired = self.desired.as_ref()?;
        let has_payload = desired.source.has_payload() && self.mounted.is_some();
        self.failure.as_ref().filter(|_| has_payload)
    }

    /// Returns true if the payload is unavailable and an older one is mounted.
    fn is_payload_unavailable(&self) -> bool {
        let desired = self.desired.as_ref().map(|desired| &desired.source);
        matches!(desired, Some(VolumeSource::PayloadUnavailable(..))) && self.mounted.is_some()
    }

    /// Returns the failure that blocks the pod.
    fn blocked_by(&self) -> Option<&Failure> {
        let is_waiting = !self.is_only_expanding() && self.stale_payload().is_none();
        self.failure.as_ref().filter(|_| is_waiting)
    }

    /// Handles the success of a step for `volume`, whose device has this size.
    pub(super) fn succeeded(&mut self, volume: &PodVolume, size: DeviceSize) {
        self.failure = None;
        let Some(desired) = &self.desired else {
            return;
        };
        self.next = if **desired != *volume {
            NextOperation::Mount
        } else if !self.expansion_tried && size.needs_expansion(desired) {
            self.failure = self.expansion_failure.take();
            NextOperation::Expand
        } else {
            NextOperation::Nothing
        };
    }

    /// Handles a failure; it is dropped if the volume is not desired.
    pub(super) fn failed(
        &mut self,
        pod: Option<&SharedPod>,
        text: EventText,
        retry: Retry,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let Some(pod) = pod.filter(|_| self.desired.is_some()) else {
            return;
        };
        steps.push(Step::Record(
            SharedPod::clone(pod),
            EventType::Warning,
            text.reason,
            text.message.clone(),
        ));
        self.failure = Some(Failure::after(self.failure.as_ref(), text, retry, now));
    }
}

impl PodState {
    /// Returns true if the state can be removed.
    pub(super) fn is_idle(&self) -> bool {
        self.pod.is_none() && self.tear_down.is_none() && self.volumes.is_empty()
    }

    pub(super) fn has_step_in_progress(&self) -> bool {
        self.volumes.values().any(|v| v.in_progress.is_some())
    }

    /// Returns the texts of the steps in progress.
    pub(super) fn in_progress(&self) -> Vec<EventText> {
        let volumes = self.volumes.values();
        volumes
            .filter_map(|v| v.in_progress.as_ref())
            .map(InProgress::text)
            .collect()
    }

    /// Returns the monotonic time of the next timer.
    pub(super) fn next_wake_up(&self) -> Option<Duration> {
        let set_ups = self.waiters.iter().map(|waiter| waiter.until);
        let tear_down = self.tear_down.as_ref().and_then(PodTearDown::next_wake_up);
        let volumes = self.volumes.values().filter_map(|volume| {
            if let Some(in_progress) = &volume.in_progress {
                return (!in_progress.reported)
                    .then_some(in_progress.since.monotonic + HUNG_STEP_THRESHOLD);
            }
            let is_waiting = volume.next != NextOperation::Nothing && self.tear_down.is_none();
            // the next sync resolves the payload
            let is_waiting = is_waiting && !volume.is_payload_unavailable();
            let failure = volume
                .failure
                .as_ref()
                .filter(|f| is_waiting && !f.is_expired)?;
            Some(failure.not_before)
        });
        volumes.chain(set_ups).chain(tear_down).min()
    }

    fn ready(&self) -> Option<ReadyVolumes> {
        let mounted = self.names.iter().map(|name| {
            let mut mounted = self.volumes.get(&name.key)?.ready()?.clone();
            mounted.read_only |= name.read_only;
            Some((name.name.clone(), mounted))
        });
        let mounted: Option<MountedVolumes> = mounted.collect();
        let kept = self.volumes.values().filter_map(VolumeState::stale_payload);
        Some(ReadyVolumes {
            mounted: Arc::new(mounted?),
            kept: kept.map(|failure| failure.text.message.clone()).collect(),
        })
    }

    /// Returns the sorted names of the volumes for which `is` holds.
    pub(super) fn names_of(&self, is: impl Fn(&VolumeState) -> bool) -> Vec<String> {
        let of = |name: &&Name| self.volumes.get(&name.key).is_some_and(&is);
        let names = self.names.iter().filter(of);
        let mut names: Vec<_> = names.map(|name| name.name.clone()).collect();
        names.sort();
        names
    }

    /// Returns the texts of all blocking failures.
    fn failures(&self) -> Vec<EventText> {
        let failures = self.volumes.values().filter_map(VolumeState::blocked_by);
        failures.map(|failure| failure.text.clone()).collect()
    }
}

impl InProgress {
    fn text(&self) -> EventText {
        let volume = &self.volume;
        let block = volume.source.is_block();
        messages::in_progress(self.work, block, volume.display_name(), self.since.wall)
    }
}

impl VolumeReconciler {
    pub(super) fn set_up(&mut self, waiter: Waiter, pod: SharedPod, volumes: &PodVolumes) {
        let state = self.pods.entry(pod.uid()).or_default();
        state.pod = Some(pod);
        state.waiters.push(waiter);
        state.names.clear();
        let mut chosen = BTreeMap::<VolumeKey, &PodVolume>::new();
        for volume in volumes {
            let key = VolumeKey::from_volume(volume);
            state.names.push(Name {
                name: volume.name.clone(),
                key: key.clone(),
                read_only: volume.read_only,
            });
            // of two names of one PVC the writable one is set up
            let other = chosen.entry(key).or_insert(volume);
            if other.read_only && !volume.read_only {
                *other = volume;
            }
        }
        for (key, volume) in chosen {
            state.volumes.entry(key).or_default().set_desired(volume);
        }
    }

    /// Adds the device users of the previous agent run. Other volumes are discovered at tear-down.
    pub(super) fn add_reconstructed_users(&mut self, uid: &PodUid, volumes: Vec<DiscoveredVolume>) {
        for found in volumes {
            let Some(device) = found.device.clone() else {
                continue;
            };
            let state = self.pods.entry(uid.clone()).or_default();
            let key = VolumeKey::from_discovered(&found);
            let volume = state.volumes.entry(key).or_default();
            volume.on_disk = true;
            volume.device.get_or_insert(device);
        }
    }

    /// Marks the volumes of a pod as not desired and replies to its waiters.
    pub(super) fn mark_undesired(&mut self, uid: &PodUid, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        (state.pod, state.reported, state.reported_stale) = (None, None, false);
        state.names.clear();
        state
            .volumes
            .values_mut()
            .for_each(VolumeState::mark_undesired);
        for waiter in state.waiters.drain(..) {
            let text = "the pod's volumes are being torn down";
            steps.push(Step::ReplySetUp(
                waiter.request,
                Err(not_ready(text.to_owned())),
            ));
        }
    }

    pub(super) fn mounted(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<MountedVolume, StepError>,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let size = self.device_size(uid, key);
        let Some((pod, volume, target)) = self.take_step_in_progress(uid, key) else {
            return;
        };
        match result {
            Ok(mounted) => {
                if let Some(pod) = pod.filter(|_| volume.mounted.is_none()) {
                    expansion::report_read_only(pod, &target, steps);
                }
                volume.mounted = Some((Arc::clone(&target), mounted));
                volume.succeeded(&target, size);
                if volume.is_payload_unavailable() {
                    // mounted by the previous agent run
                    volume.next = NextOperation::Mount;
                }
            }
            Err(error) => {
                let text = messages::step_failed(VolumeOperation::Mount, &target, &error);
                volume.failed(pod, text, error.retry, now, steps);
            }
        }
    }

    /// Handles a failed stage: all volumes that wait for the device fail.
    pub(super) fn not_staged(
        &mut self,
        device: &DeviceName,
        error: &StepError,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        for state in self.pods.values_mut() {
            let pod = state.pod.as_ref();
            let volumes = state.volumes.values_mut();
            let of_device = volumes.filter(|v| v.device.as_ref() == Some(device));
            for volume in of_device {
                let is_waiting =
                    volume.next == NextOperation::Mount && volume.in_progress.is_none();
                let Some(desired) = volume.desired.clone().filter(|_| is_waiting) else {
                    continue;
                };
                let text = messages::step_failed(VolumeOperation::Stage, &desired, error);
                volume.failed(pod, text, error.retry, now, steps);
            }
        }
    }

    /// Retries volumes that another pod used exclusively.
    pub(super) fn retry_blocked_pods(&mut self) {
        let volumes = self
            .pods
            .values_mut()
            .flat_map(|pod| pod.volumes.values_mut());
        for failure in volumes.filter_map(|v| v.failure.as_mut()) {
            if failure.text.message.ends_with(messages::ONE_POD) {
                (failure.not_before, failure.is_expired) = (Duration::ZERO, false);
            }
        }
    }

    /// Retries failed CSI volumes immediately, and requeues pods with a failed tear-down.
    pub(super) fn retry_csi_volumes(&mut self, steps: &mut Vec<Step>) {
        for (uid, state) in &mut self.pods {
            if std::mem::take(&mut state.driver_failed) {
                steps.push(Step::RequeuePod(uid.clone()));
            }
        }
        let volumes = self.pods.values_mut().flat_map(|pod| &mut pod.volumes);
        let of_drivers = volumes.filter(|(key, _)| key.is_csi());
        for failure in of_drivers.filter_map(|(_, volume)| volume.failure.as_mut()) {
            (failure.not_before, failure.is_expired) = (Duration::ZERO, false);
        }
        self.retry_devices();
    }

    /// Starts possible steps and sends possible replies.
    pub(super) fn advance_pods(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        let uids: Vec<_> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.advance_tear_down(&uid, now, steps);
            self.report_unavailable_payloads(&uid, now, steps);
            self.start_steps(&uid, now, steps);
            self.report_hung_steps(&uid, now, steps);
            self.reply(&uid, now, steps);
        }
    }

    /// Reports an unavailable payload of a mounted volume as a failed mount; the volume stays.
    fn report_unavailable_payloads(
        &mut self,
        uid: &PodUid,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let pod = state.pod.as_ref().filter(|_| state.tear_down.is_none());
        for volume in state
            .volumes
            .values_mut()
            .filter(|v| v.is_payload_unavailable())
        {
            let Some(desired) = volume.startable(now).cloned() else {
                continue;
            };
            if let VolumeSource::PayloadUnavailable(_, cause) = &desired.source {
                let text = messages::failed(VolumeOperation::Mount, &desired, cause);
                volume.next = NextOperation::Nothing;
                volume.failed(pod, text, Retry::Later, now, steps);
            }
        }
    }

    fn start_steps(&mut self, uid: &PodUid, now: ClockReading, steps: &mut Vec<Step>) {
        let others = || self.pods.iter().filter(|(other, _)| *other != uid);
        if mutated(Mutation::HungMountBlocksAll) && others().any(|it| it.1.has_step_in_progress()) {
            return;
        }
        let Some(state) = self.pods.get(uid) else {
            return;
        };
        let Some(pod) = state.pod.clone().filter(|_| state.tear_down.is_none()) else {
            return;
        };
        let in_progress = state.volumes.values().filter(|v| v.in_progress.is_some());
        let mut room = MAX_CONCURRENT_STEPS.saturating_sub(in_progress.count());
        let startable = |(key, volume): (&VolumeKey, &VolumeState)| {
            Some((key.clone(), Arc::clone(volume.startable(now)?), volume.next))
        };
        let due: Vec<_> = state.volumes.iter().filter_map(startable).collect();
        for (key, volume, due) in due {
            if due == NextOperation::Expand && self.is_expansion_pending(uid, &key, &volume) {
                continue;
            }
            let work = VolumeWork {
                pod: SharedPod::clone(&pod),
                key: key.clone(),
                volume: Arc::clone(&volume),
            };
            let is_taken = self.is_used_by_other_pod(uid, &volume);
            let readiness = match room > 0 && !is_taken {
                true => self.ensure_staged(&work, now, steps),
                false => DeviceReadiness::NotReady,
            };
            let rejected = self.size_of_device(&volume).rejected;
            let state = self.pods.get_mut(uid).and_then(|s| s.volumes.get_mut(&key));
            let Some(state) = state else {
                continue;
            };
            if is_taken {
                let text = messages::failed(VolumeOperation::Mount, &volume, messages::ONE_POD);
                state.failed(Some(&pod), text, Retry::Later, now, steps);
            } else if readiness == DeviceReadiness::Ready {
                room -= 1;
                state.on_disk = true;
                let (step, work) = match due {
                    NextOperation::Expand => {
                        (Step::Expand(work, rejected), state.expansion_operation())
                    }
                    NextOperation::Mount | NextOperation::Nothing => {
                        (Step::Mount(work), VolumeOperation::Mount)
                    }
                };
                state.in_progress = Some(InProgress {
                    work,
                    volume,
                    since: now,
                    reported: false,
                });
                steps.push(step);
            } else if let Some(failure) = &mut state.failure {
                failure.is_expired = true;
            }
        }
    }

    /// Returns true for a `ReadWriteOncePod` volume that another pod uses.
    fn is_used_by_other_pod(&self, uid: &PodUid, volume: &PodVolume) -> bool {
        let exclusive = volume.pvc.as_ref().is_some_and(|pvc| pvc.exclusive);
        let Some(device) = volume.device().filter(|_| exclusive) else {
            return false;
        };
        let others = self.pods.iter().filter(|(other, _)| *other != uid);
        let mut volumes = others.flat_map(|(_, state)| state.volumes.values());
        volumes.any(|v| v.on_disk && v.device.as_ref() == Some(&device))
    }

    fn report_hung_steps(&mut self, uid: &PodUid, now: ClockReading, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        for volume in state.volumes.values_mut() {
            let Some(step) = &mut volume.in_progress else {
                continue;
            };
            if step.reported || now.monotonic < step.since.monotonic + HUNG_STEP_THRESHOLD {
                continue;
            }
            step.reported = true;
            if let Some(pod) = &state.pod {
                let text = messages::hung(step.work, &step.volume, HUNG_STEP_THRESHOLD);
                let pod = SharedPod::clone(pod);
                let (warning, reason) = (EventType::Warning, text.reason);
                steps.push(Step::Record(pod, warning, reason, text.message));
            }
        }
    }

    fn reply(&mut self, uid: &PodUid, now: ClockReading, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get(uid) else {
            return;
        };
        if state.waiters.is_empty() && state.reported.is_none() && !state.reported_stale {
            return;
        }
        if let Some(ready) = state.ready().filter(|_| state.tear_down.is_none()) {
            if let Some(state) = self.pods.get_mut(uid) {
                state.volumes.values_mut().for_each(|v| v.is_in_use = true);
                let renewed = state.reported_stale && ready.kept.is_empty();
                let renewed = renewed && state.waiters.is_empty();
                if !state.waiters.is_empty() || renewed {
                    state.reported_stale = !ready.kept.is_empty();
                }
                for waiter in state.waiters.drain(..) {
                    steps.push(Step::ReplySetUp(waiter.request, Ok(ready.clone())));
                }
                if state.reported.take().is_some() || renewed {
                    steps.push(Step::RequeuePod(uid.clone()));
                }
            }
            return;
        }
        let failures = state.failures();
        let blocked =
            |volume: &VolumeState| volume.is_backing_off(now) && volume.blocked_by().is_some();
        let failed = state.volumes.values().any(blocked);
        let may_wait = |waiter: &Waiter| !failed && waiter.until > now.monotonic;
        if state.waiters.iter().any(|waiter| !may_wait(waiter)) {
            let error = self.not_ready(state, now);
            if let Some(state) = self.pods.get_mut(uid) {
                for waiter in state.waiters.extract_if(.., |waiter| !may_wait(waiter)) {
                    steps.push(Step::ReplySetUp(waiter.request, Err(error.clone())));
                }
                let before = state.reported.replace(failures);
                // failures were recorded as events already
                if let Some(pod) = state.pod.as_ref().filter(|_| !failed && before.is_none()) {
                    let text = format!("Unable to attach or mount volumes: {}", error.message);
                    let pod = SharedPod::clone(pod);
                    let (warning, reason) = (EventType::Warning, error.reason);
                    steps.push(Step::Record(pod, warning, reason, text));
                }
            }
            return;
        }
        // waiters get the failure as their reply
        let changed =
            state.waiters.is_empty() && failed && state.reported.as_ref() != Some(&failures);
        if let Some(state) = self.pods.get_mut(uid).filter(|_| changed) {
            state.reported = Some(failures);
            steps.push(Step::RequeuePod(uid.clone()));
        }
    }

    /// Returns the failures or, if there are none, the cause of the delay.
    fn not_ready(&self, state: &PodState, now: ClockReading) -> VolumesNotReady {
        let failures: Vec<_> = state
            .volumes
            .values()
            .filter_map(VolumeState::blocked_by)
            .collect();
        if let Some(text) = messages::joined(failures.iter().map(|failure| &failure.text)) {
            let pauses = failures
                .iter()
                .filter(|failure| failure.not_before > now.monotonic);
            return VolumesNotReady {
                reason: text.reason,
                message: text.message,
                retry: failures
                    .iter()
                    .map(|f| f.retry)
                    .min()
                    .unwrap_or(Retry::Later),
                retry_at: pauses.map(|failure| failure.retry_at(now)).min(),
            };
        }
        let waited_for = state.volumes.values().filter(|v| !v.is_only_expanding());
        let causes = waited_for.filter_map(|volume| {
            if let Some(in_progress) = &volume.in_progress {
                return Some(in_progress.text());
            }
            let is_waiting = volume.next != NextOperation::Nothing && state.tear_down.is_none();
            Some(self.waiting_for(volume.desired.as_ref().filter(|_| is_waiting)?))
        });
        let causes: Vec<_> = causes.collect();
        let text = messages::joined(&causes);
        let text = text.unwrap_or_else(|| EventText {
            reason: Reason::FailedMount,
            message: "the pod's previous volumes are being torn down".to_owned(),
        });
        VolumesNotReady {
            reason: text.reason,
            ..not_ready(text.message)
        }
    }

    /// Removes the step in progress; returns the pod, the volume state and the volume of the step.
    pub(super) fn take_step_in_progress(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
    ) -> Option<(Option<&SharedPod>, &mut VolumeState, Arc<PodVolume>)> {
        let state = self.pods.get_mut(uid)?;
        let volume = state.volumes.get_mut(key)?;
        let in_progress = volume.in_progress.take()?;
        Some((state.pod.as_ref(), volume, in_progress.volume))
    }
}

/// Creates the error of volumes that are not ready yet.
pub(super) fn not_ready(message: String) -> VolumesNotReady {
    VolumesNotReady {
        reason: Reason::FailedMount,
        message,
        retry: Retry::Later,
        retry_at: None,
    }
}
