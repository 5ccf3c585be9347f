//! Lists as tables and objects, and the state of a watch.

use clap::Parser;

use super::*;
use crate::args::{Arguments, Command};
use crate::pod::tests::view;

fn args(line: &str) -> GetArgs {
    let words = format!("windlassctl get pods {line}");
    let arguments = Arguments::try_parse_from(words.split_whitespace()).expect("arguments");
    match arguments.command {
        Command::Get(get) => get,
        other => panic!("{other:?}"),
    }
}

fn at(second: f64) -> Option<prost_types::Timestamp> {
    Some(prost_types::Timestamp {
        seconds: 1_795_233_600 + second as i64,
        nanos: (second.fract() * 1e9) as i32,
    })
}

fn web() -> PodView {
    let mut view = view(&json!({
        "metadata": {"name": "web-node-1", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [{"name": "app"}], "nodeName": "node-1"},
        "status": {
            "phase": "Running", "podIP": "10.88.0.4",
            "containerStatuses": [{
                "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        },
    }));
    view.entry.timings = Some(proto::StartTimings {
        seen: at(0.0),
        dispatched: at(0.25),
        sandbox_ready: at(1.5),
        images_ready: at(1.0),
        init_done: at(1.75),
        containers_started: at(2.0),
        running: at(2.5),
    });
    view
}

fn stuck() -> PodView {
    let mut view = view(&json!({
        "metadata": {"name": "job", "namespace": "other", "uid": "u2"},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"phase": "Pending"},
    }));
    view.entry.blocker = Some(proto::Blocker {
        reason: "ImagePullBackOff".to_owned(),
        container: Some("app".to_owned()),
        ..proto::Blocker::default()
    });
    view
}

fn check(pods: &[PodView], line: &str, expected: &str) {
    let now = "2026-11-21T04:01:30Z".parse().expect("time");
    assert_eq!(many(pods, &args(line), now).expect("text"), expected);
}

#[test]
fn table_has_kubectl_columns() {
    check(
        &[web(), stuck()],
        "",
        "NAME         READY   STATUS    RESTARTS   AGE\n\
         web-node-1   1/1     Running   0          90s\n\
         job          0/1     Pending   0          <unknown>\n",
    );
    check(
        &[web()],
        "-A",
        "NAMESPACE   NAME         READY   STATUS    RESTARTS   AGE\n\
         default     web-node-1   1/1     Running   0          90s\n",
    );
}

#[test]
fn wide_table_shows_start_phases_and_blocker() {
    check(
        &[web(), stuck()],
        "-o wide",
        "NAME         READY   STATUS    RESTARTS   AGE         IP          NODE     SOURCE   START   WAIT    SANDBOX   IMAGE   INIT    CONTAINERS   BLOCKER\n\
         web-node-1   1/1     Running   0          90s         10.88.0.4   node-1   file     2.50s   250ms   1.25s     0ms     250ms   250ms        <none>\n\
         job          0/1     Pending   0          <unknown>   <none>      <none>   file     -       -       -         -       -       -            ImagePullBackOff (app)\n",
    );
}

#[test]
fn objects_are_kubernetes_objects() {
    check(&[web(), stuck()], "-o name", "pod/web-node-1\npod/job\n");
    let now = "2026-11-21T04:01:30Z".parse().expect("time");
    let text = many(&[stuck()], &args("-o json"), now).expect("text");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["kind"], "List");
    assert_eq!(value["items"][0]["kind"], "Pod");
    assert_eq!(value["items"][0]["apiVersion"], "v1");
    let text = one(&stuck(), &args("-o yaml"), now).expect("text");
    assert!(
        text.contains("kind: Pod\n") && text.contains("phase: Pending\n"),
        "{text}"
    );
}

#[test]
fn watch_keeps_latest_version_of_each_pod() {
    let mut pods = BTreeMap::new();
    let entry = |view: &PodView| {
        let mut entry = view.entry.clone();
        entry.pod_json = serde_json::to_vec(&view.pod).expect("JSON").into();
        entry
    };
    let message = |snapshot, views: &[PodView], removed: &[&str]| proto::WatchPodsResponse {
        snapshot,
        pods: views.iter().map(entry).collect(),
        removed: removed.iter().map(ToString::to_string).collect(),
    };
    let mut step = |message, line: &str, expected: (&str, usize)| {
        let changed = apply(&mut pods, message, &args(line)).expect("decodes");
        let names: Vec<_> = pods.values().map(|view| view.pod.name()).collect();
        assert_eq!((names.join(" ").as_str(), changed.len()), expected);
    };
    step(
        message(true, &[web(), stuck()], &[]),
        "",
        ("web-node-1 job", 2),
    );
    step(message(false, &[web()], &["u2"]), "", ("web-node-1", 1));
    step(message(true, &[stuck()], &[]), "", ("job", 1));
    step(message(false, &[web()], &[]), "job", ("job", 0));
}

#[test]
fn changes_are_rows_with_one_heading_or_objects() {
    let now = "2026-11-21T04:01:30Z".parse().expect("time");
    let text = |line: &str, headed| changes(&[stuck()], &args(line), headed, now).expect("text");
    let row = "job    0/1     Pending   0          <unknown>\n";
    assert_eq!(
        text("", false),
        format!("NAME   READY   STATUS    RESTARTS   AGE\n{row}")
    );
    assert_eq!(text("", true), row);
    assert!(text("-o json", true).starts_with("{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Pod\""));
    assert!(text("-o yaml", true).starts_with("---\napiVersion: v1\nkind: Pod\n"));
}
