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

    /// Returns the resources with the pod-level limits for CPU and memory in the containers that have
    /// none, as upstream records actuated resources (`GetLimits`).
    #[must_use]
    pub fn with_pod_limits(mut self) -> Self {
        let limits = self.pod.as_ref().and_then(|pod| pod.limits.as_ref());
        let Some(limits) = limits.filter(|limits| !limits.is_empty()) else {
            return self;
        };
        for resources in self.containers.values_mut() {
            for name in ["cpu", "memory"] {
                let own = resources.limits.as_ref().and_then(|own| own.get(name));
                let has_limit = own.is_some_and(|own| own.0 != "0");
                if let Some(limit) = limits.get(name).filter(|_| !has_limit) {
                    let own = resources.limits.get_or_insert_default();
                    own.insert(name.to_owned(), limit.clone());
                }
            }
        }
        self
    }

    /// Returns the resources in the status of a pod, for a pod that a previous agent run started
    /// without a checkpoint. The status has allocated requests and actual limits: a limit counts as
    /// in the spec if its request is allocated.
    pub fn from_status(pod: &Pod) -> Self {
        let mut resources = Self::from_pod(pod);
        let Some(status) = &pod.status else {
            return resources;
        };
        let lists = [&status.container_statuses, &status.init_container_statuses];
        for container in lists.into_iter().flatten().flatten() {
            let actual = container.resources.as_ref();
            if let Some(own) = resources.containers.get_mut(&container.name) {
                replace(own, container.allocated_resources.as_ref(), actual);
            }
        }
        // the status of the pod includes its overhead
        let pod_level = resources.pod.as_mut();
        if let Some(own) = pod_level.filter(|_| PodExt::spec(pod).overhead.is_none()) {
            let requests = status.allocated_resources.as_ref();
            replace(own, requests, status.resources.as_ref());
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

/// Replaces requests for CPU and memory by different ones, and their limits by the actual ones.
fn replace(
    own: &mut ResourceRequirements,
    requests: Option<&Amounts>,
    actual: Option<&ResourceRequirements>,
) {
    for name in ["cpu", "memory"] {
        let reported = requests.and_then(|requests| requests.get(name));
        let request = own.requests.as_mut().and_then(|own| own.get_mut(name));
        let (Some(reported), Some(request)) = (reported, request) else {
            continue;
        };
        if request == reported {
            continue;
        }
        request.clone_from(reported);
        let reported = actual.and_then(|actual| actual.limits.as_ref()?.get(name));
        let limit = own.limits.as_mut().and_then(|own| own.get_mut(name));
        if let (Some(reported), Some(limit)) = (reported, limit) {
            limit.clone_from(reported);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Resources are taken from a pod and put into another.

    use serde_json::{Value, json};

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
        let text = serde_json::to_string(&allocated).expect("JSON");
        assert_eq!(
            serde_json::from_str::<AllocatedResources>(&text).ok(),
            Some(allocated)
        );
    }

    #[test]
    fn container_without_limit_has_that_of_the_pod() {
        let limits = |pod: Value, container: Value| {
            let pod = json!({"spec": {
                "containers": [{"name": "c", "resources": {"limits": container}}],
                "resources": {"limits": pod},
            }});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let resources = AllocatedResources::from_pod(&pod).with_pod_limits();
            json!(resources.containers["c"].limits)
        };
        let both = json!({"cpu": "2", "memory": "1Gi"});
        assert_eq!(limits(both.clone(), Value::Null), both);
        let own = json!({"cpu": "1", "memory": "0"});
        let expected = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(limits(both.clone(), own), expected);
        assert_eq!(
            limits(Value::Null, json!({"cpu": "1"})),
            json!({"cpu": "1"})
        );
        assert_eq!(
            limits(json!({"cpu": "2"}), Value::Null),
            json!({"cpu": "2"})
        );
    }

    #[test]
    fn status_has_allocated_requests_and_actual_limits() {
        let resources = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        let check = |allocated: &str, actual: &str, expected: [&str; 2]| {
            let pod = json!({
                "spec": {
                    "containers": [{"name": "c", "resources": resources("4", "8")}],
                    "resources": resources("4", "8"),
                },
                "status": {
                    "containerStatuses": [{
                        "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                        "allocatedResources": {"cpu": allocated},
                        "resources": resources(allocated, actual),
                    }],
                    "allocatedResources": {"cpu": allocated, "memory": "1"},
                    "resources": resources(allocated, actual),
                },
            });
            let pod = serde_json::from_value(pod).expect("a pod");
            let expected = resources(expected[0], expected[1]);
            let found = AllocatedResources::from_status(&pod);
            for found in [
                &found.containers["c"],
                found.pod.as_ref().expect("resources"),
            ] {
                assert_eq!(serde_json::to_value(found).expect("JSON"), expected);
            }
        };
        check("4", "8", ["4", "8"]);
        check("2", "3", ["2", "3"]);
        // allocated, but not in effect
        check("4", "3", ["4", "8"]);
    }
}
