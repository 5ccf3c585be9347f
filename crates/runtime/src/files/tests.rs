//! The node's files in a temporary directory, and the I/O queues.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use windlass_cgroups::MemoryTree;
use windlass_metrics::Metrics;
use windlass_pod_inputs::paths::NodePaths;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_types::cri::CgroupDriver;
use windlass_types::{PodUid, SharedPod};
use windlass_volumes::{IoQueueError, IoQueues};

use super::{FilesError, HostFiles, HostFilesConfig, PodFiles};
use crate::tests::{Fake, FixedClock, Recorder, pod};
use crate::{CgroupSettings, PodRuntime, PodRuntimeDeps, RuntimeOptions};

struct Node {
    dir: tempfile::TempDir,
    files: HostFiles,
    paths: NodePaths,
}

fn node() -> Node {
    let dir = tempfile::tempdir().expect("temp dir");
    let paths = NodePaths {
        root_dir: dir.path().join("root"),
        pod_logs_dir: dir.path().join("logs"),
    };
    let files = HostFiles::new(HostFilesConfig {
        container_logs_dir: dir.path().join("links"),
        ..HostFilesConfig::new(paths.clone())
    });
    Node { dir, files, paths }
}

async fn prepare(files: &HostFiles, pod: &SharedPod) -> Result<(), FilesError> {
    files.prepare_pod(pod).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

#[tokio::test]
async fn pod_directories_have_upstream_modes_and_are_removed() {
    let node = node();
    let (pod, uid) = (Arc::new(pod(&["a"])), PodUid::from("u1"));
    for _ in 0..2 {
        prepare(&node.files, &pod).await.expect("prepare");
    }
    let dir = node.paths.pod_dir(&uid);
    assert_eq!(mode(&dir), 0o750);
    assert!(dir.join("volumes").is_dir() && dir.join("plugins").is_dir());
    let logs = node.paths.container_log_dir(&pod, "a");
    assert!(logs.is_dir());
    assert_eq!(
        node.files.list_pod_dirs().await.expect("list"),
        std::slice::from_ref(&uid)
    );

    node.files
        .write_hosts_file(&uid, "127.0.0.1 localhost\n")
        .await
        .expect("hosts");
    node.files
        .write_hosts_file(&uid, "short\n")
        .await
        .expect("hosts again");
    let hosts = node.paths.etc_hosts(&uid);
    assert_eq!(fs::read_to_string(&hosts).expect("hosts"), "short\n");
    let written = fs::metadata(&hosts)
        .expect("hosts")
        .modified()
        .expect("time");
    let again = node.files.write_hosts_file(&uid, "short\n").await;
    again.expect("hosts as they are");
    let now = fs::metadata(&hosts)
        .expect("hosts")
        .modified()
        .expect("time");
    assert_eq!(now, written, "what is there is not written again");
    assert_eq!(mode(&hosts), 0o644);

    for _ in 0..2 {
        node.files.remove_pod_dir(&uid).await.expect("remove");
    }
    assert!(!dir.exists() && logs.is_dir());
    assert_eq!(
        node.files.list_log_dirs().await.expect("list"),
        ["default_web_u1"]
    );
    node.files
        .remove_log_dir("default_web_u1")
        .await
        .expect("remove");
    assert!(!logs.exists());
}

#[tokio::test]
async fn termination_message_is_read_from_the_end() {
    let node = node();
    let uid = PodUid::from("u1");
    let path = node.paths.termination_log(&uid, "a", 7);
    let read = async |max| {
        let text = node.files.read_termination_message(&uid, &path, max).await;
        text.unwrap_or_else(|error| error.to_string())
    };
    assert_eq!(read(10).await, "");
    node.files
        .create_termination_log(&uid, &path)
        .await
        .expect("create");
    assert_eq!(mode(&path), 0o666);
    fs::write(&path, "it was the disk").expect("write");
    assert_eq!(read(8).await, "the disk");
    // not created by the agent: a link is not followed, a directory is not read
    fs::remove_file(&path).expect("remove");
    std::os::unix::fs::symlink("/etc/passwd", &path).expect("link");
    assert!(read(8).await.starts_with("cannot read"));
    fs::remove_file(&path).expect("remove");
    fs::create_dir(&path).expect("directory");
    assert_eq!(read(8).await, "");
}

#[tokio::test]
async fn log_links_are_created_replaced_and_removed() {
    let node = node();
    let uid = PodUid::from("u1");
    let logs = node.dir.path().join("logs/default_web_u1/a");
    fs::create_dir_all(&logs).expect("dirs");
    for name in [
        "0.log",
        "0.log.20260101-000000",
        "0.log.20260101-000001.gz",
        "1.log",
        "10.log",
    ] {
        fs::write(logs.join(name), "x").expect("write");
    }
    let link = Path::new("/var/log/containers/web_default_a-1.log");
    let made = node.dir.path().join("links/web_default_a-1.log");
    for target in ["1.log", "1.log", "0.log"] {
        let target = logs.join(target);
        node.files
            .link_container_log(&uid, link, &target)
            .await
            .expect("link");
        assert_eq!(fs::read_link(&made).expect("link"), target);
    }
    assert!(
        node.files
            .list_dangling_links()
            .await
            .expect("list")
            .is_empty()
    );
    // a link that does not dangle is not removed
    node.files
        .remove_link("web_default_a-1.log")
        .await
        .expect("kept");
    assert!(made.exists());

    fs::remove_file(logs.join("0.log")).expect("remove");
    assert_eq!(
        node.files.list_dangling_links().await.expect("list"),
        ["web_default_a-1.log"]
    );
    node.files
        .remove_container_log(&uid, link, &logs.join("0.log"))
        .await
        .expect("remove");
    assert!(fs::symlink_metadata(&made).is_err());
    let names = node.files.list_log_names(&uid, &logs).await.expect("names");
    assert_eq!(names, ["1.log", "10.log"]);
    let none = node.files.list_log_names(&uid, &logs.join("none")).await;
    assert!(none.expect("names").is_empty());
}

#[tokio::test]
async fn names_that_leave_their_directory_are_rejected() {
    let node = node();
    let mut evil = pod(&["a"]);
    evil.metadata.uid = Some("../../etc".into());
    let refused = |result: Result<(), FilesError>| {
        assert!(
            matches!(result, Err(FilesError::UnsafeNameError(_))),
            "{result:?}"
        );
    };
    refused(prepare(&node.files, &Arc::new(evil)).await);
    refused(node.files.remove_pod_dir(&PodUid::from("..")).await);
    refused(node.files.remove_pod_dir(&PodUid::from("")).await);
    refused(node.files.remove_log_dir("..").await);
    refused(node.files.remove_link("../x").await);
    assert!(!node.dir.path().join("etc").exists());
}

#[tokio::test]
async fn hung_file_call_blocks_only_its_queue() {
    let queues = IoQueues::new(Duration::from_millis(200));
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let hung = queues.run("a", "hanging", move || {
        let _ = gate.recv();
        Ok(1)
    });
    let error = hung.await.expect_err("deadline");
    assert!(
        matches!(error, FilesError::IoQueue(IoQueueError::Deadline { .. })),
        "{error}"
    );
    // the same queue is still blocked, another one is free
    assert!(
        queues
            .run("a", "waiting", || Ok::<_, FilesError>(2))
            .await
            .is_err()
    );
    assert_eq!(
        queues
            .run("b", "working", || Ok::<_, FilesError>(3))
            .await
            .expect("free"),
        3
    );
    drop(release);
    assert_eq!(
        queues
            .run("a", "working", || Ok::<_, FilesError>(4))
            .await
            .expect("free again"),
        4
    );
}

#[tokio::test]
async fn volume_file_is_read_only_within_its_volume() {
    use std::os::unix::fs::symlink;

    use rustix::fs::inotify;
    use rustix::io::Errno;

    let node = node();
    let uid = PodUid::from("u1");
    let volume = node.dir.path().join("volume");
    fs::create_dir_all(volume.join("app")).expect("dir");
    fs::write(volume.join("app/env"), "KEY='inside'").expect("write");
    fs::write(node.dir.path().join("env"), "KEY='outside'").expect("write");
    fs::write(volume.join("env"), "KEY='top'").expect("write");
    symlink("app/env", volume.join("link")).expect("link");
    symlink("/../env", volume.join("up")).expect("link");
    symlink(node.dir.path().join("env"), volume.join("away")).expect("link");
    symlink("/proc/self/root/etc/passwd", volume.join("magic")).expect("link");
    let fifo = std::process::Command::new("mkfifo")
        .arg(volume.join("fifo"))
        .status();
    assert!(fifo.expect("mkfifo").success());
    let large = vec![b'x'; windlass_pod_inputs::env::MAX_ENV_FILE_BYTES + 1];
    fs::write(volume.join("large"), large).expect("write");

    let check = async |path: &str, expected: &str| {
        let read = node.files.read_volume_file(&uid, &volume, path).await;
        let line = read.unwrap_or_else(|error| error.to_string());
        assert!(line.contains(expected), "{path}: {line}");
    };
    check("app/env", "KEY='inside'").await;
    check("link", "KEY='inside'").await;
    // links are resolved with the volume as root directory
    check("up", "KEY='top'").await;
    check("../env", "KEY='top'").await;
    check("away", "cannot read").await;
    check("magic", "cannot read").await;
    check("none", "cannot read").await;
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
    let watch = inotify::add_watch(&opened, volume.join("fifo"), inotify::WatchFlags::OPEN);
    watch.expect("watch");
    check("fifo", "not a regular file").await;
    let mut events = [std::mem::MaybeUninit::uninit(); 512];
    let event = inotify::Reader::new(&opened, &mut events).next().map(drop);
    assert_eq!(event, Err(Errno::AGAIN), "it was opened");
    check("app", "not a regular file").await;
    check("large", "larger than").await;
}

#[tokio::test]
async fn volume_file_is_read_while_others_are_renamed() {
    let node = node();
    let uid = PodUid::from("u1");
    let volume = node.dir.path().join("volume");
    fs::create_dir_all(volume.join("app")).expect("dir");
    fs::write(volume.join("env"), "KEY='top'").expect("write");
    let names = ["a", "b"].map(|name| node.dir.path().join(name));
    fs::write(&names[0], "").expect("write");
    let is_done = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_done);
    let renames = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            fs::rename(&names[0], &names[1]).expect("renamed");
            fs::rename(&names[1], &names[0]).expect("renamed");
            std::thread::yield_now();
        }
    });
    let path = "app/../".repeat(50) + "env";
    for _ in 0..2000 {
        let read = node.files.read_volume_file(&uid, &volume, &path).await;
        assert_eq!(read.expect("content"), "KEY='top'");
    }
    is_done.store(true, Ordering::Relaxed);
    renames.join().expect("no panic");
}

#[tokio::test]
async fn user_namespace_files_are_stored_in_pod_directories() {
    let node = node();
    let (pod, uid) = (Arc::new(pod(&["a"])), PodUid::from("u1"));
    let none = node.files.list_user_namespaces().await.expect("list");
    assert_eq!(none, []);
    prepare(&node.files, &pod).await.expect("prepare");
    fs::write(node.paths.pods_dir().join("stray"), "").expect("write");
    for text in ["old", "new"] {
        let written = node.files.write_user_namespace(&uid, text).await;
        written.expect("write");
    }
    let notes = node.files.list_user_namespaces().await.expect("list");
    assert_eq!(notes, [(uid.clone(), "new".to_owned())]);
    assert_eq!(mode(&node.paths.user_namespace(&uid)), 0o600);
    // a lost file does not block reading the others
    fs::write(node.paths.user_namespace(&uid), [0xff; 140]).expect("write");
    let notes = node.files.list_user_namespaces().await.expect("list");
    assert_eq!(notes.len(), 1);
    node.files.remove_pod_dir(&uid).await.expect("remove");
    let none = node.files.list_user_namespaces().await.expect("list");
    assert_eq!(none, []);
}

#[tokio::test]
async fn hung_volume_does_not_block_the_pod_cgroup() {
    let node = node();
    let files = Arc::new(HostFiles::new(HostFilesConfig {
        deadline: Duration::from_millis(200),
        ..HostFilesConfig::new(node.paths.clone())
    }));
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let hanging = Box::new(move || {
        let _ = gate.recv();
        Ok(())
    });
    let hung = files.run("u1", "hanging", hanging).await;
    assert!(
        matches!(
            hung,
            Err(FilesError::IoQueue(IoQueueError::Deadline { .. }))
        ),
        "{hung:?}"
    );
    let fake = Arc::new(Fake::default());
    let runtime = PodRuntime::new(PodRuntimeDeps {
        runtime: fake.clone(),
        images: fake.clone(),
        credentials: None,
        assigned: None,
        checks: fake,
        cgroups: Some(CgroupSettings {
            tree: Arc::new(MemoryTree::v2()),
            slices: None,
            root: String::new(),
            driver: CgroupDriver::Cgroupfs,
            node: NodeLimits::default(),
            pids_limit: None,
            reserved: Vec::new(),
            qos_memory: None,
        }),
        files,
        events: Arc::new(Recorder::default()),
        clock: Arc::new(FixedClock::default()),
        node: Arc::default(),
        metrics: Metrics::new().expect("metrics"),
        hung: windlass_hung_operations::HungOperations::new(Arc::new(FixedClock::default())),
        options: RuntimeOptions::default(),
    });
    let removed = runtime.remove_cgroup(&PodUid::from("u1")).await;
    removed.expect("not in its way");
    drop(release);
}

#[tokio::test]
async fn pod_directory_with_a_mount_is_not_removed() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    let node = node();
    let (pod, uid) = (Arc::new(pod(&["a"])), PodUid::from("u1"));
    prepare(&node.files, &pod).await.expect("prepare");
    let foreign = node.paths.pod_dir(&uid).join("plugins/foreign");
    fs::create_dir_all(&foreign).expect("made");
    let mounted = mount(
        "tmpfs",
        &foreign,
        "tmpfs",
        MountFlags::empty(),
        None::<&std::ffi::CStr>,
    );
    if mounted.is_err() {
        eprintln!("skipped: mounting needs root");
        return;
    }
    let beside = node.paths.container_dir(&uid, "a");
    let error = node.files.remove_pod_dir(&uid).await.expect_err("mounted");
    let freed = unmount(&foreign, UnmountFlags::empty());
    assert_eq!(
        error.to_string(),
        format!("{} is a mount point", foreign.display())
    );
    assert!(beside.is_dir(), "nothing beside it is touched");
    freed.expect("unmounted");
    node.files.remove_pod_dir(&uid).await.expect("remove");
    assert!(!node.paths.pod_dir(&uid).exists());
}
