//! Sets up the volumes of a pod in a temporary directory, updates one of them, and tears them down.
//!
//! `cargo run -p windlass-volumes --example show_a_config_map`
//!
//! Runs without a container runtime.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{from_value, json};
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload, VolumePayloads};
use windlass_types::{PodExt, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::plain_volumes;
use windlass_volumes::{HostVolumes, IoQueues, VolumePlugins, VolumeRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let paths = NodePaths {
        root_dir: root.path().to_owned(),
        pod_logs_dir: root.path().join("logs"),
    };
    // a call that takes longer returns an error; its thread continues
    let queues = Arc::new(IoQueues::new(Duration::from_secs(30)));
    let volumes = HostVolumes::new(paths, queues);
    let pod: SharedPod = Arc::new(from_value(json!({
        "metadata": {"namespace": "default", "name": "painter", "uid": "1234"},
        "spec": {
            "containers": [{"name": "app", "image": "painter"}],
            "volumes": [
                {"name": "colors", "configMap": {"name": "colors"}},
                {"name": "scratch", "emptyDir": {}},
            ],
        },
    }))?);

    for (second, color) in [(0, "blue"), (60, "grey")] {
        println!("the sky is {color}");
        let now = Timestamp::from_second(second)?;
        for volume in plain_volumes(&pod, &payload(color)) {
            let pod = pod.clone();
            let request = VolumeRequest { pod, volume, now };
            let mounted = volumes.set_up(&request).await?;
            if let Some(path) = mounted.path() {
                show(root.path(), path)?;
            }
        }
    }

    let uid = pod.uid();
    for found in volumes.find(&uid).await? {
        println!("torn down: {}/{}", found.plugin_dir, found.name);
        volumes.tear_down(&uid, &found).await?;
    }
    println!("left: {}", volumes.find(&uid).await?.len());
    Ok(())
}

/// The payload of a ConfigMap.
fn payload(color: &str) -> VolumePayloads {
    let file = PayloadFile {
        data: color.as_bytes().into(),
        mode: 0o644,
        owner: None,
    };
    let payload = VolumePayload {
        files: [("sky".to_owned(), file)].into(),
        in_memory: false,
    };
    [("colors".to_owned(), payload)].into()
}

/// A directory as `ls -l` shows it, and the files behind links.
fn show(root: &Path, directory: &Path) -> std::io::Result<()> {
    println!(
        "  {}",
        directory.strip_prefix(root).unwrap_or(directory).display()
    );
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        match std::fs::read_link(&path) {
            Ok(target) => println!("    {} -> {}", name.display(), target.display()),
            Err(_) => println!("    {}", name.display()),
        }
        if path.is_file() {
            println!("      {}", std::fs::read_to_string(path)?);
        }
    }
    Ok(())
}
