//! Errors of unresolved references.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_pod_inputs::pod_references::{ReferenceUse, References, Requirement};
use windlass_pod_inputs::projection::{ConfigMapContent, Referent, SecretContent, TrustBundle};
use windlass_pod_inputs::service_env::ServiceLink;
use windlass_runtime_config::port::InputsError;
use windlass_types::certificatesv1beta1::ClusterTrustBundle;
use windlass_types::corev1::{ConfigMap, Secret, Service};
use windlass_types::nodev1::RuntimeClass;
use windlass_types::{Reason, Retry};
use windlass_volume_plan::volume_source::PvcError;

use crate::shared_reflectors::CachedObject;

impl CachedObject for ConfigMapContent {
    type Object = ConfigMap;

    fn keep(object: ConfigMap) -> Option<Self> {
        Some(object.into())
    }

    fn is_final(object: &ConfigMap) -> bool {
        object.immutable == Some(true)
    }
}

impl CachedObject for SecretContent {
    type Object = Secret;

    fn keep(object: Secret) -> Option<Self> {
        Some(object.into())
    }

    fn is_final(object: &Secret) -> bool {
        object.immutable == Some(true)
    }
}

impl CachedObject for ServiceLink {
    type Object = Service;

    fn keep(object: Service) -> Option<Self> {
        Self::from_service(&object)
    }
}

impl CachedObject for TrustBundle {
    type Object = ClusterTrustBundle;

    fn keep(object: ClusterTrustBundle) -> Option<Self> {
        Some(object.into())
    }
}

/// `handler` of a RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handler(pub(crate) String);

impl CachedObject for Handler {
    type Object = RuntimeClass;

    fn keep(object: RuntimeClass) -> Option<Self> {
        Some(Self(object.handler))
    }
}

/// Kinds of objects that a pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    RuntimeClass,
    Services,
}

/// A reference that is not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnresolvedReference {
    pub(crate) kind: Kind,
    /// Empty for the services.
    pub(crate) name: String,
    /// The last error of the API server, if any.
    pub(crate) error: Option<Arc<str>>,
}

impl UnresolvedReference {
    /// Returns the reference for volumes that use it.
    pub(crate) fn for_volumes(&self) -> Option<(Referent, String)> {
        let name = || self.name.clone();
        let object = match self.kind {
            Kind::ConfigMap => Referent::ConfigMap(name()),
            Kind::Secret => Referent::Secret(name()),
            Kind::RuntimeClass | Kind::Services => return None,
        };
        Some((object, unread(self.error.as_deref())))
    }
}

/// Returns why an object was not read.
pub(crate) fn unread(error: Option<&str>) -> String {
    error.unwrap_or("the API server did not respond").to_owned()
}

/// Returns why a pod cannot start with unresolved references; `None` if it can. Volumes report
/// their own errors, and a pull is tried without its secrets.
pub(crate) fn unresolved_error(
    references: &References,
    unresolved: &[UnresolvedReference],
) -> Option<InputsError> {
    let mut reason = None;
    let mut messages = Vec::new();
    for one in unresolved {
        let of_env = |objects: &BTreeMap<String, ReferenceUse>| {
            let need = objects.get(&one.name);
            need.is_some_and(|need| need.env != Requirement::None)
        };
        let error = unread(one.error.as_deref());
        let name = &one.name;
        let (cause, text) = match one.kind {
            Kind::ConfigMap if of_env(&references.config_maps) => (
                Reason::CreateContainerConfigError,
                format!("failed to read configmap {name:?}: {error}"),
            ),
            Kind::Secret if of_env(&references.secrets) => (
                Reason::CreateContainerConfigError,
                format!("failed to read secret {name:?}: {error}"),
            ),
            Kind::ConfigMap | Kind::Secret => continue,
            Kind::RuntimeClass => (
                Reason::FailedCreatePodSandBox,
                format!("failed to read RuntimeClass {name:?}: {error}"),
            ),
            Kind::Services => (
                Reason::CreateContainerConfigError,
                format!(
                    "services have not yet been read at least once, cannot construct envvars: {error}"
                ),
            ),
        };
        messages.push(text);
        reason = reason.or(Some(cause));
    }
    reason.map(|reason| InputsError {
        reason,
        message: messages.join("; "),
        retry: Retry::Soon,
    })
}

/// Returns the error of PVCs that are not ready, each with its volume; `None` if there are none.
///
/// Upstream reports PVCs after it has waited for all volumes, and node affinity when it mounts.
pub(crate) fn claims_error(errors: &[(&str, PvcError)]) -> Option<InputsError> {
    let (mounts, claims): (Vec<_>, Vec<_>) = errors
        .iter()
        .partition(|(_, error)| matches!(error, PvcError::Affinity(_)));
    let mut messages = Vec::new();
    if !claims.is_empty() {
        let names: Vec<_> = claims.iter().map(|(volume, _)| *volume).collect();
        let names = names.join(" ");
        let why: Vec<_> = claims.iter().map(|(_, error)| error.to_string()).collect();
        messages.push(format!(
            "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached \
             volumes=[], failed to process volumes=[{names}]: {}",
            why.join("; ")
        ));
    }
    messages.extend(mounts.iter().map(|(_, error)| error.to_string()));
    let soon = errors.iter().any(|(_, error)| error.retry() == Retry::Soon);
    (!messages.is_empty()).then(|| InputsError {
        reason: Reason::FailedMount,
        message: messages.join("; "),
        retry: if soon { Retry::Soon } else { Retry::Later },
    })
}

/// Returns the error for a missing RuntimeClass.
pub(crate) fn runtime_class_error(name: &str) -> InputsError {
    InputsError {
        reason: Reason::FailedCreatePodSandBox,
        message: format!("Failed to create pod sandbox: RuntimeClass {name:?} not found"),
        retry: Retry::Later,
    }
}

#[cfg(test)]
mod tests {
    use windlass_pod_inputs::pod_references::pod_references;
    use windlass_types::Pod;

    use super::*;

    fn check(unresolved: &[(Kind, &str, Option<&str>)], expected: &str) {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"name": "v", "configMap": {"name": "vol"}}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "env"}}]}],
        }}))
        .expect("pod");
        let unresolved: Vec<_> = unresolved
            .iter()
            .map(|(kind, name, error)| UnresolvedReference {
                kind: *kind,
                name: (*name).to_owned(),
                error: error.map(Arc::from),
            })
            .collect();
        let line = match unresolved_error(&pod_references(&pod), &unresolved) {
            Some(error) => format!("{} {}: {}", error.reason, error.retry, error.message),
            None => String::new(),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn unresolved_reference_blocks_only_its_users() {
        let unreachable = "the API server did not respond";
        check(&[(Kind::Secret, "pull", None)], "");
        check(&[(Kind::ConfigMap, "vol", None)], "");
        check(
            &[(Kind::Secret, "env", None)],
            &format!(
                "CreateContainerConfigError soon: failed to read secret \"env\": {unreachable}"
            ),
        );
        check(
            &[
                (Kind::Secret, "env", Some("no way")),
                (Kind::ConfigMap, "vol", None),
            ],
            "CreateContainerConfigError soon: failed to read secret \"env\": no way",
        );
        check(
            &[(Kind::RuntimeClass, "kata", None)],
            &format!(
                "FailedCreatePodSandBox soon: failed to read RuntimeClass \"kata\": {unreachable}"
            ),
        );
        check(
            &[(Kind::Services, "", None)],
            &format!(
                "CreateContainerConfigError soon: services have not yet been read at least \
                 once, cannot construct envvars: {unreachable}"
            ),
        );
    }
}
