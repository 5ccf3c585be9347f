//! Names and intervals.

use serde_json::json;

use super::*;
use crate::volume_source::plain_volumes;

fn pod(spec: serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": spec,
    }))
    .expect("a pod")
}

#[test]
fn slow_measurement_delays_the_next() {
    let check = |took: f64, expected: f64| {
        let interval = measurement_interval(Duration::from_secs(10), Duration::from_secs_f64(took));
        assert_eq!(interval.as_secs_f64(), expected, "{took}");
    };
    check(0.0, 10.0);
    check(0.5, 10.0);
    check(0.75, 15.0);
    check(30.0, 600.0);
}

#[test]
fn pvc_name_is_from_spec_or_generated() {
    let web = pod(json!({"containers": [], "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "c", "emptyDir": {}},
    ]}));
    let claims = ["a", "b", "c", "d"].map(|name| pvc_name(&web, name));
    let expected = [Some("data"), Some("web-b"), None, None];
    assert_eq!(claims.each_ref().map(Option::as_deref), expected);
}

#[test]
fn plugin_names_are_upstreams() {
    let web = pod(json!({"containers": [], "volumes": [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "hostPath": {"path": "/"}},
        {"name": "c", "configMap": {"name": "x"}},
    ]}));
    let volumes = plain_volumes(&web, &Default::default());
    let names: Vec<String> = volumes.iter().map(plugin_name).collect();
    let expected = ["kubernetes.io/empty-dir", "kubernetes.io/host-path", "N/A"];
    assert_eq!(names, expected);
    assert_eq!(plugin_of_dir("kubernetes.io~csi"), "kubernetes.io/csi");
}
