//! Watches and scans the directory.
//!
//! An event triggers a scan of the whole directory; directories are watched before they are read.
//! A burst of events causes one scan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::Notify;
use windlass_node_rules::plugin_registration::SocketId;

use super::scan::scan;

/// One inotify instance for the directory and all directories below it.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    directory: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct DirectoryScan {
    /// The sockets; `None` if the directory cannot be read.
    pub(super) sockets: Option<BTreeMap<PathBuf, SocketId>>,
    /// Changes cause events.
    pub(super) watched: bool,
}

#[derive(Debug)]
struct Shared {
    wake: Arc<Wake>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// `None` until it could be created.
    notify: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// State shared by the thread of `notify` and the task.
#[derive(Debug, Default)]
struct Wake {
    /// A directory was removed or renamed: the set of watched directories is unknown.
    stale: AtomicBool,
    notify: Notify,
}

impl Watcher {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            shared: Arc::new(Shared {
                wake: Arc::default(),
                inner: Mutex::default(),
            }),
        }
    }

    /// Watches and reads the directory.
    pub(super) async fn scan(&self) -> DirectoryScan {
        let this = self.clone();
        let scan = tokio::task::spawn_blocking(move || this.scan_now()).await;
        // fails only at shutdown
        scan.unwrap_or(DirectoryScan {
            sockets: None,
            watched: true,
        })
    }

    /// Waits for an event.
    pub(super) async fn changed(&self) {
        self.shared.wake.notify.notified().await;
    }

    fn scan_now(&self) -> DirectoryScan {
        let mut inner = self.shared.inner.lock();
        if self.shared.wake.stale.swap(false, Ordering::AcqRel) {
            inner.watched.clear();
        }
        // a new directory is watched and then scanned again
        loop {
            let found = match scan(&self.directory) {
                Ok(found) => found,
                Err(error) => {
                    let directory = self.directory.display();
                    tracing::warn!(%directory, %error, "scanning the plugin directory failed");
                    return DirectoryScan {
                        sockets: None,
                        watched: false,
                    };
                }
            };
            let new: Vec<_> = found
                .directories
                .difference(&inner.watched)
                .cloned()
                .collect();
            if new.is_empty() {
                inner.watched.retain(|it| found.directories.contains(it));
                return DirectoryScan {
                    sockets: Some(found.sockets),
                    watched: true,
                };
            }
            for directory in new {
                if let Err(error) = inner.watch(&directory, &self.shared.wake) {
                    tracing::debug!(directory = %directory.display(), %error, "plugin directory not watched");
                    return DirectoryScan {
                        sockets: Some(found.sockets),
                        watched: false,
                    };
                }
            }
        }
    }
}

impl Shared {}

impl Inner {
    fn watch(&mut self, directory: &Path, wake: &Arc<Wake>) -> notify::Result<()> {
        if self.notify.is_none() {
            let wake = Arc::clone(wake);
            let watcher = notify::recommended_watcher(move |event| wake.handle(event))?;
            self.notify = Some(watcher);
        }
        if let Some(notify) = &mut self.notify {
            // an earlier watch of the same path may be stale
            let _ = notify.unwatch(directory);
            notify.watch(directory, RecursiveMode::NonRecursive)?;
            self.watched.insert(directory.to_owned());
        }
        Ok(())
    }
}

impl Wake {
    /// Runs on the thread of `notify`.
    fn handle(&self, event: notify::Result<Event>) {
        let Ok(event) = event else {
            // events were lost: scan
            self.notify.notify_one();
            return;
        };
        let displaces = match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) => true,
            EventKind::Create(_) | EventKind::Other | EventKind::Any => false,
            EventKind::Access(_) | EventKind::Modify(_) => {
                if !event.need_rescan() {
                    return;
                }
                false
            }
        };
        if displaces {
            self.stale.store(true, Ordering::Release);
        }
        self.notify.notify_one();
    }
}
