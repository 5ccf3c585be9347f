//! The life of one pod on this node as a state machine: Syncing → Terminating → Terminated.
//!
//! At most one job is in flight. Inputs that arrive meanwhile are remembered as "look again";
//! a kill interrupts a sync, a shorter grace period interrupts a kill. Answers of jobs that
//! are no longer the current one are ignored. Time is an argument, timers are effects.

use std::fmt;
use std::time::Duration;

use windlass_types::{PodUid, Retry, Timestamp, later};

use windlass_units::hash::fnv1a_64;

/// Number of a job, unique within its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Something to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// Make the runtime match the pod (upstream `SyncPod`).
    Sync,
    /// Stop all containers and sandboxes (upstream `SyncTerminatingPod`).
    Kill {
        /// Time for the containers to end by themselves.
        grace: Duration,
    },
    /// Release volumes and directories (upstream `SyncTerminatedPod`).
    Release,
}

impl Job {
    /// Upstream's name, as in its traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "syncPod",
            Self::Kill { .. } => "syncTerminatingPod",
            Self::Release => "syncTerminatedPod",
        }
    }
}

/// What came of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobResult {
    /// The sync ran to its end.
    Synced {
        /// When to look again at the latest: the end of a back-off or a retry.
        retry_at: Option<Timestamp>,
        /// All containers are done and none will be restarted.
        terminal: bool,
    },
    /// The kill ended: nothing of the pod runs, or it has to be tried again.
    Killed(Result<(), Retry>),
    /// The release ended.
    Released(Result<(), Retry>),
    /// The job stopped because it was cancelled.
    Cancelled,
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The desired pod is new or changed.
    Desired,
    /// Something may have changed: look again.
    Look,
    /// Stop the pod. `None` takes the pod's own grace period.
    Kill(Option<Duration>),
    /// A job answered.
    Done(JobId, JobResult),
    /// The armed timer fired.
    Tick,
    /// The runtime can (or cannot) be worked with.
    Gate(bool),
}

/// What the worker wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a job.
    Start(JobId, Job),
    /// Cancel the running job; it answers `Cancelled` or, if it was faster, its result.
    Cancel(JobId),
    /// Arm the one timer (replaces the one before).
    Wake(Timestamp),
    /// Everything is released; no effect follows.
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

/// State of the worker, with what only that phase knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Making the runtime match the pod.
    Syncing,
    /// Stopping the pod within `grace`.
    Terminating {
        /// The shortest grace period anyone asked for.
        grace: Duration,
    },
    /// Stopped; `released` once volumes and directories are gone.
    Terminated {
        /// Nothing is left to do.
        released: bool,
    },
}

/// Delay before a job that failed in passing is tried again (upstream 1 s).
const RETRY_SOON: Duration = Duration::from_secs(1);
/// Delay before a job that failed by its pod's fault is tried again (upstream 10 s).
const RETRY_LATER: Duration = Duration::from_secs(10);
/// No grace period is shorter, whatever was asked.
const MIN_GRACE: Duration = Duration::from_secs(1);

/// One pod's state machine.
#[derive(Clone, Debug)]
pub struct PodWorker {
    uid: PodUid,
    state: State,
    own_grace: Duration,
    sync_frequency: Duration,
    runtime_ready: bool,
    resync: bool,
    job: Option<(JobId, Job)>,
    next_job: u64,
    /// The armed timer: its end, and how long it was to run when it was armed.
    timer: Option<(Timestamp, Duration)>,
}

impl PodWorker {
    /// A worker for a pod that is to run. `own_grace` is the pod's own grace period,
    /// `sync_frequency` the period at which it is looked at although nothing happened.
    pub fn new(
        uid: PodUid,
        own_grace: Duration,
        sync_frequency: Duration,
        runtime_ready: bool,
    ) -> Self {
        Self {
            uid,
            state: State::SyncPod,
            own_grace,
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

    /// How long from `now` until the worker looks again by itself: a [`Input::TimerFired`] is due. A
    /// clock that was set back makes nobody wait longer than the timer was to run.
    pub fn next_wake_up(&self, now: Timestamp) -> Option<Duration> {
        let (at, armed) = self.timer?;
        let left = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        Some(left.min(armed))
    }

    /// The pod's own grace period changed with its spec.
    pub fn set_own_grace(&mut self, grace: Duration) {
        self.own_grace = grace;
    }

    /// Takes one input and says what is to be done.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.state == (State::TerminatedPod { released: true }) {
            return effects;
        }
        match input {
            Input::PodUpdated | Input::Resync => {
                // a pod that is being stopped is not looked at for what it should be; of one that has
                // stopped, what kept its volumes may have gone
                self.resync |= !matches!(self.state, State::TerminatingPod { .. });
            }
            Input::Terminate(grace) => self.kill(grace, &mut effects),
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

    fn kill(&mut self, asked: Option<Duration>, effects: &mut Vec<Effect>) {
        let asked = asked.unwrap_or(self.own_grace).max(MIN_GRACE);
        match self.state {
            State::SyncPod => {
                self.state = State::TerminatingPod { grace: asked };
                self.resync = true;
                self.cancel(effects);
            }
            State::TerminatingPod { grace } if asked < grace => {
                self.state = State::TerminatingPod { grace: asked };
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
                    grace: self.own_grace.max(MIN_GRACE),
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
                    // what is to be stopped or released is tried for ever
                    Retry::Later | Retry::Never => RETRY_LATER,
                };
                self.wake(later(now, self.jittered(delay)), now, effects);
            }
            // the job was overtaken by a phase change: the new phase's job follows
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

    /// `base` ±50 %, from the pod's UID and the job number: the same in every replay, and
    /// different enough between pods that they do not move in step.
    fn jittered(&self, base: Duration) -> Duration {
        let seed = fnv1a_64(format!("{}/{}", self.uid, self.next_job).as_bytes());
        base.mul_f64(0.5 + (seed % 1024) as f64 / 1024.0)
    }
}

#[cfg(test)]
mod tests;
