//! In-memory file system of the node for simulations, deterministic and without disk access.
//!
//! A simulation can make the calls of one pod fail or hang, and read the written files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use windlass_pod_inputs::paths::{self, NodePaths};
use windlass_runtime_config::container_config::SubPath;
use windlass_types::pod::SharedPod;
use windlass_types::{PodExt, PodUid};
use windlass_volumes::{MemoryVolumes, RemoveError, SubPathError};

use super::{FileWork, FilesError, PodFiles};
use crate::log_text::tail_of_log;

/// Interval at which hung work checks whether it still hangs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Implementation of [`PodFiles`] in memory. Clones share the content.
#[derive(Clone, Debug, Default)]
pub struct MemoryFiles {
    paths: NodePaths,
    volumes: MemoryVolumes,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeSet<PodUid>,
    logs: BTreeSet<String>,
    files: BTreeMap<PathBuf, String>,
    links: BTreeMap<PathBuf, PathBuf>,
    failing: BTreeMap<PodUid, String>,
    logs_fail: bool,
    hanging: BTreeSet<PodUid>,
    hung_queues: BTreeSet<String>,
    mounted: BTreeSet<PodUid>,
    leading_out: BTreeSet<String>,
    calls: Vec<String>,
}

impl State {
    fn check(&self, paths: &NodePaths, uid: &PodUid) -> Result<(), FilesError> {
        match self.failing.get(uid) {
            None => Ok(()),
            Some(text) => Err(FilesError::io(
                "make",
                &paths.pod_dir(uid),
                io::Error::other(text.clone()),
            )),
        }
    }
}

impl MemoryFiles {
    /// An empty node.
    pub fn new(paths: NodePaths) -> Self {
        Self {
            volumes: MemoryVolumes::new(paths.clone()),
            paths,
            state: Arc::default(),
        }
    }

    /// The pods' volumes, in their directories.
    pub fn volumes(&self) -> MemoryVolumes {
        self.volumes.clone()
    }

    /// Makes the creation of a pod's directories fail with this text, or succeed again.
    pub fn fail_pod(&self, uid: &PodUid, message: Option<&str>) {
        let mut state = self.state.lock();
        match message {
            Some(text) => state.failing.insert(uid.clone(), text.to_owned()),
            None => state.failing.remove(uid),
        };
    }

    /// Makes the removal of logs fail, or succeed again.
    #[cfg(test)]
    pub(crate) fn fail_log_removals(&self, fail: bool) {
        self.state.lock().logs_fail = fail;
    }

    /// Makes the creation of a pod's directories hang, or return again on the next call; a hung
    /// removal of its directory continues then.
    pub fn hang_pod(&self, uid: &PodUid, hang: bool) {
        let mut state = self.state.lock();
        if hang {
            state.hanging.insert(uid.clone());
        } else {
            state.hanging.remove(uid);
        }
    }

    /// Makes the work of an I/O queue hang, or continue.
    pub fn hang_queue(&self, queue: &str, hang: bool) {
        let mut state = self.state.lock();
        if hang {
            state.hung_queues.insert(queue.to_owned());
        } else {
            state.hung_queues.remove(queue);
        }
    }

    /// Sets the used bytes of a pod's volume; other volumes are unknown.
    pub fn fill_volume(&self, uid: &PodUid, volume: &str, bytes: u64) {
        self.volumes.fill(uid, volume, bytes);
    }

    /// Mounts a foreign file system in a pod's directory, so that it cannot be removed, or unmounts
    /// it.
    pub fn mount(&self, uid: &PodUid, mounted: bool) {
        let mut state = self.state.lock();
        if mounted {
            state.mounted.insert(uid.clone());
        } else {
            state.mounted.remove(uid);
        }
    }

    /// Makes every subPath a link that leaves its volume, or no longer.
    pub fn lead_out(&self, sub_path: &str, out: bool) {
        let mut state = self.state.lock();
        if out {
            state.leading_out.insert(sub_path.to_owned());
        } else {
            state.leading_out.remove(sub_path);
        }
    }

    /// Pods that have a directory.
    pub fn pod_dirs(&self) -> BTreeSet<PodUid> {
        let own = self.state.lock().pods.clone();
        own.into_iter().chain(self.volumes.pods()).collect()
    }

    /// Names of the pods' log directories.
    pub fn log_dirs(&self) -> BTreeSet<String> {
        self.state.lock().logs.clone()
    }

    /// Writes a file, such as a termination message.
    pub fn put(&self, path: impl Into<PathBuf>, content: &str) {
        self.state
            .lock()
            .files
            .insert(path.into(), content.to_owned());
    }

    /// Content of a file.
    pub fn get(&self, path: &Path) -> Option<String> {
        self.state.lock().files.get(path).cloned()
    }

    /// Every file: logs, termination logs, `etc-hosts`.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.lock().files.keys().cloned().collect()
    }

    /// Links in `/var/log/containers` and what they point to.
    pub fn links(&self) -> BTreeMap<PathBuf, PathBuf> {
        self.state.lock().links.clone()
    }

    /// Every call so far, one word and its subject.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    fn call(&self, word: &str, subject: impl std::fmt::Display) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.calls.push(format!("{word} {subject}"));
        state
    }
}

#[async_trait]
impl PodFiles for MemoryFiles {
    async fn prepare_pod(&self, pod: &SharedPod) -> Result<(), FilesError> {
        paths::check_pod_names(pod)?;
        let uid = pod.uid();
        let hangs = {
            let mut state = self.call("prepare", &uid);
            state.check(&self.paths, &uid)?;
            state.pods.insert(uid.clone());
            let name = format!("{}_{}_{}", pod.namespace(), pod.name(), uid);
            state.logs.insert(name);
            state.hanging.contains(&uid)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn read_node_file(&self, path: &Path) -> Result<String, FilesError> {
        let state = self.call("read", path.display());
        Ok(state.files.get(path).cloned().unwrap_or_default())
    }

    async fn read_volume_file(
        &self,
        uid: &PodUid,
        volume: &Path,
        path: &str,
    ) -> Result<String, FilesError> {
        let path = volume.join(path);
        let state = self.call("read-volume", uid);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let found = state.files.get(&path).cloned();
        found.ok_or_else(|| FilesError::io("read", &path, missing))
    }

    async fn prepare_sub_path(&self, uid: &PodUid, part: &SubPath) -> Result<(), FilesError> {
        let state = self.call("sub-path", part);
        state.check(&self.paths, uid)?;
        match state.leading_out.contains(&part.path) {
            false => Ok(()),
            true => Err(FilesError::SubPath(SubPathError::Open {
                volume: part.source.clone(),
                path: part.path.clone(),
                error: Errno::XDEV,
            })),
        }
    }

    async fn list_user_namespaces(&self) -> Result<Vec<(PodUid, String)>, FilesError> {
        let state = self.state.lock();
        let notes = state.pods.iter().filter_map(|uid| {
            let text = state.files.get(&self.paths.user_namespace(uid))?;
            Some((uid.clone(), text.clone()))
        });
        Ok(notes.collect())
    }

    async fn write_user_namespace(&self, uid: &PodUid, text: &str) -> Result<(), FilesError> {
        let path = self.paths.user_namespace(uid);
        self.call("userns", uid).files.insert(path, text.to_owned());
        Ok(())
    }

    async fn write_hosts_file(&self, uid: &PodUid, content: &str) -> Result<(), FilesError> {
        let path = self.paths.etc_hosts(uid);
        self.call("hosts", uid)
            .files
            .insert(path, content.to_owned());
        Ok(())
    }

    async fn create_termination_log(&self, uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.call("termination-log", uid)
            .files
            .insert(path.to_owned(), String::new());
        Ok(())
    }

    async fn create_marker(&self, _uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.state
            .lock()
            .files
            .insert(path.to_owned(), String::new());
        Ok(())
    }

    async fn has_marker(&self, _uid: &PodUid, path: &Path) -> Result<bool, FilesError> {
        Ok(self.state.lock().files.contains_key(path))
    }

    async fn remove_marker(&self, _uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.state.lock().files.remove(path);
        Ok(())
    }

    async fn remove_termination_log(&self, _uid: &PodUid, path: &Path) -> Result<(), FilesError> {
        self.state.lock().files.remove(path);
        Ok(())
    }

    async fn read_termination_message(
        &self,
        _uid: &PodUid,
        path: &Path,
        max_bytes: usize,
    ) -> Result<String, FilesError> {
        let state = self.state.lock();
        let text = state.files.get(path).map_or("", String::as_str);
        let start = text.len().saturating_sub(max_bytes);
        Ok(String::from_utf8_lossy(&text.as_bytes()[start..]).into_owned())
    }

    async fn read_log_tail(
        &self,
        _uid: &PodUid,
        path: &Path,
        max_bytes: usize,
        max_lines: usize,
    ) -> Result<String, FilesError> {
        let state = self.state.lock();
        let text = state.files.get(path).map_or("", String::as_str);
        Ok(tail_of_log(text.as_bytes(), max_bytes, max_lines))
    }

    async fn list_log_names(&self, _uid: &PodUid, dir: &Path) -> Result<Vec<String>, FilesError> {
        let state = self.call("list-logs", dir.display());
        Ok(state
            .files
            .keys()
            .filter(|path| path.parent() == Some(dir))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    async fn link_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError> {
        let mut state = self.call("link", uid);
        // the runtime creates the log; the model creates it with its link
        state.files.entry(log.to_owned()).or_default();
        state.links.insert(link.to_owned(), log.to_owned());
        Ok(())
    }

    async fn remove_container_log(
        &self,
        uid: &PodUid,
        link: &Path,
        log: &Path,
    ) -> Result<(), FilesError> {
        let mut state = self.call("remove-log", uid);
        if state.logs_fail {
            return Err(FilesError::io("remove", log, io::Error::other("read-only")));
        }
        state.files.remove(log);
        state.links.remove(link);
        Ok(())
    }

    async fn remove_pod_dir(&self, uid: &PodUid) -> Result<(), FilesError> {
        let dir = self.paths.pod_dir(uid);
        while self.state.lock().hanging.contains(uid) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let mut state = self.call("remove-pod", uid);
        if state.mounted.contains(uid) {
            let path = dir.join("volumes/foreign");
            return Err(RemoveError::Mounted { path }.into());
        }
        if !self.volumes.remove_pod(uid) {
            let path = dir.join("volumes");
            return Err(RemoveError::Mounted { path }.into());
        }
        state.pods.remove(uid);
        state.files.retain(|path, _| !path.starts_with(&dir));
        Ok(())
    }

    async fn list_pod_dirs(&self) -> Result<Vec<PodUid>, FilesError> {
        Ok(self.pod_dirs().into_iter().collect())
    }

    async fn list_log_dirs(&self) -> Result<Vec<String>, FilesError> {
        Ok(self.state.lock().logs.iter().cloned().collect())
    }

    async fn remove_log_dir(&self, name: &str) -> Result<(), FilesError> {
        let path = self.paths.pod_logs_dir.join(name);
        let mut state = self.call("remove-logs", name);
        state.logs.remove(name);
        state.files.retain(|file, _| !file.starts_with(&path));
        Ok(())
    }

    async fn list_dangling_links(&self) -> Result<Vec<String>, FilesError> {
        let state = self.state.lock();
        let dangling = state
            .links
            .iter()
            .filter(|(_, log)| !state.files.contains_key(*log));
        Ok(dangling
            .filter_map(|(link, _)| Some(link.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    async fn remove_link(&self, name: &str) -> Result<(), FilesError> {
        let mut state = self.call("remove-link", name);
        state
            .links
            .retain(|link, _| link.file_name().is_none_or(|n| n != name));
        Ok(())
    }

    async fn run(
        &self,
        queue: &str,
        _action: &'static str,
        work: FileWork,
    ) -> Result<(), FilesError> {
        while self.state.lock().hung_queues.contains(queue) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        work()
    }
}
