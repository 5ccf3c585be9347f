//! Tear-down of all volumes of a pod: waits for steps in progress, discovers the volumes on the
//! disk and unmounts them.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_types::{DiscoveredVolume, PodUid, VolumesNotReady};

use super::messages::{self, VolumeOperation};
use super::pods::{VolumeState, not_ready};
use super::{
    ClockReading, MAX_CONCURRENT_STEPS, ReconstructionState, RequestId, Step, StepError,
    TEAR_DOWN_REPLY_TIMEOUT, TearDownRequester, VolumeKey, VolumeReconciler,
};
use crate::empty_dir::{EMPTY_DIR_PLUGIN, REMOVAL_HANG_THRESHOLD};

/// Tear-down in progress of a pod.
#[derive(Debug)]
pub(super) struct PodTearDown {
    waiters: Vec<Waiter>,
    phase: Phase,
}

/// Caller that waits for a reply since this monotonic time.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    request: RequestId,
    by: TearDownRequester,
    since: Duration,
}

#[derive(Debug)]
enum Phase {
    /// Waits for steps in progress.
    Waiting,
    Discovering,
    Unmounting(BTreeMap<VolumeKey, VolumeTearDown>),
    Finished(Result<(), VolumesNotReady>),
}

/// Tear-down of one volume.
#[derive(Debug)]
struct VolumeTearDown {
    found: DiscoveredVolume,
    state: TearDownState,
}

#[derive(Debug)]
enum TearDownState {
    Waiting,
    InProgress(ClockReading),
    Ended(Result<(), StepError>),
}

impl PodTearDown {
    pub(super) fn next_wake_up(&self) -> Option<Duration> {
        let removes = self.phase.only_removes();
        let until = self.waiters.iter().map(|waiter| waiter.until(removes));
        until.min()
    }
}

impl Waiter {
    /// Time of the reply at the latest. A worker reports an unfinished tear-down in an event, which a
    /// removal deserves only if it hangs.
    fn until(&self, removes: bool) -> Duration {
        let timeout = match removes && self.by == TearDownRequester::Worker {
            true => REMOVAL_HANG_THRESHOLD,
            false => TEAR_DOWN_REPLY_TIMEOUT,
        };
        self.since + timeout
    }
}

impl Phase {
    /// True if all steps in progress remove what pods wrote into emptyDir volumes.
    fn only_removes(&self) -> bool {
        let Self::Unmounting(volumes) = self else {
            return false;
        };
        let in_progress = volumes
            .values()
            .filter(|volume| matches!(volume.state, TearDownState::InProgress(_)));
        in_progress
            .map(|volume| &volume.found.plugin_dir)
            .all(|plugin| plugin == EMPTY_DIR_PLUGIN)
    }
}

impl VolumeReconciler {
    pub(super) fn tear_down(
        &mut self,
        request: RequestId,
        uid: &PodUid,
        by: TearDownRequester,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let desired = self.pods.get(uid).is_some_and(|state| state.pod.is_some());
        if by == TearDownRequester::Housekeeping && desired {
            let message = "the pod is desired again".to_owned();
            steps.push(Step::ReplyTearDown(request, Err(not_ready(message))));
            return;
        }
        self.mark_undesired(uid, steps);
        let state = self.pods.entry(uid.clone()).or_default();
        state.driver_failed = false;
        if state.has_step_in_progress() {
            // on each request: the step may have reached an operation that can be cancelled
            steps.push(Step::CancelOperations(uid.clone()));
        }
        let tear_down = state.tear_down.get_or_insert(PodTearDown {
            waiters: Vec::new(),
            phase: Phase::Waiting,
        });
        let since = now.monotonic;
        tear_down.waiters.push(Waiter { request, by, since });
    }

    pub(super) fn discovered(
        &mut self,
        uid: &PodUid,
        result: Result<Vec<DiscoveredVolume>, StepError>,
    ) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let Some(tear_down) = &mut state.tear_down else {
            return;
        };
        let found = match result {
            Ok(found) => found,
            Err(error) => {
                let failed = VolumesNotReady {
                    retry: error.retry,
                    ..not_ready(error.message)
                };
                tear_down.phase = Phase::Finished(Err(failed));
                return;
            }
        };
        let mut volumes = BTreeMap::new();
        for found in found {
            let key = VolumeKey::from_discovered(&found);
            let volume = state.volumes.entry(key.clone()).or_default();
            volume.device = volume.device.take().or_else(|| found.device.clone());
            let state = TearDownState::Waiting;
            volumes.insert(key, VolumeTearDown { found, state });
        }
        for (key, volume) in &mut state.volumes {
            volume.reset();
            volume.on_disk = volumes.contains_key(key);
        }
        tear_down.phase = Phase::Unmounting(volumes);
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
        state.driver_failed |= result.is_err() && key.is_csi();
        if result.is_ok()
            && let Some(volume) = state.volumes.get_mut(key)
        {
            volume.on_disk = false;
        }
        if let Some(PodTearDown {
            phase: Phase::Unmounting(volumes),
            ..
        }) = &mut state.tear_down
            && let Some(volumes) = volumes.get_mut(key)
        {
            volumes.state = TearDownState::Ended(result);
        }
    }

    pub(super) fn advance_tear_down(
        &mut self,
        uid: &PodUid,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let (has_step_in_progress, in_progress) =
            (state.has_step_in_progress(), state.in_progress());
        let Some(tear_down) = &mut state.tear_down else {
            return;
        };
        if matches!(tear_down.phase, Phase::Waiting) && !has_step_in_progress {
            tear_down.phase = Phase::Discovering;
            steps.push(Step::Discover(uid.clone()));
        }
        if let Phase::Unmounting(volumes) = &mut tear_down.phase {
            start_steps(volumes, uid, now, steps);
            if let Some(result) = result(volumes) {
                tear_down.phase = Phase::Finished(result);
            }
        }
        let result = match &tear_down.phase {
            Phase::Finished(result) => result.clone(),
            Phase::Waiting => Err(waiting_for(in_progress)),
            Phase::Discovering => Err(not_ready("discovering the pod's volumes".to_owned())),
            Phase::Unmounting(volumes) => Err(waiting_for(volumes.values().filter_map(|volume| {
                let TearDownState::InProgress(since) = &volume.state else {
                    return None;
                };
                let found = &volume.found;
                let work = VolumeOperation::Unmount;
                Some(messages::in_progress(
                    work,
                    found.block,
                    &found.name,
                    since.wall,
                ))
            }))),
        };
        let finished = matches!(tear_down.phase, Phase::Finished(_));
        if matches!(tear_down.phase, Phase::Finished(Ok(()))) && tear_down.waiters.is_empty() {
            // the callers got a reply before the end and wait for their next attempt
            steps.push(Step::RequeuePod(uid.clone()));
        }
        let removes = tear_down.phase.only_removes();
        let due = |waiter: &mut Waiter| finished || waiter.until(removes) <= now.monotonic;
        for waiter in tear_down.waiters.extract_if(.., due) {
            steps.push(Step::ReplyTearDown(waiter.request, result.clone()));
        }
        if finished {
            state.tear_down = None;
            self.torn_down(uid, result.is_ok());
        }
    }

    fn torn_down(&mut self, uid: &PodUid, complete: bool) {
        if let ReconstructionState::InProgress { gone, .. } = &mut self.reconstruction
            && complete
        {
            gone.insert(uid.clone());
        }
        if let Some(state) = self.pods.get_mut(uid) {
            let is_used = |state: &VolumeState| state.desired.is_some() || state.on_disk;
            state.volumes.retain(|_, volume| is_used(volume));
            if state.is_idle() {
                self.pods.remove(uid);
            }
        }
        self.retry_blocked_pods();
    }
}

fn start_steps(
    volumes: &mut BTreeMap<VolumeKey, VolumeTearDown>,
    uid: &PodUid,
    now: ClockReading,
    steps: &mut Vec<Step>,
) {
    let in_progress =
        |volume: &&VolumeTearDown| matches!(volume.state, TearDownState::InProgress(_));
    let room = MAX_CONCURRENT_STEPS.saturating_sub(volumes.values().filter(in_progress).count());
    let waiting = volumes
        .iter_mut()
        .filter(|(_, volume)| matches!(volume.state, TearDownState::Waiting));
    for (key, volume) in waiting.take(room) {
        volume.state = TearDownState::InProgress(now);
        let found = volume.found.clone();
        steps.push(Step::Unmount(uid.clone(), key.clone(), found));
    }
}

/// Returns the result with all failures, once each volume has one.
fn result(volumes: &BTreeMap<VolumeKey, VolumeTearDown>) -> Option<Result<(), VolumesNotReady>> {
    let mut failures = Vec::new();
    let mut retries = Vec::new();
    for volume in volumes.values() {
        match &volume.state {
            TearDownState::Waiting | TearDownState::InProgress(_) => return None,
            TearDownState::Ended(Ok(())) => {}
            TearDownState::Ended(Err(error)) => {
                let found = &volume.found;
                let text = messages::unmount_failed(found.block, &found.name, &error.message);
                failures.push(text);
                retries.push(error.retry);
            }
        }
    }
    let Some(text) = messages::joined(&failures) else {
        return Some(Ok(()));
    };
    let failed = not_ready(text.message);
    let retry = retries.into_iter().min().unwrap_or(failed.retry);
    Some(Err(VolumesNotReady { retry, ..failed }))
}

fn waiting_for(text: impl IntoIterator<Item = messages::EventText>) -> VolumesNotReady {
    let text: Vec<_> = text.into_iter().collect();
    not_ready(messages::joined(&text).map_or_else(String::new, |text| text.message))
}
