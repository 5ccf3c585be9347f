//! Checks the limits of local storage.
//!
//! *owns* the limits of running pods · *receives* pods from the pod status store · *sends*
//! `TerminatePod` to the SyncLoop · *invariant* a pod is evicted once; pods are checked together,
//! and no pod without a limit · *bound* the pods of the node; one check at a time, which takes at
//! most a few seconds · *restart* nothing to restore: a pod over its limit is found again.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use windlass_actors::{PhaseOverride, StatusCache, TerminatePod};
use windlass_cri::RuntimeStats;
use windlass_eviction::local_storage::{
    CHECK_INTERVAL, ExceededLimit, LocalStorageLimits, PodDiskUsage, local_volumes,
};
use windlass_eviction::{EVICTED, HARD_GRACE_PERIOD};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_metrics::Metrics;
use windlass_status::{PodStatusEntry, PodStatusStore, StatusChange};
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{EventRecorder, Phase, PodExt, PodUid, Reason, SharedPod};

use crate::measure::{LocalVolumes, Meter, NodeDisk, Subject};

/// Dependencies of [`LocalStorage`].
#[derive(Clone, Debug)]
pub struct LocalStorageDeps {
    /// Desired pods and the states of their workers.
    pub status_store: PodStatusStore,
    /// Observed containers.
    pub observed: StatusCache,
    /// Writable layers.
    pub runtime: Arc<dyn RuntimeStats>,
    /// File systems of the image service.
    pub images: Arc<dyn RuntimeStats>,
    /// Logs.
    pub disk: Arc<dyn NodeDisk>,
    /// Usage of volumes.
    pub volumes: Arc<dyn LocalVolumes>,
    /// Sender to the SyncLoop.
    pub terminations: SlotSender<PodUid, TerminatePod>,
    /// Records evictions.
    pub events: Arc<dyn EventRecorder>,
    /// Metrics.
    pub metrics: Metrics,
    /// Stops the checks.
    pub cancel: CancellationToken,
}

/// Disk usage of pods. Clones share it.
#[derive(Clone, Debug)]
pub struct LocalStorage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    deps: LocalStorageDeps,
    meter: Meter,
    pods: Mutex<BTreeMap<PodUid, LimitedPod>>,
}

#[derive(Clone, Debug)]
struct LimitedPod {
    pod: SharedPod,
    limits: Arc<LocalStorageLimits>,
    evicted: bool,
}

impl LocalStorage {
    /// Measures on request only.
    pub fn new(deps: LocalStorageDeps) -> Self {
        let meter = Meter::new(
            deps.observed.clone(),
            (Arc::clone(&deps.runtime), Arc::clone(&deps.images)),
            Arc::clone(&deps.disk),
            Arc::clone(&deps.volumes),
        );
        Self(Arc::new(Shared {
            deps,
            meter,
            pods: Mutex::default(),
        }))
    }

    /// Starts the checks of the limits (`localStorageCapacityIsolation`); call it inside a tokio
    /// runtime.
    pub fn enforce_limits(&self) {
        spawn_io("check-local-storage", self.clone().run());
    }

    /// Measures pods: writable layers, logs, local volumes. Takes at most a few seconds; parts that
    /// are late are absent, and part of the next measurement.
    pub async fn measure(&self, pods: &[SharedPod]) -> BTreeMap<PodUid, PodDiskUsage> {
        let subjects = pods.iter().map(|pod| Subject {
            pod: SharedPod::clone(pod),
            volumes: local_volumes(pod),
            containers: true,
        });
        self.0.meter.measure(&subjects.collect::<Vec<_>>()).await
    }

    async fn run(self) {
        let cancelled = self.0.deps.cancel.clone();
        let began = Instant::now();
        let mut changes = self.0.deps.status_store.subscribe();
        let checks = async {
            loop {
                let next = self.has_checks().then(|| next_round(began));
                tokio::select! {
                    biased;
                    change = changes.next() => match change {
                        Some(change) => self.apply(change),
                        None => return,
                    },
                    () = sleep_until(next.unwrap_or(began)), if next.is_some() => {
                        self.check_limits().await;
                    }
                }
            }
        };
        let _: Option<()> = cancelled.run_until_cancelled(checks).await;
    }

    /// Whether a pod is to be checked.
    fn has_checks(&self) -> bool {
        self.0.pods.lock().values().any(|limited| !limited.evicted)
    }

    fn apply(&self, change: StatusChange) {
        let mut pods = self.0.pods.lock();
        for uid in &change.removed {
            pods.remove(uid);
        }
        for entry in change.changed {
            let uid = entry.pod.uid();
            let known = pods.get(&uid);
            let evicted = known.is_some_and(|known| known.evicted);
            let ended = if evicted {
                entry.released
            } else {
                !may_be_evicted(&entry)
            };
            if ended {
                pods.remove(&uid);
            } else if !known.is_some_and(|known| Arc::ptr_eq(&known.pod, &entry.pod)) {
                match LocalStorageLimits::from_pod(&entry.pod) {
                    Some(limits) => {
                        let limited = LimitedPod {
                            pod: entry.pod,
                            limits: Arc::new(limits),
                            evicted,
                        };
                        pods.insert(uid, limited);
                    }
                    None => drop(pods.remove(&uid)),
                }
            }
        }
    }

    /// Checks all pods once.
    async fn check_limits(&self) {
        let pods: Vec<LimitedPod> = {
            let pods = self.0.pods.lock();
            let checked = pods.values().filter(|limited| !limited.evicted);
            checked.cloned().collect()
        };
        let subjects = pods.iter().map(|limited| Subject {
            pod: SharedPod::clone(&limited.pod),
            volumes: limited.limits.volumes(&limited.pod),
            containers: limited.limits.includes_containers(),
        });
        let subjects: Vec<Subject> = subjects.collect();
        let with_containers = subjects.iter().any(|subject| subject.containers);
        let usages = self.0.meter.measure(&subjects).await;
        let layers_on_node_fs = !with_containers || self.0.meter.layers_on_node_fs().await;
        for limited in pods {
            let Some(usage) = usages.get(&limited.pod.uid()) else {
                continue;
            };
            if let Some(exceeded) = limited.limits.exceeded(usage, layers_on_node_fs) {
                self.evict(&limited.pod, exceeded);
            }
        }
    }

    fn evict(&self, pod: &SharedPod, exceeded: ExceededLimit) {
        let uid = pod.uid();
        match self.0.pods.lock().get_mut(&uid) {
            // otherwise it has ended meanwhile
            Some(limited) if !limited.evicted => limited.evicted = true,
            _ => return,
        }
        let message = exceeded.message;
        let signal = exceeded.kind.signal();
        tracing::info!(pod = %pod.full_name(), signal, message, "evicting pod over its limit of local storage");
        let deps = &self.0.deps;
        deps.metrics
            .volumes
            .evictions
            .with_label_values(&[signal])
            .inc();
        deps.events
            .record(pod, None, EventType::Warning, Reason::Evicted, &message);
        let request = TerminatePod {
            grace: Some(HARD_GRACE_PERIOD),
            reason: message.clone(),
            phase_override: PhaseOverride {
                phase: Phase::Failed,
                reason: EVICTED.to_owned(),
                message,
                disruption: None,
            },
        };
        deps.terminations.put(uid, request);
    }
}

/// Whether the pod runs, or will.
fn may_be_evicted(entry: &PodStatusEntry) -> bool {
    let phase = entry.status.phase.as_deref();
    entry.worker_state == PodWorkerState::SyncPod && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// The next multiple of the interval, so that all pods are checked together.
fn next_round(began: Instant) -> Instant {
    let interval = CHECK_INTERVAL.as_millis();
    let passed = began.elapsed().as_millis() / interval;
    let rounds = u32::try_from(passed + 1).unwrap_or(u32::MAX);
    began + CHECK_INTERVAL.saturating_mul(rounds)
}

#[cfg(test)]
mod tests;
