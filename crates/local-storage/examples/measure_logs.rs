//! Measures the logs of a pod in a temporary directory.
//!
//! `cargo run -p windlass-local-storage --example measure_logs` prints bytes and inodes of a log.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use serde_json::json;
use windlass_local_storage::{HostDisk, NodeDisk};
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::{PodExt, SharedPod};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let paths = NodePaths {
        root_dir: dir.path().join("kubelet"),
        pod_logs_dir: dir.path().join("logs"),
    };
    let pod: SharedPod = Arc::new(serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "1234"},
        "spec": {"containers": [{"name": "app", "image": "nginx"}]},
    }))?);
    let log_dir = paths.container_log_dir(&pod, "app");
    std::fs::create_dir_all(&log_dir)?;
    std::fs::write(log_dir.join("0.log"), vec![b'x'; 1 << 20])?;

    let disk = HostDisk::new(paths);
    let files = disk.pod_files(vec![SharedPod::clone(&pod)]).await;
    let files = files.ok_or("the disk does not respond")?;
    for (container, usage) in &files[&pod.uid()].logs {
        println!(
            "{container}: {} bytes, {} inodes",
            usage.bytes, usage.inodes
        );
    }
    Ok(())
}
