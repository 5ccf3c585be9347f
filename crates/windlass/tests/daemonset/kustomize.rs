//! As much of kustomize as `deploy/` uses: resources, and JSON patches of one target. Where
//! kubectl is, a test compares with what that makes of it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_core::yaml;

/// The overlays that people apply.
pub(crate) const OVERLAYS: [&str; 3] = ["side-by-side", "opt-in", "leave"];

/// The objects of an overlay, in the order of its files.
pub(crate) fn overlay(name: &str) -> Vec<Value> {
    objects(&folder().join("overlays").join(name))
}

/// `deploy/`.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The only object of a kind, decoded; nothing in it may be unknown to Kubernetes.
pub(crate) fn typed<T: DeserializeOwned>(objects: &[Value], kind: &str) -> T {
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let object = of_kind.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(of_kind.next().is_none(), "more than one {kind}");
    decoded(object)
}

/// Decodes as the API server does with strict field validation, whatever the kind is.
pub(crate) fn check_strictly(object: &Value) {
    match (object["apiVersion"].as_str(), object["kind"].as_str()) {
        (Some("v1"), Some("Namespace")) => drop(decoded::<Namespace>(object)),
        (Some("v1"), Some("ServiceAccount")) => drop(decoded::<ServiceAccount>(object)),
        (Some("v1"), Some("ConfigMap")) => drop(decoded::<ConfigMap>(object)),
        (Some("apps/v1"), Some("DaemonSet")) => drop(decoded::<DaemonSet>(object)),
        (Some("rbac.authorization.k8s.io/v1"), Some("ClusterRole")) => {
            drop(decoded::<ClusterRole>(object));
        }
        (Some("rbac.authorization.k8s.io/v1"), Some("ClusterRoleBinding")) => {
            drop(decoded::<ClusterRoleBinding>(object));
        }
        other => panic!("nobody checks {other:?}"),
    }
}

fn decoded<T: DeserializeOwned>(object: &Value) -> T {
    let (decoded, unknown) = yaml::decode(object).unwrap_or_else(|error| panic!("{error}"));
    assert!(unknown.is_empty(), "{}: {unknown:?}", object["kind"]);
    decoded
}

fn objects(folder: &Path) -> Vec<Value> {
    let kustomization = &documents(&folder.join("kustomization.yaml"))[0];
    for key in kustomization.as_object().unwrap().keys() {
        let known = ["apiVersion", "kind", "resources", "patches"];
        assert!(
            known.contains(&key.as_str()),
            "{key} is not understood here"
        );
    }
    let mut objects = Vec::new();
    for resource in kustomization["resources"].as_array().unwrap() {
        let path = folder.join(resource.as_str().unwrap());
        match path.is_dir() {
            true => objects.extend(self::objects(&path)),
            false => objects.extend(documents(&path)),
        }
    }
    for entry in kustomization["patches"].as_array().into_iter().flatten() {
        let target = &entry["target"];
        let same = |object: &&mut Value| {
            object["kind"] == target["kind"] && object["metadata"]["name"] == target["name"]
        };
        let object = objects.iter_mut().find(same).expect("the patch's target");
        let steps = yaml::documents(entry["patch"].as_str().unwrap().as_bytes()).unwrap();
        for step in steps[0].as_array().unwrap() {
            apply(object, step);
        }
    }
    objects
}

/// One step of a JSON patch (RFC 6902).
fn apply(object: &mut Value, step: &Value) {
    let path = step["path"].as_str().unwrap();
    let (parent, name) = path.rsplit_once('/').unwrap();
    let parent = object
        .pointer_mut(parent)
        .unwrap_or_else(|| panic!("no {path}"));
    let name = name.replace("~1", "/").replace("~0", "~");
    let value = step["value"].clone();
    match (step["op"].as_str(), parent) {
        (Some("add"), Value::Array(list)) if name == "-" => list.push(value),
        (Some("add"), Value::Object(map)) => drop(map.insert(name, value)),
        (Some("replace"), parent) => {
            let old = parent.get_mut(&name).unwrap_or_else(|| panic!("no {path}"));
            *old = value;
        }
        (op, _) => panic!("{op:?} at {path} is not understood here"),
    }
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    yaml::documents(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
