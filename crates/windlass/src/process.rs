//! The process itself: limits, threads, the lock file and signals.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::FlockOperation;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use windlass::build::node::kubelet_version;
use windlass_config::checks::{CgroupVersion, cgroup_version};
use windlass_config::gates::Stage;
use windlass_config::{Config, KubeletConfiguration};
use windlass_container_logs::MAX_THREADS as LOG_THREADS;
use windlass_metrics::Metrics;
use windlass_volumes::IO_PERMITS;

use crate::{code, memory};

/// Threads for gRPC and timers. Actors run on the main thread.
const IO_THREADS: usize = 2;
/// Max threads for file operations, which may hang: those of the volume I/O queues, those of log
/// readers, and 32 for manifests, state files and stats.
const FILE_THREADS: usize = IO_PERMITS + LOG_THREADS + 32;
/// The deepest calls are the YAML and JSON decoders, which limit their depth.
const STACK_BYTES: usize = 512 * 1024;

/// Builds the tokio runtime of the process.
pub(crate) fn tokio_runtime() -> anyhow::Result<Arc<Runtime>> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(IO_THREADS)
        .max_blocking_threads(FILE_THREADS)
        .thread_stack_size(STACK_BYTES)
        .thread_name("windlass-io")
        .enable_all()
        .build()
        .context("cannot start threads")?;
    Ok(Arc::new(runtime))
}

/// Configures the allocator, the file limit and the OOM score. Failures are logged.
pub(crate) fn prepare(config: &KubeletConfiguration) {
    memory::limit_allocator();
    code::keep_resident();
    let files = u64::try_from(config.max_open_files).unwrap_or(0);
    let hard = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit {
        current: Some(files),
        maximum: hard.map(|hard| hard.max(files)),
    };
    let within = Rlimit {
        current: hard.map_or(Some(files), |hard| Some(hard.min(files))),
        maximum: hard,
    };
    if setrlimit(Resource::Nofile, wanted)
        .or_else(|_| setrlimit(Resource::Nofile, within))
        .is_err()
    {
        tracing::warn!(files, "setting maxOpenFiles failed");
    }
    let adjustment = config.oom_score_adj.to_string();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", &adjustment) {
        tracing::warn!(%error, adjustment, "setting oomScoreAdj failed; check for CAP_SYS_RESOURCE");
    }
}

/// Sets the metrics of version, feature gates and cgroup version.
pub(crate) fn set_build_info(config: &Config, metrics: &Metrics) {
    metrics.build_info.set_version(&kubelet_version());
    for (gate, enabled) in config.gates.all() {
        let stage = match gate.stage {
            // as upstream
            Stage::Ga => String::new(),
            stage => stage.to_string(),
        };
        metrics.build_info.set_feature(gate.name, &stage, enabled);
    }
    if let Ok(version) = cgroup_version() {
        metrics.build_info.set_cgroup_version(match version {
            CgroupVersion::V1 => 1,
            CgroupVersion::V2 => 2,
        });
    }
}

/// Creates `--root-dir` and its directories for plugin sockets, with mode 0750.
pub(crate) fn make_root_dir(path: &Path) -> anyhow::Result<()> {
    for below in ["", "plugins", "plugins_registry"] {
        make_dir(path, &path.join(below))?;
    }
    Ok(())
}

fn make_dir(root: &Path, path: &Path) -> anyhow::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o750)
        .create(path)
        .with_context(|| format!("cannot create --root-dir={}; run as root", root.display()))
}

/// Locks `--lock-file` until the returned file is closed.
pub(crate) fn lock(path: Option<&Path>) -> anyhow::Result<Option<File>> {
    let Some(path) = path else { return Ok(None) };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("--lock-file={}", path.display()))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("--lock-file={}: another process holds it", path.display()))?;
    Ok(Some(file))
}

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn wait_for_signal() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{lock, make_root_dir};

    #[test]
    fn lock_file_has_one_holder_until_closed() {
        let directory = scratch("lock");
        make_root_dir(&directory).expect("made");
        let path = directory.join("windlass.lock");
        let held = lock(Some(&path)).expect("free");
        let error = lock(Some(&path)).expect_err("held");
        let text = format!("{error:#}");
        assert!(text.contains("another process holds it"), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
        drop(held);
        assert!(lock(Some(&path)).expect("free again").is_some());
        assert!(lock(None).expect("not asked for").is_none());
        std::fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn uncreatable_root_dir_error_names_path_and_fix() {
        let file = scratch("file");
        std::fs::write(&file, "").expect("written");
        let error = make_root_dir(&file.join("below")).expect_err("a file is in the way");
        let text = format!("{error:#}");
        assert!(text.starts_with("cannot create --root-dir="), "{text}");
        assert!(text.contains("; run as root"), "{text}");
        std::fs::remove_file(&file).expect("removed");
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("windlass-{name}-{}", std::process::id()))
    }
}
