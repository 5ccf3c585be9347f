//! Listing and watching the node's pods without `RequestWatchProgress` of etcd, where streaming
//! lists end with an error: a fault of the fake API server, or Debian's etcd 3.4.

use serde_json::json;
use windlass_node_proto::windlass_v1::GetNodeRequest;
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_types::corev1::ConfigMap;

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, object, pod};
use crate::test_env::{Credentials, SOON, TestEnv, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_etcd_without_watch_progress_runs_pods() {
    etcd_without_watch_progress_runs_pods(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_etcd_without_watch_progress_runs_pods() {
    etcd_without_watch_progress_runs_pods(Kind::Real).await;
}

async fn etcd_without_watch_progress_runs_pods(kind: Kind) {
    let Some(mut env) = TestEnv::prepare(kind, "k-watch", Credentials::Certificate).await else {
        return;
    };
    if let Some(api) = env.cluster.fake() {
        api.faults().no_watch_progress(true);
    }
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let map = json!({
        "metadata": { "name": "conf", "namespace": "default" },
        "data": { "KEY": "value" },
    });
    env.create(&object::<ConfigMap>(map)).await;
    let variables = json!({ "envFrom": [{ "configMapRef": { "name": "conf" } }] });
    let spec = json!({
        "containers": [container_with(HOLD, variables)],
        // without controllers, the test creates the root CA ConfigMap
        "automountServiceAccountToken": false,
    });
    env.create(&pod("watched", HOLD, spec)).await;
    let ready = env.pod_ready("watched").await;
    pod_watch_works(&env).await;
    env.delete_pod("watched", Some(1)).await;
    env.pod_gone(&ready).await;
    env.stop().await;
}

/// Output of `windlassctl status`.
async fn pod_watch_works(env: &TestEnv) {
    let socket = env.agent.socket();
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display()));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut client = WindlassClient::new(channel);
    eventually("the pod watch works", SOON, async || {
        let node = client
            .get_node(GetNodeRequest {})
            .await
            .unwrap()
            .into_inner();
        let pod_watch = node.cluster.and_then(|cluster| cluster.pod_watch);
        match pod_watch {
            Some(pod_watch) if pod_watch.error.is_none() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
