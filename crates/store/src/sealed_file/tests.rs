//! Encrypted files: damaged, torn, of other keys, nodes and versions, and what is on the disk.

use std::os::unix::fs::symlink;

use super::*;

const NAME: &str = "kept";
const SECRET: &str = "correct horse battery staple";

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = Store::open(dir.path().join("state")).expect("open");
    (dir, store)
}

fn open(store: &Store) -> SealedFile {
    open_as(store, "n1", None).expect("opened")
}

fn open_as(
    store: &Store,
    owner: &str,
    credential: Option<&Path>,
) -> Result<SealedFile, StoreError> {
    SealedFile::open(SealedFileConfig {
        store: store.clone(),
        name: NAME,
        owner: owner.to_owned(),
        credential: credential.map(Path::to_owned),
    })
}

fn load(file: &SealedFile) -> Option<String> {
    file.load::<String>().expect("read")
}

fn names(store: &Store) -> Vec<String> {
    let entries = fs::read_dir(store.root()).expect("list");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn mode(store: &Store, name: &str) -> u32 {
    let found = fs::metadata(store.root().join(name)).expect("a file");
    found.permissions().mode() & 0o777
}

#[test]
fn saved_content_is_loaded_and_never_in_the_clear() {
    let (_dir, store) = store();
    let file = open(&store);
    assert_eq!(load(&file), None);
    file.save(SECRET).expect("saved");
    assert_eq!(load(&open(&store)).as_deref(), Some(SECRET));
    assert_eq!(names(&store), ["kept", "kept.key"]);
    let bytes = fs::read(store.root().join(NAME)).expect("bytes");
    let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    assert!(has(MAGIC));
    assert!(!has(b"horse"));
    // the same content is encrypted with another nonce
    file.save(SECRET).expect("saved");
    assert_ne!(fs::read(store.root().join(NAME)).expect("bytes"), bytes);
    for name in names(&store) {
        assert_eq!(mode(&store, &name), 0o600, "{name}");
    }
    let key = fs::read(store.root().join("kept.key")).expect("a key");
    let shown = format!("{file:?}");
    assert!(!shown.contains(&format!("{:?}", &key[..4])), "{shown}");
}

#[test]
fn unusable_file_is_set_aside_and_reads_as_absent() {
    let (_dir, store) = store();
    let file = open(&store);
    file.save(SECRET).expect("saved");
    let good = fs::read(store.root().join(NAME)).expect("bytes");
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        ("torn", good[..good.len() / 2].to_vec()),
        ("without its tag", good[..good.len() - TAG_LEN].to_vec()),
        ("only a header", good[..HEADER_LEN].to_vec()),
        ("empty", Vec::new()),
        ("foreign", b"{\"version\":1}".to_vec()),
        ("a newer version", changed(MAGIC.len())),
        ("another nonce", changed(HEADER_LEN)),
        ("another byte", changed(good.len() - TAG_LEN - 1)),
        ("longer", [&good[..], b"x"].concat()),
    ];
    for (what, bytes) in cases {
        fs::write(store.root().join(NAME), &bytes).expect("written");
        assert_eq!(load(&file), None, "{what}");
        let aside = store.root().join("kept.corrupt-1");
        assert_eq!(fs::read(&aside).expect("set aside"), bytes, "{what}");
        fs::remove_file(aside).expect("removed");
    }
    file.save(SECRET).expect("the name is free again");
    assert_eq!(load(&file).as_deref(), Some(SECRET));
}

#[test]
fn file_of_another_key_node_or_name_is_unreadable() {
    let (_dir, store) = store();
    let file = open(&store);
    file.save(SECRET).expect("saved");
    let good = fs::read(store.root().join(NAME)).expect("bytes");
    let other = open_as(&store, "n2", None).expect("opened");
    assert_eq!(load(&other), None);

    store.save_foreign(NAME, &good).expect("written");
    fs::remove_file(store.root().join("kept.key")).expect("removed");
    assert_eq!(load(&open(&store)), None, "the key is another one");
    assert!(names(&store).contains(&"kept.corrupt-2".to_owned()));
}

#[test]
fn key_that_others_can_read_or_of_wrong_length_is_removed() {
    let (_dir, store) = store();
    let path = store.root().join("kept.key");
    let spoil: [(&str, &dyn Fn()); 4] = [
        ("readable by the group", &|| {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mode");
        }),
        ("short", &|| {
            store
                .save_foreign("kept.key", &[7; KEY_LEN - 1])
                .expect("written");
        }),
        ("long", &|| {
            store
                .save_foreign("kept.key", &[7; KEY_LEN + 1])
                .expect("written");
        }),
        ("a link", &|| {
            let target = store.root().join("elsewhere");
            fs::rename(&path, &target).expect("moved");
            symlink(&target, &path).expect("a link");
        }),
    ];
    for (what, spoil) in spoil {
        open(&store).save(SECRET).expect("saved");
        let before = fs::read(&path).expect("a key");
        spoil();
        let file = open(&store);
        assert_eq!(load(&file), None, "{what}");
        assert_ne!(fs::read(&path).expect("a key"), before, "{what}");
        assert_eq!(mode(&store, "kept.key"), 0o600, "{what}");
        file.save(SECRET).expect("saved");
        assert_eq!(load(&open(&store)).as_deref(), Some(SECRET), "{what}");
    }
}

#[test]
fn credential_replaces_the_key_on_the_disk() {
    let (dir, store) = store();
    let credential = dir.path().join("credential");
    let with = || open_as(&store, "n1", Some(&credential));
    // it does not exist: the key is on the disk
    with().expect("opened").save(SECRET).expect("saved");
    assert_eq!(names(&store), ["kept", "kept.key"]);

    fs::write(&credential, [3; KEY_LEN]).expect("written");
    let file = with().expect("opened");
    assert_eq!(load(&file), None, "it was another key");
    file.save(SECRET).expect("saved");
    assert_eq!(names(&store), ["kept", "kept.corrupt-1"]);
    assert_eq!(load(&with().expect("opened")).as_deref(), Some(SECRET));

    fs::write(&credential, [3; KEY_LEN + 9]).expect("written");
    let error = with().expect_err("not a key").to_string();
    assert!(error.ends_with("33 bytes, expected 32"), "{error}");
}

#[test]
fn kill_between_any_two_writes_leaves_a_readable_state() {
    let (_dir, store) = store();
    // while the key was written
    fs::write(store.root().join(".kept.key.tmp"), [1; 9]).expect("written");
    let file = open(&store);
    assert_eq!(load(&file), None);
    // before the first content, and while it was written
    assert_eq!(load(&open(&store)), None);
    fs::write(store.root().join(".kept.tmp"), b"WINDLASS").expect("written");
    assert_eq!(load(&open(&store)), None);
    file.save(SECRET).expect("saved");
    // while the next content was written
    fs::write(store.root().join(".kept.tmp"), b"WINDLASS").expect("written");
    assert_eq!(load(&open(&store)).as_deref(), Some(SECRET));
}

#[test]
fn full_disk_keeps_the_old_content() {
    let (_dir, store) = store();
    let file = open(&store);
    file.save(SECRET).expect("saved");
    symlink("/dev/full", store.root().join(".kept.tmp")).expect("a link");
    let error = file.save("newer").expect_err("no space");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.is_some_and(|cause| cause.contains("No space left")));
    assert_eq!(load(&file).as_deref(), Some(SECRET));
    assert_eq!(names(&store), ["kept", "kept.key"]);

    // nor can a key be created
    fs::remove_file(store.root().join("kept.key")).expect("removed");
    fs::create_dir(store.root().join(".kept.key.tmp")).expect("a directory");
    open_as(&store, "n1", None).expect_err("not writable");
    assert_eq!(names(&store), [".kept.key.tmp", "kept"]);
}

#[test]
fn content_above_the_maximum_is_not_written() {
    let (_dir, store) = store();
    let file = open(&store);
    file.save(SECRET).expect("saved");
    let error = file
        .save(&"x".repeat(MAX_CONTENT_BYTES))
        .expect_err("large");
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.is_some_and(|cause| cause.contains("larger than 16777216 bytes")));
    assert_eq!(load(&file).as_deref(), Some(SECRET));
}

#[test]
fn foreign_content_is_not_quoted_in_the_error() {
    let (_dir, store) = store();
    let file = open(&store);
    let sealed = file.encrypt(&SECRET).expect("encrypted");
    let error = file.decrypt::<u32>(&sealed).expect_err("a text");
    assert_eq!(error, "foreign content at line 1 column 30");
}

#[test]
fn removal_leaves_no_trace() {
    let (_dir, store) = store();
    SealedFile::remove_all(&store, NAME).expect("nothing to remove");
    let file = open(&store);
    file.save(SECRET).expect("saved");
    let remainders = [
        ".kept.tmp",
        ".kept.key.tmp",
        "kept.corrupt-3",
        "kept.key.corrupt-1",
    ];
    for name in remainders.iter().chain(&["keptless", "other.corrupt-1"]) {
        fs::write(store.root().join(name), "x").expect("written");
    }
    SealedFile::remove_all(&store, NAME).expect("removed");
    assert_eq!(names(&store), ["keptless", "other.corrupt-1"]);
}
