//! The time of the last read from a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

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

    fn record(&self) {
        let now = self.millis(Instant::now()) + 1;
        self.at.store(now, Ordering::Relaxed);
    }

    fn millis(&self, time: Instant) -> u64 {
        let elapsed = time.saturating_duration_since(self.started).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX - 1)
    }
}

/// A byte stream that records the time of reads.
pub(super) struct ReadTracker<T> {
    pub(super) inner: T,
    pub(super) last: LastRead,
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadTracker<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.last.record();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadTracker<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
