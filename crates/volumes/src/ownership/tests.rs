//! Ownership changes on a real file system.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

const GROUP: VolumeGroup = VolumeGroup {
    gid: 2000,
    policy: GroupPolicy::Always,
    read_only: false,
};

struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: giving files away needs root");
            return None;
        }
        let dir = tempfile::tempdir().expect("temp dir");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(dir.path(), private).expect("mode");
        Some(Self { dir })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, mode: u32) {
        fs::create_dir_all(self.at(name).parent().expect("parent")).expect("dirs");
        fs::write(self.at(name), "x").expect("write");
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).expect("mode");
    }

    fn walk(&self, group: VolumeGroup) -> WalkOutcome {
        let progress = WalkProgress::default();
        set_volume_ownership(self.dir.path(), group, &progress).expect("walk")
    }

    /// `mode:gid`.
    fn seen(&self, name: &str) -> String {
        let found = fs::symlink_metadata(self.at(name)).expect("metadata");
        format!("{:o}:{}", found.mode() & 0o7777, found.gid())
    }
}

#[test]
fn group_gets_permissions_and_directories_inherit_it() {
    let Some(tree) = Tree::new() else { return };
    tree.file("plain", 0o600);
    tree.file("program", 0o4755);
    tree.file("dir/below/secret", 0o400);
    fs::set_permissions(tree.at("dir"), fs::Permissions::from_mode(0o700)).expect("mode");
    assert_eq!(tree.walk(GROUP), WalkOutcome::Completed { failed: 0 });
    let check = |name: &str, expected: &str| assert_eq!(tree.seen(name), expected, "{name}");
    check("", "2770:2000");
    check("plain", "660:2000");
    check("program", "4775:2000");
    check("dir", "2770:2000");
    check("dir/below", "2775:2000");
    check("dir/below/secret", "660:2000");
    let read_only = VolumeGroup {
        gid: 3000,
        read_only: true,
        ..GROUP
    };
    tree.file("dir/new", 0o600);
    tree.walk(read_only);
    check("dir/new", "640:3000");
    check("dir", "2770:3000");
}

#[test]
fn links_are_changed_but_not_followed() {
    let Some(tree) = Tree::new() else { return };
    let outside = Tree::new().expect("root");
    outside.file("precious", 0o600);
    symlink(outside.at("precious"), tree.at("file-link")).expect("link");
    symlink(outside.dir.path(), tree.at("dir-link")).expect("link");
    symlink("nowhere", tree.at("dangling")).expect("link");
    tree.walk(GROUP);
    assert_eq!(outside.seen("precious"), "600:0");
    assert_eq!(outside.seen(""), "700:0");
    for link in ["file-link", "dir-link", "dangling"] {
        assert_eq!(tree.seen(link), "777:2000", "{link}");
    }
}

#[test]
fn on_root_mismatch_checks_only_the_root() {
    let Some(tree) = Tree::new() else { return };
    let on_mismatch = VolumeGroup {
        policy: GroupPolicy::OnRootMismatch,
        ..GROUP
    };
    tree.file("old", 0o600);
    assert_eq!(tree.walk(on_mismatch), WalkOutcome::Completed { failed: 0 });
    tree.file("new", 0o600);
    assert_eq!(tree.walk(on_mismatch), WalkOutcome::Skipped);
    assert_eq!(
        tree.seen("new"),
        "600:2000",
        "the group comes from the directory"
    );
    // a mismatch of group, permissions or set-group-ID
    let check = |mode: u32, gid: u32, expected: WalkOutcome| {
        std::os::unix::fs::chown(tree.dir.path(), None, Some(gid)).expect("chown");
        fs::set_permissions(tree.dir.path(), fs::Permissions::from_mode(mode)).expect("mode");
        assert_eq!(tree.walk(on_mismatch), expected, "{mode:o} {gid}");
    };
    check(0o2777, 2000, WalkOutcome::Skipped);
    check(0o2770, 0, WalkOutcome::Completed { failed: 0 });
    check(0o0770, 2000, WalkOutcome::Completed { failed: 0 });
    check(0o2750, 2000, WalkOutcome::Completed { failed: 0 });
    assert_eq!(tree.seen("new"), "660:2000");
}

#[test]
fn mounts_in_the_volume_are_skipped() {
    let Some(tree) = Tree::new() else { return };
    fs::create_dir(tree.at("mnt")).expect("dir");
    rustix::mount::mount(
        "tmpfs",
        tree.at("mnt"),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        c"mode=0700",
    )
    .expect("mount");
    tree.file("mnt/foreign", 0o600);
    tree.walk(GROUP);
    assert_eq!(tree.seen("mnt/foreign"), "600:0");
    assert_eq!(tree.seen("mnt"), "700:0");
    rustix::mount::unmount(tree.at("mnt"), rustix::mount::UnmountFlags::empty()).expect("unmount");
}

#[test]
fn deep_and_wide_trees_are_changed() {
    let Some(tree) = Tree::new() else { return };
    for i in 0..2000 {
        tree.file(&format!("f{i}"), 0o600);
    }
    // deeper than PATH_MAX, with more entries at each level
    let mut fd = fs::File::open(tree.dir.path()).expect("open");
    for _ in 0..1500 {
        for name in ["deep-directory", "side"] {
            rustix::fs::mkdirat(&fd, name, Mode::RWXU).expect("mkdir");
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let next = openat(&fd, "deep-directory", flags, Mode::empty());
        fd = fs::File::from(next.expect("openat"));
    }
    let progress = WalkProgress::default();
    let walked = set_volume_ownership(tree.dir.path(), GROUP, &progress).expect("walk");
    assert_eq!(walked, WalkOutcome::Completed { failed: 0 });
    assert_eq!(progress.files(), 2000 + 2 * 1500 + 1);
    assert_eq!(fstat(&fd).expect("stat").st_gid, 2000);
    crate::remove_tree(&tree.at("deep-directory")).expect("remove");
}

#[test]
fn failed_entries_are_counted_and_others_changed() {
    let Some(tree) = Tree::new() else { return };
    tree.file("a", 0o600);
    let ro = tree.at("ro");
    fs::create_dir(&ro).expect("dir");
    fs::write(ro.join("b"), "x").expect("write");
    rustix::mount::mount_bind(&ro, &ro).expect("bind");
    let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&ro, flags, c"").expect("remount");
    let progress = WalkProgress::default();
    let walked = set_volume_ownership(&ro, GROUP, &progress).expect("walk");
    rustix::mount::unmount(&ro, rustix::mount::UnmountFlags::empty()).expect("unmount");
    // the file and the root itself
    assert_eq!(walked, WalkOutcome::Completed { failed: 2 });
    assert_eq!(tree.seen("ro/b"), "644:0");
}

#[test]
fn cancelled_walk_leaves_the_root_unchanged() {
    let Some(tree) = Tree::new() else { return };
    tree.file("a/b", 0o600);
    let progress = WalkProgress::default();
    progress.stop();
    let stopped = set_volume_ownership(tree.dir.path(), GROUP, &progress);
    let error = stopped.expect_err("stopped");
    assert!(matches!(error, VolumeError::Stopped { .. }), "{error}");
    assert_eq!(tree.seen(""), "700:0");
    let gone = set_volume_ownership(&tree.at("gone"), GROUP, &WalkProgress::default());
    assert!(gone.is_err());
}
