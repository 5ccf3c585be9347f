//! The task that follows the sources of OOM kills.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use windlass_actors::OomKillCache;
use windlass_types::{Clock, EventRecorder};

use crate::detector::OomDetector;
use crate::events::OomReporter;
use crate::{kmsg, memory_events};

/// Where kernel messages come from.
#[derive(Debug)]
pub enum KernelLog {
    /// A device with the format of `/dev/kmsg`, read from its end.
    Device(PathBuf),
    /// Records of a simulation.
    Records(mpsc::Receiver<Vec<u8>>),
}

/// Sources of OOM kills.
#[derive(Debug)]
pub struct OomSource {
    /// The kernel log.
    pub log: KernelLog,
    /// Mount point of cgroup v2, and directories of which one is the cgroup of all pods: used
    /// without the kernel log. `None` on cgroup v1.
    pub cgroups: Option<(PathBuf, Vec<PathBuf>)>,
}

/// Dependencies of [`watch_oom_kills`].
#[derive(Debug)]
pub struct OomWatcherDeps {
    /// The sources.
    pub source: OomSource,
    /// Receives the kills of containers.
    pub kills: OomKillCache,
    /// Records `SystemOOM` of the node.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Follows the sources until dropped.
///
/// *owns* the state of the kernel log · *receives* its records, or changes of `memory.events` ·
/// *sends* nothing to actors: it writes the `OomKillCache` and records events · *invariant* one
/// source at a time, so no kill counts twice · *bound* one record at a time; the cache is bounded ·
/// *restart* starts at the end of the log.
pub async fn watch_oom_kills(deps: OomWatcherDeps) {
    let OomWatcherDeps {
        source: OomSource { log, cgroups },
        kills,
        events,
        clock,
    } = deps;
    let mut reporter = OomReporter {
        kills,
        events,
        clock,
        detector: OomDetector::default(),
    };
    let device = match log {
        KernelLog::Records(mut records) => {
            while let Some(bytes) = records.recv().await {
                reporter.read(&bytes);
            }
            return;
        }
        KernelLog::Device(device) => device,
    };
    let error = match kmsg::open(&device) {
        Ok(log) => kmsg::follow(&log, &mut reporter).await,
        Err(error) => error,
    };
    let device = device.display();
    let Some((mount, kubepods)) = cgroups else {
        tracing::warn!(%device, %error, "kernel log not readable, OOM kills are not reported");
        return;
    };
    tracing::warn!(
        %device, %error,
        "kernel log not readable, using memory.events: system OOMs are not reported"
    );
    let error = memory_events::follow(mount, kubepods, &reporter).await;
    tracing::warn!(%error, "memory.events not watched, OOM kills are not reported");
}

#[cfg(test)]
mod tests;
