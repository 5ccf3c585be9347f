//! The node before the run, and the observers of its parts.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use windlass_eviction::Signal;
use windlass_fake_api::Observed;
use windlass_testing::fake_runtime::Operation;
use windlass_testing::{FakeStateDisk, NodeSim, hard_eviction};
use windlass_types::Pod;
use windlass_types::corev1::Node;

use super::{Queue, World};
use crate::generate::CONFIGS;
use crate::observation::Event;
use crate::pods;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Memory of the node.
pub(super) const MEMORY: u64 = 10 * GIB;
/// Disk of the node.
pub(super) const DISK: u64 = 100 * GIB;
/// Memory that is left while it runs short, below the threshold of 100 MiB.
pub(super) const SHORT_MEMORY: u64 = 50 * MIB;
/// Disk that is left while it runs short, below the threshold of 10 %.
pub(super) const SHORT_DISK: u64 = 5 * GIB;
/// Time of a volume step's half.
const VOLUME_LATENCY: Duration = Duration::from_millis(3);

/// Latencies of a real runtime.
pub(super) const LATENCIES: [(Operation, Duration); 4] = [
    (Operation::RunPodSandbox, Duration::from_millis(80)),
    (Operation::CreateContainer, Duration::from_millis(20)),
    (Operation::StartContainer, Duration::from_millis(40)),
    (Operation::StopPodSandbox, Duration::from_millis(30)),
];

/// Sets up images, behaviors, resources, objects and state files.
pub(super) fn prepare(sim: &mut NodeSim) {
    for image in [pods::IMAGE, pods::OTHER_IMAGE] {
        sim.runtime.add_image(image);
    }
    for (operation, latency) in LATENCIES {
        sim.runtime.set_latency(operation, latency);
    }
    for (container, behavior) in pods::BEHAVIORS {
        sim.runtime.set_behavior(container, behavior());
    }
    sim.volumes.set_latency(VOLUME_LATENCY);
    sim.state_disk = Some(FakeStateDisk::default());
    sim.eviction = hard_eviction(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]);
    end_pressure(sim);
    for number in 0..CONFIGS {
        write_config(sim, number);
    }
    sim.api.create(&pods::csi_driver());
    for number in 0..pods::DISKS {
        let claim = sim.api.create(&pods::disk_claim(number));
        let uid = claim.metadata.uid.as_deref();
        sim.api.create(&pods::disk_volume(number, uid));
    }
}

/// A tenth of memory and disk is used apart from pods.
pub(super) fn end_pressure(sim: &NodeSim) {
    let pressure = &sim.pressure;
    pressure.set(Signal::MemoryAvailable, MEMORY, MEMORY / 10);
    pressure.set(Signal::NodeFsAvailable, DISK, DISK / 10);
}

/// Writes a ConfigMap with new content, and its Secret.
pub(super) fn write_config(sim: &NodeSim, number: u32) {
    use windlass_types::corev1::{ConfigMap, Secret};
    let name = pods::config_name(number);
    let map = pods::config_map(number, &sim.now().to_string());
    match sim.api.get::<ConfigMap>(Some("default"), &name) {
        None => drop(sim.api.create(&map)),
        Some(_) => drop(
            sim.api
                .modify::<ConfigMap>(Some("default"), &name, |old| old.data = map.data),
        ),
    }
    if sim.api.get::<Secret>(Some("default"), &name).is_none() {
        sim.api.create(&pods::secret(number));
    }
}

/// Sends everything that happens to the queue.
pub(super) fn observe(sim: &NodeSim, queue: &Queue) {
    let runtime = queue.clone();
    sim.runtime
        .observe(move |change| runtime.push(Event::Runtime(change)));
    let checks = queue.clone();
    sim.checks.observe(move |host, port| {
        checks.push(Event::Probe {
            host: host.to_owned(),
            port,
        });
    });
    let api = queue.clone();
    sim.api.observe(move |observed| match observed {
        Observed::Changed(change) if change.resource == "pods" => {
            if let Ok(pod) = Pod::deserialize(&*change.object) {
                api.push(Event::Pod {
                    pod: Arc::new(pod),
                    is_deleted: change.is_deleted,
                });
            }
        }
        Observed::Changed(change) if change.resource == "nodes" => {
            if let Ok(node) = Node::deserialize(&*change.object) {
                let ready = ready_status(&node).to_owned();
                let is_deleted = change.is_deleted;
                api.push(Event::Node { ready, is_deleted });
            }
        }
        Observed::Changed(change) if change.resource == "leases" && !change.is_deleted => {
            api.push(Event::Lease);
        }
        Observed::Served(request) if request.method != "GET" && request.path.contains("/pods") => {
            api.push(Event::Request {
                method: request.method.clone(),
                path: request.path.clone(),
                status: request.status,
                body: Arc::new(request.body.clone()),
            });
        }
        _ => {}
    });
}

/// Status of the condition Ready, or an empty text.
fn ready_status(node: &Node) -> &str {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|c| c.type_ == "Ready");
    ready.map(|c| c.status.as_str()).unwrap_or_default()
}

impl World<'_> {
    /// The device plugin registers, as it does after each agent start.
    pub(super) fn start_device_plugin(&self) {
        let devices = ["gpu0", "gpu1", "gpu2", "gpu3"].map(|id| (id, true));
        self.sim.devices.register(pods::DEVICE, &devices);
    }
}
