//! Tests of the resolution of log requests.

use std::sync::Arc;

use crate::{PodStatusEntry, PodStatusStore};
use serde_json::{Value, json};
use windlass_types::PodExt;
use windlass_types::view::PodWorkerState;

use super::{LogRequest, ended, log_target};

/// A pod `web` with containers `app` and `proxy`; `app` has the given status.
fn entry(phase: PodWorkerState, app: &Value) -> PodStatusEntry {
    let pod = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": phase.as_str()},
        "spec": {"containers": [{"name": "app"}, {"name": "proxy"}], "initContainers": [{"name": "init"}],
            "ephemeralContainers": [{"name": "debug"}]},
    });
    let mut app = app.clone();
    for (key, value) in [
        ("name", json!("app")),
        ("image", json!("")),
        ("imageID", json!("")),
        ("ready", json!(true)),
    ] {
        app[key] = value;
    }
    let mut debug = app.clone();
    debug["name"] = json!("debug");
    let status = json!({"containerStatuses": [app], "ephemeralContainerStatuses": [debug]});
    PodStatusEntry {
        status: Arc::new(serde_json::from_value(status).expect("status")),
        worker_state: phase,
        observed: true,
        ..PodStatusEntry::new(Arc::new(serde_json::from_value(pod).expect("pod")))
    }
}

fn running(restarts: u32, before: bool) -> Value {
    let last = if before {
        json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}})
    } else {
        json!({})
    };
    json!({"restartCount": restarts, "state": {"running": {}}, "lastState": last})
}

fn waiting(restarts: u32, before: bool) -> Value {
    let mut status = running(restarts, before);
    status["state"] = json!({"waiting": {"reason": "ImagePullBackOff"}});
    status
}

fn check(entries: &[PodStatusEntry], container: &str, previous: bool, expected: &str) {
    let request = LogRequest {
        namespace: "default",
        pod: "web",
        container,
        previous,
    };
    let line = match log_target(entries, &request) {
        Ok(target) => target.to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(line, expected);
}

#[test]
fn log_instance_follows_state_and_restart_count() {
    let of = |status: Value| [entry(PodWorkerState::SyncPod, &status)];
    check(
        &of(running(0, false)),
        "app",
        false,
        "web_default app/0.log running=true",
    );
    check(
        &of(running(3, true)),
        "app",
        false,
        "web_default app/3.log running=true",
    );
    check(
        &of(running(3, true)),
        "app",
        true,
        "web_default app/2.log running=false",
    );
    check(
        &of(running(0, false)),
        "debug",
        false,
        "web_default debug/0.log running=true",
    );
    check(
        &of(running(0, false)),
        "app",
        true,
        "previous terminated container \"app\" in pod \"web\" not found",
    );
    check(
        &of(waiting(2, true)),
        "app",
        false,
        "web_default app/2.log running=false",
    );
    check(
        &of(waiting(2, true)),
        "app",
        true,
        "web_default app/2.log running=false",
    );
    check(
        &of(waiting(0, false)),
        "app",
        false,
        "container \"app\" in pod \"web\" is waiting to start: trying and failing to pull image",
    );
    check(
        &of(waiting(0, false)),
        "app",
        true,
        "previous terminated container \"app\" in pod \"web\" not found",
    );
}

#[test]
fn unobserved_termination_has_no_log() {
    let seen = json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}});
    let lost = json!({"terminated": {"exitCode": 137}});
    let (waiting_state, none) = (
        json!({"waiting": {"reason": "CrashLoopBackOff"}}),
        json!({}),
    );
    let terminated = "container \"app\" in pod \"web\" is terminated";
    let no_previous = "previous terminated container \"app\" in pod \"web\" not found";
    let log = |attempt: u32| format!("web_default app/{attempt}.log running=false");
    #[rustfmt::skip]
    let cases = [
        (&seen, &none, log(2), no_previous.to_owned()),
        (&lost, &none, terminated.to_owned(), no_previous.to_owned()),
        (&lost, &lost, terminated.to_owned(), no_previous.to_owned()),
        (&lost, &seen, log(1), log(1)),
        (&waiting_state, &lost, terminated.to_owned(), no_previous.to_owned()),
        (&waiting_state, &seen, log(2), log(2)),
    ];
    for (state, last, present, previous) in cases {
        let status = json!({"restartCount": 2, "state": state, "lastState": last});
        let entries = [entry(PodWorkerState::SyncPod, &status)];
        check(&entries, "app", false, &present);
        check(&entries, "app", true, &previous);
    }
}

#[tokio::test(start_paused = true)]
async fn log_target_ends_with_its_instance_or_pod() {
    let status_store = PodStatusStore::new();
    let running_now = entry(PodWorkerState::SyncPod, &running(1, true));
    status_store.publish(running_now.clone());
    let request = LogRequest {
        namespace: "default",
        pod: "web",
        container: "app",
        previous: false,
    };
    let target = log_target(std::slice::from_ref(&running_now), &request).expect("a target");
    let mut waiting_for = std::pin::pin!(ended(&status_store, &target));
    let later = tokio::time::timeout(std::time::Duration::from_secs(5), &mut waiting_for);
    assert!(later.await.is_err(), "it runs");
    status_store.publish(entry(PodWorkerState::SyncPod, &running(2, true)));
    waiting_for.await;
    status_store.publish(running_now);
    let mut waiting_for = std::pin::pin!(ended(&status_store, &target));
    let later = tokio::time::timeout(std::time::Duration::from_secs(5), &mut waiting_for);
    assert!(later.await.is_err(), "it runs again");
    status_store.remove(&target.pod.uid());
    waiting_for.await;
}

#[test]
fn missing_log_target_returns_error() {
    let entries = [entry(PodWorkerState::SyncPod, &running(0, false))];
    check(&[], "app", false, "pod default/web not found");
    check(
        &entries,
        "",
        false,
        "pod web has several containers, name one of them: app, proxy, init, debug",
    );
    check(
        &entries,
        "db",
        false,
        "pod web has no container db, it has: app, proxy, init, debug",
    );
    check(
        &entries,
        "init",
        false,
        "container \"init\" in pod \"web\" is not available",
    );
}

#[test]
fn log_target_is_current_of_two_pods_with_one_name() {
    let entries = [
        entry(PodWorkerState::TerminatingPod, &running(7, true)),
        entry(PodWorkerState::SyncPod, &running(1, true)),
    ];
    check(&entries, "app", false, "web_default app/1.log running=true");
}
