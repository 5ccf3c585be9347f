//! The pure set by tables, one pass over real files, and the actor in a temporary directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tempfile::TempDir;
use windlass_actors::SourceSnapshot;
use windlass_mailboxes::{Mailbox, SystemClock, mailbox};
use windlass_metrics::Metrics;
use windlass_types::{PodExt, PodOp, Timestamp};

use super::io::{FileScan, Scan, scan};
use super::state::FileSet;
use super::{FileSource, FileSourceConfig};
use crate::snapshot::PassOutput;

const NODE: &str = "n";

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: x}}]\n"
    )
}

fn write(directory: &Path, file: &str, content: impl AsRef<[u8]>) {
    fs::write(directory.join(file), content).expect("written");
}

/// Pod names without the node's suffix, then the file names of what was refused.
fn line(pods: Option<&[windlass_types::SharedPod]>, rejected: &[String]) -> String {
    let pods = match pods {
        None => "unknown".to_owned(),
        Some(pods) => pods
            .iter()
            .map(|p| p.name().trim_end_matches("-n").to_owned())
            .collect::<Vec<_>>()
            .join(" "),
    };
    let rejected: String = rejected
        .iter()
        .map(|origin| format!(" -{}", origin.rsplit('/').next().unwrap_or_default()))
        .collect();
    format!("[{pods}]{rejected}")
}

fn output_line(output: &PassOutput) -> String {
    let rejected: Vec<String> = output.rejected.iter().map(|r| r.origin.clone()).collect();
    line(output.pods.as_deref(), &rejected)
}

// ---- one pass over real files

/// Every error of a pass, by file name, and the names of the pods.
fn pass(directory: &Path) -> (Vec<String>, BTreeMap<String, String>) {
    let Scan::Files(files) = scan(directory, NODE, &BTreeMap::new()) else {
        panic!("not a directory of manifests");
    };
    let mut pods = Vec::new();
    let mut errors = BTreeMap::new();
    for (path, file) in files {
        let FileScan::Changed(_, outcome) = file else {
            panic!("nothing is known yet");
        };
        match *outcome {
            Ok(loaded) => pods.extend(loaded.pods.iter().map(|p| p.name().to_owned())),
            Err(error) => {
                let name = path.file_name().expect("a name").to_string_lossy();
                let text = error.to_string();
                let text = text.split_once(": ").expect("the path first").1;
                errors.insert(name.into_owned(), text.to_owned());
            }
        }
    }
    (pods, errors)
}

#[test]
fn invalid_manifests_are_rejected_and_valid_ones_load() {
    let directory = TempDir::new().expect("a directory");
    let at = directory.path();
    write(at, "good.yaml", manifest("good"));
    write(at, "unknown.yaml", manifest("unknown") + "color: red\n");
    write(
        at,
        "list.json",
        r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"l1"},"spec":{"containers":[{"name":"c","image":"x"}]}},{"metadata":{"name":"l2"},"spec":{"containers":[{"name":"c","image":"x"}]}}]}"#,
    );
    write(at, ".hidden.yaml", "not: [valid");
    write(at, "empty.yaml", "");
    write(at, "syntax.yaml", "a: [1, 2\nb: 3\n");
    write(
        at,
        "types.yaml",
        manifest("t").replace("image: x", "image: [x]"),
    );
    write(at, "garbage.yaml", [0x7f, b'E', b'L', b'F', 0xff, 0xfe]);
    write(
        at,
        "api.yaml",
        manifest("api") + "  volumes: [{name: v, secret: {secretName: s}}]\n",
    );
    let big = fs::File::create(at.join("big.yaml")).expect("created");
    big.set_len(20 * 1024 * 1024).expect("sized");
    fs::create_dir(at.join("directory.yaml")).expect("created");
    symlink("nowhere", at.join("dangling.yaml")).expect("linked");
    symlink("good.yaml", at.join("link.yaml")).expect("linked");
    // A regular file that even root cannot read from its beginning.
    symlink("/proc/self/mem", at.join("unreadable.yaml")).expect("linked");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("pipe.yaml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(at.join("socket.yaml")).expect("a socket");

    let (pods, errors) = pass(at);
    assert_eq!(pods, ["good-n", "good-n", "l1-n", "l2-n", "unknown-n"]);
    let errors: Vec<String> = errors.iter().map(|(n, e)| format!("{n}: {e}")).collect();
    let api = "api.yaml: line 6: spec.volumes[0].secret: a static pod may not refer to secrets (use hostPath, emptyDir, fieldRef or literal values instead)";
    let files = "(put regular files, or links to them, into the directory)";
    let expected = [
        api.to_owned(),
        "big.yaml: 20971520 bytes exceed the limit of 10485760 bytes (split it, or move the data out of the manifest)".to_owned(),
        "dangling.yaml: cannot be read: it links to nowhere, which does not exist (check that it exists and that the agent may read it)".to_owned(),
        format!("directory.yaml: is a directory, not a file {files}"),
        "empty.yaml: contains no object (add a Pod, or remove the file)".to_owned(),
        "garbage.yaml: not UTF-8 text: invalid byte at offset 4 (replace it with a Pod in YAML or JSON)".to_owned(),
        format!("pipe.yaml: is a pipe, not a file {files}"),
        format!("socket.yaml: is a socket, not a file {files}"),
    ];
    for expected in &expected {
        assert!(errors.contains(expected), "{expected} not in {errors:#?}");
    }
    for (name, part) in [
        ("syntax.yaml", "line "),
        (
            "types.yaml",
            "line 5, column 33: spec.containers[0].image: invalid type",
        ),
        ("unreadable.yaml", "cannot be read: Input/output error"),
    ] {
        let found = errors
            .iter()
            .any(|e| e.starts_with(&format!("{name}: {part}")));
        assert!(found, "{name} not in {errors:#?}");
    }
    assert_eq!(errors.len(), expected.len() + 3);
}

#[test]
fn unreadable_file_is_rejected_without_affecting_others() {
    // Root reads every file; then the case above with /proc/self/mem has to do.
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may read every file");
        return;
    }
    let directory = TempDir::new().expect("a directory");
    write(directory.path(), "good.yaml", manifest("good"));
    write(directory.path(), "secret.yaml", manifest("secret"));
    let file = fs::File::open(directory.path().join("secret.yaml")).expect("open");
    rustix::fs::fchmod(file, rustix::fs::Mode::empty()).expect("mode");
    let (pods, errors) = pass(directory.path());
    assert_eq!(pods, ["good-n"]);
    assert!(errors["secret.yaml"].contains("Permission denied"));
}

#[test]
fn unchanged_content_is_not_parsed_again() {
    let directory = TempDir::new().expect("a directory");
    write(directory.path(), "a.yaml", manifest("a"));
    let mut set = FileSet::new(directory.path().to_owned(), Duration::from_secs(20));
    let found = scan(set.path(), NODE, &set.fingerprints());
    set.apply(found, &BTreeSet::new(), at(0));
    let Scan::Files(files) = scan(set.path(), NODE, &set.fingerprints()) else {
        panic!("a directory");
    };
    assert!(files.values().all(|f| matches!(f, FileScan::Unchanged)));
}

// ---- the pure set

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
}

/// One step: the content of the directory or the error of reading it, and the expected output.
type Step<'a> = (i64, Result<&'a [(&'a str, &'a str)], &'a str>, &'a str);

/// Runs the steps and compares the outputs; the content of a manifest is a pod name or invalid.
fn check(steps: &[Step<'_>]) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("m");
    let mut set = FileSet::new(path.clone(), Duration::from_secs(20));
    for (seconds, content, expected) in steps {
        let found = match content {
            Err(error) => Scan::Failed((*error).to_owned()),
            Ok(files) => {
                let _ = fs::remove_dir_all(&path);
                fs::create_dir(&path).expect("created");
                for (file, name) in *files {
                    let text = if *name == "bad" {
                        "bad".to_owned()
                    } else {
                        manifest(name)
                    };
                    write(&path, file, text);
                }
                scan(&path, NODE, &set.fingerprints())
            }
        };
        let (outputs, _) = set.apply(found, &BTreeSet::new(), at(*seconds));
        let output = outputs.first().map_or("nothing".to_owned(), output_line);
        assert_eq!(&output, expected, "at {seconds}");
    }
}

#[test]
fn only_changes_are_output_and_empty_set_once() {
    check(&[
        (0, Ok(&[]), "[]"),
        (1, Ok(&[]), "nothing"),
        (2, Ok(&[("a", "a"), ("b", "b")]), "[a b]"),
        (3, Ok(&[("a", "a"), ("b", "b")]), "nothing"),
        (4, Ok(&[("b", "b")]), "[b]"),
        (5, Ok(&[("b", "c")]), "[c]"),
    ]);
}

#[test]
fn invalid_manifest_keeps_pods_for_one_period() {
    check(&[
        (0, Ok(&[("a", "a"), ("b", "b")]), "[a b]"),
        (5, Ok(&[("a", "bad"), ("b", "b")]), "[a b] -a"),
        (24, Ok(&[("a", "bad"), ("b", "b")]), "nothing"),
        (25, Ok(&[("a", "bad"), ("b", "b")]), "[b] -a"),
        (26, Ok(&[("a", "a"), ("b", "b")]), "[a b]"),
        // half-written, then whole: nothing is ever removed
        (30, Ok(&[("a", "bad"), ("b", "b")]), "[a b] -a"),
        (31, Ok(&[("a", "a"), ("b", "b")]), "[a b]"),
    ]);
}

#[test]
fn unreadable_path_changes_nothing() {
    check(&[
        (0, Err("EACCES"), "[unknown] -m"),
        (1, Err("EACCES"), "nothing"),
        (2, Ok(&[("a", "a")]), "[a]"),
        (3, Err("EIO"), "[a] -m"),
        (4, Ok(&[("a", "a")]), "[a]"),
    ]);
}

// ---- the actor

/// Long enough that whatever happens, happens by events.
const NEVER: Duration = Duration::from_secs(3600);
/// How long an expected snapshot may take; reached only by a failing test.
const DEADLINE: Duration = Duration::from_secs(20);

/// Snapshots of a running FileSource.
struct Source {
    mailbox: Mailbox<SourceSnapshot>,
}

impl Source {
    fn start(path: &Path, period: Duration) -> Self {
        let metrics = Metrics::new().expect("metrics");
        let (storage, mailbox) = mailbox(crate::POD_STORAGE, &metrics.mailboxes);
        windlass_mailboxes::start_actor(FileSource::new(FileSourceConfig {
            path: path.to_owned(),
            node_name: NODE.to_owned(),
            period,
            clock: Arc::new(SystemClock),
            storage,
        }));
        Self { mailbox }
    }

    /// Waits for a snapshot that reads like this; others may come before it.
    async fn expect(&mut self, expected: &str) {
        let mut seen = Vec::new();
        let found = tokio::time::timeout(DEADLINE, async {
            while let Some(delivery) = self.mailbox.next().await {
                let line = delivery.open(|snapshot| {
                    let complete = snapshot.op == PodOp::Set;
                    let rejected: Vec<String> =
                        snapshot.rejected.into_iter().map(|r| r.origin).collect();
                    line(complete.then_some(snapshot.pods.as_slice()), &rejected)
                });
                if line == expected {
                    return;
                }
                seen.push(line);
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("no {expected}, only {seen:?}"));
    }
}

/// Runs a test with an actor on this thread.
async fn local(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn directory_is_read_at_start_and_on_event() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        write(at, "a.yaml", manifest("a"));
        let mut source = Source::start(at, NEVER);
        source.expect("[a]").await;
        write(at, "b.yaml", manifest("b"));
        source.expect("[a b]").await;
        write(at, "c.yaml", "nonsense");
        source.expect("[a b] -c.yaml").await;
        write(at, "c.yaml", manifest("c"));
        source.expect("[a b c]").await;
        fs::remove_file(at.join("a.yaml")).expect("removed");
        source.expect("[b c]").await;
    })
    .await;
}

#[tokio::test]
async fn renamed_file_replaces_pod_in_one_step() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        write(at, "a.yaml", manifest("old"));
        let mut source = Source::start(at, NEVER);
        source.expect("[old]").await;
        write(at, ".a.tmp", manifest("new"));
        fs::rename(at.join(".a.tmp"), at.join("a.yaml")).expect("renamed");
        source.expect("[new]").await;
    })
    .await;
}

#[tokio::test]
async fn quickly_recreated_manifest_is_removed_and_added() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        write(at, "a.yaml", manifest("a"));
        write(at, "b.yaml", manifest("b"));
        let mut source = Source::start(at, NEVER);
        source.expect("[a b]").await;
        fs::remove_file(at.join("a.yaml")).expect("removed");
        write(at, "a.yaml", manifest("a"));
        source.expect("[b]").await;
        source.expect("[a b]").await;
        fs::rename(at.join("b.yaml"), at.join(".b")).expect("renamed");
        fs::rename(at.join(".b"), at.join("b.yaml")).expect("renamed");
        source.expect("[a]").await;
        source.expect("[a b]").await;
    })
    .await;
}

#[tokio::test]
async fn links_into_swapped_directory_are_followed() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        for (version, name) in [("..1", "old"), ("..2", "new")] {
            fs::create_dir(at.join(version)).expect("created");
            write(&at.join(version), "a.yaml", manifest(name));
        }
        symlink("..1", at.join("..data")).expect("linked");
        symlink("..data/a.yaml", at.join("a.yaml")).expect("linked");
        let mut source = Source::start(at, NEVER);
        source.expect("[old]").await;
        symlink("..2", at.join("..data_tmp")).expect("linked");
        fs::rename(at.join("..data_tmp"), at.join("..data")).expect("renamed");
        source.expect("[new]").await;
    })
    .await;
}

#[tokio::test]
async fn directory_may_be_created_and_removed() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path().join("etc/manifests");
        let mut source = Source::start(&at, NEVER);
        source.expect("[]").await;
        for _ in 0..3 {
            fs::create_dir_all(&at).expect("created");
            write(&at, "a.yaml", manifest("a"));
            source.expect("[a]").await;
            write(&at, "b.yaml", manifest("b"));
            source.expect("[a b]").await;
            fs::remove_dir_all(directory.path().join("etc")).expect("removed");
            source.expect("[]").await;
        }
        // moved away and replaced as a whole
        let spare = directory.path().join("spare");
        fs::create_dir_all(&spare).expect("created");
        write(&spare, "c.yaml", manifest("c"));
        fs::create_dir_all(at.parent().expect("a parent")).expect("created");
        fs::rename(&spare, &at).expect("renamed");
        source.expect("[c]").await;
    })
    .await;
}

#[tokio::test]
async fn replaced_directory_is_still_watched() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path().join("manifests");
        fs::create_dir(&at).expect("created");
        let mut source = Source::start(&at, NEVER);
        source.expect("[]").await;
        for round in 0..20 {
            // The new directory often gets the inode of the old one.
            fs::remove_dir_all(&at).expect("removed");
            fs::create_dir(&at).expect("created");
            write(&at, "a.yaml", manifest(&format!("a{round}")));
            source.expect(&format!("[a{round}]")).await;
            write(&at, "b.yaml", manifest("b"));
            source.expect(&format!("[a{round} b]")).await;
        }
    })
    .await;
}

#[tokio::test]
async fn single_file_may_be_removed_and_recreated() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        write(at, "pod.yaml", manifest("a"));
        write(at, "other.yaml", manifest("other"));
        let mut source = Source::start(&at.join("pod.yaml"), NEVER);
        source.expect("[a]").await;
        write(at, "next", manifest("b"));
        fs::rename(at.join("next"), at.join("pod.yaml")).expect("renamed");
        source.expect("[b]").await;
        fs::remove_file(at.join("pod.yaml")).expect("removed");
        source.expect("[]").await;
        write(at, "pod.yaml", manifest("c"));
        source.expect("[c]").await;
    })
    .await;
}

#[tokio::test]
async fn invalid_manifest_loses_pods_without_event() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        write(at, "a.yaml", manifest("a"));
        write(at, "b.yaml", manifest("b"));
        let mut source = Source::start(at, Duration::from_millis(300));
        source.expect("[a b]").await;
        write(at, "a.yaml", "nonsense");
        source.expect("[a b] -a.yaml").await;
        source.expect("[b] -a.yaml").await;
    })
    .await;
}

#[tokio::test]
async fn change_behind_link_is_found_by_periodic_read() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let elsewhere = TempDir::new().expect("a directory");
        let at = directory.path();
        write(elsewhere.path(), "real", manifest("old"));
        symlink(elsewhere.path().join("real"), at.join("a.yaml")).expect("linked");
        let mut source = Source::start(at, Duration::from_millis(50));
        source.expect("[old]").await;
        write(elsewhere.path(), "real", manifest("new"));
        source.expect("[new]").await;
    })
    .await;
}

#[tokio::test]
async fn event_storm_ends_in_final_state() {
    local(async {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path().to_owned();
        let mut source = Source::start(&at, NEVER);
        source.expect("[]").await;
        let writer = tokio::task::spawn_blocking(move || {
            for round in 0..200 {
                write(&at, "a.yaml", manifest(&format!("a{round}")));
                write(&at, &format!("f{}.yaml", round % 7), manifest("f"));
            }
            for n in 0..7 {
                fs::remove_file(at.join(format!("f{n}.yaml"))).expect("removed");
            }
        });
        source.expect("[a199]").await;
        writer.await.expect("written");
    })
    .await;
}
