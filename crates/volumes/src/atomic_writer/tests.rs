//! The writer on a real file system: layout, updates, kills between steps, concurrent readers.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, openat};
use windlass_pod_inputs::projection::PayloadFile;
use windlass_types::Timestamp;

use super::{Files, STEPS, Step, Write, WriteOptions, WriteOutcome, ensure_payload, write_payload};

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("temp dir")
}

fn file(text: &str) -> PayloadFile {
    PayloadFile {
        data: text.as_bytes().into(),
        mode: 0o644,
        owner: None,
    }
}

fn files(list: &[(&str, &str)]) -> Files {
    let list = list
        .iter()
        .map(|(path, text)| ((*path).to_owned(), file(text)));
    list.collect()
}

fn options() -> WriteOptions {
    WriteOptions {
        fs_group: None,
        now: Timestamp::new(1_700_000_000, 42).expect("in range"),
    }
}

fn write(dir: &Path, files: &Files) -> WriteOutcome {
    write_payload("v", dir, files, options()).expect("written")
}

/// Entries at the top of the volume: `name`, `name -> target` or `name/`.
fn top(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("list")
        .map(|entry| {
            let entry = entry.expect("entry");
            let name = entry.file_name().into_string().expect("text");
            let kind = entry.file_type().expect("type");
            if kind.is_symlink() {
                let target = fs::read_link(entry.path()).expect("link");
                format!("{name} -> {}", target.display())
            } else if kind.is_dir() {
                format!("{name}/")
            } else {
                name
            }
        })
        .collect();
    names.sort();
    names
}

/// Content as a program in the pod reads it.
fn seen(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut places = vec![(String::new(), dir.to_owned())];
    while let Some((prefix, place)) = places.pop() {
        for entry in fs::read_dir(&place).expect("list") {
            let entry = entry.expect("entry");
            let name = entry.file_name().into_string().expect("text");
            if name.starts_with("..") {
                continue;
            }
            let path = format!("{prefix}{name}");
            match fs::metadata(entry.path())
                .expect("no link dangles")
                .is_dir()
            {
                true => places.push((format!("{path}/"), entry.path())),
                false => {
                    let text = fs::read_to_string(entry.path()).expect("read");
                    found.insert(path, text);
                }
            }
        }
    }
    found
}

fn texts(files: &Files) -> BTreeMap<String, String> {
    let text = |file: &PayloadFile| String::from_utf8(file.data.to_vec()).expect("text");
    files.iter().map(|(p, f)| (p.clone(), text(f))).collect()
}

#[test]
fn layout_matches_upstream() {
    let dir = temp();
    let wanted = files(&[("password", "x"), ("a/b/c", "deep"), ("a/d", "")]);
    assert_eq!(write(dir.path(), &wanted), WriteOutcome::Replaced);
    assert_eq!(
        top(dir.path()),
        [
            "..2023_11_14_22_13_20.000000042/",
            "..data -> ..2023_11_14_22_13_20.000000042",
            "a -> ..data/a",
            "password -> ..data/password",
        ]
    );
    assert_eq!(seen(dir.path()), texts(&wanted));
    for directory in ["..data", "a", "a/b"] {
        let metadata = fs::metadata(dir.path().join(directory)).expect("metadata");
        assert_eq!(metadata.mode() & 0o7777, 0o755, "{directory}");
    }
}

#[test]
fn unchanged_content_is_not_rewritten() {
    let dir = temp();
    let wanted = files(&[("a", "1"), ("b/c", "2")]);
    write(dir.path(), &wanted);
    let before = (
        top(dir.path()),
        fs::metadata(dir.path().join("b/c")).expect("file"),
    );
    let later = WriteOptions {
        now: Timestamp::from_second(1_800_000_000).expect("in range"),
        ..options()
    };
    let again = write_payload("v", dir.path(), &wanted, later).expect("written");
    assert_eq!(again, WriteOutcome::Unchanged);
    let after = (
        top(dir.path()),
        fs::metadata(dir.path().join("b/c")).expect("file"),
    );
    assert_eq!(before.0, after.0);
    assert_eq!(before.1.ino(), after.1.ino());
}

#[test]
fn change_replaces_the_content_directory() {
    let dir = temp();
    let mut wanted = files(&[("a", "1"), ("gone", "2"), ("deep/gone", "3")]);
    write(dir.path(), &wanted);
    let mut check = |change: &dyn Fn(&mut Files)| {
        change(&mut wanted);
        assert_eq!(write(dir.path(), &wanted), WriteOutcome::Replaced);
        assert_eq!(write(dir.path(), &wanted), WriteOutcome::Unchanged);
        assert_eq!(seen(dir.path()), texts(&wanted));
        let names = top(dir.path());
        let contents = names.iter().filter(|n| n.ends_with('/')).count();
        assert_eq!(contents, 1, "{names:?}");
    };
    check(&|files| files.insert("a".into(), file("changed")).map_or((), drop));
    check(&|files| files.remove("gone").map_or((), drop));
    check(&|files| files.remove("deep/gone").map_or((), drop));
    check(&|files| files.insert("new/x".into(), file("")).map_or((), drop));
    check(&|files| files.values_mut().for_each(|f| f.mode = 0o400));
    check(&Files::clear);
    assert_eq!(top(dir.path()).len(), 2, "only ..data and what it shows");
}

#[test]
fn modes_and_owners_ignore_the_umask() {
    let dir = temp();
    let open = PayloadFile {
        mode: 0o666,
        ..file("")
    };
    let wanted = Files::from([("open".into(), open), ("token".into(), file("secret"))]);
    write(dir.path(), &wanted);
    let mode = |name: &str| {
        let metadata = fs::metadata(dir.path().join(name)).expect("metadata");
        format!(
            "{:o} {}:{}",
            metadata.mode() & 0o7777,
            metadata.uid(),
            metadata.gid()
        )
    };
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let own = format!("{user}:{group}");
    assert_eq!(mode("open"), format!("666 {own}"));
    assert_eq!(mode("token"), format!("644 {own}"));
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped the rest: giving files away needs root");
        return;
    }
    let token = PayloadFile {
        mode: 0o600,
        owner: Some(1234),
        ..file("secret")
    };
    let wanted = Files::from([("token".into(), token), ("d/x".into(), file(""))]);
    let group = WriteOptions {
        fs_group: Some(2000),
        ..options()
    };
    for expected in [WriteOutcome::Replaced, WriteOutcome::Unchanged] {
        let written = write_payload("v", dir.path(), &wanted, group).expect("written");
        assert_eq!(written, expected);
        assert_eq!(mode("token"), "640 1234:2000");
        assert_eq!(mode("d"), "2755 0:2000");
        assert_eq!(mode("..data"), "2755 0:2000");
    }
    let written = write_payload(
        "v",
        dir.path(),
        &wanted,
        WriteOptions {
            fs_group: Some(3000),
            ..group
        },
    );
    assert_eq!(
        written.expect("written"),
        WriteOutcome::Replaced,
        "another group"
    );
}

#[test]
fn one_byte_change_in_a_mebibyte_is_detected() {
    let dir = temp();
    let mut data = vec![7; 1 << 20];
    let payload = |data: &[u8]| {
        let file = PayloadFile {
            data: data.into(),
            ..file("")
        };
        Files::from([("big".into(), file)])
    };
    write(dir.path(), &payload(&data));
    data[500_000] = 8;
    assert_eq!(write(dir.path(), &payload(&data)), WriteOutcome::Replaced);
    assert_eq!(fs::read(dir.path().join("big")).expect("read"), data);
}

#[test]
fn killed_write_is_completed_by_the_next() {
    let old = files(&[("same", "old"), ("gone", "old"), ("deep/gone", "old")]);
    let new = files(&[("same", "new"), ("fresh", "new"), ("deep/x", "new")]);
    for first in [false, true] {
        for done in 0..=STEPS.len() {
            let dir = temp();
            if !first {
                write(dir.path(), &old);
            }
            let mut write_ = Write::open(dir.path(), &new, options()).expect("open");
            for step in &STEPS[..done] {
                write_.run(*step).expect("step");
            }
            // half of the files, as after a kill during the write
            let half = dir.path().join("..2020_01_01_00_00_00.1");
            fs::create_dir(&half).expect("dir");
            fs::write(half.join("same"), "ha").expect("file");
            let expected = match STEPS[..done].contains(&Step::Swap) {
                false => WriteOutcome::Replaced,
                true => WriteOutcome::Unchanged,
            };
            assert_eq!(write(dir.path(), &new), expected, "after {done} steps");
            assert_eq!(seen(dir.path()), texts(&new), "after {done} steps");
            let names = top(dir.path());
            assert_eq!(names.len(), 2 + 3, "after {done} steps: {names:?}");
        }
    }
}

#[test]
fn ensure_payload_completes_a_killed_write() {
    let new = files(&[("same", "new"), ("deep/x", "new")]);
    for done in 0..=STEPS.len() {
        let dir = temp();
        let mut write = Write::open(dir.path(), &new, options()).expect("open");
        for step in &STEPS[..done] {
            write.run(*step).expect("step");
        }
        let shown = STEPS[..done].contains(&Step::Swap);
        let kept = ensure_payload(dir.path()).expect("kept");
        assert_eq!(kept, shown, "after {done} steps");
        if shown {
            assert_eq!(seen(dir.path()), texts(&new), "after {done} steps");
        }
    }
    let dir = temp();
    assert!(!ensure_payload(&dir.path().join("gone")).expect("nothing"));
    // a link to another target is not a payload
    for target in ["/etc", "..", "..2020_01_01_00_00_00.1"] {
        symlink(target, dir.path().join("..data")).expect("link");
        assert!(!ensure_payload(dir.path()).expect("nothing"), "{target}");
        fs::remove_file(dir.path().join("..data")).expect("remove");
    }
}

#[test]
fn readers_never_see_mixed_content() {
    let dir = temp();
    let version = |n: usize| {
        let text = n.to_string();
        files(&[("a", &text), ("b", &text), ("c/d", &text)])
    };
    write(dir.path(), &version(0));
    let done = AtomicBool::new(false);
    let versions = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut versions = std::collections::BTreeSet::new();
            while !done.load(Ordering::Relaxed) {
                // the target of ..data may be removed while it is followed: the reader then
                // retries
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let Ok(data) = openat(CWD, dir.path().join("..data"), flags, Mode::empty()) else {
                    continue;
                };
                let read = |name: &str| {
                    let fd = openat(&data, name, OFlags::RDONLY, Mode::empty()).ok()?;
                    let mut text = String::new();
                    fs::File::from(fd).read_to_string(&mut text).ok()?;
                    Some(text)
                };
                if let (Some(a), Some(b), Some(c)) = (read("a"), read("b"), read("c/d")) {
                    assert!(a == b && b == c, "{a} {b} {c}");
                    versions.insert(a);
                }
            }
            versions
        });
        for n in 1..=300 {
            write(dir.path(), &version(n));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("reader")
    });
    assert!(versions.len() > 1, "the reader saw {versions:?}");
}

#[test]
fn paths_outside_the_volume_are_rejected() {
    let dir = temp();
    let long = "x".repeat(256);
    for path in [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        "..data",
        "..x/y",
        "a\0b",
        &long,
    ] {
        let wanted = files(&[(path, "x")]);
        let error = write_payload("v", dir.path(), &wanted, options()).expect_err(path);
        assert!(
            error.to_string().starts_with("volume \"v\": the path "),
            "{error}"
        );
        assert!(top(dir.path()).is_empty(), "{path:?}");
    }
    write(
        dir.path(),
        &files(&[("a/..b", "fine"), (".hidden", "fine")]),
    );
}

#[test]
fn planted_links_are_not_followed() {
    let dir = temp();
    let outside = temp();
    fs::write(outside.path().join("a"), "precious").expect("write");
    let wanted = files(&[("a", "mine")]);
    // links in place of the content, its link, and the name
    symlink(outside.path(), dir.path().join("..data")).expect("link");
    symlink(outside.path().join("a"), dir.path().join("a")).expect("link");
    symlink(outside.path(), dir.path().join("..2020_01_01_00_00_00.1")).expect("link");
    symlink(outside.path(), dir.path().join("..data_tmp")).expect("link");
    assert_eq!(write(dir.path(), &wanted), WriteOutcome::Replaced);
    assert_eq!(
        fs::read_to_string(dir.path().join("a")).expect("read"),
        "mine"
    );
    assert_eq!(
        fs::read_to_string(outside.path().join("a")).expect("read"),
        "precious"
    );
    // a link to a path within the content
    let inside = dir.path().join("..data/a");
    fs::remove_file(&inside).expect("remove");
    symlink(outside.path().join("a"), &inside).expect("link");
    assert_eq!(write(dir.path(), &wanted), WriteOutcome::Replaced);
    assert_eq!(
        fs::read_to_string(dir.path().join("a")).expect("read"),
        "mine"
    );
}

#[test]
fn nested_mount_point_stays() {
    let dir = temp();
    fs::create_dir(dir.path().join("nested")).expect("dir");
    fs::set_permissions(dir.path().join("nested"), fs::Permissions::from_mode(0o755))
        .expect("mode");
    write(
        dir.path(),
        &files(&[("nested", "hidden by the mount"), ("a", "1")]),
    );
    write(dir.path(), &files(&[("a", "2")]));
    assert!(dir.path().join("nested").is_dir());
}

#[test]
fn more_directories_than_open_files_are_compared() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let dir = temp();
    let paths: Vec<_> = (0..600).map(|n| format!("d{n}/a")).collect();
    let list: Vec<_> = paths.iter().map(|path| (path.as_str(), "1")).collect();
    let wanted = files(&list);
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(200),
        ..before
    };
    setrlimit(Resource::Nofile, few).expect("limit");
    let results = [write(dir.path(), &wanted), write(dir.path(), &wanted)];
    setrlimit(Resource::Nofile, before).expect("limit");
    assert_eq!(results, [WriteOutcome::Replaced, WriteOutcome::Unchanged]);
}
