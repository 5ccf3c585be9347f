//! Tells when something at the manifest path may have changed.
//!
//! A hint: whatever the events say, the path is read again as a whole. Only a removal says more,
//! for the file may be back by then. Watched are the directory itself and its nearest existing
//! ancestor, there only for the next component's name, so that a directory that vanishes and
//! returns, or a file that is replaced by a rename, is noticed at once. A finished write counts, not every write before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// A directory as it was when it was watched: another one under the same path is another.
type Identity = (u64, u64);

/// Most removals remembered between two reads: about 100 bytes each. Of more than these, a file that
/// is back at the next read counts as never gone.
const MAX_REMOVED: usize = 1024;

/// One inotify instance, through `notify`.
#[derive(Debug)]
pub(super) struct Watcher {
    notify: Mutex<RecommendedWatcher>,
    watched: Mutex<BTreeMap<PathBuf, Identity>>,
    shared: Arc<Shared>,
}

/// What the thread of `notify` and the actor share.
#[derive(Debug, Default)]
struct Shared {
    /// Something happened that matters.
    dirty: AtomicBool,
    /// A watched directory was removed or renamed. One that took its place may have the same
    /// inode, so what is watched cannot be told from the file system any more.
    stale: AtomicBool,
    wake: Notify,
    wanted: Mutex<Wanted>,
    /// What was removed or renamed away since the last read.
    removed: Mutex<BTreeSet<PathBuf>>,
}

/// What matters at present.
#[derive(Debug, Default)]
struct Wanted {
    /// The manifest directory: everything in it.
    directory: Option<PathBuf>,
    /// The one entry of the nearest existing ancestor that leads to the path.
    entry: Option<PathBuf>,
}

impl Watcher {
    /// An instance that watches nothing. Fails when the user has too many of them
    /// (`fs.inotify.max_user_instances`).
    pub(super) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let handler = Arc::clone(&shared);
        let notify = notify::recommended_watcher(move |event| handler.hear(event));
        Ok(Self {
            notify: Mutex::new(notify.map_err(into_io)?),
            watched: Mutex::default(),
            shared,
        })
    }

    /// Watches what there is of `path` now. Blocking; done before each read of the path, so
    /// that nothing happens between the two unnoticed.
    pub(super) fn arm(&self, path: &Path) {
        let directory = path.is_dir().then(|| path.to_owned());
        let ancestor = ancestor(path);
        let entry = ancestor.as_ref().map(|(dir, name)| dir.join(name));
        let wanted: Vec<_> = directory
            .iter()
            .cloned()
            .chain(ancestor.map(|(dir, _)| dir))
            .collect();
        *lock(&self.shared.wanted) = Wanted { directory, entry };
        let mut notify = lock(&self.notify);
        let mut watched = lock(&self.watched);
        let stale = self.shared.stale.swap(false, Ordering::AcqRel);
        watched.retain(|path, identity| {
            let stays = !stale && wanted.contains(path) && identity_of(path) == Some(*identity);
            if !stays {
                // fails if the directory is gone, and its watch with it
                let _ = notify.unwatch(path);
            }
            stays
        });
        for directory in wanted {
            let Some(identity) = identity_of(&directory) else {
                continue;
            };
            if watched.contains_key(&directory) {
                continue;
            }
            match notify.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    watched.insert(directory, identity);
                }
                // the periodic read finds what is not watched
                Err(error) => {
                    tracing::debug!(directory = %directory.display(), %error, "not watched");
                }
            }
        }
    }

    /// Waits for an event that concerns the path.
    pub(super) async fn changed(&self) {
        while !self.shared.dirty.swap(false, Ordering::AcqRel) {
            self.shared.wake.notified().await;
        }
    }

    /// Forgets events that the read about to begin covers anyway.
    pub(super) fn drain(&self) {
        self.shared.dirty.store(false, Ordering::Release);
    }

    /// Takes what was removed or renamed away since the last call, whether it is back or not.
    pub(super) fn removed(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut lock(&self.shared.removed))
    }
}

impl Shared {
    /// Runs on the thread of `notify`.
    fn hear(&self, event: notify::Result<Event>) {
        let matters = match event {
            Ok(event) => {
                let displaced = displaces(&event.kind) && self.is_watched(&event);
                if displaced {
                    self.stale.store(true, Ordering::Release);
                }
                let concerns = counts(&event.kind) && self.concerns(&event);
                if concerns && removes(&event.kind) {
                    let mut removed = lock(&self.removed);
                    if removed.len() < MAX_REMOVED {
                        removed.extend(event.paths.iter().cloned());
                    }
                }
                displaced || event.need_rescan() || concerns
            }
            // events were lost or a watch failed: look again
            Err(error) => {
                tracing::debug!(%error, "file events");
                true
            }
        };
        if matters {
            self.dirty.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }

    /// True if the event is about a watched directory itself.
    fn is_watched(&self, event: &Event) -> bool {
        let wanted = lock(&self.wanted);
        let ancestor = wanted.entry.as_deref().and_then(Path::parent);
        let watched = [wanted.directory.as_deref(), ancestor];
        let is_watched = |path: &PathBuf| watched.contains(&Some(path.as_path()));
        event.paths.iter().any(is_watched)
    }

    fn concerns(&self, event: &Event) -> bool {
        let wanted = lock(&self.wanted);
        let inside = |path: &PathBuf| {
            let directory = wanted.directory.as_deref();
            directory.is_some_and(|d| path == d || path.parent() == Some(d))
        };
        event
            .paths
            .iter()
            .any(|path| wanted.entry.as_ref() == Some(path) || inside(path))
    }
}

/// Creations, removals, renames, changed attributes and finished writes.
fn counts(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(kind) => !matches!(kind, ModifyKind::Data(_)),
        EventKind::Any | EventKind::Create(_) | EventKind::Remove(_) | EventKind::Other => true,
    }
}

fn displaces(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
    )
}

/// True if the paths of the event are no longer there afterwards.
fn removes(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
    )
}

fn identity_of(path: &Path) -> Option<Identity> {
    std::fs::metadata(path)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}

fn into_io(error: notify::Error) -> io::Error {
    match error.kind {
        notify::ErrorKind::Io(error) => error,
        _ => io::Error::other(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The nearest existing directory above `path` and the name below it that leads to `path`.
fn ancestor(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let mut below = path;
    while let Some(parent) = below.parent() {
        // a relative path's last parent is empty and means the working directory
        let directory = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        if directory.is_dir() {
            return Some((directory.to_owned(), below.file_name()?));
        }
        below = parent;
    }
    None
}
