//! The control API over a real socket, on a board filled by hand.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use windlass_metrics::{ProbeLabels, ProbeResult, ProbeSeries};
use windlass_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{NoFigures, StatsError};
use windlass_timelines::{RecordOutcome, Timelines, RecordKind, RecordKey};
use windlass_types::view::{HeartbeatStatus, Blocker, ClusterSummary, EventType, PodEvent, PodWatch};
use windlass_types::explain::{Explanation, PodTimeline};
use windlass_types::{Reason, Timestamp};

use super::*;
use crate::healthz::HealthCheck;
use crate::socket::bind_socket;

const NOW: &str = "2026-11-21T04:00:00Z";

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        NOW.parse().expect("time")
    }
}

/// A server on a real socket, and a client of it.
struct World {
    board: PodStatusStore,
    explainer: PodExplainer,
    shutdown: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
    client: WindlassClient<Channel>,
    logs: PathBuf,
    /// Its series are there while it lives.
    _probe: ProbeSeries,
    _directory: tempfile::TempDir,
}

#[derive(Debug)]
struct Measured;

#[async_trait]
impl StatsSource for Measured {
    async fn node(&self, _: Wanted) -> Result<NodeUsage, StatsError> {
        Err(StatsError::Node(NoFigures::Unknown))
    }

    async fn pods(&self, _: Wanted) -> Result<Vec<PodUsage>, StatsError> {
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
        }
    }
}

impl World {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("windlass.sock");
        let logs = directory.path().join("logs");
        let board = PodStatusStore::new();
        let shutdown = CancellationToken::new();
        let explainer = PodExplainer {
            board: board.clone(),
            timelines: Timelines::new(Arc::new(FixedClock), None),
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
            board: board.clone(),
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
            board,
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
        io::Write::write_all(&mut file.expect("log"), text.as_bytes()).expect("log");
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
        looked: true,
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
async fn a_blocker_is_told_with_what_its_probe_complained_of_last() {
    let mut world = World::start().await;
    let mut web = view("default", "web", 0, "running");
    let now: Timestamp = NOW.parse().expect("time");
    web.blocker = Some(Blocker {
        reason: Reason::ContainersNotReady,
        container: Some("app".to_owned()),
        message: "its readiness probe does not pass".to_owned(),
        since: now,
        next_retry: None,
    });
    let complaint = |text: &str| PodEvent {
        event_type: EventType::Warning,
        reason: Reason::Unhealthy,
        container: Some("app".to_owned()),
        message: format!("Readiness probe failed: {text}"),
        count: 1,
        first: now,
        last: now,
    };
    web.events = vec![complaint("statuscode: 500"), complaint("statuscode: 503")];
    world.board.publish(web);
    let pods = within(world.client.list_pods(filter(None, Some("web")))).await;
    let entry = pods.expect("pods").into_inner().pods.remove(0);
    assert_eq!(
        entry.blocker.expect("blocker").message,
        "its readiness probe does not pass: statuscode: 503"
    );
}

#[tokio::test]
async fn pods_are_listed_with_status_and_filtered() {
    let mut world = World::start().await;
    let mut web = view("default", "web", 0, "running");
    web.blocker = Some(Blocker {
        reason: Reason::ErrImagePull,
        container: Some("app".to_owned()),
        message: "no such image".to_owned(),
        since: NOW.parse().expect("time"),
        next_retry: None,
    });
    web.timings.seen = Some(NOW.parse().expect("time"));
    world.board.publish(web);
    world.board.publish(view("default", "job", 0, "running"));
    world.board.publish(view("other", "web2", 0, "running"));

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
        let pods = within(world.client.list_pods(filter(namespace, name))).await;
        assert_eq!(names(&pods.expect("pods").into_inner().pods), expected);
    }

    let pods = within(world.client.list_pods(filter(None, Some("web")))).await;
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
    world.stop().await;
}

#[tokio::test]
async fn a_watch_begins_with_everything_and_goes_on_with_changes() {
    let mut world = World::start().await;
    world.board.publish(view("default", "web", 0, "running"));
    world.board.publish(view("other", "x", 0, "running"));
    let watch = within(world.client.watch_pods(filter(Some("default"), None))).await;
    let mut watch = watch.expect("watch").into_inner();

    let first = within(watch.message())
        .await
        .expect("no error")
        .expect("message");
    assert!(first.snapshot);
    assert_eq!(names(&first.pods), "default/web=Running");

    world.board.remove(&"x-uid".into());
    world.board.publish(view("default", "job", 0, "running"));
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
        "the other namespace's pod is not this client's business"
    );

    world.board.remove(&"web-uid".into());
    let last = within(watch.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(last.removed, ["web-uid"]);

    world.shutdown.cancel();
    assert!(
        within(watch.message()).await.expect("no error").is_none(),
        "a shutdown ends it"
    );
    world.stop().await;
}

#[tokio::test]
async fn a_watch_of_an_empty_board_says_so_at_once() {
    let mut world = World::start().await;
    let watch = within(world.client.watch_pods(filter(None, None))).await;
    let first = within(watch.expect("watch").into_inner().message()).await;
    let first = first.expect("no error").expect("message");
    assert!(first.snapshot && first.pods.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_nobody_up() {
    let mut world = World::start().await;
    let slow = within(world.client.watch_pods(filter(None, None))).await;
    let mut slow = slow.expect("watch").into_inner();
    // far more than any window or buffer between server and client holds
    for round in 0..2_000 {
        let mut web = view("default", "web", round, "running");
        web.unsupported_fields = vec!["x".repeat(8 * 1024)];
        world.board.publish(web);
    }
    let pods = within(world.client.list_pods(filter(None, None))).await;
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
        "states in between are left out, got {messages}"
    );
    world.stop().await;
}

#[tokio::test]
async fn logs_of_the_right_instance_are_read() {
    let mut world = World::start().await;
    world.board.publish(view("default", "web", 1, "running"));
    world.write_log("web", 0, &["10Z stdout F first try"]);
    world.write_log("web", 1, &["20Z stdout F one", "50Z stderr F two"]);
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
    assert_eq!(world.log(request.clone()).await, "one|two|");
    assert_eq!(world.log(with(&|r| r.previous = true)).await, "first try|");
    assert_eq!(world.log(with(&|r| r.tail_lines = Some(1))).await, "two|");
    assert_eq!(
        world.log(with(&|r| r.since_seconds = Some(15))).await,
        "two|"
    );
    assert_eq!(world.log(with(&|r| r.limit_bytes = Some(5))).await, "one|t");
    assert_eq!(
        world.log(with(&|r| r.tail_lines = Some(-1))).await,
        "InvalidArgument: tail_lines must not be negative"
    );
    assert_eq!(
        world.log(with(&|r| r.pod = "nope".to_owned())).await,
        "NotFound: pod default/nope not found"
    );
    assert_eq!(
        world.log(with(&|r| r.container = "db".to_owned())).await,
        "InvalidArgument: pod web has no container db, it has: app"
    );
    world.stop().await;
}

#[tokio::test]
async fn following_ends_when_the_container_has() {
    let mut world = World::start().await;
    world.board.publish(view("default", "web", 0, "running"));
    world.write_log("web", 0, &["20Z stdout F one"]);
    let request = proto::ReadLogRequest {
        namespace: "default".to_owned(),
        pod: "web".to_owned(),
        follow: true,
        ..proto::ReadLogRequest::default()
    };
    let stream = within(world.client.read_log(request)).await;
    let mut stream = stream.expect("log").into_inner();
    let first = within(stream.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(first.data, "one\n");

    world.write_log("web", 0, &["21Z stdout F last words"]);
    world.board.publish(view("default", "web", 0, "terminated"));
    let next = within(stream.message())
        .await
        .expect("no error")
        .expect("message");
    assert_eq!(next.data, "last words\n");
    assert!(within(stream.message()).await.expect("no error").is_none());
    world.stop().await;
}

#[tokio::test]
async fn refused_manifests_are_listed_with_their_error() {
    let mut world = World::start().await;
    let request = proto::ListRejectedManifestsRequest {};
    let answer = within(world.client.list_rejected_manifests(request))
        .await
        .expect("answer");
    let line = |m: proto::RejectedManifest| format!("{}: {}", m.origin, m.error);
    let lines: Vec<_> = answer.into_inner().rejected.into_iter().map(line).collect();
    assert_eq!(lines, ["/m/bad.yaml: line 3: no"]);
    world.stop().await;
}

#[tokio::test]
async fn the_node_is_told_with_how_it_stands_with_its_cluster() {
    let mut world = World::start().await;
    let answer = within(world.client.get_node(proto::GetNodeRequest {})).await;
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
    world.stop().await;
}

#[tokio::test]
async fn why_a_pod_is_as_it_is_is_told_by_the_name_of_its_manifest_too() {
    let mut world = World::start().await;
    let mut entry = view("default", "web-n1", 0, "running");
    entry.blocker = Some(Blocker {
        reason: Reason::WaitingForStartSlot,
        container: None,
        message: "waiting for its turn".into(),
        since: NOW.parse().expect("time"),
        next_retry: None,
    });
    let timelines = &world.explainer.timelines;
    timelines.seen(&entry.pod);
    let job = RecordKey::new(RecordKind::Sync, "syncPod");
    timelines.record_instant(&entry.pod.uid(), job, RecordOutcome::failed("no"));
    world.board.publish(entry);
    for name in ["web", "web-n1"] {
        let asked = || proto::GetPodRequest {
            namespace: "default".into(),
            name: name.into(),
        };
        let answer = world.client.explain_pod(asked()).await.expect("answer");
        let json = answer.into_inner().json;
        let explanation: Explanation = serde_json::from_slice(&json).expect("JSON");
        let blocker = explanation.blocker.expect("a blocker");
        assert_eq!(blocker.waiting_for, "the agent, when other pods have started");
        assert_eq!(explanation.records.len(), 1);
        let answer = world.client.get_timeline(asked()).await.expect("answer");
        let json = answer.into_inner().json;
        let timeline: PodTimeline = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(timeline.records[0].to_string(), "sync syncPod failed: no");
    }
    let other = proto::GetPodRequest {
        namespace: "other".into(),
        name: "web".into(),
    };
    let refused = world.client.explain_pod(other).await.expect_err("no pod");
    assert_eq!(refused.code(), tonic::Code::NotFound);
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_measured_is_said() {
    let mut world = World::start().await;
    let asked = world.client.get_usage(proto::GetUsageRequest {});
    let refused = asked.await.expect_err("no figures");
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().contains("root cgroup"), "{refused}");
    world.stop().await;
}

#[tokio::test]
async fn metrics_are_read_over_the_socket() {
    let mut world = World::start().await;
    let mut read = async |probes| {
        let request = proto::GetMetricsRequest { probes };
        let answer = within(world.client.get_metrics(request)).await;
        answer.expect("metrics").into_inner().text
    };
    let text = read(false).await;
    let call = r#"kubelet_runtime_operations_total{operation_type="version"} 1"#;
    assert!(text.contains(call), "{text}");
    assert!(!text.contains("prober_probe_total"), "{text}");
    let text = read(true).await;
    let series = r#"pod_uid="u1",probe_type="Liveness",result="failed"} 1"#;
    assert!(text.contains(series), "{text}");
    world.stop().await;
}
