//! Wakes the followers of a log when its directory changes.
//!
//! All followers share one inotify descriptor, with one watch per directory, keyed by the watch
//! number. Without a watch, followers poll.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::inotify::{
    CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::LogSource;
use super::file::directory_beneath;

/// Minimum interval between two wake-ups of a follower.
const WAKE_INTERVAL: Duration = Duration::from_millis(5);

/// Interval at which a follower checks its log without an event.
const WATCHED_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The same without a watch: upstream's interval.
const UNWATCHED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

const EVENTS: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// Directory watches, from the first follower to the last.
#[derive(Clone, Debug, Default)]
pub(super) struct LogWatch(Arc<Mutex<Option<Watched>>>);

#[derive(Debug)]
struct Watched {
    inotify: Arc<AsyncFd<OwnedFd>>,
    directories: BTreeMap<i32, Directory>,
    /// Reads the events.
    task: tokio::task::AbortHandle,
}

#[derive(Debug)]
struct Directory {
    followers: usize,
    changed: watch::Sender<()>,
}

impl LogWatch {
    /// Changes in the directory of a log from now on. Requires a tokio runtime.
    pub(super) fn directory_of(&self, source: &LogSource) -> Changes {
        let watched = self.add(source);
        if let Err(error) = &watched {
            tracing::debug!(path = %source.path.display(), %error, "log directory not watched");
        }
        Changes(watched.ok())
    }

    /// How many directories are watched.
    #[cfg(test)]
    pub(super) fn directories(&self) -> usize {
        let watched = self.0.lock();
        watched.as_ref().map_or(0, |it| it.directories.len())
    }

    /// How many followers wait for a change.
    #[cfg(test)]
    pub(super) fn followers(&self) -> usize {
        let watched = self.0.lock();
        let directories = watched.iter().flat_map(|it| it.directories.values());
        directories.map(|it| it.followers).sum()
    }

    fn add(&self, source: &LogSource) -> std::io::Result<Watch> {
        let directory = directory_beneath(source)?;
        let mut watched = self.0.lock();
        let watched = match &mut *watched {
            Some(watched) => watched,
            none => none.insert(self.begin()?),
        };
        // by descriptor: the path may have changed
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let number = add_watch(watched.inotify.get_ref(), path, EVENTS)?;
        let entry = watched.directories.entry(number);
        let directory = entry.or_insert_with(|| Directory {
            followers: 0,
            changed: watch::Sender::new(()),
        });
        directory.followers += 1;
        Ok(Watch {
            all: self.clone(),
            inotify: Arc::clone(&watched.inotify),
            number,
            changed: directory.changed.subscribe(),
        })
    }

    fn begin(&self) -> std::io::Result<Watched> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        #[expect(deprecated, reason = "the descriptor of an OwnedFd does not change")]
        let inotify = AsyncFd::with_interest(inotify, Interest::READABLE)?;
        let inotify = Arc::new(inotify);
        let task = tokio::spawn(read_events(self.clone(), Arc::clone(&inotify)));
        Ok(Watched {
            inotify,
            directories: BTreeMap::new(),
            task: task.abort_handle(),
        })
    }

    /// Wakes the followers of changed directories.
    fn wake(&self, events: &BTreeMap<i32, ReadFlags>) {
        let mut watched = self.0.lock();
        let Some(watched) = &mut *watched else {
            return;
        };
        let lost = events
            .values()
            .any(|e| e.contains(ReadFlags::QUEUE_OVERFLOW));
        watched.directories.retain(|number, directory| {
            let flags = events.get(number);
            if lost || flags.is_some() {
                directory.changed.send_replace(());
            }
            // the directory was removed, and its watch with it
            !flags.is_some_and(|flags| flags.contains(ReadFlags::IGNORED))
        });
    }
}

async fn read_events(watch: LogWatch, inotify: Arc<AsyncFd<OwnedFd>>) {
    let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
    loop {
        let Ok(mut ready) = inotify.readable().await else {
            return;
        };
        ready.clear_ready();
        let mut events = BTreeMap::new();
        let mut reader = Reader::new(inotify.get_ref(), &mut buffer);
        // ends with EAGAIN; other errors recur with the next read
        while let Ok(event) = reader.next() {
            let flags = events.entry(event.wd()).or_insert_with(ReadFlags::empty);
            *flags |= event.events();
        }
        watch.wake(&events);
        tokio::time::sleep(WAKE_INTERVAL).await;
    }
}

/// Changes in one directory, for one follower.
#[derive(Debug)]
pub(super) struct Changes(Option<Watch>);

impl Changes {
    /// Waits until something may have changed.
    pub(super) async fn next(&mut self) {
        let interval = match &self.0 {
            Some(_) => WATCHED_CHECK_INTERVAL,
            None => UNWATCHED_CHECK_INTERVAL,
        };
        let changed = async {
            match &mut self.0 {
                Some(watch) => watch.changed.changed().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        if let Ok(false) = tokio::time::timeout(interval, changed).await {
            // the directory was removed: no more events
            self.0 = None;
        }
    }
}

/// One follower's part of a watch.
#[derive(Debug)]
struct Watch {
    all: LogWatch,
    /// Descriptor of the watch number.
    inotify: Arc<AsyncFd<OwnedFd>>,
    number: i32,
    changed: watch::Receiver<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let Some(watched) = &mut *all else {
            return;
        };
        if !Arc::ptr_eq(&watched.inotify, &self.inotify) {
            return;
        }
        // without an entry the kernel has removed the watch already
        if let Some(directory) = watched.directories.get_mut(&self.number) {
            directory.followers -= 1;
            if directory.followers == 0 {
                watched.directories.remove(&self.number);
                let _ = remove_watch(watched.inotify.get_ref(), self.number);
            }
        }
        if watched.directories.is_empty() {
            watched.task.abort();
            *all = None;
        }
    }
}
