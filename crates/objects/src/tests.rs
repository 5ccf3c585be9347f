//! The cache against an API server in the same process, on paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::sync::watch;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_client::ApiClients;
use windlass_fake_api::{FakeApiServer, Stored};
use windlass_mailboxes::{ActorKind, SimClock, SlotReceiver, slots};
use windlass_metrics::Metrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_inputs::projection::PayloadFile;
use windlass_runtime_config::port::{InputsError, PodInputs, PodObjects};
use windlass_types::corev1::{ConfigMap, Secret, Service, ServiceAccount};
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodUid, Reason, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::VolumeSource;

use crate::{ApiCsiObjects, CredentialDirs, ObjectCache, ObjectCacheDeps};

mod certificates;
mod claims;
mod csi;
mod kept;
mod pulls;
mod reads;
mod tokens;
mod trust;
mod watches;

/// Recorded events, each as `reason message`.
#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        let mut events = self.0.lock().expect("not poisoned");
        events.push(format!("{reason} {message}"));
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

struct TestEnv {
    server: FakeApiServer,
    cache: Arc<ObjectCache>,
    changed: SlotReceiver<PodUid, ObjectsChanged>,
    events: Arc<Events>,
    node: watch::Sender<NodeUpdate>,
    csi: Arc<ApiCsiObjects>,
    clock: Arc<SimClock>,
    metrics: Metrics,
}

impl TestEnv {
    fn new() -> Self {
        Self::with_clients(CredentialDirs::default(), FakeApiServer::clients)
    }

    fn with_dirs(credential_dirs: CredentialDirs) -> Self {
        Self::with_clients(credential_dirs, FakeApiServer::clients)
    }

    /// Uses a node's clients, which may read only what its pods refer to.
    fn with_node_clients() -> Self {
        Self::with_clients(CredentialDirs::default(), |s| s.clients_of_node("n1"))
    }

    /// Uses the strategy of this name.
    fn with_strategy(strategy: &str) -> Self {
        let detection = ChangeDetection::parse(strategy).expect("a strategy");
        Self::with_detection(detection, CredentialDirs::default(), FakeApiServer::clients)
    }

    fn with_clients(
        credential_dirs: CredentialDirs,
        clients: impl FnOnce(&FakeApiServer) -> ApiClients,
    ) -> Self {
        Self::with_detection(ChangeDetection::Watch, credential_dirs, clients)
    }

    fn with_detection(
        change_detection: ChangeDetection,
        credential_dirs: CredentialDirs,
        clients: impl FnOnce(&FakeApiServer) -> ApiClients,
    ) -> Self {
        let base: Timestamp = "2026-11-21T00:00:00Z".parse().expect("time");
        let clock = Arc::new(SimClock::starting_at(base));
        let server = FakeApiServer::with_clock(clock.clone());
        let metrics = Metrics::new().expect("metrics");
        let (sender, changed) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
        let events = Arc::new(Events::default());
        let (node, node_seen) = watch::channel(NodeUpdate::default());
        let clients = clients(&server);
        let csi = Arc::new(ApiCsiObjects::new(&clients, clock.clone()));
        let cache = ObjectCache::new(ObjectCacheDeps {
            clients: Some(clients),
            clock: clock.clone(),
            events: events.clone(),
            changed: sender,
            node: Arc::new(NodeFacts {
                node_name: "n1".to_owned(),
                trust_bundles: true,
                pod_certificates: true,
                ..NodeFacts::default()
            }),
            node_seen,
            metrics: metrics.volumes.clone(),
            change_detection,
            csi: Some(csi.clone()),
            credential_dirs: Some(credential_dirs),
            kept: None,
        });
        Self {
            server,
            cache: Arc::new(cache),
            changed,
            events,
            node,
            csi,
            clock,
            metrics,
        }
    }

    /// Returns the pods that were requeued, after all work in progress.
    async fn requeued(&mut self) -> Vec<String> {
        settle().await;
        let mut pods = Vec::new();
        while let Some(Some((uid, _))) = self.changed.next().now_or_never() {
            pods.push(uid.to_string());
        }
        pods
    }

    fn events(&self) -> Vec<String> {
        self.events.0.lock().expect("not poisoned").clone()
    }

    /// Number of watches that were started, by path.
    fn watches(&self, path: &str) -> usize {
        let requests = self.server.requests();
        let watch = |query: &str| query.contains("watch=true");
        requests
            .iter()
            .filter(|r| r.path.ends_with(path) && watch(&r.query))
            .count()
    }

    /// Returns whether a watch is open: a closed one is started again.
    async fn is_watched(&self, path: &str) -> bool {
        settle().await;
        let before = self.watches(path);
        self.server.faults().close_watches();
        tokio::time::sleep(Duration::from_secs(20)).await;
        self.watches(path) > before
    }

    /// Returns the pod's inputs, or its error.
    async fn inputs(&self, pod: &SharedPod) -> Result<PodInputs, String> {
        let line = |e: &InputsError| format!("{} {}: {}", e.reason, e.retry, e.message);
        let inputs = self.cache.inputs(pod).await.map_err(|e| line(&e))?;
        let withheld = inputs.volumes.iter().find_map(|v| match &v.source {
            VolumeSource::PayloadUnavailable(_, why) => Some(format!("volume {}: {why}", v.name)),
            _ => None,
        });
        match withheld.or_else(|| inputs.missing.as_ref().map(line)) {
            Some(lacking) => Err(lacking),
            None => Ok(inputs),
        }
    }
}

/// Paused time advances only when no task can run.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn object<K: Stored>(value: Value) -> K {
    serde_json::from_value(value).expect("object")
}

fn config_map(name: &str, text: &str) -> ConfigMap {
    object(json!({
        "metadata": {"namespace": "default", "name": name}, "data": {"key": text},
    }))
}

fn secret(name: &str, secret_type: &str, key: &str, text: &str) -> Secret {
    let mut secret: Secret = object(json!({
        "metadata": {"namespace": "default", "name": name}, "type": secret_type,
    }));
    let data = ByteString(text.as_bytes().to_vec());
    secret.data = Some([(key.to_owned(), data)].into());
    secret
}

fn pod(uid: &str, spec: Value) -> SharedPod {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    let pod = json!({
        "metadata": {"namespace": "default", "name": format!("pod-{uid}"), "uid": uid},
        "spec": spec,
    });
    SharedPod::new(object(pod))
}

fn static_pod(uid: &str, spec: Value) -> SharedPod {
    let mut pod = Pod::clone(&pod(uid, spec));
    pod.metadata.annotations =
        Some([("kubernetes.io/config.source".to_owned(), "file".to_owned())].into());
    SharedPod::new(pod)
}

fn volume_pod(uid: &str, config_map: &str) -> SharedPod {
    pod(
        uid,
        json!({"volumes": [{"name": "v", "configMap": {"name": config_map}}]}),
    )
}

fn env_pod(uid: &str, config_map: &str) -> SharedPod {
    let from = json!([{"configMapRef": {"name": config_map}}]);
    pod(
        uid,
        json!({"containers": [{"name": "c", "image": "i", "envFrom": from}]}),
    )
}

/// Returns the files of volume `v`.
fn files(inputs: &PodInputs) -> &BTreeMap<String, PayloadFile> {
    let volume = inputs.volumes.iter().find(|volume| volume.name == "v");
    match volume.map(|volume| &volume.source) {
        Some(VolumeSource::Payload(_, payload)) => &payload.files,
        other => panic!("{other:?}"),
    }
}

/// Returns the content of file `key` in volume `v`.
fn content(inputs: &PodInputs) -> &str {
    let file = &files(inputs)["key"];
    std::str::from_utf8(&file.data).expect("text")
}
