//! Memory, disks and processes of a simulated node.
//!
//! A pod uses its share while one of its containers runs, so an evicted pod frees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use windlass_eviction::{
    ContainerUsage, DiskUsage, EvictionSettings, FileSystems, MemoryFacts, NodeReclaim,
    Observation, PodUsage, Signal, ThresholdFields, Thresholds,
};
use windlass_eviction_manager::{
    MemoryTrigger, MemoryTriggers, NodeFigures, NodeReading, NodeReclaimer, PodDisk, PodDiskMeter,
    TriggerSink, UsageThresholds,
};
use windlass_types::{Clock, ObservedPod, PodExt, PodUid, SharedPod};

use crate::fake_runtime::FakeRuntime;

/// Returns eviction settings with hard thresholds of signals, as `("memory.available", "100Mi")`.
#[expect(clippy::expect_used, reason = "a test requires valid settings")]
pub fn hard_eviction(thresholds: &[(&str, &str)]) -> EvictionSettings {
    let hard = thresholds.iter();
    let hard = hard.map(|(signal, value)| ((*signal).to_owned(), (*value).to_owned()));
    let none = BTreeMap::new();
    let thresholds = Thresholds::parse(ThresholdFields {
        hard: &hard.collect(),
        soft: &none,
        soft_grace_period: &none,
        minimum_reclaim: &none,
        enforces_pods: false,
    });
    EvictionSettings {
        thresholds: thresholds.expect("valid thresholds"),
        ..EvictionSettings::default()
    }
}

/// The resources of the node. Clones share them.
#[derive(Clone)]
pub struct FakePressure(Arc<Shared>);

struct Shared {
    runtime: FakeRuntime,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    notified: Notify,
}

#[derive(Default)]
struct State {
    resources: BTreeMap<Signal, Resource>,
    facts: MemoryFacts,
    file_systems: FileSystems,
    hung: BTreeSet<Signal>,
    /// Last readings, for signals that hang.
    latest: BTreeMap<Signal, Observation>,
    reclaimable: BTreeMap<&'static str, u64>,
    reclaim_time: Duration,
    is_reclaim_failing: bool,
    reclaims: Vec<&'static str>,
    reads: usize,
    held: Vec<PodUid>,
    killed: Vec<PodUid>,
    has_notifications: bool,
    thresholds: UsageThresholds,
}

/// One resource.
#[derive(Clone, Debug, Default)]
struct Resource {
    capacity: u64,
    used: u64,
    pods: BTreeMap<PodUid, u64>,
}

impl fmt::Debug for FakePressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakePressure").finish_non_exhaustive()
    }
}

impl FakePressure {
    /// A node without resources, on which nothing is measured.
    pub(crate) fn new(runtime: FakeRuntime, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Shared {
            runtime,
            clock,
            state: Mutex::default(),
            notified: Notify::new(),
        }))
    }

    /// Sets capacity of a resource and what is used apart from pods.
    pub fn set(&self, signal: Signal, capacity: u64, used: u64) {
        let mut state = self.lock();
        let resource = state.resources.entry(signal).or_default();
        (resource.capacity, resource.used) = (capacity, used);
    }

    /// Sets what a pod uses while it runs.
    pub fn pod_uses(&self, signal: Signal, uid: &PodUid, amount: u64) {
        let mut state = self.lock();
        let resource = state.resources.entry(signal).or_default();
        resource.pods.insert(uid.clone(), amount);
    }

    /// Sets page cache and stall times.
    pub fn set_memory_facts(&self, facts: MemoryFacts) {
        self.lock().facts = facts;
    }

    /// While set, a signal keeps its last reading, as with a disk that hangs.
    pub fn hang(&self, signal: Signal, is_hung: bool) {
        let mut state = self.lock();
        match is_hung {
            true => drop(state.hung.insert(signal)),
            false => drop(state.hung.remove(&signal)),
        }
    }

    /// Sets what a reclaim frees on nodefs, in bytes.
    pub fn set_reclaimable(&self, step: NodeReclaim, bytes: u64) {
        self.lock().reclaimable.insert(name(step), bytes);
    }

    /// Sets the duration of a reclaim.
    pub fn set_reclaim_time(&self, time: Duration) {
        self.lock().reclaim_time = time;
    }

    /// Reclaims fail.
    pub fn fail_reclaims(&self, is_failing: bool) {
        self.lock().is_reclaim_failing = is_failing;
    }

    /// Returns the reclaims so far.
    pub fn reclaims(&self) -> Vec<&'static str> {
        self.lock().reclaims.clone()
    }

    /// Returns how often the node was read.
    pub fn reads(&self) -> usize {
        self.lock().reads
    }

    /// Returns the pods whose memory was held, in order.
    pub fn held(&self) -> Vec<PodUid> {
        self.lock().held.clone()
    }

    /// Returns the pods that the kernel killed, in order.
    pub fn killed(&self) -> Vec<PodUid> {
        self.lock().killed.clone()
    }

    /// The kernel has notifications from the next agent start on.
    pub fn enable_notifications(&self) {
        self.lock().has_notifications = true;
    }

    /// Notifies the agent of a memory stall.
    pub fn notify(&self) {
        self.0.notified.notify_one();
    }

    /// Returns the usage thresholds that the agent armed.
    pub fn armed(&self) -> UsageThresholds {
        self.lock().thresholds
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self, uid: &PodUid) -> bool {
        self.0.runtime.is_pod_running(uid)
    }

    fn usage(&self, signal: Signal, uid: &PodUid) -> Option<u64> {
        let state = self.lock();
        state.resources.get(&signal)?.pods.get(uid).copied()
    }

    async fn reclaim(&self, step: NodeReclaim) -> Result<(), String> {
        let time = self.lock().reclaim_time;
        tokio::time::sleep(time).await;
        let mut state = self.lock();
        state.reclaims.push(name(step));
        if state.is_reclaim_failing {
            return Err("device or resource busy".to_owned());
        }
        let freed = state.reclaimable.remove(name(step)).unwrap_or(0);
        if let Some(disk) = state.resources.get_mut(&Signal::NodeFsAvailable) {
            disk.used = disk.used.saturating_sub(freed);
        }
        Ok(())
    }
}

fn name(step: NodeReclaim) -> &'static str {
    match step {
        NodeReclaim::DeadContainers => "dead containers",
        NodeReclaim::UnusedImages => "unused images",
    }
}

#[async_trait]
impl NodeFigures for FakePressure {
    async fn read(&self) -> NodeReading {
        let at = self.0.clock.now();
        let resources = self.lock().resources.clone();
        let used = |resource: &Resource| {
            let pods = resource.pods.iter().filter(|(uid, _)| self.runs(uid));
            resource.used + pods.map(|(_, amount)| amount).sum::<u64>()
        };
        let observed = resources.iter().map(|(signal, resource)| {
            let observed = Observation {
                available: resource.capacity.saturating_sub(used(resource)),
                capacity: resource.capacity,
                at,
            };
            (*signal, observed)
        });
        let observed: BTreeMap<Signal, Observation> = observed.collect();
        let mut state = self.lock();
        state.reads += 1;
        for (signal, observed) in observed {
            if !state.hung.contains(&signal) {
                state.latest.insert(signal, observed);
            }
        }
        let mut reading = NodeReading {
            file_systems: Some(state.file_systems),
            ..NodeReading::default()
        };
        reading.observations.signals = state.latest.clone();
        reading.observations.node_memory = state.facts;
        reading
    }

    async fn pods(&self, pods: Vec<Arc<ObservedPod>>) -> BTreeMap<PodUid, PodUsage> {
        let usages = pods.iter().map(|pod| {
            let memory = self.usage(Signal::MemoryAvailable, &pod.uid).or(Some(0));
            let running = pod.running().map(|container| ContainerUsage {
                name: container.name.clone(),
                memory,
                ..ContainerUsage::default()
            });
            let usage = PodUsage {
                memory,
                processes: self.usage(Signal::PidAvailable, &pod.uid).or(Some(1)),
                containers: running.collect(),
                ..PodUsage::default()
            };
            (pod.uid.clone(), usage)
        });
        usages.collect()
    }

    async fn hold_memory(&self, pod: PodUid) {
        self.lock().held.push(pod);
    }

    async fn kill(&self, pod: Arc<ObservedPod>) {
        self.lock().killed.push(pod.uid.clone());
    }
}

#[async_trait]
impl PodDiskMeter for FakePressure {
    async fn measure(&self, pods: Vec<SharedPod>) -> BTreeMap<PodUid, PodDisk> {
        let disks = pods.iter().map(|pod| {
            let uid = pod.uid();
            let amount = |signal| self.usage(signal, &uid).unwrap_or(0);
            let disk = PodDisk {
                containers: Vec::new(),
                local_volumes: DiskUsage {
                    bytes: amount(Signal::NodeFsAvailable),
                    inodes: amount(Signal::NodeFsInodesFree),
                },
            };
            (uid, disk)
        });
        disks.collect()
    }
}

#[async_trait]
impl NodeReclaimer for FakePressure {
    async fn delete_dead_containers(&self) -> Result<(), String> {
        self.reclaim(NodeReclaim::DeadContainers).await
    }

    async fn delete_unused_images(&self) -> Result<(), String> {
        self.reclaim(NodeReclaim::UnusedImages).await
    }
}

#[async_trait]
impl MemoryTriggers for FakePressure {
    async fn run(&self, mut thresholds: watch::Receiver<UsageThresholds>, sink: TriggerSink) {
        if !self.lock().has_notifications {
            return;
        }
        loop {
            self.lock().thresholds = *thresholds.borrow_and_update();
            tokio::select! {
                changed = thresholds.changed() => if changed.is_err() {
                    return;
                },
                () = self.0.notified.notified() => sink(MemoryTrigger::Stall),
            }
        }
    }
}
