//! Programs that succeed, fail, hang and leave daemons.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// A directory with one program.
fn programs(name: &str, script: &str) -> (tempfile::TempDir, Programs) {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    let programs = Programs {
        directory: Some(dir.path().to_owned()),
        ..Programs::default()
    };
    (dir, programs)
}

const LONG: Duration = Duration::from_secs(60);

/// Whether a process runs and is not a zombie.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('Z'));
    state == Some(false)
}

async fn until(what: &str, mut there: impl FnMut() -> bool) {
    let waited = async {
        while !there() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), waited).await.expect(what);
}

#[tokio::test]
async fn program_gets_its_arguments_without_a_shell() {
    let (_dir, programs) = programs(
        "show",
        r#"for a in "$@"; do echo "<$a>"; done; echo why >&2; exit 3"#,
    );
    let arguments = ["a b".into(), "$(id);*".into(), "".into()];
    let ended = programs.run("show", &arguments, LONG).await.expect("ended");
    assert_eq!(ended.code(), Some(3));
    assert_eq!(ended.output, "<a b>\n<$(id);*>\n<>\nwhy\n");
    let failed = programs.succeed("show", &arguments, LONG).await;
    assert_eq!(failed.expect_err("failed").cause(), "exit status 3");
}

#[tokio::test]
async fn missing_program_is_named() {
    let (_dir, programs) = programs("other", "");
    let error = programs.run("mount", &[], LONG).await.expect_err("missing");
    assert_eq!(
        error.to_string(),
        "mount: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn output_is_truncated() {
    let (_dir, programs) = programs("talk", "head -c 1000000 /dev/zero | tr '\\0' x");
    let ended = programs.run("talk", &[], LONG).await.expect("ended");
    assert_eq!(ended.output.len(), MAX_OUTPUT);
}

#[tokio::test]
async fn hung_program_is_killed_with_its_children() {
    let (dir, programs) = programs(
        "hang",
        "sleep 1000 & echo $! >\"$1\"; echo $$ >>\"$1\"; wait",
    );
    let pids = dir.path().join("pids");
    let arguments = [pids.clone().into()];
    let late = Duration::from_secs(1);
    let error = programs
        .run("hang", &arguments, late)
        .await
        .expect_err("hung");
    assert_eq!(
        error.to_string(),
        "hang did not end within 1 s and was killed"
    );
    killed(&pids).await;
}

#[tokio::test]
async fn cancelled_program_is_killed() {
    let (dir, programs) = programs(
        "hang",
        "sleep 1000 & echo $! >\"$1\"; echo $$ >>\"$1\"; wait",
    );
    let pids = dir.path().join("pids");
    let arguments = vec![pids.clone().into()];
    let task = tokio::spawn(async move { programs.run("hang", &arguments, LONG).await });
    let there = || fs::read_to_string(&pids).is_ok_and(|text| text.lines().count() == 2);
    until("two processes", there).await;
    task.abort();
    killed(&pids).await;
}

async fn killed(pids: &Path) {
    let pids = fs::read_to_string(pids).expect("pids");
    assert_eq!(pids.lines().count(), 2);
    until("no process", || !pids.lines().any(runs)).await;
}

#[tokio::test]
async fn daemons_of_a_program_keep_running() {
    let (dir, programs) = programs("daemon", "sleep 1000 & echo $! >\"$1\"; echo done");
    let pids = dir.path().join("pids");
    let arguments = [pids.clone().into()];
    let ended = programs
        .run("daemon", &arguments, LONG)
        .await
        .expect("ended");
    assert_eq!(ended.output, "done\n");
    let pid = fs::read_to_string(&pids).expect("pid");
    assert!(runs(pid.trim()));
    let pid = pid
        .trim()
        .parse()
        .ok()
        .and_then(Pid::from_raw)
        .expect("pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("kill");
}
