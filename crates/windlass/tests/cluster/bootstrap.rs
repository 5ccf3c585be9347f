//! A node that begins with a token and nothing else.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use serde_json::{Value, json};
use windlass_client::{At, List, Selector};
use windlass_fake_api::User;
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::{Node, Secret};

use crate::control_plane::{Cluster, Kind, LIFETIME};
use crate::fixture::{Credentials, Fixture, SOON, eventually};
use crate::objects::{HOLD, object, pod};

const TOKEN: &str = "abcdef.0123456789abcdef";
const USER: &str = "system:bootstrap:abcdef";
const GROUP: &str = "system:bootstrappers";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_a_node_joins_with_a_token() {
    a_node_joins_with_a_token(Kind::Fake).await;
}

/// With controllers: one of them signs what was approved.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_a_node_joins_with_a_token() {
    a_node_joins_with_a_token(Kind::WithControllers).await;
}

async fn a_node_joins_with_a_token(kind: Kind) {
    let prepared = Fixture::prepare(kind, "k-bootstrap", Credentials::Bootstrap(TOKEN)).await;
    let Some(mut fixture) = prepared else {
        return;
    };
    allow_the_token(&fixture).await;
    fixture.agent.spawn().unwrap();
    let csr = eventually("a request for a certificate", SOON, async || {
        let mut all = requests(&fixture).await;
        all.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    let spec = &csr["spec"];
    assert_eq!(spec["signerName"], SIGNER, "{spec}");
    assert_eq!(spec["username"], USER, "{spec}");
    let usages = spec["usages"].as_array().expect("usages");
    assert!(usages.iter().any(|usage| usage == "client auth"), "{spec}");
    let node = fixture.get::<Node>(At::cluster(NODE_NAME)).await;
    assert!(node.is_none(), "registered without a certificate: {node:?}");

    approve(&fixture, csr).await;
    fixture.node_ready().await;
    fixture.create(&pod("joined", HOLD, json!({}))).await;
    let before = fixture.pod_ready("joined").await;

    // the next start has the certificate: it asks for nothing
    fixture.agent.kill().unwrap();
    fixture.respawn().await;
    fixture.delete_pod("joined", None).await;
    tokio::join!(fixture.pod_gone(&before), fixture.runtime_stopped(&before));
    let all = requests(&fixture).await;
    assert_eq!(all.len(), 1, "{all:?}");
    fixture.stop().await;
}

/// What kubeadm does for a token.
async fn allow_the_token(fixture: &Fixture) {
    if let Some(api) = fixture.cluster.fake() {
        let groups = [GROUP, "system:authenticated"].map(str::to_owned).to_vec();
        let name = USER.to_owned();
        api.add_token(TOKEN, User { name, groups });
        return;
    }
    let (id, secret) = TOKEN.split_once('.').expect("a token");
    let secret: Secret = object(json!({
        "metadata": { "name": format!("bootstrap-token-{id}"), "namespace": "kube-system" },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
        },
    }));
    fixture.create(&secret).await;
    let binding: ClusterRoleBinding = object(json!({
        "metadata": { "name": "bootstrappers" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:node-bootstrapper",
        },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP }],
    }));
    fixture.create(&binding).await;
}

/// All requests for client certificates of nodes.
async fn requests(fixture: &Fixture) -> Vec<Value> {
    let listed = fixture
        .api
        .list::<Csr>(&Selector::default(), &List::default())
        .await;
    let all = listed.unwrap().0.into_iter();
    let all = all.map(|csr| serde_json::to_value(csr).unwrap());
    all.filter(|csr| csr["spec"]["signerName"] == SIGNER)
        .collect()
}

async fn approve(fixture: &Fixture, mut csr: Value) {
    let name = csr["metadata"]["name"].as_str().expect("a name").to_owned();
    if let Cluster::Fake { api, .. } = &fixture.cluster {
        api.approve_csr(&name, LIFETIME).unwrap();
        return;
    }
    csr["status"] = json!({ "conditions": [{
        "type": "Approved", "status": "True", "reason": "Test", "message": "a test approved it",
    }]});
    let csr: Csr = object(csr);
    let at = At::cluster(&name);
    fixture
        .api
        .update(at, Some("approval"), &csr)
        .await
        .unwrap();
}
