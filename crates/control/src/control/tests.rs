//! The control API over a real socket, with a pod status store filled by the test.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use windlass_eviction::{
    Amount, EvictionRecord, EvictionStatus, Observation, Pressure, Signal, SignalStatus, Threshold,
    ThresholdState, ThresholdStatus,
};
use windlass_grpc_sockets::bind_socket;
use windlass_metrics::{ProbeLabels, ProbeResult, ProbeSeries};
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, StatsUnavailable};
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::explain::{Explanation, PodTimeline};
use windlass_types::view::{
    Blocker, ClusterSummary, EventType, HeartbeatStatus, HungOperationView, PodEvent, PodWatch,
};
use windlass_types::{ProbeKind, Reason, Timestamp};
use windlass_units::quantity::{Quantity, QuantityFormat};

use tokio::net::UnixStream;

use super::*;
use windlass_health::HealthCheck;

const NOW: &str = "2026-11-21T04:00:00Z";

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW.parse().expect("time")
    }
}

/// A server on a real socket, and a client of it.
struct TestEnv {
    status_store: PodStatusStore,
    explainer: PodExplainer,
    shutdown: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    client: WindlassClient<Channel>,
    logs: PathBuf,
    /// Keeps its series alive.
    _probe: ProbeSeries,
    _directory: tempfile::TempDir,
}

#[derive(Debug)]
struct Measured;

#[async_trait]
impl StatsSource for Measured {
    async fn node(&self, _: StatsSelection) -> Result<NodeUsage, StatsError> {
        Err(StatsError::Node(StatsUnavailable::Unknown))
    }

    async fn pods(&self, _: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        Ok(Vec::new())
    }
}

/// Counts a CRI call before each scrape.
#[derive(Debug)]
struct Healthy(Metrics);

impl HealthSource for Healthy {
    fn checks(&self) -> Vec<HealthCheck> {
        Vec::new()
    }

    fn before_scrape(&self) {
        self.0.runtime_calls.observe("version", 0.1, false);
    }
}

/// Memory below its threshold, and an evicted pod.
fn eviction() -> EvictionStatus {
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        value: Amount::Quantity(Quantity::from_units(100, QuantityFormat::BinarySi)),
        grace: Some(Duration::from_secs(90)),
        min_reclaim: None,
    };
    EvictionStatus {
        at: Some(Timestamp::UNIX_EPOCH),
        pressure: Pressure {
            memory: true,
            ..Pressure::default()
        },
        signals: vec![SignalStatus {
            signal: Signal::MemoryAvailable,
            observed: Some(Observation {
                available: 90,
                capacity: 1000,
                at: Timestamp::UNIX_EPOCH,
            }),
            obtainable: Some(95),
            stall: None,
            thresholds: vec![ThresholdStatus {
                threshold,
                quantity: Some(threshold.quantity(1000)),
                distance: Some(-10),
                state: ThresholdState::Met,
            }],
        }],
        evictions: vec![EvictionRecord {
            uid: "evicted".into(),
            namespace: "default".to_owned(),
            name: "hog".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            explanation: "memory.available was 90".to_owned(),
        }],
        ..EvictionStatus::default()
    }
}

#[derive(Debug)]
struct Node;

impl NodeSource for Node {
    fn summary(&self) -> NodeSummary {
        NodeSummary {
            name: "n1".into(),
            cluster: Some(ClusterSummary {
                server: "https://api:6443".into(),
                has_identity: true,
                ready: Some("True".into()),
                contact: Some(HeartbeatStatus {
                    error: Some("refused".into()),
                    since: Timestamp::UNIX_EPOCH,
                    last: None,
                }),
                pod_watch: Some(PodWatch {
                    error: Some("no watch".into()),
                    since: Timestamp::UNIX_EPOCH,
                }),
            }),
            hung_operations: vec![HungOperationView {
                kind: "volume",
                name: "mount of volume data".into(),
                since: Timestamp::UNIX_EPOCH,
                pod: Some("u1".into()),
                pod_name: Some(("default".into(), "web".into())),
            }],
        }
    }
}

impl TestEnv {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("windlass.sock");
        let logs = directory.path().join("logs");
        let status_store = PodStatusStore::new();
        let shutdown = CancellationToken::new();
        let explainer = PodExplainer {
            status_store: status_store.clone(),
            timelines: Timelines::new(Arc::new(FixedClock), None),
            eviction: watch::channel(Arc::new(eviction())).1,
            node_name: "n1".into(),
        };
        let metrics = Metrics::new().expect("metrics");
        let mut probe = metrics.probes.series(ProbeLabels {
            probe_type: "Liveness",
            container: "app".into(),
            pod: "web".into(),
            namespace: "default".into(),
            pod_uid: "u1".into(),
        });
        probe.observe(ProbeResult::Failed, 0.1);
        let service = ControlService {
            rejected: watch::channel(vec![RejectedManifest {
                origin: "/m/bad.yaml".into(),
                error: "line 3: no".into(),
            }])
            .1,
            status_store: status_store.clone(),
            explainer: explainer.clone(),
            stats: Arc::new(Measured),
            metrics: metrics.clone(),
            health: Arc::new(Healthy(metrics)),
            node: Arc::new(Node),
            paths: NodePaths {
                root_dir: directory.path().to_owned(),
                pod_logs_dir: logs.clone(),
            },
            logs: Default::default(),
            clock: Arc::new(FixedClock),
            shutdown: shutdown.clone(),
        };
        let listener = bind_socket(&path).expect("socket");
        let server = tokio::spawn(serve_control(listener, service));
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .expect("connection");
        Self {
            status_store,
            explainer,
            shutdown,
            server,
            client: WindlassClient::new(channel),
            logs,
            _probe: probe,
            _directory: directory,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        within(self.server)
            .await
            .expect("no panic")
            .expect("no error");
    }

    fn write_log(&self, name: &str, attempt: u32, lines: &[&str]) {
        let directory = self.logs.join(format!("default_{name}_{name}-uid/app"));
        std::fs::create_dir_all(&directory).expect("directory");
        let text: String = lines
            .iter()
            .map(|line| format!("2026-11-21T03:59:{line}\n"))
            .collect();
        let path = directory.join(format!("{attempt}.log"));
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(path);
        std::io::Write::write_all(&mut file.expect("log"), text.as_bytes()).expect("log");
    }

    async fn log(&mut self, request: proto::ReadLogRequest) -> String {
        let mut stream = match within(self.client.read_log(request)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return format!("{:?}: {}", status.code(), status.message()),
        };
        let mut data = Vec::new();
        while let Some(message) = within(stream.message()).await.expect("message") {
            data.extend_from_slice(&message.data);
        }
        String::from_utf8(data).expect("text").replace('\n', "|")
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("in time")
}

fn view(namespace: &str, name: &str, restarts: i32, state: &str) -> PodStatusEntry {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": namespace, "uid": format!("{name}-uid"),
            "annotations": {"kubernetes.io/config.source": "file"},
        },
        "spec": {"containers": [{"name": "app", "image": "web"}]},
    });
    let status = json!({
        "phase": "Running",
        "containerStatuses": [{
            "name": "app", "image": "web", "imageID": "", "ready": true,
            "restartCount": restarts, "state": {state: {"exitCode": 0}},
            "lastState": if restarts > 0 { json!({"terminated": {"exitCode": 1, "containerID": "containerd://first"}}) } else { json!({}) },
        }],
    });
    PodStatusEntry {
        status: Arc::new(serde_json::from_value(status).expect("status")),
        observed: true,
        ..PodStatusEntry::new(Arc::new(serde_json::from_value(pod).expect("pod")))
    }
}

fn names(pods: &[proto::PodEntry]) -> String {
    let name = |pod: &proto::PodEntry| {
        let value: serde_json::Value = serde_json::from_slice(&pod.pod_json).expect("JSON");
        let text = |pointer: &str| {
            value
                .pointer(pointer)
                .and_then(|v| v.as_str())
                .unwrap_or("?")
                .to_owned()
        };
        format!(
            "{}/{}={}",
            text("/metadata/namespace"),
            text("/metadata/name"),
            text("/status/phase")
        )
    };
    pods.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn filter(namespace: Option<&str>, name: Option<&str>) -> proto::ListPodsRequest {
    proto::ListPodsRequest {
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
    }
}

#[tokio::test]
async fn blocker_message_includes_last_probe_failure() {
    let mut env = TestEnv::start().await;
    let mut web = view("default", "web", 0, "running");
    let now: Timestamp = NOW.parse().expect("time");
    web.blocker = Some(Blocker {
        reason: Reason::ContainersNotReady,
        container: Some("app".to_owned()),
        message: "its readiness probe does not pass".to_owned(),
        probe: Some(ProbeKind::Readiness),
        since: now,
        next_retry: None,
    });
    let failure = |text: &str| PodEvent {
        event_type: EventType::Warning,
        reason: Reason::Unhealthy,
        container: Some("app".to_owned()),
        message: format!("Readiness probe failed: {text}"),
        probe: Some(ProbeKind::Readiness),
        count: 1,
        first: now,
        last: now,
    };
    web.events = vec![failure("statuscode: 500"), failure("statuscode: 503")];
    env.status_store.publish(web);
    let pods = within(env.client.list_pods(filter(None, Some("web")))).await;
    let entry = pods.expect("pods").into_inner().pods.remove(0);
    assert_eq!(
        entry.blocker.expect("blocker").message,
        "its readiness probe does not pass: statuscode: 503"
    );
}

#[tokio::test]
async fn pods_are_listed_with_status_and_filtered() {
    let mut env = TestEnv::start().await;
    let mut web = view("default", "web", 0, "running");
    web.blocker = Some(Blocker {
        reason: Reason::ErrImagePull,
        container: Some("app".to_owned()),
        message: "no such image".to_owned(),
        probe: None,
        since: NOW.parse().expect("time"),
        next_retry: None,
    });
    web.timings.seen = Some(NOW.parse().expect("time"));
    env.status_store.publish(web);
    env.status_store
        .publish(view("default", "job", 0, "running"));
    env.status_store
        .publish(view("other", "web2", 0, "running"));

    for (namespace, name, expected) in [
        (
            None,
            None,
            "default/job=Running default/web=Running other/web2=Running",
        ),
        (Some("other"), None, "other/web2=Running"),
        (Some("default"), Some("web"), "default/web=Running"),
        (Some("other"), Some("web"), ""),
    ] {
        let pods = within(env.client.list_pods(filter(namespace, name))).await;
        assert_eq!(names(&pods.expect("pods").into_inner().pods), expected);
    }

    let pods = within(env.client.list_pods(filter(None, Some("web")))).await;
    let entry = pods.expect("pods").into_inner().pods.remove(0);
    assert_eq!(
        (entry.source.as_str(), entry.worker_state.as_str()),
        ("file", "Sync")
    );
    let blocker = entry.blocker.expect("blocker");
    assert_eq!(blocker.reason, "ErrImagePull");
    assert_eq!(blocker.since.map(|t| t.seconds), Some(1_795_233_600));
    assert!(
        entry
            .timings
            .is_some_and(|t| t.seen.is_some() && t.running.is_none())
    );
    let text = std::str::from_utf8(&entry.pod_json).expect("text");
    assert!(
        text.contains(r#""apiVersion":"v1""#) && text.contains(r#""kind":"Pod""#),
        "{text}"
    );
    env.stop().await;
}

#[tokio::test]
async fn watch_sends_snapshot_then_changes() {
    let mut env = TestEnv::start().await;
    env.status_store
        .publish(view("default", "web", 0, "running"));
    env.status_store.publish(view("other", "x", 0, "running"));
    let watch = within(env.client.watch_pods(filter(Some("default"), None))).await;
    let mut watch = watch.expect("watch").into_inner();

    let first = within(watch.message())
        .await
        .expect("no error")
        .expect("message");
    assert!(first.snapshot);
    assert_eq!(names(&first.pods), "default/web=Running");

    env.status_store.remove(&"x-uid".into());
    env.status_store
        .publish(view("default", "job", 0, "running"));
    let next = within(watch.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(
        (next.snapshot, names(&next.pods).as_str()),
        (false, "default/job=Running")
    );
    assert!(
        next.removed.is_empty(),
        "pods of other namespaces are filtered"
    );

    env.status_store.remove(&"web-uid".into());
    let last = within(watch.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(last.removed, ["web-uid"]);

    env.shutdown.cancel();
    assert!(
        within(watch.message()).await.expect("no error").is_none(),
        "a shutdown ends it"
    );
    env.stop().await;
}

#[tokio::test]
async fn watch_without_pods_sends_empty_snapshot() {
    let mut env = TestEnv::start().await;
    let watch = within(env.client.watch_pods(filter(None, None))).await;
    let first = within(watch.expect("watch").into_inner().message()).await;
    let first = first.expect("no error").expect("message");
    assert!(first.snapshot && first.pods.is_empty());
    env.stop().await;
}

#[tokio::test]
async fn slow_watch_client_does_not_delay_others() {
    let mut env = TestEnv::start().await;
    let slow = within(env.client.watch_pods(filter(None, None))).await;
    let mut slow = slow.expect("watch").into_inner();
    // more than all windows and buffers between server and client hold
    for round in 0..2_000 {
        let mut web = view("default", "web", round, "running");
        web.unsupported_fields = vec!["x".repeat(8 * 1024)];
        env.status_store.publish(web);
    }
    let pods = within(env.client.list_pods(filter(None, None))).await;
    assert_eq!(pods.expect("pods").into_inner().pods.len(), 1);

    let mut messages = 0;
    loop {
        let message = within(slow.message())
            .await
            .expect("no error")
            .expect("message");
        messages += 1;
        let text = String::from_utf8_lossy(
            &message
                .pods
                .first()
                .map(|p| p.pod_json.clone())
                .unwrap_or_default(),
        )
        .into_owned();
        if text.contains(r#""restartCount":1999"#) {
            break;
        }
    }
    assert!(
        messages < 2_000,
        "intermediate states are skipped, got {messages}"
    );
    env.stop().await;
}

#[tokio::test]
async fn read_log_selects_instance_and_options() {
    let mut env = TestEnv::start().await;
    env.status_store
        .publish(view("default", "web", 1, "running"));
    env.write_log("web", 0, &["10Z stdout F first try"]);
    env.write_log("web", 1, &["20Z stdout F one", "50Z stderr F two"]);
    let request = proto::ReadLogRequest {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        ..proto::ReadLogRequest::default()
    };
    let with = |change: &dyn Fn(&mut proto::ReadLogRequest)| {
        let mut request = request.clone();
        change(&mut request);
        request
    };
    assert_eq!(env.log(request.clone()).await, "one|two|");
    assert_eq!(env.log(with(&|r| r.previous = true)).await, "first try|");
    assert_eq!(env.log(with(&|r| r.tail_lines = Some(1))).await, "two|");
    assert_eq!(env.log(with(&|r| r.since_seconds = Some(15))).await, "two|");
    assert_eq!(env.log(with(&|r| r.limit_bytes = Some(5))).await, "one|t");
    assert_eq!(
        env.log(with(&|r| r.tail_lines = Some(-1))).await,
        "InvalidArgument: tail_lines must not be negative"
    );
    assert_eq!(
        env.log(with(&|r| r.pod = "nope".to_owned())).await,
        "NotFound: pod default/nope not found"
    );
    assert_eq!(
        env.log(with(&|r| r.container = "db".to_owned())).await,
        "InvalidArgument: pod web has no container db, it has: app"
    );
    env.stop().await;
}

#[tokio::test]
async fn followed_log_ends_with_its_container() {
    let mut env = TestEnv::start().await;
    env.status_store
        .publish(view("default", "web", 0, "running"));
    env.write_log("web", 0, &["20Z stdout F one"]);
    let request = proto::ReadLogRequest {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        follow: true,
        ..proto::ReadLogRequest::default()
    };
    let stream = within(env.client.read_log(request)).await;
    let mut stream = stream.expect("log").into_inner();
    let first = within(stream.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(first.data, "one\n");

    env.write_log("web", 0, &["21Z stdout F last line"]);
    env.status_store
        .publish(view("default", "web", 0, "terminated"));
    let next = within(stream.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(next.data, "last line\n");
    assert!(within(stream.message()).await.expect("no error").is_none());
    env.stop().await;
}

#[tokio::test]
async fn rejected_manifests_are_listed_with_error() {
    let mut env = TestEnv::start().await;
    let request = proto::ListRejectedManifestsRequest {};
    let answer = within(env.client.list_rejected_manifests(request))
        .await
        .expect("answer");
    let line = |m: proto::RejectedManifest| format!("{}: {}", m.origin, m.error);
    let lines: Vec<_> = answer.into_inner().rejected.into_iter().map(line).collect();
    assert_eq!(lines, ["/m/bad.yaml: line 3: no"]);
    env.stop().await;
}

#[tokio::test]
async fn get_node_returns_cluster_summary() {
    let mut env = TestEnv::start().await;
    let answer = within(env.client.get_node(proto::GetNodeRequest {})).await;
    let node = answer.expect("answer").into_inner();
    assert_eq!(node.name, "n1");
    let cluster = node.cluster.expect("cluster");
    assert_eq!(cluster.server, "https://api:6443");
    assert_eq!(cluster.ready.as_deref(), Some("True"));
    let contact = cluster.contact.expect("contact");
    assert_eq!(contact.error.as_deref(), Some("refused"));
    assert_eq!(contact.since, Some(prost_types::Timestamp::default()));
    let pod_watch = cluster.pod_watch.expect("pod watch");
    assert_eq!(pod_watch.error.as_deref(), Some("no watch"));
    assert_eq!(pod_watch.since, Some(prost_types::Timestamp::default()));
    let [hung] = node.hung_operations.as_slice() else {
        panic!("{:?}", node.hung_operations);
    };
    assert_eq!(
        (&*hung.kind, &*hung.name),
        ("volume", "mount of volume data")
    );
    assert_eq!(hung.since, Some(prost_types::Timestamp::default()));
    let pod = (&*hung.pod_namespace, &*hung.pod_name, &*hung.pod_uid);
    assert_eq!(pod, ("default", "web", "u1"));
    env.stop().await;
}

#[tokio::test]
async fn get_node_returns_eviction_signals() {
    let mut env = TestEnv::start().await;
    let answer = within(env.client.get_node(proto::GetNodeRequest {})).await;
    let eviction = answer.expect("answer").into_inner().eviction;
    let eviction = eviction.expect("observed");
    assert_eq!(eviction.conditions, ["MemoryPressure"]);
    let [signal] = eviction.signals.as_slice() else {
        panic!("{:?}", eviction.signals);
    };
    assert_eq!(signal.name, "memory.available");
    assert_eq!((signal.available, signal.obtainable), (Some(90), Some(95)));
    let threshold = &signal.thresholds[0];
    assert_eq!(
        (threshold.amount, threshold.distance),
        (Some(100), Some(-10))
    );
    assert_eq!(threshold.value, "100 for 1m30s");
    assert_eq!(threshold.state, "evicting");
    assert_eq!(eviction.evicted[0].explanation, "memory.available was 90");
    env.stop().await;
}

#[tokio::test]
async fn explain_says_why_pod_was_evicted() {
    let mut env = TestEnv::start().await;
    let mut explain = async |uid: &str, reason: &str| {
        let mut entry = view("default", "hog", 0, "running");
        let mut pod = (*entry.pod).clone();
        pod.metadata.uid = Some(uid.to_owned());
        let mut status = (*entry.status).clone();
        status.reason = Some(reason.to_owned());
        status.message = Some("The node was low on resource: memory. ".to_owned());
        (entry.pod, entry.status) = (pod.into(), status.into());
        env.status_store.publish(entry);
        let request = proto::GetPodRequest {
            namespace: "default".into(),
            name: "hog".into(),
        };
        let answer = within(env.client.explain_pod(request)).await;
        let json = answer.expect("answer").into_inner().json;
        let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        env.status_store.remove(&uid.into());
        value["eviction"].to_string()
    };
    let message = r#""message":"The node was low on resource: memory. ""#;
    assert_eq!(
        explain("evicted", "Evicted").await,
        format!(
            r#"{{"evictedAt":"1970-01-01T00:00:00Z","explanation":"memory.available was 90",{message}}}"#
        )
    );
    // evicted before the start of the agent
    assert_eq!(
        explain("earlier", "Evicted").await,
        format!("{{{message}}}")
    );
    assert_eq!(explain("other", "").await, "null");
    env.stop().await;
}

#[tokio::test]
async fn explain_accepts_static_pod_name_without_node_suffix() {
    let mut env = TestEnv::start().await;
    let mut entry = view("default", "web-n1", 0, "running");
    entry.blocker = Some(Blocker {
        reason: Reason::WaitingForStartSlot,
        container: None,
        message: "waiting for a start slot".into(),
        probe: None,
        since: NOW.parse().expect("time"),
        next_retry: None,
    });
    let timelines = &env.explainer.timelines;
    timelines.seen(&entry.pod);
    let job = RecordKey::new(RecordKind::Sync, "syncPod");
    timelines.record_instant(&entry.pod.uid(), job, RecordOutcome::failed("no"));
    env.status_store.publish(entry);
    for name in ["web", "web-n1"] {
        let request = || proto::GetPodRequest {
            namespace: "default".into(),
            name: name.into(),
        };
        let answer = env.client.explain_pod(request()).await.expect("answer");
        let json = answer.into_inner().json;
        let explanation: Explanation = serde_json::from_slice(&json).expect("JSON");
        let blocker = explanation.blocker.expect("a blocker");
        assert_eq!(blocker.waiting_for, "agent, after other pods have started");
        assert_eq!(explanation.records.len(), 1);
        let answer = env.client.get_timeline(request()).await.expect("answer");
        let json = answer.into_inner().json;
        let timeline: PodTimeline = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(timeline.records[0].to_string(), "sync syncPod failed: no");
    }
    let other = proto::GetPodRequest {
        namespace: "other".into(),
        name: "web".into(),
    };
    let error = env.client.explain_pod(other).await.expect_err("no pod");
    assert_eq!(error.code(), tonic::Code::NotFound);
    env.stop().await;
}

#[tokio::test]
async fn get_usage_returns_unavailable_without_stats() {
    let mut env = TestEnv::start().await;
    let response = env.client.get_usage(proto::GetUsageRequest {});
    let error = response.await.expect_err("no stats");
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(error.message().contains("root cgroup"), "{error}");
    env.stop().await;
}

#[tokio::test]
async fn get_metrics_returns_agent_and_probe_metrics() {
    let mut env = TestEnv::start().await;
    let mut read = async |probes| {
        let request = proto::GetMetricsRequest { probes };
        let answer = within(env.client.get_metrics(request)).await;
        answer.expect("metrics").into_inner().text
    };
    let text = read(false).await;
    let call = r#"kubelet_runtime_operations_total{operation_type="version"} 1"#;
    assert!(text.contains(call), "{text}");
    assert!(!text.contains("prober_probe_total"), "{text}");
    let text = read(true).await;
    let series = r#"pod_uid="u1",probe_type="Liveness",result="failed"} 1"#;
    assert!(text.contains(series), "{text}");
    env.stop().await;
}
