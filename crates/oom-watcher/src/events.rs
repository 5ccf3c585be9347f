//! What a kill changes: the cache, and an event of the node.

use std::sync::Arc;

use windlass_actors::OomKillCache;
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, Reason};

use crate::detector::OomDetector;
use crate::message::OomKill;
use crate::path::container_cgroup;
use crate::record::records;

/// Reports kills.
#[derive(Debug)]
pub(crate) struct OomReporter {
    pub(crate) kills: OomKillCache,
    pub(crate) events: Arc<dyn EventRecorder>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) detector: OomDetector,
}

impl OomReporter {
    /// Reports the kills in bytes of the kernel log.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for record in records(bytes) {
            if let Some(kill) = self.detector.push(&record) {
                self.report(&kill);
            }
        }
    }

    /// Records were lost.
    pub(crate) fn lost(&mut self) {
        tracing::debug!("kernel log records were overwritten before they were read");
        self.detector.reset();
    }

    /// Counts `count` more kills in the cgroup of a container.
    pub(crate) fn count(&self, cgroup: &str, count: u64) {
        self.kills.record(cgroup, count, self.clock.now());
    }

    fn report(&self, kill: &OomKill) {
        tracing::info!(%kill, "OOM kill");
        if let Some(cgroup) = &kill.cgroup {
            self.count(container_cgroup(cgroup), 1);
        }
        if kill.is_system() {
            let reason = Reason::SystemOom;
            let message = message(kill);
            self.events
                .record_node(EventType::Warning, reason, &message);
        }
    }
}

/// Returns upstream's message.
fn message(kill: &OomKill) -> String {
    let start = "System OOM encountered";
    match (kill.process.as_str(), kill.pid) {
        ("", _) | (_, 0) => start.to_owned(),
        (process, pid) => format!("{start}, victim process: {process}, pid: {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_message_names_victim_if_known() {
        let kill = |process: &str, pid| OomKill {
            pid,
            process: process.to_owned(),
            cgroup: None,
            limit: None,
        };
        let full = "System OOM encountered, victim process: dd, pid: 7";
        assert_eq!(message(&kill("dd", 7)), full);
        assert_eq!(message(&kill("", 7)), "System OOM encountered");
        assert_eq!(message(&kill("dd", 0)), "System OOM encountered");
    }
}
