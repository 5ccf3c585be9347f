//! Fields that a static pod must not have: references to API objects
//! (upstream `HasAPIObjectReference`, KEP-5466 gate `PreventStaticPodAPIReferences`).

use std::fmt;

use serde_json::Value;
use windlass_types::corev1::{Container, Volume};
use windlass_types::{Pod, PodExt};

use crate::yaml::Position;

/// A field that refers to an object of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiReference {
    /// The field, `spec.volumes[0].configMap`.
    pub field: String,
    /// Plural name of the object type.
    pub resource: &'static str,
    /// Position in the manifest.
    pub position: Option<Position>,
}

impl fmt::Display for ApiReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(position) = self.position {
            write!(f, "line {}: ", position.line)?;
        }
        write!(
            f,
            "{}: a static pod may not refer to {}",
            self.field, self.resource
        )
    }
}

/// Returns all fields that refer to API objects, in the order of the spec.
pub(crate) fn api_references(pod: &Pod) -> Vec<ApiReference> {
    let mut found = Vec::new();
    let mut add = |field: String, resource| {
        found.push(ApiReference {
            field,
            resource,
            position: None,
        });
    };
    let spec = PodExt::spec(pod);
    if spec
        .service_account_name
        .as_ref()
        .is_some_and(|name| !name.is_empty())
    {
        add("spec.serviceAccountName".to_owned(), "serviceaccounts");
    }
    if spec
        .image_pull_secrets
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        add("spec.imagePullSecrets".to_owned(), "secrets");
    }
    if spec
        .resource_claims
        .as_ref()
        .is_some_and(|list| !list.is_empty())
    {
        add("spec.resourceClaims".to_owned(), "resourceclaims");
    }
    for (index, container) in pod.init_containers().iter().enumerate() {
        in_container(
            container,
            &format!("spec.initContainers[{index}]"),
            &mut add,
        );
    }
    for (index, container) in PodExt::containers(pod).iter().enumerate() {
        in_container(container, &format!("spec.containers[{index}]"), &mut add);
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        in_volume(volume, &format!("spec.volumes[{index}]"), &mut add);
    }
    found
}

fn in_container(container: &Container, path: &str, add: &mut impl FnMut(String, &'static str)) {
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        let path = format!("{path}.envFrom[{index}]");
        if source.config_map_ref.is_some() {
            add(format!("{path}.configMapRef"), "configmaps");
        }
        if source.secret_ref.is_some() {
            add(format!("{path}.secretRef"), "secrets");
        }
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let Some(source) = &variable.value_from else {
            continue;
        };
        let path = format!("{path}.env[{index}].valueFrom");
        if source.config_map_key_ref.is_some() {
            add(format!("{path}.configMapKeyRef"), "configmaps");
        }
        if source.secret_key_ref.is_some() {
            add(format!("{path}.secretKeyRef"), "secrets");
        }
    }
}

/// Inspects the JSON form: its keys are the name and the source, and a source with credentials has
/// a `secretRef`.
fn in_volume(volume: &Volume, path: &str, add: &mut impl FnMut(String, &'static str)) {
    let Ok(Value::Object(fields)) = serde_json::to_value(volume) else {
        return;
    };
    for (key, source) in &fields {
        let field = format!("{path}.{key}");
        let resource = match key.as_str() {
            "configMap" => "configmaps",
            "secret" | "azureFile" => "secrets",
            "csi" => "csidrivers",
            "glusterfs" => "endpoints",
            "persistentVolumeClaim" | "ephemeral" => "persistentvolumeclaims",
            "projected" => {
                in_projection(source, &field, add);
                continue;
            }
            _ if source.get("secretRef").is_some() => {
                add(format!("{field}.secretRef"), "secrets");
                continue;
            }
            _ => continue,
        };
        add(field, resource);
    }
}

fn in_projection(projected: &Value, path: &str, add: &mut impl FnMut(String, &'static str)) {
    let sources = projected.get("sources").and_then(Value::as_array);
    for (index, source) in sources.into_iter().flatten().enumerate() {
        for key in source.as_object().into_iter().flat_map(|o| o.keys()) {
            let resource = match key.as_str() {
                "configMap" => "configmaps",
                "secret" => "secrets",
                "serviceAccountToken" => "serviceaccounts",
                "clusterTrustBundle" => "clustertrustbundles",
                "podCertificate" => "podcertificates",
                _ => continue,
            };
            add(format!("{path}.sources[{index}].{key}"), resource);
        }
    }
}
