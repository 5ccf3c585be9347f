//! Reboot without an API server: pods start from the encrypted copy of their objects.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_types::Timestamp;
use windlass_types::corev1::{ConfigMap, Secret};

use crate::control_plane::Kind;
use crate::objects::{HOLD, container_with, main_status, object, pod, uid};
use crate::test_env::{Credentials, SOON, TestEnv, eventually, now};

const FLAG: &str = "--start-pods-offline";
const SECRET: &str = "correct-horse-battery-staple";
/// The copy serves 30 s after the start.
const STARTED: Duration = Duration::from_secs(90);
/// The copy is compared every ten seconds.
const COMPARED: Duration = Duration::from_secs(11);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_pods_start_without_api_server() {
    pods_start_without_api_server(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_pods_start_without_api_server() {
    pods_start_without_api_server(Kind::Real).await;
}

async fn pods_start_without_api_server(kind: Kind) {
    let prepared = TestEnv::prepare(kind, "k-offline", Credentials::Certificate).await;
    let Some(mut env) = prepared else {
        return;
    };
    env.agent.spawn_with(&[FLAG]).unwrap();
    env.node_ready().await;
    objects(&env).await;
    for name in ["stays", "deleted"] {
        env.create(&pod(name, HOLD, spec())).await;
    }
    let stays = env.pod_ready("stays").await;
    let deleted = env.pod_ready("deleted").await;
    copy_is_complete(&env).await;

    env.agent.kill().unwrap();
    env.delete_pod("deleted", Some(0)).await;
    env.pod_gone(&deleted).await;
    env.cluster.outage(true).await;
    reboot(&env, &[&stays, &deleted]).await;
    assert_eq!(files_with_the_secret(&env.agent.root_dir()), [""; 0]);

    env.agent.spawn_with(&[FLAG]).unwrap();
    for pod in [&stays, &deleted] {
        eventually("it runs without the API server", STARTED, async || {
            let running = env.runtime.running(uid(pod)).await;
            (running.len() == 1)
                .then_some(())
                .ok_or_else(|| "nothing".to_owned())
        })
        .await;
    }
    for pod in [&stays, &deleted] {
        let script = "cat /cred/password; echo; echo $COLOR; cat /cred/color; test -s /cred/token";
        let seen = env.runtime.exec(uid(pod), script).await;
        let seen: Vec<&str> = seen.split_whitespace().collect();
        assert_eq!(seen, [SECRET, "blue", "blue"]);
    }
    let running = env.runtime.running(uid(&stays)).await;

    env.cluster.outage(false).await;
    env.runtime_stopped(&deleted).await;
    let after = env.pod("stays", "has its new container", |pod| {
        let id = main_status(pod)["containerID"].as_str().unwrap_or_default();
        id.ends_with(&running[0].id) && main_status(pod)["ready"] == true
    });
    after.await;
    assert_eq!(env.runtime.running(uid(&stays)).await.len(), 1);

    // nothing is left without the flag
    env.agent.terminate().await.unwrap();
    env.agent.spawn_with(&[]).unwrap();
    env.node_ready().await;
    // the node is ready from before, so this may be earlier than the start of the agent
    eventually("copy and key are removed", STARTED, async || {
        let all = names(&env.agent.root_dir().join("windlass"));
        let mut left = all
            .into_iter()
            .filter(|name| name.starts_with("kept_objects"));
        left.next().map_or(Ok(()), Err)
    })
    .await;
    env.stop().await;
}

async fn objects(env: &TestEnv) {
    let settings: ConfigMap = object(json!({
        "metadata": { "name": "settings", "namespace": "default" }, "data": { "COLOR": "blue" },
    }));
    let cred: Secret = object(json!({
        "metadata": { "name": "cred", "namespace": "default" },
        "data": { "password": "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==" },
    }));
    env.create(&settings).await;
    env.create(&cred).await;
}

/// Variables of a ConfigMap, and a volume with a Secret, the ConfigMap and a token.
fn spec() -> Value {
    let sources = json!([
        { "secret": { "name": "cred" } },
        { "configMap": { "name": "settings", "items": [{ "key": "COLOR", "path": "color" }] } },
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
    ]);
    let container = json!({
        "envFrom": [{ "configMapRef": { "name": "settings" } }],
        "volumeMounts": [{ "name": "cred", "mountPath": "/cred" }],
    });
    json!({
        "containers": [container_with(HOLD, container)],
        "volumes": [{ "name": "cred", "projected": { "sources": sources } }],
    })
}

/// The copy was written since now, and has not changed since.
async fn copy_is_complete(env: &TestEnv) {
    let file = env.agent.root_dir().join("windlass/kept_objects");
    let begin = now();
    eventually("the copy is complete", SOON, async || {
        let modified = std::fs::metadata(&file).and_then(|found| found.modified());
        let modified = modified.map_err(|error| error.to_string())?;
        let modified = Timestamp::try_from(modified).map_err(|error| error.to_string())?;
        // the pods were ready before; a comparison after that found no change
        match now().duration_since(modified.max(begin)).unsigned_abs() > COMPARED {
            true => Ok(()),
            false => Err(format!("{modified:?}")),
        }
    })
    .await;
}

/// Ends the pods' containers and mounts, and removes their sandboxes.
async fn reboot(env: &TestEnv, pods: &[&Value]) {
    for pod in pods {
        env.runtime.remove(uid(pod)).await;
        let containers = env.runtime.containers(uid(pod)).await;
        assert!(containers.is_empty(), "{containers:?}");
    }
    let root = env.agent.root_dir().join("pods");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let below = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let below: Vec<_> = below
        .filter(|path| Path::new(path).starts_with(&root))
        .collect();
    assert_eq!(below.len(), pods.len(), "one volume each: {below:?}");
    for path in below {
        let status = Command::new("umount").arg(path).status().unwrap();
        assert!(status.success(), "{path}");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Files below a directory that contain the secret in the clear.
fn files_with_the_secret(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with_the_secret(&path));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let has = bytes
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes());
            found.extend(has.then(|| path.display().to_string()));
        }
    }
    found
}
