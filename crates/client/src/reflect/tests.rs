//! The reflector against a scripted server, on paused time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;

use super::*;

/// The response to one request.
enum ScriptedResponse {
    /// A status code, `Retry-After` in seconds if any, a body.
    Plain(u16, Option<u32>, String),
    /// A watch with these lines, and its end.
    Watch(Vec<String>, End),
}

enum End {
    /// Closed after a time.
    Close(Duration),
    /// The connection breaks after a time.
    Break(Duration),
    /// Silence.
    Silence,
}

#[derive(Clone)]
struct Server {
    script: Arc<Mutex<VecDeque<ScriptedResponse>>>,
    asked: Arc<Mutex<Vec<String>>>,
    began: Instant,
}

type Data = StreamBody<BoxStream<'static, Result<Frame<Bytes>, std::io::Error>>>;

impl Server {
    fn new(script: impl IntoIterator<Item = ScriptedResponse>) -> Self {
        Self {
            script: Arc::new(Mutex::new(script.into_iter().collect())),
            asked: Arc::default(),
            began: Instant::now(),
        }
    }

    fn events(&self) -> Pin<Box<dyn Stream<Item = ReflectEvent<ConfigMap>> + Send>> {
        Box::pin(reflect::<ConfigMap>(self.client(), Selector::default()))
    }

    fn client(&self) -> ApiClient {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let query = request.uri().query().unwrap_or_default().to_owned();
            async move { Ok::<_, Infallible>(server.answer(&query).await) }
        });
        ApiClient::from_service(service, Duration::from_secs(30))
    }

    async fn answer(&self, query: &str) -> Response<Data> {
        let value = |name: &str| {
            form_urlencoded::parse(query.as_bytes())
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        let asked = match (value("watch"), value("sendInitialEvents")) {
            (None, _) => "list".to_owned(),
            (_, Some(_)) => "stream".to_owned(),
            _ => format!("watch {}", value("resourceVersion").unwrap_or_default()),
        };
        let at = self.began.elapsed().as_secs();
        self.asked
            .lock()
            .expect("lock")
            .push(format!("{at}s {asked}"));
        let answer = self.script.lock().expect("lock").pop_front();
        match answer {
            None => std::future::pending().await,
            Some(ScriptedResponse::Plain(code, retry_after, body)) => {
                let mut response = Response::builder().status(code);
                if let Some(seconds) = retry_after {
                    response = response.header("retry-after", seconds);
                }
                let data = stream::iter([Ok(Frame::data(Bytes::from(body)))]);
                response
                    .body(StreamBody::new(data.boxed()))
                    .expect("response")
            }
            Some(ScriptedResponse::Watch(lines, end)) => {
                let lines = lines
                    .into_iter()
                    .map(|line| Ok(Frame::data(Bytes::from(line + "\n"))));
                let rest = stream::once(async move {
                    match end {
                        Close(after) => tokio::time::sleep(after).await,
                        Break(after) => {
                            tokio::time::sleep(after).await;
                            return Some(Err(std::io::Error::other("broken pipe")));
                        }
                        Silence => std::future::pending().await,
                    }
                    None
                });
                let data = stream::iter(lines).chain(rest.filter_map(std::future::ready));
                Response::new(StreamBody::new(data.boxed()))
            }
        }
    }

    /// `<second> <request>` of all requests.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("lock").clone()
    }
}

use End::{Break, Close, Silence};

fn object(name: &str, version: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "ns", "resourceVersion": version,
            "managedFields": [{"manager": "kubectl"}],
        },
    })
}

fn event(kind: &str, name: &str, version: &str) -> String {
    serde_json::json!({ "type": kind, "object": object(name, version) }).to_string()
}

fn bookmark(version: &str, initial_end: bool) -> String {
    let annotations = match initial_end {
        true => serde_json::json!({ "k8s.io/initial-events-end": "true" }),
        false => serde_json::Value::Null,
    };
    serde_json::json!({ "type": "BOOKMARK", "object": {
        "kind": "ConfigMap",
        "metadata": { "resourceVersion": version, "annotations": annotations },
    }})
    .to_string()
}

fn gone() -> String {
    serde_json::json!({ "type": "ERROR", "object": {
        "kind": "Status", "code": 410, "reason": "Expired", "message": "too old",
    }})
    .to_string()
}

fn list(version: &str, objects: &[(&str, &str)]) -> ScriptedResponse {
    let items: Vec<_> = objects.iter().map(|(n, v)| object(n, v)).collect();
    let metadata = serde_json::json!({ "resourceVersion": version });
    let body = serde_json::json!({ "metadata": metadata, "items": items });
    ScriptedResponse::Plain(200, None, body.to_string())
}

fn refused(code: u16, retry_after: Option<u32>) -> ScriptedResponse {
    let body = serde_json::json!({ "kind": "Status", "code": code, "message": "no" });
    ScriptedResponse::Plain(code, retry_after, body.to_string())
}

/// A streaming list of `a` at version 5.
fn streamed(more: &[String], end: End) -> ScriptedResponse {
    let first = [event("ADDED", "a", "5"), bookmark("5", true)];
    ScriptedResponse::Watch(first.iter().chain(more).cloned().collect(), end)
}

fn line(event: &ReflectEvent<ConfigMap>) -> String {
    let show = |object: &ConfigMap| {
        assert!(object.metadata.managed_fields.is_none(), "dropped");
        let (_, name) = key(object);
        format!(" {name}={}", version(object))
    };
    match event {
        ReflectEvent::Synced(all) => {
            format!("synced{}", all.iter().map(show).collect::<String>())
        }
        ReflectEvent::Applied(object) => format!("applied{}", show(object)),
        ReflectEvent::Deleted(object) => format!("deleted{}", show(object)),
        ReflectEvent::Failed { error, .. } => format!("failed {:?}", error.kind),
        ReflectEvent::Resumed => "resumed".to_owned(),
    }
}

/// Compares the next events, with a timeout of an hour each.
async fn check(events: &mut (impl Stream<Item = ReflectEvent<ConfigMap>> + Unpin), want: &[&str]) {
    let mut got = Vec::new();
    for _ in want {
        let next = tokio::time::timeout(Duration::from_secs(3600), events.next());
        let event = next
            .await
            .unwrap_or_else(|_| panic!("no more after {got:?}"));
        got.push(line(&event.expect("endless")));
    }
    assert_eq!(got, want);
}

/// Checks that the stream yields nothing for a while.
async fn quiet(events: &mut (impl Stream<Item = ReflectEvent<ConfigMap>> + Unpin), seconds: u64) {
    let next = tokio::time::timeout(Duration::from_secs(seconds), events.next()).await;
    assert!(next.is_err(), "{:?}", next.map(|e| e.map(|e| line(&e))));
}

#[tokio::test(start_paused = true)]
async fn streaming_list_yields_the_set_and_then_changes() {
    let more = [
        event("MODIFIED", "a", "6"),
        event("ADDED", "b", "7"),
        event("DELETED", "a", "8"),
    ];
    let server = Server::new([streamed(&more, Silence)]);
    let mut events = server.events();
    let want = ["synced a=5", "applied a=6", "applied b=7", "deleted a=8"];
    check(&mut events, &want).await;
    assert_eq!(server.asked(), ["0s stream"]);
}

#[tokio::test(start_paused = true)]
async fn server_without_streaming_lists_is_listed_and_watched() {
    for code in [400, 403, 404, 405, 422, 500, 501, 503] {
        let server = Server::new([
            refused(code, None),
            list("5", &[("a", "5")]),
            ScriptedResponse::Watch(vec![event("ADDED", "b", "6"), gone()], Silence),
            list("9", &[("b", "6")]),
        ]);
        let mut events = server.events();
        check(&mut events, &["synced a=5", "applied b=6", "synced b=6"]).await;
        let asked = ["0s stream", "0s list", "0s watch 5", "0s list"];
        assert_eq!(server.asked(), asked, "{code}: for good");
    }
}

/// The response of a kube-apiserver whose etcd has no `RequestWatchProgress`, after the status 200.
fn without_watch_progress() -> ScriptedResponse {
    ScriptedResponse::Watch(
        vec![error_event(500, "InternalError", NO_PROGRESS)],
        Silence,
    )
}

const NO_PROGRESS: &str = "a watch stream was requested by the client but the required storage \
                           feature RequestWatchProgress is disabled";

fn error_event(code: u16, reason: &str, message: &str) -> String {
    serde_json::json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    }})
    .to_string()
}

#[tokio::test(start_paused = true)]
async fn streaming_list_with_error_event_falls_back_to_list() {
    for (code, reason) in [
        (500, "InternalError"),
        (400, "BadRequest"),
        (403, "Forbidden"),
        (410, "Expired"),
        (503, "ServiceUnavailable"),
    ] {
        let server = Server::new([
            ScriptedResponse::Watch(vec![error_event(code, reason, NO_PROGRESS)], Silence),
            list("5", &[("a", "5")]),
            ScriptedResponse::Watch(vec![event("ADDED", "b", "6")], Silence),
        ]);
        let mut events = server.events();
        check(&mut events, &["synced a=5", "applied b=6"]).await;
        let asked = ["0s stream", "0s list", "0s watch 5"];
        assert_eq!(server.asked(), asked, "{code}: at once");
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_refused_by_server_spares_other_sets() {
    let server = Server::new([
        without_watch_progress(),
        list("5", &[("a", "5")]),
        ScriptedResponse::Watch(Vec::new(), Silence),
        list("5", &[("a", "5")]),
        ScriptedResponse::Watch(Vec::new(), Silence),
        without_watch_progress(),
        list("5", &[("a", "5")]),
        ScriptedResponse::Watch(Vec::new(), Silence),
    ]);
    let client = server.client();
    let set = || Box::pin(reflect::<ConfigMap>(client.clone(), Selector::default()));
    let mut first = set();
    check(&mut first, &["synced a=5"]).await;
    quiet(&mut first, 1).await;
    let mut second = set();
    check(&mut second, &["synced a=5"]).await;
    quiet(&mut second, 1).await;
    drop((first, second));
    tokio::time::sleep(plan::REPROBE_INTERVAL).await;
    let mut third = set();
    check(&mut third, &["synced a=5"]).await;
    let asked = server.asked();
    let asked: Vec<&str> = asked
        .iter()
        .filter_map(|a| a.split_once(' '))
        .map(|(_, what)| what)
        .collect();
    assert_eq!(
        asked,
        [
            "stream", "list", "watch 5", "list", "watch 5", "stream", "list"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_watches_lead_to_lists_at_falling_rate() {
    let mut script = Vec::new();
    for round in 0..100 {
        if round == 0 {
            script.push(without_watch_progress());
        }
        if round == 0 || round > 2 {
            script.push(list(&format!("{}", 5 + round), &[("a", "5")]));
        }
        let error = error_event(500, "InternalError", "no watches today");
        script.push(ScriptedResponse::Watch(vec![error], Silence));
    }
    let server = Server::new(script);
    let mut events = server.events();
    let want = [
        "synced a=5",
        "failed Server",
        "failed Server",
        "failed Server",
        "synced a=5",
        "failed Server",
        "synced a=5",
    ];
    check(&mut events, &want).await;
    let lists_until = |second: u64| {
        let asked = server.asked();
        let at = |a: &&String| {
            a.split_once("s ").is_some_and(|(at, what)| {
                what == "list" && at.parse().is_ok_and(|at: u64| at <= second)
            })
        };
        asked.iter().filter(at).count()
    };
    let ten_minutes = async {
        while let Some(event) = events.next().await {
            assert!(!matches!(event, ReflectEvent::Resumed), "it does not work");
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(600), ten_minutes)
            .await
            .is_err()
    );
    let lists = lists_until(600);
    assert!((15..60).contains(&lists), "{lists} lists in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn watch_after_failures_is_reported_as_resumed() {
    let flapping =
        || ScriptedResponse::Watch(vec![error_event(500, "InternalError", "no")], Silence);
    let server = Server::new([
        streamed(&[], Break(Duration::from_secs(60))),
        flapping(),
        ScriptedResponse::Watch(Vec::new(), Silence),
    ]);
    let mut events = server.events();
    let want = [
        "synced a=5",
        "failed Connection",
        "failed Server",
        "resumed",
    ];
    check(&mut events, &want).await;
    quiet(&mut events, 60).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_bookmark_falls_back_to_list() {
    for end in [Silence, Close(Duration::ZERO)] {
        let ignored = ScriptedResponse::Watch(vec![event("ADDED", "a", "5")], end);
        let server = Server::new([ignored, list("5", &[("a", "5")])]);
        let mut events = server.events();
        check(&mut events, &["synced a=5"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn closed_watch_continues_from_the_last_bookmark() {
    let minutes = Duration::from_secs(290);
    let server = Server::new([
        streamed(&[bookmark("40", false)], Close(minutes)),
        ScriptedResponse::Watch(vec![event("MODIFIED", "a", "41")], Close(minutes)),
        ScriptedResponse::Watch(Vec::new(), Silence),
    ]);
    let mut events = server.events();
    check(&mut events, &["synced a=5", "applied a=41"]).await;
    quiet(&mut events, 300).await;
    assert_eq!(
        server.asked(),
        ["0s stream", "290s watch 40", "580s watch 41"]
    );
}

#[tokio::test(start_paused = true)]
async fn broken_or_silent_watch_continues_from_its_position() {
    let server = Server::new([
        streamed(&[], Break(Duration::from_secs(60))),
        ScriptedResponse::Watch(Vec::new(), Silence),
        ScriptedResponse::Watch(vec![event("DELETED", "a", "9")], Silence),
    ]);
    let mut events = server.events();
    let want = [
        "synced a=5",
        "failed Connection",
        "resumed",
        "failed Timeout",
        "deleted a=9",
    ];
    check(&mut events, &want).await;
    let asked = server.asked();
    let watches: Vec<&str> = asked
        .iter()
        .filter_map(|a| a.split_once(' '))
        .map(|(_, what)| what)
        .collect();
    assert_eq!(watches, ["stream", "watch 5", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_close_at_once_back_off() {
    let closing = || ScriptedResponse::Watch(Vec::new(), Close(Duration::ZERO));
    let mut script = vec![streamed(&[], Close(Duration::ZERO))];
    script.extend((0..1000).map(|_| closing()));
    let server = Server::new(script);
    let mut events = server.events();
    check(&mut events, &["synced a=5"]).await;
    quiet(&mut events, 600).await;
    let count = server.asked().len();
    assert!((20..60).contains(&count), "{count} requests in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn expired_version_reads_the_set_again_without_failure() {
    let again = vec![event("ADDED", "b", "90"), bookmark("99", true)];
    let server = Server::new([
        streamed(&[gone()], Silence),
        ScriptedResponse::Watch(again, Silence),
    ]);
    let mut events = server.events();
    check(&mut events, &["synced a=5", "synced b=90"]).await;
    assert_eq!(server.asked(), ["0s stream", "0s stream"]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_server_is_respected() {
    let server = Server::new([refused(429, Some(17)), streamed(&[], Silence)]);
    let mut events = server.events();
    check(&mut events, &["failed TooManyRequests", "synced a=5"]).await;
    assert_eq!(server.asked(), ["0s stream", "17s stream"]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_reported_with_backoff_until_the_set() {
    // the streaming list fails first, and the list follows at once
    let mut script: Vec<ScriptedResponse> = [500, 500, 503, 401, 403, 500, 500, 500]
        .map(|code| refused(code, None))
        .into();
    script.push(list("5", &[("a", "5")]));
    let server = Server::new(script);
    let mut events = server.events();
    let mut waited = Duration::ZERO;
    for _ in 0..7 {
        match events.next().await.expect("endless") {
            ReflectEvent::Failed { retry_in, .. } => waited += retry_in,
            other => panic!("{other:?}"),
        }
    }
    check(&mut events, &["synced a=5"]).await;
    assert!(server.began.elapsed().abs_diff(waited) < Duration::from_millis(50));
    assert!(
        waited > Duration::from_secs(40),
        "doubled each time: {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_and_reordered_events_are_delivered_once_in_order() {
    let more = [
        event("ADDED", "a", "5"),
        event("MODIFIED", "a", "10"),
        event("MODIFIED", "a", "9"),
        event("MODIFIED", "a", "10"),
        event("ADDED", "b", "8"),
        event("DELETED", "b", "11"),
        event("ADDED", "b", "8"),
        event("DELETED", "b", "11"),
        event("ADDED", "b", "12"),
    ];
    let server = Server::new([streamed(&more, Silence)]);
    let mut events = server.events();
    let want = [
        "synced a=5",
        "applied a=10",
        "applied b=8",
        "deleted b=11",
        "applied b=12",
    ];
    check(&mut events, &want).await;
    quiet(&mut events, 60).await;
}

#[tokio::test(start_paused = true)]
async fn outdated_set_is_read_again() {
    let old = vec![event("ADDED", "a", "5"), bookmark("5", true)];
    let new = vec![event("ADDED", "a", "20"), bookmark("21", true)];
    let server = Server::new([
        streamed(&[event("MODIFIED", "a", "20"), gone()], Silence),
        ScriptedResponse::Watch(old, Silence),
        ScriptedResponse::Watch(new, Silence),
    ]);
    let mut events = server.events();
    check(&mut events, &["synced a=5", "applied a=20", "synced a=20"]).await;
}

#[tokio::test(start_paused = true)]
async fn undecodable_event_reads_the_set_again_without_its_content() {
    let secret = r#"{"type":"ADDED","object":{"data":"hunter2"}}"#.to_owned();
    let server = Server::new([streamed(&[secret], Silence), streamed(&[], Silence)]);
    let mut events = server.events();
    check(&mut events, &["synced a=5"]).await;
    let failed = pin!(events.next()).await.expect("endless");
    assert!(!format!("{failed:?}").contains("hunter2"), "{failed:?}");
    check(&mut events, &["synced a=5"]).await;
}
