//! Pod certificates; the test is the signer.

use serde_json::{Value, json};
use std::time::Duration;
use windlass_client::{ClientIdentity, List, ObjectKey, Patch, Selector};
use windlass_fake_api::PodSigner;
use windlass_types::certificatesv1beta1::PodCertificateRequest;

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, main_status, pod, uid};
use crate::test_env::{SOON, TestEnv, eventually, now};

const KINDS: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
const SIGNER: &str = "example.com/ca";
const OTHER: &str = "example.com/unknown";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_get_their_certificates() {
    pods_get_their_certificates(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_get_their_certificates() {
    pods_get_their_certificates(Kind::Real).await;
}

async fn pods_get_their_certificates(kind: Kind) {
    let Some(mut env) = TestEnv::start(kind, "k-certs").await else {
        return;
    };
    let signer = PodSigner::new();
    let created = env.create(&certified("certified", &KINDS, SIGNER)).await;
    let denied = env.create(&certified("denied", &["ED25519"], OTHER)).await;
    answered(&env, &signer, KINDS.len() + 1).await;
    let running = env.pod_ready("certified").await;
    let bundles = bundles(&env, &created).await;
    for (kind, bundle) in KINDS.iter().zip(&bundles) {
        let leaf = ClientIdentity::from_pem(bundle.as_bytes());
        assert!(leaf.is_ok(), "{kind}: the key is not the certificate's");
        assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2, "{kind}");
    }
    let script = "cat /certs/0.key /certs/0.chain; stat -L -c %a /certs/0.key";
    let apart = env.runtime.exec(uid(&created), script).await;
    assert_eq!(apart.trim_end(), format!("{}644", bundles[0]));
    env.events(&denied, &["Denied", "FailedMount"]).await;
    assert_eq!(
        main_status(&env.pod("denied", "waits", |_| true).await)["state"]["waiting"]["reason"],
        "ContainerCreating"
    );

    env.agent.kill().unwrap();
    env.respawn().await;
    // the previous run had the keys in memory; the mounted certificate is used until renewed
    requested(&env, 2 * KINDS.len() + 2).await;
    assert_eq!(self::bundles(&env, &created).await, bundles);
    answered(&env, &signer, KINDS.len() + 1).await;
    eventually("there are new certificates", SOON, async || {
        let now = self::bundles(&env, &created).await;
        let renewed = now.iter().zip(&bundles).all(|(new, old)| new != old);
        renewed.then_some(()).ok_or_else(|| "old ones".to_owned())
    })
    .await;
    let after = env.pod_ready("certified").await;
    assert_eq!(
        main_status(&after)["containerID"],
        main_status(&running)["containerID"]
    );
    env.stop().await;
}

/// A pod with a certificate of each kind in `/certs`; the first also as separate key and chain.
fn certified(name: &str, kinds: &[&str], signer: &str) -> windlass_types::Pod {
    let sources = kinds.iter().enumerate().map(|(index, kind)| {
        let mut certificate = json!({
            "signerName": signer, "keyType": kind,
            "credentialBundlePath": format!("{index}.pem"),
            "userAnnotations": { "example.com/role": name },
        });
        if index == 0 {
            certificate["keyPath"] = json!("0.key");
            certificate["certificateChainPath"] = json!("0.chain");
        }
        json!({ "podCertificate": certificate })
    });
    let sources: Vec<_> = sources.collect();
    let mounts = json!({ "volumeMounts": [{ "name": "id", "mountPath": "/certs" }] });
    let spec = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "id", "projected": { "sources": sources } }],
    });
    pod(name, HOLD, spec)
}

/// Content in the pod, in the order of [`KINDS`].
async fn bundles(env: &TestEnv, pod: &Value) -> Vec<String> {
    let mut bundles = Vec::new();
    for index in 0..KINDS.len() {
        let script = format!("cat /certs/{index}.pem");
        bundles.push(env.runtime.exec(uid(pod), &script).await);
    }
    bundles
}

/// All requests, once there are as many.
async fn requested(env: &TestEnv, count: usize) -> Vec<PodCertificateRequest> {
    let what = format!("there are {count} requests");
    // a key of 4096 bits may take seconds
    eventually(&what, 2 * SOON, async || {
        let all = env
            .api
            .list::<PodCertificateRequest>(&Selector::default(), &List::default())
            .await;
        let (all, _) = all.map_err(|error| error.to_string())?;
        let seen = all.len();
        (seen == count)
            .then_some(all)
            .ok_or_else(|| seen.to_string())
    })
    .await
}

/// Signs this number of requests.
async fn answered(env: &TestEnv, signer: &PodSigner, count: usize) {
    let mut answered = 0;
    eventually("all requests are answered", 2 * SOON, async || {
        let all = env
            .api
            .list::<PodCertificateRequest>(&Selector::default(), &List::default())
            .await;
        let (all, _) = all.map_err(|error| error.to_string())?;
        for request in all {
            let status = request.status.as_ref();
            if status.is_some_and(|s| s.conditions.as_ref().is_some_and(|c| !c.is_empty())) {
                continue;
            }
            let now = now();
            let status = match request.spec.signer_name.as_str() {
                SIGNER => signer.issue(&request, now, Duration::from_secs(3600)),
                _ => Ok(PodSigner::deny("UnknownPod", "not a pod of this node", now)),
            };
            let name = request.metadata.name.clone().unwrap_or_default();
            let patch = Patch::Merge(json!({ "status": status? }));
            let at = ObjectKey::namespaced("default", &name);
            let patched = env
                .api
                .patch::<PodCertificateRequest>(at, Some("status"), &patch)
                .await;
            patched.map_err(|error| error.to_string())?;
            answered += 1;
        }
        (answered == count)
            .then_some(())
            .ok_or_else(|| format!("{answered} answered"))
    })
    .await;
}
