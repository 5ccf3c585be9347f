//! Detects changes at the manifest path with inotify.
//!
//! An event causes a read of the whole path; only removals are recorded, because the file may exist
//! again at the read. The directory and its nearest existing ancestor are watched, so that a
//! removed and recreated directory or a rename is detected. Only finished writes count.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Device and inode of a watched directory.
type Identity = (u64, u64);

/// Maximum number of removals recorded between two reads, about 100 bytes each.
const MAX_REMOVED: usize = 1024;

/// One inotify instance, through `notify`.
#[derive(Debug)]
pub(super) struct Watcher {
    notify: Mutex<RecommendedWatcher>,
    watched: Mutex<BTreeMap<PathBuf, Identity>>,
    shared: Arc<Shared>,
}

/// State shared by the `notify` thread and the actor.
#[derive(Debug, Default)]
struct Shared {
    /// A relevant event occurred.
    dirty: AtomicBool,
    /// A watched directory was removed or renamed. Its replacement may have the same inode, so all
    /// watches must be renewed.
    stale: AtomicBool,
    wake: Notify,
    relevant: Mutex<RelevantPaths>,
    /// Paths removed or renamed since the last read.
    removed: Mutex<BTreeSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct RelevantPaths {
    /// The manifest directory, with all its entries.
    directory: Option<PathBuf>,
    /// The entry of the nearest existing ancestor on the way to the path.
    entry: Option<PathBuf>,
}

impl Watcher {
    /// Creates an inotify instance; limited by `fs.inotify.max_user_instances`.
    pub(super) fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let handler = Arc::clone(&shared);
        let notify = notify::recommended_watcher(move |event| handler.handle(event));
        Ok(Self {
            notify: Mutex::new(notify.map_err(into_io)?),
            watched: Mutex::default(),
            shared,
        })
    }

    /// Watches the existing parts of `path`. Blocks; called before each read, so that no change is
    /// missed.
    pub(super) fn arm(&self, path: &Path) {
        let directory = path.is_dir().then(|| path.to_owned());
        let ancestor = ancestor(path);
        let entry = ancestor.as_ref().map(|(dir, name)| dir.join(name));
        let wanted: Vec<_> = directory
            .iter()
            .cloned()
            .chain(ancestor.map(|(dir, _)| dir))
            .collect();
        *self.shared.relevant.lock() = RelevantPaths { directory, entry };
        let mut notify = self.notify.lock();
        let mut watched = self.watched.lock();
        let stale = self.shared.stale.swap(false, Ordering::AcqRel);
        watched.retain(|path, identity| {
            let stays = !stale && wanted.contains(path) && identity_of(path) == Some(*identity);
            if !stays {
                // fails if the directory was removed together with its watch
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
                // without a watch the periodic read detects changes
                Err(error) => {
                    tracing::debug!(directory = %directory.display(), %error, "watching directory failed");
                }
            }
        }
    }

    /// Waits for a relevant event.
    pub(super) async fn changed(&self) {
        while !self.shared.dirty.swap(false, Ordering::AcqRel) {
            self.shared.wake.notified().await;
        }
    }

    /// Discards events that the next read covers.
    pub(super) fn drain(&self) {
        self.shared.dirty.store(false, Ordering::Release);
    }

    /// Takes the paths removed or renamed since the last call.
    pub(super) fn removed(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut self.shared.removed.lock())
    }
}

impl Shared {
    /// Handles an event; runs on the `notify` thread.
    fn handle(&self, event: notify::Result<Event>) {
        let matters = match event {
            Ok(event) => {
                let displaced = displaces(&event.kind) && self.is_watched(&event);
                if displaced {
                    self.stale.store(true, Ordering::Release);
                }
                let concerns = is_relevant(&event.kind) && self.concerns(&event);
                if concerns && removes(&event.kind) {
                    let mut removed = self.removed.lock();
                    if removed.len() < MAX_REMOVED {
                        removed.extend(event.paths.iter().cloned());
                    }
                }
                displaced || event.need_rescan() || concerns
            }
            // events were lost or a watch failed: read the path
            Err(error) => {
                tracing::debug!(%error, "inotify error");
                true
            }
        };
        if matters {
            self.dirty.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }

    /// True for an event of a watched directory itself.
    fn is_watched(&self, event: &Event) -> bool {
        let wanted = self.relevant.lock();
        let ancestor = wanted.entry.as_deref().and_then(Path::parent);
        let watched = [wanted.directory.as_deref(), ancestor];
        let is_watched = |path: &PathBuf| watched.contains(&Some(path.as_path()));
        event.paths.iter().any(is_watched)
    }

    fn concerns(&self, event: &Event) -> bool {
        let wanted = self.relevant.lock();
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

/// True for creations, removals, renames, changed attributes and finished writes.
fn is_relevant(kind: &EventKind) -> bool {
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

/// Returns the nearest existing directory above `path`, and the name of the next component.
fn ancestor(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let mut below = path;
    while let Some(parent) = below.parent() {
        // an empty parent is the working directory
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
