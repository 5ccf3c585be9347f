//! What volumes hold: watched where a pod may not let one grow, measured where somebody asks.
//!
//! *owns* what is known of each volume that is set up · *hears* of volumes from
//! [`crate::InstrumentedVolumes`] · *says* `VolumesChanged` with the reason of an eviction ·
//! *invariant* a volume is looked at once at a time; without a limit or somebody who asks nothing
//! is measured and nobody wakes · *bound* the volumes of the node; looks run in the pods' own lanes
//! · *restart* nothing to restore.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::VolumesChanged;
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};
use windlass_volume_plan::volume_usage::{
    EmptyDirLimit, LOOK_PERIOD, STATS_PERIOD, VolumeStats, claim_of, empty_dir_limits, next_round,
    plugin_name,
};
use windlass_metrics::{PvcStats, Metrics, VolumeWorld};
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, Pod, PodExt, PodUid, Reason, SharedPod, Timestamp};
use windlass_volumes::{DiscoveredVolume, VolumePlugins};

/// Volumes that are measured at a time for one who asks.
const AT_A_TIME: usize = 4;
/// Upstream's name of the signal (`signalEmptyDirFsLimit`).
const SIGNAL: &str = "emptydirfs.limit";

/// What the usage of volumes is kept with.
#[derive(Clone, Debug)]
pub struct VolumeUsagesDeps {
    /// Measures.
    pub plugins: Arc<dyn VolumePlugins>,
    /// Dates what was measured.
    pub clock: Arc<dyn Clock>,
    /// Hears of evictions.
    pub events: Arc<dyn EventRecorder>,
    /// The way to the SyncLoop.
    pub changed: SlotSender<PodUid, VolumesChanged>,
    /// Counts.
    pub metrics: Metrics,
    /// Ends the watch over limits.
    pub cancel: CancellationToken,
}

/// The usage of all volumes that are set up. Clones share it.
#[derive(Clone, Debug)]
pub struct VolumeUsages(Arc<Shared>);

/// One volume of a pod, measured (upstream `statsapi.VolumeStats`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolumeStats {
    /// Its name in the pod's spec.
    pub volume: String,
    /// The claim behind it, in the pod's namespace.
    pub claim: Option<String>,
    /// The numbers.
    pub stats: VolumeStats,
    /// When they were true.
    pub at: Timestamp,
}

#[derive(Debug)]
struct Shared {
    deps: VolumeUsagesDeps,
    pods: Mutex<BTreeMap<PodUid, OfPod>>,
    /// A volume with a limit came.
    came: Notify,
    began: Instant,
    /// Held by the one who measures claims for the metrics: scrapes may come faster than a volume
    /// that is large or hangs can be measured.
    claims: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct OfPod {
    pod: SharedPod,
    volumes: BTreeMap<String, Known>,
    /// It is being evicted: nothing of it is looked at any more.
    over: bool,
}

#[derive(Debug)]
struct Known {
    volume: PodVolume,
    /// When the pod asked for it first.
    asked: Instant,
    ready: bool,
    limit: Option<EmptyDirLimit>,
    /// The round of the next look; `None` while one is under way.
    round: Option<u64>,
    latest: Option<Latest>,
    /// Held by the one who looks at it.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Debug)]
struct Latest {
    stats: VolumeStats,
    at: Timestamp,
    measured: Instant,
}

impl VolumeUsages {
    /// Nothing is known. The watch over limits starts with the first of them; call it inside a
    /// runtime.
    pub fn new(deps: VolumeUsagesDeps) -> Self {
        let shared = Arc::new(Shared {
            deps,
            pods: Mutex::default(),
            came: Notify::new(),
            began: Instant::now(),
            claims: Arc::default(),
        });
        let usages = Self(shared);
        spawn_io("watch-volume-limits", usages.clone().watch_limits());
        usages
    }

    /// A pod asks for a volume (`ready`: and has it).
    pub(crate) fn desired(&self, pod: &SharedPod, volume: &PodVolume, ready: bool) {
        let round = self.round() + 1;
        let mut pods = self.lock();
        let of_pod = pods.entry(pod.uid()).or_insert_with(|| OfPod {
            pod: SharedPod::clone(pod),
            volumes: BTreeMap::new(),
            over: false,
        });
        let limit = || {
            let mut limits = empty_dir_limits(pod).into_iter();
            limits.find(|limit| limit.volume == volume.name)
        };
        let known = of_pod
            .volumes
            .entry(volume.name.clone())
            .or_insert_with(|| Known {
                volume: without_content(volume),
                asked: Instant::now(),
                ready: false,
                limit: limit(),
                round: Some(round),
                latest: None,
                turn: Arc::default(),
            });
        let came = ready && !known.ready;
        if came && !volume.source.is_block() {
            let metrics = &self.0.deps.metrics.volumes;
            let took = known.asked.elapsed();
            metrics.observe_overall_mount(&plugin_name(volume), took.as_secs_f64());
        }
        let begins = came && known.limit.is_some();
        known.ready |= ready;
        if begins {
            self.0.came.notify_one();
        }
    }

    /// A volume was taken from its pod.
    pub(crate) fn gone(&self, uid: &PodUid, found: &DiscoveredVolume) {
        let mut pods = self.lock();
        let Some(of_pod) = pods.get_mut(uid) else {
            return;
        };
        of_pod.volumes.retain(|_, known| {
            let dir = known.volume.source.plugin_dir().unwrap_or_default();
            (dir, known.volume.dir_name()) != (found.plugin_dir.as_str(), found.name.as_str())
        });
        if of_pod.volumes.is_empty() {
            pods.remove(uid);
        }
    }

    /// Nothing is left of a pod's volumes.
    pub(crate) fn all_gone(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    /// What the volumes of a pod hold, in the order of their names. What is older than `max_age`
    /// is measured anew, which may take as long as counting a large tree does; what cannot be
    /// measured is left out.
    pub async fn stats(&self, uid: &PodUid, max_age: Duration) -> Vec<PodVolumeStats> {
        self.refresh(uid, max_age, |_, _| true).await;
        let pods = self.lock();
        let Some(of_pod) = pods.get(uid) else {
            return Vec::new();
        };
        let volumes = of_pod.volumes.iter();
        let told = volumes.filter_map(|(name, known)| {
            let latest = known.latest.as_ref()?;
            Some(PodVolumeStats {
                volume: name.clone(),
                claim: claim_of(&of_pod.pod, name),
                stats: latest.stats,
                at: latest.at,
            })
        });
        told.collect()
    }

    /// Brings the gauges about volumes up to date. Of claims the last numbers are told; when they
    /// are old, new ones are there for whoever asks next.
    pub fn publish_metrics(&self) {
        let metrics = &self.0.deps.metrics.volumes;
        let mut claims: BTreeMap<(String, String), PvcStats> = BTreeMap::new();
        let mut total = Vec::new();
        let mut old = Vec::new();
        let pods = self.lock();
        for (uid, of_pod) in &*pods {
            for (name, known) in &of_pod.volumes {
                let plugin = plugin_name(&known.volume);
                if known.ready {
                    total.push((VolumeWorld::Actual, plugin.clone()));
                }
                total.push((VolumeWorld::Desired, plugin));
                let Some(claim) = claim_of(&of_pod.pod, name) else {
                    continue;
                };
                if known.ready && !known.is_younger_than(STATS_PERIOD) && old.last() != Some(uid) {
                    old.push(uid.clone());
                }
                let Some(latest) = &known.latest else {
                    continue;
                };
                let namespace = of_pod.pod.namespace().to_owned();
                let stats = PvcStats {
                    namespace: namespace.clone(),
                    pvc: claim.clone(),
                    values: values(&latest.stats),
                };
                claims.entry((namespace, claim)).or_insert(stats);
            }
        }
        drop(pods);
        let claims: Vec<PvcStats> = claims.into_values().collect();
        metrics.set_pvcs(&claims);
        metrics.set_total(
            total
                .iter()
                .map(|(world, plugin)| (*world, plugin.as_str())),
        );
        if old.is_empty() {
            return;
        }
        let Ok(alone) = Arc::clone(&self.0.claims).try_lock_owned() else {
            return;
        };
        let usages = self.clone();
        spawn_io("measure-claims", async move {
            let _alone = alone;
            for uid in old {
                let claimed = |pod: &Pod, name: &str| claim_of(pod, name).is_some();
                usages.refresh(&uid, STATS_PERIOD, claimed).await;
            }
        });
    }

    /// Measures those volumes of a pod of which nothing as young is known.
    async fn refresh(&self, uid: &PodUid, max_age: Duration, which: impl Fn(&Pod, &str) -> bool) {
        let old: Vec<String> = {
            let pods = self.lock();
            let Some(of_pod) = pods.get(uid) else {
                return;
            };
            let volumes = of_pod.volumes.iter();
            let old = volumes.filter(|(name, known)| {
                // one that lies in no directory of the pod's is nobody's to measure
                let lies = known.volume.source.plugin_dir().is_some();
                let old = known.ready && !known.is_younger_than(max_age);
                lies && old && which(&of_pod.pod, name)
            });
            old.map(|(name, _)| name.clone()).collect()
        };
        futures::stream::iter(old)
            .for_each_concurrent(AT_A_TIME, |name| async move {
                self.measure(uid, &name).await;
            })
            .await;
    }

    /// Measures one volume, remembers it, and has its pod evicted if it holds too much.
    async fn measure(&self, uid: &PodUid, name: &str) {
        let asked = Instant::now();
        let (volume, turn) = {
            let pods = self.lock();
            let known = pods.get(uid).and_then(|it| it.volumes.get(name));
            match known {
                Some(known) => (known.volume.clone(), Arc::clone(&known.turn)),
                None => return,
            }
        };
        let _turn = turn.lock().await;
        if self.measured_since(uid, name, asked) {
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
                tracing::warn!(pod = %uid, volume = name, %error, "a volume cannot be measured");
                None
            }
        };
        let round = next_round(self.round(), took);
        let at = self.0.deps.clock.now();
        let mut pods = self.lock();
        let Some(of_pod) = pods.get_mut(uid) else {
            return;
        };
        // it went meanwhile
        let Some(known) = of_pod.volumes.get_mut(name) else {
            return;
        };
        // one that was asked for between two rounds changes neither
        known.round.get_or_insert(round);
        let Some(stats) = stats else {
            return;
        };
        known.latest = Some(Latest {
            stats,
            at,
            measured: Instant::now(),
        });
        let over = known.limit.as_ref().and_then(|it| it.exceeded(stats.used));
        let Some(message) = over.filter(|_| !of_pod.over) else {
            return;
        };
        of_pod.over = true;
        let pod = SharedPod::clone(&of_pod.pod);
        drop(pods);
        self.evict(&pod, message);
    }

    /// Somebody else has looked at the volume meanwhile.
    fn measured_since(&self, uid: &PodUid, name: &str, asked: Instant) -> bool {
        let next = self.round() + 1;
        let mut pods = self.lock();
        let known = pods.get_mut(uid).and_then(|it| it.volumes.get_mut(name));
        let Some(known) = known else {
            return false;
        };
        let latest = known.latest.as_ref();
        let fresh = latest.is_some_and(|latest| latest.measured > asked);
        if fresh {
            known.round.get_or_insert(next);
        }
        fresh
    }

    fn evict(&self, pod: &SharedPod, message: String) {
        tracing::info!(pod = %pod.full_name(), message, "evicted for what a volume holds");
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

    /// Looks at volumes with a limit, all of a round at the same time: one wake-up for all pods, and
    /// none without one.
    async fn watch_limits(self) {
        let cancelled = self.0.deps.cancel.clone();
        let watch = async {
            loop {
                let Some(round) = self.next() else {
                    self.0.came.notified().await;
                    continue;
                };
                let periods = u32::try_from(round).unwrap_or(u32::MAX);
                let at = self.0.began + LOOK_PERIOD.saturating_mul(periods);
                // one that came is due in the next round: not before this, unless this is far
                tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(at) => {}
                    () = self.0.came.notified() => continue,
                }
                for (uid, name) in self.take_due(round) {
                    let usages = self.clone();
                    let look = async move { usages.look(&uid, &name).await };
                    spawn_io("look-at-volume", look);
                }
            }
        };
        let _: Option<()> = cancelled.run_until_cancelled(watch).await;
    }

    async fn look(&self, uid: &PodUid, name: &str) {
        self.measure(uid, name).await;
        // whoever waits for a later round hears of this volume's
        self.0.came.notify_one();
    }

    /// The next round in which something is due.
    fn next(&self) -> Option<u64> {
        let pods = self.lock();
        let watched = pods.values().flat_map(OfPod::watched);
        watched.filter_map(|known| known.round).min()
    }

    fn take_due(&self, round: u64) -> Vec<(PodUid, String)> {
        let mut due = Vec::new();
        for (uid, of_pod) in &mut *self.lock() {
            if of_pod.over {
                continue;
            }
            for (name, known) in &mut of_pod.volumes {
                if known.is_watched() && known.round.is_some_and(|it| it <= round) {
                    known.round = None;
                    due.push((uid.clone(), name.clone()));
                }
            }
        }
        due
    }

    /// The round of the present.
    fn round(&self) -> u64 {
        let passed = self.0.began.elapsed().as_millis() / LOOK_PERIOD.as_millis();
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, OfPod>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfPod {
    /// Volumes that somebody has to look at.
    fn watched(&self) -> impl Iterator<Item = &Known> {
        let all = self.volumes.values();
        all.filter(|known| !self.over && known.is_watched())
    }
}

impl Known {
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

/// Where a volume lies is all that measuring needs: what it shows may be secret, and large.
fn without_content(volume: &PodVolume) -> PodVolume {
    PodVolume {
        source: match &volume.source {
            VolumeSource::Payload(kind, _) | VolumeSource::Withheld(kind, _) => {
                VolumeSource::Payload(*kind, Default::default())
            }
            source => source.clone(),
        },
        ..volume.clone()
    }
}

#[cfg(test)]
mod tests;
