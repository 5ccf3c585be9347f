//! An executor, its runtime, and the inspections of the PLEG.

#![allow(
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several test binaries"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_checks::NetChecks;
use windlass_cri::{ImageService, RuntimeService};
use windlass_hung_operations::HungOperations;
use windlass_metrics::Metrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::projection::VolumePayloads;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_pod_lifecycle::pleg::observe;
use windlass_runtime::{
    MemoryFiles, PodFiles, PodRuntime, PodRuntimeDeps, RuntimeOptions, SyncPodOutcome,
    SyncPodRequest,
};
use windlass_runtime_config::port::PodInputs;
use windlass_testing::environment::scaled;
use windlass_types::cri::ListFilter;
use windlass_types::view::EventType;
use windlass_types::{
    Clock, ContainerState, EventRecorder, MountedVolumes, ObservedPod, Pod, PodExt, PodUid, Reason,
    Timestamp,
};
use windlass_volume_plan::volume_source::{PodVolumes, plain_volumes};
use windlass_volumes::{VolumePlugins, VolumeRequest};

/// Longer than the back-offs before a fourth restart (70 s).
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// Time that passes with tokio's, paused or not.
#[derive(Debug)]
pub struct TokioClock(tokio::time::Instant);

impl Default for TokioClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let start = Timestamp::from_second(1_700_000_000).expect("in range");
        start.saturating_add(self.0.elapsed()).expect("in range")
    }
}

#[derive(Debug, Default)]
pub struct Events(Mutex<Vec<String>>);

impl Events {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().expect("lock").clone()
    }
}

impl EventRecorder for Events {
    fn record_node(&self, _: EventType, _: Reason, _: &str) {}

    fn record(&self, _: &Pod, container: Option<&str>, _: EventType, reason: Reason, text: &str) {
        let line = format!("{reason} {}: {text}", container.unwrap_or("-"));
        self.0.lock().expect("lock").push(line);
    }
}

pub struct Agent {
    pub cri: Arc<dyn RuntimeService>,
    pub events: Arc<Events>,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
    pub runtime: PodRuntime,
    pub volumes: Arc<dyn VolumePlugins>,
    /// Inputs of the next syncs.
    pub inputs: Arc<PodInputs>,
    /// Payloads of their volumes.
    pub payloads: VolumePayloads,
    /// Resolved PVC volumes.
    pub claimed: PodVolumes,
}

/// In-memory files and volumes.
pub fn in_memory(files: &MemoryFiles) -> (Arc<dyn PodFiles>, Arc<dyn VolumePlugins>) {
    (Arc::new(files.clone()), Arc::new(files.volumes()))
}

impl Agent {
    pub fn new<R: RuntimeService + ImageService>(
        cri: Arc<R>,
        (files, volumes): (Arc<dyn PodFiles>, Arc<dyn VolumePlugins>),
        clock: Arc<dyn Clock>,
        node: NodeFacts,
    ) -> Self {
        Self::with_options(
            cri,
            (files, volumes),
            clock,
            node,
            RuntimeOptions::default(),
        )
    }

    pub fn with_options<R: RuntimeService + ImageService>(
        cri: Arc<R>,
        (files, volumes): (Arc<dyn PodFiles>, Arc<dyn VolumePlugins>),
        clock: Arc<dyn Clock>,
        node: NodeFacts,
        options: RuntimeOptions,
    ) -> Self {
        let events = Arc::new(Events::default());
        let metrics = Metrics::new().expect("metrics");
        Self {
            runtime: PodRuntime::new(PodRuntimeDeps {
                runtime: cri.clone(),
                images: cri.clone(),
                credentials: None,
                assigned: None,
                checks: Arc::new(NetChecks::new()),
                files,
                cgroups: None,
                events: events.clone(),
                clock: clock.clone(),
                node: Arc::new(node),
                metrics: metrics.clone(),
                hung: HungOperations::new(clock.clone()),
                options,
            }),
            volumes,
            inputs: Arc::default(),
            payloads: VolumePayloads::new(),
            claimed: PodVolumes::new(),
            cri,
            events,
            metrics,
            clock,
        }
    }

    /// Observed pod as the PLEG would publish it.
    pub async fn observe(&self, uid: &PodUid) -> ObservedPod {
        let now = self.clock.now();
        let filter = ListFilter::of_pod(uid);
        let mut sandboxes = Vec::new();
        for row in self
            .cri
            .list_pod_sandboxes(&filter)
            .await
            .expect("sandboxes")
        {
            sandboxes.extend(self.cri.pod_sandbox_status(&row.id).await);
        }
        let mut containers = Vec::new();
        for row in self.cri.list_containers(&filter).await.expect("containers") {
            // only the list has the sandbox ID
            if let Ok(mut detail) = self.cri.container_status(&row.id).await {
                detail.observed.sandbox_id = row.sandbox_id;
                containers.push(detail);
            }
        }
        observe(uid, sandboxes, containers, now)
    }

    /// Sets up the volumes of a pod.
    pub async fn set_up(&self, pod: &Arc<Pod>) -> Arc<MountedVolumes> {
        let mut mounted = MountedVolumes::new();
        for volume in plain_volumes(pod, &self.payloads) {
            let claimed = self.claimed.iter().find(|it| it.name == volume.name);
            let volume = claimed.cloned().unwrap_or(volume);
            let (name, now) = (volume.name.clone(), self.clock.now());
            let pod = pod.clone();
            let request = VolumeRequest { pod, volume, now };
            self.volumes.stage(&request).await.expect("device");
            let set_up = self.volumes.set_up(&request).await.expect("volume");
            mounted.insert(name, set_up);
        }
        Arc::new(mounted)
    }

    /// Cleans up a pod as its worker does.
    pub async fn release(&self, uid: &PodUid) {
        for found in self.volumes.find(uid).await.expect("found") {
            let gone = self.volumes.tear_down(uid, &found).await;
            gone.expect("released");
        }
        self.runtime.cleanup_pod(uid).await.expect("cleaned up");
    }

    pub async fn pass(&self, pod: &Arc<Pod>, backoff: BackoffTable) -> SyncPodOutcome {
        let observed = Arc::new(self.observe(&pod.uid()).await);
        let request = SyncPodRequest {
            pod: pod.clone(),
            inputs: self.inputs.clone(),
            volumes: self.set_up(pod).await,
            observed,
            backoff,
            probe_results: Arc::default(),
            network_ready: true,
        };
        self.runtime
            .sync_pod(request, CancellationToken::new())
            .await
    }

    /// Syncs every 100 ms until the condition holds.
    pub async fn drive(
        &self,
        pod: &Arc<Pod>,
        mut backoff: BackoffTable,
        holds: impl Fn(&ObservedPod) -> bool,
    ) -> BackoffTable {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < scaled(WAIT_TIMEOUT) {
            let outcome = self.pass(pod, backoff).await;
            backoff = outcome.backoff;
            if holds(&self.observe(&pod.uid()).await) {
                return backoff;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let seen = self.observe(&pod.uid()).await;
        let mut events = self.events.lines();
        events.dedup();
        panic!("not reached: {seen:#?}\n{events:#?}");
    }
}

pub fn all_running(pod: &Pod, observed: &ObservedPod) -> bool {
    let running = |name: &str| {
        let latest = observed.latest(name);
        latest.is_some_and(|c| c.state == ContainerState::Running)
    };
    pod.containers().iter().all(|c| running(&c.name))
}
