//! Tells when something at the manifest path may have changed.
//!
//! A hint, never more: whatever the events say, the path is read again as a whole. Watched are
//! the directory itself and its nearest existing ancestor, there only for the next component's
//! name, so that a directory that vanishes and returns, or a file that is replaced by a rename,
//! is noticed at once. A finished write counts, not every write before it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What is watched, by watch descriptor: everything in a directory, or one name.
type Watches = BTreeMap<i32, Option<OsString>>;

/// One inotify instance.
#[derive(Debug)]
pub(super) struct Watcher {
    fd: AsyncFd<OwnedFd>,
    watches: Mutex<Watches>,
}

impl Watcher {
    /// An instance that watches nothing. Fails when the user has too many of them
    /// (`fs.inotify.max_user_instances`).
    #[expect(
        deprecated,
        reason = "the successor is an unsafe fn; an OwnedFd keeps what that asks for"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self {
            fd: AsyncFd::with_interest(fd, Interest::READABLE)?,
            watches: Mutex::default(),
        })
    }

    /// Watches what there is of `path` now. Blocking; done before each read of the path, so
    /// that nothing happens between the two unnoticed.
    pub(super) fn arm(&self, path: &Path) {
        let mut wanted = Vec::new();
        if path.is_dir() {
            wanted.push((path.to_owned(), None));
        }
        wanted.extend(ancestor(path));
        let mut watches = self.watches();
        let mut next = Watches::new();
        for (directory, name) in wanted {
            match inotify::add_watch(self.fd.get_ref(), &directory, events()) {
                Ok(descriptor) => {
                    next.insert(descriptor, name);
                }
                // The periodic read finds what is not watched.
                Err(error) => {
                    tracing::debug!(directory = %directory.display(), %error, "not watched");
                }
            }
        }
        for descriptor in watches.keys().filter(|d| !next.contains_key(d)) {
            // Fails if the kernel has dropped it already, with its directory.
            let _ = inotify::remove_watch(self.fd.get_ref(), *descriptor);
        }
        *watches = next;
    }

    /// Waits for an event that concerns the path.
    pub(super) async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.fd.readable().await?;
            if self.read_events()? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// Forgets events that the read about to begin covers anyway.
    pub(super) fn drain(&self) {
        if let Err(error) = self.read_events() {
            tracing::debug!(%error, "inotify events not read");
        }
    }

    /// Takes all waiting events; true if one of them matters.
    fn read_events(&self) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(self.fd.get_ref(), &mut buffer);
        let mut matters = false;
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|n| OsStr::from_bytes(n.to_bytes()));
                    matters |= self.concerns(event.wd(), event.events(), name);
                }
                Err(Errno::WOULDBLOCK) => return Ok(matters),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn concerns(&self, descriptor: i32, events: ReadFlags, name: Option<&OsStr>) -> bool {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return true;
        }
        match self.watches().get(&descriptor) {
            // A directory that is no longer wanted, or of which the kernel says its last word.
            None => false,
            Some(None) => true,
            // An event without a name is about the ancestor itself.
            Some(Some(wanted)) => name.is_none_or(|name| name == wanted),
        }
    }

    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn events() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
}

/// The nearest existing directory above `path` and the name below it that leads to `path`.
fn ancestor(path: &Path) -> Option<(PathBuf, Option<OsString>)> {
    let mut below = path;
    while let Some(parent) = below.parent() {
        // a relative path's last parent is empty and means the working directory
        let directory = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        if directory.is_dir() {
            return Some((directory.to_owned(), below.file_name().map(OsStr::to_owned)));
        }
        below = parent;
    }
    None
}
