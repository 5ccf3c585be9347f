//! Pods as reported by the runtime.

use tonic::transport::{Channel, Endpoint};
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_proto::cri_v1::{
    Container, ContainerState, ContainerStatusRequest, ExecSyncRequest, ListContainersRequest,
    ListPodSandboxRequest, PodSandbox, PodSandboxState, RemovePodSandboxRequest,
};

/// CRI client of one containerd.
pub(crate) struct Runtime {
    endpoint: String,
}

impl Runtime {
    pub(crate) fn new(endpoint: String) -> Self {
        Self { endpoint }
    }

    async fn cri(&self) -> RuntimeServiceClient<Channel> {
        let endpoint = Endpoint::try_from(self.endpoint.clone()).unwrap();
        RuntimeServiceClient::new(endpoint.connect().await.unwrap())
    }

    /// All containers of the pod with this UID, newest first.
    pub(crate) async fn containers(&self, uid: &str) -> Vec<Container> {
        let mut list = self.all_containers().await;
        list.retain(|c| c.labels["io.kubernetes.pod.uid"] == uid);
        list.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        list
    }

    /// All containers.
    pub(crate) async fn all_containers(&self) -> Vec<Container> {
        let request = ListContainersRequest::default();
        let answer = self.cri().await.list_containers(request).await.unwrap();
        answer.into_inner().containers
    }

    /// The containers of a pod that run.
    pub(crate) async fn running(&self, uid: &str) -> Vec<Container> {
        let mut list = self.containers(uid).await;
        list.retain(|c| c.state == ContainerState::ContainerRunning as i32);
        list
    }

    /// All sandboxes of a pod.
    pub(crate) async fn sandboxes(&self, uid: &str) -> Vec<PodSandbox> {
        let request = ListPodSandboxRequest::default();
        let answer = self.cri().await.list_pod_sandbox(request).await.unwrap();
        let mut list = answer.into_inner().items;
        list.retain(|s| s.labels["io.kubernetes.pod.uid"] == uid);
        list
    }

    /// Sandboxes of a pod that are ready.
    pub(crate) async fn ready_sandboxes(&self, uid: &str) -> Vec<PodSandbox> {
        let mut list = self.sandboxes(uid).await;
        list.retain(|s| s.state == PodSandboxState::SandboxReady as i32);
        list
    }

    /// Removes a terminated pod, as an administrator with `crictl`. The
    /// agent may stop the same sandbox concurrently, so failures are retried.
    pub(crate) async fn remove(&self, uid: &str) {
        let mut tries = 0;
        loop {
            let mut failure = None;
            for sandbox in self.sandboxes(uid).await {
                let request = RemovePodSandboxRequest {
                    pod_sandbox_id: sandbox.id,
                };
                failure = self.cri().await.remove_pod_sandbox(request).await.err();
            }
            let Some(failure) = failure else { return };
            tries += 1;
            assert!(tries < 100, "{failure}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// Kills the process of a pod's running container, as a crash would.
    pub(crate) async fn crash(&self, uid: &str) {
        let running = self.running(uid).await;
        let request = ContainerStatusRequest {
            container_id: running.first().expect("a running container").id.clone(),
            verbose: true,
        };
        let answer = self.cri().await.container_status(request).await.unwrap();
        let info = &answer.into_inner().info["info"];
        let info: serde_json::Value = serde_json::from_str(info).unwrap();
        let pid = info["pid"].as_i64().expect("a process ID") as i32;
        let pid = rustix::process::Pid::from_raw(pid).expect("a process ID");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }

    /// Output of a shell command in a pod's running container.
    pub(crate) async fn exec(&self, uid: &str, script: &str) -> String {
        let running = self.running(uid).await;
        let request = ExecSyncRequest {
            container_id: running.first().expect("a running container").id.clone(),
            cmd: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            timeout: 20,
        };
        let answer = self.cri().await.exec_sync(request).await.unwrap();
        let answer = answer.into_inner();
        let stderr = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.exit_code, 0, "{script}: {stderr}");
        String::from_utf8(answer.stdout.to_vec()).unwrap()
    }
}
