//! PodResources: resources that are assigned to pods.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use tonic::{Code, Request, Response, Status};
use windlass_container_manager::{AssignedResourcesReader, Managers};
use windlass_metrics::PodResourcesMetrics;
use windlass_node_proto::podresources_v1::pod_resources_lister_server::PodResourcesLister;
use windlass_node_proto::podresources_v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerResources, DynamicResource,
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources as OfPod,
};
use windlass_node_proto::podresources_v1alpha1 as v1alpha1;
use windlass_status::{PodStatusEntry, PodStatusStore, current_entry};
use windlass_types::corev1::{Container, Pod};
use windlass_types::view::PodWorkerState;
use windlass_types::{Phase, PodExt, PodUid};

use crate::assigned;
use crate::service::RequestLimiter;

/// Source of the resource claims of containers (DRA).
pub trait ClaimSource: Send + Sync + Debug + 'static {
    /// Returns the prepared claims of a container.
    fn claims(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource>;
}

/// The PodResources service, in both versions.
#[derive(Clone, Debug)]
pub struct PodResources {
    status_store: PodStatusStore,
    only_active: bool,
    claims: Option<Arc<dyn ClaimSource>>,
    assigned: Option<AssignedResourcesReader>,
    metrics: PodResourcesMetrics,
    limiter: Arc<RequestLimiter>,
}

impl PodResources {
    /// Serves the pods of `status_store`. `only_active` is the gate
    /// `KubeletPodResourcesListUseActivePods`: without it, List includes terminated pods.
    pub fn new(
        status_store: PodStatusStore,
        only_active: bool,
        metrics: PodResourcesMetrics,
    ) -> Self {
        Self {
            status_store,
            only_active,
            claims: None,
            assigned: None,
            metrics,
            limiter: Arc::default(),
        }
    }

    /// Adds the claims of containers.
    #[must_use]
    pub fn with_claims(self, claims: Arc<dyn ClaimSource>) -> Self {
        let claims = Some(claims);
        Self { claims, ..self }
    }

    /// Adds the CPUs, memory and devices of containers.
    #[must_use]
    pub fn with_assigned(self, assigned: AssignedResourcesReader) -> Self {
        let assigned = Some(assigned);
        Self { assigned, ..self }
    }

    fn managers(&self) -> Option<Arc<Managers>> {
        self.assigned
            .as_ref()
            .map(AssignedResourcesReader::managers)
    }

    fn of_pod(&self, pod: &Pod, managers: Option<&Managers>) -> OfPod {
        let of_container = |container: &Container| ContainerResources {
            name: container.name.clone(),
            devices: assigned::devices(managers, pod, container),
            cpu_ids: assigned::cpus(managers, pod, container),
            memory: assigned::memory(managers, pod, container),
            dynamic_resources: match &self.claims {
                Some(claims) => claims.claims(pod, container),
                None => Vec::new(),
            },
        };
        OfPod {
            name: pod.name().to_owned(),
            namespace: pod.namespace().to_owned(),
            containers: containers(pod, true).map(of_container).collect(),
        }
    }

    /// After an agent restart a pod keeps its resources before it is known; a list without it would
    /// show them as free.
    fn check_complete(&self) -> Result<(), Status> {
        let Some(managers) = self.managers() else {
            return Ok(());
        };
        let is_unknown = |uid: &PodUid| self.status_store.get(uid).is_none();
        match managers.pods().iter().find(|uid| is_unknown(uid)) {
            None => Ok(()),
            Some(uid) => Err(Status::unavailable(format!(
                "pod {uid}, which has resources, is not known yet; try again"
            ))),
        }
    }

    fn begin(&self, version: &str) -> Result<(), Status> {
        self.limiter.check()?;
        self.metrics.requests.with_label_values(&[version]).inc();
        Ok(())
    }
}

#[async_trait]
impl PodResourcesLister for PodResources {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.begin("v1")?;
        self.metrics.lists.with_label_values(&["v1"]).inc();
        self.check_complete()?;
        let entries = self.status_store.snapshot();
        let listed = entries
            .iter()
            .filter(|entry| !self.only_active || is_active(entry));
        let managers = self.managers();
        let pods = listed.map(|entry| self.of_pod(&entry.pod, managers.as_deref()));
        Ok(Response::new(ListPodResourcesResponse {
            pod_resources: pods.collect(),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.begin("v1")?;
        self.metrics.allocatable.with_label_values(&["v1"]).inc();
        let managers = self.managers();
        let allocatable = managers.as_deref().map(assigned::allocatable);
        Ok(Response::new(allocatable.unwrap_or_default()))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        self.begin("v1")?;
        self.metrics.gets.with_label_values(&["v1"]).inc();
        let GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let mut entries = self.status_store.find(&pod_namespace, &pod_name);
        entries.retain(is_active);
        let Some(entry) = current_entry(&entries) else {
            self.check_complete()?;
            self.metrics.get_errors.with_label_values(&["v1"]).inc();
            let text = format!("pod {pod_name} in namespace {pod_namespace} not found");
            // upstream's error has no code
            return Err(Status::new(Code::Unknown, text));
        };
        Ok(Response::new(GetPodResourcesResponse {
            pod_resources: Some(self.of_pod(&entry.pod, self.managers().as_deref())),
        }))
    }
}

#[async_trait]
impl v1alpha1::pod_resources_lister_server::PodResourcesLister for PodResources {
    /// Includes terminated pods, but no sidecars.
    async fn list(
        &self,
        _: Request<v1alpha1::ListPodResourcesRequest>,
    ) -> Result<Response<v1alpha1::ListPodResourcesResponse>, Status> {
        self.begin("v1alpha1")?;
        self.check_complete()?;
        let managers = self.managers();
        let devices = |pod: &Pod, container: &Container| {
            let devices = assigned::devices(managers.as_deref(), pod, container).into_iter();
            let devices = devices.map(|it| v1alpha1::ContainerDevices {
                resource_name: it.resource_name,
                device_ids: it.device_ids,
            });
            devices.collect()
        };
        let of_pod = |entry: &PodStatusEntry| v1alpha1::PodResources {
            name: entry.pod.name().to_owned(),
            namespace: entry.pod.namespace().to_owned(),
            containers: containers(&entry.pod, false)
                .map(|container| v1alpha1::ContainerResources {
                    name: container.name.clone(),
                    devices: devices(&entry.pod, container),
                })
                .collect(),
        };
        Ok(Response::new(v1alpha1::ListPodResourcesResponse {
            pod_resources: self.status_store.snapshot().iter().map(of_pod).collect(),
        }))
    }
}

/// True if the pod is active (upstream `isPodInactive`): not terminated and not in a terminal
/// phase.
fn is_active(entry: &PodStatusEntry) -> bool {
    match entry.worker_state {
        PodWorkerState::SyncPod => {
            !Phase::is_terminal_in(&entry.status)
                && !entry.pod.status.as_ref().is_some_and(Phase::is_terminal_in)
        }
        PodWorkerState::TerminatingPod => true,
        PodWorkerState::TerminatedPod => false,
    }
}

/// The app containers and, with `sidecars`, the sidecars.
fn containers(pod: &Pod, sidecars: bool) -> impl Iterator<Item = &Container> {
    let is_sidecar = |it: &&Container| it.restart_policy.as_deref() == Some("Always");
    let init = pod.init_containers().iter();
    let init = init.filter(move |it| sidecars && is_sidecar(it));
    init.chain(pod.containers())
}
