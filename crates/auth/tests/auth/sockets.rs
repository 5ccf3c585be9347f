//! Authentication and authorization behind TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::Extension;
use axum::routing::{any, get};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use rcgen::ExtendedKeyUsagePurpose;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass_auth::require_auth;
use windlass_fake_api::{FakeApiServer, On, User};
use windlass_https::{Limits, TlsChoice};
use windlass_types::{Clock, Timestamp, UserInfo};

use crate::kit::{gate, grant, settings};
use crate::reviews::{issue, robot};
use crate::tls::{Authority, Dial, Http, Server, soon};

/// A small node API with its API server and metrics.
struct Node {
    server: Server,
    api: FakeApiServer,
    metrics: windlass_metrics::Metrics,
}

async fn node() -> Node {
    node_of(FakeApiServer::new()).await
}

async fn node_of(api: FakeApiServer) -> Node {
    api.add_token("scrape", User::new("prometheus", &[]));
    grant(
        &api,
        &[
            ("kube-apiserver", "get nodes/metrics"),
            ("kube-apiserver", "get nodes/proxy"),
            ("kube-apiserver", "create nodes/proxy"),
            ("prometheus", "get nodes/metrics"),
            ("prometheus", "get nodes/proxy"),
        ],
    );
    let (auth, metrics) = gate(&api, settings());
    let who = async |Extension(user): Extension<UserInfo>| user.name;
    let upgrade = async || {
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .body(Body::empty())
            .expect("a response")
    };
    let router = Router::new()
        .route("/metrics", get(who))
        .route("/exec/{ns}/{pod}/{container}", any(upgrade));
    let service = require_auth(router, auth);
    let server = Server::serving(service, &TlsChoice::default(), Limits::default()).await;
    Node {
        server,
        api,
        metrics,
    }
}

/// A request.
#[derive(Clone, Copy)]
struct Call<'a> {
    certificate: Option<&'a str>,
    token: Option<&'a str>,
    method: &'a str,
    path: &'a str,
}

const SCRAPE: Call<'_> = Call {
    certificate: None,
    token: None,
    method: "GET",
    path: "/metrics",
};

impl Node {
    /// Status and body, on a new connection.
    async fn answer(&self, call: Call<'_>) -> String {
        let stream = self
            .server
            .connect(call.certificate)
            .await
            .expect("connected");
        let mut http = Http::over(stream, Version::HTTP_11).await;
        answer(&mut http, call).await
    }
}

async fn answer(http: &mut Http, call: Call<'_>) -> String {
    let mut request = Request::builder()
        .method(call.method)
        .uri(call.path)
        .header("host", "n1");
    if let Some(token) = call.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if call.path.starts_with("/exec") {
        request = request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket");
    }
    let request = request.body(Full::<Bytes>::default()).expect("a request");
    let response = http.send(request).await.expect("answered");
    let status = response.status().as_u16();
    if status == 101 {
        return "101".to_owned();
    }
    let body = soon("the body", response.into_body().collect()).await;
    let body = body.expect("whole").to_bytes();
    format!("{status} {}", String::from_utf8_lossy(&body).trim_end())
}

const UNAUTHORIZED: &str = "401 Unauthorized";

#[tokio::test]
async fn certificates_and_tokens_authenticate_callers() {
    let node = node().await;
    let clients = &node.server.clients;
    let good = clients.client("kube-apiserver");
    let over = clients.issue("kube-apiserver", -1, ExtendedKeyUsagePurpose::ClientAuth);
    // from another CA with the same name
    let other = Authority::new("clients").client("kube-apiserver");
    let anonymous = clients.client("");
    let jane = clients.client("jane");
    let table = [
        (Some(&good), None, "200 kube-apiserver"),
        (None, None, UNAUTHORIZED),
        (Some(&over), None, UNAUTHORIZED),
        (Some(&other), None, UNAUTHORIZED),
        (Some(&anonymous), None, UNAUTHORIZED),
        (
            Some(&jane),
            None,
            "403 Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[metrics])",
        ),
        (None, Some("scrape"), "200 prometheus"),
        (None, Some("wrong"), UNAUTHORIZED),
        (Some(&good), Some("wrong"), "200 kube-apiserver"),
        (Some(&other), Some("scrape"), "200 prometheus"),
        (Some(&other), Some("wrong"), UNAUTHORIZED),
    ];
    for (number, (certificate, token, expected)) in table.into_iter().enumerate() {
        let call = Call {
            certificate: certificate.map(String::as_str),
            token,
            ..SCRAPE
        };
        assert_eq!(node.answer(call).await, expected, "case {number}");
    }
    let text = node.metrics.render().expect("text");
    assert!(
        text.contains("apiserver_client_certificate_expiration_seconds_count 4"),
        "{text}"
    );
}

/// A clock that is set by hand.
#[derive(Debug, Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::Relaxed)).expect("in range")
    }
}

#[tokio::test]
async fn expired_token_is_rejected() {
    let clock = Arc::new(SetClock::default());
    let api = FakeApiServer::with_clock(Arc::clone(&clock) as _);
    robot(&api);
    let [used, unused] = [issue(&api, &[]).await, issue(&api, &[]).await];
    assert_ne!(used, unused);
    let node = node_of(api).await;
    let ask = async |token: &str| {
        let token = Some(token);
        node.answer(Call { token, ..SCRAPE }).await
    };
    let answer = ask(&used).await;
    assert!(
        answer.starts_with("403 Forbidden (user=system:serviceaccount:default:robot,"),
        "{answer}"
    );
    clock.0.store(601, Ordering::Relaxed);
    assert_eq!(ask(&unused).await, UNAUTHORIZED);
}

#[tokio::test]
async fn unauthenticated_client_gets_401_for_unknown_paths() {
    let node = node().await;
    let good = node.server.clients.client("kube-apiserver");
    let at = |path| Call { path, ..SCRAPE };
    assert_eq!(node.answer(at("/no-such-endpoint")).await, UNAUTHORIZED);
    assert_eq!(node.answer(at("/pods/../exec")).await, UNAUTHORIZED);
    let known = |path| Call {
        certificate: Some(&good),
        path,
        ..SCRAPE
    };
    assert_eq!(node.answer(known("/no-such-endpoint")).await, "404 ");
    assert_eq!(
        node.answer(known("/metrics//x")).await,
        "400 Bad request: the path has an empty part"
    );
    assert_eq!(
        node.answer(known("/metrics/%2e%2e/exec/ns/p/c")).await,
        "400 Bad request: the path has a part that is '.' or '..'"
    );
}

#[tokio::test]
async fn websocket_needs_the_create_permission() {
    let node = node().await;
    let good = node.server.clients.client("kube-apiserver");
    for method in ["GET", "POST"] {
        let exec = Call {
            method,
            path: "/exec/ns/p/c",
            ..SCRAPE
        };
        let by_token = Call {
            token: Some("scrape"),
            ..exec
        };
        assert_eq!(
            node.answer(by_token).await,
            "403 Forbidden (user=prometheus, verb=create, resource=nodes, subresource(s)=[proxy])"
        );
        let by_certificate = Call {
            certificate: Some(&good),
            ..exec
        };
        assert_eq!(node.answer(by_certificate).await, "101", "{method}");
        assert_eq!(node.answer(exec).await, UNAUTHORIZED);
    }
}

#[tokio::test]
async fn unknown_token_over_the_network_limit_gets_429() {
    let node = node().await;
    let hanging = node.api.faults().hang(On::path("**/tokenreviews"));
    let from = |last: u8, token: String| {
        let dial = Dial {
            from: [127, 0, 7, last].into(),
            ..Dial::default()
        };
        let server = &node.server;
        async move {
            let stream = server.dial(dial).await.expect("connected");
            let request = format!(
                "GET /metrics HTTP/1.1\r\nhost: n1\r\nauthorization: Bearer {token}\r\n\r\n"
            );
            let mut stream = stream;
            stream.write_all(request.as_bytes()).await.expect("sent");
            stream
        }
    };
    let mut waiting = Vec::new();
    for last in 1..=16 {
        waiting.push(from(last, format!("invented-{last}")).await);
    }
    let all_asked = async {
        while crate::kit::asked(&node.api, "tokenreviews") < 16 {
            tokio::task::yield_now().await;
        }
    };
    soon("their reviews", all_asked).await;
    let mut one_more = from(17, "invented-17".to_owned()).await;
    let mut head = vec![0; 1024];
    let read = soon("an answer", one_more.read(&mut head)).await;
    let head = String::from_utf8_lossy(&head[..read.expect("an answer")]).to_lowercase();
    assert!(head.starts_with("http/1.1 429 "), "{head}");
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    assert!(
        head.ends_with("too many requests, please try again later."),
        "{head}"
    );
    node.api.faults().lift(hanging);
    // from 127.0.0.1, while the others wait
    let other = Call {
        token: Some("scrape"),
        ..SCRAPE
    };
    assert_eq!(node.answer(other).await, "200 prometheus");
    assert_eq!(waiting.len(), 16);
}

#[tokio::test]
async fn expired_certificate_or_removed_ca_ends_authentication() {
    let node = node().await;
    let good = node.server.clients.client("kube-apiserver");
    let stream = node.server.connect(Some(&good)).await.expect("connected");
    let mut http = Http::over(stream, Version::HTTP_11).await;
    assert_eq!(answer(&mut http, SCRAPE).await, "200 kube-apiserver");
    node.server.clock.pass_days(11);
    assert_eq!(answer(&mut http, SCRAPE).await, UNAUTHORIZED);
    node.server.clock.pass_days(-11);
    assert_eq!(answer(&mut http, SCRAPE).await, "200 kube-apiserver");
    let next = Authority::new("next");
    let ca = windlass_https::ClientCa::from_pem(next.pem.as_bytes()).expect("a bundle");
    node.server.client_ca.send_replace(ca);
    assert_eq!(answer(&mut http, SCRAPE).await, UNAUTHORIZED);
    assert_eq!(crate::kit::asked(&node.api, "tokenreviews"), 0);
}
