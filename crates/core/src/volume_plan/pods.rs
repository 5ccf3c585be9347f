//! What single pods want and have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::view::EventType;
use windlass_types::{
    DeviceName, FoundVolume, MountedVolume, MountedVolumes, PodExt, PodUid, Reason, Retry,
    SharedPod, VolumesNotReady,
};

use super::devices::Gate;
use super::release::Release;
use super::words::{self, Words, Work};
use super::{
    AskId, Failure, Moment, OVERDUE, STEPS_OF_A_POD, Step, StepError, VolumeKey, VolumePlan,
    VolumeWork,
};
use crate::volume_source::{PodVolume, PodVolumes, VolumeSource};

/// One pod.
#[derive(Debug, Default)]
pub(super) struct PodState {
    /// The pod, while it is to have volumes.
    pub(super) pod: Option<SharedPod>,
    /// Its volumes by the names that it gave them.
    names: Vec<Name>,
    pub(super) volumes: BTreeMap<VolumeKey, VolumeState>,
    askers: Vec<Asker>,
    pub(super) release: Option<Release>,
    /// The failures that the pod heard of last; it waits to hear more.
    told: Option<Vec<Words>>,
}

#[derive(Debug)]
struct Name {
    name: String,
    key: VolumeKey,
    read_only: bool,
}

/// Somebody who waits for an answer until this uptime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) ask: AskId,
    pub(super) until: Duration,
}

/// One volume of a pod.
#[derive(Debug, Default)]
pub(super) struct VolumeState {
    /// What the pod is to have.
    pub(super) wanted: Option<Arc<PodVolume>>,
    due: Due,
    /// As it was set up last.
    shown: Option<(Arc<PodVolume>, MountedVolume)>,
    /// The size in bytes that it was grown to, or that its driver refused for good.
    grown: u64,
    /// The pod was told that it has it.
    given: bool,
    /// The last failure to grow it, while it is set up again.
    not_grown: Option<Failure>,
    pub(super) device: Option<DeviceName>,
    /// It may lie on the disk.
    pub(super) on_disk: bool,
    under_way: Option<UnderWay>,
    failure: Option<Failure>,
}

/// What is next for a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Due {
    /// It is as it should be, or nobody wants it.
    #[default]
    Nothing,
    /// To be set up, perhaps again.
    Mount,
    /// To be grown.
    Expand,
}

/// A step that has not ended.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    work: Work,
    volume: Arc<PodVolume>,
    since: Moment,
    /// It was told that it does not end.
    told: bool,
}

impl VolumeKey {
    fn of(volume: &PodVolume) -> Self {
        match volume.source.plugin_dir() {
            Some(kind) => Self::at(volume.source.is_block(), kind, volume.dir_name()),
            None => Self(volume.name.clone()),
        }
    }

    pub(super) fn of_found(found: &FoundVolume) -> Self {
        Self::at(found.block, &found.plugin_dir, &found.name)
    }

    fn is_csi(&self) -> bool {
        self.0.split('/').nth(1) == Some("kubernetes.io~csi")
    }

    fn at(block: bool, kind: &str, name: &str) -> Self {
        let above = if block { "volumeDevices" } else { "volumes" };
        Self(format!("{above}/{kind}/{name}"))
    }
}

impl VolumeState {
    fn ask(&mut self, volume: &PodVolume) {
        if self.wanted.as_deref() != Some(volume) {
            self.wanted = Some(Arc::new(volume.clone()));
            self.device = volume.device();
            (self.failure, self.not_grown) = (None, None);
        } else if self.due == Due::Expand {
            if self.given && self.under_way.is_some() {
                // the next sync sets it up again
                return;
            }
            self.not_grown = self.failure.take();
        }
        let shown = self.shown.as_ref().map(|(shown, _)| &**shown);
        // a driver may have to be asked again although nothing changed
        let again = matches!(volume.source, VolumeSource::Csi(_));
        self.due = match shown == Some(volume) && !again {
            true => Due::Nothing,
            false => Due::Mount,
        };
    }

    /// The pod is to lose it.
    pub(super) fn forsake(&mut self) {
        (self.wanted, self.due, self.failure) = (None, Due::Nothing, None);
        self.not_grown = None;
    }

    /// It is about to be taken away: what was shown counts no longer.
    pub(super) fn lost(&mut self) {
        (self.shown, self.grown, self.given) = (None, 0, false);
        if self.wanted.is_some() {
            self.due = Due::Mount;
        }
    }

    /// What may be begun at this moment.
    fn begins(&self, at: Moment) -> Option<&Arc<PodVolume>> {
        if self.due == Due::Nothing || self.under_way.is_some() || self.pauses(at) {
            return None;
        }
        self.wanted.as_ref()
    }

    fn pauses(&self, at: Moment) -> bool {
        self.failure.as_ref().is_some_and(|f| f.again > at.uptime)
    }

    fn ready(&self) -> Option<&MountedVolume> {
        let settled =
            self.due == Due::Nothing && self.under_way.is_none() && self.failure.is_none();
        let ready = settled || self.only_grows();
        let (_, shown) = self.shown.as_ref().filter(|_| ready)?;
        Some(shown)
    }

    /// The pod has it, and its containers may come back whatever becomes of its growth (upstream: a
    /// volume stays mounted whose expansion fails, but one that is new is not used before).
    fn only_grows(&self) -> bool {
        self.given && self.due == Due::Expand
    }

    /// Why the pod has to wait.
    fn blocked_by(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| !self.only_grows())
    }

    /// A step ended well, and showed `volume` as it is.
    fn succeeded(&mut self, volume: &PodVolume) {
        self.failure = None;
        let Some(wanted) = &self.wanted else {
            return;
        };
        self.due = if **wanted != *volume {
            Due::Mount
        } else if size_to_reach(wanted).is_some_and(|size| size > self.grown) {
            self.failure = self.not_grown.take();
            Due::Expand
        } else {
            Due::Nothing
        };
    }

    /// A try failed; nobody is told who does not want it any more.
    fn failed(
        &mut self,
        pod: Option<&SharedPod>,
        words: Words,
        retry: Retry,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let Some(pod) = pod.filter(|_| self.wanted.is_some()) else {
            return;
        };
        steps.push(Step::Record(
            SharedPod::clone(pod),
            EventType::Warning,
            words.reason,
            words.message.clone(),
        ));
        self.failure = Some(Failure::after(self.failure.as_ref(), words, retry, at));
    }
}

impl PodState {
    /// Nobody wants anything of it, and nothing is left of it.
    pub(super) fn is_idle(&self) -> bool {
        self.pod.is_none() && self.release.is_none() && self.volumes.is_empty()
    }

    pub(super) fn busy(&self) -> bool {
        self.volumes.values().any(|v| v.under_way.is_some())
    }

    /// What is under way, for who waits for its end.
    pub(super) fn under_way(&self) -> Vec<Words> {
        let volumes = self.volumes.values();
        volumes
            .filter_map(|v| v.under_way.as_ref())
            .map(UnderWay::words)
            .collect()
    }

    /// When it has to be looked at again although nothing happened.
    pub(super) fn wakes_at(&self) -> Option<Duration> {
        let asked = self.askers.iter().map(|asker| asker.until);
        let released = self.release.as_ref().and_then(Release::wakes_at);
        let volumes = self.volumes.values().filter_map(|volume| {
            if let Some(under_way) = &volume.under_way {
                return (!under_way.told).then_some(under_way.since.uptime + OVERDUE);
            }
            // while it waits for something else than time, the end of its pause has passed
            let waits = volume.due != Due::Nothing && self.release.is_none();
            let failure = volume.failure.as_ref().filter(|f| waits && !f.over)?;
            Some(failure.again)
        });
        volumes.chain(asked).chain(released).min()
    }

    fn ready(&self) -> Option<MountedVolumes> {
        let mounted = self.names.iter().map(|name| {
            let mut mounted = self.volumes.get(&name.key)?.ready()?.clone();
            mounted.read_only |= name.read_only;
            Some((name.name.clone(), mounted))
        });
        mounted.collect()
    }

    /// All that failed.
    fn failures(&self) -> Vec<Words> {
        let failures = self.volumes.values().filter_map(VolumeState::blocked_by);
        failures.map(|failure| failure.words.clone()).collect()
    }
}

impl UnderWay {
    fn words(&self) -> Words {
        let volume = &self.volume;
        let block = volume.source.is_block();
        words::under_way(self.work, block, volume.told_name(), self.since.now)
    }
}

impl VolumePlan {
    pub(super) fn asked(&mut self, asker: Asker, pod: SharedPod, volumes: &PodVolumes) {
        let state = self.pods.entry(pod.uid()).or_default();
        state.pod = Some(pod);
        state.askers.push(asker);
        state.names.clear();
        let mut chosen = BTreeMap::<VolumeKey, &PodVolume>::new();
        for volume in volumes {
            let key = VolumeKey::of(volume);
            state.names.push(Name {
                name: volume.name.clone(),
                key: key.clone(),
                read_only: volume.read_only,
            });
            // of two names of one claim the one that may write is set up
            let other = chosen.entry(key).or_insert(volume);
            if other.read_only && !volume.read_only {
                *other = volume;
            }
        }
        for (key, volume) in chosen {
            state.volumes.entry(key).or_default().ask(volume);
        }
    }

    /// An earlier life left these volumes to a pod. Only who uses devices matters: what a pod is to
    /// lose is looked up when it does.
    pub(super) fn found_on_disk(&mut self, uid: &PodUid, volumes: Vec<FoundVolume>) {
        for found in volumes {
            let Some(device) = found.device.clone() else {
                continue;
            };
            let state = self.pods.entry(uid.clone()).or_default();
            let key = VolumeKey::of_found(&found);
            let volume = state.volumes.entry(key).or_default();
            volume.on_disk = true;
            volume.device.get_or_insert(device);
        }
    }

    /// Nobody waits for volumes of this pod any more: it is to lose them.
    pub(super) fn forsake(&mut self, uid: &PodUid, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        (state.pod, state.told) = (None, None);
        state.names.clear();
        state.volumes.values_mut().for_each(VolumeState::forsake);
        for asker in state.askers.drain(..) {
            let words = "the pod's volumes are being released";
            steps.push(Step::Ready(asker.ask, Err(not_ready(words.to_owned()))));
        }
    }

    pub(super) fn mounted(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<MountedVolume, StepError>,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let Some((pod, volume, asked)) = self.ended(uid, key) else {
            return;
        };
        match result {
            Ok(mounted) => {
                volume.shown = Some((Arc::clone(&asked), mounted));
                volume.succeeded(&asked);
            }
            Err(error) => {
                let words = words::step_failed(Work::Mount, &asked, &error);
                volume.failed(pod, words, error.retry, at, steps);
            }
        }
    }

    pub(super) fn expanded(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<Option<u64>, StepError>,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let Some((pod, volume, asked)) = self.ended(uid, key) else {
            return;
        };
        match result {
            Ok(size) => {
                volume.grown = size_to_reach(&asked).unwrap_or_default();
                volume.succeeded(&asked);
                if let (Some(_), Some(pod)) = (size, pod) {
                    let name = asked.told_name();
                    steps.push(Step::Record(
                        SharedPod::clone(pod),
                        EventType::Normal,
                        Reason::FileSystemResizeSuccessful,
                        format!("MountVolume.NodeExpandVolume succeeded for volume {name:?}"),
                    ));
                }
            }
            Err(error) => {
                let words = words::step_failed(Work::Expand, &asked, &error);
                volume.failed(pod, words, error.retry, at, steps);
                if error.retry == Retry::Never {
                    // the pod has what there is, as upstream after it has marked the claim
                    volume.grown = size_to_reach(&asked).unwrap_or_default();
                    volume.succeeded(&asked);
                }
            }
        }
    }

    /// A device could not be staged: whoever waits for it has failed with it.
    pub(super) fn not_staged(
        &mut self,
        device: &DeviceName,
        error: &StepError,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        for state in self.pods.values_mut() {
            let pod = state.pod.as_ref();
            let volumes = state.volumes.values_mut();
            let of_device = volumes.filter(|v| v.device.as_ref() == Some(device));
            for volume in of_device {
                let waits = volume.due == Due::Mount && volume.under_way.is_none();
                let Some(wanted) = volume.wanted.clone().filter(|_| waits) else {
                    continue;
                };
                let words = words::step_failed(Work::Stage, &wanted, error);
                volume.failed(pod, words, error.retry, at, steps);
            }
        }
    }

    /// A pod has let go of something that one pod at a time may have.
    pub(super) fn end_pauses_for_others(&mut self) {
        let volumes = self
            .pods
            .values_mut()
            .flat_map(|pod| pod.volumes.values_mut());
        for failure in volumes.filter_map(|v| v.failure.as_mut()) {
            if failure.words.message.ends_with(words::ONE_POD) {
                (failure.again, failure.over) = (Duration::ZERO, false);
            }
        }
    }

    /// What a CSI driver may do now is tried at once; a release that failed is tried again by who
    /// asked for it.
    pub(super) fn end_pauses_for_drivers(&mut self) {
        let volumes = self.pods.values_mut().flat_map(|pod| &mut pod.volumes);
        let of_drivers = volumes.filter(|(key, _)| key.is_csi());
        for failure in of_drivers.filter_map(|(_, volume)| volume.failure.as_mut()) {
            (failure.again, failure.over) = (Duration::ZERO, false);
        }
        self.try_devices_again();
    }

    /// Begins what can be begun and answers who can be answered.
    pub(super) fn advance_pods(&mut self, at: Moment, steps: &mut Vec<Step>) {
        let uids: Vec<_> = self.pods.keys().cloned().collect();
        for uid in uids {
            self.advance_release(&uid, at, steps);
            self.begin(&uid, at, steps);
            self.tell_overdue(&uid, at, steps);
            self.answer(&uid, at, steps);
        }
    }

    fn begin(&mut self, uid: &PodUid, at: Moment, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get(uid) else {
            return;
        };
        let Some(pod) = state.pod.clone().filter(|_| state.release.is_none()) else {
            return;
        };
        let under_way = state.volumes.values().filter(|v| v.under_way.is_some());
        let mut room = STEPS_OF_A_POD.saturating_sub(under_way.count());
        let begins = |(key, volume): (&VolumeKey, &VolumeState)| {
            Some((key.clone(), Arc::clone(volume.begins(at)?), volume.due))
        };
        let due: Vec<_> = state.volumes.iter().filter_map(begins).collect();
        for (key, volume, due) in due {
            let work = VolumeWork {
                pod: SharedPod::clone(&pod),
                key: key.clone(),
                volume: Arc::clone(&volume),
            };
            let taken = self.taken_by_another(uid, &volume);
            let gate = match room > 0 && !taken {
                true => self.pass(&work, at, steps),
                false => Gate::Shut,
            };
            let known = self.pods.get_mut(uid).and_then(|s| s.volumes.get_mut(&key));
            let Some(known) = known else {
                continue;
            };
            if taken {
                let words = words::failed(Work::Mount, &volume, words::ONE_POD);
                known.failed(Some(&pod), words, Retry::Later, at, steps);
            } else if gate == Gate::Open {
                room -= 1;
                known.on_disk = true;
                let (step, work) = match due {
                    Due::Expand => (Step::Expand(work), Work::Expand),
                    Due::Mount | Due::Nothing => (Step::Mount(work), Work::Mount),
                };
                known.under_way = Some(UnderWay {
                    work,
                    volume,
                    since: at,
                    told: false,
                });
                steps.push(step);
            } else if let Some(failure) = &mut known.failure {
                failure.over = true;
            }
        }
    }

    /// True if the volume is for one pod at a time, and another has it.
    fn taken_by_another(&self, uid: &PodUid, volume: &PodVolume) -> bool {
        let exclusive = volume.claim.as_ref().is_some_and(|claim| claim.exclusive);
        let Some(device) = volume.device().filter(|_| exclusive) else {
            return false;
        };
        let others = self.pods.iter().filter(|(other, _)| *other != uid);
        let mut volumes = others.flat_map(|(_, state)| state.volumes.values());
        volumes.any(|v| v.on_disk && v.device.as_ref() == Some(&device))
    }

    fn tell_overdue(&mut self, uid: &PodUid, at: Moment, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        for volume in state.volumes.values_mut() {
            let Some(step) = &mut volume.under_way else {
                continue;
            };
            if step.told || at.uptime < step.since.uptime + OVERDUE {
                continue;
            }
            step.told = true;
            if let Some(pod) = &state.pod {
                let words = words::overdue(step.work, &step.volume, OVERDUE);
                let pod = SharedPod::clone(pod);
                let (warning, reason) = (EventType::Warning, words.reason);
                steps.push(Step::Record(pod, warning, reason, words.message));
            }
        }
    }

    fn answer(&mut self, uid: &PodUid, at: Moment, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get(uid) else {
            return;
        };
        if state.askers.is_empty() && state.told.is_none() {
            return;
        }
        if let Some(mounted) = state.ready().filter(|_| state.release.is_none()) {
            let mounted = Arc::new(mounted);
            if let Some(state) = self.pods.get_mut(uid) {
                state.volumes.values_mut().for_each(|v| v.given = true);
                for asker in state.askers.drain(..) {
                    steps.push(Step::Ready(asker.ask, Ok(Arc::clone(&mounted))));
                }
                if state.told.take().is_some() {
                    steps.push(Step::Wake(uid.clone()));
                }
            }
            return;
        }
        let failures = state.failures();
        let blocked = |volume: &VolumeState| volume.pauses(at) && volume.blocked_by().is_some();
        let failed = state.volumes.values().any(blocked);
        let patient = |asker: &Asker| !failed && asker.until > at.uptime;
        if state.askers.iter().any(|asker| !patient(asker)) {
            let error = self.not_ready(state, at);
            if let Some(state) = self.pods.get_mut(uid) {
                for asker in state.askers.extract_if(.., |asker| !patient(asker)) {
                    steps.push(Step::Ready(asker.ask, Err(error.clone())));
                }
                let before = state.told.replace(failures);
                // a failed try was told as an event when it failed
                if let Some(pod) = state.pod.as_ref().filter(|_| !failed && before.is_none()) {
                    let text = format!("Unable to attach or mount volumes: {}", error.message);
                    let pod = SharedPod::clone(pod);
                    let (warning, reason) = (EventType::Warning, error.reason);
                    steps.push(Step::Record(pod, warning, reason, text));
                }
            }
            return;
        }
        // who waits hears it as an answer
        let news = state.askers.is_empty() && failed && state.told.as_ref() != Some(&failures);
        if let Some(state) = self.pods.get_mut(uid).filter(|_| news) {
            state.told = Some(failures);
            steps.push(Step::Wake(uid.clone()));
        }
    }

    /// What failed or, if nothing did, what is waited for.
    fn not_ready(&self, state: &PodState, at: Moment) -> VolumesNotReady {
        let failures: Vec<_> = state
            .volumes
            .values()
            .filter_map(VolumeState::blocked_by)
            .collect();
        if let Some(words) = words::joined(failures.iter().map(|failure| &failure.words)) {
            let pauses = failures.iter().filter(|failure| failure.again > at.uptime);
            return VolumesNotReady {
                reason: words.reason,
                message: words.message,
                retry: failures
                    .iter()
                    .map(|f| f.retry)
                    .min()
                    .unwrap_or(Retry::Later),
                retry_at: pauses.map(|failure| failure.retry_at(at)).min(),
            };
        }
        let waited_for = state.volumes.values().filter(|v| !v.only_grows());
        let waits = waited_for.filter_map(|volume| {
            if let Some(under_way) = &volume.under_way {
                return Some(under_way.words());
            }
            let waits = volume.due != Due::Nothing && state.release.is_none();
            Some(self.waits_for(volume.wanted.as_ref().filter(|_| waits)?))
        });
        let waits: Vec<_> = waits.collect();
        let words = words::joined(&waits);
        let words = words.unwrap_or_else(|| Words {
            reason: Reason::FailedMount,
            message: "the pod's former volumes are being released".to_owned(),
        });
        VolumesNotReady {
            reason: words.reason,
            ..not_ready(words.message)
        }
    }

    /// A step of a volume ended: its pod, the volume, and what was under way.
    fn ended(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
    ) -> Option<(Option<&SharedPod>, &mut VolumeState, Arc<PodVolume>)> {
        let state = self.pods.get_mut(uid)?;
        let volume = state.volumes.get_mut(key)?;
        let under_way = volume.under_way.take()?;
        Some((state.pod.as_ref(), volume, under_way.volume))
    }
}

/// Nothing failed, but it is not yet there.
pub(super) fn not_ready(message: String) -> VolumesNotReady {
    VolumesNotReady {
        reason: Reason::FailedMount,
        message,
        retry: Retry::Later,
        retry_at: None,
    }
}

/// The size in bytes that the node is to make of the volume, if it is not known to have it.
fn size_to_reach(volume: &PodVolume) -> Option<u64> {
    let VolumeSource::Csi(csi) = &volume.source else {
        return None;
    };
    let size = csi.size.as_ref()?;
    (size.wanted > size.known).then_some(size.wanted)
}
