//! Setup of scenarios, and queries of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_fake_api::RequestRecord;
use windlass_testing::fake_runtime::Operation;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::coordinationv1::Lease;
use windlass_types::corev1::Node;
use windlass_types::{Pod, PodExt, PodUid, Timestamp};

use crate::SECOND;

pub(crate) const NODE: &str = "sim";

/// Runs a scenario on a node that has joined and is ready.
pub(crate) fn on_a_ready_node<R>(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    simulate_cluster(seed, async |sim| {
        latencies(sim);
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        scenario(sim).await
    })
}

/// Latencies of a real runtime.
pub(crate) fn latencies(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    let calls = [
        (Operation::RunPodSandbox, 80),
        (Operation::CreateContainer, 20),
        (Operation::StartContainer, 40),
    ];
    for (operation, milliseconds) in calls {
        let latency = Duration::from_millis(milliseconds);
        sim.runtime.set_latency(operation, latency);
    }
}

/// A pod of the API server with one container, bound to the node.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .bound_to(NODE)
        .container("app", "busybox:1")
        .grace(5)
}

/// A static pod with one container.
pub(crate) fn static_pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

/// Creates a pod and returns the UID it was given.
pub(crate) fn create(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    sim.api.create(&pod.build()).uid()
}

pub(crate) fn get(sim: &NodeSim, name: &str) -> Option<Pod> {
    sim.api.get::<Pod>(Some("default"), name)
}

/// Deletes as `kubectl delete --grace-period`.
pub(crate) fn delete(sim: &NodeSim, name: &str, grace: Option<i64>) {
    assert!(sim.api.delete::<Pod>(Some("default"), name, grace));
}

/// The phase in the API, or an empty text.
pub(crate) fn phase(sim: &NodeSim, name: &str) -> String {
    let status = get(sim, name).and_then(|pod| pod.status);
    status.and_then(|status| status.phase).unwrap_or_default()
}

/// True if the API has the pod running and ready.
pub(crate) fn ready(sim: &NodeSim, name: &str) -> bool {
    get(sim, name).is_some_and(|pod| phase_of(&pod) == "Running" && is_ready(&pod))
}

pub(crate) fn phase_of(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|s| s.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Restart count of the first container in the API.
pub(crate) fn restarts(sim: &NodeSim, name: &str) -> i32 {
    let status = get(sim, name).and_then(|pod| pod.status);
    let containers = status.and_then(|status| status.container_statuses);
    let first = containers.and_then(|all| all.into_iter().next());
    first.map_or(0, |container| container.restart_count)
}

pub(crate) fn runs(sim: &NodeSim, uid: &PodUid) -> bool {
    sim.runtime.running(uid, "app").is_some()
}

pub(crate) fn node(sim: &NodeSim) -> Option<Node> {
    sim.api.get::<Node>(None, NODE)
}

pub(crate) fn node_ready(sim: &NodeSim) -> bool {
    let conditions = node(sim).and_then(|node| node.status?.conditions);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

pub(crate) fn lease(sim: &NodeSim) -> Option<Lease> {
    sim.api.get::<Lease>(Some("kube-node-lease"), NODE)
}

/// Renewals of the lease that succeeded, in order.
pub(crate) fn renewals(sim: &NodeSim) -> Vec<Timestamp> {
    let requests = sim.api.requests().into_iter();
    requests
        .filter(|r| r.path.contains("/leases") && matches!(&*r.method, "PUT" | "POST" | "PATCH"))
        .filter(|r| (200..300).contains(&r.status))
        .map(|r| r.at)
        .collect()
}

/// Status patches of a pod that succeeded, in order.
pub(crate) fn patches(sim: &NodeSim, name: &str) -> Vec<RequestRecord> {
    let path = format!("/api/v1/namespaces/default/pods/{name}/status");
    let requests = sim.api.requests().into_iter();
    requests
        .filter(|r| r.method == "PATCH" && r.path == path && r.status == 200)
        .collect()
}

/// Status patches that succeeded, by the name of the pod.
pub(crate) fn patch_counts(sim: &NodeSim) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let requests = sim.api.requests().into_iter();
    for request in requests.filter(|r| r.method == "PATCH" && r.status == 200) {
        let path = request
            .path
            .strip_prefix("/api/v1/namespaces/default/pods/");
        if let Some(name) = path.and_then(|path| path.strip_suffix("/status")) {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Requests that created a sandbox for the pod.
pub(crate) fn sandbox_calls(sim: &NodeSim, name: &str) -> usize {
    let subject = format!("default/{name}");
    let calls = sim.runtime.calls_of(Operation::RunPodSandbox, &subject);
    calls.iter().filter(|call| call.subject == subject).count()
}

/// Waiting reason of the first container in the API.
pub(crate) fn waiting_for(sim: &NodeSim, name: &str) -> String {
    let status = get(sim, name).and_then(|pod| pod.status);
    let containers = status.and_then(|status| status.container_statuses);
    let first = containers.and_then(|all| all.into_iter().next());
    let waiting = first.and_then(|container| container.state?.waiting?.reason);
    waiting.unwrap_or_default()
}
