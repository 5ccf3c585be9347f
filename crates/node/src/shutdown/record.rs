//! Start and end of the last graceful shutdown: two gauges, and the file that restores them after
//! an agent restart. File name and format are upstream's.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use windlass_metrics::Metrics;
use windlass_types::{Clock, Timestamp};

/// Name of the file in the agent's root directory.
const FILE: &str = "graceful_node_shutdown_state";
/// Timeout of a write; a slow disk must not consume the pods' grace period.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Go's zero time.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// Persists the times of a shutdown.
#[derive(Clone, Debug)]
pub struct ShutdownRecord {
    /// The agent's root directory.
    pub root_dir: PathBuf,
    /// Source of the times.
    pub clock: Arc<dyn Clock>,
    /// The gauges.
    pub metrics: Metrics,
}

impl ShutdownRecord {
    /// Sets the gauges to the times of the last shutdown.
    pub(super) async fn load(self) {
        let path = self.root_dir.join(FILE);
        let text = match tokio::fs::read_to_string(&path).await {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "last shutdown times not read");
                return;
            }
        };
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let gauges = [
            ("startTime", &self.metrics.node.shutdown_start),
            ("endTime", &self.metrics.node.shutdown_end),
        ];
        for (field, gauge) in gauges {
            let time = state[field].as_str().filter(|text| *text != ZERO_TIME);
            let time = time.and_then(|text| text.parse::<Timestamp>().ok());
            if let Some(time) = time {
                gauge.set(time.as_second() as f64);
            }
        }
    }

    /// Records the start of a shutdown.
    pub(super) async fn begin(&self) -> Timestamp {
        let start = self.clock.now();
        self.metrics
            .node
            .shutdown_start
            .set(start.as_second() as f64);
        self.metrics.node.shutdown_end.set(0.0);
        self.store(start, None).await;
        start
    }

    /// Records that the pods of the shutdown started at `start` were stopped.
    pub(super) async fn end(&self, start: Timestamp) {
        let end = self.clock.now();
        self.metrics.node.shutdown_end.set(end.as_second() as f64);
        self.store(start, Some(end)).await;
    }

    async fn store(&self, start: Timestamp, end: Option<Timestamp>) {
        let end = end.map_or_else(|| ZERO_TIME.to_owned(), |end| end.to_string());
        let text = json!({"startTime": start.to_string(), "endTime": end}).to_string();
        let path = self.root_dir.join(FILE);
        let temporary = self.root_dir.join(format!(".tmp-{FILE}"));
        let write = async {
            tokio::fs::write(&temporary, text).await?;
            tokio::fs::rename(&temporary, &path).await
        };
        let written = timeout(WRITE_TIMEOUT, write).await;
        if let Err(error) = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            tracing::warn!(file = %path.display(), %error, "times of the shutdown not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_mailboxes::SimClock;

    use super::*;

    fn record(root_dir: PathBuf) -> ShutdownRecord {
        let start = Timestamp::from_second(1_700_000_000).expect("time");
        ShutdownRecord {
            root_dir,
            clock: Arc::new(SimClock::starting_at(start)),
            metrics: Metrics::new().expect("families"),
        }
    }

    fn gauges(record: &ShutdownRecord) -> [i64; 2] {
        let metrics = &record.metrics;
        [
            metrics.node.shutdown_start.get() as i64,
            metrics.node.shutdown_end.get() as i64,
        ]
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_times_are_restored_after_agent_restart() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join(FILE);
        let now = record(dir.path().into());
        let start = now.begin().await;
        let text = std::fs::read_to_string(&path).expect("written");
        let state: Value = serde_json::from_str(&text).expect("JSON");
        let expected = json!({"startTime": "2023-11-14T22:13:20Z", "endTime": ZERO_TIME});
        assert_eq!(state, expected);
        assert_eq!(gauges(&now), [1_700_000_000, 0]);
        let next = record(dir.path().into());
        next.clone().load().await;
        assert_eq!(gauges(&next), [1_700_000_000, 0]);

        now.end(start).await;
        let next = record(dir.path().into());
        next.clone().load().await;
        assert_eq!(gauges(&next), gauges(&now));
        assert_eq!(gauges(&next), [1_700_000_000, 1_700_000_000]);
        let files = std::fs::read_dir(dir.path()).expect("dir").count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[tokio::test]
    async fn shutdown_record_reads_go_kubelet_file_and_ignores_bad_json() {
        let dir = tempfile::tempdir().expect("dir");
        let read = async |text: &str| {
            std::fs::write(dir.path().join(FILE), text).expect("file");
            let record = record(dir.path().into());
            record.clone().load().await;
            gauges(&record)
        };
        let go = r#"{"startTime":"2023-11-14T23:13:20.123456789+01:00","endTime":"0001-01-01T00:00:00Z"}"#;
        assert_eq!(read(go).await, [1_700_000_000, 0]);
        assert_eq!(read("{").await, [0, 0]);
    }
}
