//! What single pods want and have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::view::EventType;
use windlass_types::{
    DeviceName, DiscoveredVolume, MountedVolume, MountedVolumes, PodExt, PodUid, ReadyVolumes,
    Reason, Retry, SharedPod, VolumesNotReady,
};

use super::attach_limit::Unattached;
use super::devices::Gate;
use super::growth::{self, DeviceSize};
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
    /// A driver did not take a volume away when that was asked last.
    pub(super) kept_by_driver: bool,
    /// The failures that the pod heard of last; it waits to hear more.
    told: Option<Vec<Words>>,
    /// It was told last that a volume shows what it did before.
    told_kept: bool,
    /// The node has no room for it: it was told to end, which it is once.
    pub(super) rejected: bool,
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
    pub(super) due: Due,
    /// As it was set up last.
    pub(super) shown: Option<(Arc<PodVolume>, MountedVolume)>,
    /// Its growth has ended, whatever came of it; the next sync may begin it anew.
    pub(super) tried: bool,
    /// The pod was told that it has it.
    given: bool,
    /// The last failure to grow it, while it is set up again.
    not_grown: Option<Failure>,
    pub(super) device: Option<DeviceName>,
    /// It may lie on the disk.
    pub(super) on_disk: bool,
    /// It waits for a controller to attach it.
    pub(super) unattached: Option<Unattached>,
    pub(super) under_way: Option<UnderWay>,
    pub(super) failure: Option<Failure>,
}

/// What is next for a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Due {
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
    pub(super) work: Work,
    pub(super) volume: Arc<PodVolume>,
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

    pub(super) fn of_found(found: &DiscoveredVolume) -> Self {
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
        self.tried = false;
        let shown = self.shown.as_ref().map(|(shown, _)| &**shown);
        // a driver may have to be asked again although nothing changed, and what is lacking is told
        // again
        let again = matches!(
            volume.source,
            VolumeSource::Csi(_) | VolumeSource::Withheld(..)
        );
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
        (self.shown, self.tried, self.given) = (None, false, false);
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

    /// It has yet to be shown for the first time, and nothing of it is under way.
    pub(super) fn waits_for_device(&self) -> bool {
        self.due == Due::Mount && self.under_way.is_none() && self.shown.is_none()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    fn ready(&self) -> Option<&MountedVolume> {
        let settled =
            self.due == Due::Nothing && self.under_way.is_none() && self.failure.is_none();
        let ready = settled || self.only_grows() || self.keeps().is_some();
        let (_, shown) = self.shown.as_ref().filter(|_| ready)?;
        Some(shown)
    }

    /// The pod has it, or another node has told the claim's growth, and its containers may come and
    /// come back whatever becomes of its growth (upstream: a volume stays mounted whose expansion
    /// fails, but one that is new is not used before).
    pub(super) fn only_grows(&self) -> bool {
        let told = |volume: &PodVolume| volume.size().is_some_and(|s| s.known >= s.wanted);
        self.due == Due::Expand && (self.given || self.wanted.as_deref().is_some_and(told))
    }

    /// Why it shows what it did before and not what it should: files that cannot be had or written
    /// take nothing from a pod that has the volume (upstream: it stays mounted, only its remount
    /// fails).
    fn keeps(&self) -> Option<&Failure> {
        let wanted = self.wanted.as_ref()?;
        let shows_files = wanted.source.is_computed() && self.shown.is_some();
        self.failure.as_ref().filter(|_| shows_files)
    }

    /// What it shows cannot be renewed, and it shows something.
    fn is_withheld(&self) -> bool {
        let wanted = self.wanted.as_ref().map(|wanted| &wanted.source);
        matches!(wanted, Some(VolumeSource::Withheld(..))) && self.shown.is_some()
    }

    /// Why the pod has to wait.
    fn blocked_by(&self) -> Option<&Failure> {
        let waits = !self.only_grows() && self.keeps().is_none();
        self.failure.as_ref().filter(|_| waits)
    }

    /// A step ended well, and showed `volume`, on a device of this size, as it is.
    pub(super) fn succeeded(&mut self, volume: &PodVolume, size: DeviceSize) {
        self.failure = None;
        let Some(wanted) = &self.wanted else {
            return;
        };
        self.due = if **wanted != *volume {
            Due::Mount
        } else if !self.tried && size.is_to_grow(wanted) {
            self.failure = self.not_grown.take();
            Due::Expand
        } else {
            Due::Nothing
        };
    }

    /// A try failed; nobody is told who does not want it any more.
    pub(super) fn failed(
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
            // the next sync says whether there is something to show
            let waits = waits && !volume.is_withheld();
            let failure = volume.failure.as_ref().filter(|f| waits && !f.over)?;
            Some(failure.again)
        });
        volumes.chain(asked).chain(released).min()
    }

    fn ready(&self) -> Option<ReadyVolumes> {
        let mounted = self.names.iter().map(|name| {
            let mut mounted = self.volumes.get(&name.key)?.ready()?.clone();
            mounted.read_only |= name.read_only;
            Some((name.name.clone(), mounted))
        });
        let mounted: Option<MountedVolumes> = mounted.collect();
        let kept = self.volumes.values().filter_map(VolumeState::keeps);
        Some(ReadyVolumes {
            mounted: Arc::new(mounted?),
            kept: kept.map(|failure| failure.words.message.clone()).collect(),
        })
    }

    /// Volumes by the names that the pod gave them, sorted.
    pub(super) fn names_of(&self, is: impl Fn(&VolumeState) -> bool) -> Vec<String> {
        let of = |name: &&Name| self.volumes.get(&name.key).is_some_and(&is);
        let names = self.names.iter().filter(of);
        let mut names: Vec<_> = names.map(|name| name.name.clone()).collect();
        names.sort();
        names
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
    pub(super) fn found_on_disk(&mut self, uid: &PodUid, volumes: Vec<DiscoveredVolume>) {
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
        (state.pod, state.told, state.told_kept) = (None, None, false);
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
        let size = self.device_size(uid, key);
        let Some((pod, volume, asked)) = self.ended(uid, key) else {
            return;
        };
        match result {
            Ok(mounted) => {
                if let Some(pod) = pod.filter(|_| volume.shown.is_none()) {
                    growth::tell_read_only(pod, &asked, steps);
                }
                volume.shown = Some((Arc::clone(&asked), mounted));
                volume.succeeded(&asked, size);
                if volume.is_withheld() {
                    // it was found as an earlier life left it
                    volume.due = Due::Mount;
                }
            }
            Err(error) => {
                let words = words::step_failed(Work::Mount, &asked, &error);
                volume.failed(pod, words, error.retry, at, steps);
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

    /// What a CSI driver may do now is tried at once; a release that failed by who asked for it, who is
    /// woken.
    pub(super) fn end_pauses_for_drivers(&mut self, steps: &mut Vec<Step>) {
        for (uid, state) in &mut self.pods {
            if std::mem::take(&mut state.kept_by_driver) {
                steps.push(Step::Wake(uid.clone()));
            }
        }
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
            self.keep(&uid, at, steps);
            self.begin(&uid, at, steps);
            self.tell_overdue(&uid, at, steps);
            self.answer(&uid, at, steps);
        }
    }

    /// What a volume shows cannot be renewed: it stays, and that counts and is told as a mount that
    /// failed.
    fn keep(&mut self, uid: &PodUid, at: Moment, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let pod = state.pod.as_ref().filter(|_| state.release.is_none());
        for volume in state.volumes.values_mut().filter(|v| v.is_withheld()) {
            let Some(wanted) = volume.begins(at).cloned() else {
                continue;
            };
            if let VolumeSource::Withheld(_, why) = &wanted.source {
                let words = words::failed(Work::Mount, &wanted, why);
                volume.due = Due::Nothing;
                volume.failed(pod, words, Retry::Later, at, steps);
            }
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
            if due == Due::Expand && self.growth_waits(uid, &key, &volume) {
                continue;
            }
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
            let refused = self.size_of_device(&volume).refused;
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
                    Due::Expand => (Step::Expand(work, refused), known.growth_work()),
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
        if state.askers.is_empty() && state.told.is_none() && !state.told_kept {
            return;
        }
        if let Some(ready) = state.ready().filter(|_| state.release.is_none()) {
            if let Some(state) = self.pods.get_mut(uid) {
                state.volumes.values_mut().for_each(|v| v.given = true);
                let renewed = state.told_kept && ready.kept.is_empty();
                let renewed = renewed && state.askers.is_empty();
                if !state.askers.is_empty() || renewed {
                    state.told_kept = !ready.kept.is_empty();
                }
                for asker in state.askers.drain(..) {
                    steps.push(Step::Ready(asker.ask, Ok(ready.clone())));
                }
                if state.told.take().is_some() || renewed {
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
    pub(super) fn ended(
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
