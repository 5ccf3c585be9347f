//! Hooks and their error messages.

use std::fmt;

use serde_json::{Value, json};

use super::*;

impl fmt::Display for HookAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(command) => write!(f, "exec {command:?}"),
            Self::Http(target) => write!(f, "get {}", target.url()),
            Self::Sleep(duration) => write!(f, "sleep {}s", duration.as_secs()),
        }
    }
}

fn handler(handler: Value) -> LifecycleHandler {
    serde_json::from_value(handler).expect("handler")
}

fn container() -> Container {
    serde_json::from_value(json!({
        "name": "c", "env": [{"name": "A", "value": "a"}],
        "ports": [{"name": "http", "containerPort": 8080}],
    }))
    .expect("container")
}

fn check(hook: Value, expected: &str) {
    let action = HookAction::new(&handler(hook), &container(), "10.0.0.7".parse().ok());
    let shown = match action {
        Ok(action) => action.to_string(),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(shown, expected);
}

#[test]
fn hook_has_one_action() {
    // the command of a hook is not expanded
    check(
        json!({"exec": {"command": ["echo", "$(A)"]}}),
        r#"exec ["echo", "$(A)"]"#,
    );
    check(
        json!({"httpGet": {"port": "http", "path": "bye"}}),
        "get http://10.0.0.7:8080/bye",
    );
    check(json!({"sleep": {"seconds": 3}}), "sleep 3s");
    check(json!({"sleep": {"seconds": 0}}), "sleep 0s");
    check(
        json!({"httpGet": {"port": "none"}}),
        r#"error: strconv.Atoi: parsing "none": invalid syntax"#,
    );
    check(
        json!({"tcpSocket": {"port": 80}}),
        "error: invalid handler: tcpSocket",
    );
    check(json!({}), "error: invalid handler: no action");
}

#[test]
fn hook_request_has_user_agent() {
    let hook = handler(json!({"httpGet": {"port": 1}}));
    let action = HookAction::new(&hook, &container(), "10.0.0.7".parse().ok());
    let Ok(HookAction::Http(target)) = action else {
        panic!("{action:?}");
    };
    let agent = ("User-Agent".to_owned(), "kube-lifecycle/1.36".to_owned());
    assert!(target.headers.contains(&agent), "{:?}", target.headers);
}

#[test]
fn any_response_to_hook_is_success() {
    let get = json!({"httpGet": {"port": 443, "scheme": "HTTPS"}});
    let action = HookAction::new(&handler(get), &container(), "10.0.0.7".parse().ok());
    let Ok(HookAction::Http(target)) = action else {
        panic!("{action:?}");
    };
    let refused = "dial tcp 10.0.0.7:443: connect: connection refused";
    let status = |status| {
        Ok(HttpAnswer {
            status,
            ..HttpAnswer::default()
        })
    };
    let second = Duration::from_secs(1);
    for (answer, expected) in [
        (status(200), HttpHookOutcome::Succeeded),
        (status(500), HttpHookOutcome::Succeeded),
        (
            Err(CheckError::Body("unexpected EOF".into())),
            HttpHookOutcome::Succeeded,
        ),
        (
            Err(CheckError::PlainHttp),
            HttpHookOutcome::RetryOverHttp(target.plain()),
        ),
        (
            Err(CheckError::Failed(refused.into())),
            HttpHookOutcome::Failed(format!("Get \"https://10.0.0.7:443/\": {refused}")),
        ),
        (
            Err(CheckError::Redirected("Get \"/a\": EOF".into())),
            HttpHookOutcome::Failed("Get \"/a\": EOF".into()),
        ),
        (
            Err(CheckError::TimedOut(second)),
            HttpHookOutcome::Failed(
                "Get \"https://10.0.0.7:443/\": context deadline exceeded \
                 (Client.Timeout exceeded while awaiting headers)"
                    .into(),
            ),
        ),
    ] {
        assert_eq!(evaluate_http(&target, &answer), expected);
    }
    assert_eq!(
        fallback_message(&target),
        "request to HTTPS lifecycle hook 10.0.0.7:443 got HTTP response, \
         retry with HTTP succeeded"
    );
}

#[test]
fn hook_command_with_nonzero_exit_code_fails() {
    let command = ["cat".to_owned(), "/x".to_owned()];
    let output = |exit_code| {
        Ok(ExecOutput {
            stdout: b"out".to_vec(),
            stderr: b"no such file".to_vec(),
            exit_code,
        })
    };
    for (answer, expected) in [
        (output(0), Ok(())),
        (
            output(1),
            Err("command 'cat /x' exited with 1: no such file".to_owned()),
        ),
        (
            Err(ExecFailure::TimedOut),
            Err("command timed out".to_owned()),
        ),
        (
            Err(ExecFailure::Failed("gone".into())),
            Err("gone".to_owned()),
        ),
    ] {
        assert_eq!(evaluate_exec(&command, &answer), expected);
    }
}

#[test]
fn hook_failure_names_hook_container_and_cause() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    }))
    .expect("pod");
    let of = "for Container \"c\" in Pod \"web_shop(u1)\" failed - error: why";
    for (hook, expected) in [
        (
            json!({"exec": {"command": ["sh", "-c", "exit 1"]}}),
            format!("Exec lifecycle hook ([sh -c exit 1]) {of}, message: \"out\""),
        ),
        (
            json!({"httpGet": {"port": 1, "path": "/bye"}}),
            format!("HTTP lifecycle hook (/bye) {of}"),
        ),
        (
            json!({"sleep": {"seconds": 9}}),
            format!("Sleep lifecycle hook (9) {of}"),
        ),
        (
            json!({"tcpSocket": {"port": 1}}),
            "Cannot run handler: why".to_owned(),
        ),
    ] {
        let shown = failure(&handler(hook), &pod, &container(), "why", b"out");
        assert_eq!(shown, expected);
    }
}

#[test]
fn hook_failure_message_is_bounded() {
    let pod = Pod::default();
    let noise = vec![0x1b; 16 << 20];
    let answer = Ok(ExecOutput {
        stdout: noise.clone(),
        stderr: noise.clone(),
        exit_code: 1,
    });
    let command = ["x".repeat(1 << 20)];
    let why = evaluate_exec(&["make".to_owned()], &answer).expect_err("it failed");
    assert!(why.len() < 5 << 10, "{}", why.len());
    let shown = |command: &[String]| {
        let hook = handler(json!({"exec": {"command": command}}));
        failure(&hook, &pod, &container(), &why, &noise).len()
    };
    assert!(shown(&[]) <= 16 << 10);
    assert!(shown(&command) <= 16 << 10);
}
