//! Requests and responses over a scripted service.

use std::sync::Mutex;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use super::*;

type RequestLog = Arc<Mutex<Vec<String>>>;

/// A client whose server returns these chunks, and a log of the requests.
fn answering(
    status: u16,
    pieces: impl Iterator<Item = Bytes> + Clone + Send + 'static,
) -> (ApiClient, RequestLog) {
    let asked = RequestLog::default();
    let log = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let line = format!("{} {}", request.method(), request.uri());
        log.lock().expect("lock").push(line);
        let frames = pieces
            .clone()
            .map(|piece| Ok::<_, std::io::Error>(Frame::data(piece)));
        let mut response = http::Response::new(StreamBody::new(stream::iter(frames)));
        *response.status_mut() = StatusCode::from_u16(status).expect("status");
        std::future::ready(Ok::<_, std::io::Error>(response))
    });
    (
        ApiClient::from_service(service, Duration::from_secs(30)),
        asked,
    )
}

#[tokio::test]
async fn name_is_escaped_as_one_path_segment() {
    let (client, asked) = answering(200, std::iter::once(Bytes::from_static(b"{}")));
    let check = async |namespace: &str, name: &str, expected: &str| {
        let at = ObjectKey::namespaced(namespace, name);
        client
            .delete::<Pod>(at, &Delete::default())
            .await
            .expect("sent");
        let line = asked.lock().expect("lock").pop().expect("asked");
        assert_eq!(line, format!("DELETE /api/v1/namespaces/{expected}"));
    };
    check("ns", "web-0.x", "ns/pods/web-0.x").await;
    check("ns", "a/../b", "ns/pods/a%2F..%2Fb").await;
    check("ns/x", "a?b#c%", "ns%2Fx/pods/a%3Fb%23c%25").await;
    for (namespace, name) in [("ns", ""), ("ns", ".."), ("", "web"), (".", "web")] {
        let at = ObjectKey::namespaced(namespace, name);
        let refused = client.delete::<Pod>(at, &Delete::default()).await;
        assert_eq!(refused.expect_err("refused").kind, ApiErrorKind::Invalid);
    }
    assert!(asked.lock().expect("lock").is_empty(), "nothing was sent");
}

#[tokio::test]
async fn response_over_the_size_limit_is_an_error() {
    let piece = Bytes::from(vec![b' '; 1 << 20]);
    let read = Arc::new(Mutex::new(0));
    let count = read.clone();
    let pieces = move || {
        let count = count.clone();
        std::iter::repeat_with({
            let piece = piece.clone();
            move || {
                *count.lock().expect("lock") += piece.len();
                piece.clone()
            }
        })
    };
    let (client, _) = answering(200, pieces());
    let error = client.get::<Pod>(ObjectKey::namespaced("ns", "web")).await;
    assert_eq!(error.expect_err("too long").kind, ApiErrorKind::Protocol);
    assert!(*read.lock().expect("lock") <= MAX_RESPONSE_BYTES + (2 << 20));

    *read.lock().expect("lock") = 0;
    let (client, _) = answering(503, pieces());
    let error = client.get::<Pod>(ObjectKey::namespaced("ns", "web")).await;
    assert_eq!(error.expect_err("refused").kind, ApiErrorKind::Server);
    assert!(*read.lock().expect("lock") <= MAX_ERROR_BYTES + (2 << 20));
}

#[tokio::test]
async fn long_server_message_is_truncated() {
    let status = serde_json::json!({"kind": "Status", "message": "é".repeat(5000)});
    let (client, _) = answering(500, std::iter::once(Bytes::from(status.to_string())));
    let error = client.get::<Pod>(ObjectKey::namespaced("ns", "web")).await;
    let message = error.expect_err("refused").message;
    assert!(
        message.ends_with("é...") && message.len() < 5000,
        "{}",
        message.len()
    );
}

#[tokio::test]
async fn error_does_not_contain_the_body() {
    let text = r#"{"type":"ADDED","object":{"data":{"k":7,"password":"hunter2"}}}"#;
    let (client, _) = answering(200, std::iter::once(Bytes::from(format!("{text}\n"))));
    let error = client
        .get::<ConfigMap>(ObjectKey::namespaced("ns", "c"))
        .await;
    let mut errors = vec![error.map(drop)];
    let watch = Watch {
        resource_version: String::new(),
        initial_events: false,
    };
    let mut events = client
        .watch::<ConfigMap>(&Selector::default(), &watch)
        .await
        .expect("watch");
    errors.push(events.next().await.expect("an event").map(drop));
    for error in errors.into_iter().filter_map(Result::err) {
        assert!(
            !format!("{error} {error:?}").contains("hunter2"),
            "{error:?}"
        );
    }
}
