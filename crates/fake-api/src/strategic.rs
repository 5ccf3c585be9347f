//! Strategic merge patches: maps merge, lists follow their rule, directives apply.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::merge_keys::{ListRule, list_rule};
use crate::status_error::StatusError;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies a patch to an object of `resource`.
pub(crate) fn apply(resource: &str, object: &mut Value, patch: &Value) -> Result<(), StatusError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(StatusError::bad_request("a patch must be an object"));
    };
    Patching { resource }.merge_map(object, patch, "")
}

struct Patching<'a> {
    resource: &'a str,
}

impl Patching<'_> {
    fn merge_map(
        &self,
        object: &mut Map<String, Value>,
        patch: &Map<String, Value>,
        path: &str,
    ) -> Result<(), StatusError> {
        match patch.get(DIRECTIVE).and_then(Value::as_str) {
            Some("replace") => {
                object.clear();
                object.extend(plain(patch));
                return Ok(());
            }
            Some("delete") => {
                object.clear();
                return Ok(());
            }
            Some("merge") | None => {}
            Some(other) => return Err(unknown_directive(other)),
        }
        if let Some(Value::Array(retained)) = patch.get(RETAIN_KEYS) {
            object.retain(|key, _| retained.iter().any(|one| one == key.as_str()));
        }
        let orders: Vec<Order<'_>> = patch
            .iter()
            .filter_map(|(key, order)| Order::of(object, key.strip_prefix(ORDER)?, order))
            .collect();
        for (key, change) in patch {
            if let Some(list) = key.strip_prefix(DELETE_FROM) {
                delete_from(object, list, change);
            } else if !key.starts_with('$') {
                let path = join(path, key);
                self.merge_value(object, key, change, &path)?;
            }
        }
        for order in &orders {
            let rule = list_rule(self.resource, &join(path, order.list));
            order.sort(object, rule);
        }
        Ok(())
    }

    fn merge_value(
        &self,
        object: &mut Map<String, Value>,
        key: &str,
        change: &Value,
        path: &str,
    ) -> Result<(), StatusError> {
        match (change, object.get_mut(key)) {
            (Value::Null, _) => {
                object.remove(key);
            }
            (Value::Object(change), Some(Value::Object(old))) => {
                let whole = change.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
                self.merge_map(old, change, path)?;
                if whole {
                    object.remove(key);
                }
            }
            (Value::Object(change), _) => {
                let mut fresh = Map::new();
                self.merge_map(&mut fresh, change, path)?;
                object.insert(key.to_owned(), Value::Object(fresh));
            }
            (Value::Array(change), old) => {
                let old = match old {
                    Some(Value::Array(old)) => std::mem::take(old),
                    _ => Vec::new(),
                };
                let merged = match list_rule(self.resource, path) {
                    ListRule::Atomic => change.clone(),
                    ListRule::Set => union(old, change),
                    ListRule::ByKey(by) => self.merge_list(old, change, by, path)?,
                };
                object.insert(key.to_owned(), Value::Array(merged));
            }
            (value, _) => {
                object.insert(key.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    fn merge_list(
        &self,
        mut list: Vec<Value>,
        changes: &[Value],
        by: &str,
        path: &str,
    ) -> Result<Vec<Value>, StatusError> {
        let directive = |change: &Value| {
            let text = change.get(DIRECTIVE).and_then(Value::as_str);
            text.map(str::to_owned)
        };
        if changes
            .iter()
            .any(|c| directive(c).as_deref() == Some("replace"))
        {
            // unchanged: two elements with the same key both stay, as addresses of a node
            let plain = changes.iter().filter(|c| directive(c).is_none());
            return Ok(plain.cloned().collect());
        }
        for change in changes {
            let Value::Object(fields) = change else {
                return Err(StatusError::bad_request(format!(
                    "{path}: not a list of objects"
                )));
            };
            let directive = directive(change);
            let Some(id) = fields.get(by) else {
                let message = format!("map: {change} does not contain declared merge key: {by}");
                return Err(StatusError::invalid(message));
            };
            let at = list.iter().position(|old| old.get(by) == Some(id));
            match (directive.as_deref(), at) {
                (Some("delete"), _) => list.retain(|old| old.get(by) != Some(id)),
                (Some("merge") | None, Some(at)) => {
                    if let Value::Object(old) = &mut list[at] {
                        self.merge_map(old, fields, path)?;
                    }
                }
                (Some("merge") | None, None) => {
                    let mut fresh = Map::new();
                    self.merge_map(&mut fresh, fields, path)?;
                    list.push(Value::Object(fresh));
                }
                (Some(other), _) => return Err(unknown_directive(other)),
            }
        }
        Ok(list)
    }
}

fn unknown_directive(directive: &str) -> StatusError {
    StatusError::bad_request(format!("unknown patch directive {directive:?}"))
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// Fields of a patch for a new object.
fn plain(patch: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> + '_ {
    patch
        .iter()
        .filter(|(key, value)| !key.starts_with('$') && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn union(mut list: Vec<Value>, more: &[Value]) -> Vec<Value> {
    for value in more {
        if !list.contains(value) {
            list.push(value.clone());
        }
    }
    list
}

fn delete_from(object: &mut Map<String, Value>, list: &str, gone: &Value) {
    if let (Some(Value::Array(list)), Some(gone)) = (object.get_mut(list), gone.as_array()) {
        list.retain(|value| !gone.contains(value));
    }
}

/// The element order that a patch requests for a list.
struct Order<'a> {
    list: &'a str,
    wanted: &'a [Value],
    /// The list before the patch.
    live: Vec<Value>,
}

impl<'a> Order<'a> {
    fn of(object: &Map<String, Value>, list: &'a str, wanted: &'a Value) -> Option<Self> {
        let live = object.get(list).and_then(Value::as_array);
        Some(Self {
            list,
            wanted: wanted.as_array()?,
            live: live.cloned().unwrap_or_default(),
        })
    }

    /// Sorts the merged list. Elements that are not in the patch keep their order, before the
    /// first element that followed them in the live list.
    fn sort(&self, object: &mut Map<String, Value>, rule: ListRule) {
        let Some(Value::Array(items)) = object.get_mut(self.list) else {
            return;
        };
        let id = |item: &Value| match rule {
            ListRule::ByKey(by) => item.get(by).map(Value::to_string).unwrap_or_default(),
            ListRule::Set | ListRule::Atomic => item.to_string(),
        };
        let places = |list: &[Value]| -> BTreeMap<String, usize> {
            let places = list.iter().enumerate();
            places.map(|(at, item)| (id(item), at)).collect()
        };
        let (wanted, live) = (places(self.wanted), places(&self.live));
        let (mut known, others): (Vec<Value>, Vec<Value>) = items
            .drain(..)
            .partition(|item| wanted.contains_key(&id(item)));
        known.sort_by_key(|item| wanted.get(&id(item)).copied());
        let mut others = others.into_iter().peekable();
        for item in known {
            // a new element has no position to compare
            if let Some(here) = live.get(&id(&item)) {
                let precedes = |other: &Value| live.get(&id(other)).is_some_and(|at| at < here);
                while let Some(other) = others.next_if(precedes) {
                    items.push(other);
                }
            }
            items.push(item);
        }
        items.extend(others);
    }
}

#[cfg(test)]
mod tests;
