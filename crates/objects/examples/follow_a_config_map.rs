//! Resolves the references of a pod, follows a change, and serves the last value during an API
//! server outage. Uses the fake API server of this workspace; time is virtual.
//!
//! `cargo run -p windlass-objects --example follow_a_config_map`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{from_value, json};
use tokio::sync::watch;
use windlass_actors::NodeUpdate;
use windlass_fake_api::FakeApiServer;
use windlass_mailboxes::{ActorKind, SimClock, slots};
use windlass_metrics::Metrics;
use windlass_objects::{ObjectCache, ObjectCacheDeps};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_runtime_config::port::PodObjects;
use windlass_types::corev1::ConfigMap;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, Reason, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::VolumeSource;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let server = FakeApiServer::with_clock(clock.clone());
    let colors: ConfigMap = from_value(json!({
        "metadata": {"namespace": "default", "name": "colors"}, "data": {"sky": "blue"},
    }))?;
    server.create(&colors);

    let metrics = Metrics::new()?;
    let (sender, mut changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let (_node, node_seen) = watch::channel(NodeUpdate::default());
    let cache = ObjectCache::new(ObjectCacheDeps {
        clients: Some(server.clients_of_node("n1")),
        clock,
        events: Arc::new(Printed),
        changed: sender,
        node: Arc::new(NodeFacts::default()),
        node_seen,
        metrics: metrics.volumes,
        change_detection: ChangeDetection::Watch,
        csi: None,
        credential_dirs: None,
        kept: None,
    });
    let pod: SharedPod = Arc::new(from_value(json!({
        "metadata": {"namespace": "default", "name": "painter", "uid": "1234"},
        "spec": {
            "containers": [{"name": "app", "image": "painter"}],
            "volumes": [{"name": "colors", "configMap": {"name": "colors"}}],
        },
    }))?);

    cache.register(&pod);
    println!("at first: {}", shown(&cache, &pod).await?);
    server.modify(Some("default"), "colors", |map: &mut ConfigMap| {
        map.data = Some([("sky".to_owned(), "grey".to_owned())].into());
    });
    let (uid, _) = changed.next().await.ok_or("the cache has ended")?;
    println!(
        "object of pod {uid} changed: {}",
        shown(&cache, &pod).await?
    );
    server.faults().outage();
    println!("during an outage: {}", shown(&cache, &pod).await?);
    Ok(())
}

/// Returns the files of the pod's volumes.
async fn shown(cache: &ObjectCache, pod: &SharedPod) -> Result<String, Box<dyn Error>> {
    let inputs = cache.inputs(pod).await?;
    let mut lines = Vec::new();
    for volume in inputs.volumes.iter() {
        if let VolumeSource::Payload(_, payload) = &volume.source {
            for (path, file) in &payload.files {
                let text = String::from_utf8_lossy(&file.data);
                lines.push(format!("{}/{path} = {text}", volume.name));
            }
        }
    }
    Ok(lines.join(", "))
}

/// Prints events of pods; this example has none.
#[derive(Debug)]
struct Printed;

impl EventRecorder for Printed {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        println!("{reason}: {message}");
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}
