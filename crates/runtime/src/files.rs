//! Port to the files of pods on the node.
//!
//! A path may be on a hung file system (a dead NFS server behind a hostPath), so each call has a
//! deadline and runs in the I/O queue of its pod: a hung call delays only its own pod.
//! [`HostFiles`] is the node's file system, [`MemoryFiles`] a model for simulations.

mod host;
mod memory;
mod own;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use windlass_cgroups::CgroupError;
use windlass_pod_inputs::paths::UnsafeNameError;
use windlass_runtime_config::container_config::SubPath;
use windlass_types::pod::SharedPod;
use windlass_types::{PodUid, Retry};
use windlass_volumes::{IoQueueError, RemoveError, SubPathError, VolumeError};

pub use host::{HostFiles, HostFilesConfig};
pub use memory::MemoryFiles;

/// Work of a queue, see [`PodFiles::run`].
pub type FileWork = Box<dyn FnOnce() -> Result<(), FilesError> + Send>;

/// Files of pods. All calls are idempotent and fail with [`FilesError::IoQueue`] instead of
/// hanging.
#[async_trait]
pub trait PodFiles: Send + Sync + Debug + 'static {
    /// Creates the pod's directories (data and logs).
    async fn prepare_pod(&self, pod: &SharedPod) -> Result<(), FilesError>;
    /// Text of a file of the node, such as `resolv.conf`.
    async fn read_node_file(&self, path: &Path) -> Result<String, FilesError>;
    /// Text of a file in a volume, which the pod may have written. `path` is resolved with the
    /// volume as root directory. At most [`windlass_pod_inputs::env::MAX_ENV_FILE_BYTES`].
    async fn read_volume_file(
        &self,
        uid: &PodUid,
        volume: &Path,
        path: &str,
    ) -> Result<String, FilesError>;
    /// Binds a subPath of a volume for a container. Runs in the queue of the pod's volumes, because
    /// it may hang with the volume.
    async fn prepare_sub_path(&self, uid: &PodUid, part: &SubPath) -> Result<(), FilesError>;
    /// User namespace files of all pods, as [`PodFiles::write_user_namespace`] wrote them.
    async fn list_user_namespaces(&self) -> Result<Vec<(PodUid, String)>, FilesError>;
    /// Writes the pod's user namespace file durably into its directory, which must exist.
    async fn write_user_namespace(&self, uid: &PodUid, text: &str) -> Result<(), FilesError>;
    /// Replaces the pod's `etc-hosts` file, mode 0644.
    async fn write_hosts_file(&self, uid: &PodUid, content: &str) -> Result<(), FilesError>;
    /// Creates the empty termination log of one container instance, mode 0666.
    async fn create_termination_log(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError>;
    /// Creates an empty file of the agent, mode 0600, in a directory of a container. It survives a
    /// kill of the agent, not a power failure.
    async fn create_marker(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError>;
    /// Whether a file of [`PodFiles::create_marker`] exists.
    async fn has_marker(&self, uid: &PodUid, path: &Path) -> Result<bool, FilesError>;
    /// Removes a file of [`PodFiles::create_marker`].
    async fn remove_marker(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError>;
    /// Removes the termination log of a removed container instance.
    async fn remove_termination_log(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError>;
    /// The last `max_bytes` of a termination log; empty if it is missing.
    async fn read_termination_message(
        &self,
        uid: &PodUid,
        path: &Path,
        max_bytes: usize,
    ) -> Result<String, FilesError>;
    /// The last `max_lines` lines, at most `max_bytes`, of a CRI log, without its time stamps.
    async fn read_log_tail(
        &self,
        uid: &PodUid,
        path: &Path,
        max_bytes: usize,
        max_lines: usize,
    ) -> Result<String, FilesError>;
    /// Names in a container's log directory; empty if it is missing.
    async fn list_log_names(&self, uid: &PodUid, dir: &Path) -> Result<Vec<String>, FilesError>;
    /// Creates or replaces the link in `/var/log/containers`. Only the name of `link` is used.
    async fn link_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError>;
    /// Removes the log of one container instance, its rotated files and its link.
    async fn remove_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError>;
    /// Removes the directory of a pod without volumes; fails while something is mounted in it.
    async fn remove_pod_dir(&self, uid: &PodUid) -> Result<(), FilesError>;
    /// Pods with a directory.
    async fn list_pod_dirs(&self) -> Result<Vec<PodUid>, FilesError>;
    /// Names of the pods' log directories, `<namespace>_<name>_<uid>`.
    async fn list_log_dirs(&self) -> Result<Vec<String>, FilesError>;
    /// Removes a pod's log directory.
    async fn remove_log_dir(&self, name: &str) -> Result<(), FilesError>;
    /// Names of the dangling links in `/var/log/containers`.
    async fn list_dangling_links(&self) -> Result<Vec<String>, FilesError>;
    /// Removes a link in `/var/log/containers`.
    async fn remove_link(&self, name: &str) -> Result<(), FilesError>;
    /// Runs other work on files in the queue of a pod.
    async fn run(
        &self,
        queue: &str,
        action: &'static str,
        work: FileWork,
    ) -> Result<(), FilesError>;
}

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A tree could not be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// A cgroup could not be created, written or removed.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A name of the pod is not a valid path component.
    #[error(transparent)]
    UnsafeNameError(#[from] UnsafeNameError),
    /// A subPath could not be bound for a container.
    #[error(transparent)]
    SubPath(#[from] SubPathError),
    /// A subPath could not be unmounted.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The file system rejected the operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Failed action.
        action: &'static str,
        /// Path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The operation timed out or its queue is saturated.
    #[error(transparent)]
    IoQueue(#[from] IoQueueError),
}

impl FilesError {
    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// Retry class.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Remove(error) => error.retry(),
            Self::Cgroup(error) => error.retry(),
            Self::UnsafeNameError(_) => Retry::Never,
            Self::Volume(error) => error.retry(),
            Self::SubPath(_) | Self::Io { .. } => Retry::Later,
            Self::IoQueue(error) => error.retry(),
        }
    }
}

#[cfg(test)]
mod tests;
