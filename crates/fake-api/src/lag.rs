//! Lag of the informers that authorize requests of nodes.
//!
//! A real server reads its storage when it serves objects. The node authorizer and the admission
//! plugin NodeRestriction know pods only from informers, which observe changes later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use serde_json::Value;
use windlass_types::Timestamp;

use crate::identity::Access;
use crate::object::{meta, text};
use crate::path::Target;
use crate::request::ApiRequest;
use crate::status_error::StatusError;
use crate::store::{Key, Store};

/// The history of storage versions.
#[derive(Debug)]
pub(crate) struct InformerLag {
    delay: Duration,
    /// Times and storage versions; the first is known to the informers.
    versions: VecDeque<(Timestamp, u64)>,
}

impl InformerLag {
    /// Informers that know everything up to `version`, and observe each later change after
    /// `delay`.
    pub(crate) fn new(delay: Duration, now: Timestamp, version: u64) -> Self {
        Self {
            delay,
            versions: VecDeque::from([(now, version)]),
        }
    }

    /// Records the current storage version.
    pub(crate) fn record(&mut self, now: Timestamp, version: u64) {
        self.informer_version(now);
        if self
            .versions
            .back()
            .is_none_or(|(_, last)| *last != version)
        {
            self.versions.push_back((now, version));
        }
    }

    /// Returns the informers' version.
    pub(crate) fn informer_version(&mut self, now: Timestamp) -> u64 {
        let known = |at: Timestamp| at.checked_add(self.delay).is_ok_and(|at| at <= now);
        while self.versions.get(1).is_some_and(|(at, _)| known(*at)) {
            self.versions.pop_front();
        }
        self.versions.front().map_or(0, |(_, version)| *version)
    }
}

/// The objects in the informers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Informers<'a> {
    pub(crate) store: &'a Store,
    /// `None` without a lag.
    pub(crate) version: Option<u64>,
}

impl Informers<'_> {
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        match self.version {
            None => self.store.get(key),
            Some(version) => self.store.get_at(key, version),
        }
    }

    /// As the graph of the node authorizer, rejects references of pods whose binding the informers
    /// have not observed.
    pub(crate) fn authorize(
        &self,
        node: &str,
        target: &Target,
        request: &ApiRequest,
        access: &Access,
    ) -> Result<(), StatusError> {
        let (Some(version), Some(name)) = (self.version, name_of_referent(target, request)) else {
            return Ok(());
        };
        let related = |version: u64| {
            let pods = self.store.list_at("", "pods", version);
            let namespace = target.namespace.as_deref().unwrap_or_default();
            pods.iter().any(|(key, pod)| {
                key.namespace == namespace
                    && text(pod, &["spec", "nodeName"]) == Some(node)
                    && refers_to(pod, &target.resource, name)
            })
        };
        if !related(self.store.version()) || related(version) {
            return Ok(());
        }
        let resource = match access.subresource.as_str() {
            "" => access.resource.clone(),
            subresource => format!("{}/{subresource}", access.resource),
        };
        Err(StatusError::forbidden(format!(
            "{} {name:?} is forbidden: User \"system:node:{node}\" cannot {} resource \
             {resource:?} in API group {:?} in the namespace {:?}: no relationship found between \
             node '{node}' and this object",
            target.resource, access.verb, access.group, access.namespace,
        )))
    }
}

/// Returns the name of an object of a kind in the node authorizer's graph.
fn name_of_referent<'a>(target: &'a Target, request: &'a ApiRequest) -> Option<&'a str> {
    let reads = request.method == Method::GET;
    match (target.resource.as_str(), target.subresource.as_deref()) {
        ("configmaps" | "secrets", None) if reads => {
            let fields = || request.query.get("fieldSelector");
            let by_field = || fields()?.strip_prefix("metadata.name=");
            target.name.as_deref().or_else(by_field)
        }
        ("persistentvolumeclaims", None) if reads => target.name.as_deref(),
        ("serviceaccounts", Some("token")) => target.name.as_deref(),
        _ => None,
    }
}

/// Returns true if a pod refers to this object, anywhere in its spec.
fn refers_to(pod: &Value, resource: &str, name: &str) -> bool {
    let Some(spec) = pod.get("spec") else {
        return false;
    };
    match resource {
        "serviceaccounts" => {
            let account = text(spec, &["serviceAccountName"]);
            account.unwrap_or("default") == name
        }
        "persistentvolumeclaims" => contains(spec, &["persistentVolumeClaim"], "claimName", name),
        "configmaps" => {
            let fields = ["configMap", "configMapRef", "configMapKeyRef"];
            contains(spec, &fields, "name", name)
        }
        _ => {
            let fields = ["secret", "secretRef", "secretKeyRef", "imagePullSecrets"];
            contains(spec, &fields, "name", name) || contains(spec, &["secret"], "secretName", name)
        }
    }
}

/// Returns true if one of these fields, at any depth, is an object or a list of objects with this
/// name.
fn contains(value: &Value, fields: &[&str], name_field: &str, name: &str) -> bool {
    let named = |value: &Value| text(value, &[name_field]) == Some(name);
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            let found = fields.contains(&key.as_str())
                && (named(value) || value.as_array().is_some_and(|all| all.iter().any(named)));
            found || contains(value, fields, name_field, name)
        }),
        Value::Array(all) => all
            .iter()
            .any(|value| contains(value, fields, name_field, name)),
        _ => false,
    }
}

/// Rejects a token unless it is bound to a pod that the informers know on the node.
pub(crate) fn token_of_own_pod(
    informers: Informers<'_>,
    node: &str,
    target: &Target,
    body: &Value,
) -> Result<(), StatusError> {
    let account = target.name.as_deref().unwrap_or_default();
    let forbidden = |why: &str| {
        let message = format!("serviceaccounts {account:?} is forbidden: {why}");
        Err(StatusError::forbidden(message))
    };
    let bound = |field: &str| text(body, &["spec", "boundObjectRef", field]);
    let (Some("v1"), Some("Pod"), Some(name)) = (bound("apiVersion"), bound("kind"), bound("name"))
    else {
        return forbidden("node requested token not bound to a pod");
    };
    let Some(uid) = bound("uid") else {
        return forbidden("node requested token with a pod binding without a uid");
    };
    let pods = Target {
        resource: "pods".to_owned(),
        ..target.clone()
    };
    let Some(pod) = informers.get(&pods.key(name)) else {
        return Err(StatusError::not_found_by_lister("pod", name));
    };
    if meta(&pod, "uid") != Some(uid) {
        return forbidden(&format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The \
             object might have been deleted and then recreated"
        ));
    }
    match text(&pod, &["spec", "nodeName"]) == Some(node) {
        true => Ok(()),
        false => forbidden("node requested token bound to a pod scheduled on a different node"),
    }
}
