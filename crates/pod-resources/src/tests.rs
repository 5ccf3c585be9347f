//! Both services on real sockets.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use windlass_container_manager::{AssignedResourcesReader, ManagerParts, Managers};
use windlass_metrics::Metrics;
use windlass_node_proto::podresources_v1 as v1;
use windlass_node_proto::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use windlass_node_proto::podresources_v1::pod_resources_lister_server::PodResourcesLister;
use windlass_node_proto::podresources_v1alpha1 as v1alpha1;
use windlass_node_proto::pods_v1alpha1::pods_client::PodsClient;
use windlass_node_proto::pods_v1alpha1::pods_server::Pods as PodsService;
use windlass_node_proto::pods_v1alpha1::{
    EventType, GetPodRequest, ListPodsRequest, WatchPodsRequest,
};
use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_resource_managers::devices::Devices;
use windlass_resource_managers::memory::{MemoryConfig, MemoryManager};
use windlass_resource_managers::topology::{TopologyConfig, TopologyManager};
use windlass_status::{PodStatusEntry, PodStatusStore};
use windlass_topology::fake::FakeMachine;
use windlass_types::PodUid;
use windlass_types::corev1::{Container, Pod, PodStatus};
use windlass_types::view::PodWorkerState;

use crate::pod_bytes::tests::line as pod_line;
use crate::{ClaimSource, PodResources, Pods, Socket, serve_pod_resources, serve_pods};

/// Timeout for a busy host.
const SOON: Duration = Duration::from_secs(30);

struct TestEnv {
    status_store: PodStatusStore,
    metrics: Metrics,
    root: TempDir,
    shutdown: CancellationToken,
}

impl TestEnv {
    fn new() -> Self {
        Self::with(true)
    }

    fn with(only_active: bool) -> Self {
        let env = Self {
            status_store: PodStatusStore::new(),
            metrics: Metrics::new().expect("metrics"),
            root: tempfile::tempdir().expect("directory"),
            shutdown: CancellationToken::new(),
        };
        env.serve(only_active, None);
        env
    }

    fn with_managers(managers: Managers) -> Self {
        let env = Self {
            status_store: PodStatusStore::new(),
            metrics: Metrics::new().expect("metrics"),
            root: tempfile::tempdir().expect("directory"),
            shutdown: CancellationToken::new(),
        };
        env.serve(true, Some(managers));
        env
    }

    fn serve(&self, only_active: bool, managers: Option<Managers>) {
        let bind = |socket: Socket| socket.bind(self.root.path()).expect("socket");
        let (resources, pods) = (bind(Socket::PodResources), bind(Socket::Pods));
        let status_store = || self.status_store.clone();
        let service = PodResources::new(
            status_store(),
            only_active,
            self.metrics.pod_resources.clone(),
        );
        let service = match managers {
            Some(managers) => {
                let (_, published) = watch::channel(Arc::new(managers));
                service.with_assigned(AssignedResourcesReader::new(published))
            }
            None => service,
        };
        let served = serve_pod_resources(resources, service, self.shutdown.clone());
        tokio::spawn(async { served.await.expect("served") });
        let service = Pods::new(status_store(), self.shutdown.clone());
        let served = serve_pods(pods, service, self.shutdown.clone());
        tokio::spawn(async { served.await.expect("served") });
    }

    async fn resources(&self) -> PodResourcesListerClient<Channel> {
        PodResourcesListerClient::new(channel(&Socket::PodResources.path(self.root.path())).await)
    }

    async fn pods(&self) -> PodsClient<Channel> {
        PodsClient::new(channel(&Socket::Pods.path(self.root.path())).await)
    }

    /// `List`, as `namespace/name[containers]`.
    async fn list(&self) -> String {
        let request = v1::ListPodResourcesRequest {};
        let answer = self.resources().await.list(request).await.expect("pods");
        let lines = answer.into_inner().pod_resources;
        lines.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    async fn get(&self, namespace: &str, name: &str) -> String {
        let request = v1::GetPodResourcesRequest {
            pod_name: name.to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        match self.resources().await.get(request).await {
            Ok(answer) => line(&answer.into_inner().pod_resources.expect("a pod")),
            Err(status) => refusal(&status),
        }
    }

    fn metric(&self, line: &str) -> bool {
        let text = self.metrics.render().expect("text");
        text.lines().any(|it| it == line)
    }
}

async fn channel(path: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).expect("endpoint");
    endpoint.connect().await.expect("connection")
}

fn line(pod: &v1::PodResources) -> String {
    let names = pod.containers.iter().map(|it| {
        let nothing = v1::ContainerResources {
            name: it.name.clone(),
            ..Default::default()
        };
        assert_eq!(*it, nothing);
        it.name.as_str()
    });
    let names: Vec<_> = names.collect();
    format!("{}/{}[{}]", pod.namespace, pod.name, names.join(","))
}

fn refusal(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// A pod with a sidecar, an init container and an app container.
fn entry(name: &str, phase: PodWorkerState, status: &str) -> PodStatusEntry {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}")},
        "spec": {
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}],
            "containers": [{"name": "app"}],
        },
        "status": {"phase": "Pending"},
    }))
    .expect("a pod");
    PodStatusEntry {
        status: Arc::new(PodStatus {
            phase: Some(status.to_owned()),
            ..PodStatus::default()
        }),
        worker_state: phase,
        observed: true,
        ..PodStatusEntry::new(Arc::new(pod))
    }
}

#[tokio::test]
async fn list_is_refused_until_pods_with_devices_are_known() {
    let machine = FakeMachine::default().build();
    let mut devices = Devices::default();
    let owner = PodUid::from("u-web");
    devices.reserve(&owner, "app", "a.b/gpu", &BTreeSet::from(["0".to_owned()]));
    let env = TestEnv::with_managers(Managers::new(ManagerParts {
        topology: TopologyManager::new(TopologyConfig::default(), &machine).expect("settings"),
        cpus: CpuManager::new(&CpuSettings::default(), Arc::new(machine.clone()))
            .expect("settings"),
        unlimited_exclusive_cpus: true,
        reports_health: true,
        cpu_retry: Duration::from_secs(10),
        memory: MemoryManager::new(MemoryConfig::default(), &machine),
        devices,
        machine,
    }));
    let request = v1::ListPodResourcesRequest {};
    let refused = env
        .resources()
        .await
        .list(request)
        .await
        .expect_err("refused");
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    let text = env.get("default", "web").await;
    assert!(text.contains("not known yet"), "{text}");
    env.status_store
        .publish(entry("web", PodWorkerState::SyncPod, "Pending"));
    let listed = env.resources().await.list(request).await.expect("pods");
    let app = &listed.into_inner().pod_resources[0].containers[1];
    assert_eq!(app.devices[0].device_ids, ["0"]);
}

#[tokio::test]
async fn list_has_active_pods_with_sidecars_and_app_containers() {
    let env = TestEnv::new();
    assert_eq!(env.list().await, "");
    env.status_store
        .publish(entry("web", PodWorkerState::SyncPod, "Running"));
    env.status_store
        .publish(entry("ends", PodWorkerState::TerminatingPod, "Failed"));
    env.status_store
        .publish(entry("failed", PodWorkerState::SyncPod, "Failed"));
    env.status_store
        .publish(entry("gone", PodWorkerState::TerminatedPod, "Running"));
    assert_eq!(
        env.list().await,
        "default/ends[side,app] default/web[side,app]"
    );
    assert_eq!(env.get("default", "web").await, "default/web[side,app]");
    let missing = |name: &str| format!("Unknown: pod {name} in namespace default not found");
    assert_eq!(env.get("default", "none").await, missing("none"));
    assert_eq!(env.get("default", "gone").await, missing("gone"));

    let request = v1::AllocatableResourcesRequest {};
    let mut client = env.resources().await;
    let answer = client.get_allocatable_resources(request).await;
    let answer = answer.expect("an answer").into_inner();
    assert_eq!(answer, v1::AllocatableResourcesResponse::default());

    let old = channel(&Socket::PodResources.path(env.root.path())).await;
    let mut old = v1alpha1::pod_resources_lister_client::PodResourcesListerClient::new(old);
    let answer = old.list(v1alpha1::ListPodResourcesRequest {}).await;
    let pods = answer.expect("pods").into_inner().pod_resources;
    let names: Vec<_> = pods
        .iter()
        .map(|it| (&*it.name, it.containers.len()))
        .collect();
    assert_eq!(names, [("ends", 1), ("failed", 1), ("gone", 1), ("web", 1)]);

    let family = "kubelet_pod_resources_endpoint";
    for (what, version, count) in [
        ("requests_total", "v1", 6),
        ("requests_total", "v1alpha1", 1),
        ("requests_list", "v1", 2),
        ("requests_get", "v1", 3),
        ("errors_get", "v1", 2),
        ("requests_get_allocatable", "v1", 1),
    ] {
        let line = format!("{family}_{what}{{server_api_version=\"{version}\"}} {count}");
        assert!(env.metric(&line), "{line}");
    }
}

#[tokio::test]
async fn claims_of_containers_are_listed() {
    #[derive(Debug)]
    struct Claims;
    impl ClaimSource for Claims {
        fn claims(&self, _: &Pod, container: &Container) -> Vec<v1::DynamicResource> {
            vec![v1::DynamicResource {
                claim_name: format!("of-{}", container.name),
                ..v1::DynamicResource::default()
            }]
        }
    }
    let env = TestEnv::new();
    let web = entry("web", PodWorkerState::SyncPod, "Running");
    env.status_store.publish(web);
    let metrics = env.metrics.pod_resources.clone();
    let service = PodResources::new(env.status_store.clone(), true, metrics);
    let service = service.with_claims(Arc::new(Claims));
    let request = Request::new(v1::ListPodResourcesRequest {});
    let listed = PodResourcesLister::list(&service, request).await;
    let pods = listed.expect("pods").into_inner().pod_resources;
    let claims = pods[0].containers.iter();
    let claims = claims.flat_map(|it| &it.dynamic_resources);
    let names: Vec<_> = claims.map(|it| it.claim_name.as_str()).collect();
    assert_eq!(names, ["of-side", "of-app"]);
}

#[tokio::test]
async fn without_the_gate_terminated_pods_are_listed() {
    let env = TestEnv::with(false);
    let failed = entry("failed", PodWorkerState::SyncPod, "Failed");
    env.status_store.publish(failed);
    assert_eq!(env.list().await, "default/failed[side,app]");
    assert!(env.get("default", "failed").await.ends_with("not found"));
}

#[tokio::test]
async fn socket_is_private_and_replaced_only_if_stale() {
    let root = tempfile::tempdir().expect("directory");
    let socket = Socket::PodResources;
    // the listener is closed, but its file remains, as after an agent exit
    drop(socket.bind(root.path()).expect("socket"));
    let _alive = socket.bind(root.path()).expect("socket");
    let mode = |path: &Path| {
        let metadata = std::fs::metadata(path).expect("metadata");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&socket.path(root.path())), 0o600);
    assert_eq!(mode(&root.path().join("pod-resources")), 0o750);
    let error = socket.bind(root.path()).expect_err("a live agent");
    assert!(
        error.to_string().contains("another agent is running"),
        "{error}"
    );
    std::fs::write(root.path().join("pods-api"), "x").expect("file");
    let error = Socket::Pods.bind(root.path()).expect_err("no directory");
    assert!(error.to_string().contains("pods-api: "), "{error}");
}

#[tokio::test]
async fn requests_over_the_rate_limit_are_rejected() {
    let env = TestEnv::new();
    let (resources, pods) = (env.resources().await, env.pods().await);
    let list = |mut client: PodResourcesListerClient<Channel>| async move {
        let answer = client.list(v1::ListPodResourcesRequest {}).await;
        answer.map_or_else(|status| refusal(&status), |_| "answered".to_owned())
    };
    // 100 per second are admitted after the burst of ten: 190 more take 1.9 s
    let burst = (0..200).map(|_| list(resources.clone()));
    let answers = futures::future::join_all(burst).await;
    let refused = answers.iter().filter(|it| *it != "answered");
    assert!(refused.clone().count() > 0);
    for words in refused {
        assert_eq!(words, "ResourceExhausted: rejected by rate limit");
    }
    // the other service has its own rate limit
    let answer = pods.clone().get_pod(GetPodRequest::default()).await;
    let words = refusal(&answer.expect_err("no such pod"));
    assert_eq!(words, "NotFound: pod with UID  not found");
}

#[tokio::test]
async fn malformed_request_is_rejected_and_service_continues() {
    let env = TestEnv::new();
    let path = Socket::PodResources.path(env.root.path());
    let mut connection = UnixStream::connect(&path).await.expect("connection");
    connection.write_all(&[0xff; 4096]).await.expect("sent");
    let mut answer = Vec::new();
    let end = connection.read_to_end(&mut answer);
    // the connection ends, with or without an error
    let _ = tokio::time::timeout(SOON, end).await.expect("an end");
    let broken = call_of(b"localhost", "/v1.PodResourcesLister/Get", b"\x0a\xff");
    assert_eq!(raw_call(&path, &broken).await, "HEADERS");
    // a service of the other socket
    let answer = PodsClient::new(channel(&path).await)
        .get_pod(GetPodRequest::default())
        .await;
    let code = answer.expect_err("not here").code();
    assert_eq!(code, tonic::Code::Unimplemented);
    assert_eq!(env.list().await, "");
}

#[tokio::test]
async fn client_may_use_the_socket_path_as_authority() {
    let env = TestEnv::new();
    let path = Socket::PodResources.path(env.root.path());
    for authority in [
        "%2Fvar%2Flib%2Fkubelet.sock",
        "/var/lib/kubelet.sock",
        "localhost",
    ] {
        let call = call_of(authority.as_bytes(), "/v1.PodResourcesLister/List", b"");
        let answer = raw_call(&path, &call).await;
        assert_eq!(answer, "HEADERS DATA HEADERS", "{authority}");
    }
}

/// Frames of a request with a message.
fn call_of(authority: &[u8], path: &str, message: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).expect("a short one");
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, length(payload), kind, flags, 0, 0, 0, stream];
        [&head, payload].concat()
    };
    let string = |bytes: &[u8]| [&[length(bytes)], bytes].concat();
    // POST, http, the path, the authority, the content type, and te
    let fields = [
        b"\x83\x86\x44".to_vec(),
        string(path.as_bytes()),
        b"\x41".to_vec(),
        string(authority),
        b"\x5f".to_vec(),
        string(b"application/grpc"),
        b"\x40".to_vec(),
        string(b"te"),
        string(b"trailers"),
    ];
    let data = [&[0, 0, 0, 0, length(message)], message].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, &fields.concat()),
        frame(0, 1, 1, &data),
    ]
    .concat()
}

/// Sends it and returns the kinds of the response frames.
async fn raw_call(path: &Path, call: &[u8]) -> String {
    let mut connection = UnixStream::connect(path).await.expect("connection");
    connection.write_all(call).await.expect("sent");
    let answer = async {
        let mut kinds = Vec::new();
        loop {
            let mut head = [0; 9];
            connection.read_exact(&mut head).await.expect("a frame");
            let length = usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            connection.read_exact(&mut payload).await.expect("a frame");
            match (head[8], head[3]) {
                (1, 0) => kinds.push("DATA"),
                (1, 1) => kinds.push("HEADERS"),
                (1, 3) => return "RST_STREAM".to_owned(),
                _ => continue,
            }
            if head[4] & 1 != 0 {
                return kinds.join(" ");
            }
        }
    };
    tokio::time::timeout(SOON, answer).await.expect("an answer")
}

/// Metadata and status of an encoded pod.
fn line_of(bytes: &[u8]) -> String {
    pod_line(bytes, &json!({"1": {}, "3": {}}))
}

/// Store entry of a pod without containers.
fn bare(name: &str, observed: bool, status: &str) -> PodStatusEntry {
    let entry = entry(name, PodWorkerState::SyncPod, status);
    let mut pod = Pod::clone(&entry.pod);
    pod.spec = None;
    PodStatusEntry {
        pod: Arc::new(pod),
        observed,
        ..entry
    }
}

#[tokio::test]
async fn pods_have_the_status_of_this_node() {
    let env = TestEnv::new();
    let mut client = env.pods().await;
    env.status_store.publish(bare("web", true, "Running"));
    env.status_store.publish(bare("new", false, ""));
    let answer = client.list_pods(ListPodsRequest {}).await.expect("pods");
    let pods: Vec<_> = answer
        .into_inner()
        .pods
        .iter()
        .map(|it| line_of(it))
        .collect();
    let (new, web) = (
        "1{1:new 3:default 5:u-new} 3{1:Pending}",
        "1{1:web 3:default 5:u-web} 3{1:Running}",
    );
    assert_eq!(pods, [new, web]);
    let request = |uid: &str| GetPodRequest {
        pod_uid: uid.to_owned(),
    };
    let answer = client.get_pod(request("u-web")).await.expect("a pod");
    assert_eq!(line_of(&answer.into_inner().pod), web);
    let answer = client.get_pod(request("web")).await;
    let words = refusal(&answer.expect_err("no such UID"));
    assert_eq!(words, "NotFound: pod with UID web not found");
}

#[tokio::test]
async fn watch_sends_all_pods_and_then_changes() {
    let env = TestEnv::new();
    env.status_store.publish(bare("b", true, "Running"));
    env.status_store.publish(bare("a", false, ""));
    let answer = env.pods().await.watch_pods(WatchPodsRequest {}).await;
    let mut events = answer.expect("a watch").into_inner();
    let mut next = async || {
        let event = tokio::time::timeout(SOON, events.message()).await;
        let Some(event) = event.expect("in time").expect("no error") else {
            return "end".to_owned();
        };
        let (kind, pod) = (event.r#type().as_str_name(), line_of(&event.pod));
        format!("{kind} {pod}").trim_end().to_owned()
    };
    assert_eq!(next().await, "ADDED 1{1:a 3:default 5:u-a} 3{1:Pending}");
    assert_eq!(next().await, "ADDED 1{1:b 3:default 5:u-b} 3{1:Running}");
    assert_eq!(next().await, "INITIAL_SYNC_COMPLETE");
    env.status_store.publish(bare("a", true, "Pending"));
    assert_eq!(next().await, "MODIFIED 1{1:a 3:default 5:u-a} 3{1:Pending}");
    // no event without a visible change; a pod is added when its status is known
    env.status_store.publish(bare("a", true, "Pending"));
    env.status_store.publish(bare("c", false, ""));
    env.status_store.publish(bare("c", true, "Pending"));
    assert_eq!(next().await, "ADDED 1{1:c 3:default 5:u-c} 3{1:Pending}");
    env.status_store.publish(bare("d", false, ""));
    env.status_store.remove(&"u-d".into());
    env.status_store.remove(&"u-b".into());
    assert_eq!(next().await, "DELETED 1{1:b 3:default 5:u-b}");
    env.shutdown.cancel();
    assert_eq!(next().await, "end");
}

#[tokio::test]
async fn slow_watch_gets_the_latest_state_of_each_pod() {
    let status_store = PodStatusStore::new();
    let pods = Pods::new(status_store.clone(), CancellationToken::new());
    let answer = PodsService::watch_pods(&pods, Request::new(WatchPodsRequest {})).await;
    let mut events = answer.expect("a watch").into_inner();
    let event = events.next().await.expect("an event").expect("no error");
    assert_eq!(event.r#type(), EventType::InitialSyncComplete);
    for round in 0..1000 {
        for name in ["a", "b"] {
            status_store.publish(bare(name, true, &format!("round {round}")));
        }
    }
    status_store.remove(&"u-b".into());
    status_store.publish(bare("c", true, "last"));
    let mut lines = Vec::new();
    for _ in 0..2 {
        let event = events.next().await.expect("an event").expect("no error");
        lines.push(line_of(&event.pod));
    }
    let expected = [
        "1{1:a 3:default 5:u-a} 3{1:round 999}",
        "1{1:c 3:default 5:u-c} 3{1:last}",
    ];
    assert_eq!(lines, expected);
    assert!(futures::poll!(events.next()).is_pending());
}
