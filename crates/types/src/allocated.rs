//! Allocated resources of a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::corev1::{Container, ResourceRequirements};
use crate::pod::{Pod, PodExt, SharedPod};

type Amounts = BTreeMap<String, Quantity>;

/// Resources of a container without any.
static NONE: ResourceRequirements = ResourceRequirements {
    claims: None,
    limits: None,
    requests: None,
};

/// Resources that the node has allocated to a pod (upstream `PodResourceInfo`). A changed spec
/// changes nothing until the node has allocated it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocatedResources {
    /// Resources of app and init containers, by name.
    pub containers: BTreeMap<String, ResourceRequirements>,
    /// Pod-level resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ResourceRequirements>,
}

impl AllocatedResources {
    /// Returns the resources in the spec of a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        let containers = pod.containers().iter().chain(pod.init_containers());
        Self {
            containers: containers
                .map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default()))
                .collect(),
            pod: PodExt::spec(pod).resources.clone(),
        }
    }

    /// Returns the resources in the status of a pod, for a pod that a previous agent run started
    /// without a checkpoint. A resource that the status lacks is as in the spec.
    pub fn from_status(pod: &Pod) -> Self {
        let mut resources = Self::from_pod(pod);
        let Some(status) = &pod.status else {
            return resources;
        };
        let lists = [&status.container_statuses, &status.init_container_statuses];
        for container in lists.into_iter().flatten().flatten() {
            if let Some(own) = resources.containers.get_mut(&container.name) {
                let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
                replace(&mut own.requests, container.allocated_resources.as_ref());
                replace(&mut own.limits, limits);
            }
        }
        // the status of the pod includes its overhead
        let pod_level = resources.pod.as_mut();
        if let Some(own) = pod_level.filter(|_| PodExt::spec(pod).overhead.is_none()) {
            let limits = status.resources.as_ref().and_then(|r| r.limits.as_ref());
            replace(&mut own.requests, status.allocated_resources.as_ref());
            replace(&mut own.limits, limits);
        }
        resources
    }

    /// Returns the pod with these resources. A container that is not allocated keeps its own.
    #[must_use]
    pub fn apply(&self, pod: &SharedPod) -> SharedPod {
        let mut pod = Arc::clone(pod);
        if !self.matches(&pod) {
            let spec = Arc::make_mut(&mut pod).spec.get_or_insert_default();
            spec.resources.clone_from(&self.pod);
            let init_containers = spec.init_containers.iter_mut().flatten();
            for container in spec.containers.iter_mut().chain(init_containers) {
                if let Some(resources) = self.containers.get(&container.name) {
                    container.resources = Some(resources.clone()).filter(|it| *it != NONE);
                }
            }
        }
        pod
    }

    /// True if the spec has the same quantities, written in the same way.
    fn matches(&self, pod: &Pod) -> bool {
        let is_same = |container: &Container| {
            let own = container.resources.as_ref().unwrap_or(&NONE);
            let allocated = self.containers.get(&container.name);
            allocated.is_none_or(|allocated| allocated == own)
        };
        let mut containers = pod.containers().iter().chain(pod.init_containers());
        PodExt::spec(pod).resources == self.pod && containers.all(is_same)
    }
}

/// Replaces the CPU and memory of a list by those of another.
fn replace(own: &mut Option<Amounts>, others: Option<&Amounts>) {
    let (Some(own), Some(others)) = (own, others) else {
        return;
    };
    for name in ["cpu", "memory"] {
        if let (Some(own), Some(other)) = (own.get_mut(name), others.get(name)) {
            own.clone_from(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(app: &str, init: &str, pod: Option<&str>) -> SharedPod {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let pod = json!({"spec": {
            "containers": [{"name": "app", "resources": cpu(app)}, {"name": "plain"}],
            "initContainers": [{"name": "init", "resources": cpu(init)}],
            "resources": pod.map(cpu),
        }});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn allocated_resources_replace_those_of_the_spec() {
        let before = pod("1", "2", Some("3"));
        let allocated = AllocatedResources::from_pod(&before);
        assert!(Arc::ptr_eq(&allocated.apply(&before), &before));
        for after in [pod("4", "2", Some("3")), pod("1", "4", None)] {
            assert_eq!(allocated.apply(&after), before);
        }
        let mut reported = Arc::unwrap_or_clone(pod("4", "2", Some("5")));
        let container = json!({
            "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": "1"},
        });
        let status = json!({
            "containerStatuses": [container], "allocatedResources": {"cpu": "3", "memory": "1"},
        });
        reported.status = serde_json::from_value(status).expect("a status");
        assert_eq!(AllocatedResources::from_status(&reported), allocated);
        let text = serde_json::to_string(&allocated).expect("JSON");
        assert_eq!(
            serde_json::from_str::<AllocatedResources>(&text).ok(),
            Some(allocated)
        );
    }
}
