//! The actor over volumes in memory: a mount fails, the pod is told what it waits for, the manager
//! tries again by itself and says when there is something to ask for.
//!
//! `cargo run -p windlass-volume-manager --example retry_a_mount`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{from_value, json};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::Instant;
use windlass_actors::{NodeExpander, NodeUpdate, MountedVolumeCache, SourcesReady, VolumesHandle};
use windlass_mailboxes::{ActorKind, SimClock, mailbox, slots, start_actor};
use windlass_pod_inputs::paths::NodePaths;
use windlass_volume_plan::volume_plan::Releaser;
use windlass_volume_plan::volume_source::plain_volumes;
use windlass_metrics::Metrics;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, ExpansionDecision, Pod, PodExt, Reason, SharedPod, Timestamp};
use windlass_volume_manager::{
    DriverRegistrations, VolumeManager, VolumeManagerDeps, VolumeUsages, VolumeUsagesDeps,
};
use windlass_volumes::{MemoryVolumes, VolumeStep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    // an actor needs a thread that is its own
    LocalSet::new().run_until(scenario()).await
}

async fn scenario() -> Result<(), Box<dyn Error>> {
    let pod: SharedPod = Arc::new(from_value(json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "1234"},
        "spec": {
            "containers": [{"name": "app", "image": "nginx"}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    }))?);
    let volumes = Arc::new(plain_volumes(&pod, &Default::default()));

    let disk = MemoryVolumes::new(NodePaths::default());
    let plugins = Arc::new(disk.clone());
    let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let events = Arc::new(Elsewhere);
    let metrics = Metrics::new()?;
    let (sender, inbox) = mailbox(windlass_volume_manager::VOLUME_MANAGER, &metrics.mailboxes);
    let (changed, mut told) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let handle = VolumesHandle {
        mailbox: sender,
        mounted: MountedVolumeCache::default(),
    };
    let deps = VolumeManagerDeps {
        usages: VolumeUsages::new(VolumeUsagesDeps {
            plugins: plugins.clone(),
            clock: clock.clone(),
            events: events.clone(),
            changed: changed.clone(),
            metrics: metrics.clone(),
            cancel: Default::default(),
        }),
        plugins,
        clock,
        events: events.clone(),
        claims: events,
        settled: handle.mounted.clone(),
        changed,
        in_use: watch::channel(None).0,
        node: watch::channel(NodeUpdate::default()).1,
        sources_ready: watch::channel(SourcesReady(true)).1,
        drivers: watch::channel(DriverRegistrations::default()).1,
        metrics,
    };
    start_actor(VolumeManager::new(deps, inbox));

    let began = Instant::now();
    let patience = Duration::from_secs(10);
    disk.fail(VolumeStep::Mount, "1234/cache", Some("the disk is full"));
    match handle.set_up(&pod, &volumes, patience).await {
        Err(lacks) => println!("{:?}: {}", began.elapsed(), lacks.message),
        Ok(_) => return Err("it was to fail".into()),
    }
    disk.fail(VolumeStep::Mount, "1234/cache", None);
    let (uid, _) = told.next().await.ok_or("the manager has ended")?;
    println!("{:?}: pod {uid} may ask again", began.elapsed());
    let ready = handle.set_up(&pod, &volumes, patience).await;
    let ready = ready.map_err(|lacks| lacks.message)?;
    for (name, volume) in ready.mounted.iter() {
        println!("{:?}: {name} is ready: {volume:?}", began.elapsed());
    }
    let released = handle.tear_down(&pod.uid(), Releaser::Worker).await;
    released.map_err(|lacks| lacks.message)?;
    println!(
        "{:?}: mounted now: {:?}",
        began.elapsed(),
        disk.mounted(&pod.uid())
    );
    println!("what the disk was asked: {}", disk.calls().join(", "));
    Ok(())
}

/// Events of pods, which go on standard output, and the API server, which is not there.
#[derive(Debug)]
struct Elsewhere;

impl EventRecorder for Elsewhere {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("event {reason}: {message}");
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

#[async_trait]
impl NodeExpander for Elsewhere {
    async fn turn(&self, _: &Pod, _: &str, _: u64, _: bool) -> Result<ExpansionDecision, String> {
        Err("there is no API server".to_owned())
    }

    async fn grown(&self, _: &Pod, _: &str, _: u64) -> Result<(), String> {
        Err("there is no API server".to_owned())
    }

    async fn not_grown(
        &self,
        _: &Pod,
        _: &str,
        _: bool,
        _: &str,
        _: Timestamp,
    ) -> Result<(), String> {
        Err("there is no API server".to_owned())
    }
}
