//! Which stream is requested from the runtime, and the messages of rejections. The streams
//! themselves are tested in `windlass_streams`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use windlass_cri::{CriCode, CriError, CriResult, RuntimeService, RuntimeStreams, StreamSet};
use windlass_streams::Sessions;
use windlass_testing::FakeRuntime;
use windlass_testing::fake_runtime::Exec;
use windlass_types::cri::{ContainerConfig, SandboxConfig};
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, SandboxId,
    Timestamp, names,
};

use crate::tests::TestEnv;
use crate::{NodeApi, ServerType, router};

/// Records requests and returns the URL of an unreachable server.
#[derive(Debug, Default)]
pub(crate) struct FakeStreams {
    requests: Mutex<Vec<String>>,
    /// Object of the request.
    ids: Mutex<Vec<String>>,
    fails: Mutex<Option<CriCode>>,
    /// Address of the streaming server.
    url: Mutex<Option<String>>,
}

impl FakeStreams {
    fn respond_for(&self, id: &str, line: String) -> CriResult<String> {
        self.ids.lock().expect("lock").push(id.to_owned());
        self.respond(line)
    }

    fn respond(&self, line: String) -> CriResult<String> {
        self.requests.lock().expect("lock").push(line);
        match *self.fails.lock().expect("lock") {
            Some(code) => Err(CriError::new("exec", code, "runtime error")),
            None => {
                let url = self.url.lock().expect("lock").clone();
                Ok(url.unwrap_or("http://127.0.0.1:1/token".into()))
            }
        }
    }
}

fn line(streams: StreamSet) -> String {
    let mut on = Vec::new();
    for (name, is_on) in [
        ("in", streams.stdin),
        ("out", streams.stdout),
        ("err", streams.stderr),
        ("tty", streams.tty),
    ] {
        on.extend(is_on.then_some(name));
    }
    on.join("+")
}

#[async_trait]
impl RuntimeStreams for FakeStreams {
    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamSet,
    ) -> CriResult<String> {
        self.respond_for(id.as_str(), format!("exec {command:?} {}", line(streams)))
    }

    async fn attach(&self, id: &ContainerId, streams: StreamSet) -> CriResult<String> {
        self.respond_for(id.as_str(), format!("attach {}", line(streams)))
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> CriResult<String> {
        self.respond_for(id.as_str(), format!("port_forward {ports:?}"))
    }

    async fn checkpoint_container(
        &self,
        _: &ContainerId,
        location: &Path,
        timeout: Duration,
    ) -> CriResult<()> {
        let requests = format!("checkpoint {} {timeout:?}", location.display());
        self.respond(requests).map(drop)
    }
}

pub(crate) struct Streaming {
    pub(crate) env: TestEnv,
    streams: Arc<FakeStreams>,
    runtime: Arc<FakeRuntime>,
    _root: tempfile::TempDir,
}

impl Streaming {
    /// The pod `web`, whose container `app` is running and `idle` is not.
    pub(crate) async fn new() -> Self {
        let mut env = TestEnv::new();
        let streams = Arc::<FakeStreams>::default();
        let root = tempfile::tempdir().expect("directory");
        env.deps.streams = Arc::clone(&streams) as _;
        env.deps.paths.root_dir = root.path().to_owned();
        let runtime = Arc::new(FakeRuntime::new(Arc::clone(&env.deps.clock), 1));
        runtime.add_image("busybox");
        runtime.set_exec("app", Exec::prints(0, "uid=0\n"));
        let labels = BTreeMap::from([
            (names::LABEL_POD_UID.to_owned(), "web-uid".to_owned()),
            (names::LABEL_POD_NAME.to_owned(), "web".to_owned()),
            (names::LABEL_POD_NAMESPACE.to_owned(), "default".to_owned()),
            (names::LABEL_CONTAINER_NAME.to_owned(), "app".to_owned()),
        ]);
        let sandbox = SandboxConfig {
            name: "web".into(),
            namespace: "default".into(),
            uid: "web-uid".into(),
            labels: labels.clone(),
            ..SandboxConfig::default()
        };
        let id = runtime
            .run_pod_sandbox(&sandbox, "")
            .await
            .expect("sandbox");
        let container = ContainerConfig {
            name: "app".into(),
            image: "busybox".into(),
            labels,
            ..ContainerConfig::default()
        };
        let id = runtime.create_container(&id, &container, &sandbox).await;
        let id = id.expect("container");
        runtime.start_container(&id).await.expect("started");
        env.deps.runtime = Arc::clone(&runtime) as _;
        Self {
            env,
            streams,
            runtime,
            _root: root,
        }
    }

    /// Returns the requests to the runtime.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.streams.requests.lock().expect("lock"))
    }

    /// Sets the address of the streaming server.
    pub(crate) fn set_url(&self, url: &str) {
        *self.streams.url.lock().expect("lock") = Some(url.to_owned());
    }

    /// Returns status and message of the response, and the requests to the runtime.
    async fn line(&self, method: &str, target: &str, upgrade: &str) -> String {
        let method = Method::from_bytes(method.as_bytes()).expect("method");
        let mut request = Request::builder().method(method).uri(target);
        if !upgrade.is_empty() {
            request = request.header("connection", "Upgrade");
            request = request.header("upgrade", upgrade);
        }
        let request = request.body(Body::empty()).expect("request");
        let router = router(NodeApi::new(self.env.deps.clone()), ServerType::ReadWrite);
        let response = router.oneshot(request).await.expect("answer");
        let status = response.status();
        let body = response.into_body().collect().await.expect("body");
        let message = String::from_utf8_lossy(&body.to_bytes()).trim().to_owned();
        let requests = self.requests();
        match requests.is_empty() {
            true => format!("{} {message}", status.as_u16()),
            false => format!("{} {}", status.as_u16(), requests.join(", ")),
        }
    }
}

/// A container instance, as the PLEG observed it.
pub(crate) fn instance(id: &str, name: &str, state: ContainerState) -> ObservedContainer {
    ObservedContainer {
        id: id.into(),
        name: name.to_owned(),
        sandbox_id: "s1".into(),
        state,
        ..ObservedContainer::default()
    }
}

#[tokio::test]
async fn stream_of_observed_container_needs_no_runtime_list() {
    let streaming = Streaming::new().await;
    streaming.env.deps.cache.record(Arc::new(ObservedPod {
        uid: "web-uid".into(),
        sandboxes: vec![ObservedSandbox {
            id: "s1".into(),
            attempt: 0,
            ready: true,
            created_at: Timestamp::UNIX_EPOCH,
            host_network: false,
            ips: Vec::new(),
        }],
        containers: vec![instance("c1", "app", ContainerState::Running)],
        ..ObservedPod::default()
    }));
    streaming.runtime.clear_calls();
    for target in [
        "/exec/default/web/app?command=ls&output=1",
        "/attach/default/web/app?output=1",
        "/portForward/default/web",
    ] {
        let line = streaming.line("POST", target, "SPDY/3.1").await;
        assert!(!line.starts_with("404 "), "{target} {line}");
    }
    let ids = streaming.streams.ids.lock().expect("lock").clone();
    assert_eq!(ids, ["c1", "c1", "s1"]);
    assert_eq!(streaming.runtime.calls().len(), 0);
    // the runtime has removed it and runs another
    *streaming.streams.fails.lock().expect("lock") = Some(CriCode::NotFound);
    let target = "/exec/default/web/app?command=ls&output=1";
    let line = streaming.line("POST", target, "SPDY/3.1").await;
    assert!(line.starts_with("404 "), "{line}");
    let ids = streaming.streams.ids.lock().expect("lock").clone();
    let newest = streaming.runtime.running(&"web-uid".into(), "app");
    let newest = newest.expect("it runs").id;
    assert_eq!(ids[3..], ["c1", newest.as_str()]);
}

#[tokio::test]
async fn streams_are_requested_or_rejected_as_upstream() {
    let streaming = Streaming::new().await;
    const NONE: &str = "400 you must specify at least 1 of stdin, stdout, stderr";
    const NO_POD: &str = "404 pod does not exist";
    // 500 behind a URL: the server is unreachable
    #[rustfmt::skip]
    let cases = [
        ("POST", "/exec/default/web/app?command=ls&command=-l+a&input=1&output=1&error=1", "SPDY/3.1",
            r#"500 exec ["ls", "-l a"] in+out+err"#),
        ("GET", "/exec/default/web/web-uid/app?command=sh&input=1&output=1&error=1&tty=1", "websocket",
            r#"500 exec ["sh"] in+out+tty"#),
        ("POST", "/exec/default/web/app?command=ls&input=true", "SPDY/3.1", NONE),
        ("POST", "/exec/default/web/app?command=ls&output=0", "SPDY/3.1", NONE),
        ("POST", "/exec/default/other/app?command=ls&output=1", "SPDY/3.1", NO_POD),
        ("POST", "/exec/default/web/other-uid/app?command=ls&output=1", "SPDY/3.1", NO_POD),
        ("POST", "/exec/default/web/idle?command=ls&output=1", "SPDY/3.1",
            r#"500 container not found ("idle")"#),
        ("POST", "/exec/default/web/app?command=ls&output=1", "", "400 Upgrade request required"),
        ("POST", "/exec/default/web/app?command=%ff&output=1", "SPDY/3.1", "400 the query is not UTF-8"),
        ("PUT", "/exec/default/web/app?command=ls&output=1", "SPDY/3.1", "405 "),
        ("POST", "/attach/default/web/app?input=1&output=1&tty=1", "SPDY/3.1", "500 attach in+out"),
        ("POST", "/attach/default/web/idle?output=1", "SPDY/3.1",
            r#"500 container not found ("idle")"#),
        ("POST", "/attach/default/web/app", "SPDY/3.1", NONE),
        ("POST", "/portForward/default/web", "SPDY/3.1", "500 port_forward []"),
        ("POST", "/portForward/default/web/web-uid", "SPDY/3.1", "500 port_forward []"),
        ("GET", "/portForward/default/web?port=80,443&port=1", "websocket",
            "500 port_forward [80, 443, 1]"),
        ("GET", "/portForward/default/web", "websocket",
            r#"400 query parameter "port" is required"#),
        ("GET", "/portForward/default/web?port=", "websocket",
            r#"400 query parameter "port" cannot be empty"#),
        ("GET", "/portForward/default/web?port=0", "websocket", r#"400 port "0" must be > 0"#),
        ("GET", "/portForward/default/web?port=99999", "websocket",
            r#"400 unable to parse "99999" as a port: number too large to fit in target type"#),
        ("POST", "/portForward/default/other", "SPDY/3.1", NO_POD),
    ];
    for (method, target, upgrade, expected) in cases {
        let line = streaming.line(method, target, upgrade).await;
        assert_eq!(line, expected, "{method} {target}");
    }
}

#[tokio::test]
async fn runtime_error_maps_to_404_or_500() {
    let streaming = Streaming::new().await;
    let target = "/exec/default/web/app?command=ls&output=1";
    for (code, expected) in [(CriCode::NotFound, "404 "), (CriCode::Other, "500 ")] {
        *streaming.streams.fails.lock().expect("lock") = Some(code);
        let line = streaming.line("POST", target, "SPDY/3.1").await;
        assert!(line.starts_with(expected), "{line}");
        assert_eq!(streaming.env.deps.sessions.open(), 0);
    }
}

#[tokio::test]
async fn run_returns_command_output() {
    let streaming = Streaming::new().await;
    #[rustfmt::skip]
    let cases = [
        ("POST", "/run/default/web/app?cmd=id+-u", "200 uid=0"),
        ("POST", "/run/default/web/web-uid/app?cmd=id", "200 uid=0"),
        ("GET", "/run/default/web/app?cmd=id", "405 "),
        ("POST", "/run/default/other/app?cmd=id", "404 pod does not exist"),
        ("POST", "/run/default/web/idle?cmd=id", r#"500 container not found ("idle")"#),
    ];
    for (method, target, expected) in cases {
        let line = streaming.line(method, target, "").await;
        assert_eq!(line, expected, "{method} {target}");
    }
}

#[tokio::test]
async fn run_command_needs_session_permit() {
    let mut streaming = Streaming::new().await;
    let target = "/run/default/web/app?cmd=id";
    assert_eq!(streaming.line("POST", target, "").await, "200 uid=0");
    assert_eq!(streaming.env.deps.sessions.open(), 0);
    let none = windlass_streams::Limits {
        sessions: 0,
        ..Default::default()
    };
    streaming.env.deps.sessions = Sessions::new(none, CancellationToken::new());
    let line = streaming.line("POST", target, "").await;
    assert!(line.starts_with("429 "), "{line}");
}

#[tokio::test]
async fn checkpoint_is_written_below_root_dir() {
    let mut streaming = Streaming::new().await;
    let file = "checkpoints/checkpoint-web_default-app-2026-11-22T04:00:00Z.tar";
    let file = streaming.env.deps.paths.root_dir.join(file);
    let target = "/checkpoint/default/web/app";
    #[rustfmt::skip]
    let cases = [
        (format!("{target}?timeout=5&timeout=7"), format!("200 checkpoint {} 7s", file.display())),
        (target.to_owned(), format!("200 checkpoint {} 0ns", file.display())),
        (format!("{target}?timeout=x"), "404 cannot parse value of timeout parameter".to_owned()),
        ("/checkpoint/default/web/other".into(), "404 container other does not exist".to_owned()),
        ("/checkpoint/default/other/app".into(), "404 pod does not exist".to_owned()),
    ];
    for (target, expected) in cases {
        assert_eq!(
            streaming.line("POST", &target, "").await,
            expected,
            "{target}"
        );
    }
    let (status, body) = streaming.env.send(Method::POST, target, "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, format!("{{\"items\":[\"{}\"]}}", file.display()));
    for (code, expected) in [
        (CriCode::Unimplemented, StatusCode::NOT_FOUND),
        (CriCode::Other, StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        *streaming.streams.fails.lock().expect("lock") = Some(code);
        let (status, body) = streaming.env.send(Method::POST, target, "").await;
        assert_eq!(status, expected);
        let message = "checkpointing of default/web/app failed (runtime error)\n";
        assert_eq!(body, message);
    }
    streaming.env.deps.settings.checkpoint = false;
    let (status, _) = streaming.env.send(Method::POST, target, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
