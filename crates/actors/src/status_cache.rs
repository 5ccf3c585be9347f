//! The versioned cache of what the runtime was seen to have (upstream `kubecontainer.Cache`).
//!
//! One writer, the PLEG; anyone may read. A reader that must not act on something older than a
//! moment asks the PLEG to inspect the pod instead (`PlegHandle::inspect`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_types::{ObservedPod, PodUid};

/// What is known of every pod the runtime has.
#[derive(Clone, Debug, Default)]
pub struct StatusCache(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<PodUid, Arc<ObservedPod>>,
    /// Counts records.
    version: u64,
}

impl StatusCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The last observation of a pod; `None` if the runtime has nothing of it.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<ObservedPod>> {
        self.with(|state| state.pods.get(uid).cloned())
    }

    /// All pods.
    pub fn all(&self) -> Vec<Arc<ObservedPod>> {
        self.with(|state| state.pods.values().cloned().collect())
    }

    /// Grows with each record.
    pub fn version(&self) -> u64 {
        self.with(|state| state.version)
    }

    /// Records an observation; a pod of which nothing is left is dropped. Only for the PLEG.
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
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
