//! Finds and kills the processes of a private containerd through `/proc`.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Programs that belong to an instance if their command line contains its path.
const PROGRAMS: &[&str] = &[
    "containerd",
    "containerd-shim",
    "ctr",
    "crio",
    "conmon",
    "skopeo",
    "runc",
    "crun",
    "windlass",
    "kubelet",
    // control plane of the test
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// Returns the daemons and shims of the instance at `base`, with all descendants.
pub(super) fn of_instance(base: &Path) -> BTreeSet<i32> {
    let parents = parents();
    let ours = ancestors(&parents, std::process::id() as i32);
    let roots: BTreeSet<i32> = parents
        .keys()
        .copied()
        .filter(|pid| !ours.contains(pid) && is_program_of(*pid, base))
        .collect();
    parents
        .keys()
        .copied()
        .filter(|pid| !ancestors(&parents, *pid).is_disjoint(&roots) && !ours.contains(pid))
        .collect()
}

/// Kills the processes and waits up to `deadline` for each. Returns whether all have exited.
pub(super) fn kill_all(pids: &BTreeSet<i32>, deadline: Duration) -> bool {
    // open the handles first: a handle excludes PID reuse
    let handles: Vec<OwnedFd> = pids.iter().filter_map(|pid| open(*pid)).collect();
    for handle in &handles {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
    handles.iter().all(|handle| wait(handle, deadline))
}

/// Waits up to `deadline` for the exit of any process. Returns whether it has exited.
pub(crate) fn wait_for_exit(pid: u32, deadline: Duration) -> bool {
    open(pid as i32).is_none_or(|handle| wait(&handle, deadline))
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

fn wait(handle: &impl AsFd, deadline: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: deadline.as_secs() as i64,
        tv_nsec: i64::from(deadline.subsec_nanos()),
    };
    let mut polled = [PollFd::new(handle, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&timeout)), Ok(ready) if ready > 0)
}

/// Returns the parent PID of every process.
fn parents() -> HashMap<i32, i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // the name in parentheses may contain spaces and parentheses
            let fields = &stat[stat.rfind(')')? + 1..];
            Some((pid, fields.split_ascii_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

/// The process and everything above it.
fn ancestors(parents: &HashMap<i32, i32>, pid: i32) -> BTreeSet<i32> {
    let mut line = BTreeSet::new();
    let mut current = pid;
    while current > 0 && line.insert(current) {
        current = parents.get(&current).copied().unwrap_or(0);
    }
    line
}

fn is_program_of(pid: i32, base: &Path) -> bool {
    let Ok(command_line) = std::fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let mut args = command_line
        .split(|byte| *byte == 0)
        .map(|arg| String::from_utf8_lossy(arg).into_owned());
    let program = args.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let known = PROGRAMS.iter().any(|name| {
        program == *name
            || program
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('-'))
    });
    known
        && args.any(|arg| {
            arg.split(['=', ':'])
                .any(|part| Path::new(part).starts_with(base))
        })
}
