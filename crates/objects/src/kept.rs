//! An encrypted copy of the objects that the node's pods use, for a reboot without an API server.
//!
//! The copy serves only in an agent run that has not reached the API server yet, after
//! [`UNREACHABLE_THRESHOLD`]. The first response ends that for the rest of the run: the objects are
//! then those of the API server, and an outage affects no running pod.
//!
//! * [`table`] decides which objects are kept and what a pod gets of them
//! * `file` is their form in the file
//! * [`csi`] keeps the objects for CSI volumes
//! * [`task`] finds out whether the API server is reachable, and writes the copy

mod csi;
mod file;
pub(crate) mod table;
mod task;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use windlass_csi::CsiObjects;
use windlass_store::{SealedFile, SealedFileConfig, Store, StoreError};
use windlass_types::{Clock, PodUid, Timestamp};

use csi::{CsiReads, KeptCsiObjects};
use file::FileContent;
use table::{Table, WantedObjects};

pub use task::keep_objects;

/// Name of the file; that of its key ends with `.key`.
const FILE: &str = "kept_objects";

/// Time without a response of the API server after which the copy serves. The network of a host and
/// a load balancer are up by then, so that an API server that works is used.
pub(crate) const UNREACHABLE_THRESHOLD: Duration = Duration::from_secs(30);

/// The kept objects. Clones share them.
#[derive(Clone, Debug)]
pub struct KeptObjects(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: SealedFile,
    state: Mutex<State>,
    csi: CsiReads,
}

#[derive(Debug)]
struct State {
    contact: Contact,
    /// As in the file.
    table: Arc<Table>,
    /// `None` without a usable file.
    saved_at: Option<Timestamp>,
}

/// Whether this agent run has reached the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contact {
    /// There was no response yet.
    Unknown,
    /// There was no response for [`UNREACHABLE_THRESHOLD`].
    Unreachable,
    /// There was a response.
    Reached,
}

/// The file, compared with the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// Nothing changed.
    Current,
    /// Nothing changed, but the time of the file is old.
    Old,
    /// The objects changed, or there is no file.
    Changed,
}

/// The objects that serve while the API server is unreachable.
#[derive(Clone, Debug)]
pub(crate) struct ServingCopy {
    pub(crate) table: Arc<Table>,
    /// Last time at which they were current.
    pub(crate) saved_at: Timestamp,
}

impl KeptObjects {
    /// Reads the kept objects of the node `node_name`. `credential` is a file with the key; if it
    /// does not exist, the key is beside the objects. Blocks on the disk.
    ///
    /// # Errors
    /// The file or its key cannot be read, or the credential is not a key.
    pub fn open(
        store: Store,
        node_name: &str,
        credential: Option<PathBuf>,
    ) -> Result<Self, StoreError> {
        let file = SealedFile::open(SealedFileConfig {
            store,
            name: FILE,
            owner: node_name.to_owned(),
            credential,
        })?;
        let content = file.load::<FileContent>()?;
        let saved_at = content.as_ref().map(|content| content.saved_at);
        let table = content.map(FileContent::into_table).unwrap_or_default();
        tracing::info!(
            pods = table.pods.len(),
            saved_at = saved_at.map(tracing::field::display),
            "kept objects loaded"
        );
        let state = State {
            contact: Contact::Unknown,
            table: Arc::new(table),
            saved_at,
        };
        Ok(Self(Arc::new(Shared {
            file,
            state: Mutex::new(state),
            csi: CsiReads::default(),
        })))
    }

    /// Removes the kept objects and their key. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(store: &Store) -> Result<(), StoreError> {
        SealedFile::remove_all(store, FILE)
    }

    /// Returns the objects for CSI volumes: of the API server, or the kept ones.
    pub fn csi_objects(
        &self,
        api: Arc<dyn CsiObjects>,
        clock: Arc<dyn Clock>,
    ) -> Arc<dyn CsiObjects> {
        Arc::new(KeptCsiObjects::new(self.clone(), api, clock))
    }

    /// Returns the copy, if it serves.
    pub(crate) fn serving(&self) -> Option<ServingCopy> {
        let state = self.0.state.lock();
        let saved_at = state.saved_at?;
        (state.contact == Contact::Unreachable).then(|| ServingCopy {
            table: Arc::clone(&state.table),
            saved_at,
        })
    }

    /// Records a response of the API server. Returns the pods that the copy served until now.
    pub(crate) fn reached(&self) -> Vec<PodUid> {
        let mut state = self.0.state.lock();
        let before = std::mem::replace(&mut state.contact, Contact::Reached);
        if before != Contact::Unreachable {
            return Vec::new();
        }
        tracing::info!("API server reachable, kept objects are not used any more");
        state.table.pods.iter().cloned().collect()
    }

    /// Lets the copy serve, unless there was a response. Returns the pods that it serves from now
    /// on.
    fn unreachable(&self) -> Vec<PodUid> {
        let mut state = self.0.state.lock();
        if state.contact != Contact::Unknown {
            return Vec::new();
        }
        state.contact = Contact::Unreachable;
        let Some(saved_at) = state.saved_at else {
            return Vec::new();
        };
        let pods: Vec<_> = state.table.pods.iter().cloned().collect();
        tracing::warn!(
            pods = pods.len(),
            %saved_at,
            "API server unreachable, pods start with kept objects"
        );
        pods
    }

    fn has_reached(&self) -> bool {
        self.0.state.lock().contact == Contact::Reached
    }

    /// Returns the next content of the file: what was read, and of the rest what was kept.
    pub(crate) fn next(&self, mut read: Table, mut wanted: WantedObjects) -> Table {
        let table = Arc::clone(&self.0.state.lock().table);
        wanted.add_csi(&table.pvcs);
        wanted.add_csi(&read.pvcs);
        self.0.csi.add_to(&mut read, &wanted);
        table.next(&read, &wanted)
    }

    /// Compares the file with the objects; it is old after `max_age`.
    fn next_write(&self, table: &Table, now: Timestamp, max_age: Duration) -> FileState {
        let state = self.0.state.lock();
        let is_recent = state.saved_at.map(|at| {
            let age = now.duration_since(at);
            !age.is_negative() && age.unsigned_abs() < max_age
        });
        match is_recent {
            _ if *state.table != *table => FileState::Changed,
            None => FileState::Changed,
            Some(true) => FileState::Current,
            Some(false) => FileState::Old,
        }
    }

    /// Writes the objects; `current` if the API server has just responded, so that they are those of
    /// `now`. Blocks on the disk.
    fn save(&self, table: Table, now: Timestamp, current: bool) -> Result<(), StoreError> {
        let before = self.0.state.lock().saved_at.filter(|_| !current);
        let saved_at = before.unwrap_or(now);
        let saved = self.0.file.save(&FileContent::new(&table, saved_at));
        if let Err(error @ StoreError::Encode { .. }) = saved {
            // it can never be written, and the old objects would be outdated
            self.0.file.remove()?;
            return Err(error);
        }
        saved?;
        let mut state = self.0.state.lock();
        state.table = Arc::new(table);
        state.saved_at = Some(saved_at);
        Ok(())
    }
}

impl ServingCopy {
    /// Returns the time for the expiry of tokens: a host may boot with a clock that is behind.
    pub(crate) fn now(&self, now: Timestamp) -> Timestamp {
        now.max(self.saved_at)
    }
}
