//! The payload disk: test programs and their files at the same paths as on the host, or the agent
//! and its images.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use windlass_testbed::containerd::VARIABLE;
use windlass_testbed::environment::{CGROUP_DRIVER, IMAGES, ROUNDS, TIMEOUT_FACTOR};
use windlass_testbed::images;

use super::system::succeed;
use xtask_run as run;

/// Factor of the tests' timeouts on an emulated processor.
const SLOWNESS: u32 = 10;
/// Mount point in the machine.
const MOUNT_POINT: &str = "/run/windlass-vm/payload";
/// Cargo targets with tests on containerd and their programs. `cargo xtask test` selects the same
/// features, so nothing is built twice.
const TARGETS: &[&str] = &[
    "containerd",
    "on_containerd",
    "examples",
    "daemonset",
    "host",
    "cli",
    "cluster",
];
const MIB: u64 = 1 << 20;

/// A created disk.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) disk: PathBuf,
}

/// The tests of a nextest filterset, with a script that runs them; `rounds` of those that use up
/// the machine.
pub(super) fn of_tests(work: &Path, filter: &str, rounds: Option<u32>) -> anyhow::Result<Payload> {
    let images = images(work)?;
    let mut list = vec!["nextest", "list", "--workspace", "--message-format", "json"];
    for target in TARGETS {
        list.extend(["--test", target]);
    }
    list.extend(["--filterset", filter]);
    run::step("building the tests for the virtual machine");
    let list: Value = serde_json::from_str(&run::cargo_output(&list)?)?;
    let suites = suites_with_tests(&list);
    if suites.is_empty() {
        bail!("no test matches {filter}");
    }
    let metadata = run::cargo_output(&["metadata", "--format-version", "1"])?;

    let staging = Staging::new(work)?;
    staging.tree(&run::root())?;
    for suite in suites.values() {
        staging.file(path_of(suite, "binary-path")?)?;
    }
    let target = path_of(&list["rust-build-meta"], "target-directory")?;
    for program in programs(&list) {
        staging.file(&target.join(program))?;
    }
    staging.tree(&images)?;
    let mut directories = vec![run::root(), target.to_owned()];
    let containerd = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    if let Some(folder) = containerd.as_deref().map(Path::new) {
        staging.tree(folder)?;
        directories.push(folder.to_owned());
    }
    let binaries = json!({
        "rust-build-meta": list["rust-build-meta"],
        "rust-binaries": suites,
    });
    staging.write("binaries.json", &binaries.to_string())?;
    staging.write("metadata.json", &metadata)?;
    staging.write(
        "run",
        &script(
            filter,
            &images,
            containerd.as_deref().map(Path::new),
            rounds,
        ),
    )?;
    staging.link(&nextest()?, &staging.folder.join("cargo-nextest"))?;
    staging.finish(&directories)
}

/// The agent, its command-line client, the local images and the examples.
pub(super) fn of_shell(work: &Path) -> anyhow::Result<Payload> {
    let images = images(work)?;
    let staging = Staging::new(work)?;
    for (package, program) in [("windlass", "windlass"), ("windlass-ctl", "windlassctl")] {
        run::cargo(&["build", "--package", package, "--bin", program])?;
        let path = run::target_directory()?.join("debug").join(program);
        staging.link(&path, &staging.folder.join("programs").join(program))?;
    }
    for (from, to) in [
        (images, "images"),
        (run::root().join("examples"), "examples"),
    ] {
        for entry in fs::read_dir(&from)?.flatten() {
            staging.link(
                &entry.path(),
                &staging.folder.join(to).join(entry.file_name()),
            )?;
        }
    }
    staging.finish(&[])
}

/// The agent, the local images and files of the system, with a script that puts them in place.
pub(super) fn of_power(
    work: &Path,
    agent: &Path,
    files: &[(&str, &str)],
) -> anyhow::Result<Payload> {
    let images = images(work)?;
    let staging = Staging::new(work)?;
    staging.link(agent, &staging.folder.join("programs/windlass"))?;
    for entry in fs::read_dir(&images)?.flatten() {
        let name = entry.file_name();
        staging.link(&entry.path(), &staging.folder.join("images").join(name))?;
    }
    for (path, text) in files {
        let path = staging.folder.join("system").join(path);
        let parent = path.parent().context("a path in a directory")?;
        fs::create_dir_all(parent)?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    staging.write("run", include_str!("guest/prepare.sh"))?;
    staging.finish(&[])
}

/// Images of the private containerd, which are slow to build in the machine.
fn images(work: &Path) -> anyhow::Result<PathBuf> {
    let folder = work.join("images");
    fs::create_dir_all(&folder)?;
    images::build_all(&folder)?;
    Ok(folder)
}

/// Suites with a selected test, without their tests, which nextest lists again.
fn suites_with_tests(list: &Value) -> serde_json::Map<String, Value> {
    let mut suites = list["rust-suites"].as_object().cloned().unwrap_or_default();
    suites.retain(|_, suite| {
        let tests = suite["testcases"].as_object();
        tests.is_some_and(|tests| {
            let mut tests = tests.values();
            tests.any(|test| test["filter-match"]["status"] == "matches")
        })
    });
    suites
}

/// Programs run by tests, relative to the target directory.
fn programs(list: &Value) -> Vec<&str> {
    let packages = list["rust-build-meta"]["non-test-binaries"].as_object();
    let programs = packages.into_iter().flat_map(|packages| packages.values());
    let programs = programs.flat_map(|programs| programs.as_array().into_iter().flatten());
    programs
        .filter_map(|program| program["path"].as_str())
        .collect()
}

fn path_of<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Path> {
    let path = value[key].as_str().map(Path::new);
    path.with_context(|| format!("cargo nextest lists no {key}"))
}

fn nextest() -> anyhow::Result<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    folders.extend(home.map(|home| home.join("bin")));
    let mut paths = folders.iter().map(|folder| folder.join("cargo-nextest"));
    let path = paths.find(|path| path.is_file());
    path.context("cargo-nextest is in no folder of the PATH")?
        .canonicalize()
        .context("cargo-nextest")
}

/// Script to run in the machine.
fn script(filter: &str, images: &Path, containerd: Option<&Path>, rounds: Option<u32>) -> String {
    let root = run::root();
    let mut variables = vec![
        ("CI", "true".to_owned()),
        ("HOME", "/root".to_owned()),
        (TIMEOUT_FACTOR, SLOWNESS.to_string()),
        (CGROUP_DRIVER, "systemd".to_owned()),
        (IMAGES, images.display().to_string()),
    ];
    variables.extend(rounds.map(|rounds| (ROUNDS, rounds.to_string())));
    variables.extend(containerd.map(|folder| (VARIABLE, folder.display().to_string())));
    let exports: String = variables
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted(value)))
        .collect();
    format!(
        "{exports}cd {root}\nexec {MOUNT_POINT}/cargo-nextest nextest run --profile vm --color never \
         --cargo-metadata {MOUNT_POINT}/metadata.json \
         --binaries-metadata {MOUNT_POINT}/binaries.json --filterset {filter}\n",
        root = quoted(&root.display().to_string()),
        filter = quoted(filter),
    )
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Directory with the content of the disk.
struct Staging {
    folder: PathBuf,
    disk: PathBuf,
}

impl Staging {
    fn new(work: &Path) -> anyhow::Result<Self> {
        let folder = work.join("payload.new");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(folder.join("files"))?;
        Ok(Self {
            folder,
            disk: work.join("payload"),
        })
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.folder.join(name), text).context("the payload")
    }

    /// Adds a file of the host at its path.
    fn file(&self, path: &Path) -> anyhow::Result<()> {
        let relative = path.strip_prefix("/").context("a path from the root")?;
        self.link(path, &self.folder.join("files").join(relative))
    }

    /// Adds the files below a directory at their paths, without hidden files and target
    /// directories.
    fn tree(&self, directory: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let (path, kind) = (entry.path(), entry.file_type()?);
            let kept_out = [".git", "target"].iter().any(|other| name == *other);
            if kind.is_dir() && !kept_out {
                self.tree(&path)?;
            } else if kind.is_file() && !kept_out {
                self.file(&path)?;
            }
        }
        Ok(())
    }

    /// Links a file, or copies it across file systems.
    fn link(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        let parent = to.parent().context("a path in a directory")?;
        fs::create_dir_all(parent)?;
        match fs::hard_link(from, to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(_) => fs::copy(from, to).map(drop),
            Ok(()) => Ok(()),
        }
        .with_context(|| from.display().to_string())
    }

    /// Creates the disk; `directories` are bind-mounted at their host paths.
    fn finish(self, directories: &[PathBuf]) -> anyhow::Result<Payload> {
        let lines = directories
            .iter()
            .map(|path| format!("{}\n", path.display()));
        self.write("directories", &lines.collect::<String>())?;
        let (bytes, files) = size(&self.folder)?;
        // an inode and a partial block per file, with a reserve
        let megabytes = bytes / MIB * 11 / 10 + files * 8192 / MIB + 64;
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args([
            "-q",
            "-F",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-m",
            "0",
            "-d",
        ]);
        mke2fs.arg(&self.folder).arg(&self.disk);
        let _ = fs::remove_file(&self.disk);
        succeed(mke2fs.arg(format!("{megabytes}M"))).context("cannot make the payload's disk")?;
        fs::remove_dir_all(&self.folder)?;
        Ok(Payload { disk: self.disk })
    }
}

/// Bytes and number of the files below a directory.
fn size(directory: &Path) -> anyhow::Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files += 1;
        if entry.file_type()?.is_dir() {
            let below = size(&entry.path())?;
            (bytes, files) = (bytes + below.0, files + below.1);
        } else {
            bytes += entry.metadata()?.size();
        }
    }
    Ok((bytes, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_without_a_matching_test_are_left_out() {
        let suite = |status: &str| json!({ "testcases": { "a": { "filter-match": { "status": status } } } });
        let list = json!({ "rust-suites": { "x": suite("matches"), "y": suite("mismatch") } });
        let suites = suites_with_tests(&list);
        assert_eq!(suites.keys().collect::<Vec<_>>(), ["x"]);
    }

    #[test]
    fn quoted_word_keeps_its_quotes() {
        assert_eq!(quoted("a'b c"), r"'a'\''b c'");
    }
}
