//! Notifications of this kernel that memory may be short.
//!
//! *owns* the descriptors of the notifications · *invariant* a missing file, a read-only one or a
//! kernel without PSI leaves the timer, and one log line says so · *bound* one notification a
//! second from each of at most four files · *restart* nothing to restore.

mod files;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use windlass_eviction::{Observation, Signal, Thresholds};
use windlass_stats::{KernelRoots, MemoryReader};

use crate::ports::{MemoryTrigger, MemoryTriggers, NodeReading, TriggerSink, UsageThresholds};
use files::{LimitFile, StallFile, UsageEvent};

/// Time between notifications of one file. PSI has this window in the kernel.
const SPACING: Duration = Duration::from_secs(1);
/// Interval of attempts to open the pods' cgroup, which another part of the agent creates.
const RETRY: Duration = Duration::from_secs(10);
/// Number of those attempts.
const ATTEMPTS: usize = 6;
/// Least change of a usage threshold that is applied.
const MIN_CHANGE: u64 = 16 << 20;

/// Kernel directories for [`HostTriggers`].
#[derive(Clone, Debug)]
pub struct TriggerPaths {
    /// Mount points.
    pub roots: KernelRoots,
    /// `cgroupRoot`.
    pub cgroup_root: String,
}

/// Notifications of this kernel: PSI, `memory.events` on cgroup v2, usage thresholds on v1.
#[derive(Debug)]
pub struct HostTriggers {
    paths: TriggerPaths,
}

/// Directories of cgroups in the hierarchy of memory.
#[derive(Clone, Debug)]
struct Dirs {
    is_v2: bool,
    root: Option<PathBuf>,
    pods: Option<PathBuf>,
}

/// Returns the usage at which the next threshold of each memory signal is met. The kernel counts
/// inactive page cache as used, a working set does not.
pub fn usage_thresholds(thresholds: &Thresholds, reading: &NodeReading) -> UsageThresholds {
    let of_signal = |signal: Signal, inactive_file: u64| {
        let observed: &Observation = reading.observations.get(signal)?;
        let amounts = thresholds.for_signal(signal);
        let amounts = amounts.filter_map(|threshold| {
            u64::try_from(threshold.quantity(observed.capacity).value()).ok()
        });
        // a threshold that is met has no next crossing
        let next = amounts
            .filter(|amount| *amount <= observed.available)
            .max()?;
        let working_set = observed.capacity.saturating_sub(next);
        Some(working_set.saturating_add(inactive_file))
    };
    UsageThresholds {
        node: of_signal(Signal::MemoryAvailable, reading.node_inactive_file),
        pods: of_signal(
            Signal::AllocatableMemoryAvailable,
            reading.pods_inactive_file,
        ),
    }
}

impl HostTriggers {
    /// Opens nothing yet.
    pub fn new(paths: TriggerPaths) -> Self {
        Self { paths }
    }

    async fn dirs(&self) -> Option<Dirs> {
        let paths = self.paths.clone();
        let find = move || {
            let reader = MemoryReader::open(&paths.roots, &paths.cgroup_root);
            Dirs {
                is_v2: reader.unified(),
                root: reader.root_dir(),
                pods: reader.pods_dir(),
            }
        };
        spawn_blocking(find).await.ok()
    }

    /// Waits until the pods' cgroup exists.
    async fn dirs_with_pods(&self) -> Option<Dirs> {
        let mut dirs = self.dirs().await?;
        for _ in 1..ATTEMPTS {
            if dirs.pods.is_some() {
                break;
            }
            sleep(RETRY).await;
            dirs = self.dirs().await?;
        }
        Some(dirs)
    }

    async fn run_node(&self, thresholds: watch::Receiver<UsageThresholds>, sink: &TriggerSink) {
        let stall = StallFile::open(&self.paths.roots.proc.join("pressure/memory"));
        let dirs = self.dirs().await;
        let root = dirs.filter(|dirs| !dirs.is_v2).and_then(|dirs| dirs.root);
        let usage = root.map(|dir| UsageWatch {
            dir,
            select: |it| it.node,
        });
        report("node", stall.as_ref().err(), usage.is_some());
        let stalls = async {
            if let Ok(file) = stall {
                watch_file("node", file.watch(|| sink(MemoryTrigger::Stall)).await);
            }
        };
        let usages = async {
            if let Some(usage) = usage {
                usage.run(thresholds, sink).await;
            }
        };
        tokio::join!(stalls, usages);
    }

    async fn run_pods(&self, thresholds: watch::Receiver<UsageThresholds>, sink: &TriggerSink) {
        let Some(Dirs {
            is_v2,
            pods: Some(dir),
            ..
        }) = self.dirs_with_pods().await
        else {
            return;
        };
        if !is_v2 {
            let usage = UsageWatch {
                dir,
                select: |it| it.pods,
            };
            return usage.run(thresholds, sink).await;
        }
        let stall = StallFile::open(&dir.join("memory.pressure"));
        let limit = LimitFile::open(&dir.join("memory.events"));
        report("pods", stall.as_ref().err(), limit.is_ok());
        let stalls = async {
            if let Ok(file) = stall {
                watch_file("pods", file.watch(|| sink(MemoryTrigger::Stall)).await);
            }
        };
        let limits = async {
            if let Ok(file) = limit {
                watch_file(
                    "pods",
                    file.watch(SPACING, || sink(MemoryTrigger::Limit)).await,
                );
            }
        };
        tokio::join!(stalls, limits);
    }
}

#[async_trait]
impl MemoryTriggers for HostTriggers {
    async fn run(&self, thresholds: watch::Receiver<UsageThresholds>, sink: TriggerSink) {
        tokio::join!(
            self.run_node(thresholds.clone(), &sink),
            self.run_pods(thresholds.clone(), &sink)
        );
    }
}

fn report(cgroup: &str, stall: Option<&io::Error>, has_other: bool) {
    match stall {
        None => tracing::debug!(cgroup, "memory stalls are notified"),
        Some(error) if has_other => {
            tracing::debug!(cgroup, %error, "no memory stall notifications")
        }
        Some(error) => tracing::info!(
            cgroup, %error, "no memory notifications by the kernel, memory is read by timer"
        ),
    }
}

fn watch_file(cgroup: &str, ended: io::Error) {
    tracing::info!(cgroup, error = %ended, "memory notifications ended, memory is read by timer");
}

/// Watches the usage of a cgroup (v1).
struct UsageWatch {
    dir: PathBuf,
    select: fn(UsageThresholds) -> Option<u64>,
}

impl UsageWatch {
    async fn run(&self, mut thresholds: watch::Receiver<UsageThresholds>, sink: &TriggerSink) {
        let mut armed: Option<(u64, UsageEvent)> = None;
        loop {
            let bytes = (self.select)(*thresholds.borrow_and_update());
            match bytes {
                None => armed = None,
                Some(bytes) if armed.as_ref().is_none_or(|(old, _)| is_other(*old, bytes)) => {
                    match UsageEvent::register(&self.dir, bytes) {
                        Ok(event) => armed = Some((bytes, event)),
                        Err(error) => {
                            let dir = self.dir.display();
                            tracing::info!(
                                %dir, %error,
                                "no memory usage notifications, memory is read by timer"
                            );
                            return;
                        }
                    }
                }
                Some(_) => {}
            }
            let crossed = async {
                match &armed {
                    Some((_, event)) => event.crossed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = thresholds.changed() => if changed.is_err() {
                    return;
                },
                crossed = crossed => match crossed {
                    Ok(()) => {
                        sink(MemoryTrigger::Usage);
                        sleep(SPACING).await;
                    }
                    Err(error) => return watch_file("usage", error),
                },
            }
        }
    }
}

fn is_other(old: u64, new: u64) -> bool {
    old.abs_diff(new) >= MIN_CHANGE
}

#[cfg(test)]
mod tests;
