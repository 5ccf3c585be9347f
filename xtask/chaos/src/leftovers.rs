//! What remains of pods on the host after all were deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use windlass_testbed::agent::Agent;
use windlass_testbed::containerd::PrivateContainerd;

/// Text of containerd for a start that was cut off before it had read the PID of the task.
const TASK_LOST: &str = "failed to get task pid";

/// Kinds of leftovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Mounts below the agent's root directory and of tasks of containerd.
    Mounts,
    /// Cgroups of pods and containers.
    Cgroups,
    /// Directories of pods and of their logs, and links to logs.
    Files,
    /// Open descriptors of the agent.
    AgentDescriptors,
    /// Open descriptors of containerd.
    ContainerdDescriptors,
    /// Sandboxes, containers and tasks in containerd.
    Sandboxes,
    /// Shims.
    Shims,
    /// Writable snapshots.
    Snapshots,
    /// Network namespaces and addresses.
    Networks,
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Mounts,
        Self::Cgroups,
        Self::Files,
        Self::AgentDescriptors,
        Self::ContainerdDescriptors,
        Self::Sandboxes,
        Self::Shims,
        Self::Snapshots,
        Self::Networks,
    ];

    /// Number that may remain: descriptors of idle connections and log files vary. Of a container whose
    /// task containerd has lost remain its record and its task, its root file system (a mount, a snapshot),
    /// and its sandbox (a record, a snapshot).
    pub(crate) fn budget(self, lost_tasks: usize) -> usize {
        match self {
            Self::AgentDescriptors | Self::ContainerdDescriptors => 10,
            Self::Mounts => lost_tasks,
            Self::Sandboxes => 3 * lost_tasks,
            Self::Snapshots => 2 * lost_tasks,
            _ => 0,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mounts => "mounts",
            Self::Cgroups => "cgroups",
            Self::Files => "pod directories, log directories, log links",
            Self::AgentDescriptors => "descriptors of the agent",
            Self::ContainerdDescriptors => "descriptors of containerd",
            Self::Sandboxes => "sandboxes, containers, tasks",
            Self::Shims => "shims",
            Self::Snapshots => "writable snapshots",
            Self::Networks => "network namespaces and addresses",
        })
    }
}

/// Counted objects by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<Kind, Vec<String>>);

impl Counts {
    /// Number of objects beyond those of `before`, and some of their names.
    pub(crate) fn since(&self, before: &Self, kind: Kind) -> (usize, Vec<String>) {
        let of = |counts: &Self| counts.0.get(&kind).cloned().unwrap_or_default();
        let (now, before) = (of(self), of(before));
        let new: Vec<String> = match kind {
            // a descriptor has no lasting name
            Kind::AgentDescriptors | Kind::ContainerdDescriptors => now
                .get(before.len().min(now.len())..)
                .unwrap_or_default()
                .to_vec(),
            _ => now
                .into_iter()
                .filter(|name| !before.contains(name))
                .collect(),
        };
        (new.len(), new)
    }

    /// Reads what exists. Mounts of the run itself are at the paths `own`.
    pub(crate) async fn read(
        containerd: &PrivateContainerd,
        agent: &Agent,
        own: &[PathBuf],
    ) -> anyhow::Result<Self> {
        let base = containerd.base();
        let mut counts = BTreeMap::new();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        counts.insert(Kind::Mounts, mounts_below(&mounts, base, own));
        let cgroup = containerd.cgroup_root();
        counts.insert(Kind::Cgroups, cgroups_of_pods(&cgroup));
        let mut files = names(&agent.root_dir().join("pods"));
        files.extend(names(&base.join("logs")));
        files.extend(log_links(Path::new("/var/log/containers"), base));
        counts.insert(Kind::Files, files);
        for (kind, pid) in [
            (Kind::AgentDescriptors, agent.pid()),
            (Kind::ContainerdDescriptors, containerd.daemon_pid()),
        ] {
            let pid = pid.unwrap_or_default();
            counts.insert(kind, links(&PathBuf::from(format!("/proc/{pid}/fd"))));
        }
        let column = |text: String| -> Vec<String> {
            let rows = text.lines().skip(1);
            let first = rows.filter_map(|row| row.split_ascii_whitespace().next());
            first.map(str::to_owned).collect()
        };
        let mut sandboxes = column(containerd.ctr(&["containers", "ls"]).await?);
        sandboxes.extend(column(containerd.ctr(&["tasks", "ls"]).await?));
        counts.insert(Kind::Sandboxes, sandboxes);
        let snapshots = containerd.ctr(&["snapshots", "ls"]).await?;
        let active = snapshots
            .lines()
            .filter(|row| row.trim_end().ends_with("Active"));
        counts.insert(Kind::Snapshots, active.map(str::to_owned).collect());
        counts.insert(
            Kind::Shims,
            shims(base).into_iter().map(|(id, _)| id).collect(),
        );
        let mut networks = names(&base.join("state/io.containerd.grpc.v1.cri/netns"));
        networks.extend(addresses(&base.join("ipam")));
        counts.insert(Kind::Networks, networks);
        Ok(Self(counts))
    }
}

/// Number of containers whose start was cut off when their task existed, from the log of containerd. It
/// has lost these tasks: until it restarts, the containers can be neither stopped nor removed.
pub(crate) fn lost_tasks(log: &str) -> usize {
    let failed = log.lines().filter(|line| line.contains(TASK_LOST));
    let ids = failed.filter_map(|line| {
        let (_, rest) = line.split_once("StartContainer for \\\"")?;
        rest.split_once('\\').map(|(id, _)| id)
    });
    ids.collect::<BTreeSet<_>>().len()
}

/// Sandbox ID and PID of the shims of an instance.
pub(crate) fn shims(base: &Path) -> Vec<(String, u32)> {
    let pids = names(Path::new("/proc"))
        .into_iter()
        .filter_map(|name| name.parse().ok());
    let shim = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let args: Vec<String> = line
            .split(|byte| *byte == 0)
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect();
        sandbox_of_shim(&args, base).map(|id| (id, pid))
    };
    pids.filter_map(shim).collect()
}

fn sandbox_of_shim(args: &[String], base: &Path) -> Option<String> {
    let program = args.first()?.rsplit('/').next()?;
    let ours = args.iter().any(|arg| Path::new(arg).starts_with(base));
    let id = args.iter().position(|arg| arg == "-id")?;
    // `start` and `delete` are short-lived commands of the same program
    let command = args.iter().any(|arg| arg == "start" || arg == "delete");
    (program.starts_with("containerd-shim") && ours && !command)
        .then(|| args.get(id + 1).cloned())
        .flatten()
}

fn mounts_below(mountinfo: &str, base: &Path, own: &[PathBuf]) -> Vec<String> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(base))
        .filter(|point| own.iter().all(|own| own != Path::new(point)))
        .map(str::to_owned)
        .collect()
}

/// Cgroups two levels or more below the root of the instance: those of QoS classes stay.
fn cgroups_of_pods(root: &str) -> Vec<String> {
    let root = root.trim_start_matches('/');
    let hierarchies = names(Path::new("/sys/fs/cgroup"));
    let mut found = Vec::new();
    for hierarchy in hierarchies.iter().map(String::as_str).chain([""]) {
        let dir = Path::new("/sys/fs/cgroup").join(hierarchy).join(root);
        found.extend(pod_directories(&dir));
    }
    found.sort();
    found.dedup();
    found
}

fn pod_directories(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(dir) {
        let path = dir.join(&name);
        if !path.is_dir() {
            continue;
        }
        if name.starts_with("pod") && name.len() > "pod".len() || is_id(&name) {
            found.push(path.display().to_string());
        }
        found.extend(pod_directories(&path));
    }
    found
}

fn is_id(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Addresses that the network plug-in has reserved in its directory.
fn addresses(dir: &Path) -> Vec<String> {
    let networks = names(dir).into_iter().map(|name| dir.join(name));
    let files = networks.flat_map(|network| names(&network));
    let is_address = |name: &String| name.parse::<std::net::IpAddr>().is_ok();
    files.filter(is_address).collect()
}

fn log_links(dir: &Path, base: &Path) -> Vec<String> {
    let all = names(dir).into_iter().map(|name| dir.join(name));
    let ours = all.filter(|link| fs::read_link(link).is_ok_and(|target| target.starts_with(base)));
    ours.map(|link| link.display().to_string()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn links(dir: &Path) -> Vec<String> {
    let target = |name: &String| fs::read_link(dir.join(name)).ok();
    let targets = names(dir);
    let targets = targets.iter().filter_map(target);
    targets.map(|target| target.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_the_instance_are_found() {
        let text = "1 0 0:1 / / rw - ext4 /dev/x rw\n\
                    2 1 0:2 / /tmp/windlass-chaos/agent/root rw - tmpfs none rw\n\
                    3 1 0:2 / /tmp/windlass-chaos/agent/root/pods/u/volumes/v rw - tmpfs none rw\n\
                    4 1 0:2 / /tmp/windlass-chaos2/x rw - tmpfs none rw\n";
        let base = Path::new("/tmp/windlass-chaos");
        let own = [base.join("agent/root")];
        let found = mounts_below(text, base, &own);
        assert_eq!(found, ["/tmp/windlass-chaos/agent/root/pods/u/volumes/v"]);
    }

    #[test]
    fn only_long_lived_shims_of_the_instance_count() {
        let base = Path::new("/tmp/windlass-chaos");
        let shim = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            sandbox_of_shim(&args, base)
        };
        let text = "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id abc \
                    -address /tmp/windlass-chaos/containerd.sock";
        assert_eq!(shim(text).as_deref(), Some("abc"));
        assert_eq!(shim(&format!("{text} start")), None);
        assert_eq!(shim(&text.replace("chaos", "other")), None);
        assert_eq!(shim("/bin/sleep -id abc /tmp/windlass-chaos"), None);
    }

    #[test]
    fn each_lost_task_is_counted_once() {
        let failed = |id: &str, error: &str| {
            format!(
                "time=t level=error msg=\"StartContainer for \\\"{id}\\\" failed\" error=\"{error}\"\n"
            )
        };
        let lost = "failed to start containerd task: failed to get task pid: context canceled";
        let log = [
            failed("a", lost),
            failed("b", "failed to create shim task: context canceled"),
            failed("c", lost),
            failed("c", lost),
            "time=t level=info msg=\"failed to get task pid\"\n".to_owned(),
        ];
        assert_eq!(lost_tasks(&log.concat()), 2);
        assert_eq!(lost_tasks(""), 0);
        assert_eq!(Kind::Sandboxes.budget(2), 6);
        assert_eq!(Kind::Files.budget(2), 0);
    }

    #[test]
    fn new_names_are_counted_and_descriptors_by_number() {
        let counts = |kind: Kind, names: &[&str]| {
            Counts([(kind, names.iter().map(|name| (*name).to_owned()).collect())].into())
        };
        let since = |kind, now: &[&str], before: &[&str]| {
            counts(kind, now).since(&counts(kind, before), kind).0
        };
        assert_eq!(since(Kind::Mounts, &["a", "b"], &["a", "c"]), 1);
        assert_eq!(since(Kind::AgentDescriptors, &["a", "b"], &["c", "d"]), 0);
        assert_eq!(
            since(Kind::AgentDescriptors, &["a", "b", "c"], &["c", "d"]),
            1
        );
        assert_eq!(since(Kind::AgentDescriptors, &[], &["c", "d"]), 0);
    }

    #[test]
    fn directories_of_pods_and_containers_are_found() {
        let dir = std::env::temp_dir().join(format!("chaos-cgroups-{}", std::process::id()));
        let id = "a".repeat(64);
        fs::create_dir_all(dir.join("kubepods/burstable/podu").join(&id)).unwrap();
        assert_eq!(pod_directories(&dir).len(), 2);
        fs::remove_dir_all(dir.join("kubepods/burstable/podu")).unwrap();
        assert_eq!(pod_directories(&dir), Vec::<String>::new());
        fs::remove_dir_all(&dir).unwrap();
    }
}
