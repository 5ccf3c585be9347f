//! From what is known to what a pod needs, or to why it cannot have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_pod_inputs::pod_references::{Need, References, Use};
use windlass_pod_inputs::projection::{ConfigMapContent, Referent, SecretContent, TrustBundle};
use windlass_pod_inputs::service_env::ServiceLink;
use windlass_volume_plan::volume_source::ClaimFault;
use windlass_runtime::InputsError;
use windlass_types::certificatesv1beta1::ClusterTrustBundle;
use windlass_types::corev1::{ConfigMap, Secret, Service};
use windlass_types::nodev1::RuntimeClass;
use windlass_types::{Reason, Retry};

use crate::reflections::Kept;

impl Kept for ConfigMapContent {
    type Object = ConfigMap;

    fn keep(object: ConfigMap) -> Option<Self> {
        Some(object.into())
    }

    fn is_final(object: &ConfigMap) -> bool {
        object.immutable == Some(true)
    }
}

impl Kept for SecretContent {
    type Object = Secret;

    fn keep(object: Secret) -> Option<Self> {
        Some(object.into())
    }

    fn is_final(object: &Secret) -> bool {
        object.immutable == Some(true)
    }
}

impl Kept for ServiceLink {
    type Object = Service;

    fn keep(object: Service) -> Option<Self> {
        Self::of(&object)
    }
}

impl Kept for TrustBundle {
    type Object = ClusterTrustBundle;

    fn keep(object: ClusterTrustBundle) -> Option<Self> {
        Some(object.into())
    }
}

/// `handler` of a RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handler(pub(crate) String);

impl Kept for Handler {
    type Object = RuntimeClass;

    fn keep(object: RuntimeClass) -> Option<Self> {
        Some(Self(object.handler))
    }
}

/// The kinds of object that a pod waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    RuntimeClass,
    Services,
}

/// A reference that nothing is known of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) kind: Kind,
    /// Empty for the services.
    pub(crate) name: String,
    /// What the API server said last, if anything.
    pub(crate) error: Option<Arc<str>>,
}

impl Unanswered {
    /// For volumes that show it.
    pub(crate) fn of_volumes(&self) -> Option<(Referent, String)> {
        let name = || self.name.clone();
        let object = match self.kind {
            Kind::ConfigMap => Referent::ConfigMap(name()),
            Kind::Secret => Referent::Secret(name()),
            Kind::RuntimeClass | Kind::Services => return None,
        };
        Some((object, unread(self.error.as_deref())))
    }
}

/// Why nothing is known of an object.
pub(crate) fn unread(error: Option<&str>) -> String {
    error.unwrap_or("the API server did not answer").to_owned()
}

/// Why a pod cannot start without answers; `None` if it can. Volumes tell by themselves what they
/// lack, and a pull is tried without its secrets.
pub(crate) fn unanswered_error(
    references: &References,
    unanswered: &[Unanswered],
) -> Option<InputsError> {
    let mut reason = None;
    let mut words = Vec::new();
    for one in unanswered {
        let of_env = |objects: &BTreeMap<String, Need>| {
            let need = objects.get(&one.name);
            need.is_some_and(|need| need.env != Use::None)
        };
        let why = unread(one.error.as_deref());
        let name = &one.name;
        let (blame, text) = match one.kind {
            Kind::ConfigMap if of_env(&references.config_maps) => (
                Reason::CreateContainerConfigError,
                format!("failed to read configmap {name:?}: {why}"),
            ),
            Kind::Secret if of_env(&references.secrets) => (
                Reason::CreateContainerConfigError,
                format!("failed to read secret {name:?}: {why}"),
            ),
            Kind::ConfigMap | Kind::Secret => continue,
            Kind::RuntimeClass => (
                Reason::FailedCreatePodSandBox,
                format!("failed to read RuntimeClass {name:?}: {why}"),
            ),
            Kind::Services => (
                Reason::CreateContainerConfigError,
                format!(
                    "services have not yet been read at least once, cannot construct envvars: {why}"
                ),
            ),
        };
        words.push(text);
        reason = reason.or(Some(blame));
    }
    reason.map(|reason| InputsError {
        reason,
        message: words.join("; "),
        retry: Retry::Soon,
    })
}

/// Claims are not ready, each with the volume that stands for it; `None` if there are none.
///
/// Upstream tells of claims when it has waited for all volumes, and of a node's affinity when it
/// mounts.
pub(crate) fn claims_error(faults: &[(&str, ClaimFault)]) -> Option<InputsError> {
    let (mounts, claims): (Vec<_>, Vec<_>) = faults
        .iter()
        .partition(|(_, fault)| matches!(fault, ClaimFault::Affinity(_)));
    let mut words = Vec::new();
    if !claims.is_empty() {
        let names: Vec<_> = claims.iter().map(|(volume, _)| *volume).collect();
        let names = names.join(" ");
        let why: Vec<_> = claims.iter().map(|(_, fault)| fault.to_string()).collect();
        words.push(format!(
            "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached \
             volumes=[], failed to process volumes=[{names}]: {}",
            why.join("; ")
        ));
    }
    words.extend(mounts.iter().map(|(_, fault)| fault.to_string()));
    let soon = faults.iter().any(|(_, fault)| fault.retry() == Retry::Soon);
    (!words.is_empty()).then(|| InputsError {
        reason: Reason::FailedMount,
        message: words.join("; "),
        retry: if soon { Retry::Soon } else { Retry::Later },
    })
}

/// The pod names a RuntimeClass that does not exist.
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

    fn check(unanswered: &[(Kind, &str, Option<&str>)], expected: &str) {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"name": "v", "configMap": {"name": "vol"}}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "env"}}]}],
        }}))
        .expect("pod");
        let unanswered: Vec<_> = unanswered
            .iter()
            .map(|(kind, name, error)| Unanswered {
                kind: *kind,
                name: (*name).to_owned(),
                error: error.map(Arc::from),
            })
            .collect();
        let line = match unanswered_error(&pod_references(&pod), &unanswered) {
            Some(error) => format!("{} {}: {}", error.reason, error.retry, error.message),
            None => String::new(),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn an_answer_that_does_not_come_keeps_what_needs_it_from_starting() {
        let silent = "the API server did not answer";
        check(&[(Kind::Secret, "pull", None)], "");
        check(&[(Kind::ConfigMap, "vol", None)], "");
        check(
            &[(Kind::Secret, "env", None)],
            &format!("CreateContainerConfigError soon: failed to read secret \"env\": {silent}"),
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
            &format!("FailedCreatePodSandBox soon: failed to read RuntimeClass \"kata\": {silent}"),
        );
        check(
            &[(Kind::Services, "", None)],
            &format!(
                "CreateContainerConfigError soon: services have not yet been read at least \
                 once, cannot construct envvars: {silent}"
            ),
        );
    }
}
