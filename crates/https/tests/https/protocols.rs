//! Versions of TLS and HTTP, ciphers, upgrades, shutdown.

use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{StatusCode, Version};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rustls::SupportedProtocolVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use windlass_config::tls::{GROUPS, SUITES};
use windlass_https::{Limits, TlsChoice, TlsProfile, Transport, serve};

use crate::kit::{Dial, Http, Server, router, soon};

static TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
static TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
// ECDHE_ECDSA with AES_128_GCM, and with CHACHA20_POLY1305
const AES: u16 = 0xc02b;
const CHACHA: u16 = 0xcca9;

#[tokio::test]
async fn both_tls_and_http_versions_are_served() {
    let server = Server::start().await;
    for versions in [TLS12, TLS13] {
        for (alpn, version) in [
            (&b"h2"[..], Version::HTTP_2),
            (b"http/1.1", Version::HTTP_11),
        ] {
            let dial = Dial {
                versions,
                alpn,
                ..Dial::default()
            };
            let stream = server.dial(dial).await.expect("connected");
            let mut http = Http::over(stream, version).await;
            for _ in 0..2 {
                assert_eq!(http.get("/who").await.as_deref(), Ok("no certificate"));
            }
        }
    }
}

/// Whether a client gets through to a server that offers `choice`.
async fn check(
    choice: TlsChoice,
    versions: &'static [&'static SupportedProtocolVersion],
    suites: &[u16],
    expected: bool,
) {
    let server = Server::with(&choice, Limits::default()).await;
    let dial = Dial {
        versions,
        suites: Some(suites),
        ..Dial::default()
    };
    let connected = server.dial(dial).await;
    assert_eq!(
        connected.is_ok(),
        expected,
        "{choice:?} and {suites:x?}: {connected:?}"
    );
}

#[tokio::test]
async fn handshake_fails_for_versions_and_ciphers_not_offered() {
    let only = |suite| TlsChoice {
        suites: vec![suite],
        ..TlsChoice::default()
    };
    check(only(AES), TLS12, &[AES], true).await;
    check(only(AES), TLS12, &[CHACHA], false).await;
    // suites of TLS 1.3 cannot be chosen
    check(only(AES), TLS13, &[0x1302], true).await;
    check(only(0x1301), TLS12, &[AES], false).await;
    check(only(0x1301), TLS13, &[0x1302], true).await;
    let newest = TlsChoice {
        only_tls13: true,
        ..TlsChoice::default()
    };
    check(newest.clone(), TLS12, &[AES], false).await;
    check(newest, TLS13, &[0x1301], true).await;
}

#[test]
fn all_configurable_versions_and_ciphers_are_available() {
    for (name, suite) in SUITES {
        let choice = TlsChoice {
            suites: vec![suite],
            ..TlsChoice::default()
        };
        assert!(TlsProfile::new(&choice).is_ok(), "{name}");
    }
    for (group, name) in GROUPS {
        let choice = TlsChoice {
            groups: vec![group],
            ..TlsChoice::default()
        };
        assert!(TlsProfile::new(&choice).is_ok(), "{name}");
    }
    let unknown = TlsChoice {
        suites: vec![0x0005],
        ..TlsChoice::default()
    };
    assert!(TlsProfile::new(&unknown).is_err());
}

#[tokio::test]
async fn upgraded_connection_keeps_every_byte() {
    let server = Server::start().await;
    let mut http = Http::over(
        server.connect(None).await.expect("connected"),
        Version::HTTP_11,
    )
    .await;
    let request = http::Request::post("/echo")
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Full::<Bytes>::default())
        .expect("a request");
    let response = http.send(request).await.expect("answered");
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(response).await.expect("an upgrade");
    let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
    let sent = vec![7_u8; 1 << 20];
    let writing = tokio::spawn(async move {
        to.write_all(&sent).await.expect("written");
        to.shutdown().await.expect("ended");
        to
    });
    let mut received = Vec::new();
    soon(
        "the echo",
        (&mut from).take(1 << 20).read_to_end(&mut received),
    )
    .await
    .expect("read");
    assert!(received.len() == 1 << 20 && received.iter().all(|byte| *byte == 7));
    drop(soon("the writer", writing).await.expect("no panic"));
}

#[tokio::test]
async fn plain_http_serves_the_same_service() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port");
    let address = listener.local_addr().expect("bound");
    let shutdown = CancellationToken::new();
    let serving = serve(
        listener,
        router(),
        Transport::Plain,
        Limits::default(),
        shutdown.clone(),
    );
    let serving = tokio::spawn(serving);
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = b"GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("written");
    let mut answer = String::new();
    soon("the answer", stream.read_to_string(&mut answer))
        .await
        .expect("read");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("no certificate"), "{answer}");
    shutdown.cancel();
    soon("its end", serving).await.expect("no panic");
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_endless_responses() {
    let limits = Limits {
        drain_timeout: std::time::Duration::from_millis(50),
        ..Limits::default()
    };
    let server = Server::with(&TlsChoice::default(), limits).await;
    let mut idle = server.connect(None).await.expect("connected");
    let mut streaming = server.connect(None).await.expect("connected");
    let request = b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n";
    streaming.write_all(request).await.expect("written");
    let mut begun = [0; 15];
    soon("its beginning", streaming.read_exact(&mut begun))
        .await
        .expect("read");
    server.shutdown.cancel();
    soon("the server's end", server.ended)
        .await
        .expect("no panic");
    let mut rest = Vec::new();
    // a missing close_notify is an error in TLS
    let _ = soon("the idle one's end", idle.read_to_end(&mut rest)).await;
    let _ = soon("the streaming one's end", streaming.read_to_end(&mut rest)).await;
}

/// The response to invalid bytes.
async fn answer_to(request: &[u8]) -> String {
    let server = Server::start().await;
    let mut stream = server.connect(None).await.expect("connected");
    stream.write_all(request).await.expect("written");
    let mut answer = Vec::new();
    let _ = soon("an answer", stream.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn invalid_requests_are_answered_and_change_nothing() {
    let close = "\r\nhost: x\r\nconnection: close\r\n\r\n";
    let table: [(&[u8], &str); 5] = [
        (b"GET /no\xffsuch HTTP/1.1", "HTTP/1.1 400 Bad Request"),
        (b"GET /who?a=\xff\xfe HTTP/1.1", "HTTP/1.1 400 Bad Request"),
        (b"GET /who?%ff=%zz HTTP/1.1", "HTTP/1.1 200 OK"),
        // a host, not a path: there is none
        (b"GET who HTTP/1.1", "HTTP/1.1 404 Not Found"),
        (b"\x16\x03\x01 nonsense", "HTTP/1.1 400 Bad Request"),
    ];
    for (line, expected) in table {
        let request = [line, close.as_bytes()].concat();
        let answer = answer_to(&request).await;
        assert_eq!(answer, expected, "{:?}", String::from_utf8_lossy(line));
    }
}
