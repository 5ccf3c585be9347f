//! Taking all volumes from a pod: what is under way ends, what lies on the disk is looked up, and
//! all of it goes.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_types::{DiscoveredVolume, PodUid, VolumesNotReady};

use super::pods::{Asker, VolumeState, not_ready};
use super::words::{self, Work};
use super::{
    AskId, Moment, RELEASE_PATIENCE, Releaser, STEPS_OF_A_POD, Step, StepError, SurveyState,
    VolumeKey, VolumePlan,
};

/// A release that is under way.
#[derive(Debug)]
pub(super) struct Release {
    askers: Vec<Asker>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// What is under way ends first.
    Waiting,
    /// Looking for what lies there.
    Finding,
    /// Everything that was found goes.
    Unmounting(BTreeMap<VolumeKey, Leaving>),
    /// It is over, like this.
    Over(Result<(), VolumesNotReady>),
}

/// A volume that is to go.
#[derive(Debug)]
struct Leaving {
    found: DiscoveredVolume,
    state: LeavingState,
}

#[derive(Debug)]
enum LeavingState {
    Waiting,
    UnderWay(Moment),
    Ended(Result<(), StepError>),
}

impl Release {
    pub(super) fn wakes_at(&self) -> Option<Duration> {
        self.askers.iter().map(|asker| asker.until).min()
    }
}

impl VolumePlan {
    pub(super) fn tear_down(
        &mut self,
        ask: AskId,
        uid: &PodUid,
        by: Releaser,
        at: Moment,
        steps: &mut Vec<Step>,
    ) {
        let wanted = self.pods.get(uid).is_some_and(|state| state.pod.is_some());
        if by == Releaser::Housekeeping && wanted {
            let message = "the pod is asked for again".to_owned();
            steps.push(Step::Released(ask, Err(not_ready(message))));
            return;
        }
        self.forsake(uid, steps);
        let state = self.pods.entry(uid.clone()).or_default();
        state.kept_by_driver = false;
        if state.busy() {
            // each time it is asked: what is under way may have gone on to what can be ended
            steps.push(Step::GiveUp(uid.clone()));
        }
        let release = state.release.get_or_insert(Release {
            askers: Vec::new(),
            stage: Stage::Waiting,
        });
        let until = at.uptime + RELEASE_PATIENCE;
        release.askers.push(Asker { ask, until });
    }

    pub(super) fn found(&mut self, uid: &PodUid, result: Result<Vec<DiscoveredVolume>, StepError>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(release) = &mut state.release else {
            return;
        };
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                let failed = VolumesNotReady {
                    retry: error.retry,
                    ..not_ready(error.message)
                };
                release.stage = Stage::Over(Err(failed));
                return;
            }
        };
        let mut leaving = BTreeMap::new();
        for found in found {
            let key = VolumeKey::of_found(&found);
            let volume = state.volumes.entry(key.clone()).or_default();
            volume.device = volume.device.take().or_else(|| found.device.clone());
            let state = LeavingState::Waiting;
            leaving.insert(key, Leaving { found, state });
        }
        // the disk has the last word on what is there
        for (key, volume) in &mut state.volumes {
            volume.lost();
            volume.on_disk = leaving.contains_key(key);
        }
        release.stage = Stage::Unmounting(leaving);
    }

    pub(super) fn unmounted(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        result: Result<(), StepError>,
    ) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        state.kept_by_driver |= result.is_err() && key.is_csi();
        if result.is_ok()
            && let Some(volume) = state.volumes.get_mut(key)
        {
            volume.on_disk = false;
        }
        if let Some(Release {
            stage: Stage::Unmounting(leaving),
            ..
        }) = &mut state.release
            && let Some(leaving) = leaving.get_mut(key)
        {
            leaving.state = LeavingState::Ended(result);
        }
    }

    pub(super) fn advance_release(&mut self, uid: &PodUid, at: Moment, steps: &mut Vec<Step>) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let (busy, under_way) = (state.busy(), state.under_way());
        let Some(release) = &mut state.release else {
            return;
        };
        if matches!(release.stage, Stage::Waiting) && !busy {
            release.stage = Stage::Finding;
            steps.push(Step::Find(uid.clone()));
        }
        if let Stage::Unmounting(leaving) = &mut release.stage {
            begin(leaving, uid, at, steps);
            if let Some(result) = outcome(leaving) {
                release.stage = Stage::Over(result);
            }
        }
        let result = match &release.stage {
            Stage::Over(result) => result.clone(),
            Stage::Waiting => Err(waits(under_way)),
            Stage::Finding => Err(not_ready("looking for the pod's volumes".to_owned())),
            Stage::Unmounting(leaving) => Err(waits(leaving.values().filter_map(|volume| {
                let LeavingState::UnderWay(since) = &volume.state else {
                    return None;
                };
                let found = &volume.found;
                let work = Work::Unmount;
                Some(words::under_way(work, found.block, &found.name, since.now))
            }))),
        };
        let over = matches!(release.stage, Stage::Over(_));
        let due = |asker: &mut Asker| over || asker.until <= at.uptime;
        for asker in release.askers.extract_if(.., due) {
            steps.push(Step::Released(asker.ask, result.clone()));
        }
        if over {
            state.release = None;
            self.released(uid, result.is_ok());
        }
    }

    /// A release came to its end, and left something or nothing.
    fn released(&mut self, uid: &PodUid, nothing_left: bool) {
        if let SurveyState::UnderWay { gone, .. } = &mut self.survey
            && nothing_left
        {
            gone.insert(uid.clone());
        }
        if let Some(state) = self.pods.get_mut(uid) {
            let of_use = |state: &VolumeState| state.wanted.is_some() || state.on_disk;
            state.volumes.retain(|_, volume| of_use(volume));
            if state.is_idle() {
                self.pods.remove(uid);
            }
        }
        self.end_pauses_for_others();
    }
}

fn begin(
    leaving: &mut BTreeMap<VolumeKey, Leaving>,
    uid: &PodUid,
    at: Moment,
    steps: &mut Vec<Step>,
) {
    let under_way = |volume: &&Leaving| matches!(volume.state, LeavingState::UnderWay(_));
    let room = STEPS_OF_A_POD.saturating_sub(leaving.values().filter(under_way).count());
    let waiting = leaving
        .iter_mut()
        .filter(|(_, volume)| matches!(volume.state, LeavingState::Waiting));
    for (key, volume) in waiting.take(room) {
        volume.state = LeavingState::UnderWay(at);
        let found = volume.found.clone();
        steps.push(Step::Unmount(uid.clone(), key.clone(), found));
    }
}

/// What came of it, once everything has ended: all that resists.
fn outcome(leaving: &BTreeMap<VolumeKey, Leaving>) -> Option<Result<(), VolumesNotReady>> {
    let mut failures = Vec::new();
    let mut retries = Vec::new();
    for volume in leaving.values() {
        match &volume.state {
            LeavingState::Waiting | LeavingState::UnderWay(_) => return None,
            LeavingState::Ended(Ok(())) => {}
            LeavingState::Ended(Err(error)) => {
                let found = &volume.found;
                let words = words::unmount_failed(found.block, &found.name, &error.message);
                failures.push(words);
                retries.push(error.retry);
            }
        }
    }
    let Some(words) = words::joined(&failures) else {
        return Some(Ok(()));
    };
    let failed = not_ready(words.message);
    let retry = retries.into_iter().min().unwrap_or(failed.retry);
    Some(Err(VolumesNotReady { retry, ..failed }))
}

fn waits(words: impl IntoIterator<Item = words::Words>) -> VolumesNotReady {
    let words: Vec<_> = words.into_iter().collect();
    not_ready(words::joined(&words).map_or_else(String::new, |words| words.message))
}
