//! The agent's binary on a real containerd: what a user would see.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all of it is test code

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass_testing::agent::{Agent, AgentOptions};
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::pod_watch::{PodTable, PodView, PodWatch};

/// What takes a second on an idle machine may take long on one that also compiles.
const PATIENCE: Duration = Duration::from_secs(90);

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

    /// Puts a manifest in place by rename, as editors and configuration management do.
    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        let staged = self.containerd.base().join("staged");
        std::fs::write(&staged, content).unwrap();
        std::fs::rename(staged, self.manifests.join(file)).unwrap();
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.manifests.join(file)).unwrap();
    }

    /// Waits for a pod to be as wanted and returns it.
    async fn pod(&mut self, name: &str, what: &str, wanted: impl Fn(&PodView) -> bool) -> PodView {
        let found = |table: &PodTable| table.pod(name).is_some_and(&wanted);
        match self
            .watch
            .wait_for(&format!("{name} {what}"), PATIENCE, found)
            .await
        {
            Ok(table) => table.pod(name).unwrap().clone(),
            Err(error) => panic!("{error}\n{}", self.agent.log_tail(40)),
        }
    }

    async fn ready(&mut self, name: &str) -> PodView {
        self.pod(name, "is ready", |pod| pod.ready).await
    }

    async fn gone(&mut self, name: &str) {
        let gone = |table: &PodTable| table.connected && table.pod(name).is_none();
        self.watch
            .wait_for(&format!("{name} is gone"), PATIENCE, gone)
            .await
            .unwrap();
    }

    async fn stop(mut self) {
        self.agent.terminate().await.unwrap();
        self.containerd.stop().await.unwrap();
    }
}

/// A pod of one container that runs a shell script.
fn shell_pod(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    \
         image: windlass.local/busybox:1\n    command: [sh, -c, {script:?}]\n"
    )
}

fn sleeper(name: &str) -> String {
    shell_pod(
        name,
        "trap 'exit 0' TERM; while true; do sleep 1000 & wait $!; done",
    )
}

fn example(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(file);
    std::fs::read_to_string(path).unwrap()
}

fn container_ids(table: &PodTable) -> Vec<(String, String, u64)> {
    let pods = table.pods.values();
    pods.flat_map(|pod| {
        let all = pod.init_containers.iter().chain(&pod.containers);
        all.map(|c| (format!("{}/{}", pod.name, c.name), c.id.clone(), c.restarts))
    })
    .collect()
}

async fn http_get(ip: &str) -> String {
    let mut connection = TcpStream::connect((ip, 80)).await.unwrap();
    connection
        .write_all(b"GET / HTTP/1.0\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn on_containerd_the_web_example_serves_its_page_and_logs_where_shippers_look() {
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
async fn on_containerd_a_job_succeeds_and_a_crash_looper_waits_in_back_off() {
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

#[tokio::test]
async fn on_containerd_an_edit_replaces_the_pod_and_a_removal_stops_it() {
    let mut node = Node::start("t-edit").await;
    node.write("a.yaml", sleeper("a"));
    node.write(
        "stubborn.yaml",
        shell_pod("stubborn", "trap '' TERM; while true; do sleep 1; done"),
    );
    let before = node.ready("a").await;
    node.ready("stubborn").await;

    node.write(
        "a.yaml",
        shell_pod("a", "trap 'exit 0' TERM; sleep 2000 & wait $!"),
    );
    let after = node
        .pod("a", "is replaced", |pod| pod.ready && pod.uid != before.uid)
        .await;
    assert_ne!(after.containers[0].id, before.containers[0].id);

    // It ignores SIGTERM, so only the kill after its grace period of 1 s ends it.
    node.remove("stubborn.yaml");
    node.remove("a.yaml");
    node.gone("stubborn").await;
    node.gone("a").await;
    let tasks = node.containerd.ctr(&["tasks", "ls"]).await.unwrap();
    assert!(!tasks.contains("RUNNING"), "{tasks}");
    node.stop().await;
}

#[tokio::test]
async fn on_containerd_a_killed_agent_comes_back_and_changes_no_container() {
    let mut node = Node::start("t-kill").await;
    let names = ["a", "b", "c"];
    for name in names {
        node.write(&format!("{name}.yaml"), sleeper(name));
        node.ready(name).await;
    }
    let before = container_ids(&node.watch.now());
    assert_eq!(before.len(), 3);
    for _ in 0..3 {
        let snapshots = node.watch.now().snapshots;
        node.agent.kill().unwrap();
        node.agent.spawn().unwrap();
        let back = |table: &PodTable| {
            table.snapshots > snapshots
                && names
                    .iter()
                    .all(|name| table.pod(name).is_some_and(|pod| pod.ready))
        };
        let table = node
            .watch
            .wait_for("the agent is back", PATIENCE, back)
            .await
            .unwrap();
        assert_eq!(container_ids(&table), before);
    }
    // It still is in charge of them.
    node.remove("b.yaml");
    node.gone("b").await;
    node.stop().await;
}

#[tokio::test]
async fn on_containerd_pods_outlive_a_runtime_that_vanishes() {
    let mut node = Node::start("t-vanish").await;
    node.write("a.yaml", sleeper("a"));
    node.ready("a").await;
    let before = container_ids(&node.watch.now());

    node.containerd.kill_daemon().unwrap();
    // A pod that arrives meanwhile is reported, and cannot start.
    node.write("b.yaml", sleeper("b"));
    node.pod("b", "is known", |pod| !pod.ready).await;
    assert!(node.watch.now().pod("a").is_some());
    node.containerd.start_daemon().await.unwrap();

    node.ready("b").await;
    let mut after = container_ids(&node.watch.now());
    after.retain(|(name, ..)| name.starts_with("a-"));
    assert_eq!(after, before);
    node.stop().await;
}

#[tokio::test]
async fn on_containerd_bad_manifests_and_bad_pods_disturb_no_other() {
    let mut node = Node::start("t-bad").await;
    node.write("1-syntax.yaml", "apiVersion: v1\nkind: [Pod\n");
    node.write("2-garbage.yaml", [0u8, 159, 146, 150, 255]);
    let no_image = sleeper("no-image").replace("busybox:1", "absent:1");
    node.write("3-no-image.yaml", no_image);
    node.write(
        "4-never.yaml",
        sleeper("never").replace("busybox:1\n", "absent:1\n    imagePullPolicy: Never\n"),
    );
    node.write("5-exits.yaml", shell_pod("exits", "exit 3"));
    node.write("6-good.yaml", sleeper("good"));
    let good = node.ready("good").await;
    assert_eq!(good.restarts(), 0);
    node.pod("never", "waits", |pod| pod.status() == "ErrImageNeverPull")
        .await;
    node.pod("no-image", "waits", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&pod.status())
    })
    .await;
    node.pod("exits", "is in back-off", |pod| {
        pod.status() == "CrashLoopBackOff"
    })
    .await;
    assert_eq!(node.ready("good").await.containers, good.containers);
    node.stop().await;
}
