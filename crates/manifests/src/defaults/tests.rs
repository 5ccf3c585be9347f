//! Each default, as JSON of a minimal pod.

use serde_json::{Value, json};
use windlass_types::Pod;

use super::{apply, default_pull_policy};

fn defaulted(spec: Value) -> Value {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec});
    let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
    apply(&mut pod);
    let once = pod.clone();
    apply(&mut pod);
    assert_eq!(once, pod, "not idempotent");
    serde_json::to_value(pod.spec).expect("JSON")
}

#[test]
fn minimal_pod_gets_api_defaults() {
    assert_eq!(
        defaulted(json!({"containers": [{"name": "a", "image": "x:1"}]})),
        json!({
            "containers": [{
                "name": "a",
                "image": "x:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        })
    );
}

#[test]
fn set_fields_are_not_overwritten() {
    let spec = defaulted(json!({
        "containers": [{"name": "a", "imagePullPolicy": "Never", "terminationMessagePath": "/m"}],
        "restartPolicy": "Never", "dnsPolicy": "Default", "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": false,
    }));
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["dnsPolicy"], "Default");
    assert_eq!(spec["terminationGracePeriodSeconds"], 0);
    assert_eq!(spec["enableServiceLinks"], false);
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Never");
    assert_eq!(spec["containers"][0]["terminationMessagePath"], "/m");
}

#[test]
fn pull_policy_depends_on_tag_and_digest() {
    for (image, expected) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.2", "IfNotPresent"),
        ("reg:5000/nginx", "Always"),
        ("reg:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "Always"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(default_pull_policy(image), expected, "for {image:?}");
    }
}

#[test]
fn probes_hooks_ports_and_env_get_defaults() {
    let spec = defaulted(json!({"containers": [{
        "name": "a", "image": "x:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0},
        "readinessProbe": {"grpc": {"port": 1}, "periodSeconds": 2},
        "lifecycle": {"preStop": {"httpGet": {"port": "x"}}},
        "securityContext": {},
    }]}));
    let container = &spec["containers"][0];
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        "v1"
    );
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        })
    );
    assert_eq!(container["readinessProbe"]["periodSeconds"], 2);
    assert_eq!(container["readinessProbe"]["grpc"]["service"], "");
    assert_eq!(
        container["lifecycle"]["preStop"]["httpGet"]["scheme"],
        "HTTP"
    );
    assert_eq!(container["securityContext"]["procMount"], "Default");
}

#[test]
fn host_network_sets_host_ports() {
    let spec = defaulted(json!({
        "hostNetwork": true,
        "initContainers": [{"name": "i", "ports": [{"containerPort": 1}]}],
        "containers": [{"name": "a", "ports": [{"containerPort": 2}, {"containerPort": 3, "hostPort": 4}]}],
    }));
    assert_eq!(spec["initContainers"][0]["ports"][0]["hostPort"], 1);
    assert_eq!(spec["containers"][0]["ports"][0]["hostPort"], 2);
    assert_eq!(spec["containers"][0]["ports"][1]["hostPort"], 4);
}

#[test]
fn missing_requests_default_to_limits() {
    let spec = defaulted(json!({"containers": [{"name": "a", "resources": {
        "limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "100m"},
    }}]}));
    let container = &spec["containers"][0];
    assert_eq!(
        container["resources"]["requests"],
        json!({"cpu": "100m", "memory": "1Gi"})
    );
    assert_eq!(
        container["resizePolicy"],
        json!([
            {"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "NotRequired"},
        ])
    );
}

#[test]
fn volumes_get_defaults() {
    let spec = defaulted(json!({"containers": [], "volumes": [
        {"name": "bare"},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "image", "image": {"reference": "x"}},
    ]}));
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "bare", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/x", "type": ""}},
            {"name": "config", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "down", "downwardAPI": {"defaultMode": 420, "items": [
                {"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            ]}},
            {"name": "all", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
            ]}},
            {"name": "image", "image": {"reference": "x", "pullPolicy": "Always"}},
        ])
    );
}
