//! Pod certificates over hours, with a slow or unreachable signer.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_fake_api::{On, PodSigner};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::PodUid;
use windlass_types::certificatesv1beta1::PodCertificateRequest;
use windlass_types::corev1::ServiceAccount;

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

fn certified(name: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.service_account_name = Some("robot".to_owned());
        let certificate = json!({
            "signerName": "example.com/ca", "keyType": "ECDSAP256",
            "credentialBundlePath": "bundle",
        });
        let sources = json!([{ "podCertificate": certificate }]);
        let volumes = json!([{ "name": "id", "projected": { "sources": sources } }]);
        spec.volumes = serde_json::from_value(volumes).expect("volumes");
        let mounts = json!([{ "name": "id", "mountPath": "/id" }]);
        spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
    })
}

fn account(sim: &NodeSim) {
    let account = json!({ "metadata": { "namespace": "default", "name": "robot" } });
    let account: ServiceAccount = serde_json::from_value(account).expect("account");
    sim.api.create(&account);
}

/// Number of requests, and of unsigned ones.
fn requests(sim: &NodeSim) -> (usize, usize) {
    let all = sim.api.list::<PodCertificateRequest>();
    let open = all.iter().filter(|request| request.status.is_none());
    (all.len(), open.count())
}

fn answer(sim: &NodeSim, decide: impl Fn(&PodCertificateRequest) -> Value) {
    for request in sim.api.list::<PodCertificateRequest>() {
        if request.status.is_some() {
            continue;
        }
        let status = serde_json::from_value(decide(&request)).expect("status");
        let name = request.metadata.name.unwrap_or_default();
        sim.api
            .modify::<PodCertificateRequest>(Some("default"), &name, |it| it.status = Some(status));
    }
}

/// Signs all requests for an hour.
fn sign(sim: &NodeSim, signer: &PodSigner) {
    answer(sim, |request| {
        let signed = signer.issue(request, sim.now(), HOUR);
        signed.expect("a proof of possession")
    });
}

async fn signed_for(sim: &NodeSim, signer: &PodSigner, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        sim.pass(MINUTE).await;
        sign(sim, signer);
    }
}

fn bundle(sim: &NodeSim, uid: &PodUid) -> String {
    let payload = sim.volumes.payload(uid, "id").expect("mounted");
    String::from_utf8(payload.files["bundle"].data.to_vec()).expect("text")
}

/// A pod with its certificate.
async fn with_certificate(sim: &NodeSim, signer: &PodSigner) -> PodUid {
    account(sim);
    let uid = create(sim, certified("web"));
    sim.until("it asks", 2 * SECOND, |sim| requests(sim) == (1, 1))
        .await;
    sign(sim, signer);
    sim.until("it is ready", 3 * SECOND, |sim| ready(sim, "web"))
        .await;
    uid
}

#[test]
fn pod_certificate_is_renewed_while_pod_runs() {
    on_a_ready_node(81, async |sim| {
        let signer = PodSigner::new();
        let uid = with_certificate(sim, &signer).await;
        let first = bundle(sim, &uid);
        assert!(
            first.starts_with("-----BEGIN PRIVATE KEY-----\n"),
            "{first}"
        );
        assert_eq!(first.matches("-----BEGIN CERTIFICATE-----\n").count(), 2);
        signed_for(sim, &signer, 40 * MINUTE).await;
        assert_eq!(requests(sim), (1, 0));
        signed_for(sim, &signer, 15 * MINUTE).await;
        assert_eq!(requests(sim), (2, 0));
        assert_ne!(bundle(sim, &uid), first);
        assert_eq!(restarts(sim, "web"), 0);
        delete(sim, "web", None);
        sim.until("it is gone", MINUTE, |sim| get(sim, "web").is_none())
            .await;
        signed_for(sim, &signer, 2 * HOUR).await;
        assert_eq!(requests(sim), (2, 0), "no request for a removed pod");
    });
}

#[test]
fn previous_certificate_is_used_after_restart() {
    on_a_ready_node(82, async |sim| {
        let signer = PodSigner::new();
        let uid = with_certificate(sim, &signer).await;
        let first = bundle(sim, &uid);
        sim.kill_agent().await;
        let app = sim.runtime.running(&uid, "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        sim.start_agent().await;
        // the previous run had the key in memory
        sim.until("it asks again", 20 * SECOND, |sim| requests(sim) == (2, 1))
            .await;
        sim.until(
            "the container restarts with the certificate it has",
            MINUTE,
            |sim| restarts(sim, "web") == 1 && ready(sim, "web"),
        )
        .await;
        assert_eq!(bundle(sim, &uid), first);
        sign(sim, &signer);
        sim.until("it is shown the new one", 3 * SECOND, |sim| {
            bundle(sim, &uid) != first
        })
        .await;
        assert_eq!(restarts(sim, "web"), 1);
    });
}

#[test]
fn certificate_survives_outage_and_is_renewed_after() {
    on_a_ready_node(83, async |sim| {
        let signer = PodSigner::new();
        let uid = with_certificate(sim, &signer).await;
        let first = bundle(sim, &uid);
        let down = sim.api.faults().error(On::any(), 503);
        sim.pass(2 * HOUR).await;
        assert!(runs(sim, &uid));
        assert_eq!(bundle(sim, &uid), first, "it ran out, and is still shown");
        sim.api.faults().lift(down);
        sim.until("it asks", 10 * MINUTE, |sim| requests(sim).1 == 1)
            .await;
        sign(sim, &signer);
        sim.until("it is shown the new one", MINUTE, |sim| {
            bundle(sim, &uid) != first
        })
        .await;
        assert_eq!(restarts(sim, "web"), 0);
    });
}

#[test]
fn denied_certificate_is_reported_and_delays_no_other_pod() {
    on_a_ready_node(84, async |sim| {
        account(sim);
        for i in 0..8 {
            create(sim, certified(&format!("w{i}")));
        }
        create(sim, pod("free"));
        sim.until("another pod is not held up", SECOND, |sim| {
            ready(sim, "free")
        })
        .await;
        sim.until("they ask", MINUTE, |sim| requests(sim).1 == 8)
            .await;
        let now = sim.now();
        answer(sim, |_| PodSigner::deny("Unknown", "who are you?", now));
        let why = "PodCertificateRequest was permanently denied: \
                   reason=\"Unknown\" message=\"who are you?\"";
        sim.until("they say why they wait", MINUTE, |sim| {
            (0..8).all(|i| {
                let blocker = sim.view(&format!("w{i}")).and_then(|view| view.blocker);
                blocker.is_some_and(|blocker| blocker.to_string().contains(why))
            })
        })
        .await;
        let events = sim.view("w0").map(|view| view.events).unwrap_or_default();
        let denied = events.iter().find(|e| e.reason.as_str() == "Denied");
        let denied = denied.expect("an event").message.clone();
        assert!(
            denied.ends_with(" was denied, reason=\"Unknown\", message=\"who are you?\""),
            "{denied}"
        );
        assert_eq!(waiting_for(sim, "w0"), "ContainerCreating");
        sim.pass(HOUR).await;
        assert_eq!(requests(sim), (8, 0));
    });
}
