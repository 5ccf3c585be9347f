//! Pods and their columns in kubectl.

use serde_json::{Value, json};

use super::summary;
use crate::pod::tests::view;

/// A pod with containers of these statuses; `init` ones before `apps`.
fn pod(phase: &str, init: &[Value], apps: &[Value], extra: &Value) -> Value {
    let names = |statuses: &[Value]| -> Vec<Value> {
        let spec =
            |status: &Value| json!({"name": status["name"], "restartPolicy": status["policy"]});
        statuses.iter().map(spec).collect()
    };
    let mut pod = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": names(apps), "initContainers": names(init)},
        "status": {"phase": phase, "initContainerStatuses": init, "containerStatuses": apps},
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        pod["status"][key] = value.clone();
    }
    pod
}

fn container(name: &str, state: &Value, ready: bool, restarts: u32) -> Value {
    let last = match restarts {
        0 => json!({}),
        _ => json!({"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T03:59:48Z"}}),
    };
    json!({
        "name": name, "image": "", "imageID": "", "ready": ready, "restartCount": restarts,
        "state": state, "lastState": last,
    })
}

fn running() -> Value {
    json!({"running": {}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn ended(reason: &str, code: i32, signal: i32) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code, "signal": signal}})
}

fn check(pod: &Value, expected: &str) {
    let now = "2026-11-21T04:00:00Z".parse().expect("time");
    let summary = summary(&view(pod), now);
    let line = format!("{} {} {}", summary.ready, summary.status, summary.restarts);
    assert_eq!(line, expected, "{pod}");
}

#[test]
fn app_containers_determine_status_once_initialized() {
    let app = |state: Value, ready, restarts| container("app", &state, ready, restarts);
    let proxy = |state: Value, ready| container("proxy", &state, ready, 0);
    let none = json!({});
    check(
        &pod("Running", &[], &[app(running(), true, 0)], &none),
        "1/1 Running 0",
    );
    check(
        &pod(
            "Pending",
            &[],
            &[app(waiting("ContainerCreating"), false, 0)],
            &none,
        ),
        "0/1 ContainerCreating 0",
    );
    check(
        &pod(
            "Running",
            &[],
            &[
                app(waiting("CrashLoopBackOff"), false, 3),
                proxy(running(), true),
            ],
            &none,
        ),
        "1/2 CrashLoopBackOff 3 (12s ago)",
    );
    check(
        &pod(
            "Running",
            &[],
            &[app(running(), true, 1), proxy(running(), false)],
            &none,
        ),
        "1/2 Running 1 (12s ago)",
    );
    check(
        &pod(
            "Succeeded",
            &[],
            &[app(ended("Completed", 0, 0), false, 0)],
            &none,
        ),
        "0/1 Completed 0",
    );
    check(
        &pod("Failed", &[], &[app(ended("Error", 1, 0), false, 0)], &none),
        "0/1 Error 0",
    );
    check(
        &pod("Failed", &[], &[app(ended("", 3, 0), false, 0)], &none),
        "0/1 ExitCode:3 0",
    );
    check(
        &pod("Failed", &[], &[app(ended("", 137, 9), false, 0)], &none),
        "0/1 Signal:9 0",
    );
    check(
        &pod("Failed", &[], &[], &json!({"reason": "Evicted"})),
        "0/0 Evicted 0",
    );
    check(
        &pod(
            "Running",
            &[],
            &[
                app(ended("Completed", 0, 0), false, 0),
                proxy(running(), true),
            ],
            &none,
        ),
        "1/2 NotReady 0",
    );
    check(
        &pod(
            "Running",
            &[],
            &[
                app(ended("Completed", 0, 0), false, 0),
                proxy(running(), true),
            ],
            &json!({"conditions": [{"type": "Ready", "status": "True"}]}),
        ),
        "1/2 Running 0",
    );
}

#[test]
fn init_containers_are_counted_until_completed() {
    let app = container("app", &waiting("PodInitializing"), false, 0);
    let init = |state: Value, restarts| container("init", &state, false, restarts);
    let second = container("second", &waiting("PodInitializing"), false, 0);
    let none = json!({});
    let apps = std::slice::from_ref(&app);
    check(
        &pod(
            "Pending",
            &[init(running(), 0), second.clone()],
            apps,
            &none,
        ),
        "0/1 Init:0/2 0",
    );
    check(
        &pod(
            "Pending",
            &[init(ended("Completed", 0, 0), 0), second],
            apps,
            &none,
        ),
        "0/1 Init:1/2 0",
    );
    check(
        &pod("Pending", &[init(waiting("ErrImagePull"), 0)], apps, &none),
        "0/1 Init:ErrImagePull 0",
    );
    check(
        &pod("Pending", &[init(ended("Error", 1, 0), 2)], apps, &none),
        "0/1 Init:Error 2 (12s ago)",
    );
    check(
        &pod("Pending", &[init(ended("", 1, 0), 0)], apps, &none),
        "0/1 Init:ExitCode:1 0",
    );
    check(
        &pod("Pending", &[init(ended("", 1, 9), 0)], apps, &none),
        "0/1 Init:Signal:9 0",
    );
}

#[test]
fn sidecar_counts_as_container() {
    let mut sidecar = container("sidecar", &running(), true, 0);
    sidecar["policy"] = json!("Always");
    sidecar["started"] = json!(true);
    let app = container("app", &running(), true, 0);
    check(
        &pod("Running", &[sidecar], &[app], &json!({})),
        "2/2 Running 0",
    );
}

#[test]
fn terminating_pod_shows_terminating() {
    let app = container("app", &running(), true, 0);
    let completed = container("app", &ended("Completed", 0, 0), false, 0);
    for (phase, app, expected) in [
        ("Running", app, "Terminating"),
        ("Succeeded", completed, "Completed"),
    ] {
        let mut view = view(&pod(phase, &[], &[app], &json!({})));
        view.entry.worker_state = "Terminating".to_owned();
        let now = "2026-11-21T04:00:00Z".parse().expect("time");
        assert_eq!(summary(&view, now).status, expected);
    }
}

#[test]
fn pod_shows_unknown_until_it_is_observed() {
    let app = container("app", &running(), true, 3);
    let mut view = view(&pod("Running", &[], &[app], &json!({})));
    let now = "2026-11-21T04:00:00Z".parse().expect("time");
    for (stale, expected) in [(true, "Unknown"), (false, "Running")] {
        view.entry.stale_status = stale;
        assert_eq!(summary(&view, now).status, expected);
    }
}

#[test]
fn rejected_pod_shows_its_reason() {
    let apps = [container("app", &waiting("ContainerCreating"), false, 0)];
    let init = [container("init", &waiting("PodInitializing"), false, 0)];
    let rejected = json!({"reason": "OutOfcpu"});
    check(&pod("Failed", &[], &apps, &rejected), "0/1 OutOfcpu 0");
    check(&pod("Failed", &init, &apps, &rejected), "0/1 OutOfcpu 0");
    check(
        &pod("Pending", &[], &apps, &json!({})),
        "0/1 ContainerCreating 0",
    );
    // one that ran shows how it ended
    let apps = [container("app", &ended("Error", 1, 0), false, 0)];
    check(&pod("Failed", &[], &apps, &rejected), "0/1 Error 0");
}
