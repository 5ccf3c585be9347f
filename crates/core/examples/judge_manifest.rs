//! What becomes of a manifest on a node: its pods, their UIDs and classes, and the first step.
//!
//! `cargo run -p windlass-core --example judge_manifest -- examples/web.yaml` reads a manifest as
//! the node `node1` would from its directory; without an argument it reads one of its own.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::path::Path;

use windlass_core::actions::{ActionsInput, compute_pod_actions};
use windlass_core::backoff::{BackoffPolicy, BackoffTable};
use windlass_core::manifest::Origin;
use windlass_core::resources::qos_class;
use windlass_core::static_pod;
use windlass_core::unsupported::unsupported_fields;
use windlass_types::{ObservedPod, Pod, PodExt, PodVerdicts, Timestamp};

const OWN: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  readinessGates: [{conditionType: example.com/in-rotation}]
  initContainers: [{name: prepare, image: busybox}]
  containers:
  - {name: web, image: nginx, resources: {requests: {cpu: 100m}}}
";

fn main() -> Result<(), Box<dyn Error>> {
    let (text, path) = match std::env::args().nth(1) {
        Some(path) => read(Path::new(&path)).map_err(|error| format!("{path}: {error}"))?,
        None => (OWN.as_bytes().to_vec(), "/manifests/web.yaml".to_owned()),
    };
    let loaded = static_pod::load(&text, &Origin::File(path), "node1")?;
    for warning in &loaded.warnings {
        println!("warning: {warning}");
    }
    for pod in &loaded.pods {
        println!("{}", pod.full_name());
        println!("  uid    {}", pod.uid());
        println!("  class  {}", qos_class(pod));
        for field in unsupported_fields(pod) {
            println!("  not acted upon: {field}");
        }
        println!("  first  {}", first_step(pod));
    }
    Ok(())
}

/// A file with its absolute path, which is part of the UID of what it holds.
fn read(path: &Path) -> std::io::Result<(Vec<u8>, String)> {
    let absolute = path.canonicalize()?;
    Ok((std::fs::read(path)?, absolute.display().to_string()))
}

/// What is to be done while nothing of the pod runs.
fn first_step(pod: &Pod) -> String {
    let input = ActionsInput {
        pod,
        observed: &ObservedPod::default(),
        backoff: &BackoffTable::default(),
        verdicts: &PodVerdicts::default(),
        policy: BackoffPolicy::DEFAULT,
        now: Timestamp::UNIX_EPOCH,
    };
    compute_pod_actions(input).to_string()
}
