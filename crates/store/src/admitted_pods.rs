//! Checkpoint of the admitted pods of the API server.
//!
//! With it, a restarted agent knows its pods before the API server is reachable. Pods contain no
//! Secrets, only references to them.

use windlass_types::{PodExt, PodUid, SharedPod};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// Handle to the checkpoint. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct AdmittedPods(TableFile<SharedPod>);

impl AdmittedPods {
    /// Opens the checkpoint and returns it with the admitted pods. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, Vec<SharedPod>), StoreError> {
        let (file, pods) = TableFile::open(store, "admitted_pods")?;
        Ok((Self(file), pods.into_values().collect()))
    }

    /// Records the newest version of an admitted pod.
    pub fn record(&self, pod: &SharedPod) {
        self.0.record(&pod.uid(), pod);
    }

    /// Removes a pod that was deleted or has finished.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// Waits until all recorded pods are on the disk.
    ///
    /// # Errors
    /// The write failed.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
