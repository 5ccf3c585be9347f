//! Pods of controllers, placed by a scheduler, and kubectl.

use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use windlass_client::{ObjectKey, Patch};

use crate::control_plane::Kind;
use crate::history::PodVersions;
use crate::objects::{HOLD, container, is_ready, object, uid};
use crate::test_env::{SOON, TestEnv};

const REPLICAS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_a_deployment_rolls_and_kubectl_works() {
    let Some(env) = TestEnv::start(Kind::WithControllers, "k-roll").await else {
        return;
    };
    a_deployment_rolls(&env).await;
    kubectl_works(&env).await;
    env.stop().await;
}

/// The ready pods of the deployment with this value of `VERSION`.
fn ready(seen: &PodVersions, version: &str) -> Vec<Value> {
    let of = |pod: &&Value| {
        pod["metadata"]["labels"]["app"] == "roll"
            && pod["spec"]["containers"][0]["env"][0]["value"] == version
            && is_ready(pod)
    };
    seen.present.values().filter(of).cloned().collect()
}

async fn a_deployment_rolls(env: &TestEnv) {
    let template = |version: &str| {
        let mut main = container(HOLD);
        main["env"] = json!([{ "name": "VERSION", "value": version }]);
        json!({
            "metadata": { "labels": { "app": "roll" } },
            "spec": { "terminationGracePeriodSeconds": 2, "containers": [main] },
        })
    };
    let deployment: Deployment = object(json!({
        "metadata": { "name": "roll", "namespace": "default" },
        "spec": {
            "replicas": REPLICAS,
            "selector": { "matchLabels": { "app": "roll" } },
            "template": template("1"),
        },
    }));
    env.create(&deployment).await;
    let all = |version: &'static str| {
        move |seen: &PodVersions| {
            let pods = ready(seen, version);
            (pods.len() == REPLICAS).then_some(pods)
        }
    };
    let old = env
        .history
        .find("the deployment runs", SOON, all("1"))
        .await;
    let at = ObjectKey::namespaced("default", "roll");
    let patch = Patch::StrategicMerge(json!({ "spec": { "template": template("2") } }));
    env.api.patch::<Deployment>(at, None, &patch).await.unwrap();
    env.history
        .find("the deployment has rolled", SOON, all("2"))
        .await;
    for pod in &old {
        tokio::join!(env.pod_gone(pod), env.runtime_stopped(pod));
    }
    env.wait_for::<Deployment>(at, "is complete", |deployment| {
        deployment["status"]["updatedReplicas"] == REPLICAS
            && deployment["status"]["availableReplicas"] == REPLICAS
            && deployment["status"]["replicas"] == REPLICAS
    })
    .await;
}

async fn kubectl_works(env: &TestEnv) {
    let Some(program) = env.cluster.program("kubectl") else {
        eprintln!("skipped: KUBEBUILDER_ASSETS has no kubectl");
        return;
    };
    let kubeconfig = env.cluster.admin_kubeconfig();
    let kubectl = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(&program);
        command.arg("--kubeconfig").arg(&kubeconfig).args(args);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = output.await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let image = format!("--image={}", windlass_testing::images::BUSYBOX);
    let run = [
        "run",
        "by-hand",
        &image,
        "--image-pull-policy=IfNotPresent",
        "--",
    ];
    kubectl(&[&run[..], &["sh", "-c", HOLD]].concat()).await;
    let pod = env.pod_ready("by-hand").await;
    let line = kubectl(&["get", "pods", "by-hand", "--no-headers"]).await;
    let columns: Vec<&str> = line.split_whitespace().take(4).collect();
    assert_eq!(columns, ["by-hand", "1/1", "Running", "0"]);
    let nodes = kubectl(&["get", "nodes", "--no-headers"]).await;
    let columns: Vec<&str> = nodes.split_whitespace().take(2).collect();
    assert_eq!(columns, ["node", "Ready"]);
    // it waits until the pod is removed
    kubectl(&["delete", "pod", "by-hand", "--timeout=40s"]).await;
    env.pod_gone(&pod).await;
    env.runtime_stopped(&pod).await;
    assert!(!uid(&pod).is_empty());
}
