//! Tests of the source parsers, and that the committed pages are current.

use super::endpoints::routes;
use super::metrics::families;
use super::{pages, stale};
use xtask_run as run;

fn source(path: &str) -> anyhow::Result<String> {
    super::read(&run::root().join(path))
}

#[test]
fn the_reference_pages_are_current() {
    let stale = stale(&run::root()).unwrap();
    assert!(stale.is_empty(), "run `cargo xtask reference`: {stale:?}");
}

#[test]
fn a_page_is_told_stale_if_it_is_not_what_the_code_says() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for name in ["crates", "docs"] {
        std::os::unix::fs::symlink(run::root().join(name), root.join(name)).unwrap();
    }
    let there = stale(root).unwrap().len();
    std::fs::remove_file(root.join("docs")).unwrap();
    assert_eq!(there, 0);
    assert_eq!(stale(root).unwrap().len(), pages(&source).unwrap().len());
}

#[test]
fn metric_families_have_type_and_labels_without_series() {
    let families = families().unwrap();
    let check = |name: &str, expected: &str| {
        let (endpoint, family) = &families[name];
        let line = format!("{} {:?} {endpoint}", family.kind, family.labels);
        assert_eq!(line, expected, "{name}");
    };
    check(
        "kubelet_started_containers_errors_total",
        "counter [\"container_type\", \"code\"] /metrics",
    );
    check(
        "kubelet_pleg_relist_duration_seconds",
        "histogram [] /metrics",
    );
    check(
        "rest_client_request_duration_seconds",
        "histogram [\"verb\", \"host\"] /metrics",
    );
    check("process_cpu_seconds_total", "counter [] /metrics");
    check(
        "kubelet_volume_stats_used_bytes",
        "gauge [\"namespace\", \"persistentvolumeclaim\"] /metrics",
    );
    check(
        "kubelet_evictions",
        "counter [\"eviction_signal\"] /metrics",
    );
    check(
        "kubernetes_healthcheck",
        "gauge [\"name\", \"type\"] /metrics/slis",
    );
}

#[test]
fn routes_have_methods_and_skip_disabled_groups() {
    let text = r#"
        .route("/a/{b}", get(a).post(a))
        .route(
            "/long",
            post(long::handler),
        )
        .route("/a/", any(|| is_off("a")))
        .route("/logs/", any(disabled))
"#;
    assert_eq!(
        routes(text),
        [("/a/{b}", vec!["GET", "POST"]), ("/long", vec!["POST"])]
    );
}
