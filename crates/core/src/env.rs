//! A container's environment and the `$(VAR)` references in it, its command and its arguments.
//!
//! Mirrors upstream's `makeEnvironmentVariables` and its `expansion` package. Upstream's result
//! has the random order of a Go map; here it is `envFrom`, then `env` as written, then services.

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_types::corev1::{Container, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector};
use windlass_types::{Pod, PodExt};

use crate::node_facts::NodeFacts;
use crate::quantity::{Quantity, QuantityError, lookup};

/// Values from outside the pod, all of the pod's own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvSources {
    /// Data of ConfigMaps by name.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Data of Secrets by name, decoded.
    pub secrets: BTreeMap<String, BTreeMap<String, String>>,
    /// Variables that announce services; the container's own win.
    pub services: BTreeMap<String, String>,
}

/// What an environment is made of.
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
}

/// A variable that cannot be given a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// The agent does not have the ConfigMap or Secret.
    #[error("{field}: {kind} {namespace}/{name} is not available on this node")]
    MissingObject {
        /// Where it is referred to.
        field: String,
        /// `configMap` or `secret`.
        kind: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// The ConfigMap or Secret has no such key.
    #[error("{field}: couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey {
        /// Where it is referred to.
        field: String,
        /// `configMap` or `secret`.
        kind: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// The key.
        key: String,
    },
    /// Not a field that can be handed to a container.
    #[error("{field}: unsupported field {path:?}")]
    UnsupportedField {
        /// Where it is referred to.
        field: String,
        /// The path.
        path: String,
    },
    /// Not a resource that can be handed to a container.
    #[error("{field}: unsupported container resource {resource:?}")]
    UnsupportedResource {
        /// Where it is referred to.
        field: String,
        /// The resource.
        resource: String,
    },
    /// `resourceFieldRef` names no container of the pod.
    #[error("{field}: container {container} not found")]
    UnknownContainer {
        /// Where it is referred to.
        field: String,
        /// The name.
        container: String,
    },
    /// A source that this version does not read.
    #[error("{field}: {what} is not supported by this version")]
    Unsupported {
        /// Where it is referred to.
        field: String,
        /// The source.
        what: &'static str,
    },
    /// A resource amount or divisor cannot be read.
    #[error("{field}: {source}")]
    Quantity {
        /// Where it is referred to.
        field: String,
        /// Why.
        source: QuantityError,
    },
}

/// The environment of a container, in order, each name once.
///
/// # Errors
/// The first variable that cannot be given a value.
pub fn environment(input: EnvInput<'_>) -> Result<Vec<(String, String)>, EnvError> {
    let mut env = Vec::new();
    add_env_from(input, &mut env)?;
    for var in input.container.env.iter().flatten() {
        let value = match (var.value.as_deref(), &var.value_from) {
            (Some(text), _) if !text.is_empty() => Some(expand(text, |name| {
                lookup_var(&env, &input.sources.services, name)
            })),
            (_, Some(source)) => value_from(input, &var.name, source)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut env, &var.name, value);
        }
    }
    for (name, value) in &input.sources.services {
        if !env.iter().any(|(n, _)| n == name) {
            env.push((name.clone(), value.clone()));
        }
    }
    Ok(env)
}

/// Replaces `$(NAME)` by what `resolve` says. `$$` stands for `$`, so `$$(NAME)` is kept as
/// `$(NAME)`; a name that does not resolve and any other `$` stay as they are.
pub fn expand<'a>(text: &str, resolve: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match resolve(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

/// Expands each word of a command or argument list from the finished environment.
pub fn expand_words(words: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    let none = BTreeMap::new();
    words
        .into_iter()
        .flatten()
        .map(|word| expand(word, |name| lookup_var(env, &none, name)))
        .collect()
}

/// The value of a downward API field. `field` says where it is referred to, for the error.
///
/// # Errors
/// The path is not one that can be handed to a container.
pub fn pod_field(
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
    // a pod on the host network has the node's addresses
    let pod_ips = if pod.host_network() {
        &input.node.node_ips
    } else {
        input.pod_ips
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
        "status.podIP" => first(pod_ips),
        "status.podIPs" => join(pod_ips),
        _ => return Err(unsupported()),
    })
}

/// The value of a container's resource, counted in its divisor. A limit that is not set is what
/// the node can give; a request that is not set is the limit.
///
/// # Errors
/// The resource or container is unknown, or an amount cannot be read.
pub fn resource_field(
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
        _ => limit
            .filter(|q| !q.is_zero())
            .or_else(|| node_allocatable(input.node, name)),
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

fn node_allocatable(node: &NodeFacts, name: &str) -> Option<Quantity> {
    let bytes = |n| Quantity::from_units(n, crate::quantity::QuantityFormat::BinarySi);
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

fn add_env_from(input: EnvInput<'_>, env: &mut Vec<(String, String)>) -> Result<(), EnvError> {
    for (index, from) in input.container.env_from.iter().flatten().enumerate() {
        let (kind, maps, name, optional) = if let Some(r) = &from.config_map_ref {
            ("configMap", &input.sources.config_maps, &r.name, r.optional)
        } else if let Some(r) = &from.secret_ref {
            ("secret", &input.sources.secrets, &r.name, r.optional)
        } else {
            continue;
        };
        let Some(data) = maps.get(name) else {
            if optional.unwrap_or(false) {
                continue;
            }
            return Err(EnvError::MissingObject {
                field: format!("envFrom[{index}]"),
                kind,
                namespace: input.pod.namespace().to_owned(),
                name: name.clone(),
            });
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in data {
            set(env, &format!("{prefix}{key}"), value.clone());
        }
    }
    Ok(())
}

/// `None` if an optional source has nothing: the variable is then not defined at all.
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
        let object = ("configMap", r.name.as_str(), &input.sources.config_maps);
        return key_value(input, object, &r.key, r.optional, &field("configMapKeyRef"));
    }
    if let Some(r) = &source.secret_key_ref {
        let object = ("secret", r.name.as_str(), &input.sources.secrets);
        return key_value(input, object, &r.key, r.optional, &field("secretKeyRef"));
    }
    if source.file_key_ref.is_some() {
        return Err(EnvError::Unsupported {
            field: field("fileKeyRef"),
            what: "fileKeyRef",
        });
    }
    Ok(Some(String::new()))
}

type NamedData<'a> = (
    &'static str,
    &'a str,
    &'a BTreeMap<String, BTreeMap<String, String>>,
);

fn key_value(
    input: EnvInput<'_>,
    (kind, name, objects): NamedData<'_>,
    key: &str,
    optional: Option<bool>,
    field: &str,
) -> Result<Option<String>, EnvError> {
    let data = objects.get(name);
    if let Some(value) = data.and_then(|d| d.get(key)) {
        return Ok(Some(value.clone()));
    }
    if optional.unwrap_or(false) {
        return Ok(None);
    }
    let (field, namespace, name) = (
        field.to_owned(),
        input.pod.namespace().to_owned(),
        name.to_owned(),
    );
    Err(match data {
        None => EnvError::MissingObject {
            field,
            kind,
            namespace,
            name,
        },
        Some(_) => EnvError::MissingKey {
            field,
            kind,
            namespace,
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

fn lookup_var<'a>(
    env: &'a [(String, String)],
    services: &'a BTreeMap<String, String>,
    name: &str,
) -> Option<&'a str> {
    let own = env.iter().find(|(n, _)| n == name).map(|(_, v)| v);
    own.or_else(|| services.get(name)).map(String::as_str)
}

/// A name keeps the place of its first definition and the value of its last.
fn set(env: &mut Vec<(String, String)>, name: &str, value: String) {
    match env.iter_mut().find(|(n, _)| n == name) {
        Some(slot) => slot.1 = value,
        None => env.push((name.to_owned(), value)),
    }
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
