//! What other parts of the agent read: the assignments of containers, and the node's devices.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_runtime_config::port::AssignedResources;
use windlass_types::corev1::Container;
use windlass_types::{Pod, PodExt};

use crate::managers::Managers;

/// Read access to the managers. Clones share it.
#[derive(Clone, Debug)]
pub struct AssignedResourcesReader(watch::Receiver<Arc<Managers>>);

impl AssignedResourcesReader {
    pub(crate) fn new(managers: watch::Receiver<Arc<Managers>>) -> Self {
        Self(managers)
    }

    /// The managers with their present assignments.
    pub fn managers(&self) -> Arc<Managers> {
        Arc::clone(&self.0.borrow())
    }

    /// Waits for changed assignments or devices; false if the ContainerManager has stopped.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

#[async_trait]
impl AssignedResources for AssignedResourcesReader {
    fn exclusive_cpus(&self, pod: &Pod) -> BTreeSet<String> {
        self.0.borrow().exclusive_cpus(pod)
    }

    async fn prepare(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<ContainerAssignment, String> {
        let managers = self.managers();
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
