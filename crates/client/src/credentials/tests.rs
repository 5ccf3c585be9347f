//! Replaced tokens.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn text(header: Option<HeaderValue>) -> String {
    let header = header.expect("a header");
    assert!(header.is_sensitive());
    header.to_str().expect("text").to_owned()
}

#[tokio::test(start_paused = true)]
async fn token_file_is_read_again_after_a_minute() {
    let file = tempfile::NamedTempFile::new().expect("file");
    let write = |token: &str| std::fs::write(file.path(), token).expect("written");
    write("one\n");
    let credentials = Credentials::new(Source::TokenFile(file.path().to_owned()));
    let identity = ClientIdentity::none();
    let header = async || credentials.header(&identity).await;
    assert_eq!(text(header().await.expect("token")), "Bearer one");
    write("two");
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(text(header().await.expect("token")), "Bearer one");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(text(header().await.expect("token")), "Bearer two");

    write(" \n");
    tokio::time::advance(TOKEN_FILE_TTL).await;
    assert_eq!(text(header().await.expect("the old one")), "Bearer two");
    let anew = Credentials::new(Source::TokenFile(file.path().to_owned()));
    let error = anew.header(&identity).await.expect_err("empty").to_string();
    assert!(error.ends_with("the file has no token"), "{error}");
}

#[tokio::test]
async fn slow_plugin_finishes_after_canceled_requests() {
    let directory = tempfile::tempdir().expect("directory");
    let runs = directory.path().join("runs");
    let script = format!(
        "echo x >> {}; sleep 1; echo '{{\"status\":{{\"token\":\"t\"}}}}'",
        runs.display()
    );
    let exec = Exec {
        api_version: String::new(),
        command: "/bin/sh".to_owned(),
        args: Some(vec!["-c".to_owned(), script]),
        env: None,
    };
    let credentials = Credentials::new(Source::Plugin(Box::new(exec)));
    let identity = ClientIdentity::none();
    let limit = Duration::from_millis(50);
    let header = loop {
        let asked = tokio::time::timeout(limit, credentials.header(&identity)).await;
        if let Ok(header) = asked {
            break header.expect("token");
        }
    };
    assert_eq!(text(header), "Bearer t");
    assert_eq!(std::fs::read_to_string(runs).expect("runs"), "x\n");
}

#[tokio::test]
async fn failing_plugin_is_not_executed_for_each_request() {
    let directory = tempfile::tempdir().expect("directory");
    let runs = directory.path().join("runs");
    let exec = Exec {
        api_version: String::new(),
        command: "/bin/sh".to_owned(),
        args: Some(vec![
            "-c".to_owned(),
            format!("echo x >> {}; exit 1", runs.display()),
        ]),
        env: None,
    };
    let credentials = Credentials::new(Source::Plugin(Box::new(exec)));
    let identity = ClientIdentity::none();
    let began = Instant::now();
    for _ in 0..50 {
        credentials.header(&identity).await.expect_err("exit 1");
    }
    let allowed = 1 + began.elapsed().as_secs();
    let runs = std::fs::read_to_string(runs).expect("runs").lines().count();
    assert!(runs as u64 <= allowed, "{runs} runs");
}

#[tokio::test]
async fn plugin_is_executed_again_only_after_a_401() {
    let directory = tempfile::tempdir().expect("directory");
    let plugin = directory.path().join("plugin");
    // each run prints another token; the exec_info is in the environment
    let script = r#"#!/bin/sh
case "$KUBERNETES_EXEC_INFO" in *ExecCredential*) ;; *) exit 3;; esac
echo x >> "$COUNT"
n=$(wc -l < "$COUNT")
echo '{"kind":"ExecCredential","status":{"token":"'"$1-$n"'"}}'
"#;
    std::fs::write(&plugin, script).expect("written");
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let exec = Exec {
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        command: plugin.display().to_string(),
        args: Some(vec!["token".to_owned()]),
        env: Some(vec![crate::config::file::ExecEnv {
            name: "COUNT".to_owned(),
            value: directory.path().join("count").display().to_string(),
        }]),
    };
    let credentials = Credentials::new(Source::Plugin(Box::new(exec)));
    let identity = ClientIdentity::none();
    let first = credentials.header(&identity).await.expect("token");
    assert_eq!(text(first.clone()), "Bearer token-1");
    let cached = credentials.header(&identity).await.expect("token");
    assert_eq!(cached, first);
    let renewed = credentials.renewed(first.as_ref(), &identity).await;
    assert_eq!(text(renewed), "Bearer token-2");
    let other = credentials.renewed(first.as_ref(), &identity).await;
    assert_eq!(text(other), "Bearer token-2", "renewed by another request");
}

#[tokio::test]
async fn plugin_error_names_the_plugin_without_its_output() {
    let exec = Exec {
        api_version: String::new(),
        command: "/bin/echo".to_owned(),
        args: Some(vec!["hunter2".to_owned()]),
        env: None,
    };
    let credentials = Credentials::new(Source::Plugin(Box::new(exec)));
    let error = credentials.header(&ClientIdentity::none()).await;
    let error = error.expect_err("no JSON").to_string();
    assert_eq!(
        error,
        "credential plugin /bin/echo: invalid output: not an ExecCredential with a status"
    );
}
