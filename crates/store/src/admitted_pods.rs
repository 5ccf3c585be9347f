//! Checkpoint of the admitted pods of the API server.
//!
//! With it, a restarted agent knows its pods before the API server is reachable. Pods contain no
//! Secrets, only references to them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_types::pod::pod_from_json;
use windlass_types::{AllocatedResources, PodExt, PodUid, SharedPod};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// An admitted pod in the checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Box<RawValue>")]
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

/// An entry on the disk. One that was written before allocated resources had a value of their own
/// is the pod itself.
#[derive(Deserialize)]
struct Entry {
    pod: Option<SharedPod>,
    allocated: Option<AllocatedResources>,
}

impl TryFrom<Box<RawValue>> for AdmittedPod {
    type Error = serde_json::Error;

    fn try_from(json: Box<RawValue>) -> Result<Self, Self::Error> {
        let json = json.get().as_bytes();
        let Entry { pod, allocated } = serde_json::from_slice(json)?;
        let admitted = Self::from(match pod {
            Some(pod) => pod,
            None => Arc::new(pod_from_json(json)?),
        });
        Ok(Self {
            allocated: allocated.unwrap_or(admitted.allocated),
            pod: admitted.pod,
        })
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
