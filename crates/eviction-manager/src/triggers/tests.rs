//! Notifications: thresholds of usage, kernels without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_eviction::ThresholdFields;
use windlass_types::Timestamp;

use super::*;

fn thresholds(hard: &[(&str, &str)], soft: &[(&str, &str)]) -> Thresholds {
    let map = |list: &[(&str, &str)]| {
        let list = list.iter();
        list.map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    };
    let periods: Vec<_> = soft.iter().map(|(signal, _)| (*signal, "1m")).collect();
    Thresholds::parse(ThresholdFields {
        hard: &map(hard),
        soft: &map(soft),
        soft_grace_period: &map(&periods),
        minimum_reclaim: &map(&[]),
        enforces_pods: true,
    })
    .expect("valid")
}

#[test]
fn next_crossing_is_armed_and_includes_page_cache() {
    let thresholds = thresholds(
        &[("memory.available", "100")],
        &[("memory.available", "30%")],
    );
    let check = |available: u64, expected: [Option<u64>; 2]| {
        let mut reading = NodeReading {
            node_inactive_file: 7,
            pods_inactive_file: 50,
            ..NodeReading::default()
        };
        for (signal, capacity) in [
            (Signal::MemoryAvailable, 1000),
            (Signal::AllocatableMemoryAvailable, 500),
        ] {
            let observed = Observation {
                available,
                capacity,
                at: Timestamp::UNIX_EPOCH,
            };
            reading.observations.signals.insert(signal, observed);
        }
        let armed = usage_thresholds(&thresholds, &reading);
        assert_eq!([armed.node, armed.pods], expected, "{available}");
    };
    check(400, [Some(707), Some(450)]);
    // the soft threshold is met
    check(200, [Some(907), Some(450)]);
    check(50, [None, None]);
    assert_eq!(
        usage_thresholds(&thresholds, &NodeReading::default()),
        UsageThresholds::default()
    );
}

#[test]
fn small_changes_do_not_rearm() {
    assert!(!is_other(1 << 30, (1 << 30) + MIN_CHANGE - 1));
    assert!(is_other(1 << 30, (1 << 30) - MIN_CHANGE));
}

fn sink() -> (TriggerSink, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let sink = move |_: MemoryTrigger| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    (Arc::new(sink), count)
}

#[tokio::test(start_paused = true)]
async fn kernel_without_notifications_ends_the_watch() {
    let dir = tempfile::tempdir().expect("a directory");
    // no PSI, no cgroups
    let roots = KernelRoots {
        cgroups: dir.path().join("cgroups"),
        proc: dir.path().join("proc"),
        huge_pages: dir.path().join("none"),
    };
    let triggers = HostTriggers::new(TriggerPaths {
        roots,
        cgroup_root: String::new(),
    });
    let (_sender, thresholds) = watch::channel(UsageThresholds::default());
    let (sink, count) = sink();
    triggers.run(thresholds, sink).await;
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn files_that_cannot_be_watched_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    let missing = dir.path().join("none");
    assert!(StallFile::open(&missing).is_err());
    assert!(LimitFile::open(&missing).is_err());
    assert!(UsageEvent::register(dir.path(), 1).is_err());
    // a file that is not a PSI file
    let plain = dir.path().join("memory.pressure");
    std::fs::write(&plain, "some avg10=0.00").expect("a file");
    assert!(StallFile::open(&plain).is_err());
}

/// A cgroup of cgroup v1, removed at the end.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test]
async fn usage_of_v1_cgroup_is_notified_when_it_crosses() {
    let root = PathBuf::from("/sys/fs/cgroup/memory");
    let dir = root.join(format!("windlass-usage-{}", std::process::id()));
    if !root.join("cgroup.event_control").exists() || std::fs::create_dir(&dir).is_err() {
        // cgroup v2, or no permission
        return;
    }
    let group = Group(dir.clone());
    let (sender, thresholds) = watch::channel(UsageThresholds::default());
    let (sink, count) = sink();
    let usage = UsageWatch {
        dir: dir.clone(),
        select: |it| it.node,
    };
    let watching = tokio::spawn(async move { usage.run(thresholds, &sink).await });
    sender.send_replace(UsageThresholds {
        node: Some(8 << 20),
        pods: None,
    });
    // in a cgroup of its own, a process reads 32 MiB into memory
    let script = format!(
        "sleep 0.2; echo $$ > {}/cgroup.procs; head -c 33554432 /dev/zero | tail -n 1 >/dev/null",
        dir.display()
    );
    let status = tokio::process::Command::new("sh")
        .args(["-c", &script])
        .status()
        .await;
    assert!(status.expect("a shell").success());
    for _ in 0..200 {
        if count.load(Ordering::Relaxed) > 0 {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    watching.abort();
    drop(group);
    assert!(count.load(Ordering::Relaxed) > 0, "no notification");
}

#[tokio::test]
async fn stall_file_of_this_host_accepts_the_trigger() {
    let file = std::path::Path::new("/proc/pressure/memory");
    if let Err(error) = StallFile::open(file) {
        // a kernel without PSI, or no permission
        assert_ne!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
}
