//! Rotates container logs (upstream `ContainerLogManager`) when they have reached their maximum
//! size. Upstream looks once per interval; here a log is checked as often as it grows.
//!
//! *owns* the rotated files of a log · *invariant* no line is lost: the current file is renamed and
//! the runtime opens a new one; if it fails, the rename is undone. An interrupted rotation is
//! completed by the next check, or undone if the container has exited · *bound* one rotation and
//! beside it one compression per container, `workers` concurrent ones of each; a hung runtime call
//! delays only its container, a hung log disk all rotations, on one thread.
//!
//! A container that writes R bytes per second has at most `containerLogMaxFiles` files of
//! `containerLogMaxSize` + R × ([`MIN_CHECK_INTERVAL`] + the time of a rotation), and once R × 1 s
//! more: the time until a burst is noticed. Idle logs are read once per interval.
//!
//! [`MIN_CHECK_INTERVAL`]: windlass_pod_lifecycle::log_rotation::MIN_CHECK_INTERVAL

mod files;
mod schedule;
mod writes;

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_pod_lifecycle::log_rotation::{LogStep, RotationPolicy};
use windlass_types::{Clock, ContainerId};

use super::{LogReader, LogSource, MAX_THREADS};
use schedule::Schedule;
use writes::WriteWatches;

/// Maximum concurrent rotations: half of the threads of logs are left to readers.
const MAX_WORKERS: usize = MAX_THREADS / 2;

/// Interval at which new containers are looked up.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of log rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// Maximum size and number of files.
    pub policy: RotationPolicy,
    /// `containerLogMaxWorkers`: concurrent rotations, and concurrent compressions.
    pub workers: usize,
    /// `containerLogMonitorInterval`: maximum interval of the checks of a log.
    pub interval: Duration,
}

/// Log of a started container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerLog {
    /// The container.
    pub container: ContainerId,
    /// Absolute path.
    pub path: PathBuf,
    /// The container has not exited and may write.
    pub runs: bool,
}

/// Dependencies of log rotation.
#[derive(Clone, Debug)]
pub struct LogRotationDeps {
    /// Reopens logs.
    pub runtime: Arc<dyn ReopenLog>,
    /// `podLogsDir`, which no path may leave.
    pub root: PathBuf,
    /// Provides blocking threads.
    pub reader: LogReader,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The settings.
    pub rotation: LogRotation,
    /// Cancelled at agent shutdown.
    pub shutdown: CancellationToken,
}

/// Why a log was not reopened or rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RotationError {
    /// The container was removed in the meantime; the text of the runtime.
    Removed(String),
    /// Any other reason.
    Failed(String),
}

/// What writes the logs: the container runtime.
#[async_trait]
pub trait ReopenLog: Send + Sync + Debug + 'static {
    /// Makes it write to a new file at the path of the container's log, which was renamed.
    ///
    /// # Errors
    /// It did not.
    async fn reopen(&self, container: &ContainerId) -> Result<(), RotationError>;
}

/// Lists logs to rotate.
pub trait LogList: Send {
    /// A number that changes with the list. Cheap.
    fn version(&self) -> u64;
    /// Returns the logs of all containers that have started.
    fn logs(&self) -> Vec<ContainerLog>;
}

/// Rotates logs until dropped.
pub async fn rotate_logs(deps: LogRotationDeps, list: impl LogList) {
    let workers = deps.rotation.workers.clamp(1, MAX_WORKERS);
    let policy = deps.rotation.policy;
    let watches = WriteWatches::new();
    let mut schedule = Schedule::new(policy, deps.rotation.interval);
    let mut work = Work {
        rotator: Arc::new(Rotator {
            deps,
            watches: watches.clone(),
            rotations: Semaphore::new(workers),
            compressions: Semaphore::new(workers),
        }),
        in_progress: JoinSet::new(),
        jobs: HashMap::new(),
    };
    let mut version = None;
    let mut next_list = Instant::now() + LIST_INTERVAL;
    loop {
        tokio::select! {
            biased;
            Some(done) = work.in_progress.join_next_with_id() => work.done(done, &mut schedule),
            written = watches.written() => schedule.written(&written, Instant::now()),
            () = tokio::time::sleep_until(schedule.next_due().min(next_list)) => {}
        }
        let now = Instant::now();
        if now >= next_list {
            next_list = now + LIST_INTERVAL;
            let current = list.version();
            if version.replace(current) != Some(current) || schedule.is_full_check_due(now) {
                schedule.update(list.logs(), now);
            }
        }
        let due = schedule.take_due(now);
        if due.is_empty() {
            continue;
        }
        for checked in work.rotator.check(due).await {
            let container = checked.log.container.clone();
            if let Some(step) = schedule.checked(&checked, Instant::now()) {
                work.start(Job::Step(container, step), checked.log);
            }
        }
    }
}

/// A log with its size, or nothing if it could not be read.
#[derive(Debug)]
struct CheckedLog {
    log: ContainerLog,
    /// `None` inside for a missing file.
    size: Option<Option<u64>>,
    /// Number of the watch of the next write.
    watch: Option<i32>,
}

/// What a task does for a container.
#[derive(Clone, Debug)]
enum Job {
    Step(ContainerId, LogStep),
    Compress(ContainerId),
}

/// Files to compress after a rotation; none after other steps.
type ToCompress = Vec<String>;

/// Tasks in progress.
struct Work {
    rotator: Arc<Rotator>,
    in_progress: JoinSet<Option<(ContainerLog, ToCompress)>>,
    jobs: HashMap<Id, Job>,
}

impl Work {
    fn start(&mut self, job: Job, log: ContainerLog) {
        let rotator = Arc::clone(&self.rotator);
        let started = job.clone();
        let task = match job {
            Job::Step(_, step) => {
                let compresses = self.compresses(&log.container);
                let step = async move { rotator.carry_out(log, step, compresses).await };
                self.in_progress.spawn(step)
            }
            Job::Compress(_) => self.in_progress.spawn(async move {
                rotator.compress(&log).await;
                None
            }),
        };
        self.jobs.insert(task.id(), started);
    }

    /// True if files of the container are being compressed.
    fn compresses(&self, container: &ContainerId) -> bool {
        let mut jobs = self.jobs.values();
        jobs.any(|job| matches!(job, Job::Compress(of) if of == container))
    }

    fn done(
        &mut self,
        done: Result<(Id, Option<(ContainerLog, ToCompress)>), JoinError>,
        schedule: &mut Schedule,
    ) {
        let (id, result) = match done {
            Ok((id, result)) => (id, result),
            Err(error) => {
                tracing::error!(%error, "container log rotation panicked");
                (error.id(), None)
            }
        };
        let Some(Job::Step(container, step)) = self.jobs.remove(&id) else {
            return;
        };
        let ended = (step, result.is_some());
        let growth = schedule.step_done(&container, ended, Instant::now());
        if let Some((log, to_compress)) = result
            && !to_compress.is_empty()
            && !growth.outruns_compression()
            && !self.compresses(&container)
        {
            self.start(Job::Compress(container), log);
        }
    }
}

#[derive(Debug)]
struct Rotator {
    deps: LogRotationDeps,
    watches: WriteWatches,
    rotations: Semaphore,
    compressions: Semaphore,
}

impl Rotator {
    /// Reads the sizes of logs, and watches for the next writes.
    async fn check(&self, logs: Vec<ContainerLog>) -> Vec<CheckedLog> {
        let (root, watches) = (self.deps.root.clone(), self.watches.clone());
        let check = move || {
            let check = |log: ContainerLog| match files::check(&source(&root, &log), &watches) {
                Ok((size, watch)) => CheckedLog {
                    log,
                    size: Some(size),
                    watch,
                },
                Err(error) => {
                    let path = log.path.display();
                    tracing::warn!(%path, %error, "reading container log size failed");
                    CheckedLog {
                        log,
                        size: None,
                        watch: None,
                    }
                }
            };
            Ok(logs.into_iter().map(check).collect())
        };
        let checked = self.deps.reader.run_blocking(check).await;
        checked.unwrap_or_default()
    }

    /// Carries out a step; `None` if it failed. `compresses`: files of the log are being compressed.
    async fn carry_out(
        &self,
        log: ContainerLog,
        step: LogStep,
        compresses: bool,
    ) -> Option<(ContainerLog, ToCompress)> {
        let result = match step {
            LogStep::Reopen => self.reopen(&log).await.map(|()| Vec::new()),
            LogStep::Restore => self.give_back(&log).await.map(|()| Vec::new()),
            LogStep::Rotate => self.rotate(&log, compresses).await,
        };
        let (container, path) = (&log.container, log.path.display());
        match result {
            Ok(to_compress) => {
                tracing::debug!(%container, %path, ?step, "container log step done");
                Some((log, to_compress))
            }
            Err(RotationError::Removed(error)) => {
                tracing::debug!(%container, %path, ?step, error, "container of log removed");
                None
            }
            // the container keeps writing to its file; the next check retries
            Err(RotationError::Failed(error)) => {
                tracing::warn!(%container, %path, ?step, error, "container log step failed");
                None
            }
        }
    }

    async fn rotate(
        &self,
        log: &ContainerLog,
        compresses: bool,
    ) -> Result<ToCompress, RotationError> {
        let (source, now) = (source(&self.deps.root, log), self.deps.clock.now());
        let max_files = self.deps.rotation.policy.max_files;
        let worker = self.rotations.acquire().await;
        let worker = worker.map_err(failed)?;
        let shutdown = self.deps.shutdown.clone();
        let rotate = move || files::rotate(&source, (max_files, now), compresses, &shutdown);
        let renamed = self.deps.reader.run_blocking(rotate).await;
        drop(worker);
        let (renamed, to_compress) = renamed.map_err(failed)?;
        let Err(error) = self.reopen(log).await else {
            return Ok(to_compress);
        };
        let undo = self.deps.reader.run_blocking(move || renamed.undo()).await;
        let Err(undo) = undo else { return Err(error) };
        match error {
            // the log was removed with the container
            removed @ RotationError::Removed(_) if undo.kind() == io::ErrorKind::NotFound => {
                Err(removed)
            }
            RotationError::Removed(error) | RotationError::Failed(error) => {
                let text = format!("{error}; undoing the rename failed: {undo}");
                Err(RotationError::Failed(text))
            }
        }
    }

    /// Compresses the rotated files but the newest, which a reader may not have finished.
    async fn compress(&self, log: &ContainerLog) {
        let Ok(_worker) = self.compressions.acquire().await else {
            return;
        };
        let source = source(&self.deps.root, log);
        let shutdown = self.deps.shutdown.clone();
        let compressed = move || files::compress_older(&source, &shutdown);
        if let Err(error) = self.deps.reader.run_blocking(compressed).await {
            let path = log.path.display();
            tracing::warn!(%path, %error, "compressing container logs failed");
        }
    }

    async fn give_back(&self, log: &ContainerLog) -> Result<(), RotationError> {
        let source = source(&self.deps.root, log);
        let given = self
            .deps
            .reader
            .run_blocking(move || files::give_back(&source));
        given.await.map_err(failed)
    }

    async fn reopen(&self, log: &ContainerLog) -> Result<(), RotationError> {
        self.deps.runtime.reopen(&log.container).await
    }
}

fn failed(error: impl Display) -> RotationError {
    RotationError::Failed(error.to_string())
}

fn source(root: &std::path::Path, log: &ContainerLog) -> LogSource {
    LogSource {
        root: root.to_owned(),
        path: log.path.clone(),
    }
}

#[cfg(test)]
mod tests;
