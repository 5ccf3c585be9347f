//! Logs and file systems of this host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::stat;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::{PodFilePaths, PodFiles};
use windlass_types::{PodUid, SharedPod};

use crate::measure::{MEASURE_TIMEOUT, NodeDisk};

/// The disk of this host. At most one blocking thread; a hung disk keeps it.
#[derive(Debug)]
pub struct HostDisk {
    paths: NodePaths,
    thread: Arc<Semaphore>,
}

impl HostDisk {
    /// Measures files below these directories.
    pub fn new(paths: NodePaths) -> Self {
        Self {
            paths,
            thread: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs `work` on the thread; `None` if it, or the work before it, does not end in time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&NodePaths) -> T + Send + 'static,
    ) -> Option<T> {
        let (thread, paths) = (Arc::clone(&self.thread), self.paths.clone());
        let run = async move {
            let permit = thread.acquire_owned().await.ok()?;
            let work = spawn_blocking(move || {
                let result = work(&paths);
                // held while the disk hangs
                drop(permit);
                result
            });
            work.await.ok()
        };
        timeout(MEASURE_TIMEOUT, run).await.ok().flatten()
    }
}

#[async_trait]
impl NodeDisk for HostDisk {
    async fn pod_files(&self, pods: Vec<SharedPod>) -> Option<HashMap<PodUid, PodFiles>> {
        let read = move |paths: &NodePaths| {
            let pods = pods.iter().map(|pod| PodFilePaths::from_pod(paths, pod));
            pods.map(|paths| (paths.uid.clone(), PodFiles::read(&paths)))
                .collect()
        };
        self.run(read).await
    }

    async fn is_on_node_fs(&self, dir: &Path) -> Option<bool> {
        let dir: PathBuf = dir.to_owned();
        let compare = move |paths: &NodePaths| {
            let devices = [stat(&paths.root_dir), stat(&dir)].map(|it| it.ok().map(|it| it.st_dev));
            devices[0]
                .zip(devices[1])
                .map(|(node, other)| node == other)
        };
        self.run(compare).await.flatten()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_types::PodExt;

    use super::*;

    #[tokio::test]
    async fn logs_and_file_systems_of_host_are_measured() {
        let dir = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            root_dir: dir.path().join("kubelet"),
            pod_logs_dir: dir.path().join("logs"),
        };
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
            "spec": {"containers": [{"name": "app"}]},
        });
        let pod: SharedPod = Arc::new(serde_json::from_value(pod).unwrap());
        let log_dir = paths.container_log_dir(&pod, "app");
        std::fs::create_dir_all(&log_dir).unwrap();
        std::fs::create_dir_all(&paths.root_dir).unwrap();
        std::fs::write(log_dir.join("0.log"), vec![b'x'; 100_000]).unwrap();
        let disk = HostDisk::new(paths.clone());
        let files = disk.pod_files(vec![SharedPod::clone(&pod)]).await.unwrap();
        let logs = files[&pod.uid()].logs["app"];
        assert!((100_000..200_000).contains(&logs.bytes) && logs.inodes == 1);
        assert_eq!(disk.is_on_node_fs(dir.path()).await, Some(true));
        assert_eq!(disk.is_on_node_fs(Path::new("/proc")).await, Some(false));
        assert_eq!(disk.is_on_node_fs(Path::new("/no/such")).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn hung_disk_returns_nothing_in_time() {
        let disk = HostDisk::new(NodePaths::default());
        let hung = disk.thread.acquire().await.unwrap();
        assert!(disk.pod_files(Vec::new()).await.is_none());
        drop(hung);
        assert!(disk.pod_files(Vec::new()).await.is_some());
    }
}
