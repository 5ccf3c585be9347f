//! Contents, order and end of watches.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_fake_api::{FakeApiServer, User};

use crate::call::{Caller, Events};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

fn setup() -> (FakeApiServer, Caller) {
    let server = FakeApiServer::new();
    let caller = Caller::new(&server, User::admin());
    (server, caller)
}

fn map(name: &str, app: &str) -> Value {
    json!({ "metadata": { "name": name, "labels": { "app": app } } })
}

#[tokio::test(start_paused = true)]
async fn object_entering_or_leaving_a_selection_is_added_or_deleted() {
    let (server, api) = setup();
    let from = server.version();
    let path = format!("{MAPS}?watch=true&resourceVersion={from}&labelSelector=app%3Dx");
    let mut events = Events::begin(&api, &path).await;
    let label = async |name: &str, app: &str| {
        let change = json!({ "metadata": { "labels": { "app": app } } });
        api.patch(&format!("{MAPS}/{name}"), MERGE, change).await.1
    };
    api.post(MAPS, map("a", "x")).await;
    api.post(MAPS, map("b", "y")).await;
    label("b", "x").await;
    let left = label("a", "z").await;
    label("b", "w").await;
    api.delete(&format!("{MAPS}/b"), json!({})).await;
    for expected in ["ADDED a", "ADDED b"] {
        assert_eq!(events.next_line().await, expected);
    }
    let deleted = events.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    // in its last matching state, with the version of the change
    assert_eq!(deleted["object"]["metadata"]["labels"]["app"], "x");
    let version = &deleted["object"]["metadata"]["resourceVersion"];
    assert_eq!(version, &left["metadata"]["resourceVersion"]);
    assert_eq!(events.next_line().await, "DELETED b");
}

#[tokio::test(start_paused = true)]
async fn watch_continues_from_its_version_without_gap() {
    let (_server, api) = setup();
    api.post(MAPS, map("a", "x")).await;
    let (_, list) = api.get(MAPS).await;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    api.post(MAPS, map("b", "x")).await;
    api.delete(&format!("{MAPS}/a"), json!({})).await;
    let mut events = Events::begin(&api, &format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    api.post(MAPS, map("c", "x")).await;
    let mut last = 0;
    for expected in ["ADDED b", "DELETED a", "ADDED c"] {
        let event = events.next().await.unwrap();
        let metadata = &event["object"]["metadata"];
        let kind = event["type"].as_str().unwrap();
        assert_eq!(
            format!("{kind} {}", metadata["name"].as_str().unwrap()),
            expected
        );
        let version: u64 = metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!(version > last);
        last = version;
    }
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_version_starts_with_the_set() {
    let (_server, api) = setup();
    api.post(MAPS, map("b", "x")).await;
    api.post(MAPS, map("a", "x")).await;
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let mut events = Events::begin(&api, &format!("{MAPS}?{query}")).await;
        assert_eq!(events.next_line().await, "ADDED a", "{query}");
        assert_eq!(events.next_line().await, "ADDED b", "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_ends_its_initial_set_with_a_bookmark() {
    let (server, api) = setup();
    api.post(MAPS, map("a", "x")).await;
    let version = server.version();
    let streaming = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                     &allowWatchBookmarks=true";
    let mut events = Events::begin(&api, &format!("{MAPS}?{streaming}")).await;
    assert_eq!(events.next_line().await, "ADDED a");
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    let metadata = &bookmark["object"]["metadata"];
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(metadata["resourceVersion"], version.to_string());
    api.post(MAPS, map("b", "x")).await;
    assert_eq!(events.next_line().await, "ADDED b");

    let unmatched = format!("{MAPS}?watch=1&sendInitialEvents=true");
    assert_eq!(api.get(&unmatched).await.0, 422);
    let alone = format!("{MAPS}?watch=1&resourceVersionMatch=NotOlderThan");
    assert_eq!(api.get(&alone).await.0, 422);
    server.faults().no_streaming_lists(true);
    let (code, status) = api.get(&format!("{MAPS}?{streaming}")).await;
    assert_eq!((code, &status["reason"]), (422, &json!("Invalid")));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_sent_every_minute_until_the_timeout() {
    let (server, api) = setup();
    let began = tokio::time::Instant::now();
    let path =
        format!("{MAPS}?watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=150");
    let mut events = Events::begin(&api, &path).await;
    for minute in 1..=2 {
        let bookmark = events.next().await.unwrap();
        assert_eq!(bookmark["type"], "BOOKMARK");
        let version = &bookmark["object"]["metadata"]["resourceVersion"];
        assert_eq!(version, &server.version().to_string());
        assert_eq!(began.elapsed(), Duration::from_secs(60 * minute));
    }
    assert_eq!(events.next_line().await, "end");
    assert_eq!(began.elapsed(), Duration::from_secs(150));
}

#[tokio::test(start_paused = true)]
async fn compacted_version_is_expired() {
    let (server, api) = setup();
    api.post(MAPS, map("a", "x")).await;
    let old = server.version();
    api.post(MAPS, map("b", "x")).await;
    server.faults().expire_versions();
    let mut events = Events::begin(&api, &format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    assert_eq!(events.next_line().await, "ERROR 410");
    assert_eq!(events.next_line().await, "end");
    let newest = server.version();
    let mut events = Events::begin(&api, &format!("{MAPS}?watch=1&resourceVersion={newest}")).await;
    api.post(MAPS, map("c", "x")).await;
    assert_eq!(events.next_line().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn the_log_keeps_a_window_of_changes() {
    let (server, api) = setup();
    api.post(MAPS, map("a", "x")).await;
    let old = server.version();
    for n in 0..5000 {
        let change = json!({ "metadata": { "labels": { "n": n.to_string() } } });
        api.patch(&format!("{MAPS}/a"), MERGE, change).await;
    }
    for (from, expected) in [(old, "ERROR 410"), (server.version() - 4096, "MODIFIED a")] {
        let path = format!("{MAPS}?watch=1&resourceVersion={from}");
        let mut events = Events::begin(&api, &path).await;
        assert_eq!(events.next_line().await, expected, "{from}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_receive_a_change_in_the_order_of_their_start() {
    let (server, api) = setup();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let local = tokio::task::LocalSet::new();
    for watch in 0..8 {
        let path = format!("{MAPS}?watch=1&resourceVersion={}", server.version());
        let mut events = Events::begin(&api, &path).await;
        let heard = heard.clone();
        local.spawn_local(async move {
            for _ in 0..2 {
                let line = events.next_line().await;
                heard.borrow_mut().push(format!("{watch} {line}"));
            }
        });
    }
    local
        .run_until(async {
            // lets the watches start to wait, in order
            tokio::time::sleep(Duration::from_secs(1)).await;
            for name in ["a", "b"] {
                api.post(MAPS, map(name, "x")).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .await;
    local.await;
    let expected: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|name| (0..8).map(move |watch| format!("{watch} ADDED {name}")))
        .collect();
    assert_eq!(*heard.borrow(), expected);
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_watch_progress_ends_with_error_event() {
    let (server, api) = setup();
    api.post(MAPS, map("a", "x")).await;
    server.faults().no_watch_progress(true);
    let streaming = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut events = Events::begin(&api, &format!("{MAPS}?{streaming}")).await;
    let error = events.next().await.unwrap();
    assert_eq!(
        error,
        json!({ "type": "ERROR", "object": {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "a watch stream was requested by the client but the required storage \
                        feature RequestWatchProgress is disabled",
            "reason": "InternalError", "code": 500,
        }})
    );
    assert!(events.next().await.is_none());
    // lists and other watches do not need it
    assert_eq!(api.get(MAPS).await.0, 200);
    let mut events = Events::begin(&api, &format!("{MAPS}?watch=true")).await;
    assert_eq!(events.next_line().await, "ADDED a");
}
