//! The node's own file system.
//!
//! Files that a container can write to (the termination log) or replace are opened without
//! following links and without blocking on a FIFO.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::OFlags;
use windlass_container_logs::open_beneath;
use windlass_pod_inputs::paths::{self, NodePaths};
use windlass_runtime_config::container_config::SubPath;
use windlass_types::names::CONTAINER_LOGS_DIR;
use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodUid};
use windlass_volumes::{
    IoQueues, MountPoint, RemoveError, clean_sub_paths, mounts_beneath, names_in_dir,
    prepare_sub_path, queue_for_path, remove_tree,
};

use super::{FileWork, FilesError, PodFiles, own};
use crate::log_text::tail_of_log;

/// Maximum bytes read of `resolv.conf` or `hosts`.
const MAX_NODE_FILE_BYTES: u64 = 1024 * 1024;

/// Settings of [`HostFiles`].
#[derive(Clone, Debug)]
pub struct HostFilesConfig {
    /// Root directory and log directory.
    pub paths: NodePaths,
    /// Directory of the links for log shippers.
    pub container_logs_dir: PathBuf,
    /// Timeout of one call.
    pub deadline: Duration,
}

impl HostFilesConfig {
    /// Upstream's directories and its two-minute limit for volumes (2m3s there).
    pub fn new(paths: NodePaths) -> Self {
        Self {
            paths,
            container_logs_dir: PathBuf::from(CONTAINER_LOGS_DIR),
            deadline: Duration::from_secs(123),
        }
    }
}

/// Implementation of [`PodFiles`] on the node.
#[derive(Debug)]
pub struct HostFiles {
    config: Arc<HostFilesConfig>,
    queues: Arc<IoQueues>,
}

impl HostFiles {
    /// Creates the port for the configured directories.
    pub fn new(config: HostFilesConfig) -> Self {
        Self {
            queues: Arc::new(IoQueues::new(config.deadline)),
            config: Arc::new(config),
        }
    }

    /// The I/O queues, for other work on the node's files.
    pub fn io_queues(&self) -> Arc<IoQueues> {
        Arc::clone(&self.queues)
    }

    /// Runs `work` on a path in the queue of a pod.
    async fn run_on<T: Send + 'static>(
        &self,
        uid: &PodUid,
        action: &'static str,
        path: &Path,
        work: impl FnOnce(&Path) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, FilesError> {
        let path = path.to_owned();
        let queued = self.queues.run(uid.as_str(), action, move || work(&path));
        queued.await
    }

    fn link_path(&self, link: &Path) -> PathBuf {
        self.config
            .container_logs_dir
            .join(link.file_name().unwrap_or_default())
    }
}

#[async_trait]
impl PodFiles for HostFiles {
    async fn prepare_pod(&self, pod: &SharedPod) -> Result<(), FilesError> {
        let (pod, config) = (pod.clone(), self.config.clone());
        let uid = pod.uid();
        self.queues
            .run(uid.as_str(), "making the pod's directories", move || {
                prepare(&config.paths, &pod)
            })
            .await
    }

    async fn read_node_file(&self, path: &Path) -> Result<String, FilesError> {
        let path = path.to_owned();
        let key = format!("node:{}", path.display());
        self.queues
            .run(&key, "reading a file of the node", move || {
                let mut text = String::new();
                File::open(&path)
                    .and_then(|file| file.take(MAX_NODE_FILE_BYTES).read_to_string(&mut text))
                    .map_err(|error| FilesError::io("read", &path, error))?;
                Ok(text)
            })
            .await
    }

    async fn read_volume_file(
        &self,
        uid: &PodUid,
        volume: &Path,
        path: &str,
    ) -> Result<String, FilesError> {
        let (volume, path) = (volume.to_owned(), path.to_owned());
        self.queues
            .run(uid.as_str(), "reading a file of a volume", move || {
                own::read_in_volume(&volume, &path)
                    .map_err(|error| FilesError::io("read", &volume.join(&path), error))
            })
            .await
    }

    async fn prepare_sub_path(&self, uid: &PodUid, part: &SubPath) -> Result<(), FilesError> {
        let part = part.clone();
        let queue = queue_for_path(uid, &part.source);
        self.queues
            .run_in(&queue, "preparing a subPath", move || {
                Ok(prepare_sub_path(&part)?)
            })
            .await
    }

    async fn list_user_namespaces(&self) -> Result<Vec<(PodUid, String)>, FilesError> {
        let paths = self.config.paths.clone();
        self.queues
            .run(
                "node:pods",
                "reading the pods' user namespaces",
                move || {
                    let pods = names_in(&paths.pods_dir())?.into_iter().map(PodUid::from);
                    own::user_namespaces(&paths, pods)
                },
            )
            .await
    }

    async fn write_user_namespace(&self, uid: &PodUid, text: &str) -> Result<(), FilesError> {
        paths::check_component("pod UID", uid.as_str())?;
        let path = self.config.paths.user_namespace(uid);
        let text = text.to_owned();
        self.queues
            .run(
                uid.as_str(),
                "writing the pod's user namespace",
                move || {
                    own::write_durably(&path, &text)
                        .map_err(|error| FilesError::io("write", &path, error))
                },
            )
            .await
    }

    async fn write_hosts_file(&self, uid: &PodUid, content: &str) -> Result<(), FilesError> {
        let path = self.config.paths.etc_hosts(uid);
        let content = content.to_owned();
        self.queues
            .run(uid.as_str(), "writing etc-hosts", move || {
                write_hosts(&path, &content)
            })
            .await
    }

    async fn create_termination_log(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.run_on(
            uid,
            "making the termination log",
            path,
            create_termination_log,
        )
        .await
    }

    async fn create_marker(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.run_on(uid, "recording a hook", path, create_marker)
            .await
    }

    async fn has_marker(&self, uid: &PodUid, path: &Path) -> Result<bool, FilesError> {
        self.run_on(uid, "reading the state of a hook", path, |path| {
            fs::exists(path).map_err(|error| FilesError::io("read", path, error))
        })
        .await
    }

    async fn remove_marker(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.run_on(uid, "recording the end of a hook", path, remove_file)
            .await
    }

    async fn remove_termination_log(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        paths::check_component("pod UID", uid.as_str())?;
        self.run_on(uid, "removing a termination log", path, remove_file)
            .await
    }

    async fn read_termination_message(
        &self,
        uid: &PodUid,
        path: &Path,
        max_bytes: usize,
    ) -> Result<String, FilesError> {
        let path = path.to_owned();
        self.queues
            .run(uid.as_str(), "reading the termination log", move || {
                let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let opened = OpenOptions::new()
                    .read(true)
                    .custom_flags(flags.bits() as i32)
                    .open(&path);
                let bytes = end_of(opened, max_bytes)
                    .map_err(|error| FilesError::io("read", &path, error))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            })
            .await
    }

    async fn read_log_tail(
        &self,
        uid: &PodUid,
        path: &Path,
        max_bytes: usize,
        max_lines: usize,
    ) -> Result<String, FilesError> {
        let (path, root) = (path.to_owned(), self.config.paths.pod_logs_dir.clone());
        self.queues
            .run(uid.as_str(), "reading the end of a log", move || {
                // time stamp, stream and tag take about 40 bytes of each line
                let limit = max_bytes + max_lines * 64;
                let bytes = end_of(open_beneath(&root, &path), limit)
                    .map_err(|error| FilesError::io("read", &path, error))?;
                Ok(tail_of_log(&bytes, max_bytes, max_lines))
            })
            .await
    }

    async fn list_log_names(&self, uid: &PodUid, dir: &Path) -> Result<Vec<String>, FilesError> {
        self.run_on(uid, "listing logs", dir, names_in).await
    }

    async fn link_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError> {
        let (link, log) = (self.link_path(link), log.to_owned());
        self.queues
            .run(uid.as_str(), "linking a log", move || link_log(&link, &log))
            .await
    }

    async fn remove_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError> {
        let (link, log) = (self.link_path(link), log.to_owned());
        self.queues
            .run(uid.as_str(), "removing a log", move || {
                remove_log(&log)?;
                remove_file(&link)
            })
            .await
    }

    async fn remove_pod_dir(&self, uid: &PodUid) -> Result<(), FilesError> {
        paths::check_component("pod UID", uid.as_str())?;
        let dir = self.config.paths.pod_dir(uid);
        self.queues
            .run(uid.as_str(), "removing the pod directory", move || {
                // subPaths of volumes without their own directory, such as hostPath
                clean_sub_paths(&dir, None)?;
                refuse_if_mounted(&dir)?;
                Ok(remove_tree(&dir)?)
            })
            .await
    }

    async fn list_pod_dirs(&self) -> Result<Vec<PodUid>, FilesError> {
        let dir = self.config.paths.pods_dir();
        self.queues
            .run("node:pods", "listing pod directories", move || {
                Ok(names_in(&dir)?.into_iter().map(PodUid::from).collect())
            })
            .await
    }

    async fn list_log_dirs(&self) -> Result<Vec<String>, FilesError> {
        let dir = self.config.paths.pod_logs_dir.clone();
        self.queues
            .run("node:logs", "listing log directories", move || {
                names_in(&dir)
            })
            .await
    }

    async fn remove_log_dir(&self, name: &str) -> Result<(), FilesError> {
        paths::check_component("log directory", name)?;
        let path = self.config.paths.pod_logs_dir.join(name);
        self.queues
            .run(name, "removing a log directory", move || {
                Ok(remove_tree(&path)?)
            })
            .await
    }

    async fn list_dangling_links(&self) -> Result<Vec<String>, FilesError> {
        let dir = self.config.container_logs_dir.clone();
        self.queues
            .run("node:links", "listing dangling log links", move || {
                let names = names_in(&dir)?.into_iter();
                Ok(names.filter(|name| dangles(&dir.join(name))).collect())
            })
            .await
    }

    async fn remove_link(&self, name: &str) -> Result<(), FilesError> {
        paths::check_component("log link", name)?;
        let link = self.config.container_logs_dir.join(name);
        self.queues
            .run("node:links", "removing a log link", move || {
                // the log may have been created again
                if dangles(&link) {
                    remove_file(&link)
                } else {
                    Ok(())
                }
            })
            .await
    }

    async fn run(
        &self,
        queue: &str,
        action: &'static str,
        work: FileWork,
    ) -> Result<(), FilesError> {
        self.queues.run(queue, action, work).await
    }
}

/// Fails if something is still mounted in the pod's directory: then nothing in it may be removed.
fn refuse_if_mounted(dir: &Path) -> Result<(), FilesError> {
    let mounts = mounts_beneath(dir);
    let mounts = mounts.map_err(|error| FilesError::io("list mounts in", dir, error))?;
    match mounts.into_iter().next() {
        Some(MountPoint { path, .. }) => Err(RemoveError::Mounted { path }.into()),
        None => Ok(()),
    }
}

fn prepare(paths: &NodePaths, pod: &SharedPod) -> Result<(), FilesError> {
    paths::check_pod_names(pod)?;
    let uid = pod.uid();
    make_dir(&paths.pods_dir(), 0o750)?;
    make_dir(&paths.pod_dir(&uid), 0o750)?;
    make_dir(&paths.pod_volumes_dir(&uid), 0o750)?;
    make_dir(&paths.pod_plugins_dir(&uid), 0o750)?;
    for container in pod.init_containers().iter().chain(pod.containers()) {
        make_dir(&paths.container_dir(&uid, &container.name), 0o750)?;
        make_dir(&paths.container_log_dir(pod, &container.name), 0o750)?;
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> Result<(), FilesError> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|error| FilesError::io("create directory", path, error))
}

/// Writes in place, because the file is bind-mounted into running containers. Unchanged content is
/// not written, and the file is never empty in between.
fn write_hosts(path: &Path, content: &str) -> Result<(), FilesError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(|error| FilesError::io("open", path, error))?;
    replace_text(&mut file, content).map_err(|error| FilesError::io("write", path, error))
}

fn replace_text(file: &mut File, content: &str) -> io::Result<()> {
    let mut old = Vec::new();
    // one more byte detects a longer text
    let max_bytes = content.len() as u64 + 1;
    Read::by_ref(file).take(max_bytes).read_to_end(&mut old)?;
    if old != content.as_bytes() {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(content.as_bytes())?;
        file.set_len(content.len() as u64)?;
    }
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

fn create_termination_log(path: &Path) -> Result<(), FilesError> {
    if let Some(dir) = path.parent() {
        make_dir(dir, 0o750)?;
    }
    // open applies the umask; containers of any user must be able to write
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .and_then(|file| file.set_permissions(fs::Permissions::from_mode(0o666)))
        .map_err(|error| FilesError::io("create", path, error))
}

fn create_marker(path: &Path) -> Result<(), FilesError> {
    if let Some(dir) = path.parent() {
        make_dir(dir, 0o750)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).mode(0o600);
    let opened = options
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path);
    opened
        .map(drop)
        .map_err(|error| FilesError::io("create", path, error))
}

/// Last bytes of a regular file; empty for a missing or other file.
fn end_of(opened: io::Result<File>, max_bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Vec::new());
    }
    let start = metadata.len().saturating_sub(max_bytes as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(max_bytes as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn names_in(dir: &Path) -> Result<Vec<String>, FilesError> {
    names_in_dir(dir).map_err(|error| FilesError::io("list", dir, error))
}

fn link_log(link: &Path, log: &Path) -> Result<(), FilesError> {
    let failed = |error| FilesError::io("link", link, error);
    for _ in 0..2 {
        match symlink(log, link) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let dir = link.parent().unwrap_or(Path::new("/"));
                make_dir(dir, 0o755)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_link(link).is_ok_and(|target| target == log) {
                    return Ok(());
                }
                fs::remove_file(link).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    symlink(log, link).map_err(failed)
}

fn remove_file(path: &Path) -> Result<(), FilesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(FilesError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// The log and `<log>.<date>`, `<log>.<date>.gz`.
fn remove_log(log: &Path) -> Result<(), FilesError> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|n| n.to_str())) else {
        return Ok(());
    };
    let rotated = format!("{name}.");
    for other in names_in(dir)? {
        if other == name || other.starts_with(&rotated) {
            remove_file(&dir.join(other))?;
        }
    }
    Ok(())
}

fn dangles(link: &Path) -> bool {
    let is_link = fs::symlink_metadata(link).is_ok_and(|m| m.file_type().is_symlink());
    is_link && fs::metadata(link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
