//! Port to the object cache, which resolves the references of a pod before its start.
//!
//! References are resolved before the pod takes a start slot, so a missing ConfigMap or a slow API
//! server delays only its own pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_credentials::credentials::Keyring;
use windlass_manifests::image_name::ImageName;
use windlass_pod_inputs::env::EnvSources;
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_types::corev1::{Container, PodStatus};
use windlass_types::{Pod, PodUid, Reason, Retry, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::PodVolumes;

/// Resolved references of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInputs {
    /// ConfigMaps, Secrets and service variables.
    pub env: EnvSources,
    /// Registry credentials. A pull is anonymous only without credentials for the image.
    pub keyring: Keyring,
    /// Handler of the RuntimeClass; empty is the runtime's default. `None` if it was not resolved:
    /// a pod with a RuntimeClass is then rejected.
    pub runtime_handler: Option<String>,
    /// Volumes with their payloads and PersistentVolumes.
    pub volumes: Arc<PodVolumes>,
    /// Error of the variables or the RuntimeClass, which blocks the start. As upstream, a volume
    /// that is not ready is reported first.
    pub missing: Option<InputsError>,
    /// CDI devices of the pod's resource claims.
    pub claim_devices: ContainerClaims,
}

/// Names of CDI devices by container; an error if a claim of the container is not prepared.
pub type ContainerClaims = BTreeMap<String, Result<Vec<String>, String>>;

/// Error of preparing or unpreparing the resource claims of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ClaimsError {
    /// Text.
    pub message: String,
    /// Retry class.
    pub retry: Retry,
}

/// Resource claims of pods. Without claims all calls return at once.
#[async_trait]
pub trait PodClaims: Send + Sync + Debug + 'static {
    /// Prepares the claims of a pod that is about to get a sandbox or containers. Claims that are
    /// prepared are prepared again only for a new sandbox.
    ///
    /// # Errors
    /// A claim cannot be used yet, or a driver failed.
    async fn prepare(&self, pod: &SharedPod, creates_sandbox: bool) -> Result<(), ClaimsError>;

    /// Returns the devices of all containers of a pod.
    fn devices(&self, pod: &Pod) -> ContainerClaims;

    /// Unprepares the claims of a pod whose containers are stopped.
    ///
    /// # Errors
    /// A driver failed; the pod is not terminated before it succeeds.
    async fn unprepare(&self, uid: &PodUid) -> Result<(), ClaimsError>;

    /// Adds the health of devices to the statuses of containers.
    fn add_health(&self, pod: &Pod, status: &mut PodStatus);
}

/// Error of resolving the references of a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InputsError {
    /// Reason of the blocker and the event: `FailedMount`, `FailedCreatePodSandBox`, …
    pub reason: Reason,
    /// Object or key, and the field that refers to it.
    pub message: String,
    /// Retry class.
    pub retry: Retry,
}

/// Returns credentials when an image is pulled or its access is verified.
#[async_trait]
pub trait ImageCredentials: Send + Sync + Debug + 'static {
    /// Returns credentials for an image in addition to the pod's pull secrets; has a deadline.
    async fn keyring(&self, image: &ImageName, pod: &Pod) -> Keyring;
}

/// The assigned CPUs, memory nodes and devices of containers. Assignments are made when a pod is
/// admitted.
#[async_trait]
pub trait AssignedResources: Send + Sync + Debug + 'static {
    /// Names of the containers of a pod that have exclusive CPUs, and so no CFS quota. Cheap.
    fn exclusive_cpus(&self, pod: &Pod) -> BTreeSet<String>;

    /// Adds the health of devices to the statuses of app containers, as upstream. Cheap.
    fn add_health(&self, pod: &Pod, status: &mut PodStatus);

    /// Returns the assignment of a container that is about to be created, after its devices were
    /// prepared (`PreStartContainer`); has a deadline.
    ///
    /// # Errors
    /// A plugin refused, or did not answer.
    async fn prepare(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<ContainerAssignment, String>;
}

/// Resolves the references of pods.
#[async_trait]
pub trait PodObjects: Send + Sync + Debug + 'static {
    /// Registers a desired pod, new or changed, and keeps its references current. Cheap and
    /// idempotent.
    fn register(&self, pod: &SharedPod);

    /// Returns the inputs for the sandbox of a new pod, if all references except tokens are
    /// resolved. With `None`, all references are resolved first.
    fn sandbox_inputs(&self, pod: &SharedPod) -> Option<PodInputs>;

    /// Returns when the kept objects of a pod were last current, if they are used because the API
    /// server is unreachable. Such a pod starts without its confirmation.
    fn kept_since(&self, uid: &PodUid) -> Option<Timestamp>;

    /// Unregisters a removed pod.
    fn unregister(&self, uid: &PodUid);

    /// Resolves all references; waits, within a deadline, until each one was read once. A missing
    /// ConfigMap or Secret of an environment variable is reported by its container instead. An
    /// unavailable payload is reported by its volume, which may be mounted already.
    ///
    /// # Errors
    /// A PVC of the pod cannot be resolved.
    async fn inputs(&self, pod: &SharedPod) -> Result<PodInputs, InputsError>;
}
