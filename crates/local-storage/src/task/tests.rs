//! Checks of limits and measurements, on paused time.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};
use windlass_cri::{CriResult, ImageFsInfo, RuntimeFs};
use windlass_eviction::DiskUsage;
use windlass_mailboxes::{ActorKind, SlotReceiver, slots};
use windlass_stats::{DiskUsageTotal, PodFiles};
use windlass_types::{ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MEBIBYTE: u64 = 1 << 20;

/// Mebibytes by name: containers `<pod>/<name>`, their logs, and volumes.
#[derive(Debug, Default)]
struct Node {
    layers: Mutex<BTreeMap<String, u64>>,
    logs: Mutex<BTreeMap<String, u64>>,
    volumes: Mutex<BTreeMap<String, u64>>,
    runtime_hangs: Mutex<bool>,
    separate_images: bool,
    /// Seconds and parts that were measured.
    calls: Mutex<Vec<(u64, String)>>,
    began: Mutex<Option<Instant>>,
}

impl Node {
    fn called(&self, part: &str) {
        let at = self.began.lock().expect("began").elapsed();
        let call = (at.as_secs(), part.to_owned());
        self.calls.lock().push(call);
    }

    fn calls(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.calls.lock())
    }
}

fn set(of: &Mutex<BTreeMap<String, u64>>, name: &str, mebibytes: u64) {
    of.lock().insert(name.to_owned(), mebibytes);
}

#[async_trait]
impl RuntimeStats for Node {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        let fs = RuntimeFs {
            mountpoint: "/images".to_owned(),
            ..RuntimeFs::default()
        };
        Ok(ImageFsInfo {
            images: Some(fs),
            containers: None,
        })
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        self.called("layers");
        if *self.runtime_hangs.lock() {
            std::future::pending::<()>().await;
        }
        let layers = self.layers.lock();
        let layers = layers.iter().map(|(id, used)| {
            let layer = RuntimeFs {
                mountpoint: String::new(),
                used_bytes: Some(used * MEBIBYTE),
                inodes_used: Some(1),
            };
            (ContainerId::from(id.as_str()), layer)
        });
        Ok(layers.collect())
    }
}

#[async_trait]
impl NodeDisk for Node {
    async fn pod_files(&self, pods: Vec<SharedPod>) -> Option<HashMap<PodUid, PodFiles>> {
        self.called("logs");
        let logs = self.logs.lock();
        let files = pods.iter().map(|pod| {
            let of_pod = logs.iter().filter_map(|(id, used)| {
                let name = id.strip_prefix(pod.name())?.strip_prefix('/')?;
                let total = DiskUsageTotal {
                    bytes: used * MEBIBYTE,
                    inodes: 1,
                };
                Some((name.to_owned(), total))
            });
            let files = PodFiles {
                logs: of_pod.collect(),
                ..PodFiles::default()
            };
            (pod.uid(), files)
        });
        Some(files.collect())
    }

    async fn is_on_node_fs(&self, _: &Path) -> Option<bool> {
        Some(!self.separate_images)
    }
}

#[async_trait]
impl LocalVolumes for Node {
    async fn usage(
        &self,
        _: &PodUid,
        volumes: &[String],
        _: Duration,
        wait: Duration,
    ) -> BTreeMap<String, DiskUsage> {
        let known = self.volumes.lock().clone();
        let mut usages = BTreeMap::new();
        for name in volumes {
            self.called(name);
            if name == "hung" {
                tokio::time::sleep(wait).await;
            } else if let Some(used) = known.get(name) {
                let usage = DiskUsage {
                    bytes: used * MEBIBYTE,
                    inodes: 1,
                };
                usages.insert(name.clone(), usage);
            }
        }
        usages
    }
}

#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, pod: &Pod, _: Option<&str>, kind: EventType, reason: Reason, message: &str) {
        let line = format!("{} {kind:?} {reason} {message}", pod.name());
        self.0.lock().push(line);
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

struct Fixture {
    node: Arc<Node>,
    local_storage: LocalStorage,
    status_store: PodStatusStore,
    observed: StatusCache,
    terminations: SlotReceiver<PodUid, TerminatePod>,
    events: Arc<Events>,
    metrics: Metrics,
    cancel: CancellationToken,
}

impl Fixture {
    fn new(node: Node) -> Self {
        let node = Arc::new(node);
        *node.began.lock() = Some(Instant::now());
        let metrics = Metrics::new().unwrap();
        let events = Arc::new(Events::default());
        let (sender, terminations) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
        let (status_store, observed) = (PodStatusStore::new(), StatusCache::new());
        let cancel = CancellationToken::new();
        let local_storage = LocalStorage::new(LocalStorageDeps {
            status_store: status_store.clone(),
            observed: observed.clone(),
            runtime: node.clone(),
            images: node.clone(),
            disk: node.clone(),
            volumes: node.clone(),
            terminations: sender,
            events: events.clone(),
            metrics: metrics.clone(),
            cancel: cancel.clone(),
        });
        local_storage.enforce_limits();
        Self {
            node,
            local_storage,
            status_store,
            observed,
            terminations,
            events,
            metrics,
            cancel,
        }
    }

    /// Starts a pod with these containers and volumes; it runs.
    fn run(&self, name: &str, containers: &Value, volumes: &Value) -> SharedPod {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
            "spec": {"containers": containers, "volumes": volumes},
        });
        let pod: SharedPod = Arc::new(serde_json::from_value(pod).unwrap());
        let running = pod.containers().iter().map(|container| ObservedContainer {
            id: ContainerId::from(format!("{name}/{}", container.name).as_str()),
            name: container.name.clone(),
            state: ContainerState::Running,
            ..ObservedContainer::default()
        });
        self.observed.record(Arc::new(ObservedPod {
            uid: pod.uid(),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            containers: running.collect(),
            ..ObservedPod::default()
        }));
        self.status_store
            .publish(PodStatusEntry::new(SharedPod::clone(&pod)));
        pod
    }

    /// Takes the requests sent to the SyncLoop.
    async fn terminations(&mut self) -> Vec<(PodUid, TerminatePod)> {
        let mut taken = Vec::new();
        while let Ok(Some(request)) =
            tokio::time::timeout(Duration::from_millis(1), self.terminations.next()).await
        {
            taken.push(request);
        }
        taken
    }

    /// UIDs of the pods that were evicted since the last call.
    async fn evicted(&mut self) -> Vec<PodUid> {
        let requests = self.terminations().await.into_iter();
        requests.map(|(uid, _)| uid).collect()
    }
}

fn limited(limits: &[(&str, &str)]) -> Value {
    let container = |(name, limit): &(&str, &str)| json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}});
    limits.iter().map(container).collect()
}

fn sized(volume: &str) -> Value {
    json!([{"name": volume, "emptyDir": {"sizeLimit": "1Mi"}}])
}

#[tokio::test(start_paused = true)]
async fn pod_over_its_limit_is_evicted_once_as_upstream() {
    let mut fixture = Fixture::new(Node::default());
    let node = Arc::clone(&fixture.node);
    fixture.run("web", &limited(&[("app", "10Mi")]), &json!([]));
    fixture.run("other", &limited(&[("app", "10Mi")]), &json!([]));
    set(&node.layers, "web/app", 6);
    set(&node.logs, "web/app", 4);
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(fixture.terminations().await, []);
    set(&node.logs, "web/app", 5);
    tokio::time::sleep(60 * SECOND).await;
    let message =
        "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ".to_owned();
    let request = TerminatePod {
        grace: Some(SECOND),
        reason: message.clone(),
        phase_override: PhaseOverride {
            phase: Phase::Failed,
            reason: "Evicted".to_owned(),
            message: message.clone(),
            disruption: None,
        },
    };
    let uid = PodUid::from("web-uid");
    assert_eq!(fixture.terminations().await, [(uid.clone(), request)]);
    let events = fixture.events.0.lock().clone();
    assert_eq!(events, [format!("web Warning Evicted {message}")]);
    let text = fixture.metrics.render().unwrap();
    let counted = "kubelet_evictions{eviction_signal=\"ephemeralpodfs.limit\"} 1";
    assert!(text.contains(counted), "{text}");
    fixture.status_store.remove(&uid);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(fixture.terminations().await, []);
}

#[tokio::test(start_paused = true)]
async fn layers_on_another_disk_count_for_the_pod_only() {
    for separate_images in [false, true] {
        let mut fixture = Fixture::new(Node {
            separate_images,
            ..Node::default()
        });
        fixture.run(
            "web",
            &limited(&[("app", "10Mi"), ("side", "10Mi")]),
            &json!([]),
        );
        set(&fixture.node.layers, "web/app", 11);
        tokio::time::sleep(25 * SECOND).await;
        assert_eq!(fixture.evicted().await.is_empty(), separate_images);
        set(&fixture.node.layers, "web/app", 21);
        tokio::time::sleep(25 * SECOND).await;
        assert_eq!(fixture.evicted().await.is_empty(), !separate_images);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_checked_together_and_only_as_far_as_limited() {
    let fixture = Fixture::new(Node::default());
    tokio::time::sleep(3 * SECOND).await;
    fixture.run("web", &json!([]), &sized("a"));
    tokio::time::sleep(4 * SECOND).await;
    fixture.run("other", &json!([]), &sized("b"));
    fixture.run(
        "free",
        &json!([{"name": "app"}]),
        &json!([{"name": "c", "emptyDir": {}}]),
    );
    tokio::time::sleep(14 * SECOND).await;
    let round = |at: u64| [(at, "b".to_owned()), (at, "a".to_owned())];
    assert_eq!(fixture.node.calls(), [round(10), round(20)].concat());
    let scratch = json!([{"name": "scratch", "emptyDir": {}}]);
    fixture.run("third", &limited(&[("app", "1Gi")]), &scratch);
    tokio::time::sleep(10 * SECOND).await;
    let mut parts: Vec<String> = fixture.node.calls().into_iter().map(|it| it.1).collect();
    parts.sort();
    assert_eq!(parts, ["a", "b", "layers", "logs", "scratch"]);
}

#[tokio::test(start_paused = true)]
async fn pods_without_limits_or_ended_are_not_measured() {
    let fixture = Fixture::new(Node::default());
    fixture.run(
        "free",
        &json!([{"name": "app"}]),
        &json!([{"name": "c", "emptyDir": {}}]),
    );
    tokio::time::sleep(3600 * SECOND).await;
    assert_eq!(fixture.node.calls(), []);
    let web = fixture.run("web", &json!([]), &sized("a"));
    tokio::time::sleep(15 * SECOND).await;
    assert_eq!(fixture.node.calls().len(), 1);
    fixture.status_store.update(&web.uid(), |entry| {
        entry.worker_state = PodWorkerState::TerminatingPod;
    });
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(fixture.node.calls(), []);
    fixture.run("web", &json!([]), &sized("a"));
    fixture.cancel.cancel();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(fixture.node.calls(), []);
}

#[tokio::test(start_paused = true)]
async fn hung_runtime_and_volume_delay_no_other_limit() {
    let mut fixture = Fixture::new(Node::default());
    let node = Arc::clone(&fixture.node);
    *node.runtime_hangs.lock() = true;
    fixture.run("stuck", &json!([]), &sized("hung"));
    fixture.run("web", &json!([]), &sized("data"));
    fixture.run("logs", &limited(&[("app", "10Mi")]), &json!([]));
    set(&node.volumes, "data", 2);
    set(&node.logs, "logs/app", 11);
    tokio::time::sleep(15 * SECOND).await;
    let mut evicted = fixture.evicted().await;
    evicted.sort();
    assert_eq!(evicted, ["logs-uid", "web-uid"].map(PodUid::from));
    // one call is in progress, and another is not begun
    tokio::time::sleep(120 * SECOND).await;
    let calls = node.calls();
    let layers = calls.iter().filter(|(_, part)| part == "layers");
    assert_eq!(layers.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn any_pod_is_measured_on_request() {
    let fixture = Fixture::new(Node::default());
    let node = Arc::clone(&fixture.node);
    let volumes = json!([{"name": "data", "emptyDir": {}},
                         {"name": "memory", "emptyDir": {"medium": "Memory"}},
                         {"name": "hung", "emptyDir": {}}]);
    let web = fixture.run("web", &json!([{"name": "app"}]), &volumes);
    set(&node.layers, "web/app", 1);
    set(&node.logs, "web/app", 2);
    set(&node.logs, "web/ended", 4);
    set(&node.volumes, "data", 8);
    set(&node.volumes, "memory", 16);
    let begin = Instant::now();
    let usages = fixture
        .local_storage
        .measure(std::slice::from_ref(&web))
        .await;
    assert!(begin.elapsed() <= 3 * SECOND);
    let usage = &usages[&web.uid()];
    let mebibytes = |usage: DiskUsage| usage.bytes / MEBIBYTE;
    assert_eq!(mebibytes(usage.layers()), 1);
    assert_eq!(mebibytes(usage.logs()), 2);
    assert_eq!(mebibytes(usage.local_volumes()), 8);
    assert_eq!(mebibytes(usage.total()), 15);
    assert!(!usage.volumes.contains_key("hung"));
}
