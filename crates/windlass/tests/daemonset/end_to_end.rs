//! The DaemonSet's pod as a static pod: both containers start, the inner agent runs a pod, an
//! upgrade keeps that pod, and the cleanup removes everything.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_testing::agent::{Agent, AgentOptions, NODE_NAME};
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::pod_watch::{PodTable, PodView, PodWatch};

use crate::host::{add_images, add_inner_images, has_shared_mounts, web};
use crate::kustomize::overlay;
use crate::machine::{Machine, mark, remove_leftovers};

/// The pod copies a hundred megabytes of programs, starts two daemons and waits for both; pods of
/// the inner one have 30 s to end and are collected once a minute.
const READY_TIMEOUT: Duration = Duration::from_secs(150);
const NAME: &str = "end_to_end::on_containerd_daemon_set_upgrades_and_cleans_up";
const INNER_SOCKET: &str = "/var/lib/windlass/kubelet/windlass.sock";
const INNER_MANIFESTS: &str = "/var/lib/windlass/manifests";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_daemon_set_upgrades_and_cleans_up() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must run this as root");
        eprintln!("skipped: containers need root: run the same command with sudo");
        return;
    }
    if !has_shared_mounts(NAME) {
        return;
    }
    remove_leftovers();
    let env = TestEnv::start().await;
    // the outer containerd creates it with its first container, and keeps it
    std::fs::create_dir_all("/run/containerd/s").unwrap();
    let before = Machine::read();

    mark();
    env.install("side-by-side", "1");
    let mut outer = env.agent.watch();
    ready(&mut outer, "windlass").await;
    add_inner_images(&env.containerd);
    let mut inner = PodWatch::start(INNER_SOCKET.into());
    std::fs::create_dir_all(INNER_MANIFESTS).unwrap();
    std::fs::write(
        Path::new(INNER_MANIFESTS).join("web.yaml"),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" }, "spec": web() })
            .to_string(),
    )
    .unwrap();
    let first = ready(&mut inner, "web").await;
    Machine::read().check_something_of_each_kind_was_added(&before);

    // an upgrade replaces this pod
    let old = pod(&outer.now(), "windlass").unwrap().uid.clone();
    env.install("side-by-side", "2");
    let replaced =
        |table: &PodTable| pod(table, "windlass").is_some_and(|pod| pod.ready && pod.uid != old);
    wait(&mut outer, "the new pod is ready", replaced).await;
    let snapshots = inner.now().snapshots;
    let back = |table: &PodTable| table.connected && table.snapshots >= snapshots;
    wait(&mut inner, "the new agent answers", back).await;
    let second = ready(&mut inner, "web").await;
    assert_eq!(first, second, "the same container, not restarted");

    env.install("cleanup", "3");
    let clean = |table: &PodTable| {
        let found = pod(table, "windlass");
        found.is_some_and(|pod| pod.ready && pod.containers.iter().any(|it| it.name == "clean"))
    };
    wait(&mut outer, "nothing is left", clean).await;
    env.uninstall();
    let gone = |table: &PodTable| table.connected && pod(table, "windlass").is_none();
    wait(&mut outer, "the pod is gone", gone).await;
    let left = Machine::read().added_to(&before);
    assert_eq!(left, [] as [String; 0]);
    assert_eq!(
        before.added_to(&Machine::read()),
        [] as [String; 0],
        "no other pod lost anything"
    );
    env.stop().await;
}

/// The outer node.
struct TestEnv {
    agent: Agent,
    containerd: PrivateContainerd,
}

impl TestEnv {
    async fn start() -> Self {
        let containerd = PrivateContainerd::start("daemonset", |_| {}).await.unwrap();
        add_images(&containerd).await;
        let manifests = containerd.base().join("manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_windlass"));
        let agent = Agent::start(&containerd, binary, &manifests, AgentOptions::default()).unwrap();
        Self { agent, containerd }
    }

    /// Installs the pod of an overlay's DaemonSet.
    fn install(&self, name: &str, revision: &str) {
        let files = self.containerd.base().join("config");
        std::fs::create_dir_all(&files).unwrap();
        let objects = overlay(name);
        let of_kind = |kind: &str| {
            objects
                .iter()
                .find(|object| object["kind"] == kind)
                .unwrap()
        };
        for (file, text) in of_kind("ConfigMap")["data"].as_object().unwrap() {
            std::fs::write(files.join(file), text.as_str().unwrap()).unwrap();
        }
        let authorities = "/etc/ssl/certs/ca-certificates.crt";
        std::fs::copy(authorities, files.join("ca.crt")).unwrap();

        let mut spec = of_kind("DaemonSet")["spec"]["template"]["spec"].clone();
        without_a_cluster(&mut spec, &files);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": "windlass", "annotations": { "revision": revision } },
            "spec": spec,
        });
        let hidden = self.containerd.base().join("manifests/.windlass.yaml");
        std::fs::write(&hidden, pod.to_string()).unwrap();
        std::fs::rename(hidden, self.manifest()).unwrap();
    }

    fn uninstall(&self) {
        std::fs::remove_file(self.manifest()).unwrap();
    }

    fn manifest(&self) -> std::path::PathBuf {
        self.containerd.base().join("manifests/windlass.yaml")
    }

    /// Stops the agent; dropping TestEnv stops its containerd.
    async fn stop(mut self) {
        self.agent.terminate().await.unwrap();
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the outer agent's log ends with\n{}",
                self.agent.log_tail(60)
            );
            // otherwise it would restart the killed processes
            let _ = self.agent.kill();
            remove_leftovers();
        }
    }
}

/// A static pod refers to no object of a cluster: what comes from ConfigMaps and tokens comes
/// from a folder, and the agent has a folder of manifests in place of the API server.
fn without_a_cluster(spec: &mut Value, files: &Path) {
    for name in ["serviceAccountName", "nodeSelector"] {
        spec.as_object_mut().unwrap().remove(name);
    }
    for volume in spec["volumes"].as_array_mut().unwrap() {
        if ["config", "join"].contains(&volume["name"].as_str().unwrap()) {
            *volume = json!({ "name": volume["name"], "hostPath": { "path": files } });
        }
    }
    spec["initContainers"][0]["env"] = json!([
        { "name": "KUBERNETES_SERVICE_HOST", "value": "10.96.0.1" },
        { "name": "KUBERNETES_SERVICE_PORT", "value": "443" },
    ]);
    if let Some(args) = spec["containers"][0]["args"].as_array_mut() {
        args.retain(|arg| !arg.as_str().unwrap().contains("kubeconfig="));
        args.push(json!(format!("--pod-manifest-path={INNER_MANIFESTS}")));
    }
}

/// Waits until a pod is ready and returns what identifies its containers.
async fn ready(watch: &mut PodWatch, name: &str) -> Vec<(String, u64)> {
    let wanted = |table: &PodTable| pod(table, name).is_some_and(|pod| pod.ready);
    let table = wait(watch, &format!("{name} is ready"), wanted).await;
    let containers = &pod(&table, name).unwrap().containers;
    containers
        .iter()
        .map(|it| (it.id.clone(), it.restarts))
        .collect()
}

/// A pod of either agent, whose names end with that of their node.
fn pod<'a>(table: &'a PodTable, name: &str) -> Option<&'a PodView> {
    let start = format!("{name}-{NODE_NAME}");
    table.pods.values().find(|pod| pod.name.starts_with(&start))
}

async fn wait(watch: &mut PodWatch, what: &str, wanted: impl FnMut(&PodTable) -> bool) -> PodTable {
    watch.wait_for(what, READY_TIMEOUT, wanted).await.unwrap()
}
