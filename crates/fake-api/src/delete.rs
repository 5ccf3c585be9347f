//! Deletion: preconditions, grace periods of pods, finalizers.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_types::Timestamp;

use crate::object::{field, has_finalizers, meta, metadata, seconds, text};
use crate::status_error::StatusError;
use crate::store::{Key, Store, version_of};
use crate::write::raise_generation;

/// The result of a deletion.
#[derive(Clone, Debug)]
pub(crate) enum Deletion {
    /// The object was removed; its last state.
    Gone(Arc<Value>),
    /// The object stays until its grace period has passed or its finalizers are removed.
    Pending(Arc<Value>),
}

/// Deletes an object with `DeleteOptions`.
pub(crate) fn delete(
    store: &mut Store,
    now: Timestamp,
    key: &Key,
    options: &Value,
) -> Result<Deletion, StatusError> {
    let old = store.get(key).ok_or_else(|| StatusError::not_found(key))?;
    check_preconditions(key, &old, options)?;
    let asked = options.get("gracePeriodSeconds").and_then(Value::as_i64);
    if key.is("", "pods") {
        return Ok(delete_pod(store, now, key, &old, asked));
    }
    if has_finalizers(&old) {
        if meta(&old, "deletionTimestamp").is_some() {
            return Ok(Deletion::Pending(old));
        }
        let mut marked = (*old).clone();
        mark(&mut marked, now, 0);
        raise_generation(&mut marked);
        return Ok(Deletion::Pending(store.put(key.clone(), marked)));
    }
    Ok(remove(store, key, (*old).clone()))
}

fn delete_pod(
    store: &mut Store,
    now: Timestamp,
    key: &Key,
    old: &Arc<Value>,
    asked: Option<i64>,
) -> Deletion {
    let pending = field(old, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let deleted_at = meta(old, "deletionTimestamp").and_then(|t| t.parse::<Timestamp>().ok());
    let mut marked = (**old).clone();
    let grace = match (deleted_at, pending) {
        // a deletion in progress can only be shortened
        (Some(at), Some(pending)) if pending > 0 => match asked {
            Some(asked) if asked < pending => {
                let grace = asked.max(0);
                let began = at.as_second() - pending;
                let began = Timestamp::from_second(began).unwrap_or(now);
                mark(&mut marked, began, grace);
                grace
            }
            _ => return Deletion::Pending(old.clone()),
        },
        (Some(_), _) if has_finalizers(old) => return Deletion::Pending(old.clone()),
        (Some(_), _) => return remove(store, key, marked),
        (None, _) => {
            let grace = first_grace(old, asked);
            mark(&mut marked, now, grace);
            raise_generation(&mut marked);
            grace
        }
    };
    // as the real server: deletionTimestamp is set first, even if the pod is removed at once
    let marked = store.put(key.clone(), marked);
    if grace > 0 || has_finalizers(&marked) {
        return Deletion::Pending(marked);
    }
    remove(store, key, (*marked).clone())
}

/// The deletion grace period of a pod.
fn first_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let own = field(pod, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
    let finished = matches!(
        text(pod, &["status", "phase"]),
        Some("Succeeded" | "Failed")
    );
    if text(pod, &["spec", "nodeName"]).is_none() || finished {
        return 0;
    }
    match asked.or(own).unwrap_or_default() {
        // as upstream, a negative grace period is one second
        grace if grace < 0 => 1,
        grace => grace,
    }
}

fn mark(object: &mut Value, began: Timestamp, grace: i64) {
    let at = Timestamp::from_second(began.as_second() + grace).unwrap_or(began);
    let metadata = metadata(object);
    metadata.insert("deletionTimestamp".to_owned(), json!(seconds(at)));
    metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
}

fn remove(store: &mut Store, key: &Key, last: Value) -> Deletion {
    let last = Arc::new(last);
    Deletion::Gone(store.remove(key, (*last).clone()).unwrap_or(last))
}

fn check_preconditions(key: &Key, object: &Value, options: &Value) -> Result<(), StatusError> {
    let wanted = |name| text(options, &["preconditions", name]);
    let uid = meta(object, "uid").unwrap_or_default();
    if let Some(wanted) = wanted("uid")
        && wanted != uid
    {
        let why = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
        );
        return Err(StatusError::conflict(key, &why));
    }
    let version = version_of(object);
    if let Some(wanted) = wanted("resourceVersion")
        && wanted != version
    {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in \
             object meta: {version}"
        );
        return Err(StatusError::conflict(key, &why));
    }
    Ok(())
}
