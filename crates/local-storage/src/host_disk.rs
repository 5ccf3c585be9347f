//! Logs and file systems of this host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::fs::stat;
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::{PodFilePaths, PodFiles, SingleFlightIo};
use windlass_types::{PodUid, SharedPod};

use crate::measure::{MEASURE_TIMEOUT, NodeDisk};

/// The disk of this host. At most one blocking thread; a hung disk keeps it.
#[derive(Debug)]
pub struct HostDisk(SingleFlightIo<NodePaths, ()>);

impl HostDisk {
    /// Measures files below these directories.
    pub fn new(paths: NodePaths) -> Self {
        Self(SingleFlightIo::new(paths))
    }
}

#[async_trait]
impl NodeDisk for HostDisk {
    async fn pod_files(&self, pods: Vec<SharedPod>) -> Option<HashMap<PodUid, PodFiles>> {
        let read = move |paths: &mut NodePaths| {
            let pods = pods.iter().map(|pod| PodFilePaths::from_pod(paths, pod));
            pods.map(|paths| (paths.uid.clone(), PodFiles::read(&paths)))
                .collect()
        };
        self.0.run(MEASURE_TIMEOUT, read).await
    }

    async fn is_on_node_fs(&self, dir: &Path) -> Option<bool> {
        let dir: PathBuf = dir.to_owned();
        let compare = move |paths: &mut NodePaths| {
            let devices = [stat(&paths.root_dir), stat(&dir)].map(|it| it.ok().map(|it| it.st_dev));
            devices[0]
                .zip(devices[1])
                .map(|(node, other)| node == other)
        };
        self.0.run(MEASURE_TIMEOUT, compare).await.flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
}
