//! Rotates container logs (upstream `ContainerLogManager`): checks their sizes once per interval.
//!
//! *owns* the rotated files of a log · *invariant* no line is lost: the current file is renamed and
//! the runtime opens a new one; if it fails, the rename is undone. An interrupted rotation is
//! completed by the next check, or undone if the container has exited · *bound* one rotation per
//! container, `workers` concurrent ones; a hung runtime call delays only its container, a hung log
//! disk all rotations, on one thread.

mod files;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use windlass_cri::RuntimeService;
use windlass_pod_lifecycle::log_rotation::{LogStep, RotationPolicy};
use windlass_types::{Clock, ContainerId};

use super::{LogReader, LogSource, MAX_THREADS};

/// Maximum concurrent rotations: half of the threads of logs are left to readers.
const MAX_WORKERS: usize = MAX_THREADS / 2;

/// Settings of log rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// Maximum size and number of files.
    pub policy: RotationPolicy,
    /// `containerLogMaxWorkers`: concurrent rotations.
    pub workers: usize,
    /// `containerLogMonitorInterval`: interval of the checks.
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
    pub runtime: Arc<dyn RuntimeService>,
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

/// Rotates logs until dropped. `logs` lists the logs, once per interval.
pub async fn rotate_logs(deps: LogRotationDeps, logs: impl Fn() -> Vec<ContainerLog>) {
    let workers = deps.rotation.workers.clamp(1, MAX_WORKERS);
    let interval = deps.rotation.interval;
    let rotator = Arc::new(Rotator {
        deps,
        workers: Semaphore::new(workers),
    });
    let mut in_progress = JoinSet::new();
    let mut busy: HashMap<task::Id, ContainerId> = HashMap::new();
    loop {
        tokio::time::sleep(interval).await;
        while let Some(done) = in_progress.try_join_next_with_id() {
            let (id, error) = match done {
                Ok((id, ())) => (id, None),
                Err(error) => (error.id(), Some(error)),
            };
            let container = busy.remove(&id);
            if let Some(error) = error {
                tracing::error!(?container, %error, "container log rotation panicked");
            }
        }
        let mut logs = logs();
        logs.retain(|log| !busy.values().any(|it| *it == log.container));
        for (log, step) in rotator.plan(logs).await {
            let container = log.container.clone();
            let rotator = Arc::clone(&rotator);
            let task = in_progress.spawn(async move { rotator.carry_out(&log, step).await });
            busy.insert(task.id(), container);
        }
    }
}

#[derive(Debug)]
struct Rotator {
    deps: LogRotationDeps,
    workers: Semaphore,
}

impl Rotator {
    /// Logs to rotate, reopen or restore.
    async fn plan(&self, logs: Vec<ContainerLog>) -> Vec<(ContainerLog, LogStep)> {
        if logs.is_empty() {
            return Vec::new();
        }
        let (root, policy) = (self.deps.root.clone(), self.deps.rotation.policy);
        let check = move || {
            let step = |log: ContainerLog| match files::size(&source(&root, &log)) {
                Ok(size) => policy.step(log.runs, size).map(|step| (log, step)),
                Err(error) => {
                    let path = log.path.display();
                    tracing::warn!(%path, %error, "reading container log size failed");
                    None
                }
            };
            Ok(logs.into_iter().filter_map(step).collect())
        };
        self.deps
            .reader
            .run_blocking(check)
            .await
            .unwrap_or_default()
    }

    async fn carry_out(&self, log: &ContainerLog, step: LogStep) {
        let result = match step {
            LogStep::Reopen => self.reopen(log).await,
            LogStep::Restore => self.give_back(log).await,
            LogStep::Rotate => self.rotate(log).await,
        };
        let (container, path) = (&log.container, log.path.display());
        match result {
            Ok(()) => tracing::debug!(%container, %path, ?step, "container log step done"),
            // the container keeps writing to its file; the next check retries
            Err(error) => {
                tracing::warn!(%container, %path, ?step, error, "container log step failed")
            }
        }
    }

    async fn rotate(&self, log: &ContainerLog) -> Result<(), String> {
        let (source, now) = (source(&self.deps.root, log), self.deps.clock.now());
        let max_files = self.deps.rotation.policy.max_files;
        let worker = self.workers.acquire().await.map_err(|it| it.to_string())?;
        let shutdown = self.deps.shutdown.clone();
        let rotate = move || files::rotate(&source, (max_files, now), &shutdown);
        let renamed = self.deps.reader.run_blocking(rotate).await;
        drop(worker);
        let renamed = renamed.map_err(|error| error.to_string())?;
        let Err(error) = self.reopen(log).await else {
            return Ok(());
        };
        match self.deps.reader.run_blocking(move || renamed.undo()).await {
            Ok(()) => Err(error),
            Err(undo) => Err(format!("{error}; undoing the rename failed: {undo}")),
        }
    }

    async fn give_back(&self, log: &ContainerLog) -> Result<(), String> {
        let source = source(&self.deps.root, log);
        let given = self
            .deps
            .reader
            .run_blocking(move || files::give_back(&source));
        given.await.map_err(|error| error.to_string())
    }

    async fn reopen(&self, log: &ContainerLog) -> Result<(), String> {
        let reopened = self.deps.runtime.reopen_container_log(&log.container);
        reopened.await.map_err(|error| error.to_string())
    }
}

fn source(root: &std::path::Path, log: &ContainerLog) -> LogSource {
    LogSource {
        root: root.to_owned(),
        path: log.path.clone(),
    }
}

#[cfg(test)]
mod tests;
