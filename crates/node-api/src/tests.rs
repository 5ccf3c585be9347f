//! The endpoints, without a socket. Authentication is tested in `windlass_auth` and with the whole
//! agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_actors::StatusCache;
use windlass_health::{HealthCheck, HealthSource};
use windlass_metrics::Metrics;
use windlass_stats::usage::{CgroupUsage, CpuUsage, NodeUsage, PodUsage};
use windlass_stats::{
    LogUsage, MachineFacts, StatsError, StatsSelection, StatsSource, StatsUnavailable,
};
use windlass_status::PodExplainer;
use windlass_status::{PodStatusEntry, PodStatusStore};
use windlass_streams::{Limits, Sessions};
use windlass_testing::FakeRuntime;
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::explain::PodTimeline;
use windlass_types::view::Blocker;
use windlass_types::{Clock, Reason, Timestamp};

use crate::streaming::tests::FakeStreams;
use crate::{NodeApi, NodeApiDeps, NodeApiSettings, ServerType, Verbosity, router};

#[derive(Debug)]
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        "2026-11-22T04:00:00Z".parse().expect("time")
    }
}

#[derive(Debug)]
struct Healthy(bool);

impl HealthSource for Healthy {
    fn checks(&self) -> Vec<HealthCheck> {
        vec![HealthCheck {
            name: "syncloop",
            result: match self.0 {
                true => Ok(String::new()),
                false => Err("it stands".into()),
            },
        }]
    }
}

/// Records the requested selections; the error for pods is set by the test.
#[derive(Debug, Default)]
struct Measured(Mutex<Vec<StatsSelection>>, Mutex<Option<StatsUnavailable>>);

#[async_trait]
impl StatsSource for Measured {
    async fn node(&self, wanted: StatsSelection) -> Result<NodeUsage, StatsError> {
        self.0.lock().expect("lock").push(wanted);
        Ok(NodeUsage {
            started_at: Timestamp::UNIX_EPOCH,
            cgroup: CgroupUsage {
                at: Timestamp::UNIX_EPOCH,
                path: "/".into(),
                cpu: Some(CpuUsage {
                    total_ns: 5_000_000_000,
                    ..CpuUsage::default()
                }),
                memory: None,
                io: None,
                processes: None,
                cpu_limits: Default::default(),
            },
            network: None,
            fs: None,
            image_fs: None,
            container_fs: None,
            disks: Default::default(),
            max_pid: None,
            running_processes: None,
            system: Vec::new(),
            classes: Vec::new(),
        })
    }

    async fn pods(&self, _: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        let error = *self.1.lock().expect("lock");
        error.map_or(Ok(Vec::new()), |why| Err(StatsError::Pods(why)))
    }

    async fn logs(&self) -> Vec<LogUsage> {
        vec![LogUsage {
            uid: "u1".into(),
            namespace: "default".into(),
            pod: "web".into(),
            container: "app".into(),
            bytes: 4096,
        }]
    }
}

#[derive(Debug, Default)]
struct RecordedVerbosity(Mutex<Vec<u32>>);

impl Verbosity for RecordedVerbosity {
    fn set(&self, verbosity: u32) -> Result<(), String> {
        self.0.lock().expect("lock").push(verbosity);
        Ok(())
    }
}

pub(crate) struct TestEnv {
    pub(crate) deps: NodeApiDeps,
    stats: Arc<Measured>,
    verbosity: Arc<RecordedVerbosity>,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(FixedClock);
        let (stats, verbosity) = (
            Arc::<Measured>::default(),
            Arc::<RecordedVerbosity>::default(),
        );
        let status_store = PodStatusStore::new();
        status_store.publish(entry("web"));
        let explainer = PodExplainer {
            status_store: status_store.clone(),
            timelines: Timelines::new(Arc::clone(&clock), None),
            eviction: tokio::sync::watch::channel(Arc::default()).1,
            node_name: "n1".into(),
        };
        Self {
            deps: NodeApiDeps {
                status_store,
                cache: StatusCache::new(),
                explainer,
                runtime: Arc::new(FakeRuntime::new(Arc::clone(&clock), 1)),
                streams: Arc::<FakeStreams>::default(),
                sessions: Sessions::new(Limits::default(), Default::default()),
                stats: Arc::clone(&stats) as _,
                machine: Arc::new(MachineFacts::default()),
                health: Arc::new(Healthy(true)),
                metrics: Metrics::new().expect("metrics"),
                paths: windlass_pod_inputs::paths::NodePaths {
                    root_dir: "/nowhere".into(),
                    pod_logs_dir: "/nowhere".into(),
                },
                system_logs: "/nowhere".into(),
                logs: Default::default(),
                journals: crate::Journals::new("journalctl"),
                node_name: "n1".into(),
                configz: Arc::new(json!({"port": 10250})),
                flagz: Arc::new(vec![("root-dir".into(), "/r".into())]),
                verbosity: Arc::clone(&verbosity) as _,
                version: "v1.36.2+windlass.0.1.0".into(),
                started: "2026-11-22T02:58:57Z".parse().expect("time"),
                settings: NodeApiSettings {
                    debugging: true,
                    profiling: true,
                    debug_flags: true,
                    system_logs: true,
                    log_query: false,
                    log_streams: false,
                    checkpoint: true,
                    websockets: true,
                    flagz: true,
                    statusz: true,
                },
                clock,
                shutdown: Default::default(),
            },
            stats,
            verbosity,
        }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        target: &str,
        body: &'static str,
    ) -> (StatusCode, String) {
        self.send_to(ServerType::ReadWrite, method, target, body)
            .await
    }

    async fn send_to(
        &self,
        server: ServerType,
        method: Method,
        target: &str,
        body: &'static str,
    ) -> (StatusCode, String) {
        let api = NodeApi::new(self.deps.clone());
        let request = Request::builder().method(method).uri(target);
        let request = request.body(Body::from(body)).expect("request");
        let response = router(api, server).oneshot(request).await.expect("answer");
        let status = response.status();
        let mut blocks = response.into_body().into_data_stream();
        let mut text = Vec::new();
        // holding a block delays the next one
        while let Some(block) = blocks.next().await {
            text.extend_from_slice(&block.expect("body"));
        }
        (status, String::from_utf8_lossy(&text).into_owned())
    }

    pub(crate) async fn get(&self, target: &str) -> (StatusCode, String) {
        self.send(Method::GET, target, "").await
    }
}

pub(crate) fn entry(name: &str) -> PodStatusEntry {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"containers": [{"name": "app", "image": "busybox"}]},
    });
    PodStatusEntry {
        status: Arc::new(serde_json::from_value(json!({"phase": "Running"})).expect("status")),
        observed: true,
        ..PodStatusEntry::new(Arc::new(serde_json::from_value(pod).expect("pod")))
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test]
async fn pods_returns_list_with_current_status() {
    let env = TestEnv::new();
    for target in ["/pods", "/pods/"] {
        let (status, text) = env.get(target).await;
        let list = value(&text);
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("PodList"), &json!("v1"))
        );
        assert_eq!(list["items"][0]["metadata"]["name"], "web");
        assert_eq!(list["items"][0]["status"]["phase"], "Running");
    }
    assert_eq!(
        env.send(Method::POST, "/pods", "").await.0,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn timeline_and_explain_return_records_and_blocker() {
    let env = TestEnv::new();
    let (uid, why) = ("web-uid".into(), &env.deps.explainer);
    let mut blocked = entry("web");
    blocked.blocker = Some(Blocker {
        reason: Reason::FailedMount,
        container: None,
        message: "configmap \"c\" not found".into(),
        probe: None,
        since: Timestamp::UNIX_EPOCH,
        next_retry: None,
    });
    why.timelines.seen(&blocked.pod);
    why.status_store.publish(blocked);
    let record = |kind, name, outcome| {
        let what = RecordKey::with_subject(kind, name, "c");
        why.timelines.record_instant(&uid, what, outcome);
    };
    record(RecordKind::Source, "ADD", RecordOutcome::Done);
    let missing = RecordOutcome::failed("not found");
    record(RecordKind::Wait, "references", missing);

    let (status, text) = env.get("/windlass/v1/pods/default/web/timeline").await;
    assert_eq!(status, StatusCode::OK);
    let timeline: PodTimeline = serde_json::from_str(&text).expect("JSON");
    let lines: Vec<String> = timeline.records.iter().map(ToString::to_string).collect();
    let failed = "wait references c failed: not found";
    assert_eq!(lines, ["source ADD c", failed]);
    assert_eq!(
        (timeline.uid.as_str(), timeline.removed_at),
        ("web-uid", None)
    );

    let (status, text) = env.get("/windlass/v1/pods/default/web/explain").await;
    assert_eq!(status, StatusCode::OK);
    let explanation = value(&text);
    let blocker = &explanation["blocker"];
    assert_eq!(blocker["reason"], "FailedMount");
    assert_eq!(blocker["since"], "1970-01-01T00:00:00Z");
    let who = "user: fix the pod spec or manifest (no automatic retry)";
    assert_eq!(blocker["waitingFor"], who);
    assert_eq!(explanation["records"][0]["message"], "not found");
    assert_eq!(explanation["records"].as_array().map(Vec::len), Some(1));

    for target in ["default/other/timeline", "default/other/explain"] {
        let (status, text) = env.get(&format!("/windlass/v1/pods/{target}")).await;
        let expected = (StatusCode::NOT_FOUND, "pod \"other\" not found\n");
        assert_eq!((status, text.as_str()), expected);
    }
    // the read-only port has no such endpoint
    let target = "/windlass/v1/pods/default/web/timeline";
    let read_only = env.send_to(ServerType::ReadOnly, Method::GET, target, "");
    assert_eq!(read_only.await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn healthz_returns_overall_and_single_checks() {
    let mut env = TestEnv::new();
    let ok = (StatusCode::OK, "ok".to_owned());
    for target in [
        "/healthz",
        "/healthz/",
        "/healthz/ping",
        "/healthz/log",
        "/healthz/syncloop",
    ] {
        assert_eq!(env.get(target).await, ok, "{target}");
    }
    assert_eq!(env.get("/healthz/other").await.0, StatusCode::NOT_FOUND);
    let (_, series) = env.get("/metrics/slis").await;
    assert!(
        series.contains("kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1\n"),
        "{series}"
    );
    env.deps.health = Arc::new(Healthy(false));
    let (status, text) = env.get("/healthz").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("[-]syncloop failed: it stands"), "{text}");
    let (_, series) = env.get("/metrics/slis").await;
    for line in [
        "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 0\n",
        "kubernetes_healthchecks_total{name=\"syncloop\",status=\"error\",type=\"healthz\"} 1\n",
        "kubernetes_healthchecks_total{name=\"syncloop\",status=\"success\",type=\"healthz\"} 1\n",
    ] {
        assert!(series.contains(line), "{line} in {series}");
    }
}

#[tokio::test]
async fn top_returns_usage_or_error() {
    let env = TestEnv::new();
    let (status, text) = env.get("/windlass/v1/top").await;
    assert_eq!(status, StatusCode::OK);
    let used = json!({"cpuNanoCores": null, "memoryBytes": null});
    assert_eq!(
        value(&text),
        json!({"node": "n1", "usage": used, "pods": []})
    );
    *env.stats.1.lock().expect("lock") = Some(StatsUnavailable::Unknown);
    let (status, text) = env.get("/windlass/v1/top").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.starts_with("failed to list pod stats: "), "{text}");
}

#[tokio::test]
async fn requests_are_counted_by_group() {
    let env = TestEnv::new();
    env.get("/pods").await;
    env.get("/no/such/path").await;
    let (_, text) = env.get("/metrics").await;
    for line in [
        "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"pods\",server_type=\"readwrite\"} 1\n",
        "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"other\",server_type=\"readwrite\"} 1\n",
        "kubelet_http_requests_duration_seconds_count{long_running=\"false\",method=\"GET\",path=\"pods\",server_type=\"readwrite\"} 1\n",
        // the scrape itself
        "kubelet_http_inflight_requests{long_running=\"false\",method=\"GET\",path=\"metrics\",server_type=\"readwrite\"} 1\n",
        "kubelet_http_inflight_requests{long_running=\"false\",method=\"GET\",path=\"pods\",server_type=\"readwrite\"} 0\n",
        "\nkubelet_container_log_filesystem_used_bytes{container=\"app\",namespace=\"default\",pod=\"web\",uid=\"u1\"} 4096\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert_eq!(env.get("/metrics/probes").await.0, StatusCode::OK);
}

#[tokio::test]
async fn scrape_collects_only_needed_stats() {
    let env = TestEnv::new();
    let (status, summary) = env.get("/stats/summary").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(value(&summary)["node"]["nodeName"], "n1");
    env.get("/stats/summary?only_cpu_and_memory=true").await;
    env.send(Method::POST, "/stats/summary", "{}").await;
    let (_, resource) = env.get("/metrics/resource").await;
    assert!(
        resource.contains("node_cpu_usage_seconds_total 5 0\n"),
        "{resource}"
    );
    let (_, cadvisor) = env.get("/metrics/cadvisor").await;
    assert!(
        cadvisor.contains("container_cpu_usage_seconds_total{"),
        "{cadvisor}"
    );
    let asked = env.stats.0.lock().expect("lock");
    let (few, all) = (StatsSelection::CPU_AND_MEMORY, StatsSelection::ALL);
    assert_eq!(*asked, [all, few, all, few, all]);
}

#[tokio::test]
async fn unavailable_cgroup_stats_fail_the_scrape() {
    let env = TestEnv::new();
    let late = StatsUnavailable::Late(Duration::from_secs(5));
    *env.stats.1.lock().expect("lock") = Some(late);
    let (status, text) = env.get("/stats/summary").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        text,
        "Internal Error: failed to list pod stats: reading cgroups timed out after 5 s\n"
    );
    let (status, text) = env.get("/metrics/resource").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("\nresource_scrape_error 1\n"), "{text}");
    assert!(!text.contains("node_cpu_usage"), "{text}");
    let (_, text) = env.get("/metrics/cadvisor").await;
    assert!(text.contains("\ncontainer_scrape_error 1\n"), "{text}");
}

#[tokio::test]
async fn configz_flagz_and_statusz_return_agent_state() {
    let mut env = TestEnv::new();
    let (_, text) = env.get("/configz").await;
    assert_eq!(value(&text), json!({"kubeletconfig": {"port": 10250}}));
    let (_, text) = env.get("/flagz").await;
    assert!(text.starts_with("\nkubelet flagz\nWarning: "), "{text}");
    assert!(text.ends_with("\n\nroot-dir=/r\n"), "{text}");
    let (_, text) = env.get("/statusz").await;
    assert!(text.contains("\nUp: 1 hr 01 min 03 sec\n"), "{text}");
    assert!(
        text.contains("\nEmulation version: v1.36.2+windlass.0.1.0\n"),
        "{text}"
    );
    env.deps.settings.flagz = false;
    env.deps.settings.statusz = false;
    for target in ["/flagz", "/statusz"] {
        assert_eq!(env.get(target).await.0, StatusCode::NOT_FOUND, "{target}");
    }
}

#[tokio::test]
async fn verbosity_is_set_by_put() {
    let mut env = TestEnv::new();
    let put = |env: &TestEnv, body| {
        let env = TestEnv {
            deps: env.deps.clone(),
            stats: Arc::clone(&env.stats),
            verbosity: Arc::clone(&env.verbosity),
        };
        async move { env.send(Method::PUT, "/debug/flags/v", body).await }
    };
    let (status, text) = put(&env, "4").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(text, "successfully set klog.logging.verbosity to 4\n");
    for body in ["", "-1", "many", "99999999999"] {
        assert_eq!(put(&env, body).await.0, StatusCode::BAD_REQUEST, "{body}");
    }
    assert_eq!(
        env.get("/debug/flags/v").await.0,
        StatusCode::NOT_ACCEPTABLE
    );
    env.deps.settings.debug_flags = false;
    assert_eq!(
        put(&env, "4").await,
        (
            StatusCode::METHOD_NOT_ALLOWED,
            "flags endpoint is disabled.\n".to_owned()
        )
    );
    assert_eq!(*env.verbosity.0.lock().expect("lock"), [4]);
}

#[tokio::test]
async fn pprof_endpoints_name_alternatives() {
    let mut env = TestEnv::new();
    let (status, text) = env.get("/debug/pprof/").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("perf record"), "{text}");
    let (status, text) = env.get("/debug/pprof/heap").await;
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
    assert!(text.contains("do not exist"), "{text}");
    assert!(!env.get("/debug/pprof/cmdline").await.1.is_empty());
    env.deps.settings.profiling = false;
    assert_eq!(
        env.get("/debug/pprof/heap").await.0,
        StatusCode::METHOD_NOT_ALLOWED
    );
}

#[tokio::test]
async fn debug_endpoints_are_disabled_on_read_only_port_or_by_setting() {
    let mut env = TestEnv::new();
    let disabled = (
        StatusCode::METHOD_NOT_ALLOWED,
        "Debug endpoints are disabled.\n".to_owned(),
    );
    let targets = [
        "/run/a/b/c",
        "/exec/a/b/c",
        "/attach/a/b/c",
        "/portForward/a/b",
        "/containerLogs/a/b/c",
        "/runningpods/",
        "/debug/pprof/heap",
        "/logs/",
        "/logs/syslog",
    ];
    for target in targets {
        let asked = env.send_to(ServerType::ReadOnly, Method::GET, target, "");
        assert_eq!(asked.await, disabled, "{target}");
    }
    for target in [
        "/configz",
        "/flagz",
        "/statusz",
        "/debug/flags/v",
        "/checkpoint/a/b/c",
    ] {
        let asked = env.send_to(ServerType::ReadOnly, Method::GET, target, "");
        assert_eq!(asked.await.0, StatusCode::NOT_FOUND, "{target}");
    }
    for target in [
        "/pods",
        "/healthz",
        "/metrics",
        "/stats/summary",
        "/metrics/cadvisor",
    ] {
        let asked = env.send_to(ServerType::ReadOnly, Method::GET, target, "");
        assert_eq!(asked.await.0, StatusCode::OK, "{target}");
    }
    env.deps.settings.debugging = false;
    assert_eq!(env.get("/exec/a/b/c").await, disabled);
    assert_eq!(env.get("/pods").await.0, StatusCode::OK);
}

#[tokio::test]
async fn runningpods_returns_pods_of_runtime() {
    let env = TestEnv::new();
    let (status, text) = env.get("/runningpods/").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(value(&text)["items"], json!([]), "nothing was started");
}
