//! Admission of pods on a node with a limit of two pods.
//!
//! `cargo run -p windlass-sync-loop --example admit_pods` prints the decisions for additions, a
//! deletion, a rejection and an agent restart. No pod is started.
//!
//! Runs without a container runtime.

use std::error::Error;

use serde_json::{Value, json};
use windlass_actors::AllocationScope;
use windlass_node_rules::admission::{AdmissionPolicy, Pressure, SysctlAllowList};
use windlass_node_rules::resize::ResizePolicy;
use windlass_sync_loop::admissions::{AdmissionContext, AdmittedPodSet, Decision};
use windlass_sync_loop::desired::DesiredPods;
use windlass_types::corev1::Node;
use windlass_types::{Pod, PodOp, PodSource, PodUpdate, SharedPod};

/// The node and the state of its pods.
struct Decisions {
    node: Node,
    policy: AdmissionPolicy,
    desired: DesiredPods,
    admissions: AdmittedPodSet,
}

impl Decisions {
    fn apply(
        &mut self,
        op: PodOp,
        source: PodSource,
        pods: &[Value],
    ) -> Result<(), Box<dyn Error>> {
        let pods = pods
            .iter()
            .map(|pod| serde_json::from_value::<Pod>(pod.clone()));
        let pods = pods
            .map(|pod| pod.map(SharedPod::new))
            .collect::<Result<_, _>>()?;
        let update = PodUpdate { op, source, pods };
        println!("{update}");
        for dispatch in self.desired.apply(update) {
            let context = AdmissionContext {
                node: &self.node,
                policy: &self.policy,
                desired: &self.desired,
                strict_groups: None,
                pressure: Pressure::default(),
                shutting_down: false,
                restored: op == PodOp::Restore,
                runs: false,
                scope: &AllocationScope::default(),
            };
            let admission = self.admissions.admit_dispatch(dispatch, context);
            let why = match &admission.decided {
                Some((_, Decision::Reject(rejection))) => format!(": {rejection}"),
                _ => String::new(),
            };
            println!("  {admission}{why}");
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let node = json!({"status": {"allocatable": {"pods": "2", "cpu": "1", "memory": "1Gi"}}});
    let mut decisions = Decisions {
        node: serde_json::from_value(node)?,
        policy: AdmissionPolicy {
            sysctls: SysctlAllowList::default(),
            app_armor: false,
            pod_level_resources: true,
            declared_features: None,
            resize: ResizePolicy::default(),
        },
        desired: DesiredPods::default(),
        admissions: AdmittedPodSet::default(),
    };
    let (file, api) = (PodSource::File, PodSource::Api);
    let deleted = json!({"deletionTimestamp": "2026-11-22T12:00:00Z"});
    decisions.apply(PodOp::Add, file, &[pod("etcd", "file", "200m", json!({}))])?;
    decisions.apply(PodOp::Add, api, &[pod("web", "api", "500m", json!({}))])?;
    decisions.apply(PodOp::Add, api, &[pod("batch", "api", "500m", json!({}))])?;
    decisions.apply(PodOp::Delete, api, &[pod("web", "api", "500m", deleted)])?;
    decisions.apply(PodOp::Remove, api, &[pod("web", "api", "500m", json!({}))])?;
    decisions.apply(PodOp::Add, api, &[pod("late", "api", "500m", json!({}))])?;

    println!("agent restart with a lower pod limit");
    decisions.node = serde_json::from_value(json!({"status": {"allocatable": {"pods": "0"}}}))?;
    (decisions.desired, decisions.admissions) = Default::default();
    decisions.apply(
        PodOp::Restore,
        api,
        &[pod("late", "api", "500m", json!({}))],
    )
}

fn pod(name: &str, source: &str, cpu: &str, more: Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name,
            "annotations": {"kubernetes.io/config.source": source}
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}
