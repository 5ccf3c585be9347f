//! subPath mounts, and containers that replace the path during set-up.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{RenameFlags, renameat_with};

use super::*;
use crate::mount_info::mounts_beneath;

/// Rounds of each race.
const ROUNDS: u32 = 5_000;
/// Rounds after which a race has had both outcomes, or never will.
const MAX_ROUNDS: u32 = 500_000;

/// A pod with one volume; unmounts everything on drop.
struct Fixture {
    dir: tempfile::TempDir,
    volume: PathBuf,
}

impl Fixture {
    /// `None` without root, which mounts need.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return None;
        }
        let dir = tempfile::tempdir().expect("directory");
        let volume = dir.path().join("pod/volumes/kind/data");
        fs::create_dir_all(&volume).expect("volume");
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2775)).expect("mode");
        Some(Self { dir, volume })
    }

    fn pod_dir(&self) -> PathBuf {
        self.dir.path().join("pod")
    }

    fn part(&self, path: &str, index: usize) -> SubPath {
        SubPath {
            volume: "data".to_owned(),
            container: "c".to_owned(),
            source: self.volume.clone(),
            path: path.to_owned(),
            target: self
                .pod_dir()
                .join("volume-subpaths/data/c")
                .join(index.to_string()),
        }
    }

    /// The bound path in the volume, or the error without test directories.
    fn prepare(&self, path: &str) -> String {
        let part = self.part(path, 0);
        match prepare_sub_path(&part) {
            Ok(()) => {
                let bound = fs::metadata(&part.target).expect("bound");
                let at = fs::canonicalize(self.volume.join(path)).expect("resolved");
                let there = fs::metadata(&at).expect("there");
                assert_eq!(bound.ino(), there.ino(), "{path}");
                let at = at.strip_prefix(&self.volume).expect("in the volume");
                format!("{} {:o}", at.display(), bound.mode())
            }
            Err(error) => error
                .to_string()
                .replace(&self.dir.path().display().to_string(), ""),
        }
    }

    fn mounts(&self) -> usize {
        let mounts = mounts_beneath(&self.pod_dir()).expect("mount table");
        mounts.len()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let released = unmount_beneath(self.dir.path());
        if !thread::panicking() {
            released.expect("released");
        }
    }
}

#[test]
fn missing_directories_get_the_mode_of_the_volume() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.volume.join("file"), "text").expect("file");
    assert_eq!(fixture.prepare("a/b"), "a/b 42775");
    let made = fs::metadata(fixture.volume.join("a")).expect("made");
    assert_eq!(made.mode(), 0o42775);
    assert_eq!(fixture.prepare("file"), "file 100644");
    let target = fixture.part("file", 0).target;
    assert_eq!(fs::read_to_string(target).expect("text"), "text");
    assert_eq!(
        fixture.prepare("file/below"),
        "cannot open \"file/below\" in /pod/volumes/kind/data: Not a directory (os error 20)"
    );
    assert_eq!(fixture.prepare(""), " 42775");
}

#[test]
fn only_links_within_the_volume_are_followed() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let volume = &fixture.volume;
    fs::create_dir_all(volume.join("v1/data")).expect("content");
    let link = |target: &str, name: &str| symlink(target, volume.join(name)).expect("link");
    link("v1", "current");
    link("v1/../current/./data", "winding");
    link(&volume.join("v1").display().to_string(), "absolute");
    link("/etc", "out");
    link("../../../..", "up");
    link("v1/../../data", "up-and-back");
    link("nowhere", "dangling");
    link("round", "round");
    assert_eq!(fixture.prepare("current/data"), "v1/data 42755");
    assert_eq!(fixture.prepare("winding"), "v1/data 42755");
    assert_eq!(fixture.prepare("absolute/data"), "v1/data 42755");
    assert_eq!(fixture.prepare("current/new"), "v1/new 42775");
    assert_eq!(fixture.prepare("absolute/newer"), "v1/newer 42775");
    let refused = |path: &str, why: &str| {
        let expected = format!("cannot open {path:?} in /pod/volumes/kind/data: {why}");
        assert_eq!(fixture.prepare(path), expected);
    };
    let out = "Invalid cross-device link (os error 18)";
    refused("out", out);
    refused("out/ssl", out);
    refused("up/etc", out);
    refused("up-and-back", out);
    refused("dangling", "No such file or directory (os error 2)");
    refused("dangling/new", "No such file or directory (os error 2)");
    refused("round", "Too many levels of symbolic links (os error 40)");
    assert!(
        !volume.join("nowhere").exists(),
        "nothing is made for a link"
    );
}

/// A kernel without `openat2` walks every path, with the same result.
#[test]
fn walk_without_openat2_has_the_same_result() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let volume = &fixture.volume;
    fs::create_dir_all(volume.join("v1/data")).expect("content");
    fs::write(volume.join("v1/file"), "").expect("content");
    symlink("v1", volume.join("current")).expect("link");
    symlink("../..", volume.join("v1/up")).expect("link");
    symlink("/", volume.join("out")).expect("link");
    let root = || openat(CWD, volume, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    for path in [
        "",
        "v1",
        "current/data",
        "current/file",
        "v1/file/x",
        "v1/up",
        "v1/up/x",
        "out",
        "out/etc",
    ] {
        let inode = |fd: OwnedFd| fstat(&fd).expect("inode").st_ino;
        let open = || open_beneath(&root().expect("root"), path);
        // the kernel gives up on `..` while anything on the host is renamed or mounted
        let opened =
            std::iter::repeat_with(open).find(|opened| !matches!(opened, Err(Errno::AGAIN)));
        let by_kernel = opened.expect("an end").map(inode);
        let walk = Walk::new(volume, root().expect("root")).expect("walk");
        let walked = walk.to(path).map(inode).map_err(|error| match error {
            WalkError::Open(error) | WalkError::Make(error) => error,
        });
        assert_eq!(walked, by_kernel, "{path}");
    }
}

#[test]
fn restart_keeps_only_correct_bind_mounts() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.prepare("a");
    let before = mounts_beneath(&fixture.pod_dir()).expect("mounts");
    fixture.prepare("a");
    assert_eq!(mounts_beneath(&fixture.pod_dir()).expect("mounts"), before);
    // another directory with the same name
    fs::rename(fixture.volume.join("a"), fixture.volume.join("old")).expect("renamed");
    assert_eq!(fixture.prepare("a"), "a 42775");
    assert_eq!(fixture.mounts(), 1);
    // and now it is a file
    fs::remove_dir(fixture.volume.join("a")).expect("removed");
    fs::write(fixture.volume.join("a"), "").expect("file");
    assert_eq!(fixture.prepare("a"), "a 100644");
    assert_eq!(fixture.mounts(), 1);
    // a directory again
    assert_eq!(fixture.prepare("old"), "old 42775");
    assert_eq!(fixture.mounts(), 1);
}

#[test]
fn cleanup_unmounts_and_keeps_content() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::create_dir(fixture.volume.join("dir")).expect("dir");
    fs::write(fixture.volume.join("dir/file"), "kept").expect("file");
    let mut others = fixture.part("dir", 3);
    others.target = fixture
        .pod_dir()
        .join("volume-subpaths/host/gone-container/0");
    for part in [
        fixture.part("dir", 0),
        fixture.part("dir/file", 1),
        others.clone(),
    ] {
        prepare_sub_path(&part).expect("bound");
    }
    // a nested mount of a container
    fs::create_dir(fixture.volume.join("dir/inner")).expect("dir");
    mount_bind(
        fixture.volume.join("dir"),
        fixture.part("", 0).target.join("inner"),
    )
    .expect("bound");
    // a bind on a bind, as after a kill
    mount_bind(&fixture.volume, &others.target).expect("bound");

    clean_sub_paths(&fixture.pod_dir(), Some("data")).expect("cleaned");
    assert!(!fixture.pod_dir().join("volume-subpaths/data").exists());
    assert_eq!(fixture.mounts(), 2, "those of the other volume");
    clean_sub_paths(&fixture.pod_dir(), None).expect("cleaned");
    clean_sub_paths(&fixture.pod_dir(), None).expect("again");
    assert!(!fixture.pod_dir().join("volume-subpaths").exists());
    assert_eq!(fixture.mounts(), 0);
    let kept = fs::read_to_string(fixture.volume.join("dir/file"));
    assert_eq!(kept.expect("content"), "kept");
}

/// A container exchanges `swap` and `other` in a loop while `swap/<below>` is bound in a loop; `bound`
/// is called after each success.
fn race(fixture: &Fixture, below: &str, mut bound: impl FnMut(&Path)) -> (u32, u32) {
    let over = AtomicBool::new(false);
    let (mut worked, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (swap, other) = (fixture.volume.join("swap"), fixture.volume.join("other"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        let mut rounds = 0;
        let unmet = |worked: u32, refused: u32| worked <= 20 || refused <= 20;
        while rounds < ROUNDS || unmet(worked, refused) && rounds < MAX_ROUNDS {
            rounds += 1;
            // one of the two may monopolize the processor for a while
            thread::yield_now();
            let part = fixture.part(&format!("swap/{below}"), 0);
            match prepare_sub_path(&part) {
                Ok(()) => {
                    worked += 1;
                    bound(&part.target);
                }
                Err(_) => refused += 1,
            }
            if worked % 2 == 0 {
                clean_sub_paths(&fixture.pod_dir(), None).expect("cleaned");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    (worked, refused)
}

/// CVE-2017-1002101 and CVE-2021-25741: `swap` is a directory when it is checked and a link to the
/// host's root when it is bound.
#[test]
fn sub_path_race_does_not_expose_the_host() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::create_dir_all(fixture.volume.join("swap/etc")).expect("content");
    symlink("/", fixture.volume.join("other")).expect("link");
    let ours = fs::metadata(fixture.volume.join("swap/etc"))
        .expect("inode")
        .ino();
    let (worked, refused) = race(&fixture, "etc", |target| {
        let bound = fs::metadata(target).expect("bound").ino();
        assert_eq!(
            bound, ours,
            "something else than the volume's directory is bound"
        );
    });
    assert!(
        worked > 20 && refused > 20,
        "{worked} worked, {refused} refused"
    );
}

/// As above with a missing directory, which must not be created on the host.
#[test]
fn sub_path_race_creates_nothing_on_the_host() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let outside = fixture.dir.path().join("node");
    fs::create_dir(&outside).expect("outside");
    fs::create_dir(fixture.volume.join("swap")).expect("content");
    symlink(&outside, fixture.volume.join("other")).expect("link");
    let real = |name: &str| {
        let path = fixture.volume.join(name);
        let is_link = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
        (!is_link).then(|| path.join("made/here"))
    };
    let (worked, _) = race(&fixture, "made/here", |target| {
        fs::metadata(target).expect("bound");
    });
    assert!(worked > 20, "{worked} worked");
    assert_eq!(fs::read_dir(&outside).expect("outside").count(), 0);
    let made = real("swap").or_else(|| real("other")).expect("directory");
    assert!(made.exists());
}
