//! The restart and pull back-off of all pods, so that `kill -9` loses no delay.

use std::collections::{BTreeMap, BTreeSet};

use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// The tables of all pods.
pub type BackoffTables = BTreeMap<PodUid, BackoffTable>;

/// Handle to the file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct BackoffFile(TableFile<BackoffTable>);

impl BackoffFile {
    /// Reads the file and returns it together with what was recorded before. Blocks on the disk.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(store: Store) -> Result<(Self, BackoffTables), StoreError> {
        let (file, tables) = TableFile::open(store, "backoff")?;
        Ok((Self(file), tables))
    }

    /// Records a pod's table and writes it soon. The same table again costs nothing.
    pub fn record(&self, uid: &PodUid, table: &BackoffTable) {
        if table.is_empty() {
            self.0.forget(uid);
        } else {
            self.0.record(uid, table);
        }
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// Forgets every pod but these.
    pub fn retain(&self, pods: &BTreeSet<PodUid>) {
        self.0.retain(pods);
    }

    /// Waits until everything recorded so far is on the disk, for an orderly shutdown. If the
    /// disk refuses, tries once more itself and returns that error.
    ///
    /// # Errors
    /// The disk refuses.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
