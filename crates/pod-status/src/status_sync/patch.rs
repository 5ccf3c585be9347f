//! The difference between two statuses as a strategic merge patch.
//!
//! Both statuses are normalized first, so that different spellings (null and empty, `0.5` and
//! `500m`, fractions of a second) are equal. Lists follow the merge keys of the API types; a list
//! without one is replaced.

use serde_json::{Map, Value, json};
use windlass_types::Pod;
use windlass_types::corev1::PodStatus;
use windlass_types::mutation::{Mutation, mutated};

use windlass_units::quantity::Quantity;

type Object = Map<String, Value>;

/// Lists of a status that are merged by element, with their merge keys.
const MERGED_LISTS: [(&str, &str); 4] = [
    ("conditions", "type"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("resourceClaimStatuses", "name"),
];

/// Returns the patch of the `status` subresource from `base` to `merged`, with the UID as a
/// precondition; `None` without a difference.
pub(crate) fn status_patch(base: &Pod, merged: &PodStatus) -> Option<Value> {
    // the usual case, in which rendering both as JSON is the most expensive step
    if base.status.as_ref() == Some(merged) {
        return None;
    }
    let before = base.status.as_ref().map(plain).unwrap_or_default();
    let status = difference(&before, &plain(merged));
    if mutated(Mutation::StatusOfOldPod) {
        return (!status.is_empty()).then(|| json!({ "status": status }));
    }
    (!status.is_empty()).then(|| json!({"metadata": {"uid": base.metadata.uid}, "status": status}))
}

/// Returns a status as JSON without empty fields.
fn plain(status: &PodStatus) -> Object {
    #[cfg(test)]
    super::tests::RENDERINGS.set(super::tests::RENDERINGS.get() + 1);
    // typed fields always serialize
    let mut value = serde_json::to_value(status).unwrap_or_default();
    strip("", &mut value);
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

/// Removes empty fields below `value`, the value of `key`.
fn strip(key: &str, value: &mut Value) {
    match value {
        Value::Object(object) => {
            let amounts = ["allocatedResources", "requests", "limits"].contains(&key);
            for (key, value) in object.iter_mut() {
                match value {
                    Value::String(text) if amounts => canonical(text),
                    _ => strip(key, value),
                }
            }
            object.retain(|key, value| !is_empty(key, value));
        }
        Value::Array(list) => list.iter_mut().for_each(|element| strip("", element)),
        _ => {}
    }
}

fn canonical(text: &mut String) {
    if let Ok(quantity) = text.parse::<Quantity>() {
        *text = quantity.to_string();
    }
}

/// Objects that say something without any field: a container state, and that a container has no
/// resources.
const SIGNIFICANT_IF_EMPTY: [&str; 4] = ["waiting", "running", "terminated", "resources"];

fn is_empty(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty() && !SIGNIFICANT_IF_EMPTY.contains(&key),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the merge patch between two objects.
fn difference(before: &Object, after: &Object) -> Object {
    let mut patch = Object::new();
    for (key, new) in after {
        let old = before.get(key);
        if old == Some(new) {
            continue;
        }
        let by = MERGED_LISTS.iter().find(|(list, _)| list == key);
        match (old, new, by) {
            (Some(Value::Object(old)), Value::Object(new), _) => {
                patch.insert(key.clone(), Value::Object(difference(old, new)));
            }
            (Some(Value::Array(old)), Value::Array(new), Some((_, by))) => {
                merge_list(&mut patch, key, by, old, new);
            }
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    patch
}

/// Adds the elements that differ, and the order of all. A different order alone counts only for
/// addresses.
fn merge_list(patch: &mut Object, key: &str, by: &str, old: &[Value], new: &[Value]) {
    let named = |list: &[Value], name: &Value| list.iter().find(|e| e[by] == *name).cloned();
    let mut changes = Vec::new();
    for element in new {
        match (named(old, &element[by]), element) {
            (Some(Value::Object(old)), Value::Object(element)) => {
                let mut change = difference(&old, element);
                if !change.is_empty() {
                    change.insert(by.to_owned(), element[by].clone());
                    changes.push(Value::Object(change));
                }
            }
            _ => changes.push(element.clone()),
        }
    }
    let gone = old.iter().filter(|e| named(new, &e[by]).is_none());
    changes.extend(gone.map(|e| json!({"$patch": "delete", by: e[by]})));
    let moved = by == "ip" && new.iter().map(|e| &e[by]).ne(old.iter().map(|e| &e[by]));
    if changes.is_empty() && !moved {
        return;
    }
    let order = new.iter().map(|e| json!({by: e[by]})).collect();
    patch.insert(format!("$setElementOrder/{key}"), Value::Array(order));
    if !changes.is_empty() {
        patch.insert(key.to_owned(), Value::Array(changes));
    }
}
