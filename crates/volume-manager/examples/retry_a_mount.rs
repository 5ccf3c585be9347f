//! The actor with volumes in memory: a mount fails, the caller gets the error, the manager retries and
//! notifies the SyncLoop after the success.
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
use windlass_actors::{MountedVolumeCache, NodeExpander, NodeUpdate, SourcesReady, VolumesHandle};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{ActorKind, SimClock, mailbox, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, ExpansionDecision, Pod, PodExt, Reason, SharedPod, Timestamp};
use windlass_volume_manager::{
    DriverRegistrations, VolumeManager, VolumeManagerDeps, VolumeUsages, VolumeUsagesDeps,
};
use windlass_volume_plan::volume_reconciler::TearDownRequester;
use windlass_volume_plan::volume_source::plain_volumes;
use windlass_volumes::{MemoryVolumes, VolumeStep};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    // actors run on one thread
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
    let events = Arc::new(Standalone);
    let metrics = Metrics::new()?;
    let (sender, inbox) = mailbox(windlass_volume_manager::VOLUME_MANAGER, &metrics.mailboxes);
    let (changed, mut changes) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let handle = VolumesHandle {
        mailbox: sender,
        mounted: MountedVolumeCache::default(),
    };
    let deps = VolumeManagerDeps {
        usages: VolumeUsages::new(VolumeUsagesDeps {
            plugins: plugins.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            hung: HungOperations::new(clock.clone()),
        }),
        plugins,
        clock,
        events: events.clone(),
        expander: events,
        mounted: handle.mounted.clone(),
        changed,
        in_use: watch::channel(None).0,
        node: watch::channel(NodeUpdate::default()).1,
        sources_ready: watch::channel(SourcesReady(true)).1,
        drivers: watch::channel(DriverRegistrations::default()).1,
        metrics,
    };
    start_actor(VolumeManager::new(deps, inbox));

    let began = Instant::now();
    let timeout = Duration::from_secs(10);
    disk.fail(VolumeStep::Mount, "1234/cache", Some("the disk is full"));
    match handle.set_up(&pod, &volumes, timeout).await {
        Err(error) => println!("{:?}: {}", began.elapsed(), error.message),
        Ok(_) => return Err("the mount must fail".into()),
    }
    disk.fail(VolumeStep::Mount, "1234/cache", None);
    let (uid, _) = changes.next().await.ok_or("the manager has ended")?;
    println!("{:?}: pod {uid} has new volumes", began.elapsed());
    let ready = handle.set_up(&pod, &volumes, timeout).await;
    let ready = ready.map_err(|error| error.message)?;
    for (name, volume) in ready.mounted.iter() {
        println!("{:?}: {name} is ready: {volume:?}", began.elapsed());
    }
    let released = handle
        .tear_down(&pod.uid(), TearDownRequester::Worker)
        .await;
    released.map_err(|error| error.message)?;
    println!(
        "{:?}: mounted now: {:?}",
        began.elapsed(),
        disk.mounted(&pod.uid())
    );
    println!("calls: {}", disk.calls().join(", "));
    Ok(())
}

/// Prints events of pods; the API server is unreachable.
#[derive(Debug)]
struct Standalone;

impl EventRecorder for Standalone {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("event {reason}: {message}");
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

#[async_trait]
impl NodeExpander for Standalone {
    async fn expansion_decision(
        &self,
        _: &Pod,
        _: &str,
        _: u64,
        _: bool,
    ) -> Result<ExpansionDecision, String> {
        Err("no API server".to_owned())
    }

    async fn report_expanded(&self, _: &Pod, _: &str, _: u64) -> Result<(), String> {
        Err("no API server".to_owned())
    }

    async fn report_failure(
        &self,
        _: &Pod,
        _: &str,
        _: bool,
        _: &str,
        _: Timestamp,
    ) -> Result<(), String> {
        Err("no API server".to_owned())
    }
}
