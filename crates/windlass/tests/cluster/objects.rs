//! Builders and readers of API objects.

use serde_json::{Value, json};
use windlass_testing::agent::NODE_NAME;
use windlass_testing::images::BUSYBOX;
use windlass_types::corev1::Pod;

/// A script that runs until SIGTERM: as PID 1 a shell has no default signal handling.
pub(crate) const HOLD: &str = "trap exit TERM; while true; do sleep 1000 & wait $!; done";
/// A script that ignores SIGTERM.
pub(crate) const STUBBORN: &str = "trap : TERM; while true; do sleep 1000 & wait $!; done";

/// A pod on the node whose one container `main` runs a shell script, on the host network,
/// which is quick to start. Fields of `spec` are added or replaced.
pub(crate) fn pod(name: &str, script: &str, spec: Value) -> Pod {
    let mut whole = json!({
        "nodeName": NODE_NAME,
        "hostNetwork": true,
        "terminationGracePeriodSeconds": 2,
        "containers": [container(script)],
    });
    merge(&mut whole, spec);
    object(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": whole,
    }))
}

/// The container `main` of [`pod`].
pub(crate) fn container(script: &str) -> Value {
    json!({
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    })
}

/// The container `main` with more fields.
pub(crate) fn container_with(script: &str, fields: Value) -> Value {
    let mut whole = container(script);
    merge(&mut whole, fields);
    whole
}

/// An object from its JSON.
pub(crate) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn merge(whole: &mut Value, more: Value) {
    if let (Value::Object(whole), Value::Object(more)) = (whole, more) {
        whole.extend(more);
    }
}

/// The condition `kind` of a pod or node; null if there is none.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .unwrap_or(&Value::Null)
}

/// True if the condition `Ready` is.
pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}

/// The phase of a pod.
pub(crate) fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or("")
}

/// The status of the first container of a pod.
pub(crate) fn main_status(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

/// The UID of an object.
pub(crate) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a UID")
}
