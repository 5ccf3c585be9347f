//! Usage of volumes, measured on request.
//!
//! *owns* the last sample of each volume · *receives* volumes from [`crate::InstrumentedVolumes`] ·
//! *invariant* at most one measurement per volume; none without a request · *bound* the volumes of
//! the node; measurements run in the I/O queues of their pods · *restart* nothing to restore.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout};
use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_mailboxes::spawn_io;
use windlass_metrics::{Metrics, PvcStats, VolumeWorld};
use windlass_types::{Clock, Pod, PodExt, PodUid, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};
use windlass_volume_plan::volume_usage::{
    STATS_PERIOD, StatsSource, VolumeStats, measurement_interval, plugin_name, pvc_name,
};
use windlass_volumes::{DiscoveredVolume, Measured, VolumeError, VolumePlugins};

/// Max concurrent measurements for one request.
const MAX_CONCURRENT_MEASUREMENTS: usize = 4;
/// Age of a sample that [`VolumeUsages::recent`] no longer returns, in intervals of its volume: its
/// file system hangs.
const MAX_INTERVALS: u32 = 6;
/// A `statfs` that takes longer has hung: local ones take microseconds, those of servers
/// milliseconds.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);

/// Dependencies of [`VolumeUsages`].
#[derive(Clone, Debug)]
pub struct VolumeUsagesDeps {
    /// Measures volumes.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Wall clock for samples.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Lists measurements that hang.
    pub hung: HungOperations,
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
    /// Held while PVCs are measured for metrics: scrapes may be faster than the measurement of a large
    /// or hung volume.
    pvcs: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct TrackedPod {
    pod: SharedPod,
    volumes: BTreeMap<String, TrackedVolume>,
}

#[derive(Debug)]
struct TrackedVolume {
    volume: PodVolume,
    /// Time of the first set-up request.
    requested: Instant,
    ready: bool,
    latest: Option<Sample>,
    /// Held during a measurement.
    lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Sample {
    stats: VolumeStats,
    at: Timestamp,
    measured: Instant,
    /// Duration of the measurement.
    took: Duration,
    /// Its files were counted, which takes as long as there are many.
    is_walk: bool,
}

impl VolumeUsages {
    /// Creates it without volumes.
    pub fn new(deps: VolumeUsagesDeps) -> Self {
        Self(Arc::new(Shared {
            deps,
            pods: Mutex::default(),
            pvcs: Arc::default(),
        }))
    }

    /// Tracks a desired volume; `ready` if it is set up.
    pub(crate) fn track(&self, pod: &SharedPod, volume: &PodVolume, ready: bool) {
        let mut pods = self.0.pods.lock();
        let tracked_pod = pods.entry(pod.uid()).or_insert_with(|| TrackedPod {
            pod: SharedPod::clone(pod),
            volumes: BTreeMap::new(),
        });
        let tracked = tracked_pod
            .volumes
            .entry(volume.name.clone())
            .or_insert_with(|| TrackedVolume {
                volume: without_content(volume),
                requested: Instant::now(),
                ready: false,
                latest: None,
                lock: Arc::default(),
            });
        let became_ready = ready && !tracked.ready;
        if became_ready && !volume.source.is_block() {
            let metrics = &self.0.deps.metrics.volumes;
            let took = tracked.requested.elapsed();
            metrics.observe_overall_mount(&plugin_name(volume), took.as_secs_f64());
        }
        tracked.ready |= ready;
    }

    /// Removes a volume that was torn down.
    pub(crate) fn remove(&self, uid: &PodUid, found: &DiscoveredVolume) {
        let mut pods = self.0.pods.lock();
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
        self.0.pods.lock().remove(uid);
    }

    /// Usage of the volumes of a pod, sorted by name. Samples older than `max_age` are measured again,
    /// which may take long for large trees; volumes without a sample are omitted.
    pub async fn stats(&self, uid: &PodUid, max_age: Duration) -> Vec<PodVolumeStats> {
        self.refresh(uid, max_age, |_, _| true).await;
        let pods = self.0.pods.lock();
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

    /// Usage of the named volumes of a pod. Samples older than `interval` are measured again, those
    /// of slow volumes less often ([`measurement_interval`]). It waits at most `wait`; a measurement
    /// that takes longer continues for the next call. Volumes without a young sample are omitted.
    pub async fn recent(
        &self,
        uid: &PodUid,
        volumes: &[String],
        interval: Duration,
        wait: Duration,
    ) -> BTreeMap<String, VolumeStats> {
        let measurements = self.begin_due(uid, volumes, interval);
        // an error means that some are still in progress
        let _ = timeout(wait, join_all(measurements)).await;
        let pods = self.0.pods.lock();
        let Some(tracked_pod) = pods.get(uid) else {
            return BTreeMap::new();
        };
        let samples = volumes.iter().filter_map(|name| {
            let latest = tracked_pod.volumes.get(name)?.latest.as_ref()?;
            let max_age = latest.interval(interval) * MAX_INTERVALS;
            (latest.measured.elapsed() <= max_age).then(|| (name.clone(), latest.stats))
        });
        samples.collect()
    }

    /// Starts the measurements that are due; returns futures that wait for them and for those in
    /// progress.
    fn begin_due(
        &self,
        uid: &PodUid,
        volumes: &[String],
        interval: Duration,
    ) -> Vec<impl Future<Output = ()> + Send + use<>> {
        let pods = self.0.pods.lock();
        let Some(tracked_pod) = pods.get(uid) else {
            return Vec::new();
        };
        let due = volumes.iter().filter_map(|name| {
            let tracked = tracked_pod.volumes.get(name)?;
            let latest = tracked.latest.as_ref();
            let young = latest.is_some_and(|it| it.measured.elapsed() < it.interval(interval));
            let has_dir = tracked.volume.source.plugin_dir().is_some();
            if !tracked.ready || young || !has_dir {
                return None;
            }
            let lock = Arc::clone(&tracked.lock);
            // a waiter for each request would pile up at a hung volume
            if let Ok(guard) = Arc::clone(&lock).try_lock_owned() {
                let (usages, uid, name) = (self.clone(), uid.clone(), name.clone());
                let volume = tracked.volume.clone();
                spawn_io("measure-volume", async move {
                    usages.measure_locked(guard, &uid, &name, volume).await;
                });
            }
            Some(async move { drop(lock.lock().await) })
        });
        due.collect()
    }

    /// Updates the volume gauges from the last samples. Outdated samples of PVCs are measured in the
    /// background for the next scrape.
    pub fn publish_metrics(&self) {
        let metrics = &self.0.deps.metrics.volumes;
        let mut pvcs: BTreeMap<(String, String), PvcStats> = BTreeMap::new();
        let mut total = Vec::new();
        let mut old = Vec::new();
        let pods = self.0.pods.lock();
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
            let pods = self.0.pods.lock();
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

    /// Measures one volume and stores the sample, unless another caller does it meanwhile.
    async fn measure(&self, uid: &PodUid, name: &str) {
        let requested = Instant::now();
        let (volume, lock) = {
            let pods = self.0.pods.lock();
            let tracked = pods.get(uid).and_then(|it| it.volumes.get(name));
            match tracked {
                Some(tracked) => (tracked.volume.clone(), Arc::clone(&tracked.lock)),
                None => return,
            }
        };
        let guard = lock.lock_owned().await;
        if !self.measured_since(uid, name, requested) {
            self.measure_locked(guard, uid, name, volume).await;
        }
    }

    async fn measure_locked(
        &self,
        _guard: OwnedMutexGuard<()>,
        uid: &PodUid,
        name: &str,
        volume: PodVolume,
    ) {
        let begin = Instant::now();
        let measured = self.measure_tracked(uid, name, &volume).await;
        let took = begin.elapsed();
        let (stats, is_walk) = match measured {
            Ok(Some((stats, source))) => {
                let metrics = &self.0.deps.metrics.volumes;
                metrics
                    .collection_duration
                    .with_label_values(&[&source.to_string()])
                    .observe(took.as_secs_f64());
                (stats, source == StatsSource::Walk)
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(pod = %uid, volume = name, %error, "measuring volume usage failed");
                return;
            }
        };
        let at = self.0.deps.clock.now();
        let mut pods = self.0.pods.lock();
        let tracked = pods.get_mut(uid).and_then(|it| it.volumes.get_mut(name));
        // otherwise torn down meanwhile
        if let Some(tracked) = tracked {
            tracked.latest = Some(Sample {
                stats,
                at,
                measured: Instant::now(),
                took,
                is_walk,
            });
        }
    }

    /// Measures a volume; lists it while its device or server hangs. Files of a volume without a
    /// file system of its own are counted, which may take minutes.
    async fn measure_tracked(
        &self,
        uid: &PodUid,
        name: &str,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        let VolumeUsagesDeps { plugins, hung, .. } = &self.0.deps;
        let work = plugins.usage(uid, volume);
        let walked = {
            let pods = self.0.pods.lock();
            let tracked = pods.get(uid).and_then(|it| it.volumes.get(name));
            let latest = tracked.and_then(|tracked| tracked.latest.as_ref());
            latest.is_some_and(|latest| latest.is_walk)
        };
        if walked || !may_hang(&volume.source) {
            return work.await;
        }
        let operation = || {
            let name = format!("usage of volume {name} ({})", plugin_name(volume));
            Operation::of_pod(OperationKind::VolumeUsage, uid, name)
        };
        hung.track(HANG_THRESHOLD, operation, Result::is_ok, work)
            .await
    }

    /// Whether another caller measured the volume since `requested`.
    fn measured_since(&self, uid: &PodUid, name: &str, requested: Instant) -> bool {
        let pods = self.0.pods.lock();
        let tracked = pods.get(uid).and_then(|it| it.volumes.get(name));
        let latest = tracked.and_then(|tracked| tracked.latest.as_ref());
        latest.is_some_and(|latest| latest.measured > requested)
    }
}

impl TrackedVolume {
    fn is_younger_than(&self, age: Duration) -> bool {
        let latest = self.latest.as_ref();
        latest.is_some_and(|latest| latest.measured.elapsed() < age)
    }
}

impl Sample {
    fn interval(&self, interval: Duration) -> Duration {
        measurement_interval(interval, self.took)
    }
}

/// True for volumes that are not on the disks of the node itself.
fn may_hang(source: &VolumeSource) -> bool {
    matches!(
        source,
        VolumeSource::Local(_) | VolumeSource::Nfs(_) | VolumeSource::Csi(_)
    )
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
