//! Labels and annotations of a container: for later agent runs, for `crictl` and for a Go kubelet.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_types::corev1::{Container, ContainerPort, Lifecycle, LifecycleHandler};
use windlass_types::{Pod, PodExt, names};

use super::termination_message_path;
use windlass_pod_inputs::resources::container_sizes;
use windlass_units::hash::container_hash_text;

/// Returns all annotations of an instance.
pub(super) fn annotations(
    pod: &Pod,
    container: &Container,
    restart_count: u32,
) -> BTreeMap<String, String> {
    let policy = container.termination_message_policy.as_deref();
    let mut out: BTreeMap<String, String> = [
        (names::ANN_CONTAINER_HASH, container_hash_text(container)),
        (names::ANN_RESTART_COUNT, restart_count.to_string()),
        (
            names::ANN_SIZES,
            container_sizes(pod, container).to_string(),
        ),
        (
            names::ANN_TERMINATION_MESSAGE_PATH,
            termination_message_path(container).to_owned(),
        ),
        (
            names::ANN_TERMINATION_MESSAGE_POLICY,
            policy
                .filter(|p| !p.is_empty())
                .unwrap_or("File")
                .to_owned(),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            out.insert(key.to_owned(), value);
        }
    };
    let seconds = |n: Option<i64>| n.map(|n| n.to_string());
    put(
        names::ANN_DELETION_GRACE,
        seconds(pod.metadata.deletion_grace_period_seconds),
    );
    put(
        names::ANN_TERMINATION_GRACE,
        seconds(PodExt::spec(pod).termination_grace_period_seconds),
    );
    let pre_stop = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.pre_stop.as_ref());
    put(
        names::ANN_PRE_STOP_HANDLER,
        pre_stop.map(|h| go_json(&handler(h))),
    );
    let ports = container.ports.as_deref().filter(|p| !p.is_empty());
    put(
        names::ANN_PORTS,
        ports.map(|p| go_json(&p.iter().map(Port::from).collect::<Vec<_>>())),
    );
    out
}

/// Restores a container from its annotations, for a stop without the pod spec (upstream
/// `restoreSpecsFromContainerLabels`). Invalid annotations are skipped.
pub fn restored_container(name: &str, annotations: &BTreeMap<String, String>) -> Container {
    fn read<T: DeserializeOwned>(annotations: &BTreeMap<String, String>, key: &str) -> Option<T> {
        serde_json::from_str(annotations.get(key)?).ok()
    }
    Container {
        name: name.to_owned(),
        ports: read(annotations, names::ANN_PORTS),
        lifecycle: Some(Lifecycle {
            pre_stop: read(annotations, names::ANN_PRE_STOP_HANDLER),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

/// A port with its fields in the order of the Go struct.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Port<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_port: Option<i32>,
    container_port: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'a str>,
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    host_ip: Option<&'a str>,
}

impl<'a> From<&'a ContainerPort> for Port<'a> {
    fn from(port: &'a ContainerPort) -> Self {
        fn text(field: &Option<String>) -> Option<&str> {
            field.as_deref().filter(|t| !t.is_empty())
        }
        Self {
            name: text(&port.name),
            host_port: port.host_port.filter(|p| *p != 0),
            container_port: port.container_port,
            protocol: text(&port.protocol).or(Some("TCP")),
            host_ip: text(&port.host_ip),
        }
    }
}

/// Serializes a hook as JSON, in any field order.
fn handler(handler: &LifecycleHandler) -> Value {
    serde_json::to_value(handler).unwrap_or_else(|_| json!({}))
}

/// Serializes JSON as Go: with `<`, `>` and `&` escaped.
fn go_json(value: &impl Serialize) -> String {
    serde_json::to_string(value)
        .unwrap_or_default()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}
