//! Sessions over real sockets: a client, this crate, and a streaming server, correct or faulty.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::copy::{BUFFER_BYTES, End, copy_bidirectional};
use crate::{CommandStreams, Limits, Sessions, headers};
use crate::{is_remote_command_v5, is_tunneled_spdy};

/// Timeout for operations that take milliseconds, on a busy host.
pub(crate) const SOON: Duration = Duration::from_secs(20);

const UPGRADE: &str = "POST /exec?x=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\n\
    Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
    Authorization: Bearer secret\r\nContent-Length: 0\r\n\r\n";
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nearly";

/// A node with one streaming server that the test plays itself.
pub(crate) struct Node {
    address: SocketAddr,
    pub(crate) sessions: Sessions,
    shutdown: CancellationToken,
    runtime: TcpListener,
}

impl Node {
    pub(crate) async fn start(limits: Limits) -> Self {
        let runtime = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}/exec/token", runtime.local_addr().expect("bound"));
        Self::serving(limits, runtime, url).await
    }

    pub(crate) async fn with_url(limits: Limits, url: String) -> Self {
        let runtime = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        Self::serving(limits, runtime, url).await
    }

    async fn serving(limits: Limits, runtime: TcpListener, url: String) -> Self {
        let shutdown = CancellationToken::new();
        let sessions = Sessions::new(limits, shutdown.clone());
        let router = Router::new()
            .fallback(handle)
            .with_state((sessions.clone(), url));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            address,
            sessions,
            shutdown,
            runtime,
        }
    }

    /// Connects a client that sends `words`.
    pub(crate) async fn client(&self, words: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.expect("connect");
        client.write_all(words.as_bytes()).await.expect("write");
        client
    }

    /// Accepts a connection of the node; returns it with the head of its request.
    pub(crate) async fn accept(&self) -> (TcpStream, String) {
        let (mut stream, _) = timeout(SOON, self.runtime.accept())
            .await
            .expect("in time")
            .expect("accepted");
        let head = read_head(&mut stream).await;
        (stream, head)
    }

    /// Opens a session; the test has both ends.
    async fn session(&self) -> (TcpStream, TcpStream) {
        let mut client = self.client(UPGRADE).await;
        let (mut runtime, _) = self.accept().await;
        runtime.write_all(SWITCHED).await.expect("write");
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        read_exactly(&mut client, "early").await;
        (client, runtime)
    }

    pub(crate) async fn wait_for_all_permits(&self) {
        let free = async {
            while self.sessions.open() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, free).await.expect("permits are released");
    }
}

async fn handle(State((sessions, url)): State<(Sessions, String)>, request: Request) -> Response {
    let client = Some([10, 0, 0, 9].into());
    let response = match sessions.reserve(&request) {
        Ok(permit) if is_remote_command_v5(request.headers()) => {
            let query = request.uri().query().unwrap_or_default();
            let streams = CommandStreams {
                stdin: query.contains("in"),
                stdout: query.contains("out"),
                stderr: query.contains("err"),
                tty: query.contains("tty"),
            };
            permit.translate(request, &url, streams)
        }
        Ok(permit) if is_tunneled_spdy(request.headers()) => {
            permit.tunnel(request, &url, client).await
        }
        Ok(permit) => permit.proxy(request, &url, client).await,
        Err(error) => Err(error),
    };
    response.unwrap_or_else(|error| (error.status(), error.to_string()).into_response())
}

/// Reads up to the empty line, byte by byte, without reading ahead.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
    };
    timeout(SOON, read).await.expect("in time");
    String::from_utf8(head).expect("text")
}

pub(crate) async fn read_exactly(stream: &mut TcpStream, expected: &str) {
    let mut read = vec![0; expected.len()];
    timeout(SOON, stream.read_exact(&mut read))
        .await
        .expect("in time")
        .expect("bytes");
    assert_eq!(String::from_utf8_lossy(&read), expected);
}

/// Reads up to the end or a reset.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut read))
        .await
        .expect("an end in time");
    String::from_utf8_lossy(&read).into_owned()
}

fn with_short_timeout() -> Limits {
    Limits {
        upgrade_timeout: Duration::from_millis(200),
        ..Limits::default()
    }
}

#[tokio::test]
async fn proxied_session_copies_early_bytes_both_ways() {
    let node = Node::start(Limits::default()).await;
    let mut client = node.client(&format!("{UPGRADE}eager")).await;
    let (mut runtime, head) = node.accept().await;
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /exec/token http/1.1\r\n"), "{head}");
    for line in [
        "host: node",
        "connection: upgrade",
        "upgrade: spdy/3.1",
        "x-stream-protocol-version: v4.channel.k8s.io",
        "x-forwarded-for: 10.0.0.9",
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    assert!(!head.contains("secret"), "{head}");
    runtime.write_all(SWITCHED).await.expect("write");
    let answer = read_head(&mut client).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("\r\nupgrade: spdy/3.1\r\n"), "{answer}");
    assert!(
        answer.contains("\r\nx-stream-protocol-version: v4.channel.k8s.io\r\n"),
        "{answer}"
    );
    read_exactly(&mut client, "early").await;
    read_exactly(&mut runtime, "eager").await;
    client.write_all(b"ping").await.expect("write");
    read_exactly(&mut runtime, "ping").await;
    runtime.write_all(b"pong").await.expect("write");
    read_exactly(&mut client, "pong").await;
}

#[tokio::test]
async fn runtime_output_arrives_before_end_of_session() {
    let node = Node::start(Limits::default()).await;
    let (mut client, mut runtime) = node.session().await;
    let last_output = "x".repeat(1 << 20);
    let write = async {
        runtime
            .write_all(last_output.as_bytes())
            .await
            .expect("write");
        drop(runtime);
    };
    let (bytes, ()) = tokio::join!(read_to_end(&mut client), write);
    assert_eq!(bytes.len(), last_output.len());
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn disconnected_client_closes_runtime_connection() {
    let node = Node::start(Limits::default()).await;
    let (client, mut runtime) = node.session().await;
    assert_eq!(node.sessions.open(), 1);
    drop(client);
    assert_eq!(read_to_end(&mut runtime).await, "");
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn client_disconnect_before_response_closes_runtime_connection() {
    let node = Node::start(Limits::default()).await;
    let client = node.client(UPGRADE).await;
    let (mut runtime, _) = node.accept().await;
    drop(client);
    assert_eq!(read_to_end(&mut runtime).await, "");
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn runtime_error_response_is_passed_on_truncated() {
    let node = Node::start(Limits::default()).await;
    let mut client = node.client(UPGRADE).await;
    let (mut runtime, _) = node.accept().await;
    let rejection = "HTTP/1.1 403 Forbidden\r\nX-Why: no\r\nContent-Length: 4\r\n\r\nno!\n";
    runtime
        .write_all(rejection.as_bytes())
        .await
        .expect("write");
    let head = read_head(&mut client).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    assert!(head.contains("\r\nx-why: no\r\n"), "{head}");
    read_exactly(&mut client, "no!\n").await;
    node.wait_for_all_permits().await;

    let mut client = node.client(UPGRADE).await;
    let (mut runtime, _) = node.accept().await;
    tokio::spawn(async move {
        let head = b"HTTP/1.1 500 Oh\r\nConnection: close\r\n\r\n";
        runtime.write_all(head).await.expect("write");
        while runtime.write_all(&[b'x'; 1024]).await.is_ok() {}
    });
    let head = read_head(&mut client).await.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).expect("a length");
    let length = length.split("\r\n").next().expect("a line");
    let length: usize = length.parse().expect("a number");
    assert!(length <= Limits::default().rejection_bytes, "{head}");
}

#[tokio::test]
async fn invalid_runtime_response_returns_500() {
    #[rustfmt::skip]
    let cases: [(&[u8], &str); 4] = [
        (b"", "streaming server broke"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "invalid upgrade response: status code 200"),
        (b"what?\r\n\r\n", "streaming server broke"),
        (b"HTTP/1.1 101 Switching", "streaming server broke"),
    ];
    for (bytes, expected) in cases {
        let node = Node::start(Limits::default()).await;
        let mut client = node.client(UPGRADE).await;
        let (mut runtime, _) = node.accept().await;
        runtime.write_all(bytes).await.expect("write");
        drop(runtime);
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 500 "), "{expected}: {head}");
        let mut body = vec![0; 256];
        let read = client.read(&mut body).await.expect("a body");
        let body = String::from_utf8_lossy(&body[..read]).into_owned();
        assert!(body.contains(expected), "{expected}: {body}");
        node.wait_for_all_permits().await;
    }
}

#[tokio::test]
async fn hung_streaming_server_times_out() {
    let node = Node::start(with_short_timeout()).await;
    let mut client = node.client(UPGRADE).await;
    let (mut runtime, _) = node.accept().await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert_eq!(read_to_end(&mut runtime).await, "");
    node.wait_for_all_permits().await;
}

#[tokio::test]
async fn unusable_streaming_url_returns_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let gone = listener.local_addr().expect("bound");
    drop(listener);
    #[rustfmt::skip]
    let cases = [
        (format!("http://{gone}/x"), "error dialing backend: "),
        ("https://127.0.0.1:1/x".into(), "only http is supported"),
        ("/exec/token".into(), "no host"),
        ("http://[".into(), "not a URL"),
        (String::new(), "not a URL"),
    ];
    for (url, expected) in cases {
        let runtime = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let node = Node::serving(Limits::default(), runtime, url).await;
        let mut client = node.client(UPGRADE).await;
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 500 "), "{expected}: {head}");
        let mut body = vec![0; 256];
        let read = client.read(&mut body).await.expect("a body");
        let body = String::from_utf8_lossy(&body[..read]).into_owned();
        assert!(body.contains(expected), "{expected}: {body}");
        node.wait_for_all_permits().await;
    }
}

#[tokio::test]
async fn session_limit_returns_429_and_frees_permit_at_end() {
    let limits = Limits {
        sessions: 3,
        ..Limits::default()
    };
    let node = Node::start(limits).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(node.session().await);
    }
    for _ in 0..200 {
        let mut client = node.client(UPGRADE).await;
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    }
    assert_eq!(node.sessions.open(), 3);
    open.clear();
    node.wait_for_all_permits().await;
    node.session().await;
}

#[tokio::test]
async fn sessions_end_with_agent_shutdown() {
    let node = Node::start(Limits::default()).await;
    let (mut client, mut runtime) = node.session().await;
    node.shutdown.cancel();
    assert_eq!(read_to_end(&mut client).await, "");
    assert_eq!(read_to_end(&mut runtime).await, "");
    node.wait_for_all_permits().await;
    let mut late = node.client(UPGRADE).await;
    let head = read_head(&mut late).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
}

type Headers = &'static [(&'static str, &'static str)];

#[test]
fn requests_without_upgrade_are_rejected() {
    #[rustfmt::skip]
    let cases: [(Version, Headers, &str); 9] = [
        (Version::HTTP_11, &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")], "ok"),
        (Version::HTTP_11, &[("connection", "keep-alive, upGrade"), ("upgrade", "websocket")], "ok"),
        (Version::HTTP_11, &[("connection", "upgrade"), ("upgrade", "x"), ("content-length", "0")], "ok"),
        (Version::HTTP_11, &[], "Upgrade request required"),
        (Version::HTTP_11, &[("connection", "upgraded"), ("upgrade", "x")], "Upgrade request required"),
        (Version::HTTP_11, &[("connection", "upgrade")], "Upgrade request required"),
        (Version::HTTP_10, &[("connection", "upgrade"), ("upgrade", "x")], "Upgrade request required"),
        (Version::HTTP_11, &[("connection", "upgrade"), ("upgrade", "x"), ("content-length", "7")],
            "an upgrade request has no body"),
        (Version::HTTP_2, &[], "streams require HTTP/1.1: HTTP/2 has no upgrade"),
    ];
    for (version, headers, expected) in cases {
        let mut request = http::Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("request");
        let line = match headers::check(&request) {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(line, expected, "{version:?} {headers:?}");
    }
}

#[test]
fn replay_removes_credentials_only() {
    let token = "base64url.bearer.authorization.k8s.io.c2VjcmV0";
    let (with_others, upper) = (
        format!("v4.channel.k8s.io, {token} ,x"),
        format!("{},y", token.to_uppercase()),
    );
    #[rustfmt::skip]
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[("authorization", "Bearer c2VjcmV0"), ("accept", "*/*")], "accept: */*"),
        (&[("cookie", "c2VjcmV0"), ("proxy-authorization", "Basic c2VjcmV0")], ""),
        (&[("impersonate-user", "c2VjcmV0"), ("impersonate-extra-a", "c2VjcmV0")], ""),
        (&[("x-remote-user", "c2VjcmV0"), ("x-remote-extra-a", "c2VjcmV0"), ("x-other", "1")], "x-other: 1"),
        (&[("sec-websocket-protocol", "v4.channel.k8s.io, x")],
            "sec-websocket-protocol: v4.channel.k8s.io, x"),
        (&[("sec-websocket-protocol", &with_others)],
            "sec-websocket-protocol: v4.channel.k8s.io, x"),
        (&[("sec-websocket-protocol", token), ("sec-websocket-protocol", &upper)],
            "sec-websocket-protocol: y"),
        (&[("sec-websocket-protocol", token)], ""),
    ];
    for (headers, expected) in cases {
        let mut request = http::Request::get("/").header("host", "n");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("request");
        let target = "http://127.0.0.1:1/exec".parse().expect("a URL");
        let replayed = headers::replay(&request, &target, None).expect("replayed");
        let lines = replayed
            .headers()
            .iter()
            .filter(|(name, _)| *name != "host");
        let lines: Vec<_> = lines
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        assert_eq!(lines.join("\n"), expected, "{headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn session_ends_after_idle_timeout() {
    let (mut client, near) = duplex(64);
    let (far, mut runtime) = duplex(64);
    let idle = Duration::from_secs(4 * 3600);
    let began = Instant::now();
    let joined = tokio::spawn(copy_bidirectional(near, far, idle));
    tokio::time::advance(Duration::from_secs(3 * 3600)).await;
    client.write_all(b"x").await.expect("write");
    assert_eq!(runtime.read_u8().await.expect("byte"), b'x');
    assert_eq!(joined.await.expect("joined"), End::Idle);
    assert_eq!(began.elapsed(), Duration::from_secs(7 * 3600));
}

#[tokio::test(start_paused = true)]
async fn client_that_does_not_read_blocks_runtime() {
    let (client, near) = duplex(64);
    let (far, mut runtime) = duplex(64);
    let joined = tokio::spawn(copy_bidirectional(near, far, Duration::from_secs(3600)));
    let mut taken = 0;
    while let Ok(written) = timeout(Duration::from_secs(1), runtime.write(&[0; 64])).await {
        taken += written.expect("write");
        assert!(taken <= BUFFER_BYTES + 128, "{taken}");
    }
    drop(client);
    assert_eq!(joined.await.expect("joined"), End::Runtime);
}
