//! Logs of containers through the router: what is answered, and what ends when.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::tests::{World, entry};
use crate::{NodeApi, ServerType, router};

/// A node with one pod `web` of a container `app`, an init container and an ephemeral one.
struct Node {
    world: World,
    logs: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let logs = tempfile::tempdir().expect("directory");
        let mut world = World::new();
        world.deps.paths.pod_logs_dir = logs.path().to_owned();
        let node = Self { world, logs };
        node.is(&json!({"running": {}}), &json!({}), 0);
        node
    }

    /// `app` is in this state.
    fn is(&self, state: &Value, last: &Value, restarts: u32) {
        let mut view = entry("web");
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "web-uid"},
            "spec": {
                "containers": [{"name": "app"}],
                "initContainers": [{"name": "init"}],
                "ephemeralContainers": [{"name": "debug"}],
            },
        });
        let status = |name: &str, state: &Value, last: &Value, restarts: u32| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": true,
                "restartCount": restarts, "state": state, "lastState": last,
            })
        };
        let ended = json!({"terminated": {"exitCode": 0}});
        let status = json!({
            "containerStatuses": [status("app", state, last, restarts)],
            "initContainerStatuses": [status("init", &ended, &json!({}), 0)],
            "ephemeralContainerStatuses": [status("debug", &ended, &json!({}), 0)],
        });
        view.pod = Arc::new(serde_json::from_value(pod).expect("pod"));
        view.status = Arc::new(serde_json::from_value(status).expect("status"));
        self.world.deps.board.publish(view);
    }

    fn log(&self, container: &str, attempt: u32) -> PathBuf {
        let directory = self.logs.path().join("default_web_web-uid").join(container);
        fs::create_dir_all(&directory).expect("directory");
        directory.join(format!("{attempt}.log"))
    }

    fn write(&self, container: &str, attempt: u32, lines: &[&str]) {
        let path = self.log(container, attempt);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.expect("log");
        for line in lines {
            writeln!(file, "2026-11-22T03:59:{line}").expect("write");
        }
    }

    /// Code and body of a GET; the body's lines end with `|`.
    async fn get(&self, target: &str) -> String {
        let (status, body) = self.world.get(target).await;
        format!("{} {}", status.as_u16(), body.replace('\n', "|"))
    }

    async fn follow(&self) -> Followed {
        let api = NodeApi::new(self.world.deps.clone());
        let target = "/containerLogs/default/web/app?follow=true";
        let request = Request::get(target).body(Body::empty()).expect("request");
        let response = router(api, ServerType::ReadWrite).oneshot(request);
        let response = response.await.expect("answer");
        assert_eq!(response.status(), StatusCode::OK);
        Followed(response.into_body().into_data_stream().boxed())
    }
}

struct Followed(futures::stream::BoxStream<'static, Result<Bytes, axum::Error>>);

impl Followed {
    /// The next block, or `end`.
    async fn next(&mut self) -> String {
        match within(self.0.next()).await {
            Some(Ok(block)) => String::from_utf8_lossy(&block).into_owned(),
            Some(Err(error)) => format!("[{error}]"),
            None => "end".to_owned(),
        }
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let within = tokio::time::timeout(Duration::from_secs(20), future);
    within.await.expect("in time")
}

#[tokio::test]
async fn a_container_s_log_is_told_as_far_as_asked() {
    let mut node = Node::new();
    node.write(
        "app",
        0,
        &["10Z stdout F one", "20Z stderr F two", "50Z stdout F three"],
    );
    node.write("init", 0, &["01Z stdout F set up"]);
    node.write("debug", 0, &["02Z stdout F a shell"]);
    #[rustfmt::skip]
    let cases = [
        ("web/app", "200 one|two|three|"),
        ("web/app?follow=false&tail=all", "200 one|two|three|"),
        ("web/app?tailLines=1", "200 three|"),
        ("web/app?tailLines=0", "200 "),
        ("web/app?limitBytes=5", "200 one|t"),
        ("web/app?sinceSeconds=15", "200 three|"),
        ("web/app?sinceTime=2026-11-22T03:59:20Z", "200 two|three|"),
        ("web/app?timestamps=true&tailLines=1", "200 2026-11-22T03:59:50.000000000Z three|"),
        ("web/init?follow=true", "200 set up|"),
        ("web/debug", "200 a shell|"),
        ("web/app?stream=All", "200 one|two|three|"),
        ("web/app?stream=Stderr", "400 unable to return the given log stream: \"Stderr\". \
            Please enable PodLogsQuerySplitStreams feature gate in kubelet"),
        ("web/app?tailLines=many", "400 {\"message\": \"Unable to decode query.\"}"),
        ("web/app?tailLines=%ff", "400 {\"message\": \"Unable to decode query.\"}"),
        ("web/app?tailLines=-1", "422 {\"message\": \"Invalid request.\"}"),
        ("none/app", "404 pod \"none\" does not exist"),
        ("web/none", "404 container \"none\" not found in pod \"web\""),
        ("web/..%2F..%2Fetc", "404 container \"../../etc\" not found in pod \"web\""),
        ("..%2Fweb/app", "404 pod \"../web\" does not exist"),
        ("web/%00", "404 container \"\\0\" not found in pod \"web\""),
        ("web/app?previous=true",
            "400 previous terminated container \"app\" in pod \"web\" not found"),
    ];
    for (target, expected) in cases {
        let target = format!("/containerLogs/default/{target}");
        assert_eq!(node.get(&target).await, expected, "{target}");
    }
    assert!(
        node.get("/containerLogs/default/%ff/app")
            .await
            .starts_with("400 ")
    );
    node.world.deps.settings.log_streams = true;
    let stderr = node
        .get("/containerLogs/default/web/app?stream=Stderr")
        .await;
    assert_eq!(stderr, "200 two|");
}

#[tokio::test]
async fn the_instance_is_the_one_that_runs_or_ran_last() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F first"]);
    node.write("app", 1, &["20Z stdout F second"]);
    let (app, previous) = (
        "/containerLogs/default/web/app",
        "/containerLogs/default/web/app?previous=true",
    );
    let ended = json!({"terminated": {"exitCode": 1}});
    let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    node.is(&json!({"running": {}}), &ended, 1);
    assert_eq!(node.get(app).await, "200 second|");
    assert_eq!(node.get(previous).await, "200 first|");
    node.is(&crash, &ended, 1);
    assert_eq!(node.get(app).await, "200 second|");
    assert_eq!(node.get(previous).await, "200 second|");
    node.is(
        &json!({"waiting": {"reason": "ErrImagePull"}}),
        &json!({}),
        0,
    );
    assert_eq!(
        node.get(app).await,
        "400 container \"app\" in pod \"web\" is waiting to start: image can't be pulled"
    );
    node.is(&json!({"running": {}}), &ended, 7);
    let gone = node.get(app).await;
    assert!(gone.starts_with("400 failed to open log file"), "{gone}");
}

#[tokio::test]
async fn what_follows_goes_over_a_rotation_and_ends_with_its_container() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let mut followed = node.follow().await;
    assert_eq!(followed.next().await, "one\n");
    node.write("app", 0, &["11Z stdout F two"]);
    let log = node.log("app", 0);
    fs::rename(&log, log.with_extension("log.20261122-040000")).expect("rename");
    node.write("app", 0, &["12Z stdout F three"]);
    assert_eq!(followed.next().await, "two\n");
    assert_eq!(followed.next().await, "three\n");
    node.write("app", 0, &["13Z stdout F last words"]);
    node.is(&json!({"terminated": {"exitCode": 0}}), &json!({}), 0);
    assert_eq!(followed.next().await, "last words\n");
    assert_eq!(followed.next().await, "end");
}

#[tokio::test]
async fn what_follows_ends_when_its_pod_is_deleted_or_the_agent_stops() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let mut deleted = node.follow().await;
    assert_eq!(deleted.next().await, "one\n");
    fs::remove_dir_all(node.logs.path().join("default_web_web-uid")).expect("removed");
    node.world.deps.board.remove(&"web-uid".into());
    assert_eq!(deleted.next().await, "end");

    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let mut followed = node.follow().await;
    assert_eq!(followed.next().await, "one\n");
    node.world.deps.shutdown.cancel();
    assert_eq!(followed.next().await, "end");
}

#[tokio::test]
async fn a_thousand_follow_and_what_their_clients_leave_is_nothing() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let mut all = Vec::new();
    for _ in 0..1000 {
        let mut followed = node.follow().await;
        assert_eq!(followed.next().await, "one\n");
        all.push(followed);
    }
    node.write("app", 0, &["11Z stdout F two"]);
    for followed in &mut all {
        assert_eq!(followed.next().await, "two\n");
    }
    assert!(tasks() >= before + 1000, "each has a reader");
    drop(all);
    within(async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
