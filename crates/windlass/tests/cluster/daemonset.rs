//! `deploy/` on a cluster, installed by the commands of its README. API server, controllers and kubectl
//! are real; the node of the host is run by Windlass, too.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use windlass_client::ObjectKey;
use windlass_testing::node_images::{AGENT, RUNTIME};
use windlass_types::corev1::Node;

use crate::control_plane::{Cluster, Kind};
use crate::history::PodVersions;
use crate::host::{
    INNER_CONTAINERD, add_images, add_inner_images, has_shared_mounts, inner_ctr, web,
};
use crate::machine::{Machine, mark, remove_leftovers};
use crate::objects::{HOLD, condition, is_ready, main_status, object, pod};
use crate::test_env::{SOON, TestEnv, eventually};

const NAME: &str = "daemonset::on_real_cluster_daemon_set_runs_deployment_and_cleans_up";
const INSTALL: &str = "kubectl apply -k deploy/overlays/side-by-side";
const OPT_IN_NODE: &str = "kubectl taint node node-windlass windlass.dev/side-by-side-";
const LABEL: &str = "kubectl label node node windlass.dev/opt-in=true";
const INSTALL_OPT_IN: &str = "kubectl apply -k deploy/overlays/opt-in";
const UNINSTALL: &str = "deploy/uninstall.sh";
/// Changes of hosts between installation and cleanup: one is tainted, one is down, and one is
/// deleted.
const MEANWHILE: &str = "kubectl taint node node reserved=yes:NoSchedule
    for node in dead dead-windlass gone-windlass; do
      echo '{ apiVersion: v1, kind: Node, metadata: { name: '$node' } }' | kubectl create -f -
    done
    kubectl label node dead-windlass gone-windlass windlass.dev/side-by-side=true";
const NODES: &str = "kubectl get nodes --output='jsonpath={.items[*].metadata.name}'";
const GIVE_UP: &str = "kubectl delete node dead && kubectl taint node node reserved-";
/// A node without the opt-in label.
const ANOTHER: &str = "echo '{ apiVersion: v1, kind: Node, metadata: { name: another } }' |
    kubectl create -f - && kubectl label node another kubernetes.io/os=linux kubernetes.io/arch=amd64";
const ROLLED_OUT: &str =
    "kubectl --namespace=windlass rollout status daemonset/windlass --timeout=150s";
/// Objects that must not remain on the API server.
const OBJECTS: &str = "kubectl get --ignore-not-found --output=name nodes/node-windlass \
    namespaces/windlass clusterroles/windlass:join clusterrolebindings/windlass:join && \
    kubectl --namespace=kube-node-lease get --ignore-not-found --output=name leases/node-windlass";
/// The node of the DaemonSet.
const SECOND: &str = "node-windlass";
const TAINT: &str = "windlass.dev/side-by-side";
/// Tag of the images after the upgrade, whose contents are the same.
const NEXT: &str = "next";
/// The cluster IP of the service `kubernetes`, where pods look for the API server.
const SERVICE: &str = "10.96.0.1";
/// A pod of the DaemonSet copies a hundred megabytes of programs, starts two daemons and joins.
const READY_TIMEOUT: Duration = Duration::from_secs(150);
/// Cleanup waits for garbage collection, which runs once a minute.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(240);

#[test]
fn readme_commands_match_daemon_set_test() {
    let root = root();
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let deploy = read("deploy/README.md");
    for command in [INSTALL, UNINSTALL, &OPT_IN_NODE.replace("node-w", "n1-w")] {
        assert!(deploy.contains(command), "{command}");
    }
    let first = read("README.md");
    assert!(first.contains(INSTALL) && first.contains(UNINSTALL));
    let overlay = read("deploy/overlays/opt-in/kustomization.yaml");
    for command in [&LABEL.replace("node node", "node NODE"), INSTALL_OPT_IN] {
        assert!(overlay.contains(command), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_daemon_set_runs_deployment_and_cleans_up() {
    // without root, TestEnv prints why the test is skipped
    if rustix::process::geteuid().is_root() && !has_shared_mounts(NAME) {
        return;
    }
    let _swept = Swept::start();
    let Some(env) = TestEnv::start(Kind::WithControllers, "k-daemonset").await else {
        return;
    };
    if env.cluster.program("kubectl").is_none() {
        eprintln!("skipped: KUBEBUILDER_ASSETS has no kubectl");
        return;
    }
    env.create(&pod("neighbour", HOLD, json!({}))).await;
    let neighbour = env.pod_ready("neighbour").await;
    add_images(&env.containerd).await;
    for image in [AGENT, RUNTIME] {
        let [now, next] = [env!("CARGO_PKG_VERSION"), NEXT].map(|tag| format!("{image}:{tag}"));
        let tag = ["images", "tag", &now, &next];
        env.containerd.ctr(&tag).await.unwrap();
    }
    serve_the_service(&env).await;
    let before = Machine::read();
    mark();

    run(&env, INSTALL).await;
    let node = second_node(&env).await;
    assert!(is_tainted(&node), "{node}");
    let labels = &node["metadata"]["labels"];
    for system in ["kubernetes.io/os", "beta.kubernetes.io/os"] {
        assert_eq!(labels[system], "windlass");
    }
    let balancers = "node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(labels[balancers], "true");
    let first = env.get::<Node>(ObjectKey::cluster("node")).await.unwrap();
    assert_eq!(addresses(&node), addresses(&first));
    run(&env, ROLLED_OUT).await;
    let at = ObjectKey::namespaced("windlass", "windlass");
    let daemon_set = env.get::<DaemonSet>(at).await.unwrap();
    let status = &daemon_set["status"];
    assert_eq!(
        status["desiredNumberScheduled"], 1,
        "not on its own: {status}"
    );
    add_inner_images(&env.containerd);

    env.create(&deployment()).await;
    env.history
        .find("no node opted in", SOON, |seen| {
            let mut pods = pods_of_deployment(seen);
            let refused =
                |pod: &&Value| condition(pod, "PodScheduled")["reason"] == "Unschedulable";
            pods.find(refused).map(drop)
        })
        .await;
    run(&env, OPT_IN_NODE).await;
    let first = ready_pods(&env, 1).await.remove(0);
    let process = Process::of(&first);
    process.check_it_is_below_the_inner_containerd();
    Machine::read().check_something_of_each_kind_was_added(&before);

    run(&env, &format!("kubectl apply -k {}", next(&env).display())).await;
    run(&env, ROLLED_OUT).await;
    let scale = "kubectl scale deployment/web --replicas=2";
    run(&env, scale).await;
    let both = ready_pods(&env, 2).await;
    let same = |pod: &&Value| pod["metadata"]["uid"] == first["metadata"]["uid"];
    let kept = both.iter().find(same).expect("the first of them");
    assert_eq!(main_status(kept)["restartCount"], 0);
    assert_eq!(Process::of(kept), process, "it ran through the upgrade");

    run(&env, MEANWHILE).await;
    env.create(&pod("lost", HOLD, json!({ "nodeName": "dead-windlass" })))
        .await;
    let said = refused(&env, UNINSTALL).await;
    assert!(said.contains("not clean: dead."), "{said}");
    assert_eq!(run(&env, NODES).await, "dead dead-windlass node");
    run(&env, GIVE_UP).await;
    run(&env, UNINSTALL).await;
    nothing_left(&env, &before).await;
    assert_eq!(run(&env, NODES).await, "node");

    // again with the opt-in overlay
    run(&env, "kubectl delete deployment/web").await;
    mark();
    run(&env, &format!("{LABEL} && {INSTALL_OPT_IN}")).await;
    let node = second_node(&env).await;
    assert!(!is_tainted(&node), "{node}");
    run(&env, ANOTHER).await;
    run(&env, UNINSTALL).await;
    nothing_left(&env, &before).await;

    let node = env.get::<Node>(ObjectKey::cluster("node")).await.unwrap();
    assert!(!node["metadata"]["labels"].to_string().contains("cleanup"));
    let still = env.pod_ready("neighbour").await;
    assert_eq!(main_status(&still), main_status(&neighbour));
    env.stop().await;
}

/// Runs a line of the documentation in the root of the repository, as an administrator.
async fn run(env: &TestEnv, line: &str) -> String {
    let output = output(env, line).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that has to fail and returns its stderr.
async fn refused(env: &TestEnv, line: &str) -> String {
    let output = output(env, line).await;
    let said = format!("{output:?}");
    assert!(!output.status.success(), "{line}: {said}");
    said
}

async fn output(env: &TestEnv, line: &str) -> Output {
    let kubectl = env.cluster.program("kubectl").unwrap();
    let folder = kubectl.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(root());
    command.env("PATH", path);
    command.env("KUBECONFIG", env.cluster.admin_kubeconfig());
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_TIMEOUT, output).await;
    output.unwrap_or_else(|_| panic!("{line}: no end")).unwrap()
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// An overlay with the images of the next version.
fn next(env: &TestEnv) -> PathBuf {
    let folder = env.containerd.base().join("next");
    std::fs::create_dir_all(&folder).unwrap();
    let up = "../".repeat(folder.components().count() - 1);
    let root = root();
    let from_here = root.strip_prefix("/").unwrap().display();
    let image = |name: &str| json!({ "name": name, "newTag": NEXT });
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [format!("{up}{from_here}/deploy/overlays/side-by-side")],
        "images": [image(AGENT), image(RUNTIME)],
    });
    let file = folder.join("kustomization.yaml");
    std::fs::write(file, kustomization.to_string()).unwrap();
    folder
}

/// Connects the service `kubernetes` to the API server, as kube-proxy.
async fn serve_the_service(env: &TestEnv) {
    let Cluster::Real(plane) = &env.cluster else {
        panic!("a real one");
    };
    let server = plane.url().replace("https://", "");
    let server: SocketAddr = server.parse().unwrap();
    let bridge = env.containerd.network().bridge();
    let mut ip = Command::new("ip");
    ip.args(["address", "add", &format!("{SERVICE}/32"), "dev", bridge]);
    assert!(ip.status().await.unwrap().success());
    let listener = TcpListener::bind((SERVICE, 443)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
}

/// Waits until the second node is ready.
async fn second_node(env: &TestEnv) -> Value {
    eventually("the second node is ready", READY_TIMEOUT, async || {
        let node = env.get::<Node>(ObjectKey::cluster(SECOND)).await;
        let node = node.ok_or("no such node")?;
        let ready = is_ready(&node);
        ready.then(|| node.clone()).ok_or_else(|| node.to_string())
    })
    .await
}

/// The addresses of a node, without its names.
fn addresses(node: &Value) -> Vec<&Value> {
    let addresses = node["status"]["addresses"].as_array().unwrap();
    let ips = addresses.iter().filter(|it| it["type"] == "InternalIP");
    ips.map(|it| &it["address"]).collect()
}

fn is_tainted(node: &Value) -> bool {
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["key"] == TAINT && taint["effect"] == "NoSchedule")
}

fn deployment() -> Deployment {
    let mut spec = web();
    spec["nodeSelector"] = json!({ TAINT: "true" });
    object(json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": spec },
        },
    }))
}

fn pods_of_deployment(seen: &PodVersions) -> impl Iterator<Item = &Value> {
    let pods = seen.present.values();
    pods.filter(|pod| pod["metadata"]["labels"]["app"] == "web")
}

/// Waits until this many pods of the deployment are ready on the second node.
async fn ready_pods(env: &TestEnv, count: usize) -> Vec<Value> {
    let wanted = |seen: &PodVersions| {
        let pods = pods_of_deployment(seen);
        let ready = pods.filter(|pod| is_ready(pod) && pod["spec"]["nodeName"] == SECOND);
        let ready: Vec<Value> = ready.cloned().collect();
        (ready.len() == count).then_some(ready)
    };
    let what = format!("{count} pods run on the second node");
    env.history.find(&what, SOON, wanted).await
}

/// Waits until host and API server are as before.
async fn nothing_left(env: &TestEnv, before: &Machine) {
    eventually("nothing of the DaemonSet is left", SOON, async || {
        let now = Machine::read();
        let mut differences = now.added_to(before);
        differences.extend(before.added_to(&now));
        let objects = run(env, OBJECTS).await;
        differences.extend(objects.lines().map(str::to_owned));
        match differences.is_empty() {
            true => Ok(()),
            false => Err(differences.join("\n")),
        }
    })
    .await;
}

/// The main process of a pod's container.
#[derive(Debug, PartialEq, Eq)]
struct Process(u32);

impl Process {
    fn of(pod: &Value) -> Self {
        let id = main_status(pod)["containerID"].as_str().unwrap();
        let id = id.trim_start_matches("containerd://");
        let tasks = inner_ctr(&["tasks", "list"]);
        let task = tasks.lines().find(|line| line.starts_with(id));
        let task = task.unwrap_or_else(|| panic!("no {id}: {tasks}"));
        let pid = task.split_whitespace().nth(1).unwrap();
        Self(pid.parse().unwrap())
    }

    fn check_it_is_below_the_inner_containerd(&self) {
        let read =
            |pid: &str, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let pid = self.0.to_string();
        let cgroups = read(&pid, "cgroup");
        assert!(cgroups.contains(":/windlass/"), "{cgroups}");
        let status = read(&pid, "status");
        let mut parent = status.lines().filter_map(|it| it.strip_prefix("PPid:"));
        let shim = read(parent.next().unwrap().trim(), "cmdline");
        assert!(shim.contains(INNER_CONTAINERD), "{shim}");
    }
}

/// Dropped after TestEnv, whose agent would restart what a failed test leaves.
struct Swept;

impl Swept {
    fn start() -> Self {
        remove_leftovers();
        Self
    }
}

impl Drop for Swept {
    fn drop(&mut self) {
        if std::thread::panicking() {
            remove_leftovers();
        }
    }
}
