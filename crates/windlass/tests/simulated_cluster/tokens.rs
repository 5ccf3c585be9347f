//! First tokens of new pods while the API server's informers lag behind the binding.

use std::time::Duration;

use serde_json::json;
use windlass_fake_api::On;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::Pod;
use windlass_types::corev1::{Event, ServiceAccount};

use crate::SECOND;
use crate::fixture::*;

/// A pod with a token and a ConfigMap, as every pod of a cluster has, not bound yet.
fn ordinary(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .container("app", "busybox:1")
        .grace(5)
        .with(|pod| {
            let spec = pod.spec.as_mut().expect("spec");
            spec.service_account_name = Some("robot".to_owned());
            // avoids the event about a missing cluster DNS
            spec.dns_policy = Some("Default".to_owned());
            let sources = json!([
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": { "name": "kube-root-ca.crt" } },
            ]);
            let volumes = json!([{ "name": "api", "projected": { "sources": sources } }]);
            spec.volumes = serde_json::from_value(volumes).expect("volumes");
            let mounts = json!([{ "name": "api", "mountPath": "/var/run/secrets" }]);
            spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
        })
}

fn namespace(sim: &NodeSim, account: &str) {
    let meta = |name: &str| json!({ "metadata": { "namespace": "default", "name": name } });
    let account: ServiceAccount = serde_json::from_value(meta(account)).expect("account");
    sim.api.create(&account);
    let root = serde_json::from_value(meta("kube-root-ca.crt")).expect("ConfigMap");
    sim.api.create::<windlass_types::corev1::ConfigMap>(&root);
}

/// Creates pods and binds each a little later, as a scheduler.
async fn schedule(sim: &mut NodeSim, names: &[String]) {
    for name in names {
        sim.api.create(&ordinary(name).build());
    }
    sim.pass(SECOND).await;
    for name in names {
        sim.api.modify::<Pod>(Some("default"), name, |pod| {
            pod.spec.as_mut().expect("spec").node_name = Some(NODE.to_owned());
        });
    }
}

/// Messages of the Warning events of the pods in the API.
fn warnings(sim: &NodeSim) -> Vec<String> {
    let events = sim.api.list::<Event>().into_iter();
    let of_pods = events.filter(|event| event.involved_object.kind.as_deref() == Some("Pod"));
    of_pods
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .map(|event| {
            let reason = event.reason.unwrap_or_default();
            format!("{reason} {}", event.message.unwrap_or_default())
        })
        .collect()
}

fn refused_tokens(sim: &NodeSim) -> usize {
    let requests = sim.api.requests().into_iter();
    let tokens = requests.filter(|request| request.path.ends_with("/token"));
    tokens.filter(|request| request.status != 201).count()
}

/// Virtual time from the binding of a pod until the API has it ready.
async fn start_time(sim: &mut NodeSim, name: &str) -> Duration {
    schedule(sim, &[name.to_owned()]).await;
    let bound = tokio::time::Instant::now();
    sim.until("it is ready", 10 * SECOND, |sim| ready(sim, name))
        .await;
    bound.elapsed()
}

#[test]
fn sandbox_is_made_while_the_token_is_requested() {
    on_a_ready_node(30, async |sim| {
        namespace(sim, "robot");
        // the first pod of a namespace reads its ConfigMap first
        start_time(sim, "first").await;
        let quick = start_time(sim, "quick").await;
        let delay = Duration::from_millis(60);
        sim.api.faults().slow(On::path("*/token"), delay);
        let slow = start_time(sim, "slow").await;
        assert!(slow < quick + delay / 4, "{quick:?} {slow:?}");
        // a slow server holds no start slot: other pods start before
        sim.api.faults().clear();
        sim.api.faults().slow(On::path("*/token"), 5 * SECOND);
        let names: Vec<_> = (0..8).map(|i| format!("late{i}")).collect();
        schedule(sim, &names).await;
        create(sim, pod("free"));
        sim.until("a pod without a token is ready", 3 * SECOND, |sim| {
            ready(sim, "free")
        })
        .await;
        sim.until("all are ready", 15 * SECOND, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
    });
}

#[test]
fn informers_that_lag_briefly_cause_no_warning() {
    on_a_ready_node(31, async |sim| {
        namespace(sim, "robot");
        sim.api.faults().informer_lag(Duration::from_millis(100));
        let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
        schedule(sim, &names).await;
        sim.until("all are ready", 3 * SECOND, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        assert!(refused_tokens(sim) >= 20, "the lag was seen");
        sim.pass(30 * SECOND).await;
        assert_eq!(warnings(sim), [""; 0]);
    });
}

#[test]
fn informers_that_lag_for_seconds_cause_a_warning_and_a_start() {
    on_a_ready_node(32, async |sim| {
        namespace(sim, "robot");
        // its ConfigMap and service account are cached for another pod
        start_time(sim, "first").await;
        sim.api.faults().informer_lag(5 * SECOND);
        schedule(sim, &["web".to_owned()]).await;
        sim.pass(Duration::from_millis(1900)).await;
        assert_eq!(warnings(sim), [""; 0]);
        assert_ne!(sim.blocker("web"), "FailedMount");
        sim.until("the refusal is reported", SECOND, |sim| {
            let refused = "failed to fetch token: ";
            warnings(sim).iter().any(|text| text.contains(refused))
        })
        .await;
        sim.until("it is ready", 6 * SECOND, |sim| ready(sim, "web"))
            .await;
    });
}

#[test]
fn token_that_is_always_refused_is_reported_with_its_message() {
    on_a_ready_node(33, async |sim| {
        namespace(sim, "robot");
        sim.api
            .authorize(|_, access| access.resource != "serviceaccounts");
        schedule(sim, &["web".to_owned()]).await;
        let message = "cannot create resource \"serviceaccounts\"";
        sim.until("the refusal is reported", 3 * SECOND, |sim| {
            warnings(sim).iter().any(|text| {
                text.starts_with("FailedMount MountVolume.SetUp failed") && text.contains(message)
            })
        })
        .await;
        assert_eq!(sim.blocker("web"), "FailedMount");
        sim.pass(60 * SECOND).await;
        assert!(!ready(sim, "web"));
        assert!(refused_tokens(sim) < 25, "{}", refused_tokens(sim));
    });
}
