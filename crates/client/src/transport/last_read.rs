//! When a connection last said anything.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The moment of the last byte from the other side. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct LastRead {
    began: Instant,
    /// Milliseconds since then, plus one; zero before the first byte.
    at: Arc<AtomicU64>,
}

impl LastRead {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            at: Arc::new(AtomicU64::new(0)),
        }
    }

    /// True if anything arrived at `moment` or later.
    pub(super) fn since(&self, moment: Instant) -> bool {
        self.at.load(Ordering::Relaxed) > self.millis(moment)
    }

    fn note(&self) {
        let now = self.millis(Instant::now()) + 1;
        self.at.store(now, Ordering::Relaxed);
    }

    fn millis(&self, moment: Instant) -> u64 {
        let elapsed = moment.saturating_duration_since(self.began).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX - 1)
    }
}

/// A stream of bytes that notes when some arrive.
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
            self.last.note();
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
