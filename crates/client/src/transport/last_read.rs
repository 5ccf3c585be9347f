//! The time of the last read from a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

/// Time of the last received byte. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct LastRead {
    started: Instant,
    /// Milliseconds since then, plus one; zero before the first byte.
    at: Arc<AtomicU64>,
}

impl LastRead {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            at: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Returns true if bytes arrived at `time` or later.
    pub(super) fn since(&self, time: Instant) -> bool {
        self.at.load(Ordering::Relaxed) > self.millis(time)
    }

    /// Wraps a connection whose reads are recorded.
    pub(super) fn track<T: AsyncRead>(
        &self,
        connection: T,
    ) -> InspectReader<T, impl FnMut(&[u8]) + use<T>> {
        let last = self.clone();
        InspectReader::new(connection, move |bytes| {
            if !bytes.is_empty() {
                let now = last.millis(Instant::now()) + 1;
                last.at.store(now, Ordering::Relaxed);
            }
        })
    }

    fn millis(&self, time: Instant) -> u64 {
        let elapsed = time.saturating_duration_since(self.started).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX - 1)
    }
}
