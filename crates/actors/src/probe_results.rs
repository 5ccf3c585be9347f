//! Probe results of all pods (upstream `results.Manager`).
//!
//! Each probe kind has one writer, its manager. A result applies to one container instance only.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_types::{ContainerProbeResult, PodProbeResults, PodUid, ProbeKind};

/// Probe results of all pods. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults(Arc<Mutex<BTreeMap<PodUid, Arc<PodProbeResults>>>>);

impl ProbeResults {
    /// Creates the results with those of the previous agent run.
    pub fn new(restored: BTreeMap<PodUid, PodProbeResults>) -> Self {
        let shared = restored.into_iter().map(|(uid, v)| (uid, Arc::new(v)));
        Self(Arc::new(Mutex::new(shared.collect())))
    }

    /// Returns the results of one pod.
    pub fn get(&self, uid: &PodUid) -> Arc<PodProbeResults> {
        self.with(|pods| pods.get(uid).cloned()).unwrap_or_default()
    }

    /// Returns the results of all pods.
    pub fn all(&self) -> BTreeMap<PodUid, PodProbeResults> {
        self.with(|pods| {
            let all = pods.iter();
            all.map(|(uid, results)| (uid.clone(), PodProbeResults::clone(results)))
                .collect()
        })
    }

    /// Records a result and returns true if it changed. Only for the manager of this kind.
    pub fn record(
        &self,
        kind: ProbeKind,
        uid: &PodUid,
        container: &str,
        result: ContainerProbeResult,
    ) -> bool {
        self.with(|pods| {
            let pod = Arc::make_mut(pods.entry(uid.clone()).or_default());
            let results = pod.for_kind_mut(kind);
            if results.get(container) == Some(&result) {
                return false;
            }
            results.insert(container.to_owned(), result);
            true
        })
    }

    /// Removes the results of one kind of a container, or of all containers of the pod. Only for
    /// the manager of this kind.
    pub fn forget(&self, kind: ProbeKind, uid: &PodUid, container: Option<&str>) {
        self.with(|pods| {
            let Some(pod) = pods.get_mut(uid) else { return };
            let results = Arc::make_mut(pod).for_kind_mut(kind);
            match container {
                Some(container) => drop(results.remove(container)),
                None => results.clear(),
            }
            if pod.is_empty() {
                pods.remove(uid);
            }
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<PodUid, Arc<PodProbeResults>>) -> R) -> R {
        f(&mut self.0.lock())
    }
}
