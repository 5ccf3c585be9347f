//! Loads the static pods of a manifest and prints their names, UIDs and warnings.
//!
//! `cargo run -p windlass-manifests --example load_manifest -- examples/web.yaml` loads a manifest
//! as the node `node1`; without an argument it loads one of its own.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::path::Path;

use windlass_manifests::image_name::PullPolicy;
use windlass_manifests::manifest::Origin;
use windlass_manifests::static_pod;
use windlass_types::PodExt;

const DEFAULT: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  initContainers: [{name: prepare, image: 'busybox:1.36'}]
  containers:
  - {name: web, image: nginx, port: 80}
";

fn main() -> Result<(), Box<dyn Error>> {
    let (text, path) = match std::env::args().nth(1) {
        Some(path) => read(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?,
        None => (
            DEFAULT.as_bytes().to_vec(),
            "/manifests/web.yaml".to_owned(),
        ),
    };
    let loaded = static_pod::load(&text, &Origin::File(path), "node1")?;
    for warning in &loaded.warnings {
        println!("warning: {warning}");
    }
    for pod in &loaded.pods {
        println!("{}", pod.full_name());
        println!("  UID  {}", pod.uid());
        for container in pod.init_containers().iter().chain(pod.containers()) {
            let image = container.image.as_deref().unwrap_or_default();
            let policy = PullPolicy::for_container(container);
            println!("  {}: {image} (pull policy {policy:?})", container.name);
        }
    }
    Ok(())
}

/// Reads a file; its absolute path is part of the UIDs.
fn read(path: &Path) -> std::io::Result<(Vec<u8>, String)> {
    let absolute = path.canonicalize()?;
    Ok((std::fs::read(path)?, absolute.display().to_string()))
}
