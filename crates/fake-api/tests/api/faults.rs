//! Injected faults.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use windlass_fake_api::{FakeApiServer, On, User};

use crate::call::{Caller, Events};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const A_WHILE: Duration = Duration::from_secs(3600);

fn setup() -> (FakeApiServer, Caller) {
    let server = FakeApiServer::new();
    let caller = Caller::new(&server, User::admin());
    (server, caller)
}

fn map(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

#[tokio::test(start_paused = true)]
async fn fault_applies_only_to_matching_calls() {
    let (server, api) = setup();
    let faults = server.faults();
    faults.error_retry_after(
        On::path("*/configmaps").method("GET").after(1).times(2),
        429,
        3,
    );
    for code in [200, 429, 429, 200] {
        assert_eq!(api.get(MAPS).await.0, code);
    }
    let id = faults.error(On::path("*/configmaps").method("WATCH"), 500);
    assert_eq!(api.get(MAPS).await.0, 200);
    assert_eq!(api.get(&format!("{MAPS}?watch=1")).await.0, 500);
    faults.lift(id);
    drop(Events::begin(&api, &format!("{MAPS}?watch=1")).await);
    faults.error(On::any(), 503);
    assert_eq!(api.get("/api/v1/nodes").await.0, 503);
    faults.clear();
    assert_eq!(api.get("/api/v1/nodes").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn calls_are_delayed_or_lost_or_their_responses_are_lost() {
    let (server, api) = setup();
    let faults = server.faults();
    faults.slow(On::any().times(1), Duration::from_secs(5));
    let began = Instant::now();
    assert_eq!(api.get(MAPS).await.0, 200);
    assert_eq!(began.elapsed(), Duration::from_secs(5));

    faults.down(On::any().times(1));
    assert!(
        api.send(Method::POST, MAPS, "", Some(map("a")))
            .await
            .is_err()
    );
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 404);

    faults.drop_reply(On::any().times(1));
    assert!(
        api.send(Method::POST, MAPS, "", Some(map("a")))
            .await
            .is_err()
    );
    assert_eq!(api.get(&format!("{MAPS}/a")).await.0, 200);

    faults.hang(On::any().times(1));
    assert!(timeout(A_WHILE, api.get(MAPS)).await.is_err());
    let codes: Vec<u16> = server.requests().iter().map(|r| r.status).collect();
    assert_eq!(codes, [200, 0, 404, 201, 200, 0]);
}

#[tokio::test(start_paused = true)]
async fn watches_are_closed_or_silenced() {
    let (server, api) = setup();
    let path =
        format!("{MAPS}?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=100");
    let mut closed = Events::begin(&api, &path).await;
    server.faults().close_watches();
    assert_eq!(closed.next_line().await, "end");

    let mut cut = Events::begin(&api, &path).await;
    let outage = server.faults().outage();
    assert_eq!(cut.next_line().await, "end");
    assert!(api.send(Method::GET, MAPS, "", None).await.is_err());
    server.faults().lift(outage);

    let mut silent = Events::begin(&api, &path).await;
    server.faults().silence_watches();
    let mut lively = Events::begin(&api, &path).await;
    api.post(MAPS, map("a")).await;
    assert_eq!(lively.next_line().await, "ADDED a");
    assert!(timeout(A_WHILE, silent.next()).await.is_err());

    server.faults().silent_from_start(true);
    let mut silent = Events::begin(&api, &path).await;
    assert!(timeout(A_WHILE, silent.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn lists_at_any_version_can_lag_behind() {
    let (server, api) = setup();
    api.post(MAPS, map("a")).await;
    let then = server.version();
    server.faults().stale_reads(true);
    api.post(MAPS, map("b")).await;
    api.delete(&format!("{MAPS}/a"), json!({})).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let (_, stale) = api.get(&format!("{MAPS}?resourceVersion=0")).await;
    assert_eq!(names(&stale), ["a"]);
    assert_eq!(stale["metadata"]["resourceVersion"], then.to_string());
    let (_, newest) = api.get(MAPS).await;
    assert_eq!(names(&newest), ["b"]);
    let path = format!("{MAPS}?watch=1&resourceVersion={then}");
    let mut events = Events::begin(&api, &path).await;
    assert_eq!(events.next_line().await, "ADDED b");
    assert_eq!(events.next_line().await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn events_are_repeated_or_out_of_order() {
    let (server, api) = setup();
    let from = server.version();
    for name in ["a", "b"] {
        api.post(MAPS, map(name)).await;
    }
    api.delete(&format!("{MAPS}/a"), json!({})).await;
    let path = format!("{MAPS}?watch=1&resourceVersion={from}");
    for (repeat, reorder, expected) in [
        (false, true, vec!["ADDED b", "ADDED a", "DELETED a"]),
        (
            true,
            false,
            vec!["ADDED a", "ADDED a", "ADDED b", "ADDED b"],
        ),
    ] {
        server.faults().repeat_events(repeat);
        server.faults().reorder_events(reorder);
        let mut events = Events::begin(&api, &path).await;
        for expected in expected {
            assert_eq!(events.next_line().await, expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_returns_after_the_change() {
    let (server, api) = setup();
    let waiting = server.wait_for(|server| {
        let posts = server.requests();
        posts.iter().any(|r| r.method == "POST" && r.status == 201)
    });
    let (_, ()) = tokio::join!(api.post(MAPS, map("a")), waiting);
    assert_eq!(server.requests().len(), 1);
}
