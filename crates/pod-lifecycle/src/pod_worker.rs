//! The state machine of a pod worker: SyncPod → TerminatingPod → TerminatedPod.
//!
//! At most one job is in progress. Inputs that arrive meanwhile request a resync. A termination
//! cancels a sync, and a shorter grace period restarts a terminating sync. Results of other than
//! the current job are ignored.

use std::fmt;
use std::time::Duration;

use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{PodUid, Retry, Timestamp, later};

use windlass_units::hash::fnv1a_64;

use crate::stop::MIN_GRACE_PERIOD;

/// Number of a job, unique within its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// One pass of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Make the runtime match the pod (upstream `SyncPod`).
    SyncPod,
    /// Stop all containers and sandboxes (upstream `SyncTerminatingPod`).
    SyncTerminatingPod {
        /// Grace period of the containers.
        grace: Duration,
    },
    /// Tear down volumes and remove directories (upstream `SyncTerminatedPod`).
    SyncTerminatedPod,
}

impl Job {
    /// Upstream's span name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SyncPod => "syncPod",
            Self::SyncTerminatingPod { .. } => "syncTerminatingPod",
            Self::SyncTerminatedPod => "syncTerminatedPod",
        }
    }
}

/// Result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobResult {
    /// The sync completed.
    Synced {
        /// Latest time of the next sync: the end of a back-off or a retry.
        retry_at: Option<Timestamp>,
        /// All containers have exited and none is restarted.
        terminal: bool,
    },
    /// The terminating sync ended: nothing of the pod runs, or it is retried.
    Killed(Result<(), Retry>),
    /// The terminated sync ended.
    Released(Result<(), Retry>),
    /// The job was cancelled.
    Cancelled,
}

/// Input of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The desired pod is new or changed.
    PodUpdated,
    /// The observed state may have changed.
    Resync,
    /// Terminate the pod; `None` selects its effective grace period.
    Terminate(Option<Duration>),
    /// A job ended.
    JobFinished(JobId, JobResult),
    /// The armed timer fired.
    TimerFired,
    /// The runtime became ready, or not ready.
    RuntimeReady(bool),
}

/// Effect that the worker requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a job.
    Start(JobId, Job),
    /// Cancel the running job; it ends as `Cancelled` or with its result.
    Cancel(JobId),
    /// Arm the timer, in place of the one before.
    Wake(Timestamp),
    /// The worker has finished; no effect follows.
    Finished,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(id, Job::SyncPod) => write!(f, "sync#{}", id.0),
            Self::Start(id, Job::SyncTerminatingPod { grace }) => {
                write!(f, "kill#{}({}s)", id.0, grace.as_secs())
            }
            Self::Start(id, Job::SyncTerminatedPod) => write!(f, "release#{}", id.0),
            Self::Cancel(id) => write!(f, "cancel#{}", id.0),
            Self::Wake(at) => write!(f, "wake@{}", at.as_second()),
            Self::Finished => f.write_str("finished"),
        }
    }
}

/// State of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Making the runtime match the pod.
    SyncPod,
    /// Terminating the pod.
    TerminatingPod {
        /// The shortest requested grace period.
        grace: Duration,
    },
    /// Terminated.
    TerminatedPod {
        /// Volumes and directories are removed.
        released: bool,
    },
}

/// Retry delay after a transient error (upstream 1 s).
const RETRY_SOON: Duration = Duration::from_secs(1);
/// Retry delay after an error of the pod (upstream 10 s).
const RETRY_LATER: Duration = Duration::from_secs(10);

/// The state machine of one pod.
#[derive(Clone, Debug)]
pub struct PodWorker {
    uid: PodUid,
    state: State,
    grace_period: Duration,
    sync_frequency: Duration,
    runtime_ready: bool,
    resync: bool,
    job: Option<(JobId, Job)>,
    next_job: u64,
    /// The armed timer: its end, and its duration when it was armed.
    timer: Option<(Timestamp, Duration)>,
}

impl PodWorker {
    /// Creates a worker in state SyncPod. `grace_period` is the effective grace period of the pod,
    /// `sync_frequency` the resync period.
    pub fn new(
        uid: PodUid,
        grace_period: Duration,
        sync_frequency: Duration,
        runtime_ready: bool,
    ) -> Self {
        Self {
            uid,
            state: State::SyncPod,
            grace_period,
            sync_frequency,
            runtime_ready,
            resync: false,
            job: None,
            next_job: 1,
            timer: None,
        }
    }

    /// The current phase.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the time until [`Input::TimerFired`] is due. A clock that was set back does not
    /// extend it.
    pub fn next_wake_up(&self, now: Timestamp) -> Option<Duration> {
        let (at, armed) = self.timer?;
        let left = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        Some(left.min(armed))
    }

    /// Sets the effective grace period after a change of the pod.
    pub fn set_grace_period(&mut self, grace: Duration) {
        self.grace_period = grace;
    }

    /// Handles an input and returns its effects.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.state == (State::TerminatedPod { released: true }) {
            return effects;
        }
        match input {
            Input::PodUpdated | Input::Resync => {
                // a terminating pod is not synced; a terminated one may be able to release its
                // volumes
                self.resync |= !matches!(self.state, State::TerminatingPod { .. });
            }
            Input::Terminate(grace) => self.terminate(grace, &mut effects),
            Input::JobFinished(id, result) => self.done(id, result, now, &mut effects),
            Input::TimerFired => {
                let due = |(at, armed)| at <= now || at > later(now, armed);
                if self.timer.is_some_and(due) {
                    self.timer = None;
                    self.resync = true;
                }
            }
            Input::RuntimeReady(open) => self.runtime_ready = open,
        }
        self.start_if_due(&mut effects);
        effects
    }

    fn terminate(&mut self, requested: Option<Duration>, effects: &mut Vec<Effect>) {
        let requested = requested.unwrap_or(self.grace_period).max(MIN_GRACE_PERIOD);
        match self.state {
            State::SyncPod => {
                self.state = State::TerminatingPod { grace: requested };
                self.resync = true;
                self.cancel(effects);
            }
            State::TerminatingPod { grace }
                if requested < grace && !mutated(Mutation::ShorterGraceIgnored) =>
            {
                self.state = State::TerminatingPod { grace: requested };
                self.resync = true;
                self.cancel(effects);
            }
            State::TerminatingPod { .. } | State::TerminatedPod { .. } => {}
        }
    }

    fn cancel(&self, effects: &mut Vec<Effect>) {
        if let Some((id, _)) = self.job {
            effects.push(Effect::Cancel(id));
        }
    }

    fn done(&mut self, id: JobId, result: JobResult, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.job.map(|(current, _)| current) != Some(id) {
            return;
        }
        self.job = None;
        match (self.state, result) {
            (State::SyncPod, JobResult::Synced { terminal: true, .. }) => {
                self.state = State::TerminatingPod {
                    grace: self.grace_period.max(MIN_GRACE_PERIOD),
                };
                self.resync = true;
            }
            (
                State::SyncPod,
                JobResult::Synced {
                    retry_at,
                    terminal: false,
                },
            ) => {
                let resync = later(now, self.jittered(self.sync_frequency));
                self.wake(retry_at.map_or(resync, |at| at.min(resync)), now, effects);
            }
            (State::TerminatingPod { .. }, JobResult::Killed(Ok(()))) => {
                self.state = State::TerminatedPod { released: false };
                self.resync = true;
            }
            (State::TerminatedPod { .. }, JobResult::Released(Ok(()))) => {
                self.state = State::TerminatedPod { released: true };
                self.timer = None;
                effects.push(Effect::Finished);
            }
            (_, JobResult::Killed(Err(retry)) | JobResult::Released(Err(retry))) => {
                let delay = match retry {
                    Retry::Soon => RETRY_SOON,
                    // termination is retried without limit
                    Retry::Later | Retry::Never => RETRY_LATER,
                };
                self.wake(later(now, self.jittered(delay)), now, effects);
            }
            // the state changed meanwhile: its job follows
            (_, _) => self.resync = true,
        }
    }

    fn wake(&mut self, at: Timestamp, now: Timestamp, effects: &mut Vec<Effect>) {
        let armed = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        self.timer = Some((at, armed));
        effects.push(Effect::Wake(at));
    }

    fn start_if_due(&mut self, effects: &mut Vec<Effect>) {
        if !self.resync || self.job.is_some() || !self.runtime_ready {
            return;
        }
        let job = match self.state {
            State::SyncPod => Job::SyncPod,
            State::TerminatingPod { grace } => Job::SyncTerminatingPod { grace },
            State::TerminatedPod { released: false } => Job::SyncTerminatedPod,
            State::TerminatedPod { released: true } => return,
        };
        let id = JobId(self.next_job);
        self.next_job += 1;
        self.resync = false;
        self.timer = None;
        self.job = Some((id, job));
        effects.push(Effect::Start(id, job));
    }

    /// Returns `base` ±50 %, derived from the pod's UID and the job number: deterministic, and
    /// desynchronized between pods.
    fn jittered(&self, base: Duration) -> Duration {
        let seed = fnv1a_64(format!("{}/{}", self.uid, self.next_job).as_bytes());
        base.mul_f64(0.5 + (seed % 1024) as f64 / 1024.0)
    }
}

#[cfg(test)]
mod tests;
