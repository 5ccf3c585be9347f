//! Tells when something in the directory may have changed, and looks.
//!
//! An event is a hint: the directory is read as a whole, and what is below it is watched before it
//! is read. Events of one burst are one look.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use windlass_node_rules::plugin_registration::SocketId;

use super::scan::scan;

/// One inotify instance for the directory and all below it.
#[derive(Clone, Debug)]
pub(super) struct Watcher {
    directory: PathBuf,
    shared: Arc<Shared>,
}

/// What one look came to.
#[derive(Debug)]
pub(super) struct DirectoryScan {
    /// The sockets; `None` if the directory cannot be read.
    pub(super) sockets: Option<BTreeMap<PathBuf, SocketId>>,
    /// Events report changes.
    pub(super) watched: bool,
}

#[derive(Debug)]
struct Shared {
    wake: Arc<Wake>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// `None` until one could be had.
    notify: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

/// What the thread of `notify` and the task share.
#[derive(Debug, Default)]
struct Wake {
    /// A directory went or came: what is watched cannot be told any more.
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
        let look = tokio::task::spawn_blocking(move || this.scan_now()).await;
        // the pool is gone: so is the agent
        look.unwrap_or(DirectoryScan {
            sockets: None,
            watched: true,
        })
    }

    /// Waits for an event.
    pub(super) async fn changed(&self) {
        self.shared.wake.notify.notified().await;
    }

    fn scan_now(&self) -> DirectoryScan {
        let mut inner = self.shared.inner();
        if self.shared.wake.stale.swap(false, Ordering::AcqRel) {
            inner.watched.clear();
        }
        // a directory that is new is watched and then read again
        loop {
            let found = match scan(&self.directory) {
                Ok(found) => found,
                Err(error) => {
                    let directory = self.directory.display();
                    tracing::warn!(%directory, %error, "plugins are not found");
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
                    tracing::debug!(directory = %directory.display(), %error, "not watched");
                    return DirectoryScan {
                        sockets: Some(found.sockets),
                        watched: false,
                    };
                }
            }
        }
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn watch(&mut self, directory: &Path, wake: &Arc<Wake>) -> notify::Result<()> {
        if self.notify.is_none() {
            let wake = Arc::clone(wake);
            let watcher = notify::recommended_watcher(move |event| wake.handle(event))?;
            self.notify = Some(watcher);
        }
        if let Some(notify) = &mut self.notify {
            // a watch of what was there before, which may be there no more
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
            // events were lost: look again
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
