//! Objects of `deploy/`, decoded as strictly as by the API server.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_manifests::yaml;
use windlass_testing::kustomize::objects;

/// The objects of an overlay, in the order of its files.
pub(crate) fn overlay(name: &str) -> Vec<Value> {
    objects(&folder().join("overlays").join(name)).unwrap_or_else(|error| panic!("{error:#}"))
}

/// `deploy/`.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The only object of a kind, decoded without unknown fields.
pub(crate) fn typed<T: DeserializeOwned>(objects: &[Value], kind: &str) -> T {
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let object = of_kind.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(of_kind.next().is_none(), "more than one {kind}");
    decoded(object)
}

/// Decodes with strict field validation, for any kind.
pub(crate) fn check_strictly(object: &Value) {
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("v1"), Some("Namespace")) => drop(decoded::<Namespace>(object)),
        (Some("v1"), Some("ResourceQuota")) => drop(decoded::<ResourceQuota>(object)),
        (Some("v1"), Some("ServiceAccount")) => drop(decoded::<ServiceAccount>(object)),
        (Some("v1"), Some("ConfigMap")) => drop(decoded::<ConfigMap>(object)),
        (Some("apps/v1"), Some("DaemonSet")) => drop(decoded::<DaemonSet>(object)),
        (Some("rbac.authorization.k8s.io/v1"), Some("ClusterRole")) => {
            drop(decoded::<ClusterRole>(object));
        }
        (Some("rbac.authorization.k8s.io/v1"), Some("ClusterRoleBinding")) => {
            drop(decoded::<ClusterRoleBinding>(object));
        }
        other => panic!("no check of {other:?}"),
    }
}

fn decoded<T: DeserializeOwned>(object: &Value) -> T {
    let (decoded, unknown) = yaml::decode(object).unwrap_or_else(|error| panic!("{error}"));
    assert!(unknown.is_empty(), "{}: {unknown:?}", object["kind"]);
    decoded
}
