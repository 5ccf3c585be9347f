//! Error responses of real API servers and load balancers, injected into each call of the agent.
//! Pods keep running, and everything recovers when the fault ends.

use serde_json::json;
use windlass_fake_api::{On, RawResponse};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{ConfigMap, ServiceAccount};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// Calls that get the response.
fn calls() -> [(&'static str, On); 8] {
    [
        ("list", On::path("/api/v1/*").method("GET")),
        ("watch", On::any().method("WATCH")),
        ("list and watch", On::path("/api/v1/pods")),
        ("get", On::path("/api/v1/nodes/*").method("GET")),
        ("patch", On::any().method("PATCH")),
        ("token", On::path("*/token").method("POST")),
        ("lease", On::path("*/leases*")),
        ("any", On::any()),
    ]
}

/// A pod that needs a token and a ConfigMap.
fn demanding(name: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.service_account_name = Some("default".to_owned());
        let sources = json!([
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
            { "configMap": { "name": "conf" } },
        ]);
        let volumes = json!([{ "name": "access", "projected": { "sources": sources } }]);
        spec.volumes = serde_json::from_value(volumes).expect("volumes");
        let mounts = json!([{ "name": "access", "mountPath": "/access" }]);
        spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
    })
}

fn objects(sim: &NodeSim) {
    let meta = |name: &str| json!({ "metadata": { "namespace": "default", "name": name } });
    let account: ServiceAccount = serde_json::from_value(meta("default")).expect("account");
    sim.api.create(&account);
    let map: ConfigMap = serde_json::from_value(meta("conf")).expect("map");
    sim.api.create(&map);
}

fn lease_is_fresh(sim: &NodeSim) -> bool {
    let newest = renewals(sim).last().copied();
    newest.is_some_and(|at| sim.now().duration_since(at).as_secs() <= 15)
}

fn survives(answer: &RawResponse) {
    for (call, on) in calls() {
        on_a_ready_node(1, async |sim| {
            objects(sim);
            let web = create(sim, demanding("web"));
            sim.until("a pod is ready", 5 * SECOND, |sim| ready(sim, "web"))
                .await;
            sim.note(format!("{call}: {answer:?}"));
            let fault = sim.api.faults().answer(on, answer.clone());
            sim.api.faults().close_watches();
            create(sim, demanding("during"));
            sim.pass(3 * MINUTE).await;
            assert!(runs(sim, &web), "{call}");
            assert_eq!(sim.runtime.starts(&web, "app"), 1, "{call}");
            sim.api.faults().lift(fault);
            sim.until(&format!("{call}: all is well again"), 4 * MINUTE, |sim| {
                node_ready(sim) && lease_is_fresh(sim) && ready(sim, "during") && ready(sim, "web")
            })
            .await;
            assert_eq!(sim.runtime.starts(&web, "app"), 1, "{call}");
            delete(sim, "during", Some(1));
            sim.until(&format!("{call}: a pod leaves"), MINUTE, |sim| {
                get(sim, "during").is_none()
            })
            .await;
            sim.runtime.assert_invariants();
        });
    }
}

#[test]
fn priority_and_fairness_rejection_costs_no_pod() {
    survives(&RawResponse::too_many_requests());
}

#[test]
fn storage_initialization_costs_no_pod() {
    survives(&RawResponse::storage_initializing());
}

#[test]
fn etcd_leader_change_costs_no_pod() {
    survives(&RawResponse::etcd_leader_changed());
}

#[test]
fn etcd_timeout_costs_no_pod() {
    survives(&RawResponse::etcd_timeout());
}

#[test]
fn api_server_timeout_costs_no_pod() {
    survives(&RawResponse::server_timeout());
}

#[test]
fn lagging_api_server_costs_no_pod() {
    survives(&RawResponse::version_too_large());
}

#[test]
fn bad_gateway_costs_no_pod() {
    survives(&RawResponse::bad_gateway());
}

#[test]
fn load_balancer_without_servers_costs_no_pod() {
    survives(&RawResponse::no_server_available());
}

#[test]
fn login_page_of_a_proxy_costs_no_pod() {
    survives(&RawResponse::login_page());
}
