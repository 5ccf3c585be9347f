//! Cache of the observed state of all pods (upstream `kubecontainer.Cache`).
//!
//! The PLEG writes it. A reader that needs the current state uses `PlegHandle::inspect`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_types::{ObservedPod, PodUid};

/// The last observation of every pod in the runtime. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StatusCache(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<PodUid, Arc<ObservedPod>>,
    /// Number of records.
    version: u64,
}

impl StatusCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the last observation of a pod; `None` if the runtime has nothing of it.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<ObservedPod>> {
        self.with(|state| state.pods.get(uid).cloned())
    }

    /// Returns the observations of all pods.
    pub fn all(&self) -> Vec<Arc<ObservedPod>> {
        self.with(|state| state.pods.values().cloned().collect())
    }

    /// Returns a number that increases with each record.
    pub fn version(&self) -> u64 {
        self.with(|state| state.version)
    }

    /// Records an observation; an empty one removes the pod. Only for the PLEG.
    pub fn record(&self, pod: Arc<ObservedPod>) {
        self.with(|state| {
            state.version += 1;
            if pod.is_empty() {
                state.pods.remove(&pod.uid);
            } else {
                state.pods.insert(pod.uid.clone(), pod);
            }
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock())
    }
}
