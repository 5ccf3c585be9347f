//! Removes all resources of an instance, given its directory. Steps are idempotent, so that the next
//! sweep completes a killed one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::mount::{UnmountFlags, unmount};
use sha2::{Digest, Sha256};
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_types::cri::CgroupDriver;

use super::{network, process};
use crate::environment::{scaled, uses_systemd_driver};

/// Timeout of the exit after a kill; 50 pods have taken 2 s.
const KILL_DEADLINE: Duration = Duration::from_secs(30);
/// Rounds of kills: new processes may appear until the daemon is dead.
const KILL_ROUNDS: u32 = 5;

const CGROUPS: &str = "/sys/fs/cgroup";
const SHIM_SOCKETS: &str = "/run/containerd/s";
const CNI_CACHE: &str = "/var/lib/cni/results";
const LOG_SYMLINKS: &str = "/var/log/containers";
/// Top-level cgroups of pods: of Kubernetes, and the default of containerd.
const POD_CGROUPS: &[&str] = &["kubepods", "k8s.io"];
/// Directories created outside the instance, children first.
const SHARED_DIRECTORIES: &[&str] = &[
    SHIM_SOCKETS,
    "/run/containerd",
    CNI_CACHE,
    "/var/lib/cni",
    LOG_SYMLINKS,
];
/// File with the shared resources that existed before the instance.
const EXISTED: &str = "existed-before";

/// Records existing shared directories and cgroups, which are kept. Those created by a concurrent
/// instance are removed by the last instance.
pub(super) fn record_what_exists(base: &Path) -> anyhow::Result<()> {
    let others = other_records(base);
    let found_by_all = |path: &str| {
        others
            .iter()
            .all(|record| record.lines().any(|line| line == path))
    };
    let cgroups = pod_cgroups()
        .into_iter()
        .map(|dir| dir.to_string_lossy().into_owned());
    let shared = SHARED_DIRECTORIES.iter().map(|dir| (*dir).to_owned());
    let existing: Vec<String> = shared
        .chain(cgroups)
        .filter(|dir| Path::new(dir).exists() && found_by_all(dir))
        .collect();
    fs::write(base.join(EXISTED), existing.join("\n")).context("cannot write the record")
}

/// Returns the records of the other running instances.
fn other_records(base: &Path) -> Vec<String> {
    entries(base.parent().unwrap_or(base))
        .iter()
        .filter(|dir| dir.as_path() != base && dir.to_string_lossy().contains("/windlass-"))
        .filter_map(|dir| fs::read_to_string(dir.join(EXISTED)).ok())
        .collect()
}

/// Ends the processes of the instance at `base` and removes everything it owns except the
/// directory itself and the lock in it.
pub(super) fn sweep(base: &Path) -> anyhow::Result<()> {
    let name = base.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_prefix("windlass-").unwrap_or(&name).to_owned();
    // without a record, nothing was started
    let record = fs::read_to_string(base.join(EXISTED)).ok();
    kill(base)?;

    // all writers have exited
    let sandboxes = names(&base.join("root/io.containerd.grpc.v1.cri/sandboxes"));
    let bundles = entries(&base.join("state/io.containerd.runtime.v2.task/k8s.io"));
    let cgroups: Vec<String> = bundles
        .iter()
        .filter_map(|bundle| cgroup_of(bundle))
        .collect();
    remove_shim_sockets(base, &sandboxes);
    unmount_below(base)?;
    network::remove(&name)?;
    remove_cni_cache(&name, &sandboxes);
    remove_log_symlinks(base);
    for cgroup in &cgroups {
        remove_cgroup(cgroup);
    }
    if uses_systemd_driver() {
        stop_slice(base);
    }
    for hierarchy in hierarchies() {
        let root = base.file_name().map(|name| hierarchy.join(name));
        let _ = root.map(|root| remove_tree_of_cgroups(&root));
    }
    if let Some(record) = &record {
        remove_what_is_new(base, record);
    }
    for entry in entries(base) {
        if entry.file_name().is_some_and(|name| name == "lock") {
            continue;
        }
        let removed = if entry.is_dir() {
            fs::remove_dir_all(&entry)
        } else {
            fs::remove_file(&entry)
        };
        removed.with_context(|| format!("cannot remove {}", entry.display()))?;
    }
    Ok(())
}

fn kill(base: &Path) -> anyhow::Result<()> {
    let mut pids = BTreeSet::new();
    for _ in 0..KILL_ROUNDS {
        pids = process::of_instance(base);
        if pids.is_empty() {
            return Ok(());
        }
        if !process::kill_all(&pids, scaled(KILL_DEADLINE)) {
            break;
        }
        // a zombie has no command line
    }
    bail!("processes do not end: {pids:?}")
}

/// Removes the sockets of shims from the shared directory. Their names are a hash of containerd
/// address, namespace and sandbox ID.
fn remove_shim_sockets(base: &Path, ids: &[String]) {
    for id in ids {
        let name = base.join("containerd.sock").join("k8s.io").join(id);
        let hash = Sha256::digest(name.as_os_str().as_bytes());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = fs::remove_file(Path::new(SHIM_SOCKETS).join(hash));
    }
}

/// Removes sockets without a listener from the directory, if it was created by this instance: a
/// daemon killed during sandbox creation leaves them.
fn remove_dead_shim_sockets() {
    let Ok(bound) = fs::read_to_string("/proc/net/unix") else {
        return;
    };
    for socket in entries(Path::new(SHIM_SOCKETS)) {
        if !bound.contains(&*socket.to_string_lossy()) {
            let _ = fs::remove_file(socket);
        }
    }
}

fn unmount_below(base: &Path) -> anyhow::Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mount_points = table.lines().filter_map(|line| line.split(' ').nth(4));
    // in reverse mount order
    for mount_point in mount_points.rev() {
        let path = PathBuf::from(mount_point.replace("\\040", " "));
        if path.starts_with(base) {
            unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
                .with_context(|| format!("cannot unmount {}", path.display()))?;
        }
    }
    Ok(())
}

/// Removes cached CNI results, which a kill leaves.
fn remove_cni_cache(name: &str, sandboxes: &[String]) {
    let network = format!("{}-", network::network_name(name));
    for file in entries(Path::new(CNI_CACHE)) {
        let file_name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let of_sandbox = sandboxes.iter().any(|id| file_name.contains(id));
        if of_sandbox || file_name.starts_with(&network) {
            let _ = fs::remove_file(file);
        }
    }
}

fn remove_log_symlinks(base: &Path) {
    for link in entries(Path::new(LOG_SYMLINKS)) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(base)) {
            let _ = fs::remove_file(link);
        }
    }
}

/// Cgroups of the pods of the instance's agent.
pub(super) fn layout(base: &Path) -> CgroupLayout {
    let driver = match uses_systemd_driver() {
        true => CgroupDriver::Systemd,
        false => CgroupDriver::Cgroupfs,
    };
    let name = base.file_name().unwrap_or_default().to_string_lossy();
    CgroupLayout::new(driver, &name)
}

/// Stops the systemd slice of the instance's pods with its child units.
fn stop_slice(base: &Path) {
    let kubepods = layout(base).kubepods();
    let slice = kubepods.split('/').nth(1).unwrap_or_default();
    // fails if no pod has run
    let _ = Command::new("systemctl")
        .args(["--quiet", "stop", slice])
        .stderr(Stdio::null())
        .status();
}

/// `linux.cgroupsPath` of a bundle.
fn cgroup_of(bundle: &Path) -> Option<String> {
    let spec = fs::read(bundle.join("config.json")).ok()?;
    let spec: serde_json::Value = serde_json::from_slice(&spec).ok()?;
    Some(
        spec["linux"]["cgroupsPath"]
            .as_str()?
            .trim_start_matches('/')
            .to_owned(),
    )
}

/// Removes a container's cgroup in every hierarchy, and its pod's with the last container.
fn remove_cgroup(cgroup: &str) {
    for hierarchy in hierarchies() {
        let dir = hierarchy.join(cgroup);
        let _ = remove_tree_of_cgroups(&dir);
        let pod = dir.parent().filter(|parent| {
            parent
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("pod"))
        });
        if let Some(pod) = pod {
            let _ = fs::remove_dir(pod);
        }
    }
}

fn remove_what_is_new(base: &Path, record: &str) {
    let existed: BTreeSet<&Path> = record.lines().map(Path::new).collect();
    for cgroup in pod_cgroups() {
        if !existed.contains(cgroup.as_path()) {
            let _ = remove_tree_of_cgroups(&cgroup);
        }
    }
    if !existed.contains(Path::new(SHIM_SOCKETS)) {
        remove_dead_shim_sockets();
    }
    if !existed.contains(Path::new(CNI_CACHE)) && other_records(base).is_empty() {
        let _ = fs::remove_dir_all(CNI_CACHE);
    }
    for dir in SHARED_DIRECTORIES {
        if !existed.contains(Path::new(dir)) {
            // fails if another process uses the directory
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Removes a cgroup with rmdir, children first.
fn remove_tree_of_cgroups(dir: &Path) -> std::io::Result<()> {
    for child in entries(dir) {
        if child.is_dir() {
            remove_tree_of_cgroups(&child)?;
        }
    }
    fs::remove_dir(dir)
}

fn pod_cgroups() -> Vec<PathBuf> {
    let hierarchies = hierarchies();
    hierarchies
        .iter()
        .flat_map(|dir| POD_CGROUPS.iter().map(|name| dir.join(name)))
        .collect()
}

/// Returns the unified hierarchy, or the controllers of cgroup v1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root];
    }
    entries(&root)
        .into_iter()
        .filter(|dir| dir.is_dir())
        .collect()
}

/// Names of a directory's entries; empty if there is no such directory.
fn names(dir: &Path) -> Vec<String> {
    let names = entries(dir);
    let names = names.iter().filter_map(|entry| entry.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Paths of a directory's entries; empty if there is no such directory.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries.flatten().map(|entry| entry.path()).collect()
}
