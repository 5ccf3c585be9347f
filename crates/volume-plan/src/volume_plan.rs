//! Which volumes pods want and have, and what is to be done about the difference.
//!
//! The VolumeManager tells a [`VolumePlan`] what it hears and carries out the [`Step`]s that come
//! back. A volume goes through: its device is attached (by a controller), staged (once for all
//! pods), the volume is mounted for the pod, and grown if its claim grew. It is unmounted only when
//! its pod's release was asked for; its device is unstaged after the last user.
//!
//! What is remembered of an earlier life is only who uses devices; what a pod is to have is set up
//! again, which changes nothing, and what it has to lose is looked up on the disk.

mod attach_limit;
mod devices;
mod growth;
mod pods;
mod release;
mod steps;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_types::{
    DeviceName, DiscoveredVolume, MountedVolume, PodUid, Retry, SharedPod, Timestamp, later,
};

use crate::volume_source::PodVolumes;

pub use steps::{Step, VolumeWork};

use devices::DeviceState;
use pods::{Asker, PodState};

/// How long whoever asks for a release waits before he hears what it waits for. The release goes
/// on, and whoever asks again hears of its end.
const RELEASE_PATIENCE: Duration = Duration::from_secs(10);
/// After this time a step is told as hanging (upstream's deadline of CSI calls); its volume stays
/// taken until it ends.
const OVERDUE: Duration = Duration::from_secs(120);
/// Pause after the first failure, doubled by each further one (upstream
/// `initialDurationBeforeRetry`).
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause (upstream `maxDurationBeforeRetry`).
const LONGEST_PAUSE: Duration = Duration::from_secs(122);
/// Steps under way for one pod. 250 pods make 2000 at the most, each a future of a few hundred
/// bytes; threads are bounded by the plugins' lanes. There is no bound over all pods, which volumes
/// that hang could use up.
const STEPS_OF_A_POD: usize = 8;

/// Number of a question; its answer bears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// The present, on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The agent's uptime, which nobody sets: pauses and deadlines.
    pub uptime: Duration,
    /// The wall clock: what users are shown.
    pub now: Timestamp,
}

/// Who wants a pod's volumes released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Releaser {
    /// The worker that stopped the pod.
    Worker,
    /// Housekeeping, for a pod that had no worker when it looked: refused if one has asked for the
    /// volumes since.
    Housekeeping,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A pod is to have these volumes.
    SetUp {
        /// For the answer.
        ask: AskId,
        /// The pod.
        pod: SharedPod,
        /// All of its volumes.
        volumes: Arc<PodVolumes>,
        /// After this time the asker hears what is waited for.
        patience: Duration,
    },
    /// A pod is to lose all volumes.
    TearDown {
        /// For the answer.
        ask: AskId,
        /// Which pod.
        uid: PodUid,
        /// Who says so.
        by: Releaser,
    },
    /// A step ended.
    Done(Done),
    /// What the API server has in this node's status.
    Node {
        /// `volumesAttached`.
        attached: BTreeSet<DeviceName>,
        /// `volumesInUse`.
        in_use: BTreeSet<DeviceName>,
    },
    /// Every configured source has spoken.
    SourcesReady,
    /// A CSI driver registered: what failed for want of it is worth another try.
    DriverCame,
    /// The time of [`VolumePlan::wakes_in`] is over.
    Tick,
}

/// The end of a step.
#[derive(Clone, Debug)]
pub enum Done {
    /// [`Step::Survey`].
    Surveyed(Result<Survey, StepError>),
    /// [`Step::Stage`].
    Staged(DeviceName, Result<(), StepError>),
    /// [`Step::Unstage`].
    Unstaged(DeviceName, Result<(), StepError>),
    /// [`Step::Mount`].
    Mounted(PodUid, VolumeKey, Result<MountedVolume, StepError>),
    /// [`Step::Expand`].
    Expanded(PodUid, VolumeKey, Result<Expanded, StepError>),
    /// [`Step::AskLimit`]: whether the node is full.
    LimitAsked(PodUid, VolumeKey, bool),
    /// [`Step::Find`].
    Found(PodUid, Result<Vec<DiscoveredVolume>, StepError>),
    /// [`Step::Unmount`].
    Unmounted(PodUid, VolumeKey, Result<(), StepError>),
}

/// How a growth ended of which it is known how it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expanded {
    /// The volume has this many bytes now.
    Grown(u64),
    /// It has as many, and nothing had to be done.
    Has(u64),
    /// It is not the node's turn.
    NotNow,
    /// It does not grow while it is in use on this node.
    Left,
    /// The driver said that it failed.
    Refused(StepError),
}

/// What an earlier life of the agent left.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Volumes by pod.
    pub pods: BTreeMap<PodUid, Vec<DiscoveredVolume>>,
    /// Devices that are staged.
    pub devices: Vec<DeviceName>,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// Upstream's name of what failed, if it is another than that of the whole step, such as
    /// `MountVolume.NewMounter initialization`.
    pub operation: Option<&'static str>,
    /// In words.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
}

/// A volume among those of its pod: where it lies, or its name if it has no directory. Two names
/// of one claim in a pod are one volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeKey(String);

/// Something failed, and when it is tried again.
#[derive(Clone, Debug)]
struct Failure {
    words: words::Words,
    retry: Retry,
    attempts: u32,
    /// The uptime until which it is left alone.
    again: Duration,
    /// That has passed, and it waits for something else.
    over: bool,
}

/// See the module page.
#[derive(Debug, Default)]
pub struct VolumePlan {
    pods: BTreeMap<PodUid, PodState>,
    devices: BTreeMap<DeviceName, DeviceState>,
    survey: SurveyState,
    sources_ready: bool,
    attached: BTreeSet<DeviceName>,
    /// `volumesInUse` as the API server has it.
    told_in_use: BTreeSet<DeviceName>,
    node_seen: bool,
    /// `volumesInUse` as it was asked for last.
    in_use: Option<BTreeSet<DeviceName>>,
}

/// How far the look at what an earlier life left is.
#[derive(Debug)]
enum SurveyState {
    /// Due at this uptime.
    Due { at: Duration, attempts: u32 },
    /// Under way; pods that were released meanwhile.
    UnderWay {
        attempts: u32,
        gone: BTreeSet<PodUid>,
    },
    /// Over.
    Done,
}

impl Default for SurveyState {
    fn default() -> Self {
        Self::Due {
            at: Duration::ZERO,
            attempts: 0,
        }
    }
}

impl VolumePlan {
    /// Before anything was heard. The first [`Input::Tick`] is due at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one input and says what is to be done.
    pub fn handle(&mut self, input: Input, at: Moment) -> Vec<Step> {
        let mut steps = Vec::new();
        match input {
            Input::SetUp {
                ask,
                pod,
                volumes,
                patience,
            } => {
                let until = at.uptime + patience;
                self.asked(Asker { ask, until }, pod, &volumes);
            }
            Input::TearDown { ask, uid, by } => self.tear_down(ask, &uid, by, at, &mut steps),
            Input::Done(done) => self.done(done, at, &mut steps),
            Input::Node { attached, in_use } => {
                self.attached = attached;
                self.told_in_use = in_use;
                self.node_seen = true;
            }
            Input::SourcesReady => self.sources_ready = true,
            Input::DriverCame => self.end_pauses_for_drivers(&mut steps),
            Input::Tick => {}
        }
        self.begin_survey(at, &mut steps);
        self.advance_pods(at, &mut steps);
        self.advance_devices(at, &mut steps);
        self.watch_attachments(at, &mut steps);
        steps
    }

    /// How long until the next [`Input::Tick`]; `None` while nothing is waited for.
    pub fn wakes_in(&self, uptime: Duration) -> Option<Duration> {
        let survey = match self.survey {
            SurveyState::Due { at, .. } => Some(at),
            _ => None,
        };
        let pods = self.pods.values().filter_map(PodState::wakes_at);
        let devices = self.devices_wake_at();
        let attachments = self.attachments_wake_at();
        let at = pods.chain(devices).chain(survey).chain(attachments).min()?;
        Some(at.saturating_sub(uptime))
    }

    fn begin_survey(&mut self, at: Moment, steps: &mut Vec<Step>) {
        if let SurveyState::Due { at: due, attempts } = self.survey
            && due <= at.uptime
        {
            let gone = BTreeSet::new();
            self.survey = SurveyState::UnderWay { attempts, gone };
            steps.push(Step::Survey);
        }
    }

    fn surveyed(&mut self, result: Result<Survey, StepError>, at: Moment) {
        let SurveyState::UnderWay { attempts, gone } = &mut self.survey else {
            return;
        };
        let (attempts, gone) = (*attempts + 1, std::mem::take(gone));
        match result {
            Ok(survey) => {
                self.survey = SurveyState::Done;
                for (uid, volumes) in survey.pods {
                    if !gone.contains(&uid) {
                        self.found_on_disk(&uid, volumes);
                    }
                }
                for device in survey.devices {
                    self.devices.entry(device).or_default().touched = true;
                }
            }
            Err(_) => {
                let at = at.uptime + pause(attempts, Retry::Soon);
                self.survey = SurveyState::Due { at, attempts };
            }
        }
    }

    fn done(&mut self, done: Done, at: Moment, steps: &mut Vec<Step>) {
        match done {
            Done::Surveyed(result) => self.surveyed(result, at),
            Done::Staged(device, result) => self.staged(&device, result, at, steps),
            Done::Unstaged(device, result) => self.unstaged(&device, result, at),
            Done::Mounted(uid, key, result) => self.mounted(&uid, &key, result, at, steps),
            Done::Expanded(uid, key, result) => self.expanded(&uid, &key, result, at, steps),
            Done::LimitAsked(uid, key, full) => self.limit_asked(&uid, &key, full, at, steps),
            Done::Found(uid, result) => self.found(&uid, result),
            Done::Unmounted(uid, key, result) => self.unmounted(&uid, &key, result),
        }
    }
}

impl Failure {
    /// One more failure after `before`.
    fn after(before: Option<&Self>, words: words::Words, retry: Retry, at: Moment) -> Self {
        let attempts = before.map_or(1, |failure| failure.attempts + 1);
        Self {
            words,
            retry,
            attempts,
            again: at.uptime + pause(attempts, retry),
            over: false,
        }
    }

    /// When it is tried again, on the wall clock.
    fn retry_at(&self, at: Moment) -> Timestamp {
        later(at.now, self.again.saturating_sub(at.uptime))
    }
}

/// The pause after so many failures in a row. What trying again cannot help is tried as rarely as
/// anything.
fn pause(attempts: u32, retry: Retry) -> Duration {
    if retry == Retry::Never {
        return LONGEST_PAUSE;
    }
    let doublings = attempts.saturating_sub(1).min(16);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
