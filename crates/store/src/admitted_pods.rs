//! Checkpoint of the admitted pods of the API server.
//!
//! With it, a restarted agent knows its pods before the API server is reachable. Pods contain no
//! Secrets, only references to them.

use serde::{Deserialize, Serialize};
use windlass_types::{AllocatedResources, PodExt, PodUid, SharedPod};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// An admitted pod in the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct AdmittedPod {
    /// The pod as the API server had it.
    pub pod: SharedPod,
    /// Its allocated resources.
    pub allocated: AllocatedResources,
}

/// A pod that is allocated what it requests.
impl From<SharedPod> for AdmittedPod {
    fn from(pod: SharedPod) -> Self {
        Self {
            allocated: AllocatedResources::from_pod(&pod),
            pod,
        }
    }
}

/// Forms of an entry on the disk.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Current {
        pod: SharedPod,
        allocated: AllocatedResources,
    },
    /// Written before allocated resources had a value of their own.
    PodOnly(SharedPod),
}

impl From<Stored> for AdmittedPod {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Current { pod, allocated } => Self { pod, allocated },
            Stored::PodOnly(pod) => pod.into(),
        }
    }
}

/// Handle to the checkpoint. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct AdmittedPods(TableFile<AdmittedPod>);

impl AdmittedPods {
    /// Opens the checkpoint and returns it with the admitted pods. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, Vec<AdmittedPod>), StoreError> {
        let (file, pods) = TableFile::open(store, "admitted_pods")?;
        Ok((Self(file), pods.into_values().collect()))
    }

    /// Records the newest version of an admitted pod.
    pub fn record(&self, admitted: &AdmittedPod) {
        self.0.record(&admitted.pod.uid(), admitted);
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
