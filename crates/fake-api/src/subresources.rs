//! Subresources that are verbs: eviction, binding, token.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use windlass_types::Timestamp;

use crate::delete;
use crate::identity::User;
use crate::object::{as_map, field, meta, seconds, section, text};
use crate::path::Target;
use crate::status_error::StatusError;
use crate::store::{Key, Store};

/// The default audience of tokens and reviews.
const OWN_AUDIENCE: &str = "https://kubernetes.default.svc";

/// A bearer token and its meaning.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) user: User,
    /// Empty for every audience.
    pub(crate) audiences: Vec<String>,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Token {
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

/// Deletes a pod with its grace period, as the eviction API without a disruption budget.
pub(crate) fn evict(
    store: &mut Store,
    now: Timestamp,
    key: &Key,
    eviction: &Value,
) -> Result<Value, StatusError> {
    let options = eviction.get("deleteOptions").cloned().unwrap_or_default();
    delete::delete(store, now, key, &options)?;
    Ok(success())
}

/// Assigns a pod to a node, as the scheduler does.
pub(crate) fn bind(
    store: &mut Store,
    now: Timestamp,
    key: &Key,
    binding: &Value,
) -> Result<Value, StatusError> {
    let node = text(binding, &["target", "name"])
        .ok_or_else(|| StatusError::invalid("target.name: Required value"))?;
    let old = store.get(key).ok_or_else(|| StatusError::not_found(key))?;
    if let Some(assigned) = text(&old, &["spec", "nodeName"]) {
        let why = format!("pod {} is already assigned to node {assigned:?}", key.name);
        return Err(StatusError::conflict(key, &why));
    }
    let mut pod = (*old).clone();
    section(&mut pod, "spec").insert("nodeName".to_owned(), json!(node));
    let conditions = section(&mut pod, "status")
        .entry("conditions")
        .or_insert_with(|| json!([]));
    if let Value::Array(conditions) = conditions {
        conditions.retain(|one| text(one, &["type"]) != Some("PodScheduled"));
        conditions.push(json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": seconds(now),
        }));
    }
    store.put(key.clone(), pod);
    Ok(success())
}

/// Issues a service account token: a JWT without a valid signature.
pub(crate) fn issue_token(
    store: &mut Store,
    tokens: &mut BTreeMap<String, Token>,
    now: Timestamp,
    target: &Target,
    key: &Key,
    request: &Value,
) -> Result<Arc<Value>, StatusError> {
    let account = store.get(key).ok_or_else(|| StatusError::not_found(key))?;
    let uid = text(request, &["metadata", "uid"]).unwrap_or_default();
    if !uid.is_empty() && text(&account, &["metadata", "uid"]) != Some(uid) {
        let why = format!("the UID in the token request ({uid}) is not the service account's");
        return Err(StatusError::conflict(key, &why));
    }
    let spec = request.get("spec").cloned().unwrap_or_default();
    let lifetime = spec.get("expirationSeconds").and_then(Value::as_i64);
    let lifetime = lifetime.unwrap_or(3600);
    if lifetime < 600 {
        let message = "spec.expirationSeconds: Invalid value: may not specify a duration less \
                       than 10 minutes";
        return Err(StatusError::invalid(message));
    }
    let mut audiences: Vec<String> = match spec.get("audiences").and_then(Value::as_array) {
        Some(list) => list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        None => Vec::new(),
    };
    if audiences.is_empty() {
        audiences.push(OWN_AUDIENCE.to_owned());
    }
    let bound = spec.get("boundObjectRef").filter(|bound| bound.is_object());
    if let Some(bound) = bound {
        check_bound(store, target, bound)?;
    }
    let expires_at = Timestamp::from_second(now.as_second() + lifetime).unwrap_or(now);
    let subject = format!("system:serviceaccount:{}:{}", key.namespace, key.name);
    let payload = json!({
        "iss": "https://kubernetes.default.svc",
        "sub": subject,
        "aud": audiences,
        "iat": now.as_second(),
        "nbf": now.as_second(),
        "exp": expires_at.as_second(),
        "jti": store.next_number().to_string(),
        "kubernetes.io": {
            "namespace": key.namespace,
            "serviceaccount": { "name": key.name, "uid": meta(&account, "uid") },
            "bound": bound,
        },
    });
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let header = json!({ "alg": "none", "typ": "JWT" });
    let token = format!("{}.{}.unsigned", encode(&header), encode(&payload));
    let user = User {
        name: subject,
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", key.namespace),
            "system:authenticated".to_owned(),
        ],
    };
    let issued = Token {
        user,
        audiences: audiences.clone(),
        expires_at: Some(expires_at),
    };
    tokens.insert(token.clone(), issued);
    let mut answer = request.clone();
    let answer_spec = section(&mut answer, "spec");
    answer_spec.insert("audiences".to_owned(), json!(audiences));
    answer_spec.insert("expirationSeconds".to_owned(), json!(lifetime));
    as_map(&mut answer).insert(
        "status".to_owned(),
        json!({ "token": token, "expirationTimestamp": seconds(expires_at) }),
    );
    Ok(Arc::new(answer))
}

fn check_bound(store: &Store, target: &Target, bound: &Value) -> Result<(), StatusError> {
    let resource = match text(bound, &["kind"]) {
        Some("Pod") => "pods",
        Some("Secret") => "secrets",
        Some("Node") => "nodes",
        other => {
            let message =
                format!("cannot bind token for serviceaccount to object of type {other:?}");
            return Err(StatusError::bad_request(message));
        }
    };
    let key = Key {
        group: String::new(),
        resource: resource.to_owned(),
        namespace: match resource {
            "nodes" => String::new(),
            _ => target.namespace.clone().unwrap_or_default(),
        },
        name: text(bound, &["name"]).unwrap_or_default().to_owned(),
    };
    let object = store
        .get(&key)
        .ok_or_else(|| StatusError::not_found(&key))?;
    let uid = meta(&object, "uid").unwrap_or_default();
    match text(bound, &["uid"]) {
        Some(asked) if asked != uid => {
            let why = format!(
                "the UID in the bound object reference ({asked}) does not match the UID in \
                 record. The object might have been deleted and then recreated"
            );
            Err(StatusError::conflict(&key, &why))
        }
        _ => Ok(()),
    }
}

/// Evaluates a `TokenReview`.
pub(crate) fn review_token(
    tokens: &BTreeMap<String, Token>,
    now: Timestamp,
    review: &Value,
) -> Arc<Value> {
    let asked = field(review, &["spec", "audiences"]).and_then(Value::as_array);
    let asked: Vec<&str> = asked
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let own = [OWN_AUDIENCE];
    let tried: &[&str] = if asked.is_empty() { &own } else { &asked };
    let known = text(review, &["spec", "token"])
        .and_then(|token| tokens.get(token))
        .filter(|token| token.is_valid(now))
        .filter(|token| {
            token.audiences.is_empty()
                || tried
                    .iter()
                    .any(|one| token.audiences.iter().any(|own| own == one))
        });
    let status = match known {
        Some(token) => json!({
            "authenticated": true,
            "user": { "username": token.user.name, "groups": token.user.groups },
            "audiences": asked,
        }),
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    };
    let mut answer = review.clone();
    as_map(&mut answer).insert("status".to_owned(), status);
    Arc::new(answer)
}

fn success() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    })
}
