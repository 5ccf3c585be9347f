//! State file of the restart and pull back-off of all pods.

use std::collections::{BTreeMap, BTreeSet};

use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::PodUid;

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// Back-off tables of all pods.
pub type BackoffTables = BTreeMap<PodUid, BackoffTable>;

/// Handle to the state file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct BackoffFile(TableFile<BackoffTable>);

impl BackoffFile {
    /// Opens the file and returns it with the recorded tables. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, BackoffTables), StoreError> {
        let (file, tables) = TableFile::open(store, "backoff")?;
        Ok((Self(file), tables))
    }

    /// Records the table of a pod and writes it soon, if it changed.
    pub fn record(&self, uid: &PodUid, table: &BackoffTable) {
        if table.is_empty() {
            self.0.forget(uid);
        } else {
            self.0.record(uid, table);
        }
    }

    /// Removes a pod.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// Removes all other pods.
    pub fn retain(&self, pods: &BTreeSet<PodUid>) {
        self.0.retain(pods);
    }

    /// Waits until all recorded tables are on the disk. After a failed write it retries once.
    ///
    /// # Errors
    /// The write failed.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
