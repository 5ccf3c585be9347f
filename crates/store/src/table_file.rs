//! One file with a value for each pod, written behind its owners' backs.
//!
//! *owns* the last recorded value of each pod · *hears* `record` and `forget` · *says* one file ·
//! *invariant* at most one write is under way, and every change recorded before it ends is
//! written by it or by the next · *bound* one value for each pod; changes during a write coalesce
//! into one more write · *restart* `open` returns what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::store::Store;

/// What is kept for a pod.
pub(crate) trait Record:
    Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<V> Record for V where
    V: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// Handle to the file. Clones share it; recording never blocks on the disk.
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
    /// Held from reading the tables to their rename, so that an older copy never lands last.
    disk: Mutex<()>,
    /// Number of the last change that is on the disk.
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
    /// Reads the file and returns it together with what was recorded before. Blocks on the disk.
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

    /// Records a pod's value and writes it soon. The same value again costs nothing.
    pub(crate) fn record(&self, uid: &PodUid, value: &V) {
        let mut state = self.inner.lock();
        if state.tables.get(uid) != Some(value) {
            state.tables.insert(uid.clone(), value.clone());
            self.changed(state);
        }
    }

    /// Changes what is recorded of a pod, and writes it soon; `None` forgets the pod.
    pub(crate) fn update(&self, uid: &PodUid, change: impl FnOnce(Option<V>) -> Option<V>) {
        let mut state = self.inner.lock();
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

    /// Forgets a pod that is gone.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut state = self.inner.lock();
        if state.tables.remove(uid).is_some() {
            self.changed(state);
        }
    }

    /// Forgets every pod but these.
    pub(crate) fn retain(&self, pods: &BTreeSet<PodUid>) {
        let mut state = self.inner.lock();
        let before = state.tables.len();
        state.tables.retain(|uid, _| pods.contains(uid));
        if state.tables.len() != before {
            self.changed(state);
        }
    }

    /// Waits until everything recorded so far is on the disk, for an orderly shutdown. If the
    /// disk refuses, tries once more itself and returns that error.
    pub(crate) async fn flush(&self) -> Result<(), StoreError> {
        let wanted = self.inner.lock().changes;
        let mut written = self.inner.written.subscribe();
        loop {
            if *written.borrow_and_update() >= wanted {
                return Ok(());
            }
            if !self.inner.lock().writing {
                let inner = self.inner.clone();
                return tokio::task::spawn_blocking(move || inner.write_once())
                    .await
                    .map_err(|_| StoreError::Aborted)?;
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
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => drop(handle.spawn_blocking(move || inner.write_until_clean())),
            // a caller without a runtime (start-up, tools) waits for the disk itself
            Err(_) => inner.write_until_clean(),
        }
    }
}

impl<V: Record> Inner<V> {
    fn lock(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_until_clean(&self) {
        loop {
            let result = self.write_once();
            if let Err(error) = &result {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::error!(file = self.name, %error, ?cause, "state not recorded");
            }
            let mut state = self.lock();
            // after an error the next change tries again: a full disk is not hammered
            if result.is_err() || state.changes == *self.written.borrow() {
                state.writing = false;
                drop(state);
                self.written.send_modify(|_| ());
                return;
            }
        }
    }

    fn write_once(&self) -> Result<(), StoreError> {
        let _disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let (tables, number) = {
            let state = self.lock();
            (state.tables.clone(), state.changes)
        };
        self.store.save(self.name, &tables)?;
        self.written
            .send_modify(|written| *written = (*written).max(number));
        Ok(())
    }
}
