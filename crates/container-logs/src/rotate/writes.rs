//! Notices the first write to a log after a check.
//!
//! One inotify descriptor with a one-shot watch per log: a log with many writes causes one event
//! per check, an idle one none. Without a watch, a log is read once per interval.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ONESHOT)
    .union(WatchFlags::DONT_FOLLOW);

/// One-shot watches of logs. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct WriteWatches(Option<Arc<AsyncFd<OwnedFd>>>);

impl WriteWatches {
    /// Creates the descriptor. Requires a tokio runtime.
    pub(super) fn new() -> Self {
        let inotify = Self::open();
        if let Err(error) = &inotify {
            tracing::warn!(%error, "container logs not watched, their sizes are read per interval");
        }
        Self(inotify.ok().map(Arc::new))
    }

    fn open() -> io::Result<AsyncFd<OwnedFd>> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "the descriptor of an OwnedFd does not change")]
        AsyncFd::with_interest(inotify, Interest::READABLE)
    }

    /// Watches for the next write to a file; returns the number of the watch. A file that is
    /// watched already keeps it.
    pub(super) fn add(&self, directory: impl AsFd, name: &str) -> Option<i32> {
        let inotify = self.0.as_ref()?;
        // by descriptor: the path may have changed
        let path = format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd());
        add_watch(inotify.get_ref(), path, EVENTS).ok()
    }

    /// Waits for writes; returns the numbers of the watches, which have ended.
    pub(super) async fn written(&self) -> Vec<i32> {
        let Some(inotify) = &self.0 else {
            return std::future::pending().await;
        };
        match inotify.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => return std::future::pending().await,
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        let mut numbers = Vec::new();
        // ends with EAGAIN; other errors recur with the next read
        while let Ok(event) = reader.next() {
            if numbers.last() != Some(&event.wd()) {
                numbers.push(event.wd());
            }
        }
        numbers
    }
}
