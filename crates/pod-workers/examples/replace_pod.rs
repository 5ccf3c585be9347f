//! The updates of a static pod with an edited manifest, and a burst of pod starts.
//!
//! `cargo run -p windlass-pod-workers --example replace_pod` prints the effects of the registry for
//! each update, then when each of five pods gets a start slot although one start hangs.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use windlass_actors::{KillPod, PodWorkerState, UpdateKind, UpdatePod, WorkerStateChanged};
use windlass_cri::RuntimeLoad;
use windlass_metrics::Metrics;
use windlass_pod_workers::StartLimiter;
use windlass_pod_workers::registry::state::{Registry, RegistryEffect};
use windlass_types::{Pod, names};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut registry = Registry::default();
    let first = registry.update(&"old".into(), run("old"));
    show("web is desired", &first);
    let edited = registry.update(&"new".into(), run("new"));
    show("its manifest is edited", &edited);
    let removed = registry.update(&"old".into(), remove());
    show("the old pod is removed", &removed);
    let stopped = WorkerStateChanged {
        state: PodWorkerState::TerminatedPod,
        finished: true,
    };
    let finished = registry.state_changed(&"old".into(), stopped);
    show("the old pod has stopped", &finished);

    let start_limiter = StartLimiter::new(2, RuntimeLoad::default(), Metrics::new()?);
    let begin = Instant::now();
    let mut starts = tokio::task::JoinSet::new();
    for pod in 1..=5 {
        let start_limiter = start_limiter.clone();
        starts.spawn(async move {
            let slot = start_limiter.acquire().await;
            println!(
                "pod {pod} starts after {:.1} s",
                begin.elapsed().as_secs_f32()
            );
            // the start of pod 1 hangs
            let takes = if pod == 1 { 30 } else { 3 };
            tokio::time::sleep(Duration::from_secs(takes)).await;
            drop(slot);
        });
        // a fixed order of the requests
        tokio::task::yield_now().await;
    }
    for _ in 1..=4 {
        starts.join_next().await.ok_or("a start was lost")??;
    }
    println!("four of five have started; pod 1 has lost its slot");
    Ok(())
}

fn show(what: &str, effects: &[RegistryEffect]) {
    let effects: Vec<_> = effects.iter().map(ToString::to_string).collect();
    println!("{what}: {}", effects.join(" "));
}

/// Update that runs a static pod `web` with this UID.
fn run(uid: &str) -> UpdatePod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some("web-node1".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    let source = (names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned());
    pod.metadata.annotations = Some([source].into());
    UpdatePod::new(UpdateKind::Run(Arc::new(pod)))
}

/// Update that removes a pod.
fn remove() -> UpdatePod {
    UpdatePod::new(UpdateKind::Kill(KillPod {
        grace: None,
        reason: "the manifest changed".to_owned(),
        removed: true,
        orphan: None,
        phase_override: None,
    }))
}
