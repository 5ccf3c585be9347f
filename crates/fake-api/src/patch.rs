//! Patches by content type.

use serde_json::{Map, Value};

use crate::status_error::StatusError;
use crate::strategic;

/// Applies the body of a PATCH request to an object of `resource`.
pub(crate) fn apply(
    content_type: &str,
    resource: &str,
    object: &mut Value,
    patch: &Value,
) -> Result<(), StatusError> {
    match content_type.split(';').next().unwrap_or_default().trim() {
        "application/strategic-merge-patch+json" => strategic::apply(resource, object, patch),
        "application/merge-patch+json" => {
            merge(object, patch);
            Ok(())
        }
        "application/json-patch+json" => json_patch(object, patch),
        other => Err(StatusError::unsupported_patch(other)),
    }
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, change) in patch {
            if change.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
    }
}

/// RFC 6902: `add`, `replace`, `remove` and `test`, which is what controllers send.
fn json_patch(object: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let operations = patch
        .as_array()
        .ok_or_else(|| StatusError::bad_request("a JSON patch must be a list of operations"))?;
    for operation in operations {
        let word = |key: &str| {
            operation
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (name, path) = (word("op"), word("path"));
        let value = operation.get("value").cloned().unwrap_or_default();
        let done = match name {
            "test" => object.pointer(path) == Some(&value),
            "add" => set(object, path, value, true),
            "replace" => object.pointer(path).is_some() && set(object, path, value, false),
            "remove" => remove(object, path),
            _ => false,
        };
        if !done {
            let message = format!("the operation {name} {path} cannot be applied");
            return Err(StatusError::invalid(message));
        }
    }
    Ok(())
}

fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    let key = last.replace("~1", "/").replace("~0", "~");
    Some((object.pointer_mut(parent)?, key))
}

fn set(object: &mut Value, path: &str, value: Value, insert: bool) -> bool {
    match parent(object, path) {
        Some((Value::Object(map), key)) => {
            map.insert(key, value);
            true
        }
        Some((Value::Array(list), key)) if key == "-" => {
            list.push(value);
            true
        }
        Some((Value::Array(list), key)) => match key.parse::<usize>() {
            Ok(at) if insert && at <= list.len() => {
                list.insert(at, value);
                true
            }
            Ok(at) if !insert && at < list.len() => {
                list[at] = value;
                true
            }
            _ => false,
        },
        _ => false,
    }
}

fn remove(object: &mut Value, path: &str) -> bool {
    match parent(object, path) {
        Some((Value::Object(map), key)) => map.remove(&key).is_some(),
        Some((Value::Array(list), key)) => match key.parse::<usize>() {
            Ok(at) if at < list.len() => {
                list.remove(at);
                true
            }
            _ => false,
        },
        _ => false,
    }
}
