//! The restart and pull back-off of all pods, so that `kill -9` loses no delay.
//!
//! *owns* the last recorded table of each pod · *hears* `record` and `forget` from pod workers ·
//! *says* one file, `backoff` · *invariant* at most one write is under way, and every change
//! recorded before it ends is written by it or by the next · *bound* one table for each pod;
//! changes during a write coalesce into one more write · *restart* `open` returns what was
//! recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use windlass_core::backoff::BackoffTable;
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::store::Store;

/// The tables of all pods.
pub type BackoffTables = BTreeMap<PodUid, BackoffTable>;

/// Name of the file in the store.
const NAME: &str = "backoff";

/// Handle to the file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct BackoffFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    state: Mutex<State>,
    /// Held from reading the tables to their rename, so that an older copy never lands last.
    disk: Mutex<()>,
    /// Number of the last change that is on the disk.
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    tables: BackoffTables,
    /// Number of the last change.
    changes: u64,
    writing: bool,
}

impl BackoffFile {
    /// Reads the file and returns it together with what was recorded before. Blocks on the disk.
    pub fn open(store: Store) -> Result<(Self, BackoffTables), StoreError> {
        let tables: BackoffTables = store.load(NAME)?.unwrap_or_default();
        let file = Self {
            inner: Arc::new(Inner {
                store,
                state: Mutex::new(State {
                    tables: tables.clone(),
                    ..State::default()
                }),
                disk: Mutex::new(()),
                written: watch::Sender::new(0),
            }),
        };
        Ok((file, tables))
    }

    /// Records a pod's table and writes it soon. The same table again costs nothing.
    pub fn record(&self, uid: &PodUid, table: &BackoffTable) {
        let mut state = self.inner.lock();
        if table.is_empty() {
            if state.tables.remove(uid).is_none() {
                return;
            }
        } else if state.tables.get(uid) == Some(table) {
            return;
        } else {
            state.tables.insert(uid.clone(), table.clone());
        }
        self.changed(state);
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        let mut state = self.inner.lock();
        if state.tables.remove(uid).is_some() {
            self.changed(state);
        }
    }

    /// Waits until everything recorded so far is on the disk, for an orderly shutdown. If the
    /// disk refuses, tries once more itself and returns that error.
    pub async fn flush(&self) -> Result<(), StoreError> {
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

    fn changed(&self, mut state: MutexGuard<'_, State>) {
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

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_until_clean(&self) {
        loop {
            let result = self.write_once();
            if let Err(error) = &result {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::error!(%error, ?cause, "back-off not recorded");
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
        self.store.save(NAME, &tables)?;
        self.written
            .send_modify(|written| *written = (*written).max(number));
        Ok(())
    }
}
