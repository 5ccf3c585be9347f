//! Runs one pod on a container runtime, and stops it at Ctrl-C.
//!
//! `cargo run -p windlass-runtime --example run_pod -- /run/containerd/containerd.sock pod.yaml`,
//! as root, takes a manifest of one pod without volumes. Directories and logs are in a temporary
//! directory; other pods are not affected.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_checks::NetChecks;
use windlass_cri::{CriClient, CriOptions, CriResult, RuntimeService};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::SystemClock;
use windlass_manifests::manifest::Origin;
use windlass_manifests::static_pod;
use windlass_metrics::Metrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_lifecycle::pleg;
use windlass_runtime::{
    HostFiles, HostFilesConfig, KillPodRequest, PodRuntime, PodRuntimeDeps, RuntimeOptions,
    SyncPodRequest,
};
use windlass_runtime_config::port::PodInputs;
use windlass_types::cri::ListFilter;
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, ObservedPod, Pod, PodExt, Reason, SharedPod};

#[derive(Debug)]
struct Print;

impl EventRecorder for Print {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("  {reason}: {message}");
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: run_pod <socket of the container runtime> <manifest>";
    let mut arguments = std::env::args().skip(1);
    let (socket, path) = arguments.next().zip(arguments.next()).ok_or(usage)?;
    let manifest = std::fs::read(&path).map_err(|error| format!("{path}: {error}"))?;
    let loaded = static_pod::load(&manifest, &Origin::File(path), "example")?;
    let [pod] = loaded.pods.as_slice() else {
        return Err("the manifest must be of one pod".into());
    };
    if PodExt::spec(&**pod).volumes.iter().flatten().count() > 0 {
        return Err("volumes are set up by windlass-volume-manager; give a pod without any".into());
    }

    let metrics = Metrics::new()?;
    let cri = CriClient::connect(&socket, CriOptions::new(metrics.runtime_calls.clone()))?;
    let status = cri.status().await.map_err(|error| error.to_string())?;
    let network_ready = status.network_error.is_none();
    let directory = tempfile::tempdir()?;
    let runtime = executor(&cri, metrics, directory.path());

    let stop = tokio::signal::ctrl_c();
    tokio::select! {
        biased;
        stopped = stop => stopped?,
        ended = keep(&runtime, &cri, pod, network_ready) => ended?,
    }
    println!("stopping");
    let observed = observe(&cri, pod).await?;
    let sandboxes = observed.sandboxes.iter().map(|sandbox| sandbox.id.clone());
    let sandboxes: Vec<_> = sandboxes.collect();
    let seconds = u64::try_from(pod.termination_grace_seconds())?;
    let kill = KillPodRequest {
        pod: Some(SharedPod::clone(pod)),
        observed,
        grace: Duration::from_secs(seconds),
        waited: Duration::ZERO,
        message: String::new(),
    };
    runtime.kill_pod(kill).await?;
    for sandbox in &sandboxes {
        cri.remove_pod_sandbox(sandbox).await?;
    }
    Ok(runtime.cleanup_pod(&pod.uid()).await?)
}

fn executor(cri: &CriClient, metrics: Metrics, directory: &Path) -> PodRuntime {
    let paths = NodePaths {
        root_dir: directory.join("root"),
        pod_logs_dir: directory.join("logs"),
    };
    let files = HostFilesConfig {
        container_logs_dir: directory.join("links"),
        ..HostFilesConfig::new(paths.clone())
    };
    PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::new(cri.clone()),
        images: Arc::new(cri.clone()),
        credentials: None,
        assigned: None,
        checks: Arc::new(NetChecks::new()),
        files: Arc::new(HostFiles::new(files)),
        cgroups: None,
        events: Arc::new(Print),
        clock: Arc::new(SystemClock),
        node: Arc::new(NodeFacts {
            node_name: "example".to_owned(),
            paths,
            cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            ..NodeFacts::default()
        }),
        metrics,
        hung: HungOperations::new(Arc::new(SystemClock)),
        options: RuntimeOptions::default(),
    })
}

/// Syncs the pod until it is stopped.
async fn keep(
    runtime: &PodRuntime,
    cri: &CriClient,
    pod: &SharedPod,
    network_ready: bool,
) -> CriResult<()> {
    let mut backoff = Default::default();
    loop {
        let request = SyncPodRequest {
            pod: SharedPod::clone(pod),
            inputs: Arc::new(PodInputs::default()),
            volumes: Arc::default(),
            observed: observe(cri, pod).await?,
            backoff,
            probe_results: Arc::default(),
            network_ready,
        };
        let outcome = runtime.sync_pod(request, CancellationToken::new()).await;
        if outcome.changed || !outcome.failures.is_empty() {
            println!("{}", outcome.actions);
        }
        for failure in &outcome.failures {
            println!("  {failure}");
        }
        backoff = outcome.backoff;
        // a real agent would use the retry time of the outcome
        let pause = if outcome.failures.is_empty() { 1 } else { 5 };
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
}

/// Observed state of the pod.
async fn observe(cri: &CriClient, pod: &Pod) -> CriResult<Arc<ObservedPod>> {
    let now = SystemClock.now();
    let of_pod = ListFilter::of_pod(&pod.uid());
    let mut sandboxes = Vec::new();
    for row in cri.list_pod_sandboxes(&of_pod).await? {
        sandboxes.push(cri.pod_sandbox_status(&row.id).await?);
    }
    let mut containers = Vec::new();
    for row in cri.list_containers(&of_pod).await? {
        let mut detail = cri.container_status(&row.id).await?;
        // the container status has no sandbox ID
        detail.observed.sandbox_id = row.sandbox_id;
        containers.push(detail);
    }
    Ok(Arc::new(pleg::observe(
        &pod.uid(),
        sandboxes,
        containers,
        now,
    )))
}
