//! Tests of the executor with a small fake runtime that records every call.

mod containers;
mod fake;
mod gc;
mod hooks;
mod images;
mod inputs;
mod kill;
mod mounts;
mod start;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_hung_operations::HungOperations;
use windlass_metrics::Metrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::corev1::{Container, PodSpec};
use windlass_types::metav1::ObjectMeta;
use windlass_types::{
    ContainerSizes, ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, Pod, Timestamp,
};

use crate::{
    MemoryFiles, PodRuntime, PodRuntimeDeps, RuntimeOptions, SyncPodOutcome, SyncPodRequest,
};
use windlass_runtime_config::port::PodInputs;

pub(crate) use fake::{Fake, FixedClock, Recorder};

/// An executor and its dependencies.
pub(crate) struct TestEnv {
    pub(crate) fake: Arc<Fake>,
    pub(crate) files: MemoryFiles,
    pub(crate) events: Arc<Recorder>,
    pub(crate) clock: Arc<FixedClock>,
    pub(crate) metrics: Metrics,
    pub(crate) runtime: PodRuntime,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        Self::with(RuntimeOptions::default())
    }

    pub(crate) fn with(options: RuntimeOptions) -> Self {
        let fake = Arc::new(Fake::default());
        let files = MemoryFiles::default();
        let events = Arc::new(Recorder::default());
        let clock = Arc::new(FixedClock::default());
        let metrics = Metrics::new().expect("metrics");
        let runtime = PodRuntime::new(PodRuntimeDeps {
            runtime: fake.clone(),
            images: fake.clone(),
            credentials: Some(fake.clone()),
            assigned: None,
            checks: fake.clone(),
            cgroups: None,
            files: Arc::new(files.clone()),
            events: events.clone(),
            clock: clock.clone(),
            node: Arc::new(NodeFacts {
                cluster_dns: vec!["10.96.0.10".parse().expect("address")],
                allocatable_memory: 1 << 30,
                memory_capacity: 1 << 30,
                ..NodeFacts::default()
            }),
            metrics: metrics.clone(),
            hung: HungOperations::new(clock.clone()),
            options,
        });
        fake.have_image("web:1");
        Self {
            fake,
            files,
            events,
            clock,
            metrics,
            runtime,
        }
    }

    pub(crate) async fn sync(&self, pod: &Pod, observed: ObservedPod) -> SyncPodOutcome {
        self.sync_with(pod, observed, BackoffTable::default()).await
    }

    pub(crate) async fn sync_inputs(
        &self,
        pod: &Pod,
        observed: ObservedPod,
        inputs: PodInputs,
    ) -> SyncPodOutcome {
        let request = SyncPodRequest {
            inputs: Arc::new(inputs),
            ..request(pod, observed)
        };
        self.runtime
            .sync_pod(request, CancellationToken::new())
            .await
    }

    pub(crate) async fn sync_with(
        &self,
        pod: &Pod,
        observed: ObservedPod,
        backoff: BackoffTable,
    ) -> SyncPodOutcome {
        let request = SyncPodRequest {
            backoff,
            ..request(pod, observed)
        };
        self.runtime
            .sync_pod(request, CancellationToken::new())
            .await
    }
}

pub(crate) fn request(pod: &Pod, observed: ObservedPod) -> SyncPodRequest {
    SyncPodRequest {
        pod: Arc::new(pod.clone()),
        inputs: Arc::default(),
        volumes: Arc::default(),
        observed: Arc::new(observed),
        backoff: BackoffTable::default(),
        probe_results: Arc::default(),
        network_ready: true,
    }
}

/// One line for an outcome: failures, and the delay of the next sync.
pub(crate) fn line(env: &TestEnv, outcome: &SyncPodOutcome) -> String {
    let mut parts: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    if parts.is_empty() {
        parts.push("ok".to_owned());
    }
    if let Some(at) = outcome.retry_at {
        let wait = at.duration_since(env.clock.now_()).as_secs();
        parts.push(format!("again in {wait}s"));
    }
    parts.join(" | ")
}

pub(crate) fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: Some("web:1".into()),
        ..Container::default()
    }
}

pub(crate) fn sidecar(name: &str) -> Container {
    Container {
        restart_policy: Some("Always".into()),
        ..container(name)
    }
}

pub(crate) fn pod_of(init: Vec<Container>, containers: Vec<Container>) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some("web".into()),
            namespace: Some("default".into()),
            uid: Some("u1".into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            init_containers: (!init.is_empty()).then_some(init),
            containers,
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

pub(crate) fn pod(containers: &[&str]) -> Pod {
    pod_of(
        Vec::new(),
        containers.iter().map(|name| container(name)).collect(),
    )
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

pub(crate) fn nothing() -> ObservedPod {
    ObservedPod {
        uid: "u1".into(),
        name: "web".into(),
        namespace: "default".into(),
        ..ObservedPod::default()
    }
}

/// A pod with a ready sandbox and these containers.
pub(crate) fn observed(containers: Vec<ObservedContainer>) -> ObservedPod {
    ObservedPod {
        ips: vec!["10.0.0.5".parse().expect("address")],
        sandboxes: vec![ObservedSandbox {
            id: "s0".into(),
            attempt: 0,
            ready: true,
            created_at: at(-100),
            host_network: false,
            ips: vec!["10.0.0.5".parse().expect("address")],
        }],
        containers,
        observed_at: Some(at(0)),
        ..nothing()
    }
}

pub(crate) fn seen(
    name: &str,
    id: &str,
    state: ContainerState,
    restart_count: u32,
) -> ObservedContainer {
    let exited = state == ContainerState::Exited;
    let spec = container(name);
    ObservedContainer {
        id: id.into(),
        name: name.into(),
        sandbox_id: "s0".into(),
        state,
        created_at: at(-60),
        started_at: (state != ContainerState::Created).then(|| at(-60)),
        finished_at: exited.then(|| at(0)),
        exit_code: i32::from(exited),
        reason: String::new(),
        message: String::new(),
        image: "web:1".into(),
        image_id: "sha256:web:1".into(),
        hash: Some(windlass_units::hash::container_hash(&spec)),
        restart_count,
        log_path: format!("/var/log/pods/default_web_u1/{name}/{restart_count}.log"),
        user: None,
        stop_signal: String::new(),
        recursive_read_only: Vec::new(),
        image_mounts: Vec::new(),
        oom_kills: None,
        resources: None,
        created_sizes: Some(ContainerSizes::default()),
    }
}

/// Waits until a condition holds, without advancing time.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(10), async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    waited
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"));
}
