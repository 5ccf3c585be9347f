//! Log rotation while a client follows the log.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::manifest::shell;
use crate::test_env::{TestEnv, eventually, scaled, skipped};

/// For four rotations on a busy host.
const ROTATIONS: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_followed_log_rotation_loses_no_line() {
    if skipped() {
        return;
    }
    let config = "containerLogMaxSize: 20Ki\n\
                  containerLogMaxFiles: 3\n\
                  containerLogMonitorInterval: 3s";
    let mut env = TestEnv::configured("i-rotation", config).await;
    // about 15 KiB per second, also during rotation
    let script = "i=0; while true; do \
                  for n in 1 2 3 4 5 6 7 8 9 10; do i=$((i+1)); echo line $i of many; done; \
                  sleep 0.05; done";
    env.apply("talks.yaml", &shell("talks", script));
    env.ready("talks").await;
    let mut command = env.ctl_command(&["logs", "-f", "talks-node"]);
    let mut follow = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let followed = tokio::spawn(async move {
        // the first file may be rotated already
        let (mut first, mut next) = (None, 1);
        while let Some(line) = lines.next_line().await.unwrap() {
            let number = line
                .strip_prefix("line ")
                .and_then(|it| it.split(' ').next());
            let number: u64 = number.unwrap().parse().unwrap();
            assert!(number == next || first.is_none(), "{line} after {next}");
            first.get_or_insert(number);
            next = number + 1;
        }
        next - first.unwrap_or(next)
    });

    let directory = log_directory(&env);
    let mut seen = BTreeSet::new();
    let before = names(&directory);
    let before: BTreeSet<_> = before.iter().filter_map(|name| stamp(name)).collect();
    eventually("four rotations", ROTATIONS, async || {
        assert!(!followed.is_finished(), "a line is lost or doubled");
        let files = names(&directory);
        seen.extend(files.iter().filter_map(|name| stamp(name)));
        assert!(of_one_moment(&files) <= 3, "{files:?}");
        match seen.difference(&before).count() {
            4.. => Ok(()),
            _ => Err(format!("{files:?}")),
        }
    })
    .await;
    eventually("the older one is compressed", ROTATIONS, async || {
        let files = names(&directory);
        let compressed = files.iter().find(|name| name.ends_with(".gz"));
        let compressed = compressed.ok_or_else(|| format!("{files:?}"))?;
        whole_lines(&directory.join(compressed))
    })
    .await;

    env.remove("talks.yaml");
    env.gone("talks").await;
    let count = tokio::time::timeout(scaled(ROTATIONS), followed).await;
    let count = count.expect("it ends with its pod").unwrap();
    assert!(count > 1000, "{count} lines in four rotations");
    env.stop().await;
}

/// Bytes that all files of the fast writer may have: three with 1 MiB and a second of 50 MB/s each.
/// One check in ten seconds leaves 500 MB in one file.
const BURST_BUDGET: u64 = 150 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_log_of_fast_writer_stays_small() {
    if skipped() {
        return;
    }
    let config = "containerLogMaxSize: 1Mi\n\
                  containerLogMaxFiles: 3\n\
                  containerLogMonitorInterval: 10s";
    let mut env = TestEnv::configured("i-burst", config).await;
    let line = "x".repeat(200);
    env.apply(
        "burst.yaml",
        &shell("burst", &format!("sleep 3; yes {line}")),
    );
    env.ready("burst").await;
    let directory = log_directory(&env);
    let mut seen = BTreeSet::new();
    // one in ten seconds would be nine
    eventually("twenty rotations", ROTATIONS, async || {
        let files = names(&directory);
        seen.extend(files.iter().filter_map(|name| stamp(name)));
        let sizes = files.iter().map(|name| directory.join(name).metadata());
        let bytes: u64 = sizes.flatten().map(|it| it.len()).sum();
        assert!(bytes <= BURST_BUDGET, "{bytes} bytes in {files:?}");
        match seen.len() {
            20.. => Ok(()),
            _ => Err(format!("{bytes} bytes in {files:?}")),
        }
    })
    .await;
    env.remove("burst.yaml");
    env.gone("burst").await;
    env.stop().await;
}

/// Log directory of the only container.
fn log_directory(env: &TestEnv) -> PathBuf {
    let logs = env.containerd.base().join("logs");
    let pod = std::fs::read_dir(logs).unwrap().next().unwrap().unwrap();
    pod.path().join("main")
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| name(entry.unwrap())).collect()
}

/// Time of a rotation: `0.log.<this>`, `0.log.<this>.gz`.
fn stamp(name: &str) -> Option<String> {
    let rest = name.strip_prefix("0.log.")?;
    Some(rest.split('.').next()?.to_owned())
}

/// A file that is being compressed has several names.
fn of_one_moment(files: &BTreeSet<String>) -> usize {
    let moments: BTreeSet<_> = files.iter().map(|name| stamp(name)).collect();
    moments.len()
}

/// Reads a compressed file with gzip. It may be removed by now.
fn whole_lines(path: &Path) -> Result<(), String> {
    let output = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(path)
        .output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.ends_with(" of many\n") && text.len() >= 20 * 1024,
        "{text}"
    );
    Ok(())
}
