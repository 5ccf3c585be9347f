//! Devices, exclusive CPUs and their alignment.

mod cpus;
mod devices;
mod memory;

use serde_json::json;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::PodUid;
use windlass_types::cri::ContainerConfig;

use crate::fixture::*;

/// A pod whose container has these limits, which are its requests.
pub(crate) fn pod_with(name: &str, limits: &[(&str, &str)]) -> PodBuilder {
    let limits: serde_json::Map<_, _> = limits
        .iter()
        .map(|(resource, amount)| ((*resource).to_owned(), json!(amount)))
        .collect();
    PodBuilder::new(name)
        .bound_to(NODE)
        .grace(5)
        .container_with("app", "busybox:1", |container| {
            let resources = json!({"limits": limits, "requests": limits});
            container.resources = serde_json::from_value(resources).expect("resources");
        })
}

/// Configuration of the running container.
fn config(sim: &NodeSim, uid: &PodUid) -> ContainerConfig {
    let running = sim.runtime.running(uid, "app").expect("runs");
    sim.runtime.container_config(&running.id).expect("created")
}

/// Reason and message of the pod's status.
fn failure(sim: &NodeSim, name: &str) -> String {
    let status = get(sim, name)
        .and_then(|pod| pod.status)
        .unwrap_or_default();
    let part = |text: Option<String>| text.unwrap_or_default();
    format!("{}: {}", part(status.reason), part(status.message))
}
