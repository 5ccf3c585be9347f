//! The pods of `examples/` on a real containerd, checked against their comments.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is test code

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_testing::agent::{Agent, AgentOptions};
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::environment::scaled;
use windlass_testing::pod_watch::{PodTable, PodView, PodWatch};

/// Long enough for a busy host.
const TIMEOUT: Duration = Duration::from_secs(90);

/// An agent with an empty manifest directory. Fields are dropped in order: the agent first.
struct Node {
    watch: PodWatch,
    agent: Agent,
    containerd: PrivateContainerd,
    manifests: PathBuf,
}

impl Node {
    async fn start(name: &str) -> Self {
        let containerd = PrivateContainerd::start(name, |_| ()).await.unwrap();
        let manifests = containerd.base().join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_windlass"));
        let agent =
            Agent::start(&containerd, &binary, &manifests, AgentOptions::default()).unwrap();
        Self {
            watch: agent.watch(),
            agent,
            containerd,
            manifests,
        }
    }

    /// Writes a manifest by rename, as editors do.
    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        let staged = self.containerd.base().join("staged");
        std::fs::write(&staged, content).unwrap();
        std::fs::rename(staged, self.manifests.join(file)).unwrap();
    }

    /// Waits for a pod in the wanted state and returns it.
    async fn pod(&mut self, name: &str, what: &str, wanted: impl Fn(&PodView) -> bool) -> PodView {
        let found = |table: &PodTable| table.pod(name).is_some_and(&wanted);
        match self
            .watch
            .wait_for(&format!("{name} {what}"), TIMEOUT, found)
            .await
        {
            Ok(table) => table.pod(name).unwrap().clone(),
            Err(error) => panic!("{error}\n{}", self.agent.log_tail(40)),
        }
    }

    async fn ready(&mut self, name: &str) -> PodView {
        self.pod(name, "is ready", |pod| pod.ready).await
    }

    async fn stop(mut self) {
        self.agent.terminate().await.unwrap();
        self.containerd.stop().await.unwrap();
    }
}

fn example(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(file);
    std::fs::read_to_string(path).unwrap()
}

/// Gets the page at an address, with retries: without a probe the pod may be ready before its
/// server.
async fn http_get(ip: &str) -> String {
    let end = tokio::time::Instant::now() + scaled(TIMEOUT);
    let mut connection = loop {
        match TcpStream::connect((ip, 80)).await {
            Ok(connection) => break connection,
            Err(error) => assert!(tokio::time::Instant::now() < end, "{ip}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    connection
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn on_containerd_web_example_serves_page_and_writes_logs() {
    let mut node = Node::start("t-web").await;
    node.write("web.yaml", example("web.yaml"));
    let web = node.ready("web").await;
    assert!(web.ip.starts_with("10.88."), "{}", web.ip);
    assert!(
        web.init_containers
            .iter()
            .any(|c| c.name == "clock" && c.state == "running")
    );

    let page = http_get(&web.ip).await;
    assert!(page.contains("<h1>web-node on node</h1>"), "{page}");
    let log = format!("logs/default_web-node_{}/web/0.log", web.uid);
    assert!(node.containerd.base().join(&log).is_file(), "{log}");
    let id = web.containers[0].id.trim_start_matches("containerd://");
    let link = format!("/var/log/containers/web-node_default_web-{id}.log");
    assert!(std::fs::symlink_metadata(&link).is_ok(), "{link}");
    node.stop().await;
    assert!(std::fs::symlink_metadata(&link).is_err(), "{link}");
}

#[tokio::test]
async fn on_containerd_job_succeeds_and_crash_loop_backs_off() {
    let mut node = Node::start("t-job").await;
    node.write("job.yaml", example("job.yaml"));
    node.write("crash-looper.yaml", example("crash-looper.yaml"));
    let job = node
        .pod("job", "succeeds", |pod| pod.phase == "Succeeded")
        .await;
    assert_eq!(job.restarts(), 0);
    let looper = node
        .pod("crash-looper", "is in back-off", |pod| {
            pod.status() == "CrashLoopBackOff" && pod.restarts() >= 1
        })
        .await;
    let blocker = looper.blocker.expect("a blocker");
    assert_eq!(blocker.reason, "CrashLoopBackOff");
    assert!(blocker.next_retry.is_some());
    node.stop().await;
}
