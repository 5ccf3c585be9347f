//! Probes an HTTP server that comes, goes and comes back: its verdicts, and the events of failures.
//!
//! `cargo run -p windlass-probes --example probe_server` plays the worker of one pod whose only
//! container is said to run on this machine, with a readiness probe every second.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use windlass_actors::{
    ActorKind, ProbePod, ProbeResults, ProbeTargets, ProbeUpdate, SlotReceiver, SystemClock,
    run_actors, slots, start_actor,
};
use windlass_checks::NetChecks;
use windlass_cri::{CriClient, CriOptions};
use windlass_metrics::Metrics;
use windlass_probes::{ProbeDeps, ProbeManager};
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{
    Clock, ContainerState, EventRecorder, ObservedContainer, ObservedPod, Pod, PodExt, PodUid,
    ProbeKind, Reason,
};

/// Two failures in a row, a second apart, are a verdict; three times that is a fault.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Print;

impl EventRecorder for Print {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("  {reason}: {message}");
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Arc::new(tokio::runtime::Runtime::new()?);
    run_actors(&runtime, probe())
}

async fn probe() -> Result<(), Box<dyn Error>> {
    let metrics = Metrics::new()?;
    let clock = Arc::new(SystemClock);
    let (lane, pods) = slots(ActorKind::ReadinessManager, &metrics);
    let (updates, mut changes) = slots(ActorKind::SyncLoop, &metrics);
    // only probes by command ask the runtime: this client never dials
    let runtime = CriClient::connect("unix:///no/runtime.sock", CriOptions::new(metrics.clone()))?;
    let deps = ProbeDeps {
        runtime: Arc::new(runtime),
        checks: Arc::new(NetChecks::new()),
        events: Arc::new(Print),
        clock: clock.clone(),
        metrics,
        results: ProbeResults::default(),
        file: None,
        updates,
    };
    start_actor(ProbeManager::new(ProbeKind::Readiness, deps, pods));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener));
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [{"name": "web", "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": address.port()},
            "periodSeconds": 1, "failureThreshold": 2
        }}]}
    }))?;
    let runs = ObservedContainer {
        id: "c1".into(),
        name: "web".to_owned(),
        state: ContainerState::Running,
        started_at: Some(clock.now()),
        ..ObservedContainer::default()
    };
    let targets = ProbeTargets {
        observed: Arc::new(ObservedPod {
            uid: pod.uid(),
            containers: vec![runs],
            ..ObservedPod::default()
        }),
        pod: Arc::new(pod),
        pod_ip: Some(address.ip()),
        state: PodWorkerState::SyncPod,
    };
    lane.put("u1".into(), ProbePod::Probe(targets));

    println!("the server is there");
    verdict(&mut changes).await?;
    println!("the server goes");
    server.abort();
    verdict(&mut changes).await?;
    println!("the server is back");
    tokio::spawn(serve(TcpListener::bind(address).await?));
    verdict(&mut changes).await
}

/// Waits for the next change of a verdict.
async fn verdict(changes: &mut SlotReceiver<PodUid, ProbeUpdate>) -> Result<(), Box<dyn Error>> {
    let next = tokio::time::timeout(PATIENCE, changes.next()).await;
    let (_, update) = next
        .map_err(|_| "no verdict in time")?
        .ok_or("the manager is gone")?;
    for change in update.changes {
        let word = if change.success { "succeeds" } else { "fails" };
        println!("  {} of container {} {word}", change.kind, change.container);
    }
    Ok(())
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        stream.write_all(answer.as_bytes()).await?;
    }
}
