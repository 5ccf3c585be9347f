//! Access to fields that every type has.

use serde_json::{Map, Value, json};
use windlass_types::Timestamp;

/// A field by its path of keys.
pub(crate) fn field<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// A text field by its path; as in Go, an empty text counts as missing.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> Option<&'a str> {
    field(object, path)?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// A text field of the metadata.
pub(crate) fn meta<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    text(object, &["metadata", key])
}

/// The value as an object; anything else becomes an empty one.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// The section `key` of an object, created if missing.
pub(crate) fn section<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    as_map(as_map(object).entry(key).or_insert_with(|| json!({})))
}

/// The metadata of an object, created if missing.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    section(object, "metadata")
}

/// Copies a field of one map to another; a missing field is removed.
pub(crate) fn carry(from: Option<&Value>, to: &mut Map<String, Value>, key: &str) {
    match from.and_then(|from| from.get(key)) {
        Some(value) => {
            to.insert(key.to_owned(), value.clone());
        }
        None => {
            to.remove(key);
        }
    }
}

/// A non-empty list field of the metadata.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    field(object, &["metadata", "finalizers"])
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

/// Timestamps have whole seconds in the metadata of an object.
pub(crate) fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}
