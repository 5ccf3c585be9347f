//! The fault proxy between the client and the fake runtime's server: what it forwards, and the
//! effect of its rules.

#![allow(clippy::expect_used, reason = "a helper of a test fails it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tempfile::TempDir;
use tokio::time::Instant;
use tonic::Code;
use windlass_cri::{
    CriClient, CriCode, CriOptions, CriResult, HungCalls, RuntimeService, TrackedRuntime,
};
use windlass_mailboxes::clock::SystemClock;
use windlass_metrics::Metrics;
use windlass_testing::FakeRuntime;
use windlass_testing::cri_proxy::{Action, CriProxy, Rule};
use windlass_testing::fake_runtime::{EventMode, Exec, Operation, ServeGuard};
use windlass_timelines::Timelines;
use windlass_types::cri::{ContainerConfig, ListFilter, SandboxConfig};
use windlass_types::{ContainerId, SandboxId, names};

/// Timeout of every wait in these tests.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

struct TestEnv {
    fake: FakeRuntime,
    proxy: CriProxy,
    client: CriClient,
    runtime_socket: PathBuf,
    guard: Option<ServeGuard>,
    _dir: TempDir,
}

impl TestEnv {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let runtime_socket = dir.path().join("runtime.sock");
        let fake = FakeRuntime::new(Arc::new(SystemClock), 1);
        fake.add_image("busybox");
        let guard = fake.serve(&runtime_socket).expect("served");
        let proxy = CriProxy::start(&dir.path().join("proxy.sock"), &runtime_socket);
        let proxy = proxy.expect("proxy");
        let options = CriOptions {
            timeout: WAIT_TIMEOUT,
            ..CriOptions::new(Metrics::new().expect("metrics").runtime_calls)
        };
        let client = CriClient::connect(&proxy.endpoint(), options).expect("endpoint");
        Self {
            fake,
            proxy,
            client,
            runtime_socket,
            guard: Some(guard),
            _dir: dir,
        }
    }

    async fn sandbox(&self, name: &str) -> SandboxId {
        let config = sandbox_config(name);
        self.client
            .run_pod_sandbox(&config, "")
            .await
            .expect("sandbox")
    }

    async fn started(&self, name: &str) -> (SandboxId, ContainerId) {
        let sandbox = self.sandbox(name).await;
        let container = self
            .client
            .create_container(&sandbox, &container_config(name), &sandbox_config(name))
            .await
            .expect("container");
        self.client
            .start_container(&container)
            .await
            .expect("started");
        (sandbox, container)
    }

    /// Starts a call that has to wait.
    fn status_of(&self, id: &SandboxId) -> tokio::task::JoinHandle<CriResult<()>> {
        let (client, id) = (self.client.clone(), id.clone());
        tokio::spawn(async move { client.pod_sandbox_status(&id).await.map(drop) })
    }
}

fn sandbox_config(name: &str) -> SandboxConfig {
    SandboxConfig {
        name: name.into(),
        namespace: "default".into(),
        uid: format!("{name}-uid").into(),
        labels: [(names::LABEL_POD_UID.to_owned(), format!("{name}-uid"))].into(),
        ..SandboxConfig::default()
    }
}

fn container_config(pod: &str) -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        image: "busybox".into(),
        user_specified_image: "busybox".into(),
        labels: [(names::LABEL_POD_UID.to_owned(), format!("{pod}-uid"))].into(),
        ..ContainerConfig::default()
    }
}

/// Waits for what another task does in real time.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT_TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "not within {WAIT_TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn without_rules_all_calls_pass() {
    let env = TestEnv::new();
    let (sandbox, container) = env.started("web").await;
    let client = &env.client;
    assert_eq!(client.version().await.expect("version").name, "fake");
    env.fake.set_exec("app", Exec::prints(3, "no"));
    let command = ["true".to_owned()];
    let output = client.exec_sync(&container, &command, WAIT_TIMEOUT).await;
    assert_eq!(output.expect("ran").exit_code, 3);
    // errors are in trailers
    let missing = SandboxId::from("missing");
    let error = client.pod_sandbox_status(&missing).await.expect_err("gone");
    assert!(error.is_not_found(), "{error}");
    client.stop_pod_sandbox(&sandbox).await.expect("stopped");
    // many calls share one connection, and a large response has several frames
    for n in 0..200 {
        env.fake
            .add_image(&format!("registry.example/team/image{n}:1"));
    }
    let lists = (0..20).map(|_| windlass_cri::ImageService::list_images(client));
    for list in futures::future::join_all(lists).await {
        assert_eq!(list.expect("list").len(), 201);
    }
}

#[tokio::test]
async fn unknown_services_and_streams_pass_with_headers() {
    for mode in [EventMode::Cri, EventMode::Containerd] {
        let env = TestEnv::new();
        env.fake.set_event_mode(mode);
        let mut events = env.client.events().await.expect("stream");
        // only the first event shows that a containerd subscription is open
        until("the stream is open", || {
            !env.fake.calls_of(Operation::Events, "").is_empty()
        })
        .await;
        let (_, container) = env.started("web").await;
        env.fake.kill_container(&container, 1);
        let stopped = async {
            while let Some(event) = events.next().await {
                let event = event.expect("event");
                if event.kind == windlass_types::cri::RuntimeEventKind::Stopped {
                    return event.id;
                }
            }
            String::new()
        };
        let id = tokio::time::timeout(WAIT_TIMEOUT, stopped)
            .await
            .expect("an event");
        assert_eq!(id, container.as_str(), "{mode:?}");
    }
}

#[tokio::test]
async fn rule_matches_calls_by_method_and_request_content() {
    let env = TestEnv::new();
    let (sick, well) = (env.sandbox("sick").await, env.sandbox("well").await);
    let rule = Rule::new("PodSandboxStatus", Action::Hang).with(sick.as_str());
    let hang = env.proxy.add(rule);
    let waiting = env.status_of(&sick);
    until("the call waits", || hang.waiting() == 1).await;
    let client = &env.client;
    client.pod_sandbox_status(&well).await.expect("another one");
    let all = client.list_pod_sandboxes(&ListFilter::default()).await;
    assert_eq!(all.expect("list").len(), 2);
    client
        .stop_pod_sandbox(&sick)
        .await
        .expect("another method");
    assert_eq!((hang.hits(), hang.waiting()), (1, 1));
    assert!(!waiting.is_finished());
    hang.release();
    waiting.await.expect("no panic").expect("it completes");
    client.pod_sandbox_status(&sick).await.expect("no rule now");
    assert_eq!((hang.hits(), hang.waiting()), (1, 0));
}

#[tokio::test]
async fn cancelled_call_does_not_reach_the_runtime() {
    let env = TestEnv::new();
    let sandbox = env.sandbox("sick").await;
    let hang = env.proxy.add(Rule::new("PodSandboxStatus", Action::Hang));
    let call = env.status_of(&sandbox);
    until("the call waits", || hang.waiting() == 1).await;
    call.abort();
    until("nothing waits", || hang.waiting() == 0).await;
    let reads = env.fake.calls_of(Operation::PodSandboxStatus, "");
    assert!(reads.is_empty(), "it never reached the runtime: {reads:?}");
}

#[tokio::test]
async fn rule_fails_or_delays_a_number_of_calls() {
    let env = TestEnv::new();
    let sandbox = env.sandbox("web").await;
    let refusal = Action::Fail(Code::Internal, "100% broken\nby order".to_owned());
    let fails = env
        .proxy
        .add(Rule::new("PodSandboxStatus", refusal).times(2));
    for _ in 0..2 {
        let error = env.client.pod_sandbox_status(&sandbox).await;
        let error = error.expect_err("refused");
        assert_eq!(error.code, CriCode::Other);
        assert_eq!(error.message, "100% broken\nby order");
    }
    let late = Action::Delay(Duration::from_millis(60));
    env.proxy.add(Rule::new("PodSandboxStatus", late));
    let begun = Instant::now();
    let answer = env.client.pod_sandbox_status(&sandbox).await;
    answer.expect("the third goes through");
    assert!(begun.elapsed() >= Duration::from_millis(60));
    assert_eq!(fails.hits(), 2);
}

#[tokio::test]
async fn response_can_be_lost_or_replaced_after_the_call() {
    let env = TestEnv::new();
    let denial = Action::DenyReply(Code::Unavailable, "connection reset".to_owned());
    env.proxy.add(Rule::new("RunPodSandbox", denial).times(1));
    let config = sandbox_config("web");
    let denied = env.client.run_pod_sandbox(&config, "").await;
    assert_eq!(denied.expect_err("denied").code, CriCode::Unavailable);
    let sandboxes = env.fake.sandboxes();
    let (id, ..) = sandboxes.first().expect("it was made");

    let lost = env
        .proxy
        .add(Rule::new("StopPodSandbox", Action::LoseReply));
    let call = tokio::spawn({
        let (client, id) = (env.client.clone(), id.clone());
        async move { client.stop_pod_sandbox(&id).await }
    });
    until("it was stopped", || {
        env.fake.sandboxes().iter().all(|(_, _, _, ready)| !ready)
    })
    .await;
    assert!(!call.is_finished());
    lost.release();
    call.await.expect("no panic").expect("the answer after all");
}

#[tokio::test]
async fn connection_closes_with_the_runtime() {
    let mut env = TestEnv::new();
    env.sandbox("web").await;
    env.guard = None;
    let error = env.client.version().await.expect_err("it is gone");
    assert_eq!(error.code, CriCode::Unavailable);
    env.guard = Some(env.fake.serve(&env.runtime_socket).expect("served"));
    let end = Instant::now() + WAIT_TIMEOUT;
    while let Err(error) = env.client.version().await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn hung_call_is_listed_with_its_pod() {
    let env = TestEnv::new();
    let calls = HungCalls::new(Arc::new(SystemClock));
    let timelines = Timelines::new(Arc::new(SystemClock), None);
    let runtime = Arc::new(env.client.clone());
    let watched = TrackedRuntime::new(runtime, calls.clone(), timelines);
    let id = watched.run_pod_sandbox(&sandbox_config("sick"), "").await;
    let id = id.expect("sandbox");
    let hang = env.proxy.add(Rule::new("PodSandboxStatus", Action::Hang));
    let call = tokio::spawn(async move { watched.pod_sandbox_status(&id).await });
    let pods = tokio::time::timeout(Duration::from_secs(5), calls.changed()).await;
    assert_eq!(
        pods.expect("told").into_iter().next(),
        Some("sick-uid".into())
    );
    assert_eq!(calls.all()[0].operation, "PodSandboxStatus");
    hang.release();
    call.await.expect("no panic").expect("answered");
    assert_eq!(calls.all(), []);
}
