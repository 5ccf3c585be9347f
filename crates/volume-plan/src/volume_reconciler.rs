//! State machine that reconciles the actual volumes of pods with the desired ones.
//!
//! The VolumeManager passes [`Input`]s to a [`VolumeReconciler`] and executes the [`Step`]s that it
//! returns. A volume is attached (by a controller), staged once per node, mounted for its pod, and
//! expanded after its PVC. It is unmounted only on a tear-down request. Its device is unstaged
//! after the last user.
//!
//! After an agent restart only the users of devices are reconstructed. Volumes are set up again,
//! which changes nothing, and a tear-down discovers the volumes of the pod on the disk.

mod attach_limit;
mod devices;
mod expansion;
mod messages;
mod pods;
mod steps;
mod tear_down;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_types::{
    ClockReading, DeviceName, DiscoveredVolume, MountedVolume, PodUid, Retry, SharedPod, Timestamp,
    later,
};

use crate::volume_source::PodVolumes;

pub use steps::{Step, VolumeWork};

use devices::DeviceState;
use messages::EventText;
use pods::{PodState, Waiter};

/// Time until an unfinished tear-down is reported to the caller. The tear-down continues.
const TEAR_DOWN_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Duration after which a step is reported as hung (upstream's deadline of CSI calls).
const HUNG_STEP_THRESHOLD: Duration = Duration::from_secs(120);
/// Back-off after the first failure; doubles with each further one (upstream
/// `initialDurationBeforeRetry`).
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
/// Upstream `maxDurationBeforeRetry`.
const MAX_BACKOFF: Duration = Duration::from_secs(122);
/// Maximum number of concurrent steps of a pod. 250 pods have at most 2000, each a future of a few
/// hundred bytes; the I/O queues limit the threads. A node-wide limit would let hung volumes block
/// all pods.
const MAX_CONCURRENT_STEPS: usize = 8;

/// Identifier of a request; its reply has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Source of a tear-down request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearDownRequester {
    /// The worker that stopped the pod.
    Worker,
    /// Housekeeping, for a pod without a worker; rejected if a worker has since requested volumes.
    Housekeeping,
}

/// Event that the reconciler reacts to.
#[derive(Clone, Debug)]
pub enum Input {
    /// The volumes are desired.
    SetUp {
        /// Identifies the reply.
        request: RequestId,
        /// The pod.
        pod: SharedPod,
        /// All of its volumes.
        volumes: Arc<PodVolumes>,
        /// Time until the caller gets the cause of the delay.
        timeout: Duration,
    },
    /// No volumes of the pod are desired.
    TearDown {
        /// Identifies the reply.
        request: RequestId,
        /// The pod.
        uid: PodUid,
        /// Who requests it.
        by: TearDownRequester,
    },
    /// A step has finished.
    StepFinished(StepResult),
    /// The Node status.
    Node {
        /// `volumesAttached`.
        attached: BTreeSet<DeviceName>,
        /// `volumesInUse`.
        in_use: BTreeSet<DeviceName>,
    },
    /// All pod sources are ready.
    SourcesReady,
    /// A CSI driver registered; failed CSI volumes are retried.
    DriverRegistered,
    /// The time of [`VolumeReconciler::next_wake_up`] has passed.
    TimerFired,
}

/// Result of a step.
#[derive(Clone, Debug)]
pub enum StepResult {
    /// [`Step::Reconstruct`].
    Reconstructed(Result<Reconstruction, StepError>),
    /// [`Step::Stage`].
    Staged(DeviceName, Result<(), StepError>),
    /// [`Step::Unstage`].
    Unstaged(DeviceName, Result<(), StepError>),
    /// [`Step::Mount`].
    Mounted(PodUid, VolumeKey, Result<MountedVolume, StepError>),
    /// [`Step::Expand`].
    Expanded(PodUid, VolumeKey, Result<ExpansionResult, StepError>),
    /// [`Step::CheckAttachLimit`]: whether the node is full.
    AttachLimitChecked(PodUid, VolumeKey, bool),
    /// [`Step::Discover`].
    Discovered(PodUid, Result<Vec<DiscoveredVolume>, StepError>),
    /// [`Step::Unmount`].
    Unmounted(PodUid, VolumeKey, Result<(), StepError>),
}

/// Known result of an expansion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpansionResult {
    /// The volume was expanded to this many bytes.
    Expanded(u64),
    /// The volume had this size already.
    AlreadyExpanded(u64),
    /// Nothing to do until the PVC changes.
    Deferred,
    /// The driver does not expand a volume in use; no retry until the device is unstaged.
    SkippedInUse,
    /// The driver returned an error.
    Rejected(StepError),
}

/// Volumes of the previous agent run.
#[derive(Clone, Debug, Default)]
pub struct Reconstruction {
    /// Volumes by pod.
    pub pods: BTreeMap<PodUid, Vec<DiscoveredVolume>>,
    /// Staged devices.
    pub devices: Vec<DeviceName>,
}

/// Error of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepError {
    /// Upstream's name of the failed operation, if it differs from that of the step, such as
    /// `MountVolume.NewMounter initialization`.
    pub operation: Option<&'static str>,
    /// Cause.
    pub message: String,
    /// Retry class.
    pub retry: Retry,
}

/// Key of a volume within its pod: its directory, or its name if it has none. Two volume names of
/// one PVC have the same key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeKey(String);

/// Last failure of an operation, and its retry.
#[derive(Clone, Debug)]
struct Failure {
    text: EventText,
    retry: Retry,
    attempts: u32,
    /// Monotonic time of the end of the back-off.
    not_before: Duration,
    /// The back-off has ended, but the retry waits for something else.
    is_expired: bool,
}

/// The volume reconciler; see the module documentation.
#[derive(Debug, Default)]
pub struct VolumeReconciler {
    pods: BTreeMap<PodUid, PodState>,
    devices: BTreeMap<DeviceName, DeviceState>,
    reconstruction: ReconstructionState,
    sources_ready: bool,
    attached: BTreeSet<DeviceName>,
    /// `volumesInUse` of the Node status.
    api_in_use: BTreeSet<DeviceName>,
    has_node_status: bool,
    /// `volumesInUse` as last reported.
    in_use: Option<BTreeSet<DeviceName>>,
}

#[derive(Debug)]
enum ReconstructionState {
    /// Due at this monotonic time.
    Due {
        at: Duration,
        attempts: u32,
    },
    /// In progress; pods torn down since its start.
    InProgress {
        attempts: u32,
        gone: BTreeSet<PodUid>,
    },
    Done,
}

impl Default for ReconstructionState {
    fn default() -> Self {
        Self::Due {
            at: Duration::ZERO,
            attempts: 0,
        }
    }
}

impl VolumeReconciler {
    /// Creates a reconciler without pods. The first [`Input::TimerFired`] is due immediately.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles one input and returns the steps to execute.
    pub fn handle(&mut self, input: Input, now: ClockReading) -> Vec<Step> {
        let mut steps = Vec::new();
        match input {
            Input::SetUp {
                request,
                pod,
                volumes,
                timeout,
            } => {
                let until = now.monotonic + timeout;
                self.set_up(Waiter { request, until }, pod, &volumes);
            }
            Input::TearDown { request, uid, by } => {
                self.tear_down(request, &uid, by, now, &mut steps)
            }
            Input::StepFinished(result) => self.step_finished(result, now, &mut steps),
            Input::Node { attached, in_use } => {
                self.attached = attached;
                self.api_in_use = in_use;
                self.has_node_status = true;
            }
            Input::SourcesReady => self.sources_ready = true,
            Input::DriverRegistered => self.retry_csi_volumes(&mut steps),
            Input::TimerFired => {}
        }
        self.begin_reconstruction(now, &mut steps);
        self.advance_pods(now, &mut steps);
        self.advance_devices(now, &mut steps);
        self.check_attachments(now, &mut steps);
        steps
    }

    /// Returns the time until the next [`Input::TimerFired`], if any. `monotonic` is the current
    /// time.
    pub fn next_wake_up(&self, monotonic: Duration) -> Option<Duration> {
        let reconstruction = match self.reconstruction {
            ReconstructionState::Due { at, .. } => Some(at),
            _ => None,
        };
        let pods = self.pods.values().filter_map(PodState::next_wake_up);
        let devices = self.device_wake_ups();
        let attachments = self.attachment_wake_ups();
        let at = pods
            .chain(devices)
            .chain(reconstruction)
            .chain(attachments)
            .min()?;
        Some(at.saturating_sub(monotonic))
    }

    fn begin_reconstruction(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        if let ReconstructionState::Due { at: due, attempts } = self.reconstruction
            && due <= now.monotonic
        {
            let gone = BTreeSet::new();
            self.reconstruction = ReconstructionState::InProgress { attempts, gone };
            steps.push(Step::Reconstruct);
        }
    }

    fn reconstructed(&mut self, result: Result<Reconstruction, StepError>, now: ClockReading) {
        let ReconstructionState::InProgress { attempts, gone } = &mut self.reconstruction else {
            return;
        };
        let (attempts, gone) = (*attempts + 1, std::mem::take(gone));
        match result {
            Ok(reconstruction) => {
                self.reconstruction = ReconstructionState::Done;
                for (uid, volumes) in reconstruction.pods {
                    if !gone.contains(&uid) {
                        self.add_reconstructed_users(&uid, volumes);
                    }
                }
                for device in reconstruction.devices {
                    self.devices.entry(device).or_default().maybe_staged = true;
                }
            }
            Err(_) => {
                let at = now.monotonic + backoff(attempts, Retry::Soon);
                self.reconstruction = ReconstructionState::Due { at, attempts };
            }
        }
    }

    fn step_finished(&mut self, result: StepResult, now: ClockReading, steps: &mut Vec<Step>) {
        match result {
            StepResult::Reconstructed(result) => self.reconstructed(result, now),
            StepResult::Staged(device, result) => self.staged(&device, result, now, steps),
            StepResult::Unstaged(device, result) => self.unstaged(&device, result, now),
            StepResult::Mounted(uid, key, result) => self.mounted(&uid, &key, result, now, steps),
            StepResult::Expanded(uid, key, result) => self.expanded(&uid, &key, result, now, steps),
            StepResult::AttachLimitChecked(uid, key, full) => {
                self.attach_limit_checked(&uid, &key, full, now, steps)
            }
            StepResult::Discovered(uid, result) => self.discovered(&uid, result),
            StepResult::Unmounted(uid, key, result) => self.unmounted(&uid, &key, result),
        }
    }
}

impl Failure {
    /// Creates a failure that follows `before`.
    fn after(before: Option<&Self>, text: EventText, retry: Retry, now: ClockReading) -> Self {
        let attempts = before.map_or(1, |failure| failure.attempts + 1);
        Self {
            text,
            retry,
            attempts,
            not_before: now.monotonic + backoff(attempts, retry),
            is_expired: false,
        }
    }

    /// Returns the wall clock time of the retry.
    fn retry_at(&self, now: ClockReading) -> Timestamp {
        later(now.wall, self.not_before.saturating_sub(now.monotonic))
    }
}

/// Returns the back-off after this many consecutive failures; the maximum for [`Retry::Never`].
fn backoff(attempts: u32, retry: Retry) -> Duration {
    if retry == Retry::Never {
        return MAX_BACKOFF;
    }
    let doublings = attempts.saturating_sub(1).min(16);
    (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests;
