//! Tokens of pods that are bound at the same time, as those of a Deployment.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_client::{List, ObjectKey, Selector};
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::{Event, Pod};

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, pod};
use crate::test_env::TestEnv;

const PODS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_bound_together_get_tokens_quietly() {
    pods_bound_together_get_tokens_quietly(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_bound_together_get_tokens_quietly() {
    pods_bound_together_get_tokens_quietly(Kind::Real).await;
}

async fn pods_bound_together_get_tokens_quietly(kind: Kind) {
    let Some(env) = TestEnv::start(kind, "k-tokens").await else {
        return;
    };
    if let Some(api) = env.cluster.fake() {
        api.faults().informer_lag(Duration::from_millis(50));
    }
    let names: Vec<_> = (0..PODS).map(|i| format!("tokens-{i}")).collect();
    for name in &names {
        env.create(&unbound(name)).await;
    }
    for name in &names {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": { "name": name, "namespace": "default" },
            "target": { "kind": "Node", "name": NODE_NAME },
        });
        let at = ObjectKey::namespaced("default", name);
        let bound = env.api.post::<Pod, Value>(at, "binding", &binding).await;
        bound.unwrap();
    }
    for name in &names {
        env.pod_ready(name).await;
    }
    let of_pods = Selector {
        namespace: Some("default".to_owned()),
        fields: Some("involvedObject.kind=Pod".to_owned()),
        labels: None,
    };
    let listed = env.api.list::<Event>(&of_pods, &List::default()).await;
    let (events, _) = listed.unwrap();
    let failed = events.iter().filter(|event| {
        let reason = event.reason.as_deref();
        reason == Some("FailedMount")
    });
    let messages: Vec<_> = failed.map(|event| &event.message).collect();
    assert!(messages.is_empty(), "{messages:?}");
    env.stop().await;
}

/// An unbound pod with the token volume.
fn unbound(name: &str) -> Pod {
    let mounts = json!({ "volumeMounts": [{
        "name": "api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }]});
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
        { "configMap": { "name": "kube-root-ca.crt" } },
    ]);
    let spec = json!({
        "nodeName": null,
        "serviceAccountName": "default",
        "automountServiceAccountToken": false,
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "api-access", "projected": { "sources": sources } }],
    });
    pod(name, HOLD, spec)
}
