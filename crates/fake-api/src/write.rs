//! Create, update and patch with their rules.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_types::Timestamp;

use crate::defaults::{self, has_generation, has_status};
use crate::object::{as_map, carry, field, has_finalizers, meta, metadata, seconds};
use crate::path::Target;
use crate::status_error::StatusError;
use crate::store::{Key, Store, version_of};

/// Creates an object.
pub(crate) fn create(
    store: &mut Store,
    now: Timestamp,
    target: &Target,
    mut object: Value,
) -> Result<Arc<Value>, StatusError> {
    if let (Some(path), Some(body)) = (&target.namespace, meta(&object, "namespace"))
        && path != body
    {
        let message = "the namespace of the provided object does not match the namespace sent on \
                       the request";
        return Err(StatusError::bad_request(message));
    }
    let name = match (meta(&object, "name"), meta(&object, "generateName")) {
        (Some(name), _) => name.to_owned(),
        (None, Some(prefix)) => {
            let prefix = prefix.to_owned();
            format!("{prefix}{}", suffix(store.next_number()))
        }
        (None, None) => {
            let message = "metadata.name: Required value: name or generateName is required";
            return Err(StatusError::invalid(message));
        }
    };
    let key = target.key(&name);
    if store.get(&key).is_some() {
        return Err(StatusError::already_exists(&key));
    }
    if meta(&object, "resourceVersion").is_some() {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(StatusError::bad_request(message));
    }
    let uid = format!("00000000-0000-4000-8000-{:012x}", store.next_number());
    let metadata = metadata(&mut object);
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = &target.namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(seconds(now)));
    for server_only in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        metadata.remove(server_only);
    }
    if has_generation(&target.resource) {
        metadata.insert("generation".to_owned(), json!(1));
    }
    name_type(target, &mut object);
    defaults::on_create(&target.resource, &mut object);
    defaults::normalize(&mut object);
    Ok(store.put(key, object))
}

/// Replaces an object or one of its subresources.
pub(crate) fn update(
    store: &mut Store,
    now: Timestamp,
    target: &Target,
    key: &Key,
    object: Value,
) -> Result<Arc<Value>, StatusError> {
    if meta(&object, "name").is_some_and(|name| name != key.name) {
        let message = "the name of the object does not match the name on the URL";
        return Err(StatusError::bad_request(message));
    }
    let Some(old) = store.get(key) else {
        // leases are among the few types that an update may create
        if key.resource == "leases" && target.subresource.is_none() {
            return create(store, now, target, object);
        }
        return Err(StatusError::not_found(key));
    };
    if version_of(&object).is_empty() && defaults::needs_version(&key.resource) {
        let message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
        return Err(StatusError::invalid(message));
    }
    replace(store, target, key, &old, object)
}

/// Patches an object or one of its subresources.
pub(crate) fn patch(
    store: &mut Store,
    target: &Target,
    key: &Key,
    content_type: &str,
    change: &Value,
) -> Result<Arc<Value>, StatusError> {
    let old = store.get(key).ok_or_else(|| StatusError::not_found(key))?;
    let mut object = (*old).clone();
    crate::patch::apply(content_type, &key.resource, &mut object, change)?;
    replace(store, target, key, &old, object)
}

/// Stores the new state of an object after the checks, without fields that the client may not set.
/// No change is neither stored nor sent.
fn replace(
    store: &mut Store,
    target: &Target,
    key: &Key,
    old: &Value,
    mut object: Value,
) -> Result<Arc<Value>, StatusError> {
    let version = version_of(&object);
    if !version.is_empty() && version != version_of(old) {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        return Err(StatusError::conflict(key, why));
    }
    if let (Some(new), Some(old)) = (meta(&object, "uid"), meta(old, "uid"))
        && new != old
    {
        let why =
            format!("Precondition failed: UID in precondition: {new}, UID in object meta: {old}");
        return Err(StatusError::conflict(key, &why));
    }
    name_type(target, &mut object);
    let old_metadata = old.get("metadata");
    let metadata = metadata(&mut object);
    for fixed in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        carry(old_metadata, metadata, fixed);
    }
    let status_only = target.subresource.as_deref() == Some("status");
    if status_only {
        if key.resource == "pods" {
            // as upstream, because of old agents, the server ignores them in a status
            carry(old_metadata, metadata, "ownerReferences");
        }
        carry(Some(old), as_map(&mut object), "spec");
        if key.resource == "pods" {
            crate::transitions::check(old, &object)?;
        }
    } else if has_status(&key.resource) {
        carry(Some(old), as_map(&mut object), "status");
    }
    defaults::normalize(&mut object);
    if has_generation(&key.resource) && object.get("spec") != old.get("spec") {
        raise_generation(&mut object);
    }
    if object == *old {
        return Ok(Arc::new(object));
    }
    if has_finalizers(old) && !has_finalizers(&object) && is_to_vanish(old) {
        let gone = store.remove(key, object);
        return gone.ok_or_else(|| StatusError::not_found(key));
    }
    Ok(store.put(key.clone(), object))
}

/// Stores any new state of an object without the rules for clients.
pub(crate) fn overwrite(
    store: &mut Store,
    key: &Key,
    old: &Value,
    mut object: Value,
) -> Result<Arc<Value>, StatusError> {
    defaults::normalize(&mut object);
    if has_generation(&key.resource) && object.get("spec") != old.get("spec") {
        raise_generation(&mut object);
    }
    if object == *old {
        return Ok(Arc::new(object));
    }
    Ok(store.put(key.clone(), object))
}

/// Increments the generation for a changed spec or a started deletion.
pub(crate) fn raise_generation(object: &mut Value) {
    let generation = field(object, &["metadata", "generation"]).and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| *generation > 0) {
        metadata(object).insert("generation".to_owned(), json!(generation + 1));
    }
}

/// Deleted without a remaining grace period: only its finalizers remain.
fn is_to_vanish(object: &Value) -> bool {
    let grace = field(object, &["metadata", "deletionGracePeriodSeconds"]);
    meta(object, "deletionTimestamp").is_some()
        && grace.and_then(Value::as_i64).unwrap_or_default() == 0
}

fn name_type(target: &Target, object: &mut Value) {
    let map = as_map(object);
    map.insert("apiVersion".to_owned(), json!(target.api_version()));
    if let Some(kind) = defaults::kind_of(&target.resource) {
        map.insert("kind".to_owned(), json!(kind));
    }
}

/// Five characters of upstream's alphabet for generated names.
fn suffix(number: u64) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // an odd factor distributes consecutive numbers over the alphabet
    let mut rest = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
    let mut text = String::new();
    for _ in 0..5 {
        let at = usize::try_from(rest % 27).unwrap_or_default();
        text.push(char::from(ALPHABET[at]));
        rest /= 27;
    }
    text
}
