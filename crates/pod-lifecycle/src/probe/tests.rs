//! Probes from a pod to a result.

use serde_json::{Value, json};
use windlass_types::corev1::Container;
use windlass_types::cri::ExecOutput;
use windlass_types::{Pod, PodUid, Timestamp};

use super::*;

fn pod() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"containers": []},
    }))
    .expect("pod")
}

fn container(probe: Value) -> Container {
    serde_json::from_value(json!({
        "name": "c",
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [
            {"name": "PORT", "value": "80"},
            {"name": "TWICE", "value": "one"},
            {"name": "TWICE", "value": "two"},
            {"name": "INNER", "value": "$(PORT)"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe,
    }))
    .expect("container")
}

fn line(spec: &Option<Result<ProbeSpec, String>>) -> String {
    let spec = match spec {
        None => return "none".to_owned(),
        Some(Err(error)) => return format!("error: {error}"),
        Some(Ok(spec)) => spec,
    };
    let what = match &spec.handler {
        ProbeHandler::Exec(command) => format!("exec {command:?}"),
        ProbeHandler::Http(target) => format!("get {}", target.url()),
        ProbeHandler::Tcp { host, port } => format!("tcp {host} {port}"),
        ProbeHandler::Grpc {
            host,
            port,
            service,
        } => format!("grpc {host} {port} {service:?}"),
    };
    format!(
        "{what} after {:?} every {:?} within {:?}, {}/{}",
        spec.initial_delay,
        spec.period,
        spec.timeout,
        spec.success_threshold,
        spec.failure_threshold
    )
}

fn check(probe: Value, ip: Option<&str>, expected: &str) {
    let ip = ip.map(|ip| ip.parse().expect("address"));
    for kind in ProbeKind::ALL {
        let spec = probe_spec(kind, &pod(), &container(probe.clone()), ip);
        assert_eq!(line(&spec), expected, "{kind}: {probe}");
    }
}

#[test]
fn unset_probe_fields_have_api_defaults() {
    let expected = "tcp 10.0.0.7 80 after 0ns every 10s within 1s, 1/3";
    check(
        json!({"tcpSocket": {"port": 80}}),
        Some("10.0.0.7"),
        expected,
    );
    let zeros = json!({
        "tcpSocket": {"port": 80}, "initialDelaySeconds": 0, "periodSeconds": 0,
        "timeoutSeconds": 0, "successThreshold": 0, "failureThreshold": 0,
    });
    check(zeros, Some("10.0.0.7"), expected);
    let all = json!({
        "tcpSocket": {"port": 80}, "initialDelaySeconds": 5, "periodSeconds": 2,
        "timeoutSeconds": 3, "successThreshold": 4, "failureThreshold": 6,
    });
    let expected = "tcp 10.0.0.7 80 after 5s every 2s within 3s, 4/6";
    check(all, Some("10.0.0.7"), expected);
}

#[test]
fn each_handler_resolves_host_and_port() {
    let rest = "after 0ns every 10s within 1s, 1/3";
    for (probe, expected) in [
        (
            json!({"httpGet": {"port": "http", "path": "/x"}}),
            format!("get http://10.0.0.7:8080/x {rest}"),
        ),
        (
            json!({"tcpSocket": {"port": "http"}}),
            format!("tcp 10.0.0.7 8080 {rest}"),
        ),
        (
            json!({"tcpSocket": {"port": 1, "host": "db"}}),
            format!("tcp db 1 {rest}"),
        ),
        (
            json!({"grpc": {"port": 5000}}),
            format!("grpc 10.0.0.7 5000 \"\" {rest}"),
        ),
        (
            json!({"grpc": {"port": 5000, "service": "a.B"}}),
            format!("grpc 10.0.0.7 5000 \"a.B\" {rest}"),
        ),
        (
            json!({"tcpSocket": {"port": "none"}}),
            r#"error: strconv.Atoi: parsing "none": invalid syntax"#.to_owned(),
        ),
        (
            json!({"grpc": {"port": 0}}),
            "error: invalid port number: 0".to_owned(),
        ),
        (
            json!({}),
            "error: missing probe handler for web_shop(u1):c".to_owned(),
        ),
    ] {
        check(probe, Some("10.0.0.7"), &expected);
    }
}

#[test]
fn only_probe_without_host_needs_pod_address() {
    let waits = "error: failed to find networking container: the pod has no address";
    let rest = "after 0ns every 10s within 1s, 1/3";
    check(json!({"httpGet": {"port": 80}}), None, waits);
    check(json!({"tcpSocket": {"port": 80}}), None, waits);
    check(json!({"grpc": {"port": 80}}), None, waits);
    let named = json!({"httpGet": {"port": 80, "host": "web"}});
    check(named, None, &format!("get http://web:80/ {rest}"));
    let exec = json!({"exec": {"command": ["true"]}});
    check(exec, None, &format!("exec [\"true\"] {rest}"));
}

#[test]
fn command_expands_only_literal_values() {
    let command = json!({"exec": {"command": [
        "$(PORT)", "$(TWICE)", "$(INNER)", "a$(POD)b", "$(OTHER)", "$$(PORT)",
    ]}});
    check(
        command,
        None,
        "exec [\"80\", \"two\", \"$(PORT)\", \"ab\", \"$(OTHER)\", \"$(PORT)\"] \
         after 0ns every 10s within 1s, 1/3",
    );
}

#[test]
fn container_without_probe_has_no_spec() {
    for kind in ProbeKind::ALL {
        let none = probe_spec(kind, &pod(), &Container::default(), None);
        assert_eq!(line(&none), "none");
    }
}

#[test]
fn only_liveness_and_startup_have_probe_grace_period() {
    let with = container(json!({"exec": {}, "terminationGracePeriodSeconds": 7}));
    let without = container(json!({"exec": {}}));
    for (kind, expected) in [
        (ProbeKind::Liveness, Some(Duration::from_secs(7))),
        (ProbeKind::Startup, Some(Duration::from_secs(7))),
        (ProbeKind::Readiness, None),
    ] {
        assert_eq!(probe_grace_period(&with, kind), expected, "{kind}");
        assert_eq!(probe_grace_period(&without, kind), None, "{kind}");
        assert_eq!(
            probe_grace_period(&Container::default(), kind),
            None,
            "{kind}"
        );
    }
}

fn target() -> HttpTarget {
    let spec = probe_spec(
        ProbeKind::Liveness,
        &pod(),
        &container(json!({"httpGet": {"port": 80}})),
        "1.2.3.4".parse().ok(),
    );
    match spec {
        Some(Ok(ProbeSpec {
            handler: ProbeHandler::Http(target),
            ..
        })) => target,
        other => panic!("{other:?}"),
    }
}

#[test]
fn http_outcome_follows_status_code() {
    let get = r#"Get "http://1.2.3.4:80/": "#;
    let second = Duration::from_secs(1);
    let answer = |status, body: &str| {
        Ok(HttpAnswer {
            status,
            body: body.into(),
            other_host: None,
        })
    };
    for (answer, expected) in [
        (
            answer(199, ""),
            "failure: HTTP probe failed with statuscode: 199".to_owned(),
        ),
        (answer(200, "x"), "success".to_owned()),
        (answer(299, ""), "success".to_owned()),
        (
            answer(302, "moved"),
            "warning: Probe terminated redirects, Response body: moved".to_owned(),
        ),
        (
            answer(399, ""),
            "warning: Probe terminated redirects, Response body: ".to_owned(),
        ),
        (
            answer(400, "secret"),
            "failure: HTTP probe failed with statuscode: 400".to_owned(),
        ),
        (
            answer(503, ""),
            "failure: HTTP probe failed with statuscode: 503".to_owned(),
        ),
        (
            Err(CheckError::Failed(
                "dial tcp 1.2.3.4:80: connect: connection refused".into(),
            )),
            format!("failure: {get}dial tcp 1.2.3.4:80: connect: connection refused"),
        ),
        (
            Err(CheckError::TimedOut(second)),
            format!(
                "failure: {get}context deadline exceeded \
                 (Client.Timeout exceeded while awaiting headers)"
            ),
        ),
        (
            Err(CheckError::ConnectTimedOut(second)),
            format!(
                "failure: {get}context deadline exceeded \
                 (Client.Timeout exceeded while awaiting headers)"
            ),
        ),
        (
            Err(CheckError::PlainHttp),
            format!("failure: {get}http: server gave HTTP response to HTTPS client"),
        ),
        (
            Err(CheckError::Redirected(
                "Get \"/a\": stopped after 10 redirects".into(),
            )),
            "failure: Get \"/a\": stopped after 10 redirects".to_owned(),
        ),
        (
            Err(CheckError::Body("unexpected EOF".into())),
            "error: unexpected EOF".to_owned(),
        ),
    ] {
        assert_eq!(evaluate_http(&target(), &answer).to_string(), expected);
    }
}

#[test]
fn tcp_connection_is_success() {
    let failed = CheckError::Failed("dial tcp 1.2.3.4:80: connect: connection refused".into());
    for (answer, expected) in [
        (Ok(()), "success"),
        (
            Err(failed),
            "failure: dial tcp 1.2.3.4:80: connect: connection refused",
        ),
        (
            Err(CheckError::ConnectTimedOut(Duration::from_secs(1))),
            "failure: dial tcp 1.2.3.4:80: i/o timeout",
        ),
    ] {
        assert_eq!(evaluate_tcp("1.2.3.4", 80, &answer).to_string(), expected);
    }
    let late = Err(CheckError::TimedOut(Duration::from_secs(1)));
    assert_eq!(
        evaluate_tcp("fd00::1", 80, &late).to_string(),
        "failure: dial tcp [fd00::1]:80: i/o timeout"
    );
}

#[test]
fn only_grpc_serving_is_success() {
    let long = Duration::from_millis(90_500);
    for (answer, expected) in [
        (Ok(GrpcHealth::Serving), "success"),
        (
            Ok(GrpcHealth::NotServing("NOT_SERVING".into())),
            "failure: service unhealthy (responded with \"NOT_SERVING\")",
        ),
        (
            Ok(GrpcHealth::Unimplemented("unknown service".into())),
            "failure: error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): unknown service",
        ),
        (
            Ok(GrpcHealth::Refused(
                "rpc error: code = NotFound desc = unknown service".into(),
            )),
            "failure: error: health rpc probe failed: \
             rpc error: code = NotFound desc = unknown service",
        ),
        (
            Err(CheckError::TimedOut(long)),
            "failure: timeout: health rpc did not complete within 1m30.5s",
        ),
        (
            Err(CheckError::ConnectTimedOut(Duration::from_secs(1))),
            "failure: timeout: failed to connect service \"1.2.3.4:5000\" within 1s: \
             context deadline exceeded",
        ),
        (
            Err(CheckError::Failed("connection refused".into())),
            "failure: error: failed to connect service at \"1.2.3.4:5000\": connection refused",
        ),
    ] {
        assert_eq!(
            evaluate_grpc("1.2.3.4", 5000, &answer).to_string(),
            expected
        );
    }
}

#[test]
fn command_outcome_follows_exit_code() {
    let command = ["sleep".to_owned(), "5".to_owned()];
    let output = |stdout: &[u8], stderr: &[u8], exit_code| {
        Ok(ExecOutput {
            stdout: stdout.to_vec(),
            stderr: stderr.to_vec(),
            exit_code,
        })
    };
    let judge = |answer| evaluate_exec(&command, Duration::from_secs(60), &answer);
    for (answer, expected) in [
        (output(b"fine", b"", 0), "success"),
        (output(b"out\n", b"err\n", 1), "failure: out\nerr\n"),
        (output(b"", b"", 126), "failure: "),
        (output(b"\xff", b"", 1), "failure: \u{fffd}"),
        (
            Err(ExecFailure::TimedOut),
            "failure: command timed out: \"sleep 5\" timed out after 1m0s",
        ),
        (
            Err(ExecFailure::Failed("container is not running".into())),
            "error: container is not running",
        ),
    ] {
        assert_eq!(judge(answer).to_string(), expected);
    }
    let ProbeOutcome::Failure(text) = judge(output(&[b'a'; 9000], &[b'b'; 9000], 1)) else {
        panic!("no failure");
    };
    assert_eq!(text.len(), MAX_OUTPUT_BYTES);
    assert_eq!(text.trim_start_matches('a').len(), MAX_OUTPUT_BYTES - 9000);
}

#[test]
fn node_error_does_not_count() {
    let short = || CheckError::Node("too many open files".into());
    let expected = ProbeOutcome::Error("too many open files".into());
    assert_eq!(evaluate_http(&target(), &Err(short())), expected);
    assert_eq!(evaluate_tcp("10.0.0.7", 80, &Err(short())), expected);
    assert_eq!(evaluate_grpc("10.0.0.7", 80, &Err(short())), expected);
}

#[test]
fn every_outcome_except_success_has_event() {
    let text = || "why".to_owned();
    let kind = ProbeKind::Readiness;
    for (outcome, expected) in [
        (ProbeOutcome::Success, None),
        (
            ProbeOutcome::Warning(text()),
            Some("Readiness probe warning: why"),
        ),
        (
            ProbeOutcome::Failure(text()),
            Some("Readiness probe failed: why"),
        ),
        (
            ProbeOutcome::Error(text()),
            Some("Readiness probe errored and resulted in unknown state: why"),
        ),
    ] {
        assert_eq!(outcome.event_message(kind).as_deref(), expected);
    }
}

fn spec(success: u32, failure: u32) -> ProbeSpec {
    ProbeSpec {
        handler: ProbeHandler::Exec(Vec::new()),
        initial_delay: Duration::from_secs(5),
        period: Duration::from_secs(10),
        timeout: Duration::from_secs(1),
        success_threshold: success,
        failure_threshold: failure,
    }
}

/// Records outcomes (`+` success, `w` warning, `-` failure, `e` error) and prints each result: `t`,
/// `f`, `?` for none; a capital for a change, `.` once the probe is on hold.
fn run(mut state: ProbeState, outcomes: &str) -> String {
    let mut shown = String::new();
    for outcome in outcomes.chars() {
        let text = String::new();
        let news = state.record(&match outcome {
            '+' => ProbeOutcome::Success,
            'w' => ProbeOutcome::Warning(text),
            '-' => ProbeOutcome::Failure(text),
            _ => ProbeOutcome::Error(text),
        });
        assert!(news.is_none() || news == state.result());
        shown.push(match (state.result(), news.is_some()) {
            (None, _) => '?',
            (Some(true), false) => 't',
            (Some(true), true) => 'T',
            (Some(false), false) => 'f',
            (Some(false), true) => 'F',
        });
        if state.is_on_hold() {
            shown.push('.');
        }
    }
    shown
}

#[test]
fn result_changes_at_threshold_of_consecutive_outcomes() {
    use ProbeKind::{Liveness, Readiness, Startup};
    for (kind, success, failure, outcomes, expected) in [
        (Readiness, 1, 3, "+--+---+", "TtttttFT"),
        (Readiness, 3, 1, "++-++w-", "fffffTF"),
        (Readiness, 1, 1, "---", "fff"),
        // an error neither counts nor resets the count
        (Readiness, 1, 2, "+-e-", "TttF"),
        (Readiness, 2, 1, "+ee+", "fffT"),
        // a liveness failure is final
        (Liveness, 1, 3, "--+---+-", "tttttF.f.f."),
        (Liveness, 1, 1, "e-", "tF."),
        // a startup result is final
        (Startup, 1, 3, "--+-", "??T.t."),
        (Startup, 1, 2, "-e-+", "??F.f."),
    ] {
        let state = ProbeState::new(kind, &spec(success, failure));
        assert_eq!(run(state, outcomes), expected, "{kind} {outcomes}");
    }
}

#[test]
fn restored_result_holds_until_threshold() {
    use ProbeKind::{Liveness, Readiness, Startup};
    for (kind, result, outcomes, expected) in [
        (Readiness, Some(true), "+--+---", "ttttttF"),
        (Liveness, Some(false), "+", "f."),
        (Startup, Some(true), "-", "t."),
        (Startup, None, "+", "T."),
    ] {
        let state = ProbeState::restored(kind, &spec(1, 3), result);
        assert_eq!(run(state, outcomes), expected, "{kind} {result:?}");
    }
}

fn at(second: f64) -> Timestamp {
    Timestamp::from_millisecond((second * 1000.0) as i64).expect("timestamp")
}

#[test]
fn first_attempt_is_at_end_of_initial_delay() {
    for (started, spread, now, expected) in [
        (100.0, None, 100.0, 105.0),
        (100.0, None, 103.0, 105.0),
        (100.0, None, 200.0, 200.0),
        (100.0, Some(3), 200.0, 203.0),
        (100.0, Some(3), 101.0, 108.0),
        // the clock was set back by an hour
        (3700.0, None, 100.0, 105.0),
    ] {
        let spread = spread.map(Duration::from_secs);
        let due = schedule::first(&spec(1, 1), at(started), spread, at(now));
        assert_eq!(due, at(expected), "{started} {spread:?} {now}");
    }
}

#[test]
fn attempts_keep_their_period_and_do_not_accumulate() {
    for (due, now, expected) in [
        // a slow attempt does not shift the next one
        (100.0, 100.1, 110.0),
        (100.0, 109.9, 110.0),
        // after an attempt of more than a period the next one is due at once
        (100.0, 145.0, 145.0),
        // the clock was set back by an hour
        (3700.0, 100.0, 110.0),
    ] {
        let next = schedule::next(&spec(1, 1), at(due), at(now));
        assert_eq!(next, at(expected), "{due} {now}");
    }
}

#[test]
fn jitter_at_agent_start_is_deterministic() {
    let spread = |uid: u32, container: &str, kind| {
        let uid = PodUid::from(format!("uid-{uid}"));
        schedule::spread(&spec(1, 1), kind, &uid, container)
    };
    let mut quarters = [0; 4];
    for uid in 0..400 {
        let wait = spread(uid, "c", ProbeKind::Liveness);
        assert_eq!(wait, spread(uid, "c", ProbeKind::Liveness));
        assert!(wait < Duration::from_secs(10), "{wait:?}");
        quarters[(wait.as_secs_f64() / 2.5) as usize] += 1;
    }
    assert!(quarters.iter().all(|n| *n > 60), "{quarters:?}");
    let kinds = ProbeKind::ALL.map(|kind| spread(1, "c", kind));
    assert!(kinds[0] != kinds[1] && kinds[1] != kinds[2], "{kinds:?}");
    assert_ne!(
        spread(1, "c", ProbeKind::Liveness),
        spread(1, "d", ProbeKind::Liveness)
    );
}
