//! From what is known to what a pod needs, or to why it cannot have it.

use std::sync::Arc;

use windlass_core::pod_references::{References, Use};
use windlass_core::projection::{ConfigMapContent, ProjectionError, SecretContent, TrustBundle};
use windlass_core::service_env::ServiceLink;
use windlass_core::volume_source::ClaimFault;
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
    TrustBundle,
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

/// Why a pod waits for references without an answer; `None` if nothing but pull secrets is
/// missing, without which a pull is tried all the same.
pub(crate) fn unanswered_error(
    references: &References,
    unanswered: &[Unanswered],
) -> Option<InputsError> {
    let mut reason = None;
    let mut words = Vec::new();
    for one in unanswered {
        let of_object = match one.kind {
            Kind::ConfigMap => references.config_maps.get(&one.name),
            Kind::Secret => references.secrets.get(&one.name),
            Kind::RuntimeClass | Kind::Services | Kind::TrustBundle => None,
        };
        let (what, why) = match (one.kind, of_object) {
            (Kind::RuntimeClass, _) => ("RuntimeClass", Reason::FailedCreatePodSandBox),
            (Kind::Services, _) => ("services", Reason::CreateContainerConfigError),
            (_, Some(need)) if need.volume == Use::None && need.env == Use::None => continue,
            (kind, need) => {
                let what = match kind {
                    Kind::Secret => "secret",
                    Kind::TrustBundle => "clustertrustbundle",
                    _ => "configmap",
                };
                match need {
                    Some(need) if need.volume == Use::None => {
                        (what, Reason::CreateContainerConfigError)
                    }
                    _ => (what, Reason::FailedMount),
                }
            }
        };
        let server = match &one.error {
            Some(error) => error.to_string(),
            None => "the API server did not answer".to_owned(),
        };
        words.push(match one.kind {
            Kind::Services => format!(
                "services have not yet been read at least once, cannot construct envvars: {server}"
            ),
            _ => format!("failed to read {what} {:?}: {server}", one.name),
        });
        // what holds the whole pod up is named first
        reason = reason.or(Some(why)).map(|reason| match why {
            Reason::FailedMount => why,
            _ => reason,
        });
    }
    reason.map(|reason| InputsError {
        reason,
        message: words.join("; "),
        retry: Retry::Soon,
    })
}

/// A volume's content cannot be had. The watch tells when that changes; of a token, which was
/// asked for until the deadline, nobody does.
pub(crate) fn volume_error(error: &ProjectionError) -> InputsError {
    InputsError {
        reason: Reason::FailedMount,
        message: error.to_string(),
        retry: Retry::Later,
    }
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
    use windlass_core::pod_references::pod_references;
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
    fn an_answer_that_does_not_come_is_blamed_on_what_needs_it() {
        let silent = "the API server did not answer";
        check(&[(Kind::Secret, "pull", None)], "");
        check(
            &[(Kind::Secret, "env", None)],
            &format!("CreateContainerConfigError soon: failed to read secret \"env\": {silent}"),
        );
        check(
            &[
                (Kind::Secret, "env", Some("no way")),
                (Kind::ConfigMap, "vol", None),
            ],
            &format!(
                "FailedMount soon: failed to read secret \"env\": no way; \
                 failed to read configmap \"vol\": {silent}"
            ),
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
