//! What the probes found, for whoever computes a status or decides on a restart (upstream
//! `results.Manager`).
//!
//! Each kind has one writer, its manager; anyone may read. A verdict is about one container
//! instance and says nothing of the next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_types::{ContainerProbeResult, PodUid, PodProbeResults, ProbeKind};

/// The verdicts on every pod that is probed.
#[derive(Clone, Debug, Default)]
pub struct ProbeResults(Arc<Mutex<BTreeMap<PodUid, Arc<PodProbeResults>>>>);

impl ProbeResults {
    /// Begins with the verdicts that an earlier life of the agent left.
    pub fn new(restored: BTreeMap<PodUid, PodProbeResults>) -> Self {
        let shared = restored.into_iter().map(|(uid, v)| (uid, Arc::new(v)));
        Self(Arc::new(Mutex::new(shared.collect())))
    }

    /// The verdicts on one pod; none if nothing of it is probed.
    pub fn of(&self, uid: &PodUid) -> Arc<PodProbeResults> {
        self.with(|pods| pods.get(uid).cloned()).unwrap_or_default()
    }

    /// The verdicts on all pods.
    pub fn all(&self) -> BTreeMap<PodUid, PodProbeResults> {
        self.with(|pods| {
            let all = pods.iter();
            all.map(|(uid, verdicts)| (uid.clone(), PodProbeResults::clone(verdicts)))
                .collect()
        })
    }

    /// Records a verdict; true if it is news. Only for the manager of this kind.
    pub fn record(
        &self,
        kind: ProbeKind,
        uid: &PodUid,
        container: &str,
        verdict: ContainerProbeResult,
    ) -> bool {
        self.with(|pods| {
            let pod = Arc::make_mut(pods.entry(uid.clone()).or_default());
            let verdicts = pod.for_kind_mut(kind);
            if verdicts.get(container) == Some(&verdict) {
                return false;
            }
            verdicts.insert(container.to_owned(), verdict);
            true
        })
    }

    /// Drops what one kind of probe found of a container, or of all containers of the pod. Only for
    /// the manager of this kind.
    pub fn forget(&self, kind: ProbeKind, uid: &PodUid, container: Option<&str>) {
        self.with(|pods| {
            let Some(pod) = pods.get_mut(uid) else { return };
            let verdicts = Arc::make_mut(pod).for_kind_mut(kind);
            match container {
                Some(container) => drop(verdicts.remove(container)),
                None => verdicts.clear(),
            }
            if pod.is_empty() {
                pods.remove(uid);
            }
        });
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<PodUid, Arc<PodProbeResults>>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
