//! Probes an HTTP server that starts, stops and starts again; prints probe results and events.
//!
//! `cargo run -p windlass-probes --example probe_server` plays the worker of one pod whose only
//! container runs on this host, with a readiness probe every second.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use windlass_actors::{ProbePod, ProbeResults, ProbeTargets, ProbeUpdate};
use windlass_checks::NetChecks;
use windlass_cri::{CriClient, CriOptions};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{ActorKind, SlotReceiver, SystemClock, run_actors, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_probes::{ProbeDeps, ProbeManager};
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{
    Clock, ContainerState, EventRecorder, ObservedContainer, ObservedPod, Pod, PodExt, PodUid,
    ProbeKind, Reason,
};

/// Timeout for a result, which needs two failures a second apart.
const RESULT_TIMEOUT: Duration = Duration::from_secs(10);

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
    let (sender, pods) = slots(
        windlass_probes::actor_kind(ProbeKind::Readiness),
        &metrics.mailboxes,
    );
    let (updates, mut changes) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    // only exec probes use the runtime: this client never connects
    let runtime = CriClient::connect(
        "unix:///no/runtime.sock",
        CriOptions::new(metrics.runtime_calls.clone()),
    )?;
    let deps = ProbeDeps {
        runtime: Arc::new(runtime),
        checks: Arc::new(NetChecks::new()),
        events: Arc::new(Print),
        clock: clock.clone(),
        metrics,
        results: ProbeResults::default(),
        file: None,
        updates,
        hung: HungOperations::new(clock.clone()),
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
    sender.put("u1".into(), ProbePod::Probe(targets));

    println!("the server is there");
    next_result(&mut changes).await?;
    println!("the server goes");
    server.abort();
    next_result(&mut changes).await?;
    println!("the server is back");
    tokio::spawn(serve(TcpListener::bind(address).await?));
    next_result(&mut changes).await
}

/// Waits for the next changed result.
async fn next_result(
    changes: &mut SlotReceiver<PodUid, ProbeUpdate>,
) -> Result<(), Box<dyn Error>> {
    let next = tokio::time::timeout(RESULT_TIMEOUT, changes.next()).await;
    let (_, update) = next
        .map_err(|_| "no result in time")?
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
