//! State file with one value per pod, written in the background.
//!
//! *owns* the last recorded value of each pod · *receives* `record` and `forget` · *sends* one file
//! · *invariant* at most one write is in progress, and it or the next one writes every recorded
//! change · *bound* one value per pod; changes during a write coalesce into one more write ·
//! *restart* `open` returns the recorded values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{oneshot, watch};
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::store::Store;

/// The recorded value of a pod.
pub(crate) trait Record:
    Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<V> Record for V where
    V: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// Handle to the state file. Clones share it; recording never blocks on the disk.
#[derive(Debug)]
pub(crate) struct TableFile<V> {
    inner: Arc<Inner<V>>,
}

impl<V> Clone for TableFile<V> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

#[derive(Debug)]
struct Inner<V> {
    store: Store,
    /// Name of the file in the store.
    name: &'static str,
    state: Mutex<State<V>>,
    /// Held for a whole write, so that an older copy never replaces a newer one.
    disk: Mutex<()>,
    /// Number of the last written change.
    written: watch::Sender<u64>,
}

#[derive(Debug)]
struct State<V> {
    tables: BTreeMap<PodUid, V>,
    /// Number of the last change.
    changes: u64,
    writing: bool,
}

impl<V: Record> TableFile<V> {
    /// Opens the file and returns it with the recorded values. Blocks on the disk.
    pub(crate) fn open(
        store: Store,
        name: &'static str,
    ) -> Result<(Self, BTreeMap<PodUid, V>), StoreError> {
        let tables: BTreeMap<PodUid, V> = store.load(name)?.unwrap_or_default();
        let file = Self {
            inner: Arc::new(Inner {
                store,
                name,
                state: Mutex::new(State {
                    tables: tables.clone(),
                    changes: 0,
                    writing: false,
                }),
                disk: Mutex::new(()),
                written: watch::Sender::new(0),
            }),
        };
        Ok((file, tables))
    }

    /// Records the value of a pod and writes it soon, if it changed.
    pub(crate) fn record(&self, uid: &PodUid, value: &V) {
        let mut state = self.inner.state.lock();
        if state.tables.get(uid) != Some(value) {
            state.tables.insert(uid.clone(), value.clone());
            self.changed(state);
        }
    }

    /// Changes the value of a pod and writes it soon; `None` removes the pod.
    pub(crate) fn update(&self, uid: &PodUid, change: impl FnOnce(Option<V>) -> Option<V>) {
        let mut state = self.inner.state.lock();
        let before = state.tables.get(uid).cloned();
        let after = change(before.clone());
        if before == after {
            return;
        }
        match after {
            Some(value) => state.tables.insert(uid.clone(), value),
            None => state.tables.remove(uid),
        };
        self.changed(state);
    }

    /// Removes a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut state = self.inner.state.lock();
        if state.tables.remove(uid).is_some() {
            self.changed(state);
        }
    }

    /// Removes all other pods.
    pub(crate) fn retain(&self, pods: &BTreeSet<PodUid>) {
        let mut state = self.inner.state.lock();
        let before = state.tables.len();
        state.tables.retain(|uid, _| pods.contains(uid));
        if state.tables.len() != before {
            self.changed(state);
        }
    }

    /// Waits until all recorded values are on the disk. After a failed write it retries once.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let wanted = self.inner.state.lock().changes;
        let mut written = self.inner.written.subscribe();
        loop {
            if *written.borrow_and_update() >= wanted {
                return Ok(());
            }
            if !self.inner.state.lock().writing {
                let inner = self.inner.clone();
                let (done, result) = oneshot::channel();
                self.inner.store.run(Box::new(move || {
                    // fails if the caller was dropped
                    let _ = done.send(inner.write_once());
                }));
                return result.await.map_err(|_| StoreError::Aborted)?;
            }
            if written.changed().await.is_err() {
                return Err(StoreError::Aborted);
            }
        }
    }

    fn changed(&self, mut state: MutexGuard<'_, State<V>>) {
        state.changes += 1;
        if state.writing {
            return;
        }
        state.writing = true;
        drop(state);
        let inner = self.inner.clone();
        let work = move || inner.write_until_clean();
        self.inner.store.run(Box::new(work));
    }
}

impl<V: Record> Inner<V> {
    fn write_until_clean(&self) {
        loop {
            let result = self.write_once();
            if let Err(error) = &result {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::error!(file = self.name, %error, ?cause, "writing state file failed");
            }
            let mut state = self.state.lock();
            // after an error only the next change retries
            if result.is_err() || state.changes == *self.written.borrow() {
                state.writing = false;
                drop(state);
                self.written.send_modify(|_| ());
                return;
            }
        }
    }

    fn write_once(&self) -> Result<(), StoreError> {
        let _disk = self.disk.lock();
        let (tables, number) = {
            let state = self.state.lock();
            (state.tables.clone(), state.changes)
        };
        self.store.save(self.name, &tables)?;
        self.written
            .send_modify(|written| *written = (*written).max(number));
        Ok(())
    }
}
