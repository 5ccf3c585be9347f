//! Watch events by what they make the source outputs, failures by what is reported.

use windlass_client::{ApiError, ApiErrorKind};
use windlass_types::{Pod, Timestamp, names};

use super::health::WatchHealth;
use super::state::{ApiPods, ApiSourceOutput};

/// `a` is a pod, `m*` a mirror pod, `a!` another version of it.
fn pod(word: &str) -> Pod {
    let uid = word.trim_end_matches('!');
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    if word.ends_with('!') {
        pod.metadata.resource_version = Some("2".to_owned());
    }
    if uid.starts_with('m') {
        let mirror = (names::ANN_CONFIG_MIRROR.to_owned(), "hash".to_owned());
        pod.metadata.annotations = Some([mirror].into());
    }
    pod
}

fn check(script: &[(&str, &str, &str)]) {
    let mut pods = ApiPods::default();
    for (event, words, expected) in script {
        let all: Vec<Pod> = words.split_whitespace().map(pod).collect();
        let outputs = match *event {
            "synced" => pods.synced(all),
            "applied" => all.into_iter().flat_map(|p| pods.applied(p)).collect(),
            _ => all.into_iter().flat_map(|p| pods.deleted(p)).collect(),
        };
        let line: Vec<_> = outputs.iter().map(ApiSourceOutput::to_string).collect();
        assert_eq!(line.join(" "), *expected, "{event} {words}");
    }
}

#[test]
fn storage_gets_pods_and_status_manager_also_mirror_pods() {
    check(&[
        ("synced", "a m1", "applied(a) applied(m1) SET[a]"),
        ("applied", "b", "applied(b) UPDATE[b]"),
        ("applied", "m2", "applied(m2)"),
        ("deleted", "m2", "deleted(m2)"),
        ("deleted", "a", "deleted(a) REMOVE[a]"),
    ]);
}

#[test]
fn list_outputs_changes_and_complete_set() {
    check(&[
        ("synced", "", "SET[]"),
        ("synced", "a b", "applied(a) applied(b) SET[a b]"),
        ("synced", "a b! c", "applied(b) applied(c) SET[a b c]"),
        ("synced", "c", "deleted(a) deleted(b) SET[c]"),
    ]);
}

#[test]
fn repeated_deletion_has_no_output() {
    check(&[
        ("synced", "a", "applied(a) SET[a]"),
        ("deleted", "a", "deleted(a) REMOVE[a]"),
        ("deleted", "a", ""),
    ]);
}

/// Failures (by their kind) and successes, in seconds, and what is reported.
fn check_health(script: &[(i64, Option<ApiErrorKind>, &str)]) {
    let mut health = WatchHealth::default();
    for (second, failure, expected) in script {
        let now = Timestamp::from_second(*second).expect("in range");
        let report = match failure {
            Some(kind) => health.failed(&error(*kind), now),
            None => health.succeeded(now),
        };
        assert_eq!(report.to_string(), *expected, "at {second} s");
        let pod_watch = health.pod_watch().expect("known");
        assert_eq!(pod_watch.error.is_some(), failure.is_some());
    }
}

fn error(kind: ApiErrorKind) -> ApiError {
    ApiError {
        kind,
        verb: "watch",
        path: "/api/v1/pods".to_owned(),
        message: "no".to_owned(),
        retry_after: None,
    }
}

#[test]
fn pod_watch_failure_is_reported_at_falling_rate() {
    let server = Some(ApiErrorKind::Server);
    let again = "Cannot watch the pods of this node: watch /api/v1/pods: no";
    check_health(&[
        (0, None, "nothing"),
        (10, server, "failing for 0 s"),
        (40, server, "nothing"),
        (69, server, "nothing"),
        (70, server, &format!("failing for 60 s, {again}")),
        (189, server, "nothing"),
        (190, server, &format!("failing for 180 s, {again}")),
        (
            250,
            None,
            "recovered after 240 s, The pods of this node are watched again",
        ),
        (251, None, "nothing"),
        (300, server, "failing for 0 s"),
        (301, None, "recovered after 1 s"),
    ]);
    let mut health = WatchHealth::default();
    let reports = (0..86_400).step_by(30).filter(|second| {
        let now = Timestamp::from_second(*second).expect("in range");
        let report = health.failed(&error(ApiErrorKind::Server), now);
        report.to_string() != "nothing"
    });
    assert_eq!(reports.count(), 29, "6 in the first hour, then one an hour");
}

#[test]
fn pod_watch_failure_without_answer_records_no_event() {
    for kind in [ApiErrorKind::Connection, ApiErrorKind::Timeout] {
        check_health(&[
            (0, Some(kind), "failing for 0 s"),
            (60, Some(kind), "failing for 60 s"),
            (90, None, "recovered after 90 s"),
        ]);
    }
}

#[test]
fn pod_watch_state_keeps_its_beginning() {
    let mut health = WatchHealth::default();
    assert_eq!(health.pod_watch(), None);
    let at = |second| Timestamp::from_second(second).expect("in range");
    health.failed(&error(ApiErrorKind::Server), at(5));
    health.failed(&error(ApiErrorKind::Forbidden), at(9));
    assert_eq!(health.pod_watch().map(|it| it.since), Some(at(5)));
    health.list_succeeded(at(10));
    assert_eq!(health.pod_watch().map(|it| it.since), Some(at(5)), "fails");
    health.succeeded(at(20));
    health.succeeded(at(30));
    assert_eq!(health.pod_watch().map(|it| it.since), Some(at(20)));
    // the wall clock was set back
    health.failed(&error(ApiErrorKind::Server), at(10));
    assert_eq!(health.succeeded(at(3)).to_string(), "recovered after 0 s");
}
