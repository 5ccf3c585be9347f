//! Restrictions of nodes: rejections of the node authorizer and of the admission plugin
//! NodeRestriction that an agent can encounter.

use ::http::Method;
use serde_json::Value;

use crate::lag::{Informers, token_of_own_pod};
use crate::object::{field, meta, text};
use crate::path::Target;
use crate::request::ApiRequest;
use crate::status_error::StatusError;
use crate::store::{Key, Store};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Label domains of the project; nodes may set only some of the labels.
const OWN_DOMAINS: &[&str] = &["kubernetes.io", "k8s.io"];
const OWN_PREFIXES: &[&str] = &["kubelet.kubernetes.io/", "node.kubernetes.io/"];
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Rejects requests that the node `node` may not send.
pub(crate) fn admit_node(
    informers: Informers<'_>,
    node: &str,
    target: &Target,
    request: &ApiRequest,
) -> Result<(), StatusError> {
    let store = informers.store;
    let reads = request.method == Method::GET;
    let creates = request.method == Method::POST;
    let sub = target.subresource.as_deref();
    match (target.resource.as_str(), sub) {
        ("secrets" | "configmaps", _) => reads_by_name(target, request, reads),
        ("persistentvolumeclaims", Some("status")) if !reads => Ok(()),
        ("persistentvolumeclaims" | "persistentvolumes" | "volumeattachments", None) => {
            gets_only(target, reads)
        }
        ("resourceclaims", _) => gets_only(target, reads),
        ("resourceslices", None) if request.method == Method::DELETE && target.name.is_none() => {
            let fields = request.query.get("fieldSelector").unwrap_or_default();
            let own = format!("spec.nodeName={node}");
            match fields.split(',').any(|term| term == own) {
                true => Ok(()),
                false => Err(StatusError::forbidden(
                    "can only list/watch/deletecollection resourceslices with nodeName field selector",
                )),
            }
        }
        ("podcertificaterequests", _) => {
            pod_certificate_request(informers, node, target, request, (reads, creates))
        }
        _ if reads => Ok(()),
        ("pods", None) if creates => mirror_pod(store, node, &request.body),
        ("pods", None) if request.method != Method::DELETE => Err(StatusError::forbidden(format!(
            "node {node:?} may not change the spec of a pod"
        ))),
        ("pods", _) => own_pod(store, node, target),
        ("nodes", None) if request.method == Method::DELETE => {
            let message = format!("node {node:?} is not allowed to delete nodes");
            Err(StatusError::forbidden(message))
        }
        ("nodes" | "csinodes", _) => {
            let name = target.name.as_deref().or(meta(&request.body, "name"));
            own_name(node, name, target)?;
            own_labels(store, node, target, &request.body)
        }
        ("leases", _) => {
            if target.namespace.as_deref() != Some("kube-node-lease") {
                return Err(StatusError::forbidden(
                    "can only access leases in the \"kube-node-lease\" system namespace",
                ));
            }
            own_name(
                node,
                target.name.as_deref().or(meta(&request.body, "name")),
                target,
            )
        }
        ("serviceaccounts", Some("token")) => {
            token_of_own_pod(informers, node, target, &request.body)
        }
        _ => Ok(()),
    }
}

fn reads_by_name(target: &Target, request: &ApiRequest, reads: bool) -> Result<(), StatusError> {
    let fields = request.query.get("fieldSelector").unwrap_or_default();
    if reads && (target.name.is_some() || fields.contains("metadata.name=")) {
        return Ok(());
    }
    let message = "can only read namespaced objects of this type by name";
    Err(StatusError::forbidden(message))
}

/// A node watches and creates requests of its own pods; it cannot sign them.
fn pod_certificate_request(
    informers: Informers<'_>,
    node: &str,
    target: &Target,
    request: &ApiRequest,
    (reads, creates): (bool, bool),
) -> Result<(), StatusError> {
    let forbidden = |message: &str| Err(StatusError::forbidden(message));
    if target.subresource.is_some() || !(reads || creates) {
        return forbidden("nodes may not change PodCertificateRequests");
    }
    if reads {
        let fields = request.query.get("fieldSelector").unwrap_or_default();
        let own = format!("spec.nodeName={node}");
        return match target.name.is_some() || fields.split(',').any(|term| term == own) {
            true => Ok(()),
            false => {
                forbidden("can only list/watch podcertificaterequests with nodeName field selector")
            }
        };
    }
    let says = |name: &str| text(&request.body, &["spec", name]).unwrap_or_default();
    let object = |resource: &str, namespace: Option<&str>, name: &str| {
        informers.get(&Key {
            group: String::new(),
            resource: resource.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.to_owned(),
        })
    };
    let namespace = target.namespace.as_deref();
    let full_name = format!("{}/{}", namespace.unwrap_or_default(), says("podName"));
    let Some(pod) = object("pods", namespace, says("podName")) else {
        return Err(StatusError::unknown(format!(
            "while retrieving pod {full_name:?} named in the PodCertificateRequest: pod {:?} not \
             found",
            says("podName")
        )));
    };
    let on_node = text(&pod, &["spec", "nodeName"]);
    if says("nodeName") != node || on_node != Some(node) {
        return forbidden(&format!(
            "podcertificaterequests.certificates.k8s.io is forbidden: pod {full_name:?} is not \
             running on node {node:?} named in the PodCertificateRequest"
        ));
    }
    let account = says("serviceAccountName");
    let account = object("serviceaccounts", namespace, account);
    for (object, field) in [
        (Some(pod), "podUID"),
        (object("nodes", None, node), "nodeUID"),
        (account, "serviceAccountUID"),
    ] {
        if object.as_deref().and_then(|object| meta(object, "uid")) != Some(says(field)) {
            return forbidden(&format!("PodCertificateRequest names another {field}"));
        }
    }
    Ok(())
}

/// A node reads its PVCs and their volumes by name; it cannot list or watch them.
fn gets_only(target: &Target, reads: bool) -> Result<(), StatusError> {
    match (reads, &target.name) {
        (true, Some(_)) => Ok(()),
        _ => {
            let message = "can only get individual resources of this type";
            Err(StatusError::forbidden(message))
        }
    }
}

fn own_name(node: &str, name: Option<&str>, target: &Target) -> Result<(), StatusError> {
    if name == Some(node) {
        return Ok(());
    }
    let name = name.unwrap_or_default();
    let resource = &target.resource;
    let message = format!("node {node:?} is not allowed to modify {resource} {name:?}");
    Err(StatusError::forbidden(message))
}

fn own_pod(store: &Store, node: &str, target: &Target) -> Result<(), StatusError> {
    let key = target.key(target.name.as_deref().unwrap_or_default());
    let pod = store
        .get(&key)
        .ok_or_else(|| StatusError::not_found(&key))?;
    if text(&pod, &["spec", "nodeName"]) == Some(node) {
        return Ok(());
    }
    Err(StatusError::forbidden(format!(
        "node {node:?} can only change pods with spec.nodeName set to itself"
    )))
}

fn mirror_pod(store: &Store, node: &str, pod: &Value) -> Result<(), StatusError> {
    let refuse = |why: String| Err(StatusError::forbidden(why));
    let annotation = field(pod, &["metadata", "annotations"]).and_then(|all| all.get(MIRROR));
    if annotation.is_none() {
        return refuse(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        ));
    }
    if text(pod, &["spec", "nodeName"]) != Some(node) {
        return refuse(format!(
            "node {node:?} can only create pods with spec.nodeName set to itself"
        ));
    }
    let owners = field(pod, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    let Some([owner]) = owners.map(Vec::as_slice) else {
        return refuse(format!(
            "node {node:?} can only create pods with a single owner reference set to itself"
        ));
    };
    let says = |key| text(owner, &[key]).unwrap_or_default();
    let is_node = says("apiVersion") == "v1" && says("kind") == "Node" && says("name") == node;
    let flag = |key: &str| owner.get(key).and_then(Value::as_bool).unwrap_or_default();
    if !is_node || !flag("controller") || flag("blockOwnerDeletion") {
        return refuse(format!(
            "node {node:?} can only create pods with a controller owner reference set to itself \
             that does not block the owner's deletion"
        ));
    }
    let object = store.get(&node_key(node));
    if object.as_deref().and_then(|object| meta(object, "uid")) != Some(says("uid")) {
        return refuse(format!(
            "node {node:?} UID mismatch: the owner reference is not to the node that exists"
        ));
    }
    if text(pod, &["spec", "serviceAccountName"]).is_some() {
        return refuse(format!(
            "node {node:?} can not create pods that reference a service account"
        ));
    }
    let volumes = field(pod, &["spec", "volumes"]).and_then(Value::as_array);
    for source in ["secret", "configMap", "persistentVolumeClaim"] {
        if volumes
            .into_iter()
            .flatten()
            .any(|volume| volume.get(source).is_some())
        {
            return refuse(format!(
                "node {node:?} can not create pods that reference a {source}"
            ));
        }
    }
    Ok(())
}

/// A node may not set its own labels for node isolation.
fn own_labels(
    store: &Store,
    node: &str,
    target: &Target,
    change: &Value,
) -> Result<(), StatusError> {
    let old = store.get(&target.key(node));
    let Some(Value::Object(labels)) = field(change, &["metadata", "labels"]) else {
        return Ok(());
    };
    for (label, value) in labels {
        let before = old
            .as_deref()
            .and_then(|old| field(old, &["metadata", "labels"]));
        let unchanged = before.and_then(|labels| labels.get(label)) == Some(value);
        if !unchanged && !may_set(label) {
            return Err(StatusError::forbidden(format!(
                "is not allowed to modify labels: {label}"
            )));
        }
    }
    Ok(())
}

fn may_set(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let reserved = OWN_DOMAINS
        .iter()
        .any(|own| domain == *own || domain.strip_suffix(own).is_some_and(|d| d.ends_with('.')));
    !reserved
        || OWN_LABELS.contains(&label)
        || OWN_PREFIXES.iter().any(|prefix| label.starts_with(prefix))
}

fn node_key(name: &str) -> Key {
    Key {
        group: String::new(),
        resource: "nodes".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}
