//! Bad input over real TLS sockets, one test for each kind. Rejections before a request is read are
//! tested in `windlass_https` (slow-loris, headers of 10 MB) and `windlass_auth` (tokens and
//! certificates).

#[allow(
    dead_code,
    reason = "the tests of windlass-https use all of what they share with these"
)]
#[path = "../../https/tests/https/kit.rs"]
mod tls;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use windlass_https::{Limits, TlsChoice};

use crate::logs::tests::Node;
use crate::streaming::tests::Streaming;
use crate::tests::TestEnv;
use crate::{NodeApi, ServerType, router};
use tls::{Server, soon};

async fn serve(env: &TestEnv) -> Server {
    let routes = router(NodeApi::new(env.deps.clone()), ServerType::ReadWrite);
    Server::serving(routes, &TlsChoice::default(), Limits::default()).await
}

/// Opens an authenticated connection and sends `bytes`.
async fn sent(server: &Server, bytes: &[u8]) -> TlsStream<TcpStream> {
    let client = server.clients.client("kube-apiserver");
    let mut stream = server.connect(Some(&client)).await.expect("connected");
    stream.write_all(bytes).await.expect("sent");
    stream
}

/// Reads up to the end of the connection or a reset.
async fn answer(server: &Server, bytes: &[u8]) -> String {
    let mut stream = sent(server, bytes).await;
    let mut read = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut read)).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// Reads until the text ends with `expected`.
async fn until(stream: &mut (impl AsyncReadExt + Unpin), expected: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        while !read.ends_with(expected.as_bytes()) {
            read.push(stream.read_u8().await.expect("more"));
        }
    };
    soon(expected, reading).await;
    String::from_utf8_lossy(&read).into_owned()
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: n1\r\nconnection: close\r\n{headers}\r\n").into_bytes()
}

#[tokio::test]
async fn malformed_upgrade_over_tls_starts_no_session() {
    let streaming = Streaming::new().await;
    let server = serve(&streaming.env).await;
    let exec = "/exec/default/web/app?command=ls&output=1";
    #[rustfmt::skip]
    let cases = [
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nconnection: close\r\n\r\n"), "400"),
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nupgrade: SPDY/3.1\r\nconnection: close\r\n\r\n"), "400"),
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade, close\r\n\r\n"), "400"),
        (format!("POST {exec} HTTP/1.0\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n"), "400"),
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade, close\r\nupgrade: SPDY/3.1\r\n\
            content-length: 4\r\n\r\nbody"), "400"),
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade, close\r\nupgrade: SPDY/3.1\r\n\
            content-length: 4\r\ncontent-length: 5\r\n\r\nbody!"), "400"),
        (format!("POST {exec} HTTP/1.1\r\nhost: n1\r\nupgrade: \0\r\n\r\n"), "400"),
        (format!("POST {exec} HTTP/9.9\r\nhost: n1\r\n\r\n"), "400"),
        (format!("PUT {exec} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade, close\r\nupgrade: SPDY/3.1\r\n\r\n"), "405"),
        ("\u{16}\u{3}\u{1}\u{2} what is this\r\n\r\n".to_owned(), "400"),
    ];
    for (request, expected) in cases {
        let answer = answer(&server, request.as_bytes()).await;
        let code = answer.split(' ').nth(1);
        assert_eq!(code, Some(expected), "{request:?} {answer}");
    }
    assert_eq!(streaming.requests(), Vec::<String>::new());
    assert_eq!(streaming.env.deps.sessions.open(), 0);
}

#[tokio::test]
async fn path_traversal_over_tls_serves_no_other_file() {
    let mut node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let _logs = node.serve_system_logs();
    let server = serve(&node.env).await;
    let log = answer(&server, &get("/containerLogs/default/web/app", "")).await;
    assert!(log.contains("one\n"), "{log}");
    for path in [
        "/containerLogs/default/web/..%2f..%2f..%2fetc%2fpasswd",
        "/containerLogs/default/web/app%00",
        "/containerLogs/default/web/..",
        "/containerLogs/../../../etc/passwd",
        "/containerLogs/..%2f..%2fetc/web/app",
        "/containerLogs//web/app",
        "/logs/../../etc/passwd",
        "/logs/%2e%2e/%2e%2e/etc/passwd",
        "/logs/..%2f..%2fetc%2fpasswd",
        "/logs/%2fetc%2fpasswd",
        "/logs//etc/passwd",
        "/logs/etc/passwd",
        "/logs/passwd",
        "/logs/socket",
        "/logs/containers/app.log%00",
    ] {
        let answer = answer(&server, &get(path, "")).await;
        let code = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["400", "403", "404"].contains(&code), "{path} {answer}");
        assert!(!answer.contains("root:"), "{path} {answer}");
    }
}

#[tokio::test]
async fn non_utf8_query_over_tls_returns_400() {
    let streaming = Streaming::new().await;
    let server = serve(&streaming.env).await;
    let upgrade = "upgrade: SPDY/3.1\r\n";
    for target in [
        &b"/exec/default/web/app?command=%ff&output=1"[..],
        b"/exec/default/web/app?command=\xff\xfe&output=1",
        b"/portForward/default/web?port=%c3%28",
        b"/containerLogs/default/web/app?tailLines=%ff",
        b"/containerLogs/default/web/app?tailLines=\xff",
        b"/run/default/web/app?cmd=%ff",
    ] {
        let method: &[u8] = match target.starts_with(b"/containerLogs") {
            true => b"GET ",
            false => b"POST ",
        };
        let head = [method, target, b" HTTP/1.1\r\nhost: n1\r\n"].concat();
        let headers = match target.starts_with(b"/exec") || target.starts_with(b"/port") {
            true => format!("connection: upgrade, close\r\n{upgrade}\r\n"),
            false => "connection: close\r\n\r\n".to_owned(),
        };
        let answer = answer(&server, &[&head, headers.as_bytes()].concat()).await;
        let shown = String::from_utf8_lossy(target);
        let expected = match target.starts_with(b"/portForward") {
            // SPDY has its ports in the stream: the query is ignored
            true => "HTTP/1.1 500 ",
            false => "HTTP/1.1 400 ",
        };
        assert!(answer.starts_with(expected), "{shown} {answer}");
    }
}

#[tokio::test]
async fn thousand_log_followers_over_tls_leave_no_resources() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let server = serve(&node.env).await;
    let tasks = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        metrics.num_alive_tasks()
    };
    let places_left = || {
        let mut places = Vec::new();
        while let Ok(place) = node.env.deps.logs.permit() {
            places.push(place);
        }
        places.len()
    };
    let (before, places) = (tasks(), places_left());
    let client = server.clients.client("kube-apiserver");
    let follow = b"GET /containerLogs/default/web/app?follow=true HTTP/1.1\r\nhost: n1\r\n\r\n";
    let mut all = Vec::new();
    for _ in 0..1000 {
        let mut stream = server.connect(Some(&client)).await.expect("connected");
        stream.write_all(follow).await.expect("sent");
        let head = until(&mut stream, "one\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        all.push(stream);
    }
    assert_eq!(places_left(), places - 1000);
    node.write("app", 0, &["11Z stdout F two"]);
    for stream in &mut all {
        until(stream, "two\n\r\n").await;
    }
    // the remaining followers get a response, and so does a new client afterwards
    let mut held = Vec::new();
    while let Ok(place) = node.env.deps.logs.permit() {
        held.push(place);
    }
    let one_more = answer(&server, &get("/containerLogs/default/web/app", "")).await;
    assert!(one_more.starts_with("HTTP/1.1 429 "), "{one_more}");
    drop((held, all));
    let gone = async {
        while tasks() > before || places_left() < places {
            tokio::task::yield_now().await;
        }
    };
    soon("all of them gone", gone).await;
}

/// Opens a session between a client and a streaming server played by the test.
async fn session(target: &str) -> (Streaming, Server, TlsStream<TcpStream>, TcpStream) {
    let streaming = Streaming::new().await;
    let runtime = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = runtime.local_addr().expect("bound");
    streaming.set_url(&format!("http://{address}/token"));
    let server = serve(&streaming.env).await;
    let request = format!(
        "POST {target} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n"
    );
    let mut client = sent(&server, request.as_bytes()).await;
    let (mut runtime, _) = soon("the runtime", runtime.accept()).await.expect("asked");
    until(&mut runtime, "\r\n\r\n").await;
    let switched =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
    runtime.write_all(switched).await.expect("said");
    let head = until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert_eq!(streaming.env.deps.sessions.open(), 1);
    (streaming, server, client, runtime)
}

async fn no_session_is_open(streaming: &Streaming) {
    let closed = async {
        while streaming.env.deps.sessions.open() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the session's end", closed).await;
}

#[tokio::test]
async fn exec_over_tls_ends_at_runtime_on_client_disconnect() {
    let target = "/exec/default/web/app?command=sh&input=1&output=1";
    let (streaming, _server, client, mut runtime) = session(target).await;
    let (tcp, _) = client.into_inner();
    // no close_notify, as if the client's host were gone
    tcp.set_zero_linger().expect("set");
    drop(tcp);
    let mut rest = Vec::new();
    let end = soon("the end", runtime.read_to_end(&mut rest)).await;
    assert!(end.is_err() || rest.is_empty(), "{rest:?}");
    no_session_is_open(&streaming).await;
}

#[tokio::test]
async fn port_forward_over_tls_to_closed_port_ends_with_error() {
    let (streaming, _server, mut client, mut runtime) = session("/portForward/default/web").await;
    // the runtime reports the error of the port in its own protocol
    let words = b"\x80 failed to dial 1: connection refused";
    runtime.write_all(words).await.expect("said");
    drop(runtime);
    let mut said = Vec::new();
    soon("the end", client.read_to_end(&mut said))
        .await
        .expect("a proper end");
    assert_eq!(said, words);
    no_session_is_open(&streaming).await;
    // the runtime's own port is closed
    let server = serve(&streaming.env).await;
    let headers = "upgrade: SPDY/3.1\r\n";
    let request = format!(
        "POST /portForward/default/web HTTP/1.1\r\nhost: n1\r\nconnection: upgrade, close\r\n{headers}\r\n"
    );
    let refused = answer(&server, request.as_bytes()).await;
    assert!(refused.starts_with("HTTP/1.1 500 "), "{refused}");
    assert!(refused.contains("error dialing backend: "), "{refused}");
    no_session_is_open(&streaming).await;
}

/// Requests a WebSocket and returns the response; `runtime` is the runtime's address.
async fn websocket(
    streaming: &Streaming,
    runtime: &TcpListener,
    (target, protocol): (&str, &str),
) -> (Server, TlsStream<TcpStream>) {
    let address = runtime.local_addr().expect("bound");
    streaming.set_url(&format!("http://{address}/token"));
    let server = serve(&streaming.env).await;
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: n1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: {protocol}\r\n\r\n"
    );
    let client = sent(&server, request.as_bytes()).await;
    (server, client)
}

/// Other frames are tested in `windlass_streams`.
#[tokio::test]
async fn websockets_over_tls_become_spdy() {
    let streaming = Streaming::new().await;
    let runtime = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let exec = "/exec/default/web/app?command=sh&output=1";
    let attach = "/attach/default/web/app?output=1&error=1";
    let forward = "/portForward/default/web";
    let (v5, tunnel) = ("v5.channel.k8s.io", "SPDY/3.1+portforward.k8s.io");
    let cases = [
        (exec, v5, "v4.channel.k8s.io", "exec [\"sh\"] out"),
        (attach, v5, "v4.channel.k8s.io", "attach out+err"),
        (forward, tunnel, "portforward.k8s.io", "port_forward []"),
    ];
    for (target, offered, chosen, asked) in cases {
        let (_server, mut client) = websocket(&streaming, &runtime, (target, offered)).await;
        let (mut stream, _) = soon("the runtime", runtime.accept()).await.expect("asked");
        let head = until(&mut stream, "\r\n\r\n").await.to_ascii_lowercase();
        assert!(head.starts_with("post /token "), "{head}");
        assert!(head.contains("\r\nupgrade: spdy/3.1\r\n"), "{head}");
        let protocol = format!("\r\nx-stream-protocol-version: {chosen}\r\n");
        assert!(head.contains(&protocol), "{head}");
        let switched = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1{protocol}\r\n"
        );
        stream.write_all(switched.as_bytes()).await.expect("said");
        let head = until(&mut client, "\r\n\r\n").await.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let protocol = format!("\r\nsec-websocket-protocol: {offered}\r\n");
        assert!(head.contains(&protocol.to_ascii_lowercase()), "{head}");
        assert_eq!(streaming.requests(), [asked]);
        drop(client);
        no_session_is_open(&streaming).await;
    }
    let families = streaming.env.deps.metrics.render().expect("families");
    for subresource in ["exec", "attach", "portforward"] {
        let line = format!(
            "kubelet_websocket_streaming_requests_total{{subresource=\"{subresource}\"}} 1\n"
        );
        assert!(families.contains(&line), "{families}");
    }
}

#[tokio::test]
async fn websockets_over_tls_pass_unchanged_with_the_gate_off() {
    let mut streaming = Streaming::new().await;
    streaming.env.deps.settings.websockets = false;
    let runtime = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    for (target, protocol) in [
        (
            "/exec/default/web/app?command=sh&output=1",
            "v5.channel.k8s.io",
        ),
        ("/attach/default/web/app?output=1", "v5.channel.k8s.io"),
        (
            "/portForward/default/web?port=80",
            "SPDY/3.1+portforward.k8s.io",
        ),
    ] {
        let (_server, _client) = websocket(&streaming, &runtime, (target, protocol)).await;
        let (mut stream, _) = soon("the runtime", runtime.accept()).await.expect("asked");
        let head = until(&mut stream, "\r\n\r\n").await;
        assert!(head.starts_with("GET /token "), "{head}");
        assert!(head.contains(protocol), "{head}");
    }
    // ports are in the query again
    let (_server, mut client) = websocket(
        &streaming,
        &runtime,
        ("/portForward/default/web", "SPDY/3.1+portforward.k8s.io"),
    )
    .await;
    let head = until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
}
