//! Defaults of the server, and type-specific rules.

use serde_json::{Map, Value, json};

use crate::object::{as_map, section, text};

/// The kind of a resource whose objects do not contain it.
pub(crate) fn kind_of(resource: &str) -> Option<&'static str> {
    const KINDS: &[(&str, &str)] = &[
        ("pods", "Pod"),
        ("nodes", "Node"),
        ("configmaps", "ConfigMap"),
        ("secrets", "Secret"),
        ("services", "Service"),
        ("serviceaccounts", "ServiceAccount"),
        ("namespaces", "Namespace"),
        ("events", "Event"),
        ("leases", "Lease"),
        ("persistentvolumes", "PersistentVolume"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("runtimeclasses", "RuntimeClass"),
        ("csinodes", "CSINode"),
        ("csidrivers", "CSIDriver"),
        ("storageclasses", "StorageClass"),
        ("volumeattachments", "VolumeAttachment"),
        ("certificatesigningrequests", "CertificateSigningRequest"),
        ("clustertrustbundles", "ClusterTrustBundle"),
        ("podcertificaterequests", "PodCertificateRequest"),
        ("resourceclaims", "ResourceClaim"),
        ("resourceslices", "ResourceSlice"),
    ];
    let row = KINDS.iter().find(|(name, _)| *name == resource);
    row.map(|(_, kind)| *kind)
}

/// Types with a status subresource, whose main resource ignores the status.
pub(crate) fn has_status(resource: &str) -> bool {
    [
        "pods",
        "nodes",
        "namespaces",
        "services",
        "persistentvolumes",
        "persistentvolumeclaims",
        "certificatesigningrequests",
        "podcertificaterequests",
        "volumeattachments",
        "resourceclaims",
    ]
    .contains(&resource)
}

/// Types with a generation.
pub(crate) fn has_generation(resource: &str) -> bool {
    [
        "pods",
        "deployments",
        "daemonsets",
        "statefulsets",
        "replicasets",
        "jobs",
    ]
    .contains(&resource)
}

/// Types whose update requires a resourceVersion.
pub(crate) fn needs_version(resource: &str) -> bool {
    ["leases", "csinodes", "certificatesigningrequests"].contains(&resource)
}

/// Sets the defaults of a new object.
pub(crate) fn on_create(resource: &str, object: &mut Value) {
    match resource {
        "pods" => pod(object),
        "nodes" => node(object),
        "namespaces" => {
            section(object, "status").insert("phase".to_owned(), json!("Active"));
        }
        "secrets" => or_set(as_map(object), "type", "Opaque"),
        "persistentvolumeclaims" => {
            or_set(section(object, "spec"), "volumeMode", "Filesystem");
            or_set(section(object, "status"), "phase", "Pending");
        }
        "persistentvolumes" => {
            or_set(section(object, "spec"), "volumeMode", "Filesystem");
            or_set(section(object, "status"), "phase", "Pending");
        }
        "csidrivers" => csi_driver(section(object, "spec")),
        // a client cannot approve its own request
        "certificatesigningrequests" => {
            as_map(object).insert("status".to_owned(), json!({}));
        }
        "podcertificaterequests" => {
            or_set(section(object, "spec"), "maxExpirationSeconds", 86_400);
        }
        _ => {}
    }
}

fn pod(pod: &mut Value) {
    let spec = section(pod, "spec");
    or_set(spec, "restartPolicy", "Always");
    or_set(spec, "dnsPolicy", "ClusterFirst");
    or_set(spec, "terminationGracePeriodSeconds", 30);
    or_set(spec, "schedulerName", "default-scheduler");
    or_set(spec, "enableServiceLinks", true);
    or_set(spec, "securityContext", json!({}));
    or_set(spec, "preemptionPolicy", "PreemptLowerPriority");
    or_set(spec, "priority", 0);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        if let Some(Value::Array(containers)) = spec.get_mut(list) {
            containers.iter_mut().for_each(container);
        }
    }
    let class = qos_class(pod);
    // the server sets the status of a new pod
    as_map(pod).insert(
        "status".to_owned(),
        json!({ "phase": "Pending", "qosClass": class }),
    );
}

fn container(container: &mut Value) {
    let image = text(container, &["image"]).unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!tag.contains(':') || tag.ends_with(":latest"));
    let policy = match latest {
        true => "Always",
        false => "IfNotPresent",
    };
    let map = as_map(container);
    or_set(map, "terminationMessagePath", "/dev/termination-log");
    or_set(map, "terminationMessagePolicy", "File");
    or_set(map, "imagePullPolicy", policy);
    or_set(map, "resources", json!({}));
    if let Some(Value::Object(resources)) = map.get_mut("resources")
        && let Some(Value::Object(limits)) = resources.get("limits").cloned()
    {
        // a limit is the default of the request
        let requests = resources.entry("requests").or_insert_with(|| json!({}));
        for (name, limit) in limits {
            as_map(requests).entry(name).or_insert(limit);
        }
    }
    for (list, field, value) in [("ports", "protocol", "TCP")] {
        if let Some(Value::Array(entries)) = map.get_mut(list) {
            for entry in entries {
                or_set(as_map(entry), field, value);
            }
        }
    }
}

fn csi_driver(spec: &mut Map<String, Value>) {
    or_set(spec, "attachRequired", true);
    or_set(spec, "podInfoOnMount", false);
    or_set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    or_set(spec, "requiresRepublish", false);
    or_set(spec, "seLinuxMount", false);
    or_set(spec, "storageCapacity", false);
    or_set(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

fn node(node: &mut Value) {
    // the admission plugin TaintNodesByCondition: a new node is not ready yet
    let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
    let taints = section(node, "spec")
        .entry("taints")
        .or_insert_with(|| json!([]));
    if let Value::Array(taints) = taints
        && !taints.iter().any(|one| one.get("key") == taint.get("key"))
    {
        taints.push(taint);
    }
}

/// The QoS class, without pod-level resources.
fn qos_class(pod: &Value) -> &'static str {
    let mut guaranteed = true;
    let mut any = false;
    for list in ["initContainers", "containers"] {
        let containers = crate::object::field(pod, &["spec", list]).and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            for resource in ["cpu", "memory"] {
                let amount = |kind| {
                    let amount = text(container, &["resources", kind, resource]);
                    amount.filter(|amount| *amount != "0")
                };
                let (request, limit) = (amount("requests"), amount("limits"));
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn or_set(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let entry = map.entry(key).or_insert(Value::Null);
    if entry.is_null() {
        *entry = value.into();
    }
}

/// Removes what Go omits in JSON: nulls, empty lists, and empty labels and annotations.
pub(crate) fn normalize(object: &mut Value) {
    match object {
        Value::Object(map) => {
            map.values_mut().for_each(normalize);
            map.retain(|key, value| match value {
                Value::Null => false,
                Value::Array(list) => !list.is_empty(),
                Value::Object(inner) => {
                    !(inner.is_empty() && ["labels", "annotations"].contains(&key.as_str()))
                }
                _ => true,
            });
        }
        Value::Array(list) => list.iter_mut().for_each(normalize),
        _ => {}
    }
}
