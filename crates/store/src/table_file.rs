//! State file with one value per pod, written in the background.
//!
//! *owns* the last recorded value of each pod, and its text in the file · *receives* `record` and
//! `forget` · *sends* one file · *invariant* at most one write is in progress, and it or the next
//! one writes every recorded change; a value is rendered once for each change; a failed write is
//! repeated after [`RETRY_INTERVAL`] · *bound* one value per pod; changes during a write coalesce
//! into one more write, and one retry is due · *restart* `open` returns the recorded values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{oneshot, watch};
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::pod_resource_file;
use crate::store::Store;

/// Time until a failed write is retried, unless a change retries it before.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The recorded value of a pod.
pub(crate) trait Record:
    Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<V> Record for V where
    V: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// The text of each value.
type Texts = BTreeMap<PodUid, Box<RawValue>>;

type Loaded<V> = Result<Option<BTreeMap<PodUid, V>>, StoreError>;

/// How a file is read and written.
#[derive(Debug)]
pub(crate) struct TableFormat<V> {
    load: fn(&Store, &str) -> Loaded<V>,
    save: fn(&Store, &str, &Texts) -> Result<(), StoreError>,
}

impl<V: Record> TableFormat<V> {
    /// The envelope of [`Store`].
    const OWN: Self = Self {
        load: |store, name| store.load(name),
        save: |store, name, texts| store.save(name, texts),
    };

    /// Upstream's checkpoint of entries by pod.
    pub(crate) const UPSTREAM: Self = Self {
        load: |store, name| store.load_foreign(name, pod_resource_file::decode),
        save: |store, name, texts| {
            let text = pod_resource_file::encode(texts).map_err(|source| StoreError::Encode {
                name: name.to_owned(),
                source,
            })?;
            store.save_foreign(name, text.as_bytes())
        },
    };
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
    format: TableFormat<V>,
    state: Mutex<State<V>>,
    /// The text of each value. Held for a whole write, so that an older copy never replaces a newer
    /// one.
    disk: Mutex<Texts>,
    /// Number of the last written change.
    written: watch::Sender<u64>,
}

#[derive(Debug)]
struct State<V> {
    tables: BTreeMap<PodUid, V>,
    /// Pods whose text is older than their value: a write of one changed pod costs little with many.
    changed: BTreeSet<PodUid>,
    /// Number of the last change.
    changes: u64,
    writing: bool,
    /// A retry of a failed write is due.
    will_retry: bool,
    /// Error of the last write.
    error: Option<String>,
}

impl<V: Record> TableFile<V> {
    /// Opens the file and returns it with the recorded values. Blocks on the disk.
    pub(crate) fn open(
        store: Store,
        name: &'static str,
    ) -> Result<(Self, BTreeMap<PodUid, V>), StoreError> {
        Self::open_with(store, name, TableFormat::OWN)
    }

    /// Opens a file in a format.
    pub(crate) fn open_with(
        store: Store,
        name: &'static str,
        format: TableFormat<V>,
    ) -> Result<(Self, BTreeMap<PodUid, V>), StoreError> {
        let tables = (format.load)(&store, name)?.unwrap_or_default();
        let file = Self {
            inner: Arc::new(Inner {
                store,
                name,
                format,
                state: Mutex::new(State {
                    changed: tables.keys().cloned().collect(),
                    tables: tables.clone(),
                    changes: 0,
                    writing: false,
                    will_retry: false,
                    error: None,
                }),
                disk: Mutex::default(),
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
            self.changed(state, [uid.clone()]);
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
        self.changed(state, [uid.clone()]);
    }

    /// Removes a pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut state = self.inner.state.lock();
        if state.tables.remove(uid).is_some() {
            self.changed(state, [uid.clone()]);
        }
    }

    /// Removes all other pods.
    pub(crate) fn retain(&self, pods: &BTreeSet<PodUid>) {
        let mut state = self.inner.state.lock();
        let removed = state.tables.keys().filter(|uid| !pods.contains(*uid));
        let removed: Vec<PodUid> = removed.cloned().collect();
        if !removed.is_empty() {
            state.tables.retain(|uid, _| pods.contains(uid));
            self.changed(state, removed);
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

    fn changed(&self, mut state: MutexGuard<'_, State<V>>, pods: impl IntoIterator<Item = PodUid>) {
        state.changed.extend(pods);
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
    fn write_until_clean(self: Arc<Self>) {
        loop {
            let is_failed = self.write_once().is_err();
            let mut state = self.state.lock();
            if is_failed || state.changes == *self.written.borrow() {
                state.writing = false;
                let retry = is_failed && !state.will_retry;
                state.will_retry |= retry;
                drop(state);
                self.written.send_modify(|_| ());
                if retry {
                    let inner = Arc::clone(&self);
                    let work = Box::new(move || inner.retry());
                    self.store.run_later(RETRY_INTERVAL, work);
                }
                return;
            }
        }
    }

    /// Writes what a failed write has left.
    fn retry(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.will_retry = false;
        if state.writing || state.changes == *self.written.borrow() {
            return;
        }
        state.writing = true;
        drop(state);
        self.write_until_clean();
    }

    /// Logs the first of equal errors, and the end of an error.
    fn log(&self, result: &Result<(), StoreError>) {
        let file = self.name;
        let mut state = self.state.lock();
        let error = result.as_ref().err().map(|error| {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        });
        match &error {
            Some(error) if state.error.as_ref() != Some(error) => {
                tracing::error!(file, %error, "writing state file failed, retrying");
            }
            None if state.error.is_some() => tracing::info!(file, "state file written again"),
            _ => {}
        }
        state.error = error;
    }

    fn write_once(&self) -> Result<(), StoreError> {
        let result = self.write();
        self.log(&result);
        result
    }

    fn write(&self) -> Result<(), StoreError> {
        let mut texts = self.disk.lock();
        let (changed, number) = {
            let mut state = self.state.lock();
            let uids = std::mem::take(&mut state.changed).into_iter();
            let changed = uids.map(|uid| (state.tables.get(&uid).cloned(), uid));
            (changed.collect::<Vec<_>>(), state.changes)
        };
        let render =
            |(value, _): &(Option<V>, PodUid)| value.as_ref().map(to_raw_value).transpose();
        let rendered: Result<Vec<_>, _> = changed.iter().map(render).collect();
        let uids = changed.into_iter().map(|(_, uid)| uid);
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(source) => {
                self.state.lock().changed.extend(uids);
                let name = self.name.to_owned();
                return Err(StoreError::Encode { name, source });
            }
        };
        for (uid, text) in uids.zip(rendered) {
            match text {
                Some(text) => texts.insert(uid, text),
                None => texts.remove(&uid),
            };
        }
        (self.format.save)(&self.store, self.name, &texts)?;
        self.written
            .send_modify(|written| *written = (*written).max(number));
        Ok(())
    }
}
