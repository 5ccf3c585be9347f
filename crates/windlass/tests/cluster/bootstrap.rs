//! A node that joins with a bootstrap token only.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use serde_json::{Value, json};
use windlass_client::{List, ObjectKey, Selector};
use windlass_fake_api::User;
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::{Node, Secret};

use crate::control_plane::{Cluster, Kind, LIFETIME};
use crate::objects::{HOLD, object, pod};
use crate::test_env::{Credentials, SOON, TestEnv, eventually};

const TOKEN: &str = "abcdef.0123456789abcdef";
const USER: &str = "system:bootstrap:abcdef";
const GROUP: &str = "system:bootstrappers";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_a_node_joins_with_a_token() {
    a_node_joins_with_a_token(Kind::Fake).await;
}

/// With controllers, one of which signs approved requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_a_node_joins_with_a_token() {
    a_node_joins_with_a_token(Kind::WithControllers).await;
}

async fn a_node_joins_with_a_token(kind: Kind) {
    let prepared = TestEnv::prepare(kind, "k-bootstrap", Credentials::Bootstrap(TOKEN)).await;
    let Some(mut env) = prepared else {
        return;
    };
    allow_the_token(&env).await;
    env.agent.spawn().unwrap();
    let csr = eventually("a request for a certificate", SOON, async || {
        let mut all = requests(&env).await;
        all.pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    let spec = &csr["spec"];
    assert_eq!(spec["signerName"], SIGNER, "{spec}");
    assert_eq!(spec["username"], USER, "{spec}");
    let usages = spec["usages"].as_array().expect("usages");
    assert!(usages.iter().any(|usage| usage == "client auth"), "{spec}");
    let node = env.get::<Node>(ObjectKey::cluster(NODE_NAME)).await;
    assert!(node.is_none(), "registered without a certificate: {node:?}");

    approve(&env, csr).await;
    env.node_ready().await;
    env.create(&pod("joined", HOLD, json!({}))).await;
    let before = env.pod_ready("joined").await;

    // the next run has the certificate and sends no request
    env.agent.kill().unwrap();
    env.respawn().await;
    env.delete_pod("joined", None).await;
    tokio::join!(env.pod_gone(&before), env.runtime_stopped(&before));
    let all = requests(&env).await;
    assert_eq!(all.len(), 1, "{all:?}");
    env.stop().await;
}

/// Creates a bootstrap token as kubeadm.
async fn allow_the_token(env: &TestEnv) {
    if let Some(api) = env.cluster.fake() {
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
    env.create(&secret).await;
    let binding: ClusterRoleBinding = object(json!({
        "metadata": { "name": "bootstrappers" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:node-bootstrapper",
        },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP }],
    }));
    env.create(&binding).await;
}

/// All requests for client certificates of nodes.
async fn requests(env: &TestEnv) -> Vec<Value> {
    let listed = env
        .api
        .list::<Csr>(&Selector::default(), &List::default())
        .await;
    let all = listed.unwrap().0.into_iter();
    let all = all.map(|csr| serde_json::to_value(csr).unwrap());
    all.filter(|csr| csr["spec"]["signerName"] == SIGNER)
        .collect()
}

async fn approve(env: &TestEnv, mut csr: Value) {
    let name = csr["metadata"]["name"].as_str().expect("a name").to_owned();
    if let Cluster::Fake { api, .. } = &env.cluster {
        api.approve_csr(&name, LIFETIME).unwrap();
        return;
    }
    csr["status"] = json!({ "conditions": [{
        "type": "Approved", "status": "True", "reason": "Test", "message": "a test approved it",
    }]});
    let csr: Csr = object(csr);
    let at = ObjectKey::cluster(&name);
    env.api.update(at, Some("approval"), &csr).await.unwrap();
}
