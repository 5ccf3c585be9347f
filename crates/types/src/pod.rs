//! The desired pod and accessors of its common fields.

use std::sync::Arc;

use crate::corev1::{Container, PodSpec, Volume};
use crate::ids::{PodFullName, PodUid};
use crate::names;
use crate::update::PodSource;

/// The Kubernetes pod.
pub type Pod = crate::corev1::Pod;

/// Decodes a pod from JSON.
///
/// # Errors
/// The text is invalid JSON, or a field has the wrong type.
// the code for the fields of pods is compiled here; crates that decode lists or tables of pods
// share it, which would otherwise be compiled into each of them
pub fn pod_from_json(json: &[u8]) -> Result<Pod, serde_json::Error> {
    serde_json::from_slice(json)
}

/// A pod shared between actors; immutable.
pub type SharedPod = Arc<Pod>;

/// Spec of a pod without one, for accessors that return references.
static EMPTY_SPEC: std::sync::LazyLock<PodSpec> = std::sync::LazyLock::new(PodSpec::default);

/// Accessors of a pod. Missing fields read as their zero value, as in Go.
pub trait PodExt {
    /// `metadata.uid`, empty if absent.
    fn uid(&self) -> PodUid;
    /// `metadata.name`, empty if absent.
    fn name(&self) -> &str;
    /// `metadata.namespace`, empty if absent.
    fn namespace(&self) -> &str;
    /// Namespace and name together.
    fn full_name(&self) -> PodFullName;
    /// The spec, an empty one if absent.
    fn spec(&self) -> &PodSpec;
    /// `spec.initContainers`, empty if absent.
    fn init_containers(&self) -> &[Container];
    /// `spec.containers`.
    fn containers(&self) -> &[Container];
    /// Value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// The source in `kubernetes.io/config.source`; the API server without the annotation.
    fn source(&self) -> PodSource;
    /// True for pods from a file or a URL.
    fn is_static(&self) -> bool;
    /// True for a pod from the checkpoint that the API server has not confirmed yet.
    fn is_restored(&self) -> bool;
    /// `spec.hostNetwork`.
    fn host_network(&self) -> bool;
    /// `spec.restartPolicy`, `Always` if absent.
    fn restart_policy(&self) -> RestartPolicy;
    /// `spec.terminationGracePeriodSeconds`, 30 if absent.
    fn termination_grace_seconds(&self) -> i64;
}

/// `spec.restartPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Restart whatever the exit code.
    Always,
    /// Restart on a non-zero exit code.
    OnFailure,
    /// Never restart.
    Never,
}

impl PodExt for Pod {
    fn uid(&self) -> PodUid {
        PodUid::from(self.metadata.uid.as_deref().unwrap_or_default())
    }

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn full_name(&self) -> PodFullName {
        PodFullName {
            namespace: self.namespace().to_owned(),
            name: self.name().to_owned(),
        }
    }

    fn spec(&self) -> &PodSpec {
        self.spec.as_ref().unwrap_or(&EMPTY_SPEC)
    }

    fn init_containers(&self) -> &[Container] {
        PodExt::spec(self)
            .init_containers
            .as_deref()
            .unwrap_or_default()
    }

    fn containers(&self) -> &[Container] {
        &PodExt::spec(self).containers
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    fn source(&self) -> PodSource {
        self.annotation(names::ANN_CONFIG_SOURCE)
            .and_then(|text| text.parse().ok())
            .unwrap_or(PodSource::Api)
    }

    fn is_static(&self) -> bool {
        PodExt::source(self) != PodSource::Api
    }

    fn is_restored(&self) -> bool {
        self.annotation(names::ANN_RESTORED).is_some()
    }

    fn host_network(&self) -> bool {
        PodExt::spec(self).host_network.unwrap_or(false)
    }

    fn restart_policy(&self) -> RestartPolicy {
        match PodExt::spec(self).restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }

    fn termination_grace_seconds(&self) -> i64 {
        PodExt::spec(self)
            .termination_grace_period_seconds
            .unwrap_or(30)
    }
}

/// True for a volume on the local disk that is removed with the pod (upstream
/// `IsLocalEphemeralVolume`).
pub fn is_local_ephemeral(volume: &Volume) -> bool {
    let on_disk = |medium: Option<&str>| medium.unwrap_or_default().is_empty();
    let empty_dir = volume.empty_dir.as_ref();
    volume.config_map.is_some()
        || volume.git_repo.is_some()
        || empty_dir.is_some_and(|dir| on_disk(dir.medium.as_deref()))
}

/// True if a changed CPU or memory of the container requires its restart (`resizePolicy`).
pub fn restarts_on_resize(container: &Container, resource: &str) -> bool {
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|it| it.resource_name == resource && it.restart_policy == "RestartContainer")
}

/// True for a sidecar: an init container with `restartPolicy: Always`.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}
