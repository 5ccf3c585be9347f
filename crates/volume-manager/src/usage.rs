//! Usage of volumes: checked periodically where a limit applies, otherwise measured on request.
//!
//! *owns* the last sample of each volume · *receives* volumes from [`crate::InstrumentedVolumes`] ·
//! *sends* `VolumesChanged` with the reason of an eviction · *invariant* at most one measurement per
//! volume; no measurements and no wake-ups without limits and requests · *bound* the volumes of the
//! node; measurements run in the I/O queues of their pods · *restart* nothing to restore.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::VolumesChanged;
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_metrics::{Metrics, PvcStats, VolumeWorld};
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, Pod, PodExt, PodUid, Reason, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};
use windlass_volume_plan::volume_usage::{
    EmptyDirLimit, LIMIT_CHECK_INTERVAL, STATS_PERIOD, VolumeStats, empty_dir_limits, next_round,
    plugin_name, pvc_name,
};
use windlass_volumes::{DiscoveredVolume, VolumePlugins};

/// Max concurrent measurements for one request.
const MAX_CONCURRENT_MEASUREMENTS: usize = 4;
/// Upstream's name of the signal (`signalEmptyDirFsLimit`).
const SIGNAL: &str = "emptydirfs.limit";

/// Dependencies of [`VolumeUsages`].
#[derive(Clone, Debug)]
pub struct VolumeUsagesDeps {
    /// Measures volumes.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Wall clock for samples.
    pub clock: Arc<dyn Clock>,
    /// Records evictions.
    pub events: Arc<dyn EventRecorder>,
    /// Sender to the SyncLoop.
    pub changed: SlotSender<PodUid, VolumesChanged>,
    /// Metrics.
    pub metrics: Metrics,
    /// Stops the limit checks.
    pub cancel: CancellationToken,
}

/// Usage of all volumes. Clones share it.
#[derive(Clone, Debug)]
pub struct VolumeUsages(Arc<Shared>);

/// Usage of one volume of a pod (upstream `statsapi.VolumeStats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolumeStats {
    /// Name in the pod spec.
    pub volume: String,
    /// Its PVC, in the namespace of the pod.
    pub claim: Option<String>,
    /// Capacity and usage.
    pub stats: VolumeStats,
    /// Time of the measurement.
    pub at: Timestamp,
}

#[derive(Debug)]
struct Shared {
    deps: VolumeUsagesDeps,
    pods: Mutex<BTreeMap<PodUid, TrackedPod>>,
    /// Wakes the limit checks.
    wake: Notify,
    began: Instant,
    /// Held while PVCs are measured for metrics: scrapes may be faster than the measurement of a large
    /// or hung volume.
    pvcs: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct TrackedPod {
    pod: SharedPod,
    volumes: BTreeMap<String, TrackedVolume>,
    /// Evicted pods are no longer checked.
    evicted: bool,
}

#[derive(Debug)]
struct TrackedVolume {
    volume: PodVolume,
    /// Time of the first set-up request.
    requested: Instant,
    ready: bool,
    limit: Option<EmptyDirLimit>,
    /// Round of the next check; `None` during one.
    round: Option<u64>,
    latest: Option<Sample>,
    /// Held during a measurement.
    lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Sample {
    stats: VolumeStats,
    at: Timestamp,
    measured: Instant,
}

impl VolumeUsages {
    /// Starts the limit checks; call it inside a tokio runtime.
    pub fn new(deps: VolumeUsagesDeps) -> Self {
        let shared = Arc::new(Shared {
            deps,
            pods: Mutex::default(),
            wake: Notify::new(),
            began: Instant::now(),
            pvcs: Arc::default(),
        });
        let usages = Self(shared);
        spawn_io("watch-volume-limits", usages.clone().watch_limits());
        usages
    }

    /// Tracks a desired volume; `ready` if it is set up.
    pub(crate) fn track(&self, pod: &SharedPod, volume: &PodVolume, ready: bool) {
        let round = self.round() + 1;
        let mut pods = self.lock();
        let tracked_pod = pods.entry(pod.uid()).or_insert_with(|| TrackedPod {
            pod: SharedPod::clone(pod),
            volumes: BTreeMap::new(),
            evicted: false,
        });
        let limit = || {
            let mut limits = empty_dir_limits(pod).into_iter();
            limits.find(|limit| limit.volume == volume.name)
        };
        let tracked = tracked_pod
            .volumes
            .entry(volume.name.clone())
            .or_insert_with(|| TrackedVolume {
                volume: without_content(volume),
                requested: Instant::now(),
                ready: false,
                limit: limit(),
                round: Some(round),
                latest: None,
                lock: Arc::default(),
            });
        let became_ready = ready && !tracked.ready;
        if became_ready && !volume.source.is_block() {
            let metrics = &self.0.deps.metrics.volumes;
            let took = tracked.requested.elapsed();
            metrics.observe_overall_mount(&plugin_name(volume), took.as_secs_f64());
        }
        let is_limited = became_ready && tracked.limit.is_some();
        tracked.ready |= ready;
        if is_limited {
            self.0.wake.notify_one();
        }
    }

    /// Removes a volume that was torn down.
    pub(crate) fn remove(&self, uid: &PodUid, found: &DiscoveredVolume) {
        let mut pods = self.lock();
        let Some(tracked_pod) = pods.get_mut(uid) else {
            return;
        };
        tracked_pod.volumes.retain(|_, tracked| {
            let dir = tracked.volume.source.plugin_dir().unwrap_or_default();
            (dir, tracked.volume.dir_name()) != (found.plugin_dir.as_str(), found.name.as_str())
        });
        if tracked_pod.volumes.is_empty() {
            pods.remove(uid);
        }
    }

    /// Removes all volumes of a pod.
    pub(crate) fn remove_pod(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// Usage of the volumes of a pod, sorted by name. Samples older than `max_age` are measured again,
    /// which may take long for large trees; volumes without a sample are omitted.
    pub async fn stats(&self, uid: &PodUid, max_age: Duration) -> Vec<PodVolumeStats> {
        self.refresh(uid, max_age, |_, _| true).await;
        let pods = self.lock();
        let Some(tracked_pod) = pods.get(uid) else {
            return Vec::new();
        };
        let volumes = tracked_pod.volumes.iter();
        let stats = volumes.filter_map(|(name, tracked)| {
            let latest = tracked.latest.as_ref()?;
            Some(PodVolumeStats {
                volume: name.clone(),
                claim: pvc_name(&tracked_pod.pod, name),
                stats: latest.stats,
                at: latest.at,
            })
        });
        stats.collect()
    }

    /// Updates the volume gauges from the last samples. Outdated samples of PVCs are measured in the
    /// background for the next scrape.
    pub fn publish_metrics(&self) {
        let metrics = &self.0.deps.metrics.volumes;
        let mut pvcs: BTreeMap<(String, String), PvcStats> = BTreeMap::new();
        let mut total = Vec::new();
        let mut old = Vec::new();
        let pods = self.lock();
        for (uid, tracked_pod) in &*pods {
            for (name, tracked) in &tracked_pod.volumes {
                let plugin = plugin_name(&tracked.volume);
                if tracked.ready {
                    total.push((VolumeWorld::Actual, plugin.clone()));
                }
                total.push((VolumeWorld::Desired, plugin));
                let Some(claim) = pvc_name(&tracked_pod.pod, name) else {
                    continue;
                };
                if tracked.ready
                    && !tracked.is_younger_than(STATS_PERIOD)
                    && old.last() != Some(uid)
                {
                    old.push(uid.clone());
                }
                let Some(latest) = &tracked.latest else {
                    continue;
                };
                let namespace = tracked_pod.pod.namespace().to_owned();
                let stats = PvcStats {
                    namespace: namespace.clone(),
                    pvc: claim.clone(),
                    values: values(&latest.stats),
                };
                pvcs.entry((namespace, claim)).or_insert(stats);
            }
        }
        drop(pods);
        let pvcs: Vec<PvcStats> = pvcs.into_values().collect();
        metrics.set_pvcs(&pvcs);
        metrics.set_total(
            total
                .iter()
                .map(|(world, plugin)| (*world, plugin.as_str())),
        );
        if old.is_empty() {
            return;
        }
        let Ok(guard) = Arc::clone(&self.0.pvcs).try_lock_owned() else {
            return;
        };
        let usages = self.clone();
        spawn_io("measure-pvc-usage", async move {
            let _guard = guard;
            for uid in old {
                let claimed = |pod: &Pod, name: &str| pvc_name(pod, name).is_some();
                usages.refresh(&uid, STATS_PERIOD, claimed).await;
            }
        });
    }

    /// Measures the volumes of a pod whose samples are older than `max_age`.
    async fn refresh(&self, uid: &PodUid, max_age: Duration, which: impl Fn(&Pod, &str) -> bool) {
        let old: Vec<String> = {
            let pods = self.lock();
            let Some(tracked_pod) = pods.get(uid) else {
                return;
            };
            let volumes = tracked_pod.volumes.iter();
            let old = volumes.filter(|(name, tracked)| {
                // volumes outside the pod directory are not measured
                let has_dir = tracked.volume.source.plugin_dir().is_some();
                let old = tracked.ready && !tracked.is_younger_than(max_age);
                has_dir && old && which(&tracked_pod.pod, name)
            });
            old.map(|(name, _)| name.clone()).collect()
        };
        futures::stream::iter(old)
            .for_each_concurrent(MAX_CONCURRENT_MEASUREMENTS, |name| async move {
                self.measure(uid, &name).await;
            })
            .await;
    }

    /// Measures one volume, stores the sample, and evicts its pod if a limit is exceeded.
    async fn measure(&self, uid: &PodUid, name: &str) {
        let requested = Instant::now();
        let (volume, lock) = {
            let pods = self.lock();
            let tracked = pods.get(uid).and_then(|it| it.volumes.get(name));
            match tracked {
                Some(tracked) => (tracked.volume.clone(), Arc::clone(&tracked.lock)),
                None => return,
            }
        };
        let _guard = lock.lock().await;
        if self.measured_since(uid, name, requested) {
            return;
        }
        let begin = Instant::now();
        let measured = self.0.deps.plugins.usage(uid, &volume).await;
        let took = begin.elapsed();
        let stats = match measured {
            Ok(Some((stats, source))) => {
                let metrics = &self.0.deps.metrics.volumes;
                metrics
                    .collection_duration
                    .with_label_values(&[&source.to_string()])
                    .observe(took.as_secs_f64());
                Some(stats)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(pod = %uid, volume = name, %error, "measuring volume usage failed");
                None
            }
        };
        let round = next_round(self.round(), took);
        let at = self.0.deps.clock.now();
        let mut pods = self.lock();
        let Some(tracked_pod) = pods.get_mut(uid) else {
            return;
        };
        // torn down meanwhile
        let Some(tracked) = tracked_pod.volumes.get_mut(name) else {
            return;
        };
        // a measurement on request keeps the next round
        tracked.round.get_or_insert(round);
        let Some(stats) = stats else {
            return;
        };
        tracked.latest = Some(Sample {
            stats,
            at,
            measured: Instant::now(),
        });
        let over = tracked
            .limit
            .as_ref()
            .and_then(|it| it.exceeded(stats.used));
        let Some(message) = over.filter(|_| !tracked_pod.evicted) else {
            return;
        };
        tracked_pod.evicted = true;
        let pod = SharedPod::clone(&tracked_pod.pod);
        drop(pods);
        self.evict(&pod, message);
    }

    /// Whether another caller measured the volume since `requested`.
    fn measured_since(&self, uid: &PodUid, name: &str, requested: Instant) -> bool {
        let next = self.round() + 1;
        let mut pods = self.lock();
        let tracked = pods.get_mut(uid).and_then(|it| it.volumes.get_mut(name));
        let Some(tracked) = tracked else {
            return false;
        };
        let latest = tracked.latest.as_ref();
        let fresh = latest.is_some_and(|latest| latest.measured > requested);
        if fresh {
            tracked.round.get_or_insert(next);
        }
        fresh
    }

    fn evict(&self, pod: &SharedPod, message: String) {
        tracing::info!(pod = %pod.full_name(), message, "evicting pod, volume exceeds its limit");
        let deps = &self.0.deps;
        let signal = deps.metrics.volumes.evictions.with_label_values(&[SIGNAL]);
        signal.inc();
        deps.events
            .record(pod, None, EventType::Warning, Reason::Evicted, &message);
        let over_limit = Some(message);
        let changed = VolumesChanged {
            over_limit,
            ..VolumesChanged::default()
        };
        deps.changed.put(pod.uid(), changed);
    }

    /// Checks volumes with a limit in rounds: one wake-up for all pods, none without limits.
    async fn watch_limits(self) {
        let cancelled = self.0.deps.cancel.clone();
        let watch = async {
            loop {
                let Some(round) = self.next_due_round() else {
                    self.0.wake.notified().await;
                    continue;
                };
                let periods = u32::try_from(round).unwrap_or(u32::MAX);
                let at = self.0.began + LIMIT_CHECK_INTERVAL.saturating_mul(periods);
                // a new volume may be due before a distant round
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(at) => {}
                    () = self.0.wake.notified() => continue,
                }
                for (uid, name) in self.take_due(round) {
                    let usages = self.clone();
                    let check = async move { usages.check_limit(&uid, &name).await };
                    spawn_io("check-volume-limit", check);
                }
            }
        };
        let _: Option<()> = cancelled.run_until_cancelled(watch).await;
    }

    async fn check_limit(&self, uid: &PodUid, name: &str) {
        self.measure(uid, name).await;
        // its next round may be earlier than the awaited one
        self.0.wake.notify_one();
    }

    /// The next round with a due check.
    fn next_due_round(&self) -> Option<u64> {
        let pods = self.lock();
        let watched = pods.values().flat_map(TrackedPod::watched);
        watched.filter_map(|tracked| tracked.round).min()
    }

    fn take_due(&self, round: u64) -> Vec<(PodUid, String)> {
        let mut due = Vec::new();
        for (uid, tracked_pod) in &mut *self.lock() {
            if tracked_pod.evicted {
                continue;
            }
            for (name, tracked) in &mut tracked_pod.volumes {
                if tracked.is_watched() && tracked.round.is_some_and(|it| it <= round) {
                    tracked.round = None;
                    due.push((uid.clone(), name.clone()));
                }
            }
        }
        due
    }

    /// The current round.
    fn round(&self) -> u64 {
        let passed = self.0.began.elapsed().as_millis() / LIMIT_CHECK_INTERVAL.as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, TrackedPod>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TrackedPod {
    /// Volumes with periodic limit checks.
    fn watched(&self) -> impl Iterator<Item = &TrackedVolume> {
        let all = self.volumes.values();
        all.filter(|tracked| !self.evicted && tracked.is_watched())
    }
}

impl TrackedVolume {
    fn is_watched(&self) -> bool {
        self.ready && self.limit.is_some()
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        let latest = self.latest.as_ref();
        latest.is_some_and(|latest| latest.measured.elapsed() < age)
    }
}

/// In the order of [`PvcStats`].
fn values(stats: &VolumeStats) -> [u64; 6] {
    [
        stats.capacity,
        stats.available,
        stats.used,
        stats.inodes,
        stats.inodes_free,
        stats.inodes_used,
    ]
}

/// Measuring needs only the location of a volume: the payload may be secret and large.
fn without_content(volume: &PodVolume) -> PodVolume {
    PodVolume {
        source: match &volume.source {
            VolumeSource::Payload(kind, _) | VolumeSource::PayloadUnavailable(kind, _) => {
                VolumeSource::Payload(*kind, Default::default())
            }
            source => source.clone(),
        },
        ..volume.clone()
    }
}

#[cfg(test)]
mod tests;
