//! The PodResources and Pods sockets.

use tonic::transport::{Channel, Endpoint};
use windlass_node_proto::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use windlass_node_proto::podresources_v1::{GetPodResourcesRequest, ListPodResourcesRequest};
use windlass_node_proto::pods_v1alpha1::GetPodRequest;
use windlass_node_proto::pods_v1alpha1::pods_client::PodsClient;

use crate::manifest::{shell, shell_with};
use crate::test_env::{SOON, TestEnv, eventually, skipped};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_resources_sockets_survive_agent_kill() {
    if skipped() {
        return;
    }
    let gate = "featureGates: {PodsAPI: true}\n";
    let mut env = TestEnv::configured("sockets", gate).await;
    env.apply("web.yaml", &shell("web", "HOLD"));
    let never = "  restartPolicy: Never";
    env.apply("done.yaml", &shell_with("done", never, "true"));
    env.ready("web").await;
    env.status("done", "Completed").await;
    check_sockets(&env).await;
    // its sockets stay
    env.kill_and_respawn().await;
    env.ready("web").await;
    check_sockets(&env).await;
    env.stop().await;
}

/// Checks with two pods, one of which has finished.
async fn check_sockets(env: &TestEnv) {
    let listed = eventually("the pod that runs, listed", SOON, async || {
        let mut client = resources(env).await?;
        let answer = client.list(ListPodResourcesRequest {}).await;
        let pods = answer.map_err(|it| it.to_string())?.into_inner();
        match pods.pod_resources.as_slice() {
            [pod] => Ok(pod.clone()),
            other => Err(format!("{other:?}")),
        }
    });
    let listed = listed.await;
    assert_eq!((&*listed.namespace, &*listed.name), ("default", "web-node"));
    let names: Vec<_> = listed.containers.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["main"]);
    // a restarted agent needs an inspection first
    let refused = eventually("the pod that has ended, refused", SOON, async || {
        let request = GetPodResourcesRequest {
            pod_name: "done-node".to_owned(),
            pod_namespace: "default".to_owned(),
        };
        match resources(env).await?.get(request).await {
            Ok(answer) => Err(format!("{answer:?}")),
            Err(status) => Ok(status),
        }
    });
    let words = "pod done-node in namespace default not found";
    assert_eq!(refused.await.message(), words);

    let uid = env.pod("web").await["metadata"]["uid"].clone();
    let request = GetPodRequest {
        pod_uid: uid.as_str().unwrap().to_owned(),
    };
    let mut client = PodsClient::new(channel(env, "pods-api/pods-api.sock").await.unwrap());
    let pod = client.get_pod(request).await.unwrap().into_inner().pod;
    let has = |text: &str| pod.windows(text.len()).any(|it| it == text.as_bytes());
    // its name, and the phase that this node sees
    assert!(has("web-node") && has("\x0a\x07Running"));
}

async fn resources(env: &TestEnv) -> Result<PodResourcesListerClient<Channel>, String> {
    let channel = channel(env, "pod-resources/kubelet.sock").await?;
    Ok(PodResourcesListerClient::new(channel))
}

async fn channel(env: &TestEnv, socket: &str) -> Result<Channel, String> {
    let path = env.agent.root_dir().join(socket);
    let endpoint = Endpoint::try_from(format!("unix://{}", path.display())).unwrap();
    endpoint.connect().await.map_err(|error| error.to_string())
}
