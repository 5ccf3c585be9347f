//! Limits, messages and check intervals.

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
fn only_limited_disk_empty_dirs_have_limits() {
    let check = |empty_dir: serde_json::Value, expected: &str| {
        let pod = pod(json!({"containers": [], "volumes": [{"name": "v", "emptyDir": empty_dir}]}));
        let limits = empty_dir_limits(&pod);
        let line: Vec<String> = limits.iter().map(ToString::to_string).collect();
        assert_eq!(line.join(" "), expected, "{empty_dir}");
    };
    check(json!({}), "");
    check(json!({"sizeLimit": "1Mi"}), "v≤1Mi");
    check(json!({"sizeLimit": "1024Ki", "medium": ""}), "v≤1Mi");
    check(json!({"sizeLimit": "0"}), "");
    check(json!({"sizeLimit": "1Mi", "medium": "Memory"}), "");
    check(json!({"sizeLimit": "1Gi", "medium": "HugePages"}), "");
    check(json!({"sizeLimit": "much"}), "");
}

#[test]
fn critical_pods_have_no_limits() {
    let volumes = json!([{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]);
    let mut web = pod(json!({"containers": [], "volumes": volumes}));
    assert_eq!(empty_dir_limits(&web).len(), 1);
    web.metadata.annotations = Some(
        [("kubernetes.io/config.source".into(), "file".into())]
            .into_iter()
            .collect(),
    );
    assert!(empty_dir_limits(&web).is_empty(), "static");
    let critical = pod(json!({"containers": [], "volumes": volumes, "priority": 2_000_000_000}));
    assert!(empty_dir_limits(&critical).is_empty(), "by its priority");
}

#[test]
fn exceeded_limit_has_upstream_message() {
    let check = |limit: &str, used: u64, expected: Option<&str>| {
        let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": limit}}]);
        let limits = empty_dir_limits(&pod(json!({"containers": [], "volumes": volumes})));
        assert_eq!(limits[0].exceeded(used).as_deref(), expected, "{limit}");
    };
    check("1Mi", 1 << 20, None);
    check(
        "1Mi",
        (1 << 20) + 1,
        Some("Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "),
    );
    check(
        "5000k",
        5_000_001,
        Some("Usage of EmptyDir volume \"data\" exceeds the limit \"5M\". "),
    );
    check("8Ei", u64::MAX, None);
}

#[test]
fn slow_check_delays_next_round() {
    let check = |took: f64, expected: u64| {
        let next = next_round(7, Duration::from_secs_f64(took));
        assert_eq!(next - 7, expected, "{took}");
    };
    check(0.0, 1);
    check(0.5, 1);
    check(0.501, 2);
    check(30.0, 60);
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
