//! Copies between two connections until one of them ends.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Buffer size for one direction: a TLS record.
pub const BUFFER_BYTES: usize = 16 << 10;

/// Why the copying ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed its side or disconnected.
    Client,
    /// The runtime closed its side or disconnected.
    Runtime,
    /// Idle timeout.
    Idle,
}

/// Time of the last activity, in milliseconds since the start.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    last: AtomicU64,
}

impl Activity {
    /// Starts with activity now.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    /// Records activity.
    pub(crate) fn touch(&self) {
        let now = self.start.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Waits until there was no activity for `timeout`.
    pub(crate) async fn idle(&self, timeout: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = self.start + last + timeout;
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// Copies both ways until either side ends or fails, or both are idle for `idle`.
pub(crate) async fn copy_bidirectional<C, R>(client: C, runtime: R, idle: Duration) -> End
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let end = tokio::select! {
        biased;
        // first: the runtime's last output reaches the client even if the client has closed its
        // side
        _ = pass(&mut from_runtime, &mut to_client, &activity) => End::Runtime,
        _ = pass(&mut from_client, &mut to_runtime, &activity) => End::Client,
        () = activity.idle(idle) => End::Idle,
    };
    if end != End::Client {
        // a clean close, if the client still reads
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, to_client.shutdown()).await;
    }
    end
}

/// Timeout for the last bytes of a connection, such as TLS's close_notify.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        activity.touch();
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(());
        };
        to.write_all(bytes).await?;
        to.flush().await?;
        activity.touch();
    }
}
