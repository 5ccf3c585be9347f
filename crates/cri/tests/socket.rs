//! The client over a real Unix socket, against the fake runtime's server.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper of a test fails it"
)]

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tempfile::TempDir;
use windlass_cri::{CriClient, CriCode, CriOptions, CriResult, ImageService, RuntimeService};
use windlass_mailboxes::clock::SystemClock;
use windlass_metrics::Metrics;
use windlass_testing::FakeRuntime;
use windlass_testing::fake_runtime::{Behavior, EventMode, Fault, Operation, Pull, ServeGuard};
use windlass_types::cri::{ContainerConfig, ListFilter, SandboxConfig};
use windlass_types::{ContainerId, ContainerState, Retry, SandboxId, names};

/// Timeout of every wait in these tests.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

struct TestEnv {
    fake: FakeRuntime,
    client: CriClient,
    metrics: Metrics,
    socket: PathBuf,
    guard: Option<ServeGuard>,
    _dir: TempDir,
}

impl TestEnv {
    fn new(timeout: Duration) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let socket = dir.path().join("cri.sock");
        let fake = FakeRuntime::new(Arc::new(SystemClock), 1);
        fake.add_image("busybox");
        let metrics = Metrics::new().expect("metrics");
        let options = CriOptions {
            timeout,
            ..CriOptions::new(metrics.runtime_calls.clone())
        };
        let endpoint = format!("unix://{}", socket.display());
        let client = CriClient::connect(&endpoint, options).expect("endpoint");
        let mut env = Self {
            fake,
            client,
            metrics,
            socket,
            guard: None,
            _dir: dir,
        };
        env.serve();
        env
    }

    fn serve(&mut self) {
        self.guard = Some(self.fake.serve(&self.socket).expect("served"));
    }

    async fn started(&self) -> (SandboxId, ContainerId) {
        let client = &self.client;
        let sandbox = client
            .run_pod_sandbox(&sandbox_config(), "")
            .await
            .expect("sandbox");
        let container = client
            .create_container(&sandbox, &container_config(), &sandbox_config())
            .await
            .expect("container");
        client.start_container(&container).await.expect("started");
        (sandbox, container)
    }

    fn count(&self, operation: Operation, subject: &str) -> usize {
        self.fake.calls_of(operation, subject).len()
    }
}

fn sandbox_config() -> SandboxConfig {
    SandboxConfig {
        name: "web".into(),
        namespace: "default".into(),
        uid: "u1".into(),
        log_directory: "/var/log/pods/default_web_u1".into(),
        labels: [(names::LABEL_POD_UID.to_owned(), "u1".to_owned())].into(),
        ..SandboxConfig::default()
    }
}

fn container_config() -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt: 2,
        image: "busybox".into(),
        envs: vec![("A".into(), "1".into())],
        labels: [(names::LABEL_POD_UID.to_owned(), "u1".to_owned())].into(),
        annotations: [(names::ANN_CONTAINER_HASH.to_owned(), "ab".to_owned())].into(),
        log_path: "app/2.log".into(),
        ..ContainerConfig::default()
    }
}

#[track_caller]
fn code<T: std::fmt::Debug>(result: CriResult<T>) -> CriCode {
    result.expect_err("an error").code
}

/// Retries until the expected result.
async fn eventually<T, F: Future<Output = T>>(
    mut ask: impl FnMut() -> F,
    good: impl Fn(&T) -> bool,
) -> T {
    let attempts = async {
        loop {
            let answer = ask().await;
            if good(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, attempts)
        .await
        .expect("in time")
}

#[tokio::test]
async fn pod_lifecycle_works_over_the_socket() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let client = &env.client;
    let version = client.version().await.expect("version");
    assert_eq!(
        (version.name.as_str(), version.api_version.as_str()),
        ("fake", "v1")
    );
    let status = client.status().await.expect("status");
    assert_eq!((status.runtime_error, status.network_error), (None, None));

    let (sandbox, container) = env.started().await;
    assert_eq!(
        env.fake.container_config(&container),
        Some(container_config())
    );
    assert_eq!(env.fake.sandbox_config(&sandbox), Some(sandbox_config()));

    let filter = ListFilter::of_pod(&"u1".into());
    let rows = client.list_pod_sandboxes(&filter).await.expect("rows");
    assert_eq!(
        (rows.len(), rows[0].ready, rows[0].uid.as_str()),
        (1, true, "u1")
    );
    let detail = client.pod_sandbox_status(&sandbox).await.expect("detail");
    assert_eq!(format!("{:?}", detail.ips), "[10.88.0.2]");
    let rows = client.list_containers(&filter).await.expect("rows");
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].state, rows[0].attempt),
        (ContainerState::Running, 2)
    );
    assert_eq!(rows[0].sandbox_id, sandbox);
    let detail = client
        .container_status(&container)
        .await
        .expect("detail")
        .observed;
    assert_eq!((detail.hash, detail.finished_at), (Some(0xab), None));
    assert_eq!(detail.log_path, "/var/log/pods/default_web_u1/app/2.log");

    client
        .stop_container(&container, Duration::from_secs(5))
        .await
        .expect("stopped");
    let detail = client
        .container_status(&container)
        .await
        .expect("detail")
        .observed;
    assert_eq!(
        (detail.state, detail.exit_code),
        (ContainerState::Exited, 143)
    );
    client.remove_container(&container).await.expect("removed");
    client.stop_pod_sandbox(&sandbox).await.expect("stopped");
    client.remove_pod_sandbox(&sandbox).await.expect("removed");
    assert!(
        client
            .list_pod_sandboxes(&ListFilter::default())
            .await
            .expect("rows")
            .is_empty()
    );
}

#[tokio::test]
async fn images_are_pulled_and_removed_over_the_socket() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let client = &env.client;
    assert_eq!(client.image_status("nginx").await.expect("answer"), None);
    let id = client
        .pull_image("nginx", None, &sandbox_config())
        .await
        .expect("pulled");
    let image = client
        .image_status("nginx")
        .await
        .expect("answer")
        .expect("there");
    assert_eq!(image.id, id);
    assert_eq!(client.list_images().await.expect("images").len(), 2);
    client.remove_image("nginx").await.expect("removed");
    client
        .remove_image("nginx")
        .await
        .expect("not being there is fine");
    env.fake.set_pull("nope", Pull::not_found("nope"));
    let error = client
        .pull_image("nope", None, &sandbox_config())
        .await
        .expect_err("refused");
    assert_eq!(error.code, CriCode::NotFound);
    assert!(
        error.message.starts_with("failed to pull and unpack image"),
        "{error}"
    );
}

#[tokio::test]
async fn stop_and_remove_of_missing_objects_succeed() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let client = &env.client;
    let (sandbox, container) = (SandboxId::from("s"), ContainerId::from("c"));
    client
        .stop_container(&container, Duration::ZERO)
        .await
        .expect("fine");
    client.remove_container(&container).await.expect("fine");
    client.stop_pod_sandbox(&sandbox).await.expect("fine");
    client.remove_pod_sandbox(&sandbox).await.expect("fine");
    assert_eq!(
        code(client.container_status(&container).await),
        CriCode::NotFound
    );
    assert_eq!(
        code(client.pod_sandbox_status(&sandbox).await),
        CriCode::NotFound
    );
    assert_eq!(
        code(client.start_container(&container).await),
        CriCode::NotFound
    );

    // Runtimes lose the code of inner errors: the text decides, but not for a start, where a
    // missing binary is "not found" as well.
    let lost = "rpc error: container \"c\": not found";
    for operation in [Operation::RemoveContainer, Operation::StartContainer] {
        env.fake
            .inject(Fault::fail(operation, 1, CriCode::Other, lost));
    }
    client.remove_container(&container).await.expect("fine");
    assert_eq!(
        code(client.start_container(&container).await),
        CriCode::Other
    );
}

#[tokio::test]
async fn each_call_ends_at_its_deadline() {
    let env = TestEnv::new(Duration::from_millis(200));
    let (_, container) = env.started().await;
    for operation in [
        Operation::Status,
        Operation::ListContainers,
        Operation::StopContainer,
        Operation::RunPodSandbox,
    ] {
        env.fake.inject(Fault::hang(operation));
    }
    let timed = async |call: &mut (dyn Future<Output = CriCode> + Unpin)| {
        let before = tokio::time::Instant::now();
        let code = tokio::time::timeout(WAIT_TIMEOUT, call)
            .await
            .expect("in time");
        (code, before.elapsed().as_millis() / 100)
    };
    let client = &env.client;
    let late = CriCode::DeadlineExceeded;
    let mut call = Box::pin(async { code(client.status().await) });
    assert_eq!(timed(&mut call).await, (late, 2));
    let (config, other) = (
        SandboxConfig {
            attempt: 1,
            ..sandbox_config()
        },
        Duration::from_millis(400),
    );
    let mut call = Box::pin(async { code(client.run_pod_sandbox(&config, "").await) });
    assert_eq!(timed(&mut call).await, (late, 4), "twice the usual");
    let mut call = Box::pin(async { code(client.stop_container(&container, other).await) });
    assert_eq!(timed(&mut call).await, (late, 6), "grace on top");
    // A pull has none.
    env.fake.set_pull(
        "slow",
        Pull {
            takes: Duration::from_millis(700),
            ..Pull::default()
        },
    );
    client
        .pull_image("slow", None, &sandbox_config())
        .await
        .expect("pulled");
}

#[tokio::test]
async fn oversized_grace_period_is_capped() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let (_, container) = env.started().await;
    // the largest `terminationGracePeriodSeconds` that the API accepts
    let for_ever = Duration::from_secs(i64::MAX as u64);
    let command = ["true".to_owned()];
    let ran = env.client.exec_sync(&container, &command, for_ever).await;
    assert_eq!(ran.expect("ran").exit_code, 0);
    let stopped = env.client.stop_container(&container, for_ever).await;
    stopped.expect("stopped");
}

#[tokio::test]
async fn client_reconnects_when_the_socket_is_back() {
    let mut env = TestEnv::new(WAIT_TIMEOUT);
    env.client.version().await.expect("version");
    env.guard = None;
    let error = env.client.version().await.expect_err("gone");
    assert_eq!(
        (error.code, error.retry()),
        (CriCode::Unavailable, Retry::Soon)
    );
    // By now a connection was refused, and the reason names the socket.
    let error = env.client.version().await.expect_err("gone");
    assert!(error.message.contains("cri.sock"), "{error}");
    env.serve();
    let client = &env.client;
    eventually(|| client.version(), |answer| answer.is_ok())
        .await
        .expect("version");
}

#[tokio::test]
async fn call_in_flight_fails_when_the_runtime_exits() {
    let mut env = TestEnv::new(WAIT_TIMEOUT);
    env.fake.inject(Fault::hang(Operation::Status));
    let client = env.client.clone();
    let call = tokio::spawn(async move { client.status().await });
    eventually(
        || async { env.count(Operation::Status, "") },
        |count| *count == 1,
    )
    .await;
    env.guard = None;
    let result = tokio::time::timeout(WAIT_TIMEOUT, call)
        .await
        .expect("in time")
        .expect("joined");
    assert_eq!(code(result), CriCode::Unavailable);
}

#[tokio::test]
async fn responses_up_to_16_mib_are_accepted() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let megabyte = "x".repeat(1 << 20);
    for number in 0..14 {
        env.fake.add_image_with(&format!("big{number}"), |image| {
            image.username.clone_from(&megabyte);
        });
    }
    assert_eq!(env.client.list_images().await.expect("14 MiB").len(), 15);
    for number in 14..17 {
        env.fake.add_image_with(&format!("big{number}"), |image| {
            image.username.clone_from(&megabyte);
        });
    }
    assert_eq!(code(env.client.list_images().await), CriCode::Other);
}

/// A pod and its container, each with a name of nine MiB: lists of the fake have no annotations.
async fn pod_with_large_names(env: &TestEnv, number: usize) {
    let name = format!("{number}{}", "x".repeat(9 << 20));
    let sandbox = SandboxConfig {
        name: name.clone(),
        uid: format!("uid-{number}").into(),
        labels: [(names::LABEL_POD_UID.to_owned(), format!("uid-{number}"))].into(),
        ..sandbox_config()
    };
    let container = ContainerConfig {
        name,
        ..container_config()
    };
    let client = &env.client;
    let id = client.run_pod_sandbox(&sandbox, "").await.unwrap();
    let of = sandbox_config();
    let created = client.create_container(&id, &container, &of).await;
    created.unwrap();
}

#[tokio::test]
async fn lists_larger_than_a_message_are_streamed() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    let all = ListFilter::default();
    pod_with_large_names(&env, 0).await;
    assert_eq!(env.client.list_containers(&all).await.unwrap().len(), 1);
    pod_with_large_names(&env, 1).await;
    let error = env.client.list_containers(&all).await.unwrap_err();
    let fix = "the container runtime cannot stream lists: upgrade it or use fewer and smaller pod \
               annotations";
    assert!(error.to_string().ends_with(fix), "{error}");

    env.fake.stream_lists();
    for _ in 0..2 {
        let containers = env.client.list_containers(&all).await.unwrap();
        let sandboxes = env.client.list_pod_sandboxes(&all).await.unwrap();
        assert_eq!((containers.len(), sandboxes.len()), (2, 2));
    }
    // two lists that were too large, and one that found that out; none is requested twice
    // afterwards
    assert_eq!(env.count(Operation::ListContainers, ""), 5);
    assert_eq!(env.count(Operation::ListPodSandboxes, ""), 2);
    let of_one = ListFilter::of_pod(&"uid-1".into());
    assert_eq!(
        env.client.list_pod_sandboxes(&of_one).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn cri_events_include_the_pod() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    env.fake
        .set_behavior("app", Behavior::exits(Duration::from_millis(50), 1));
    let mut events = env.client.events().await.expect("events");
    assert_eq!(env.count(Operation::Events, ""), 1);
    let (_, container) = env.started().await;
    let mut lines = Vec::new();
    while lines.len() < 5 {
        let event = tokio::time::timeout(WAIT_TIMEOUT, events.next())
            .await
            .expect("in time");
        let event = event.expect("event").expect("event");
        assert_eq!(event.uid, Some("u1".into()));
        let what = if event.id == container.as_str() {
            "container"
        } else {
            "sandbox"
        };
        lines.push(format!("{what} {:?}", event.kind));
    }
    assert_eq!(
        lines,
        [
            "sandbox Created",
            "sandbox Started",
            "container Created",
            "container Started",
            "container Stopped",
        ]
    );
}

#[tokio::test]
async fn without_cri_events_containerd_events_are_used() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    env.fake.set_event_mode(EventMode::Containerd);
    let mut events = env.client.events().await.expect("events");
    let (_, container) = env.started().await;
    env.fake.oom_kill(&container);
    let mut lines = Vec::new();
    while lines.len() < 6 {
        let event = tokio::time::timeout(WAIT_TIMEOUT, events.next())
            .await
            .expect("in time");
        let event = event.expect("event").expect("event");
        assert_eq!(event.uid, None);
        lines.push(format!("{:?}", event.kind));
    }
    // events wait for the list to agree with them, so their order may change
    lines.sort();
    assert_eq!(
        lines.join(" "),
        "Created Created Oom Started Started Stopped"
    );
}

#[tokio::test]
async fn events_of_a_runtime_without_them_are_unimplemented() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    env.fake.set_event_mode(EventMode::Off);
    let result = env.client.events().await.map(|_| ());
    assert_eq!(code(result), CriCode::Unimplemented);
}

#[tokio::test]
async fn event_stream_ends_with_an_error_when_the_runtime_exits() {
    let mut env = TestEnv::new(WAIT_TIMEOUT);
    let mut events = env.client.events().await.expect("events");
    env.guard = None;
    let last = tokio::time::timeout(WAIT_TIMEOUT, events.next())
        .await
        .expect("in time");
    assert_eq!(code(last.expect("an end")), CriCode::Unavailable);
    let after = tokio::time::timeout(WAIT_TIMEOUT, events.next())
        .await
        .expect("in time");
    assert!(after.is_none());
}

#[tokio::test]
async fn calls_are_counted_under_upstream_operation_names() {
    let env = TestEnv::new(WAIT_TIMEOUT);
    env.started().await;
    env.client
        .container_status(&"c".into())
        .await
        .expect_err("not there");
    let text = env.metrics.render().expect("text");
    for line in [
        "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"create_container\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"start_container\"} 1",
        "kubelet_runtime_operations_errors_total{operation_type=\"container_status\"} 1",
        "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"} 1",
    ] {
        assert!(text.contains(line), "{line} not in {text}");
    }
}
