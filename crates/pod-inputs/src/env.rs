//! Environment of a container, and `$(VAR)` references in it, its command and its arguments.
//!
//! Mirrors upstream `makeEnvironmentVariables` and the package `expansion`. The order is `envFrom`,
//! `env`, services; in upstream it is random.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use windlass_types::corev1::{Container, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use windlass_types::{Pod, PodExt};

use crate::node_facts::NodeFacts;
use crate::node_facts::by_family;
use crate::projection::{ConfigMapContent, SecretContent};
use windlass_units::quantity::{Quantity, QuantityError, lookup};

mod files;
mod variables;

pub use files::{
    EnvFile, EnvFileKey, EnvFiles, MAX_ENV_FILE_BYTES, MAX_ENV_FILES_BYTES, referenced_files,
};
pub use variables::expand;
pub use variables::expand_words;

use variables::Variables;

/// Values from outside the pod, in its namespace.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvSources {
    /// Data of ConfigMaps by name.
    pub config_maps: BTreeMap<String, Arc<ConfigMapContent>>,
    /// Data of Secrets by name, decoded.
    pub secrets: BTreeMap<String, Arc<SecretContent>>,
    /// Service variables; other variables take precedence.
    pub services: BTreeMap<String, String>,
}

impl fmt::Debug for EnvSources {
    /// Names only: the values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvSources")
            .field("config_maps", &self.config_maps.keys())
            .field("secrets", &self.secrets.keys())
            .field("services", &self.services.keys())
            .finish()
    }
}

/// Data of one object; invalid UTF-8 is replaced in variables.
#[derive(Clone, Copy)]
enum Data<'a> {
    Text(&'a BTreeMap<String, Arc<str>>),
    Bytes(&'a BTreeMap<String, Arc<[u8]>>),
}

impl EnvSources {
    fn data(&self, kind: EnvObject, name: &str) -> Option<Data<'_>> {
        match kind {
            EnvObject::ConfigMap => self.config_maps.get(name).map(|o| Data::Text(&o.data)),
            EnvObject::Secret => self.secrets.get(name).map(|o| Data::Bytes(&o.data)),
        }
    }
}

impl<'a> Data<'a> {
    fn get(self, key: &str) -> Option<String> {
        match self {
            Self::Text(data) => data.get(key).map(|value| value.to_string()),
            Self::Bytes(data) => data.get(key).map(|value| text(value)),
        }
    }

    fn entries(self) -> Vec<(&'a str, String)> {
        match self {
            Self::Text(data) => data.iter().map(|(k, v)| (&**k, v.to_string())).collect(),
            Self::Bytes(data) => data.iter().map(|(k, v)| (&**k, text(v))).collect(),
        }
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// Input of [`environment`].
#[derive(Clone, Copy, Debug)]
pub struct EnvInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// Addresses of the pod, primary first; empty for host network.
    pub pod_ips: &'a [IpAddr],
    /// The node.
    pub node: &'a NodeFacts,
    /// Values from outside the pod.
    pub sources: &'a EnvSources,
    /// Files of `fileKeyRef` variables.
    pub files: &'a EnvFiles,
}

windlass_types::text_enum! {
    /// Kind of a source object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EnvObject {
        /// ConfigMap.
        ConfigMap = "ConfigMap",
        /// Secret.
        Secret = "Secret",
    }
}

impl EnvObject {
    /// Returns the name in `not found` errors.
    fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// Why a variable has no value. Messages for missing objects and keys match upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// Missing ConfigMap or Secret.
    #[error("{} {name:?} not found", kind.resource())]
    MissingObject {
        /// Kind.
        kind: EnvObject,
        /// Name.
        name: String,
    },
    /// Missing key in a ConfigMap or Secret.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey {
        /// Kind.
        kind: EnvObject,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// The key.
        key: String,
    },
    /// Unsupported field.
    #[error("{field}: unsupported field {path:?}")]
    UnsupportedField {
        /// Path of the reference.
        field: String,
        /// Path of the field.
        path: String,
    },
    /// Unsupported resource.
    #[error("{field}: unsupported container resource {resource:?}")]
    UnsupportedResource {
        /// Path of the reference.
        field: String,
        /// The resource.
        resource: String,
    },
    /// Unknown container in `resourceFieldRef`.
    #[error("{field}: container {container} not found")]
    UnknownContainer {
        /// Path of the reference.
        field: String,
        /// The name.
        container: String,
    },
    /// The volume of a `fileKeyRef` is not set up.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolumeOfFile(String),
    /// The file cannot be read or parsed. The cause is only logged, as upstream.
    #[error("couldn't parse env file")]
    File {
        /// The file.
        path: String,
        /// Cause.
        cause: String,
    },
    /// The file has no such variable, which is not optional.
    #[error("environment variable key {key:?} not found in file {path:?}")]
    MissingFileKey {
        /// The variable.
        key: String,
        /// The file.
        path: String,
    },
    /// Invalid quantity or divisor.
    #[error("{field}: {source}")]
    Quantity {
        /// Path of the reference.
        field: String,
        /// Cause.
        source: QuantityError,
    },
    /// Above the limit of Linux.
    #[error("{field}: larger than 8 MiB, the limit of Linux")]
    TooLarge {
        /// `env`, `command` or `args`.
        field: &'static str,
    },
}

/// Returns the environment of a container, in order, each name once.
///
/// # Errors
/// The first variable without a value, or an environment that is too large.
pub fn environment(input: EnvInput<'_>) -> Result<Vec<(String, String)>, EnvError> {
    let services = &input.sources.services;
    let mut env = Variables::default();
    add_env_from(input, &mut env)?;
    for var in input.container.env.iter().flatten() {
        let value = match (var.value.as_deref(), &var.value_from) {
            (Some(text), _) if !text.is_empty() => Some(expand(text, |name| {
                let service = || services.get(name).map(String::as_str);
                env.get(name).or_else(service)
            })),
            (_, Some(source)) => value_from(input, &var.name, source)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            env.set(&var.name, value)?;
        }
    }
    for (name, value) in services {
        if env.get(name).is_none() {
            env.set(name, value.clone())?;
        }
    }
    Ok(env.into_list())
}

/// Returns the value of a downward API field. `field` is the path of the reference, for errors.
///
/// # Errors
/// Unsupported path.
pub(crate) fn pod_field(
    input: EnvInput<'_>,
    selector: &ObjectFieldSelector,
    field: &str,
) -> Result<String, EnvError> {
    let path = selector.field_path.as_str();
    let unsupported = || EnvError::UnsupportedField {
        field: field.to_owned(),
        path: path.to_owned(),
    };
    if !matches!(selector.api_version.as_deref(), None | Some("" | "v1")) {
        return Err(unsupported());
    }
    let pod = input.pod;
    let spec = PodExt::spec(pod);
    // a host network pod has the addresses of the node, in the order of its status
    let pod_ips = match pod.host_network() {
        true => input.node.node_ips.clone(),
        false => by_family(input.pod_ips, &input.node.node_ips),
    };
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => pod.metadata.labels.as_ref(),
            "metadata.annotations" => pod.metadata.annotations.as_ref(),
            _ => return Err(unsupported()),
        };
        return Ok(map.and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_string(),
        "spec.nodeName" | "spec.host" => match spec.node_name.as_deref() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => input.node.node_name.clone(),
        },
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" => first(&input.node.node_ips),
        "status.hostIPs" => join(&input.node.node_ips),
        "status.podIP" => first(&pod_ips),
        "status.podIPs" => join(&pod_ips),
        _ => return Err(unsupported()),
    })
}

/// Returns the value of a container resource divided by its divisor. The default limit is the
/// pod-level limit, else allocatable of the node; the default request is the limit.
///
/// # Errors
/// Unknown resource or container, or an invalid quantity.
pub(crate) fn resource_field(
    input: EnvInput<'_>,
    selector: &ResourceFieldSelector,
    field: &str,
) -> Result<String, EnvError> {
    let container = referred_container(input, selector, field)?;
    let quantity_error = |source| EnvError::Quantity {
        field: field.to_owned(),
        source,
    };
    let unsupported = || EnvError::UnsupportedResource {
        field: field.to_owned(),
        resource: selector.resource.clone(),
    };
    let (kind, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let known =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !known || !matches!(kind, "limits" | "requests") {
        return Err(unsupported());
    }
    let resources = container.resources.clone().unwrap_or_default();
    let limit = lookup(resources.limits.as_ref(), name).map_err(quantity_error)?;
    let amount = match kind {
        "requests" => lookup(resources.requests.as_ref(), name)
            .map_err(quantity_error)?
            .or(limit),
        _ => match limit.filter(|q| !q.is_zero()) {
            None => pod_level_limit(input.pod, name)
                .map_err(quantity_error)?
                .or_else(|| node_allocatable(input.node, name)),
            limit => limit,
        },
    };
    let divisor = match &selector.divisor {
        Some(text) if !text.0.is_empty() => text.0.parse().map_err(quantity_error)?,
        _ => Quantity::ZERO,
    };
    Ok(amount
        .unwrap_or_default()
        .in_units_of(divisor, name == "cpu")
        .to_string())
}

/// Returns the pod-level limit, which exists for CPU and memory.
fn pod_level_limit(pod: &Pod, name: &str) -> Result<Option<Quantity>, QuantityError> {
    let resources = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let limit = lookup(limits.filter(|_| matches!(name, "cpu" | "memory")), name)?;
    Ok(limit.filter(|q| !q.is_zero()))
}

fn node_allocatable(node: &NodeFacts, name: &str) -> Option<Quantity> {
    let bytes = |n| Quantity::from_units(n, windlass_units::quantity::QuantityFormat::BinarySi);
    match name {
        "cpu" => Some(Quantity::from_milli(node.allocatable_cpu_milli)),
        "memory" => Some(bytes(node.allocatable_memory)),
        "ephemeral-storage" => Some(bytes(node.allocatable_ephemeral_storage)),
        _ => None,
    }
}

fn referred_container<'a>(
    input: EnvInput<'a>,
    selector: &ResourceFieldSelector,
    field: &str,
) -> Result<&'a Container, EnvError> {
    let name = selector.container_name.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Ok(input.container);
    }
    let all = input
        .pod
        .containers()
        .iter()
        .chain(input.pod.init_containers());
    all.into_iter()
        .find(|c| c.name == name)
        .ok_or_else(|| EnvError::UnknownContainer {
            field: field.to_owned(),
            container: name.to_owned(),
        })
}

/// Every key becomes a variable, as upstream since 1.34.
fn add_env_from(input: EnvInput<'_>, env: &mut Variables) -> Result<(), EnvError> {
    let sources = input.sources;
    for from in input.container.env_from.iter().flatten() {
        let (kind, name, optional) = if let Some(r) = &from.config_map_ref {
            (EnvObject::ConfigMap, &r.name, r.optional)
        } else if let Some(r) = &from.secret_ref {
            (EnvObject::Secret, &r.name, r.optional)
        } else {
            continue;
        };
        let Some(data) = sources.data(kind, name) else {
            if optional.unwrap_or(false) {
                continue;
            }
            return Err(EnvError::MissingObject {
                kind,
                name: name.clone(),
            });
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in data.entries() {
            env.set(&format!("{prefix}{key}"), value)?;
        }
    }
    Ok(())
}

/// Returns `None` for a missing optional source; the variable is then not defined.
fn value_from(
    input: EnvInput<'_>,
    variable: &str,
    source: &EnvVarSource,
) -> Result<Option<String>, EnvError> {
    let field = |kind: &str| format!("env[{variable}].valueFrom.{kind}");
    if let Some(selector) = &source.field_ref {
        return pod_field(input, selector, &field("fieldRef")).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return resource_field(input, selector, &field("resourceFieldRef")).map(Some);
    }
    if let Some(r) = &source.config_map_key_ref {
        let object = (EnvObject::ConfigMap, r.name.as_str());
        return key_value(input, object, &r.key, r.optional);
    }
    if let Some(r) = &source.secret_key_ref {
        let object = (EnvObject::Secret, r.name.as_str());
        return key_value(input, object, &r.key, r.optional);
    }
    if let Some(selector) = source
        .file_key_ref
        .as_ref()
        .filter(|_| input.node.env_files)
    {
        return files::file_value(input.files, selector);
    }
    Ok(Some(String::new()))
}

fn key_value(
    input: EnvInput<'_>,
    (kind, name): (EnvObject, &str),
    key: &str,
    optional: Option<bool>,
) -> Result<Option<String>, EnvError> {
    let data = input.sources.data(kind, name);
    if let Some(value) = data.and_then(|d| d.get(key)) {
        return Ok(Some(value));
    }
    if optional.unwrap_or(false) {
        return Ok(None);
    }
    let name = name.to_owned();
    Err(match data {
        None => EnvError::MissingObject { kind, name },
        Some(_) => EnvError::MissingKey {
            kind,
            namespace: input.pod.namespace().to_owned(),
            name,
            key: key.to_owned(),
        },
    })
}

/// Splits `metadata.labels['x']`.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once("['")?;
    Some((map, rest.strip_suffix("']")?))
}

fn first(ips: &[IpAddr]) -> String {
    ips.first().map(ToString::to_string).unwrap_or_default()
}

fn join(ips: &[IpAddr]) -> String {
    let texts: Vec<_> = ips.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests;
