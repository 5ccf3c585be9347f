//! Limits of pods, and the first one that is exceeded.

use serde_json::{Value, json};

use super::*;

const MEBIBYTE: u64 = 1 << 20;

fn pod(spec: Value) -> Pod {
    let metadata = json!({"name": "web", "namespace": "default", "uid": "u"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn container(name: &str, limit: &str) -> Value {
    json!({"name": name, "resources": {"limits": {"ephemeral-storage": limit}}})
}

fn mebibytes(count: u64) -> DiskUsage {
    DiskUsage {
        bytes: count * MEBIBYTE,
        inodes: count,
    }
}

#[test]
fn limits_are_of_empty_dirs_containers_and_their_sum() {
    let check = |spec: Value, expected: &str| {
        let limits = LocalStorageLimits::from_pod(&pod(spec.clone()));
        let line = limits.map(|limits| limits.to_string());
        assert_eq!(line.unwrap_or_default(), expected, "{spec}");
    };
    let volume = |empty_dir: Value| json!({"containers": [], "volumes": [{"name": "v", "emptyDir": empty_dir}]});
    check(volume(json!({})), "");
    check(volume(json!({"sizeLimit": "1Mi"})), "v≤1Mi");
    check(
        volume(json!({"sizeLimit": "1024Ki", "medium": ""})),
        "v≤1Mi",
    );
    check(volume(json!({"sizeLimit": "0"})), "");
    check(volume(json!({"sizeLimit": "1Mi", "medium": "Memory"})), "");
    check(
        volume(json!({"sizeLimit": "1Gi", "medium": "HugePages"})),
        "",
    );
    check(volume(json!({"sizeLimit": "much"})), "");
    let (app, side) = (container("app", "1Gi"), container("side", "500M"));
    let none = json!({"name": "none"});
    check(json!({"containers": [none]}), "");
    check(
        json!({"containers": [app, side, none]}),
        "pod≤1573741824 app≤1Gi side≤500M",
    );
    check(json!({"containers": [container("app", "0")]}), "pod≤0");
    let init = [container("setup", "3Gi")];
    check(
        json!({"containers": [app], "initContainers": init}),
        "pod≤3Gi app≤1Gi",
    );
    check(json!({"containers": [app], "priority": 2_000_000_000}), "");
    let mut web = pod(json!({"containers": [app]}));
    web.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
    assert_eq!(LocalStorageLimits::from_pod(&web), None, "static");
}

#[test]
fn only_volumes_that_count_are_measured() {
    let check = |containers: Value, expected: &[&str]| {
        let pod = pod(json!({"containers": containers, "volumes": [
            {"name": "limited", "emptyDir": {"sizeLimit": "1Mi"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "c1"}},
            {"name": "host", "hostPath": {"path": "/"}},
        ]}));
        let limits = LocalStorageLimits::from_pod(&pod).expect("limits");
        assert_eq!(limits.volumes(&pod), expected);
        assert_eq!(limits.includes_containers(), expected.len() > 1);
    };
    check(json!([]), &["limited"]);
    let local = ["limited", "scratch", "config"];
    check(json!([container("app", "1Gi")]), &local);
}

/// Megabytes of `app` (layer, logs), `side` (layer, logs), `data`, `scratch` and others.
fn usage(of: [u64; 7]) -> PodDiskUsage {
    let container = |name: &str, layer: u64, logs: u64| ContainerDiskUsage {
        name: name.to_owned(),
        writable_layer: Some(mebibytes(layer)),
        logs: Some(mebibytes(logs)),
    };
    let [app, app_logs, side, side_logs, data, scratch, others] = of;
    PodDiskUsage {
        containers: vec![
            container("app", app, app_logs),
            container("side", side, side_logs),
        ],
        volumes: [("data", data), ("scratch", scratch)]
            .map(|(name, used)| (name.to_owned(), mebibytes(used)))
            .into(),
        others: mebibytes(others),
    }
}

#[test]
fn first_exceeded_limit_has_upstream_message() {
    // data ≤ 5 Mi, app ≤ 10 Mi, side ≤ 20 Mi
    let limited = pod(json!({
        "containers": [container("app", "10Mi"), container("side", "20Mi")],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "5Mi"}},
                    {"name": "scratch", "emptyDir": {}}],
    }));
    let limits = LocalStorageLimits::from_pod(&limited).expect("limits");
    let check = |of: [u64; 7], layers_on_node_fs: bool, expected: &str| {
        let exceeded = limits.exceeded(&usage(of), layers_on_node_fs);
        let line = exceeded.map(|exceeded| exceeded.to_string());
        assert_eq!(line.unwrap_or_default(), expected, "{of:?}");
    };
    let data = "emptydirfs.limit: Usage of EmptyDir volume \"data\" exceeds the limit \"5Mi\". ";
    let sum = "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of \
               containers 30Mi. ";
    let app = "ephemeralcontainerfs.limit: Container app exceeded its local ephemeral storage \
               limit \"10Mi\". ";
    check([5, 5, 0, 0, 5, 0, 0], true, "");
    check([5, 5, 5, 5, 5, 5, 0], true, "");
    check([0, 0, 0, 0, 6, 0, 0], true, data);
    check([6, 5, 0, 0, 0, 0, 0], true, app);
    // the layers are on another file system
    check([6, 5, 0, 0, 0, 0, 0], false, "");
    check([6, 11, 0, 0, 0, 0, 0], false, app);
    check([5, 5, 10, 5, 5, 1, 0], true, sum);
    check([5, 5, 10, 5, 5, 0, 1], true, sum);
    check([5, 5, 10, 5, 5, 1, 0], false, sum);
    // an emptyDir before the pod, the pod before a container
    check([60, 0, 0, 0, 6, 0, 0], true, data);
    check([60, 0, 0, 0, 5, 0, 0], true, sum);
}

#[test]
fn absent_parts_exceed_no_limit() {
    let limited = pod(json!({
        "containers": [container("app", "1Mi")],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}],
    }));
    let limits = LocalStorageLimits::from_pod(&limited).expect("limits");
    let container = ContainerDiskUsage {
        name: "app".to_owned(),
        writable_layer: None,
        logs: None,
    };
    let unknown = PodDiskUsage {
        containers: vec![container],
        ..PodDiskUsage::default()
    };
    assert_eq!(limits.exceeded(&unknown, true), None);
    assert_eq!(limits.exceeded(&PodDiskUsage::default(), true), None);
}

#[test]
fn empty_dir_limit_is_exact() {
    let check = |limit: &str, used: u64, expected: Option<&str>| {
        let volumes = json!([{"name": "data", "emptyDir": {"sizeLimit": limit}}]);
        let pod = pod(json!({"containers": [], "volumes": volumes}));
        let limits = LocalStorageLimits::from_pod(&pod).expect("limits");
        let used = DiskUsage {
            bytes: used,
            inodes: 1,
        };
        let usage = PodDiskUsage {
            volumes: [("data".to_owned(), used)].into(),
            ..PodDiskUsage::default()
        };
        let exceeded = limits.exceeded(&usage, true);
        let message = exceeded.map(|exceeded| exceeded.message);
        assert_eq!(message.as_deref(), expected, "{limit}");
    };
    check("1Mi", MEBIBYTE, None);
    check(
        "1Mi",
        MEBIBYTE + 1,
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
fn sums_are_those_of_the_ranking() {
    let usage = usage([1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(usage.layers(), mebibytes(5));
    assert_eq!(usage.logs(), mebibytes(10));
    assert_eq!(usage.local_volumes(), mebibytes(48));
    assert_eq!(usage.total(), mebibytes(127));
}
