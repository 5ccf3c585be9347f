//! Results compared with `du`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tempfile::{TempDir, tempdir};

use super::walk::{Counted, MAX_OPEN};
use super::*;

/// No pod has a user namespace.
const NOWHERE: &str = "/nonexistent";

/// Bytes and inodes of one file system as `du` counts them.
fn du(dir: &Path) -> Counted {
    let ask = |what: &str| {
        let output = Command::new("du").args(["-sx", what]).arg(dir).output();
        let text = String::from_utf8(output.expect("du").stdout).expect("text");
        let number = text.split_whitespace().next().expect("a number");
        number.parse().expect("a number")
    };
    Counted {
        bytes: ask("-B1"),
        inodes: ask("--inodes"),
    }
}

fn walk(dir: &Path) -> Walk {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, dir, flags, Mode::empty()).expect("open");
    Walk::start(fd).expect("start")
}

/// Walks in steps of `step` entries; also returns the max number of open descriptors.
fn count(mut walk: Walk, step: usize) -> (Counted, usize) {
    let mut open = 0;
    while !walk.step(step) {
        open = open.max(walk.open());
    }
    (walk.counted(), open)
}

fn deep(top: &Path, levels: usize) -> PathBuf {
    let dir = (0..levels).fold(top.to_owned(), |dir, _| dir.join("d"));
    fs::create_dir_all(&dir).expect("create");
    dir
}

/// A volume with all kinds of files, and a directory outside of it.
fn tree() -> (TempDir, PathBuf) {
    let temp = tempdir().expect("a directory");
    let volume = temp.path().join("volume");
    fs::create_dir(&volume).expect("create");
    let outside = temp.path().join("outside");
    fs::create_dir(&outside).expect("create");
    fs::write(outside.join("large"), vec![1; 1 << 20]).expect("write");
    fs::write(volume.join("plain"), vec![1; 300_000]).expect("write");
    fs::write(volume.join("empty"), "").expect("write");
    // a sparse gigabyte with data at its end
    let sparse = fs::File::create(volume.join("sparse")).expect("create");
    sparse.set_len(1 << 30).expect("truncate");
    std::os::unix::fs::FileExt::write_at(&sparse, b"end", (1 << 30) - 3).expect("write");
    fs::write(volume.join("first-name"), vec![1; 100_000]).expect("write");
    fs::create_dir(volume.join("sub")).expect("create");
    for name in ["second-name", "sub/third-name"] {
        fs::hard_link(volume.join("first-name"), volume.join(name)).expect("link");
    }
    symlink(&outside, volume.join("out")).expect("link");
    symlink("..", volume.join("up")).expect("link");
    symlink("x".repeat(2000), volume.join("long")).expect("link");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, volume.join("fifo"), FileType::Fifo, mode, 0).expect("fifo");
    for index in 0..2500 {
        fs::write(volume.join("sub").join(format!("f{index}")), "x").expect("write");
    }
    fs::write(deep(&volume, 300).join("bottom"), vec![1; 50_000]).expect("write");
    // a second branch
    let branch = (0..150).fold(volume.clone(), |dir, _| dir.join("d"));
    fs::write(deep(&branch.join("e"), 100).join("other"), vec![1; 9000]).expect("write");
    (temp, volume)
}

#[test]
fn walk_counts_as_du_with_any_step_size() {
    let (_temp, volume) = tree();
    let expected = du(&volume);
    for step in [1, 7, 100_000] {
        let (counted, open) = count(walk(&volume), step);
        assert_eq!(counted, expected, "in steps of {step}");
        assert!(open <= MAX_OPEN, "{open} descriptors");
    }
}

#[test]
fn unremembered_hard_links_count_their_share() {
    let (_temp, volume) = tree();
    let (counted, _) = count(walk(&volume).with_max_seen(0), 100);
    assert_eq!(counted, du(&volume));
}

#[test]
fn moved_directory_does_not_lead_the_walk_out() {
    let temp = tempdir().expect("a directory");
    let volume = temp.path().join("volume");
    fs::create_dir(&volume).expect("create");
    let elsewhere = temp.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("create");
    for index in 0..100 {
        fs::write(elsewhere.join(format!("f{index}")), vec![1; 100_000]).expect("write");
    }
    let bottom = deep(&volume, 200);
    let all = du(&volume);
    let mut walk = walk(&volume);
    // `.`, `..` and one more of each: at the bottom, with closed parents
    while walk.counted().inodes < all.inodes {
        assert!(!walk.step(1));
    }
    let middle = bottom.ancestors().nth(100).expect("100 levels");
    fs::rename(middle, elsewhere.join("moved")).expect("rename");
    let (counted, _) = count(walk, 10);
    assert_eq!(counted, all);
}

/// Moves directories with files in a loop.
struct Mover {
    stop: Arc<AtomicBool>,
    moves: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Mover {
    fn begin(volume: &Path, directories: usize) -> Self {
        let (stop, moves) = (Arc::default(), Arc::default());
        let (stopped, moved) = (Arc::clone(&stop), Arc::clone(&moves));
        let sides = ["left", "right"].map(|side| volume.join(side));
        let thread = std::thread::spawn(move || {
            for round in 0_usize.. {
                for index in 0..directories {
                    if AtomicBool::load(&stopped, Ordering::Relaxed) {
                        return;
                    }
                    let [from, to] = [&sides[round % 2], &sides[(round + 1) % 2]];
                    let name = format!("d{index}");
                    fs::rename(from.join(&name), to.join(&name)).expect("rename");
                    AtomicU64::fetch_add(&moved, 1, Ordering::Relaxed);
                }
            }
        });
        Self {
            stop,
            moves,
            thread,
        }
    }

    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("moved to the end");
    }
}

#[test]
fn constantly_moved_directories_are_counted_once() {
    let temp = tempdir().expect("a directory");
    let volume = temp.path();
    let fill = |dir: PathBuf, files: usize| {
        fs::create_dir_all(&dir).expect("create");
        for index in 0..files {
            fs::write(dir.join(format!("f{index}")), [1; 5000]).expect("write");
        }
    };
    fs::create_dir(volume.join("right")).expect("create");
    for index in 0..20 {
        let dir = volume.join(format!("left/d{index}"));
        fill(dir.clone(), 10);
        // deeper than MAX_OPEN
        fill(deep(&dir, MAX_OPEN + 6), 1);
    }
    fill(volume.join("still"), 300);
    let still = du(&volume.join("still"));
    let all = du(volume);
    let mover = Mover::begin(volume, 20);
    for _ in 0..10 {
        let before = mover.moves();
        let mut walk = walk(volume);
        let mut steps = 0;
        // at least one move between the first twenty slices
        while !walk.step(50) {
            steps += 1;
            let moved = mover.moves();
            while steps < 20 && mover.moves() == moved && !mover.thread.is_finished() {
                std::thread::yield_now();
            }
            assert!(steps < 10_000, "no end");
        }
        let counted = walk.counted();
        assert!(mover.moves() > before, "nothing was moved");
        assert!(
            counted.bytes >= still.bytes,
            "{counted:?} without {still:?}"
        );
        assert!(counted.inodes <= all.inodes, "{counted:?} of {all:?}");
    }
    mover.end();
    assert_eq!(count(walk(volume), 1000).0.inodes, all.inodes);
}

#[test]
fn removed_entries_are_not_errors() {
    let (_temp, volume) = tree();
    let mut walk = walk(&volume);
    assert!(!walk.step(50));
    fs::remove_dir_all(&volume).expect("remove");
    assert!(walk.step(1_000_000));
}

/// Runs `work` with a mount at `at`.
fn mounted(at: &Path, mount: impl FnOnce(&Path), work: impl FnOnce()) {
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = unmount(self.0, UnmountFlags::DETACH);
        }
    }
    mount(at);
    let _unmount = Unmount(at);
    work();
}

fn tmpfs(at: &Path) {
    let (flags, data) = (MountFlags::NOSUID | MountFlags::NODEV, c"size=4194304");
    mount("tmpfs", at, "tmpfs", flags, data).expect("mount");
}

#[test]
fn mounts_in_a_volume_are_not_counted() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (temp, volume) = tree();
    let expected = count(walk(&volume), 1000).0;
    let (other, same) = (volume.join("other"), volume.join("same"));
    for dir in [&other, &same] {
        fs::create_dir(dir).expect("create");
    }
    let outside = temp.path().join("outside");
    mounted(&other, tmpfs, || {
        fs::write(other.join("large"), vec![1; 1 << 20]).expect("write");
        let bind = |at: &Path| mount_bind(&outside, at).expect("bind");
        mounted(&same, bind, || {
            assert_eq!(count(walk(&volume), 1000).0, expected);
        });
    });
}

fn queue(name: &str) -> IoQueue {
    IoQueue::Disk(name.to_owned())
}

fn meter() -> VolumeMeter {
    VolumeMeter::new(Arc::new(IoQueues::new(Duration::from_secs(20))))
}

#[tokio::test]
async fn directory_has_counted_usage_and_file_system_capacity() {
    let (_temp, volume) = tree();
    let expected = du(&volume);
    let (stats, source) = meter()
        .measure(&queue("u"), &volume, Path::new(NOWHERE))
        .await
        .expect("measured");
    assert_eq!(source, StatsSource::Walk);
    assert_eq!(
        (stats.used, stats.inodes_used),
        (expected.bytes, expected.inodes)
    );
    let whole = file_system_stats(&rustix::fs::statfs(&volume).expect("statfs"));
    assert_eq!(
        (stats.capacity, stats.inodes),
        (whole.capacity, whole.inodes)
    );
    assert!(stats.available > 0 && stats.available <= stats.capacity);
}

#[tokio::test]
async fn own_file_system_is_not_walked() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let temp = tempdir().expect("a directory");
    tmpfs(temp.path());
    fs::write(temp.path().join("file"), vec![1; 1 << 20]).expect("write");
    let measured = meter()
        .measure(&queue("u"), temp.path(), Path::new(NOWHERE))
        .await;
    unmount(temp.path(), UnmountFlags::DETACH).expect("unmount");
    let (stats, source) = measured.expect("measured");
    assert_eq!(source, StatsSource::StatFs);
    let found = (
        stats.capacity,
        stats.used,
        stats.available,
        stats.inodes_used,
    );
    assert_eq!(found, (4 << 20, 1 << 20, 3 << 20, 2));
}

#[tokio::test]
async fn block_device_has_only_its_size() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(3 << 20).expect("truncate");
    let losetup = |args: &[&str]| {
        let output = Command::new("losetup")
            .args(args)
            .output()
            .expect("losetup");
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    };
    let device = losetup(&["--find", "--show", &file.path().to_string_lossy()]);
    let dir = tempdir().expect("a directory");
    symlink(&device, dir.path().join("volume")).expect("link");
    let measured = meter()
        .measure(&queue("u"), &dir.path().join("volume"), Path::new(NOWHERE))
        .await;
    losetup(&["--detach", &device]);
    let (stats, source) = measured.expect("measured");
    assert_eq!((stats.capacity, stats.used), (3 << 20, 0));
    assert_eq!(source, StatsSource::Block);
}

#[tokio::test]
async fn error_of_missing_volume_names_its_path() {
    let error = meter()
        .measure(&queue("u"), Path::new("/nonexistent/v"), Path::new(NOWHERE))
        .await;
    let text = error.expect_err("nothing there").to_string();
    let expected = "cannot measure /nonexistent/v: No such file or directory";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn project_quota_is_detected_by_its_smaller_size() {
    let stats = |capacity, inodes| VolumeStats {
        capacity,
        inodes,
        ..VolumeStats::default()
    };
    let check = |fs_type, own: VolumeStats, expected: bool| {
        let found = has_quota(Some(fs_type), &stats(100, 10), &own);
        assert_eq!(found, expected, "{fs_type:x} {own:?}");
    };
    let (ext4, xfs, zfs) = (0xef53, 0x5846_5342, 0x2fc1_2fc1);
    check(ext4, stats(50, 5), true);
    check(xfs, stats(50, 5), true);
    check(xfs, stats(100, 10), false);
    // same number of inodes as the parent
    check(xfs, stats(50, 10), false);
    // expanded meanwhile
    check(ext4, stats(200, 20), false);
    // without a fixed size
    check(zfs, stats(50, 5), false);
}

/// The small tree needs one slice, the large one many.
#[tokio::test]
async fn large_tree_does_not_delay_a_small_one() {
    let (_temp, large) = tree();
    for index in 0..20_000 {
        fs::write(large.join(format!("g{index}")), "").expect("write");
    }
    let small = tempdir().expect("a directory");
    let meter = meter();
    let order = tokio::sync::Mutex::new(Vec::new());
    let measure = async |name: &'static str, path: &Path| {
        meter
            .measure(&queue(name), path, Path::new(NOWHERE))
            .await
            .expect("measured");
        order.lock().await.push(name);
    };
    tokio::join!(measure("large", &large), measure("small", small.path()));
    assert_eq!(order.into_inner(), ["small", "large"]);
}

#[tokio::test(start_paused = true)]
async fn hung_device_scan_does_not_starve_other_volumes() {
    let temp = tempdir().expect("a directory");
    for index in 0..=SLICE_ENTRIES {
        fs::write(temp.path().join(index.to_string()), "").expect("write");
    }
    let meter = VolumeMeter::new(Arc::new(IoQueues::new(Duration::from_secs(3600))));
    let (disk, device) = (queue("pod"), IoQueue::Device("device".to_owned()));
    let measure =
        async |queue: &IoQueue| meter.measure(queue, temp.path(), Path::new(NOWHERE)).await;
    let all = u32::try_from(MAX_DEVICE_SCANS).expect("few");
    let hang = meter.device_scans.acquire_many(all).await.expect("open");
    let error = measure(&device).await.expect_err("no permit").to_string();
    assert_eq!(error, "measuring a volume did not end within 60 s");
    let (whole, source) = measure(&disk).await.expect("measured");
    assert_eq!(source, StatsSource::Walk);
    drop(hang);
    let slice = meter.slice.acquire().await.expect("open");
    let others = async {
        // the walk waits for its first slice
        while meter.walks.available_permits() == MAX_CONCURRENT_WALKS {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(MAX_WALK_DURATION + Duration::from_secs(1)).await;
        drop(slice);
    };
    let (ends, ()) = tokio::join!(measure(&disk), others);
    let (part, _) = ends.expect("what was counted");
    assert!(
        part.inodes_used > 0 && part.inodes_used < whole.inodes_used,
        "{part:?}"
    );
}
