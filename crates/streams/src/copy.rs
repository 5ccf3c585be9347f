//! Two connections joined until one of them is done.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// Bytes of the buffer of one direction: a TLS record.
pub const BUFFER_BYTES: usize = 16 << 10;

/// Why two connections are no longer joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client is done or gone.
    Client,
    /// The runtime is done or gone.
    Runtime,
    /// Nothing was said for too long.
    Idle,
}

/// When something was last said, in milliseconds since the start.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    last: AtomicU64,
}

impl Activity {
    /// Something was sent just now.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    /// Something is sent.
    pub(crate) fn touch(&self) {
        let now = self.start.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Waits until nothing was said for `patience`.
    pub(crate) async fn idle(&self, patience: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = self.start + last + patience;
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

/// Copies both ways until either side is done, breaks, or both are silent for `idle`.
pub(crate) async fn join<C, R>(client: C, runtime: R, idle: Duration) -> End
where
    C: AsyncRead + AsyncWrite,
    R: AsyncRead + AsyncWrite,
{
    let activity = Activity::new();
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_runtime, mut to_runtime) = tokio::io::split(runtime);
    let end = tokio::select! {
        biased;
        // first: what the runtime has said reaches the client even if it has gone already
        _ = pass(&mut from_runtime, &mut to_client, &activity) => End::Runtime,
        _ = pass(&mut from_client, &mut to_runtime, &activity) => End::Client,
        () = activity.idle(idle) => End::Idle,
    };
    if end != End::Client {
        // a proper end, as far as the client still takes it
        let _ = tokio::time::timeout(FAREWELL, to_client.shutdown()).await;
    }
    end
}

/// For the last bytes of a connection, such as TLS's farewell.
pub(crate) const FAREWELL: Duration = Duration::from_secs(5);

async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        activity.touch();
        let Some(said) = buffer.get(..read).filter(|said| !said.is_empty()) else {
            return Ok(());
        };
        to.write_all(said).await?;
        to.flush().await?;
        activity.touch();
    }
}
