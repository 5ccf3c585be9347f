//! The agent behind an HTTP proxy.

use std::path::Path;

use serde_json::{Value, json};
use windlass_fake_api::ForwardProxy;

use crate::control_plane::Kind;
use crate::objects::{HOLD, pod};
use crate::test_env::{Credentials, TestEnv};

/// A host name that only the proxy resolves.
const HOST: &str = "api.invalid";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_agent_works_through_a_proxy() {
    agent_works_through_a_proxy(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_agent_works_through_a_proxy() {
    agent_works_through_a_proxy(Kind::Real).await;
}

async fn agent_works_through_a_proxy(kind: Kind) {
    let Some(mut env) = TestEnv::prepare(kind, "k-proxy", Credentials::Certificate).await else {
        return;
    };
    let proxy = ForwardProxy::start().await.unwrap();
    proxy.require("agent:hunter2");
    let server = redirect(&env.cluster.node_kubeconfig(), &proxy);
    proxy.resolve(HOST, server.parse().unwrap());
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let spec = json!({ "automountServiceAccountToken": false });
    env.create(&pod("behind-a-proxy", HOLD, spec)).await;
    let ready = env.pod_ready("behind-a-proxy").await;
    env.delete_pod("behind-a-proxy", Some(1)).await;
    env.pod_gone(&ready).await;
    let requests = proxy.requests();
    assert!(
        requests.len() >= 3,
        "main, heartbeat and watch: {requests:?}"
    );
    assert!(
        requests.iter().all(|request| request.accepted),
        "{requests:?}"
    );
    let log = std::fs::read_to_string(env.agent.log_file()).unwrap();
    assert!(log.contains("using a proxy for the API server"), "{log}");
    assert!(!log.contains("hunter2"), "the password is in the log");
    env.stop().await;
}

/// Rewrites a kubeconfig so that the server is found through the proxy only; where the server
/// is.
fn redirect(kubeconfig: &Path, proxy: &ForwardProxy) -> String {
    let text = std::fs::read(kubeconfig).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().unwrap().to_owned();
    let address = server.strip_prefix("https://").unwrap().to_owned();
    let (ip, port) = address.split_once(':').unwrap();
    cluster["server"] = format!("https://{HOST}:{port}").into();
    cluster["tls-server-name"] = ip.into();
    cluster["proxy-url"] = format!("http://agent:hunter2@{}", proxy.address()).into();
    std::fs::write(kubeconfig, config.to_string()).unwrap();
    address
}
