//! What other parts of the agent read: the assignments of containers, and the node's devices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_runtime_config::port::AssignedResources;
use windlass_types::corev1::{Container, PodStatus, ResourceHealth, ResourceStatus};
use windlass_types::{Pod, PodExt};

use crate::managers::Managers;
use crate::state_writes::StateWrites;

/// Read access to the managers. Clones share it.
#[derive(Clone, Debug)]
pub struct AssignedResourcesReader {
    managers: watch::Receiver<Arc<Managers>>,
    writes: StateWrites,
}

impl AssignedResourcesReader {
    /// Reads what a [`crate::ContainerManager`] publishes.
    pub fn new(managers: watch::Receiver<Arc<Managers>>) -> Self {
        Self::with_writes(managers, StateWrites::default())
    }

    pub(crate) fn with_writes(
        managers: watch::Receiver<Arc<Managers>>,
        writes: StateWrites,
    ) -> Self {
        Self { managers, writes }
    }

    /// The writes of the state files.
    pub fn state_writes(&self) -> &StateWrites {
        &self.writes
    }

    /// The managers with their present assignments.
    pub fn managers(&self) -> Arc<Managers> {
        Arc::clone(&self.managers.borrow())
    }

    /// Waits for changed assignments or devices; false if the ContainerManager has stopped.
    pub async fn changed(&mut self) -> bool {
        self.managers.changed().await.is_ok()
    }
}

#[async_trait]
impl AssignedResources for AssignedResourcesReader {
    fn exclusive_cpus(&self, pod: &Pod) -> BTreeSet<String> {
        self.managers.borrow().exclusive_cpus(pod)
    }

    fn add_health(&self, pod: &Pod, status: &mut PodStatus) {
        let managers = self.managers.borrow();
        if !managers.reports_health {
            return;
        }
        for container in status.container_statuses.iter_mut().flatten() {
            let resources = managers.devices.health(&pod.uid(), &container.name);
            if resources.is_empty() {
                continue;
            }
            let known = container.allocated_resources_status.get_or_insert_default();
            known.extend(resources.into_iter().map(resource_status));
        }
    }

    async fn prepare(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<ContainerAssignment, String> {
        let managers = self.managers();
        if let Some(resource) = managers.lacking(pod, container) {
            return Err(format!("devices of {resource} are not allocated"));
        }
        let devices = managers.devices.container(&pod.uid(), &container.name);
        for (resource, assigned) in devices.into_iter().flatten() {
            if !managers.devices.pre_start_required(resource) {
                continue;
            }
            let ids = assigned.ids().into_iter().map(str::to_owned).collect();
            match managers.plugins.get(resource) {
                Some(plugin) => plugin.pre_start(&ids).await?,
                None => return Err(format!("endpoint {resource} has been stopped")),
            }
        }
        Ok(managers.assignment(pod, container))
    }
}

fn resource_status((name, devices): (String, BTreeMap<String, bool>)) -> ResourceStatus {
    let devices = devices.into_iter().map(|(id, healthy)| ResourceHealth {
        resource_id: id,
        health: Some(if healthy { "Healthy" } else { "Unhealthy" }.to_owned()),
        ..ResourceHealth::default()
    });
    ResourceStatus {
        name,
        resources: Some(devices.collect()),
    }
}
