//! Container and system logs through the router: responses, and when they end.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::tests::{TestEnv, entry};
use crate::{Journals, NodeApi, ServerType, router};

/// A node with one pod `web` of a container `app`, an init container and an ephemeral one.
pub(crate) struct Node {
    pub(crate) env: TestEnv,
    logs: tempfile::TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let logs = tempfile::tempdir().expect("directory");
        let mut env = TestEnv::new();
        env.deps.paths.pod_logs_dir = logs.path().to_owned();
        let node = Self { env, logs };
        node.set_state(&json!({"running": {}}), &json!({}), 0);
        node
    }

    /// Sets the state of `app`.
    fn set_state(&self, state: &Value, last: &Value, restarts: u32) {
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
        let ended = json!({"terminated": {"exitCode": 0, "containerID": "containerd://1"}});
        let status = json!({
            "containerStatuses": [status("app", state, last, restarts)],
            "initContainerStatuses": [status("init", &ended, &json!({}), 0)],
            "ephemeralContainerStatuses": [status("debug", &ended, &json!({}), 0)],
        });
        view.pod = Arc::new(serde_json::from_value(pod).expect("pod"));
        view.status = Arc::new(serde_json::from_value(status).expect("status"));
        self.env.deps.status_store.publish(view);
    }

    fn log(&self, container: &str, attempt: u32) -> PathBuf {
        let directory = self.logs.path().join("default_web_web-uid").join(container);
        fs::create_dir_all(&directory).expect("directory");
        directory.join(format!("{attempt}.log"))
    }

    pub(crate) fn write(&self, container: &str, attempt: u32, lines: &[&str]) {
        let path = self.log(container, attempt);
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.expect("log");
        for line in lines {
            writeln!(file, "2026-11-22T03:59:{line}").expect("write");
        }
    }

    /// Serves a directory with some files as `/var/log`.
    pub(crate) fn serve_system_logs(&mut self) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("directory");
        let at = |name: &str| root.path().join(name);
        fs::write(at("syslog"), "<script>\n").expect("file");
        fs::create_dir_all(at("containers/a&b")).expect("directory");
        fs::write(at("containers/x.log"), "x\n").expect("file");
        let pod_log = self.log("app", 0);
        std::os::unix::fs::symlink(pod_log, at("containers/app.log")).expect("link");
        std::os::unix::fs::symlink("/etc/passwd", at("passwd")).expect("link");
        std::os::unix::fs::symlink("/etc", at("etc")).expect("link");
        std::os::unix::fs::symlink("circle", at("circle")).expect("link");
        drop(std::os::unix::net::UnixListener::bind(at("socket")).expect("socket"));
        self.env.deps.system_logs = root.path().to_owned();
        root
    }

    /// Returns code and body of a GET; lines of the body end with `|`.
    async fn get(&self, target: &str) -> String {
        let (status, body) = self.env.get(target).await;
        format!("{} {}", status.as_u16(), body.replace('\n', "|"))
    }

    async fn follow(&self) -> Followed {
        let api = NodeApi::new(self.env.deps.clone());
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
    /// Returns the next block, or `end`.
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
async fn container_log_is_served_with_options() {
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
    node.env.deps.settings.log_streams = true;
    let stderr = node
        .get("/containerLogs/default/web/app?stream=Stderr")
        .await;
    assert_eq!(stderr, "200 two|");
}

#[tokio::test]
async fn container_log_is_of_running_or_last_instance() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F first"]);
    node.write("app", 1, &["20Z stdout F second"]);
    let (app, previous) = (
        "/containerLogs/default/web/app",
        "/containerLogs/default/web/app?previous=true",
    );
    let ended = json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}});
    let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    node.set_state(&json!({"running": {}}), &ended, 1);
    assert_eq!(node.get(app).await, "200 second|");
    assert_eq!(node.get(previous).await, "200 first|");
    node.set_state(&crash, &ended, 1);
    assert_eq!(node.get(app).await, "200 second|");
    assert_eq!(node.get(previous).await, "200 second|");
    node.set_state(
        &json!({"waiting": {"reason": "ErrImagePull"}}),
        &json!({}),
        0,
    );
    assert_eq!(
        node.get(app).await,
        "400 container \"app\" in pod \"web\" is waiting to start: image can't be pulled"
    );
    node.set_state(&json!({"running": {}}), &ended, 7);
    let gone = node.get(app).await;
    assert!(gone.starts_with("400 failed to open log file"), "{gone}");
}

#[tokio::test]
async fn followed_log_survives_rotation_and_ends_with_container() {
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
    node.write("app", 0, &["13Z stdout F last line"]);
    node.set_state(&json!({"terminated": {"exitCode": 0}}), &json!({}), 0);
    assert_eq!(followed.next().await, "last line\n");
    assert_eq!(followed.next().await, "end");
}

#[tokio::test]
async fn followed_log_ends_with_pod_deletion_or_shutdown() {
    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let mut deleted = node.follow().await;
    assert_eq!(deleted.next().await, "one\n");
    fs::remove_dir_all(node.logs.path().join("default_web_web-uid")).expect("removed");
    node.env.deps.status_store.remove(&"web-uid".into());
    assert_eq!(deleted.next().await, "end");

    let node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let mut followed = node.follow().await;
    assert_eq!(followed.next().await, "one\n");
    node.env.deps.shutdown.cancel();
    assert_eq!(followed.next().await, "end");
}

#[tokio::test]
async fn thousand_log_followers_leave_no_resources() {
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
    assert!(
        tasks() >= before + 1000,
        "the end of each one's container is waited for"
    );
    drop(all);
    within(async {
        while tasks() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn system_logs_do_not_serve_files_outside() {
    let mut node = Node::new();
    node.write("app", 0, &["10Z stdout F one"]);
    let _logs = node.serve_system_logs();
    let head = "200 <!doctype html>|<meta name=\"viewport\" content=\"width=device-width\">|<pre>|";
    #[rustfmt::skip]
    let cases = [
        ("/logs/syslog", "200 <script>|".to_owned()),
        ("/logs/containers/app.log", "200 2026-11-22T03:59:10Z stdout F one|".to_owned()),
        ("/logs/containers/", format!(
            "{head}<a href=\"a&amp;b/\">a&amp;b/</a>|<a href=\"app.log\">app.log</a>|\
             <a href=\"x.log\">x.log</a>|</pre>|")),
        ("/logs/containers", "301 ".to_owned()),
        ("/logs/syslog/", "301 ".to_owned()),
        ("/logs/none", "404 404 page not found|".to_owned()),
        ("/logs/syslog/none", "404 404 page not found|".to_owned()),
        ("/logs/passwd", "403 403 Forbidden|".to_owned()),
        ("/logs/etc/passwd", "403 403 Forbidden|".to_owned()),
        ("/logs/socket", "403 403 Forbidden|".to_owned()),
        ("/logs/circle", "500 500 Internal Server Error|".to_owned()),
        ("/logs/../../etc/passwd", "404 404 page not found|".to_owned()),
        ("/logs/%2e%2e/etc/passwd", "404 404 page not found|".to_owned()),
        ("/logs/..%2f..%2fetc/passwd", "404 404 page not found|".to_owned()),
        ("/logs/%00", "404 404 page not found|".to_owned()),
        ("/logs/%2fetc%2fpasswd", "403 403 Forbidden|".to_owned()),
        // no query mode with the feature off
        ("/logs/syslog?query=kubelet", "200 <script>|".to_owned()),
    ];
    for (target, expected) in cases {
        assert_eq!(node.get(target).await, expected, "{target}");
    }
    let root = node.get("/logs/").await;
    assert!(
        root.contains("<a href=\"containers/\">containers/</a>|"),
        "{root}"
    );
    assert_eq!(node.get("/logs").await, root);
    node.env.deps.settings.system_logs = false;
    for target in ["/logs/", "/logs/syslog"] {
        assert_eq!(node.get(target).await, "405 logs endpoint is disabled.|");
    }
}

#[tokio::test]
async fn node_log_query_falls_back_to_service_file() {
    let mut node = Node::new();
    let root = node.serve_system_logs();
    let of_service = root.path().join("no-such-unit-h3");
    fs::create_dir(&of_service).expect("directory");
    fs::write(of_service.join("no-such-unit-h3.log"), "said\n").expect("file");
    node.env.deps.settings.log_query = true;
    node.env.deps.journals = journals(root.path(), "exit 0");
    #[rustfmt::skip]
    let cases = [
        ("/logs/?query=no-such-unit-h3", "200 said|"),
        ("/logs/?query=no-such-unit-h3&tailLines=1", "200 |options present and query resolved to \
            log files for [no-such-unit-h3]|try without specifying options|"),
        ("/logs/?query=other-unit-h3", "200 |log not found for other-unit-h3|"),
        ("/logs/?query=/syslog", "200 <script>|"),
        ("/logs/?query=/no-such-file", "406 query: Invalid value: \"/no-such-file\": \
            statat no-such-file: no such file or directory|"),
        ("/logs/?query=/../../etc/passwd", "406 query: Invalid value: \"/../../etc/passwd\": \
            statat ../../etc/passwd: no such file or directory|"),
        ("/logs/syslog", "200 <script>|"),
        ("/logs/syslog?query=kubelet", "406 path not allowed in query mode|"),
        ("/logs/?query=a%3Bb",
            "406 query: Invalid value: \"a;b\": input contains unsupported characters|"),
        ("/logs/?query=a&pattern=(", "406 pattern: Invalid value: \"(\": error parsing regexp: \
            unclosed group|"),
        ("/logs/?query=a&boot=x", "400 boot: Invalid value: \"x\": not a number|"),
    ];
    for (target, expected) in cases {
        assert_eq!(node.get(target).await, expected, "{target}");
    }
}

#[tokio::test]
async fn missing_log_response_includes_journal_error() {
    let mut node = Node::new();
    let root = node.serve_system_logs();
    fs::write(root.path().join("of-a-file"), "said\n").expect("file");
    node.env.deps.settings.log_query = true;
    let script = "echo Failed to open journal >&2; exit 3";
    node.env.deps.journals = journals(root.path(), script);
    assert_eq!(node.get("/logs/?query=of-a-file").await, "200 said|");
    let program = root.path().join("journalctl");
    let error = format!(
        "cannot read the journal: {} --field _SYSTEMD_UNIT: exit status: 3: \
         Failed to open journal|",
        program.display()
    );
    let expected = format!("200 |log not found for unit|{error}");
    assert_eq!(node.get("/logs/?query=unit").await, expected);
    let with_options = node.get("/logs/?query=unit&tailLines=1").await;
    assert!(with_options.ends_with(&error), "{with_options}");
    fs::remove_file(&program).expect("removed");
    let gone = node.get("/logs/?query=unit").await;
    assert!(
        gone.ends_with("journalctl: No such file or directory (os error 2)|"),
        "{gone}"
    );
}

/// Creates a `journalctl` with this script. A file that is open for writing cannot be executed.
fn journals(directory: &Path, script: &str) -> Journals {
    let program = directory.join("journalctl");
    let mut file = OpenOptions::new();
    let file = file
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&program);
    let mut file = file.expect("a file");
    writeln!(file, "#!/bin/sh\n{script}").expect("written");
    Journals::new(program)
}

#[tokio::test]
async fn journalctl_errors_are_part_of_response() {
    let mut node = Node::new();
    let root = node.serve_system_logs();
    node.env.deps.settings.log_query = true;
    let script = "[ \"$1\" = --field ] && exec echo unit.service\n\
                  case \"$*\" in *--grep=*) echo 'missing )' >&2; exit 1;; esac\n\
                  echo said; echo 'a file is damaged' >&2; echo more";
    node.env.deps.journals = journals(root.path(), script);
    let said = node.get("/logs/?query=unit").await;
    assert_eq!(said, "200 said|a file is damaged|more|");
    // an error that only journalctl detects
    let error = node.get("/logs/?query=unit&pattern=x").await;
    assert_eq!(error, "200 missing )|");
}

/// Creates a journal with one unit `endless` and endless output; a file lists its processes.
fn endless(directory: &Path) -> (Journals, PathBuf) {
    let pids = directory.join("pids");
    let script = format!(
        "[ \"$1\" = --field ] && exec echo endless.service\necho $$ >> {}\nexec yes said",
        pids.display()
    );
    (journals(directory, &script), pids)
}

#[tokio::test]
async fn journal_queries_are_limited_and_end_with_slow_clients() {
    let mut node = Node::new();
    let root = node.serve_system_logs();
    node.env.deps.settings.log_query = true;
    let (journals, pids) = endless(root.path());
    node.env.deps.journals = journals;
    let ask = async || {
        let api = NodeApi::new(node.env.deps.clone());
        let request = Request::get("/logs/?query=endless").body(Body::empty());
        let router = router(api, ServerType::ReadWrite);
        let answer = router.oneshot(request.expect("request")).await;
        answer.expect("answer")
    };
    let wait_for_permit = async || {
        let free = async {
            loop {
                let answer = ask().await;
                if answer.status() == StatusCode::OK {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        within(free).await;
    };
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut body = ask().await.into_body().into_data_stream();
        let block = within(body.next()).await.expect("a block").expect("said");
        assert!(block.starts_with(b"said\nsaid\n"));
        slow.push(body);
    }
    let ninth = ask().await;
    assert_eq!(ninth.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(ninth.headers().contains_key("retry-after"));
    drop(slow.pop());
    wait_for_permit().await;
    // clients that stop reading
    let mut slow = slow.into_iter();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let all_ended = async {
        let pids = fs::read_to_string(&pids).expect("pids");
        for pid in pids.lines() {
            while PathBuf::from(format!("/proc/{pid}")).exists() {
                tokio::task::yield_now().await;
            }
        }
    };
    within(all_ended).await;
    wait_for_permit().await;
    // pending output ends the response without an error
    let rest = slow.next().expect("one").collect::<Vec<_>>().await;
    assert!(
        rest.len() <= 2 && rest.iter().all(Result::is_ok),
        "{rest:?}"
    );
}

/// Imports a journal export with systemd's own tool and reads it with the installed `journalctl`.
#[tokio::test]
async fn real_journal_is_filtered_by_unit_pattern_and_lines() {
    const WRITER: &str = "/usr/lib/systemd/systemd-journal-remote";
    if !Path::new(WRITER).exists() {
        eprintln!("skipped: there is no {WRITER} (Debian: systemd-journal-remote)");
        return;
    }
    let mut node = Node::new();
    let root = node.serve_system_logs();
    node.env.deps.settings.log_query = true;
    let at = |name: &str| root.path().join(name);
    let entry = |number: u32, unit: &str, said: &str| {
        let time = 1_795_305_600_000_000_u64 + u64::from(number) * 1_000_000;
        format!(
            "__REALTIME_TIMESTAMP={time}\n__MONOTONIC_TIMESTAMP={number}000000\n\
             _BOOT_ID=6f7c0e0c6d3b4f6a9b8c7d6e5f4a3b2c\n_SYSTEMD_UNIT={unit}.service\n\
             SYSLOG_IDENTIFIER={unit}\n_HOSTNAME=n1\nMESSAGE={said}\n\n"
        )
    };
    let export = [
        entry(1, "runtime", "began"),
        entry(2, "other", "began too"),
        entry(3, "runtime", "pulled an image"),
        entry(4, "runtime", "ended"),
    ];
    fs::write(at("export"), export.concat()).expect("written");
    let journal = at("system.journal");
    let written = std::process::Command::new(WRITER)
        .arg("--output")
        .args([&journal, &at("export")])
        .output()
        .expect("run");
    assert!(written.status.success(), "{written:?}");
    let script = format!("exec journalctl --file={} \"$@\"", journal.display());
    node.env.deps.journals = journals(root.path(), &script);
    let line =
        |second: u32, said: &str| format!("Nov 22 00:00:{second:02}.000000 n1 runtime: {said}|");
    let all = [
        line(1, "began"),
        line(3, "pulled an image"),
        line(4, "ended"),
    ];
    #[rustfmt::skip]
    let cases = [
        ("query=runtime", all.concat()),
        ("query=runtime&tailLines=1", all[2].clone()),
        ("query=runtime&pattern=image", all[1].clone()),
        ("query=runtime&sinceTime=2026-11-22T00:00:03Z&untilTime=2026-11-22T00:00:03Z", all[1].clone()),
        ("query=missing", "|log not found for missing|".to_owned()),
    ];
    for (query, expected) in cases {
        let answer = node.get(&format!("/logs/?{query}")).await;
        assert_eq!(answer, format!("200 {expected}"), "{query}");
    }
}

#[tokio::test]
async fn large_directory_listing_is_truncated() {
    let mut node = Node::new();
    let root = node.serve_system_logs();
    let many = root.path().join("many");
    fs::create_dir(&many).expect("directory");
    // 224 characters and 32 bytes more: 2048 of them fit
    for number in 0..2050 {
        fs::write(many.join(format!("{number:'>224}")), "").expect("file");
    }
    let page = node.get("/logs/many/").await;
    assert_eq!(page.matches("<a href=").count(), 2048);
    assert!(page.ends_with("</a>|truncated|</pre>|"));
    for _ in 0..2 {
        let name = fs::read_dir(&many).expect("read").next().expect("a file");
        fs::remove_file(name.expect("a file").path()).expect("removed");
    }
    let page = node.get("/logs/many/").await;
    assert_eq!(page.matches("<a href=").count(), 2048);
    assert!(page.ends_with("</a>|</pre>|"));
}
