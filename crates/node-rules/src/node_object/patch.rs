//! Decision whether to patch the Node status, and the strategic merge patch.

use std::time::Duration;

use serde_json::{Map, Value, json};
use windlass_types::corev1::{Node, NodeCondition, NodeStatus};

use crate::node_conditions::same_conditions;

/// Change to the status of the Node object.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeStatusPlan {
    /// No change, and the last update is recent.
    Keep,
    /// Patch the subresource `status`.
    Patch {
        /// Other fields than heartbeat times changed.
        changed: bool,
        /// Strategic merge patch of metadata and status.
        patch: Value,
    },
}

/// Decides whether to send the difference between `old` and `new`.
///
/// Heartbeat times alone are sent every `report_frequency`. `since_report` is the time since the
/// last update on the monotonic clock, `None` before the first.
pub fn plan_node_status(
    old: &Node,
    new: &Node,
    since_report: Option<Duration>,
    report_frequency: Duration,
) -> NodeStatusPlan {
    let changed = changed(old, new);
    let due = since_report.is_none_or(|since| since >= report_frequency);
    if !changed && !due {
        return NodeStatusPlan::Keep;
    }
    match node_patch(old, new) {
        Some(patch) => NodeStatusPlan::Patch { changed, patch },
        None => NodeStatusPlan::Keep,
    }
}

/// Returns the strategic merge patch from `old` to `new` for the subresource `status`: labels,
/// annotations and status. `None` if there is no difference.
///
/// As upstream, it has the changed conditions with the order of all, and all addresses with
/// `$patch: replace`, because their merge key is not unique. Other lists are replaced.
pub fn node_patch(old: &Node, new: &Node) -> Option<Value> {
    let mut patch = Map::new();
    let mut metadata = Map::new();
    let maps = [
        ("labels", &old.metadata.labels, &new.metadata.labels),
        (
            "annotations",
            &old.metadata.annotations,
            &new.metadata.annotations,
        ),
    ];
    for (name, old, new) in maps {
        if let Some(part) = diff(&as_object(old), &as_object(new)) {
            metadata.insert(name.to_owned(), part);
        }
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let none = NodeStatus::default();
    let old = old.status.as_ref().unwrap_or(&none);
    let new = new.status.as_ref().unwrap_or(&none);
    if let Some(status) = status_patch(old, new) {
        patch.insert("status".to_owned(), status);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn changed(old: &Node, new: &Node) -> bool {
    let without = |node: &Node| {
        let mut node = node.clone();
        if let Some(status) = &mut node.status {
            status.conditions = None;
        }
        node
    };
    let conditions = |node: &Node| -> Vec<NodeCondition> {
        let status = node.status.as_ref();
        status
            .and_then(|s| s.conditions.clone())
            .unwrap_or_default()
    };
    !same_conditions(&conditions(old), &conditions(new))
        || node_patch(&without(old), &without(new)).is_some()
}

fn status_patch(old: &NodeStatus, new: &NodeStatus) -> Option<Value> {
    let rest = |status: &NodeStatus| {
        let rest = NodeStatus {
            conditions: None,
            addresses: None,
            ..status.clone()
        };
        as_object(&Some(rest))
    };
    let mut patch = match diff(&rest(old), &rest(new)) {
        Some(Value::Object(patch)) => patch,
        _ => Map::new(),
    };
    if old.addresses != new.addresses {
        let mut list = as_array(new.addresses.as_ref());
        if old.addresses.as_ref().is_some_and(|list| !list.is_empty()) {
            list.push(json!({"$patch": "replace"}));
        }
        patch.insert("addresses".to_owned(), Value::Array(list));
    }
    let before = old.conditions.as_deref().unwrap_or_default();
    let after = new.conditions.as_deref().unwrap_or_default();
    let changed: Vec<_> = after.iter().filter(|c| !before.contains(c)).collect();
    if !changed.is_empty() {
        let order: Vec<_> = after.iter().map(|c| json!({"type": c.type_})).collect();
        patch.insert(
            "conditions".to_owned(),
            Value::Array(as_array(Some(&changed))),
        );
        patch.insert(
            "$setElementOrder/conditions".to_owned(),
            Value::Array(order),
        );
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns the merge patch from one value to another: objects by key, other values replaced.
fn diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let set = after.iter().filter_map(|(key, value)| {
        let part = match before.get(key) {
            Some(old) => diff(old, value)?,
            None => value.clone(),
        };
        Some((key.clone(), part))
    });
    let patch: Map<_, _> = removed.chain(set).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns a value as JSON; `None` is an empty object.
fn as_object<T: serde::Serialize>(value: &Option<T>) -> Value {
    #[cfg(test)]
    super::tests::RENDERINGS.set(super::tests::RENDERINGS.get() + 1);
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => Value::Object(Map::new()),
    }
}

fn as_array<T: serde::Serialize>(list: Option<&Vec<T>>) -> Vec<Value> {
    match serde_json::to_value(list) {
        Ok(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}
