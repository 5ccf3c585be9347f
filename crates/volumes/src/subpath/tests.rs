//! Parts of volumes that are bound, and containers that exchange what is being bound.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{RenameFlags, renameat_with};

use super::*;
use crate::mount_info::mounts_beneath;

/// How often each race is run.
const ROUNDS: u32 = 5_000;
/// After so many the two have met in both ways, or never will.
const MOST_ROUNDS: u32 = 500_000;

/// A pod with one volume; whatever is left mounted is released.
struct World {
    dir: tempfile::TempDir,
    volume: PathBuf,
}

impl World {
    /// `None` without root: nothing can be mounted.
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

    /// What is bound, as a path in the volume, or the error without directories of the test.
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

impl Drop for World {
    fn drop(&mut self) {
        let released = unmount_beneath(self.dir.path());
        if !thread::panicking() {
            released.expect("released");
        }
    }
}

#[test]
fn a_missing_part_is_made_with_the_mode_of_its_volume_and_a_file_is_bound_as_one() {
    let Some(world) = World::new() else { return };
    fs::write(world.volume.join("file"), "text").expect("file");
    assert_eq!(world.prepare("a/b"), "a/b 42775");
    let made = fs::metadata(world.volume.join("a")).expect("made");
    assert_eq!(made.mode(), 0o42775);
    assert_eq!(world.prepare("file"), "file 100644");
    let target = world.part("file", 0).target;
    assert_eq!(fs::read_to_string(target).expect("text"), "text");
    assert_eq!(
        world.prepare("file/below"),
        "cannot open \"file/below\" in /pod/volumes/kind/data: Not a directory (os error 20)"
    );
    assert_eq!(world.prepare(""), " 42775");
}

#[test]
fn a_link_within_the_volume_is_followed_and_one_that_leads_out_is_refused() {
    let Some(world) = World::new() else { return };
    let volume = &world.volume;
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
    assert_eq!(world.prepare("current/data"), "v1/data 42755");
    assert_eq!(world.prepare("winding"), "v1/data 42755");
    assert_eq!(world.prepare("absolute/data"), "v1/data 42755");
    assert_eq!(world.prepare("current/new"), "v1/new 42775");
    assert_eq!(world.prepare("absolute/newer"), "v1/newer 42775");
    let refused = |path: &str, why: &str| {
        let expected = format!("cannot open {path:?} in /pod/volumes/kind/data: {why}");
        assert_eq!(world.prepare(path), expected);
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

/// A kernel without `openat2` walks every path; it comes to the same.
#[test]
fn the_walk_alone_finds_what_the_kernel_finds() {
    let Some(world) = World::new() else { return };
    let volume = &world.volume;
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
        let by_kernel = open_beneath(&root().expect("root"), path).map(inode);
        let walk = Walk::new(volume, root().expect("root")).expect("walk");
        let walked = walk.to(path).map(inode).map_err(|error| match error {
            WalkError::Open(error) | WalkError::Make(error) => error,
        });
        assert_eq!(walked, by_kernel, "{path}");
    }
}

#[test]
fn a_restart_keeps_a_bind_that_is_right_and_replaces_one_that_is_not() {
    let Some(world) = World::new() else { return };
    world.prepare("a");
    let before = mounts_beneath(&world.pod_dir()).expect("mounts");
    world.prepare("a");
    assert_eq!(mounts_beneath(&world.pod_dir()).expect("mounts"), before);
    // the directory of that name is another one by now
    fs::rename(world.volume.join("a"), world.volume.join("old")).expect("renamed");
    assert_eq!(world.prepare("a"), "a 42775");
    assert_eq!(world.mounts(), 1);
    // and now it is a file
    fs::remove_dir(world.volume.join("a")).expect("removed");
    fs::write(world.volume.join("a"), "").expect("file");
    assert_eq!(world.prepare("a"), "a 100644");
    assert_eq!(world.mounts(), 1);
    // a directory again
    assert_eq!(world.prepare("old"), "old 42775");
    assert_eq!(world.mounts(), 1);
}

#[test]
fn all_that_was_bound_goes_and_the_content_stays() {
    let Some(world) = World::new() else { return };
    fs::create_dir(world.volume.join("dir")).expect("dir");
    fs::write(world.volume.join("dir/file"), "kept").expect("file");
    let mut others = world.part("dir", 3);
    others.target = world
        .pod_dir()
        .join("volume-subpaths/host/gone-container/0");
    for part in [
        world.part("dir", 0),
        world.part("dir/file", 1),
        others.clone(),
    ] {
        prepare_sub_path(&part).expect("bound");
    }
    // what a container with mounts of its own left in it
    fs::create_dir(world.volume.join("dir/inner")).expect("dir");
    mount_bind(
        world.volume.join("dir"),
        world.part("", 0).target.join("inner"),
    )
    .expect("bound");
    // and a bind on a bind, of an agent that was killed in between
    mount_bind(&world.volume, &others.target).expect("bound");

    clean_sub_paths(&world.pod_dir(), Some("data")).expect("cleaned");
    assert!(!world.pod_dir().join("volume-subpaths/data").exists());
    assert_eq!(world.mounts(), 2, "those of the other volume");
    clean_sub_paths(&world.pod_dir(), None).expect("cleaned");
    clean_sub_paths(&world.pod_dir(), None).expect("again");
    assert!(!world.pod_dir().join("volume-subpaths").exists());
    assert_eq!(world.mounts(), 0);
    let kept = fs::read_to_string(world.volume.join("dir/file"));
    assert_eq!(kept.expect("content"), "kept");
}

/// A container exchanges `swap` for `other` as fast as it can while `swap/<below>` is bound, over
/// and over. What was bound is told each time it worked.
fn race(world: &World, below: &str, mut bound: impl FnMut(&Path)) -> (u32, u32) {
    let over = AtomicBool::new(false);
    let (mut worked, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (swap, other) = (world.volume.join("swap"), world.volume.join("other"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &other, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        let mut rounds = 0;
        let unmet = |worked: u32, refused: u32| worked <= 20 || refused <= 20;
        while rounds < ROUNDS || unmet(worked, refused) && rounds < MOST_ROUNDS {
            rounds += 1;
            // one of the two may have the processor to itself for a while
            thread::yield_now();
            let part = world.part(&format!("swap/{below}"), 0);
            match prepare_sub_path(&part) {
                Ok(()) => {
                    worked += 1;
                    bound(&part.target);
                }
                Err(_) => refused += 1,
            }
            if worked % 2 == 0 {
                clean_sub_paths(&world.pod_dir(), None).expect("cleaned");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    (worked, refused)
}

/// CVE-2017-1002101 and CVE-2021-25741: `swap` is a directory of the volume when it is looked at
/// and a link to the node's root when it is bound.
#[test]
fn a_directory_that_becomes_a_link_to_the_node_never_shows_the_node() {
    let Some(world) = World::new() else { return };
    fs::create_dir_all(world.volume.join("swap/etc")).expect("content");
    symlink("/", world.volume.join("other")).expect("link");
    let ours = fs::metadata(world.volume.join("swap/etc"))
        .expect("inode")
        .ino();
    let (worked, refused) = race(&world, "etc", |target| {
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

/// As above where the directory has to be made: none is made on the node.
#[test]
fn a_directory_that_becomes_a_link_to_the_node_gets_nothing_made_on_the_node() {
    let Some(world) = World::new() else { return };
    let outside = world.dir.path().join("node");
    fs::create_dir(&outside).expect("outside");
    fs::create_dir(world.volume.join("swap")).expect("content");
    symlink(&outside, world.volume.join("other")).expect("link");
    let real = |name: &str| {
        let path = world.volume.join(name);
        let is_link = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
        (!is_link).then(|| path.join("made/here"))
    };
    let (worked, _) = race(&world, "made/here", |target| {
        fs::metadata(target).expect("bound");
    });
    assert!(worked > 20, "{worked} worked");
    assert_eq!(fs::read_dir(&outside).expect("outside").count(), 0);
    let made = real("swap").or_else(|| real("other")).expect("directory");
    assert!(made.exists());
}
