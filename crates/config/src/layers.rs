//! Configuration layers as JSON values, and the drop-in directory.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::duration::GoDuration;
use crate::fields;

/// Fields with a path, which is relative to the configuration file.
const PATH_FIELDS: [&str; 7] = [
    "staticPodPath",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "resolvConf",
    "volumePluginDir",
    "podLogsDir",
];

/// JSON merge patch (RFC 7386): objects merge, null deletes, everything else replaces.
pub(crate) fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge_patch(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

/// The value at a path of object keys joined by dots.
pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

/// Replaces the value at a path and creates the objects on the path.
pub fn set(target: &mut Value, path: &str, value: Value) {
    let patch = path
        .rsplit('.')
        .fold(Value::Null, |inner, key| wrap(key, inner));
    // null deletes the old value, so that maps are replaced, not merged
    merge_patch(target, &patch);
    let patch = path.rsplit('.').fold(value, |inner, key| wrap(key, inner));
    merge_patch(target, &patch);
}

fn wrap(key: &str, value: Value) -> Value {
    Value::Object([(key.to_owned(), value)].into_iter().collect())
}

/// Calls `visit` for every field of the table and every unknown leaf.
pub(crate) fn leaves(value: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) if path.is_empty() || fields::find(path).is_none() => {
            for (key, member) in members {
                let path = match path {
                    "" => key.clone(),
                    _ => format!("{path}.{key}"),
                };
                leaves(member, &path, visit);
            }
        }
        _ => visit(path, value),
    }
}

/// Removes the zero values that mean the default.
pub(crate) fn drop_zero_values(layer: &mut Value) {
    for field in fields::FIELDS.iter().filter(|f| f.zero_is_default) {
        if get(layer, field.path).is_some_and(is_zero) {
            let patch = field
                .path
                .rsplit('.')
                .fold(Value::Null, |inner, key| wrap(key, inner));
            merge_patch(layer, &patch);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text.parse() == Ok(GoDuration::ZERO),
        _ => false,
    }
}

/// Makes relative paths of a layer absolute.
pub(crate) fn resolve_paths(layer: &mut Value, directory: &Path) {
    for field in PATH_FIELDS {
        let Some(Value::String(text)) = get(layer, field) else {
            continue;
        };
        if !text.is_empty() && Path::new(text).is_relative() {
            let absolute = directory.join(text).to_string_lossy().into_owned();
            set(layer, field, Value::String(absolute));
        }
    }
}

/// Returns the `*.conf` files below a directory in order of precedence, lowest first: sorted by
/// name, with subdirectories in place. Symbolic links to directories are not followed.
pub(crate) fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    walk(directory, &mut found)?;
    Ok(found)
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries = std::fs::read_dir(directory)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            walk(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "conf")
        {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{drop_zero_values, merge_patch, set};

    fn check(mut target: Value, patch: &Value, expected: &Value) {
        merge_patch(&mut target, patch);
        assert_eq!(&target, expected);
    }

    #[test]
    fn patches_merge_objects_replace_lists_and_delete_nulls() {
        check(json!({"a": "b"}), &json!({"a": "c"}), &json!({"a": "c"}));
        check(
            json!({"a": "b"}),
            &json!({"b": "c"}),
            &json!({"a": "b", "b": "c"}),
        );
        check(json!({"a": "b"}), &json!({"a": null}), &json!({}));
        check(
            json!({"a": ["b"]}),
            &json!({"a": ["c", "d"]}),
            &json!({"a": ["c", "d"]}),
        );
        check(
            json!({"a": {"b": 1, "c": 2}}),
            &json!({"a": {"b": null, "d": 3}}),
            &json!({"a": {"c": 2, "d": 3}}),
        );
        check(json!({}), &json!({"a": {"b": null}}), &json!({"a": {}}));
        check(json!({"a": "foo"}), &json!(null), &json!(null));
    }

    #[test]
    fn set_replaces_whole_map() {
        let mut value = json!({"evictionHard": {"a": "1"}, "logging": {"format": "json"}});
        set(&mut value, "evictionHard", json!({"b": "2"}));
        set(&mut value, "logging.verbosity", json!(4));
        assert_eq!(
            value,
            json!({"evictionHard": {"b": "2"}, "logging": {"format": "json", "verbosity": 4}})
        );
    }

    #[test]
    fn zero_means_default_only_where_upstream_defaults_it() {
        let mut layer =
            json!({"maxPods": 0, "healthzPort": 0, "syncFrequency": "0s", "resolvConf": ""});
        drop_zero_values(&mut layer);
        assert_eq!(layer, json!({"healthzPort": 0, "resolvConf": ""}));
    }
}
