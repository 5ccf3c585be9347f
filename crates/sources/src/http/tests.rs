//! The pure state by a table, and the actor against a server on a local socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use windlass_actors::SourceSnapshot;
use windlass_mailboxes::{Mailbox, mailbox};
use windlass_manifests::manifest::MAX_MANIFEST_BYTES;
use windlass_metrics::Metrics;
use windlass_types::{PodExt, PodOp};

use super::io::{FetchError, Fetcher};
use super::state::{HttpState, Report};
use super::{HttpSource, HttpSourceConfig};

fn manifest(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"containers":[{{"name":"c","image":"x"}}]}}}}"#
    )
}

fn list(names: &[&str]) -> String {
    let items: Vec<String> = names.iter().map(|n| manifest(n)).collect();
    let items = items.join(",");
    format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{items}]}}"#)
}

#[test]
fn failed_or_invalid_fetch_changes_no_pod() {
    let mut state = HttpState::new("http://h/p".into(), "n".into());
    let mut step = |fetched: Result<String, FetchError>| {
        let (news, _) = state.apply(fetched.map(Bytes::from));
        let Some(news) = news else {
            return "nothing".to_owned();
        };
        let pods = news.pods.map_or("unknown".to_owned(), |pods| {
            let names: Vec<&str> = pods.iter().map(|p| p.name()).collect();
            names.join(" ")
        });
        let errors: Vec<String> = news.rejected.into_iter().map(|r| r.error).collect();
        format!("[{pods}] {}", errors.join("; "))
    };
    let status = || FetchError::Status(StatusCode::NOT_FOUND);
    let answered = "http://h/p: unexpected status: 404 Not Found";
    assert_eq!(step(Err(status())), format!("[unknown] {answered}"));
    assert_eq!(step(Err(status())), "nothing");
    assert_eq!(step(Ok(manifest("a"))), "[a-n] ");
    assert_eq!(step(Ok(manifest("a"))), "nothing");
    assert_eq!(step(Err(status())), format!("[a-n] {answered}"));
    assert_eq!(step(Ok(manifest("a"))), "[a-n] ");
    assert_eq!(step(Ok(list(&["b", "c"]))), "[b-n c-n] ");
    let bad = step(Ok("kind: nonsense".into()));
    assert!(bad.starts_with("[b-n c-n] http://h/p: line 1"), "{bad}");
    assert_eq!(step(Ok("kind: nonsense".into())), "nothing");
    assert_eq!(
        step(Ok(String::new())),
        "[] http://h/p: empty body, no pods"
    );
    assert_eq!(step(Ok(list(&["b", "c"]))), "[b-n c-n] ");
    assert_eq!(step(Ok(list(&[]))), "[] ");
}

#[test]
fn repeated_failures_are_logged_at_lower_level() {
    let mut state = HttpState::new("http://h/p".into(), "n".into());
    let mut levels = Vec::new();
    for round in 0..7 {
        let fetched = match round {
            6 => Ok(Bytes::from(manifest("a"))),
            _ => Err(FetchError::TimedOut),
        };
        for report in state.apply(fetched).1 {
            levels.push(match report {
                Report::Failed { last: false, .. } => "warn",
                Report::Failed { last: true, .. } => "last warn",
                Report::StillFailing { .. } => "debug",
                Report::Recovered => "recovered",
                Report::Loaded { .. } => "loaded",
            });
        }
    }
    let expected = [
        "warn",
        "warn",
        "warn",
        "last warn",
        "debug",
        "debug",
        "loaded",
        "recovered",
    ];
    assert_eq!(levels, expected);
}

/// A server with a configurable response, which records the header of the last request.
#[derive(Clone, Debug)]
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<(StatusCode, Vec<u8>)>>,
    token: Arc<Mutex<Option<HeaderValue>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bound");
        let this = Self {
            address: listener.local_addr().expect("an address"),
            answer: Arc::new(Mutex::new((StatusCode::OK, Vec::new()))),
            token: Arc::default(),
        };
        let server = this.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let server = server.clone();
                        async move { Ok::<_, Infallible>(server.respond(&request)) }
                    });
                    // a disconnected client does not fail the test
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        this
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        *self.token.lock().expect("not poisoned") = request.headers().get("x-token").cloned();
        let (status, body) = self.answer.lock().expect("not poisoned").clone();
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = status;
        response
    }

    fn set(&self, status: StatusCode, body: impl Into<Vec<u8>>) {
        *self.answer.lock().expect("not poisoned") = (status, body.into());
    }

    fn uri(&self) -> http::Uri {
        let uri = format!("http://{}/pods", self.address);
        uri.parse().expect("a URI")
    }
}

async fn expect(mailbox: &mut Mailbox<SourceSnapshot>, expected: &str) {
    let mut seen = Vec::new();
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        while let Some(delivery) = mailbox.next().await {
            let line = delivery.open(|snapshot| {
                let names: Vec<&str> = snapshot.pods.iter().map(|p| p.name()).collect();
                let refused = snapshot.rejected.len();
                let complete = if snapshot.op == PodOp::Set { "" } else { "?" };
                format!("{complete}[{}] -{refused}", names.join(" "))
            });
            if line == expected {
                return;
            }
            seen.push(line);
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("no {expected}, only {seen:?}"));
}

#[tokio::test]
async fn pods_are_fetched_periodically_with_headers() {
    let test = async {
        let server = Server::start().await;
        server.set(StatusCode::SERVICE_UNAVAILABLE, "");
        let metrics = Metrics::new().expect("metrics");
        let (storage, mut mailbox) = mailbox(crate::POD_STORAGE, &metrics.mailboxes);
        let mut headers = HeaderMap::new();
        headers.insert("x-token", HeaderValue::from_static("t"));
        windlass_mailboxes::start_actor(HttpSource::new(HttpSourceConfig {
            url: server.uri(),
            headers,
            node_name: "n".into(),
            period: Duration::from_millis(20),
            storage,
        }));
        expect(&mut mailbox, "?[] -1").await;
        server.set(StatusCode::OK, manifest("a"));
        expect(&mut mailbox, "[a-n] -0").await;
        let token = server.token.lock().expect("not poisoned").clone();
        assert_eq!(token, Some(HeaderValue::from_static("t")));
        server.set(StatusCode::OK, list(&["b", "c"]));
        expect(&mut mailbox, "[b-n c-n] -0").await;
        server.set(StatusCode::OK, vec![b' '; MAX_MANIFEST_BYTES as usize + 1]);
        expect(&mut mailbox, "[b-n c-n] -1").await;
    };
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn fetch_error_names_cause() {
    let server = Server::start().await;
    let fetch = async |uri: http::Uri| {
        let fetched = Fetcher::new(uri, HeaderMap::new()).fetch().await;
        fetched.expect_err("a failure").to_string()
    };
    server.set(StatusCode::FORBIDDEN, "");
    assert_eq!(
        fetch(server.uri()).await,
        "unexpected status: 403 Forbidden"
    );
    server.set(StatusCode::OK, vec![0; MAX_MANIFEST_BYTES as usize + 1]);
    assert_eq!(
        fetch(server.uri()).await,
        "the body is longer than 10485760 bytes"
    );
    // port 1 has no listener
    let refused = fetch("http://127.0.0.1:1/".parse().expect("a URI")).await;
    assert!(refused.contains("Connection refused"), "{refused}");
    // a server that does not speak TLS
    let https = format!("https://{}/", server.address);
    let error = fetch(https.parse().expect("a URI")).await;
    assert!(
        error.starts_with("request failed: ") || error.starts_with("no certificate authorities"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn hung_server_times_out_after_10_s() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bound");
    let address = listener.local_addr().expect("an address");
    let uri = format!("http://{address}/").parse().expect("a URI");
    let begin = tokio::time::Instant::now();
    let fetched = Fetcher::new(uri, HeaderMap::new()).fetch().await;
    assert_eq!(
        fetched.expect_err("no answer").to_string(),
        "timed out after 10 s"
    );
    assert_eq!(begin.elapsed().as_secs(), 10);
}
