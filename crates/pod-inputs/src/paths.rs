//! Paths of a pod on the node, as upstream.
//!
//! Log shippers, `crictl` and the Go kubelet read them. Names in a path come from pods, so callers
//! check them with [`check_component`] first.

use std::path::{Path, PathBuf};

use windlass_types::names::{CONTAINER_LOGS_DIR, DEFAULT_POD_LOGS_DIR};
use windlass_types::{ContainerId, Pod, PodExt, PodUid};

/// Max length of a file name in ext4; log symlinks are truncated to it.
const MAX_FILE_NAME: usize = 255;

/// The base directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePaths {
    /// `--root-dir`.
    pub root_dir: PathBuf,
    /// `podLogsDir`.
    pub pod_logs_dir: PathBuf,
}

impl Default for NodePaths {
    fn default() -> Self {
        Self {
            root_dir: PathBuf::from("/var/lib/kubelet"),
            pod_logs_dir: PathBuf::from(DEFAULT_POD_LOGS_DIR),
        }
    }
}

/// A name that cannot be one component of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} cannot be used as a file name")]
pub struct UnsafeNameError {
    /// Field of the pod.
    pub field: &'static str,
    /// Its value.
    pub value: String,
}

impl NodePaths {
    /// `pods`: the directories of pods.
    pub fn pods_dir(&self) -> PathBuf {
        self.root_dir.join("pods")
    }

    /// `pods/<uid>`.
    pub fn pod_dir(&self, uid: &PodUid) -> PathBuf {
        self.pods_dir().join(uid.as_str())
    }

    /// `pods/<uid>/volumes`.
    pub fn pod_volumes_dir(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("volumes")
    }

    /// `pods/<uid>/volumes/<plugin>/<volume>`, with a plugin such as `kubernetes.io/empty-dir`.
    pub fn pod_volume_dir(&self, uid: &PodUid, plugin: &str, volume: &str) -> PathBuf {
        self.pod_volumes_dir(uid)
            .join(escape_plugin(plugin))
            .join(volume)
    }

    /// `pods/<uid>/plugins`.
    pub fn pod_plugins_dir(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("plugins")
    }

    /// `pods/<uid>/etc-hosts`: mounted at `/etc/hosts`.
    pub fn etc_hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("etc-hosts")
    }

    /// `pods/<uid>/userns`: user IDs of the pod.
    pub fn user_namespace(&self, uid: &PodUid) -> PathBuf {
        self.pod_dir(uid).join("userns")
    }

    /// `pods/<uid>/containers/<container>`: termination logs.
    pub fn container_dir(&self, uid: &PodUid, container: &str) -> PathBuf {
        self.pod_dir(uid).join("containers").join(container)
    }

    /// `pods/<uid>/containers/<container>/<8 hex>`: termination log of one instance.
    pub fn termination_log(&self, uid: &PodUid, container: &str, nonce: u32) -> PathBuf {
        self.container_dir(uid, container)
            .join(format!("{nonce:08x}"))
    }

    /// `seccomp`: localhost seccomp profiles.
    pub fn seccomp_dir(&self) -> PathBuf {
        self.root_dir.join("seccomp")
    }

    /// `<podLogsDir>/<namespace>_<name>_<uid>`.
    pub fn pod_log_dir(&self, pod: &Pod) -> PathBuf {
        self.pod_logs_dir
            .join(format!("{}_{}_{}", pod.namespace(), pod.name(), pod.uid()))
    }

    /// `<podLogsDir>/<namespace>_<name>_<uid>/<container>`.
    pub fn container_log_dir(&self, pod: &Pod, container: &str) -> PathBuf {
        self.pod_log_dir(pod).join(container)
    }

    /// Absolute path of the log of one instance.
    pub fn container_log(&self, pod: &Pod, container: &str, restart_count: u32) -> PathBuf {
        self.pod_log_dir(pod)
            .join(container_log_path(container, restart_count))
    }
}

/// `<container>/<restart count>.log`, relative to the pod's log directory.
pub fn container_log_path(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// Returns the symlink to a container log in `/var/log/containers`:
/// `<pod>_<namespace>_<container>-<id>.log`, truncated before the suffix.
pub fn log_symlink(pod: &Pod, container: &str, id: &ContainerId) -> PathBuf {
    const SUFFIX: &str = ".log";
    let mut name = format!("{}_{container}-{id}", pod.full_name());
    let mut end = name.len().min(MAX_FILE_NAME - SUFFIX.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    Path::new(CONTAINER_LOGS_DIR).join(name + SUFFIX)
}

/// Returns the restart count of the next instance, from the names in the log directory of a
/// container: one more than the highest `N.log` or `N.log.<suffix>`, or 0.
pub fn restart_count_from_logs<'a>(names: impl IntoIterator<Item = &'a str>) -> u32 {
    next_count(names.into_iter().filter_map(restart_count_of_log))
}

/// True if [`restart_count_from_logs`] returns this count without the log of the instance that has
/// it: the log of the previous instance is there, or there was no previous one.
pub fn is_recoverable_without_log<'a>(
    names: impl IntoIterator<Item = &'a str>,
    restart_count: u32,
) -> bool {
    let counts = names.into_iter().filter_map(restart_count_of_log);
    next_count(counts.filter(|count| *count != restart_count)) == restart_count
}

fn next_count(counts: impl Iterator<Item = u32>) -> u32 {
    counts.max().map_or(0, |highest| highest.saturating_add(1))
}

/// Returns N for `N.log` and `N.log.<suffix>`.
fn restart_count_of_log(name: &str) -> Option<u32> {
    let (count, rest) = name.split_once(".log")?;
    let is_log = rest.is_empty() || rest.starts_with('.');
    let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
    count.parse().ok().filter(|_| is_log && digits)
}

/// Returns the directory name of a plugin: `kubernetes.io~empty-dir` for `kubernetes.io/empty-dir`.
pub fn escape_plugin(plugin: &str) -> String {
    plugin.replace('/', "~")
}

/// Rejects a name that is not a single path component.
///
/// # Errors
/// The value is empty, `.`, `..`, or contains a slash or a NUL.
pub fn check_component(field: &'static str, value: &str) -> Result<(), UnsafeNameError> {
    let unsafe_name =
        value.is_empty() || value == "." || value == ".." || value.contains(['/', '\0']);
    if unsafe_name {
        return Err(UnsafeNameError {
            field,
            value: value.to_owned(),
        });
    }
    Ok(())
}

/// Checks every name of a pod that becomes part of a path.
///
/// # Errors
/// The first name that is not safe.
pub fn check_pod_names(pod: &Pod) -> Result<(), UnsafeNameError> {
    check_component("metadata.name", pod.name())?;
    check_component("metadata.namespace", pod.namespace())?;
    check_component("metadata.uid", pod.uid().as_str())?;
    for container in pod.init_containers().iter().chain(pod.containers()) {
        check_component("container name", &container.name)?;
    }
    for volume in PodExt::spec(pod).volumes.iter().flatten() {
        check_component("volume name", &volume.name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
