//! API pods from start to end, recorded by a watch.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::control_plane::Kind;
use crate::objects::{HOLD, condition, container_with, is_ready, main_status, phase, pod, uid};
use crate::test_env::TestEnv;
use crate::{deletion, ends, limits, references};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_follow_their_spec() {
    pods_follow_their_spec(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_follow_their_spec() {
    pods_follow_their_spec(Kind::Real).await;
}

async fn pods_follow_their_spec(kind: Kind) {
    let Some(env) = TestEnv::start(kind, "k-pods").await else {
        return;
    };
    // independent pods, concurrently
    tokio::join!(
        Box::pin(a_pod_runs(&env)),
        Box::pin(references::are_resolved(&env)),
        Box::pin(references::are_waited_for(&env)),
        Box::pin(ends::follow_the_restart_policy(&env)),
        Box::pin(rejected_pods_fail(&env)),
        Box::pin(limits::evict_pod_exceeding_empty_dir(&env)),
        Box::pin(limits::evict_pod_exceeding_local_storage(&env)),
    );
    tokio::join!(
        Box::pin(deletion::gives_the_grace_period(&env)),
        Box::pin(deletion::by_force_is_at_once(&env)),
        Box::pin(deletion::while_starting(&env)),
    );
    env.stop().await;
}

async fn a_pod_runs(env: &TestEnv) {
    let spec = json!({
        "hostNetwork": false,
        "containers": [container_with(HOLD, json!({
            "resources": { "requests": { "cpu": "10m", "memory": "8Mi" } },
        }))],
    });
    let created = env.create(&pod("runs", HOLD, spec)).await;
    let pod = env.pod_ready("runs").await;
    its_status_is_whole(env, &pod).await;
    its_versions_tell_one_story(env, &pod);
    let started = ["Pulled", "Created", "Started"];
    env.events(&created, &started).await;
    env.delete_pod("runs", None).await;
    tokio::join!(env.pod_gone(&pod), env.runtime_stopped(&pod));
    env.events(&created, &["Killing"]).await;
}

async fn its_status_is_whole(env: &TestEnv, pod: &Value) {
    let status = &pod["status"];
    for kind in [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ] {
        let condition = condition(pod, kind);
        assert_eq!(
            condition["status"], "True",
            "{kind}: {}",
            status["conditions"]
        );
        let generation = &condition["observedGeneration"];
        assert_eq!(*generation, 1, "{kind}: {condition}");
    }
    assert_eq!(status["observedGeneration"], 1, "{status}");
    assert_eq!(status["qosClass"], "Burstable", "{status}");
    for field in ["hostIP", "podIP", "startTime"] {
        assert!(status[field].is_string(), "{field}: {status}");
    }
    assert_eq!(status["podIPs"][0]["ip"], status["podIP"], "{status}");
    assert_ne!(status["hostIP"], status["podIP"], "{status}");
    let main = main_status(pod);
    let running = env.runtime.running(uid(pod)).await;
    assert_eq!(
        running.len(),
        1,
        "running containers of {}",
        pod["metadata"]["name"]
    );
    assert_eq!(
        main["containerID"],
        format!("containerd://{}", running[0].id)
    );
    assert_eq!(main["restartCount"], 0, "{main}");
    assert_eq!(main["ready"], true, "{main}");
    assert_eq!(main["started"], true, "{main}");
    assert!(
        main["imageID"].as_str().is_some_and(|id| !id.is_empty()),
        "{main}"
    );
    assert!(main["state"]["running"]["startedAt"].is_string(), "{main}");
}

/// Pending, then Running, then ready, without repetition.
fn its_versions_tell_one_story(env: &TestEnv, pod: &Value) {
    let seen = env.history.now();
    let versions = seen.versions_of(uid(pod));
    let mut story: Vec<(&str, bool)> = versions.iter().map(|v| (phase(v), is_ready(v))).collect();
    story.dedup();
    let allowed: [&[(&str, bool)]; 2] = [
        &[("Pending", false), ("Running", true)],
        &[("Pending", false), ("Running", false), ("Running", true)],
    ];
    assert!(allowed.contains(&story.as_slice()), "{story:?}");
    let starts: BTreeSet<String> = versions
        .iter()
        .filter_map(|v| Some(v["status"]["startTime"].as_str()?.to_owned()))
        .collect();
    assert_eq!(starts.len(), 1, "startTime: {starts:?}");
    // one patch for the sandbox and one for the containers
    assert!(
        versions.len() <= 5,
        "{} versions: {versions:?}",
        versions.len()
    );
}

async fn rejected_pods_fail(env: &TestEnv) {
    let port = |name: &str| {
        let ports = json!({ "ports": [{ "containerPort": 47_811, "hostPort": 47_811 }] });
        let spec = json!({ "containers": [container_with(HOLD, ports)] });
        pod(name, HOLD, spec)
    };
    env.create(&port("port-first")).await;
    env.pod_ready("port-first").await;
    let huge = json!({ "resources": { "requests": { "cpu": "4000" } } });
    let huge = json!({ "containers": [container_with(HOLD, huge)] });
    let elsewhere = json!({ "nodeSelector": { "example.com/rack": "nowhere" } });
    for (rejected, reason, word) in [
        (port("port-second"), "NodePorts", "port"),
        (pod("huge", HOLD, huge), "OutOfcpu", "cpu"),
        (
            pod("elsewhere", HOLD, elsewhere),
            "NodeAffinity",
            "affinity",
        ),
    ] {
        let created = env.create(&rejected).await;
        let name = rejected.metadata.name.as_deref().expect("a name");
        let failed = env
            .pod(name, "is Failed", |pod| phase(pod) == "Failed")
            .await;
        let status = &failed["status"];
        assert_eq!(status["reason"], reason, "{name}: {status}");
        let conditions = status["conditions"].as_array();
        assert!(conditions.is_none_or(Vec::is_empty), "{name}: {status}");
        let message = status["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with("Pod was rejected: "),
            "{name}: {message}"
        );
        assert!(message.contains(word), "{name}: {message}");
        assert_eq!(uid(&failed), uid(&created));
        let sandboxes = env.runtime.sandboxes(uid(&created)).await;
        assert!(sandboxes.is_empty(), "{name} was started: {sandboxes:?}");
        env.events(&created, &[reason]).await;
        // it never ran: the deletion completes at once
        env.delete_pod(name, None).await;
        env.pod_gone(&failed).await;
    }
}
