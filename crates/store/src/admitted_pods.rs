//! The API server's pods that this node has admitted, so that a restarted agent knows them before
//! the API server answers and admits none of them twice.
//!
//! Only what the API server stores in the clear anyway is in it: a pod refers to its Secrets, it
//! does not contain them.

use windlass_types::{PodExt, PodUid, SharedPod};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// Handle to the file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct AdmittedPods(TableFile<SharedPod>);

impl AdmittedPods {
    /// Reads the file and returns it together with the pods admitted before. Blocks on the disk.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(store: Store) -> Result<(Self, Vec<SharedPod>), StoreError> {
        let (file, pods) = TableFile::open(store, "admitted_pods")?;
        Ok((Self(file), pods.into_values().collect()))
    }

    /// Records the newest version of an admitted pod.
    pub fn record(&self, pod: &SharedPod) {
        self.0.record(&pod.uid(), pod);
    }

    /// Forgets a pod that is gone or will never run again.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// Waits until everything recorded so far is on the disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
