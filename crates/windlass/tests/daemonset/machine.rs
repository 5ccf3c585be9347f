//! Traces of Windlass on a host, to compare before and after.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directories of the host in which Windlass and its runtime leave files.
const FOLDERS: [&str; 7] = [
    "/var/lib",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/log/pods",
    "/run",
    "/run/containerd",
    "/run/netns",
];
/// Processes with such a path on their command line belong to the DaemonSet.
const OURS: [&str; 2] = ["/var/lib/windlass", "/run/windlass"];
/// Marker that a test has installed Windlass.
const MARK: &str = "/var/lib/windlass/of-a-test";

/// Marks the installation as that of a test.
pub(crate) fn mark() {
    std::fs::create_dir_all("/var/lib/windlass").unwrap();
    std::fs::write(MARK, "").unwrap();
}

/// Everything on the host that an installation may change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    processes: BTreeSet<String>,
    mounts: BTreeSet<String>,
    interfaces: BTreeSet<PathBuf>,
    cgroups: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
    rules: BTreeSet<String>,
}

impl Machine {
    /// Reads the state of the host.
    pub(crate) fn read() -> Self {
        let mut cgroups = BTreeSet::new();
        folders_below(Path::new("/sys/fs/cgroup"), &mut cgroups);
        cgroups.retain(|it| !is_of_a_test(it));
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let rules = std::process::Command::new("iptables-save")
            .output()
            .unwrap();
        let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
        Self {
            processes: processes(),
            mounts: mounts.map(str::to_owned).collect(),
            interfaces: entries(Path::new("/sys/class/net"))
                .filter(|it| !is_of_a_test(it))
                .collect(),
            cgroups,
            files: FOLDERS
                .iter()
                .flat_map(|it| entries(Path::new(it)))
                .filter(|it| !is_of_a_test(it))
                .collect(),
            rules: rules
                .lines()
                .filter(|it| it.starts_with("-A"))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Additions since `before`, one line each.
    pub(crate) fn added_to(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(
            self.processes
                .difference(&before.processes)
                .map(|it| format!("process {it}")),
        );
        lines.extend(
            self.mounts
                .difference(&before.mounts)
                .map(|it| format!("mount {it}")),
        );
        lines.extend(
            self.rules
                .difference(&before.rules)
                .map(|it| format!("rule {it}")),
        );
        for (what, now, then) in [
            ("interface", &self.interfaces, &before.interfaces),
            ("cgroup", &self.cgroups, &before.cgroups),
            ("file", &self.files, &before.files),
        ] {
            lines.extend(
                now.difference(then)
                    .map(|it| format!("{what} {}", it.display())),
            );
        }
        lines
    }

    /// Fails if an installation is not detected, which would make the final check meaningless.
    pub(crate) fn check_something_of_each_kind_was_added(&self, before: &Self) {
        let added = self.added_to(before);
        for kind in [
            "process",
            "interface /sys/class/net/windlass0",
            "cgroup",
            "mount /run/windlass",
            "rule",
        ] {
            assert!(
                added.iter().any(|line| line.starts_with(kind)),
                "{kind}: {added:#?}"
            );
        }
    }
}

/// Removes what a failed or killed test run left: files as `clean.sh` does, and the processes that
/// `--cleanup-and-exit` did not stop.
///
/// # Panics
/// Windlass is installed, but not by a test.
pub(crate) fn remove_leftovers() {
    if OURS.iter().all(|path| !Path::new(path).exists()) {
        return;
    }
    assert!(
        Path::new(MARK).exists(),
        "the DaemonSet of Windlass is installed on this machine"
    );
    for process in processes() {
        let pid = process.trim_start_matches("/proc/").split(' ').next();
        run("kill", &["-KILL", pid.unwrap_or_default()]);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<_> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .collect();
    for mount in mounts
        .iter()
        .rev()
        .filter(|it| OURS.iter().any(|path| it.starts_with(path)))
    {
        run("umount", &["-l", mount]);
    }
    let mut cgroups = BTreeSet::new();
    folders_below(Path::new("/sys/fs/cgroup"), &mut cgroups);
    // nested ones sort after their parents
    for cgroup in cgroups
        .iter()
        .rev()
        .filter(|it| it.iter().any(|part| part == "windlass"))
    {
        let _ = std::fs::remove_dir(cgroup);
    }
    run("ip", &["link", "delete", "windlass0"]);
    for folder in OURS {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// True for files of a private containerd and its agent, also of concurrent tests: interfaces of a
/// bridge `wl-<name>`, cgroups below `/windlass-<name>`, links to logs in
/// `/tmp/windlass-<name>`.
fn is_of_a_test(path: &Path) -> bool {
    let named = |path: &Path| {
        let mut parts = path.iter().map(|part| part.to_string_lossy());
        parts.any(|part| part.starts_with("windlass-") || part.starts_with("wl-"))
    };
    let bridge = path.join("master");
    let links = [path, &bridge].map(std::fs::read_link);
    named(path) || links.into_iter().flatten().any(|to| named(&to))
}

/// Each step is idempotent.
fn run(program: &str, args: &[&str]) {
    let _ = std::process::Command::new(program).args(args).output();
}

/// Command lines of processes that belong to the DaemonSet or to its pods.
fn processes() -> BTreeSet<String> {
    let found = entries(Path::new("/proc")).filter_map(|folder| {
        let cgroups = std::fs::read_to_string(folder.join("cgroup")).ok()?;
        let command = std::fs::read(folder.join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let ours = cgroups.lines().any(|line| line.contains(":/windlass/"))
            || OURS.iter().any(|path| command.contains(path));
        ours.then(|| format!("{} {command}", folder.display()))
    });
    found.collect()
}

fn folders_below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in entries(folder).filter(|it| it.is_dir() && !it.is_symlink()) {
        folders_below(&entry, found);
        found.insert(entry);
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}
