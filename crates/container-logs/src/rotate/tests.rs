//! Rotations of real files, with a runtime that records its calls.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use flate2::read::GzDecoder;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use windlass_pod_lifecycle::log_rotation::RotationPolicy;
use windlass_types::{Clock, ContainerId, Timestamp};

use super::writes::WriteWatches;
use super::{
    ContainerLog, LogList, LogRotation, LogRotationDeps, ReopenLog, RotationError, files,
    rotate_logs,
};
use crate::{LogReader, LogSource};

mod bursts;

/// Twenty checks.
const DEADLINE: Duration = Duration::from_secs(60);
const NAME: &str = "20261122-060708";
const BEFORE: &str = "0.log.20261122-050000";

#[derive(Debug, Default)]
struct FixedClock {
    panics_once: AtomicBool,
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        assert!(!self.panics_once.swap(false, Ordering::Relaxed), "a fault");
        "2026-11-22T06:07:08Z".parse().expect("time")
    }
}

/// A runtime that records its calls and opens no file.
#[derive(Debug, Default)]
struct FakeRuntime(Mutex<Model>);

#[derive(Debug, Default)]
struct Model {
    calls: Vec<String>,
    error: Option<RotationError>,
    hung: Option<ContainerId>,
}

impl FakeRuntime {
    fn calls(&self) -> Vec<String> {
        self.0.lock().expect("lock").calls.clone()
    }

    fn fail(&self, error: RotationError) {
        self.0.lock().expect("lock").error = Some(error);
    }

    /// Calls for this container do not end.
    fn hang(&self, container: &str) {
        self.0.lock().expect("lock").hung = Some(container.into());
    }
}

#[async_trait]
impl ReopenLog for FakeRuntime {
    async fn reopen(&self, container: &ContainerId) -> Result<(), RotationError> {
        let (hangs, error) = {
            let mut model = self.0.lock().expect("lock");
            model.calls.push(format!("reopen {container}"));
            (model.hung.as_ref() == Some(container), model.error.clone())
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        error.map_or(Ok(()), Err)
    }
}

struct TestEnv {
    dir: TempDir,
    runtime: Arc<FakeRuntime>,
    clock: Arc<FixedClock>,
    /// Exited containers.
    ended: Vec<&'static str>,
}

impl TestEnv {
    fn new() -> Self {
        let dir = TempDir::new().expect("directory");
        fs::create_dir(dir.path().join("app")).expect("made");
        Self {
            dir,
            runtime: Arc::default(),
            clock: Arc::default(),
            ended: Vec::new(),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("app/0.log")
    }

    fn source(&self) -> LogSource {
        LogSource {
            root: self.dir.path().to_owned(),
            path: self.log(),
        }
    }

    /// Rotates and compresses.
    fn rotate(&self, max_files: usize) -> std::io::Result<files::Renamed> {
        let shutdown = CancellationToken::new();
        let renamed = self.rotate_until(max_files, &shutdown)?;
        files::compress_older(&self.source(), &shutdown)?;
        Ok(renamed)
    }

    fn rotate_until(
        &self,
        max_files: usize,
        shutdown: &CancellationToken,
    ) -> std::io::Result<files::Renamed> {
        let now = self.clock.now();
        let rotated = files::rotate(&self.source(), (max_files, now), false, shutdown);
        rotated.map(|(renamed, _)| renamed)
    }

    fn size(&self, source: &LogSource) -> std::io::Result<Option<u64>> {
        files::check(source, &WriteWatches::new()).map(|(size, _)| size)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join("app").join(name), text).expect("written");
    }

    /// The files of the container's directory.
    fn files(&self) -> String {
        let entries = fs::read_dir(self.dir.path().join("app")).expect("directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names.join(" ")
    }

    fn deps(&self, max_size: u64, max_files: usize, interval: Duration) -> LogRotationDeps {
        LogRotationDeps {
            runtime: self.runtime.clone(),
            root: self.dir.path().to_owned(),
            reader: LogReader::default(),
            clock: self.clock.clone(),
            rotation: LogRotation {
                policy: RotationPolicy {
                    max_size,
                    max_files,
                },
                workers: 1,
                interval,
            },
            shutdown: CancellationToken::new(),
        }
    }

    /// Checks once per interval of virtual time until `done`.
    async fn until(&self, containers: &[&str], done: impl Fn(&Self) -> bool) {
        let deps = self.deps(10, 3, Duration::from_secs(3));
        let log = |id: &&str| ContainerLog {
            container: ContainerId::from(*id),
            path: self.dir.path().join(id).join("0.log"),
            runs: !self.ended.contains(id),
        };
        let logs = FixedLogs(containers.iter().map(log).collect());
        let look = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let both = async {
            tokio::select! {
                biased;
                () = look => {}
                () = rotate_logs(deps, logs) => {}
            }
        };
        let ended = tokio::time::timeout(DEADLINE, both).await;
        assert!(ended.is_ok(), "{} {:?}", self.files(), self.runtime.calls());
    }
}

struct FixedLogs(Vec<ContainerLog>);

impl LogList for FixedLogs {
    fn version(&self) -> u64 {
        1
    }

    fn logs(&self) -> Vec<ContainerLog> {
        self.0.clone()
    }
}

fn unzipped(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).expect("file");
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("whole");
    text
}

#[tokio::test(start_paused = true)]
async fn long_log_is_rotated_and_reopened() {
    let env = TestEnv::new();
    env.write("0.log", "0123456789");
    env.until(&["app"], |it| {
        it.runtime.calls().contains(&"reopen app".into())
    })
    .await;
    assert!(env.files().starts_with(&format!("0.log.{NAME}")));
}

#[tokio::test(start_paused = true)]
async fn short_log_is_kept_and_missing_log_reopened() {
    let env = TestEnv::new();
    env.write("0.log", "012345678");
    fs::create_dir(env.dir.path().join("other")).expect("made");
    env.until(&["app", "other"], |it| !it.runtime.calls().is_empty())
        .await;
    let calls = env.runtime.calls();
    assert!(calls.iter().all(|call| call == "reopen other"), "{calls:?}");
    assert_eq!(env.files(), "0.log");
}

#[tokio::test(start_paused = true)]
async fn failed_reopen_undoes_the_rotation() {
    let env = TestEnv::new();
    env.write("0.log", "0123456789");
    let error = "container is not running".to_owned();
    env.runtime.fail(RotationError::Failed(error));
    let tried = |it: &TestEnv| it.runtime.calls().len() > 1 && it.files() == "0.log";
    env.until(&["app"], tried).await;
    assert_eq!(fs::read_to_string(env.log()).expect("log"), "0123456789");
}

/// Counts the warnings of its thread.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn removed_container_causes_no_rotation_warning() {
    let env = TestEnv::new();
    env.write("0.log", "0123456789");
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let tried = |count: usize| move |it: &TestEnv| it.runtime.calls().len() >= count;
    let error = "container \"app\": not found".to_owned();
    env.runtime.fail(RotationError::Removed(error.clone()));
    env.until(&["app"], tried(2)).await;
    assert_eq!(warnings.0.load(Ordering::Relaxed), 0);
    env.runtime.fail(RotationError::Failed(error));
    env.until(&["app"], tried(5)).await;
    assert!(warnings.0.load(Ordering::Relaxed) > 0);
}

#[tokio::test(start_paused = true)]
async fn hung_reopen_does_not_block_other_rotations() {
    let env = TestEnv::new();
    env.write("0.log", "0123456789");
    let other = env.dir.path().join("other");
    fs::create_dir(&other).expect("made");
    fs::write(other.join("0.log"), "0123456789").expect("written");
    env.runtime.hang("app");
    let rotated = other.join(format!("0.log.{NAME}"));
    env.until(&["app", "other"], |it| {
        let calls = it.runtime.calls();
        calls.contains(&"reopen app".into())
            && calls.contains(&"reopen other".into())
            && rotated.exists()
    })
    .await;
    let calls = env.runtime.calls();
    let asked = calls.iter().filter(|call| *call == "reopen app").count();
    assert_eq!(asked, 1, "one rotation of a container at a time: {calls:?}");
}

#[test]
fn rotation_compresses_second_newest_and_removes_oldest() {
    let env = TestEnv::new();
    let text = "a line\n".repeat(100_000);
    env.write("0.log", "now");
    env.write("0.log.20261122-050000", &text);
    env.write("0.log.20261122-040000.gz", "old");
    let path = env.dir.path().join("app/0.log.20261122-050000");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mode");
    env.rotate(3).expect("rotated");
    let expected = format!("0.log.20261122-050000.gz 0.log.{NAME}");
    assert_eq!(env.files(), expected);
    let compressed = path.with_file_name("0.log.20261122-050000.gz");
    assert_eq!(unzipped(&compressed), text);
    let mode = fs::metadata(&compressed)
        .expect("file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(fs::metadata(&compressed).expect("file").len() < 10_000);
}

#[test]
fn rotation_undo_does_not_overwrite_a_reopened_log() {
    let env = TestEnv::new();
    env.write("0.log", "before");
    let renamed = env.rotate(5).expect("rotated");
    env.write("0.log", "after");
    renamed.undo().expect("nothing to do");
    assert_eq!(fs::read_to_string(env.log()).expect("log"), "after");
    fs::remove_file(env.log()).expect("removed");
    renamed.undo().expect("given back");
    assert_eq!(fs::read_to_string(env.log()).expect("log"), "before");
}

#[test]
fn failed_compression_does_not_block_rotation() {
    let env = TestEnv::new();
    env.write("0.log", "now");
    env.write(BEFORE, "before");
    // at the path of the temporary file
    fs::create_dir(env.dir.path().join(format!("app/{BEFORE}.tmp"))).expect("made");
    env.rotate(5).expect("rotated");
    let expected = format!("{BEFORE} {BEFORE}.tmp 0.log.{NAME}");
    assert_eq!(env.files(), expected);
}

#[test]
fn directories_named_like_rotated_logs_are_ignored() {
    let env = TestEnv::new();
    env.write("0.log", "now");
    env.write(BEFORE, "before");
    for name in ["0.log.20261122-030000", "0.log.20261122-040000.gz"] {
        fs::create_dir(env.dir.path().join("app").join(name)).expect("made");
    }
    env.rotate(3).expect("rotated");
    let expected =
        format!("0.log.20261122-030000 0.log.20261122-040000.gz {BEFORE}.gz 0.log.{NAME}");
    assert_eq!(env.files(), expected);
}

#[tokio::test(start_paused = true)]
async fn interrupted_rotation_is_undone_after_container_exit() {
    let mut env = TestEnv::new();
    env.ended = vec!["app", "other", "gone"];
    env.write("0.log.20261122-040000.gz", "oldest");
    env.write(BEFORE, "before");
    env.write("0.log.20261122-055959", "the last");
    fs::create_dir(env.dir.path().join("other")).expect("made");
    env.until(&["app", "other", "gone"], |it| it.log().exists())
        .await;
    assert_eq!(fs::read_to_string(env.log()).expect("log"), "the last");
    let expected = format!("0.log 0.log.20261122-040000.gz {BEFORE}");
    assert_eq!(env.files(), expected);
    let calls = env.runtime.calls();
    assert!(
        calls.is_empty(),
        "no container would write into it: {calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn panicked_rotation_is_retried() {
    let env = TestEnv::new();
    env.write("0.log", "0123456789");
    env.clock.panics_once.store(true, Ordering::Relaxed);
    env.until(&["app"], |it| {
        it.runtime.calls().contains(&"reopen app".into())
    })
    .await;
    assert!(!env.clock.panics_once.load(Ordering::Relaxed), "it did");
}

#[test]
fn compression_stops_at_shutdown_without_partial_files() {
    let env = TestEnv::new();
    env.write("0.log.20261122-050000", "before");
    env.write("0.log.20261122-060000", "newest");
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    files::compress_older(&env.source(), &shutdown).expect("read");
    assert_eq!(env.files(), "0.log.20261122-050000 0.log.20261122-060000");
}

#[test]
fn rotation_keeps_unfinished_file_of_compression_in_progress() {
    let env = TestEnv::new();
    env.write("0.log", "now");
    env.write("0.log.20261122-050000", "before");
    env.write("0.log.20261122-050000.tmp", "part");
    let shutdown = CancellationToken::new();
    for (compresses, expected) in [(true, true), (false, false)] {
        let now = env.clock.now();
        let rotated = files::rotate(&env.source(), (5, now), compresses, &shutdown);
        let (renamed, to_compress) = rotated.expect("rotated");
        assert_eq!(to_compress, ["0.log.20261122-050000"]);
        assert_eq!(env.files().contains(".tmp"), expected, "{compresses}");
        renamed.undo().expect("given back");
    }
}

#[test]
fn rotation_stops_before_the_rename_at_shutdown() {
    let env = TestEnv::new();
    env.write("0.log", "now");
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    env.rotate_until(5, &shutdown)
        .expect_err("the agent is shutting down");
    assert_eq!(env.files(), "0.log");
}

#[tokio::test]
async fn symlinks_of_a_pod_are_not_followed() {
    let env = TestEnv::new();
    let outside = TempDir::new().expect("directory");
    let secret = outside.path().join("0.log");
    fs::write(&secret, "0123456789").expect("written");
    std::os::unix::fs::symlink(&secret, env.log()).expect("link");
    env.size(&env.source()).expect_err("no file");

    let planted = outside.path().join("0.log.20261122-050000");
    fs::write(&planted, "secret").expect("written");
    let link = env.dir.path().join("app/0.log.20261122-050000");
    std::os::unix::fs::symlink(&planted, link).expect("link");
    env.rotate(5).expect("rotated");
    assert!(!env.files().contains(".gz"), "{}", env.files());
    assert_eq!(fs::read_to_string(&secret).expect("there"), "0123456789");

    let directory = env.dir.path().join("linked");
    std::os::unix::fs::symlink(outside.path(), &directory).expect("link");
    let source = LogSource {
        path: directory.join("0.log"),
        ..env.source()
    };
    env.size(&source).expect_err("a link in the path");
    let shutdown = CancellationToken::new();
    let error = files::rotate(&source, (5, env.clock.now()), false, &shutdown);
    error.expect_err("a link in the path");
    assert!(secret.exists());
}
