//! What a pod refers to, resolved before it starts: the port to the cache of API objects.
//!
//! References are resolved before the pod takes a start slot: a missing ConfigMap or a slow API server
//! delays only its own pod.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_credentials::credentials::Keyring;
use windlass_manifests::image_name::ImageName;
use windlass_pod_inputs::env::EnvSources;
use windlass_types::{Pod, PodUid, Reason, Retry, SharedPod};
use windlass_volume_plan::volume_source::PodVolumes;

/// Everything a pod's sandbox and containers need from outside the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodInputs {
    /// ConfigMaps, Secrets and service variables.
    pub env: EnvSources,
    /// Registry credentials. A pull is anonymous only if none of them is for its image.
    pub keyring: Keyring,
    /// Handler of the pod's RuntimeClass; empty is the runtime's default. `None` if it was not resolved:
    /// a pod that names a RuntimeClass is then rejected.
    pub runtime_handler: Option<String>,
    /// The pod's volumes, with what they show and what its claims stand for.
    pub volumes: Arc<PodVolumes>,
    /// Why nothing of the pod can be started although its volumes are known: variables or the
    /// RuntimeClass cannot be had. As upstream, a volume that is not ready counts before it.
    pub missing: Option<InputsError>,
}

/// The inputs of a pod cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InputsError {
    /// For the blocker and the event: `FailedMount`, `FailedCreatePodSandBox`, …
    pub reason: Reason,
    /// Which object or key, and where the pod refers to it.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
}

/// Returns credentials when an image is pulled or its access is verified.
#[async_trait]
pub trait ImageCredentials: Send + Sync + Debug + 'static {
    /// Returns credentials for an image besides the pod's pull secrets; has its own deadline.
    async fn keyring(&self, image: &ImageName, pod: &Pod) -> Keyring;
}

/// Knows what pods refer to.
#[async_trait]
pub trait PodObjects: Send + Sync + Debug + 'static {
    /// The pod is desired, new or changed: from now on its references are kept current. Cheap
    /// and safe to repeat.
    fn register(&self, pod: &SharedPod);

    /// What the sandbox of a new pod needs, if everything that the pod refers to is there and only its
    /// tokens have to be requested. With `None` everything is resolved first.
    fn sandbox_inputs(&self, pod: &SharedPod) -> Option<PodInputs>;

    /// The pod is gone.
    fn unregister(&self, uid: &PodUid);

    /// Resolves everything; waits, within a deadline, until each reference was answered once.
    /// A ConfigMap or Secret that only an environment variable needs and that does not exist is
    /// no error here: its container says so. Nor is the content of a volume that cannot be had: the
    /// volume says why, and the pod may show it already.
    ///
    /// # Errors
    /// What a claim of the pod stands for cannot be had.
    async fn inputs(&self, pod: &SharedPod) -> Result<PodInputs, InputsError>;
}
