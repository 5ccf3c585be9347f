//! In-place resizes, seen in the cgroup files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_client::{ObjectKey, Patch};
use windlass_pod_inputs::resources::QosClass;
use windlass_types::PodUid;
use windlass_types::corev1::Pod;

use crate::control_plane::Kind;
use crate::objects::{HOLD, condition, container_with, main_status, pod, uid};
use crate::test_env::{SOON, TestEnv, eventually};

const CGROUPS: &str = "/sys/fs/cgroup";
const KILLS: u64 = 50;

/// CPU (thousandths) and memory (MiB): requests are half of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    cpu: i64,
    memory: i64,
}

impl Size {
    fn resources(self) -> Value {
        let amounts = |part: i64| json!({"cpu": format!("{}m", self.cpu / part), "memory": format!("{}Mi", self.memory / part)});
        json!({"requests": amounts(2), "limits": amounts(1)})
    }
}

const SMALL: Size = Size {
    cpu: 100,
    memory: 64,
};
const LARGE: Size = Size {
    cpu: 200,
    memory: 128,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_running_pod_is_resized() {
    Box::pin(running_pod_is_resized(Kind::Fake)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_running_pod_is_resized() {
    Box::pin(running_pod_is_resized(Kind::Real)).await;
}

async fn running_pod_is_resized(kind: Kind) {
    let Some(env) = TestEnv::start(kind, "k-resize").await else {
        return;
    };
    let plain = create(&env, "plain", json!({})).await;
    let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    let restarted = create(&env, "restarted", json!({ "resizePolicy": policy })).await;
    for created in [&plain, &restarted] {
        resized(&env, created, SMALL).await;
    }
    let before = env.runtime.running(uid(&plain)).await.remove(0).id;

    for created in [&plain, &restarted] {
        resize(&env, created, LARGE).await;
        resized(&env, created, LARGE).await;
        env.events(created, &["ResizeStarted", "ResizeCompleted"])
            .await;
    }
    assert_eq!(env.runtime.running(uid(&plain)).await[0].id, before);
    let status = env.pod("restarted", "was restarted", |pod| {
        main_status(pod)["restartCount"] == 1
    });
    status.await;

    // the limit does not become lower than the usage
    let fill = "dd if=/dev/zero of=/dev/shm/file bs=1M count=50 2>/dev/null";
    env.runtime.exec(uid(&plain), fill).await;
    let low = Size {
        cpu: 100,
        memory: 40,
    };
    resize(&env, &plain, low).await;
    let failed = env.pod("plain", "is not resized", |pod| {
        condition(pod, "PodResizeInProgress")["reason"] == "Error"
    });
    let failed = failed.await;
    let error = &condition(&failed, "PodResizeInProgress")["message"];
    let text = "cannot decrease memory limits: [attempting to set pod memory limit (41943040)";
    assert!(error.as_str().unwrap().starts_with(text), "{error}");
    assert_eq!(actual(&env, &plain).await, Ok(LARGE));
    env.runtime.exec(uid(&plain), "rm /dev/shm/file").await;
    resized(&env, &plain, low).await;
    assert_eq!(env.runtime.running(uid(&plain)).await[0].id, before);
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_resizes_survive_fifty_kills() {
    let Some(mut env) = TestEnv::start(Kind::Fake, "k-kills").await else {
        return;
    };
    let created = create(&env, "killed", json!({})).await;
    resized(&env, &created, SMALL).await;
    let before = env.runtime.running(uid(&created)).await.remove(0).id;
    for kill in 0..KILLS {
        let size = if kill % 2 == 0 { LARGE } else { SMALL };
        resize(&env, &created, size).await;
        // a resize takes some ten milliseconds
        tokio::time::sleep(Duration::from_millis(kill * 2)).await;
        env.agent.kill().unwrap();
        env.respawn().await;
        resized(&env, &created, size).await;
    }
    assert_eq!(env.runtime.running(uid(&created)).await[0].id, before);
    env.stop().await;
}

async fn create(env: &TestEnv, name: &str, mut fields: Value) -> Value {
    fields["resources"] = SMALL.resources();
    let spec = json!({ "containers": [container_with(HOLD, fields)] });
    let created = env.create(&pod(name, HOLD, spec)).await;
    env.pod_ready(name).await;
    created
}

async fn resize(env: &TestEnv, created: &Value, size: Size) {
    let name = created["metadata"]["name"].as_str().unwrap();
    let resources = size.resources();
    if let Some(fake) = env.cluster.fake() {
        fake.modify::<Pod>(Some("default"), name, |pod| {
            let container = &mut pod.spec.as_mut().unwrap().containers[0];
            container.resources = serde_json::from_value(resources).unwrap();
        });
        return;
    }
    let containers = json!([{ "name": "main", "resources": resources }]);
    let patch = Patch::StrategicMerge(json!({ "spec": { "containers": containers } }));
    let at = ObjectKey::namespaced("default", name);
    let patched = env.api.patch::<Pod>(at, Some("resize"), &patch).await;
    patched.unwrap();
}

/// Waits until kernel and status have the size and no resize is in progress.
async fn resized(env: &TestEnv, created: &Value, size: Size) {
    let name = created["metadata"]["name"].as_str().unwrap();
    eventually(&format!("{name} has {size:?}"), SOON, async || {
        let found = actual(env, created).await;
        (found == Ok(size))
            .then_some(())
            .ok_or(format!("{found:?}"))
    })
    .await;
    env.pod(name, "reports its size", |pod| {
        let limits = &main_status(pod)["resources"]["limits"];
        limits["cpu"] == format!("{}m", size.cpu)
            && limits["memory"] == format!("{}Mi", size.memory)
            && condition(pod, "PodResizeInProgress").is_null()
    })
    .await;
}

/// The size in the cgroups of the pod and of its container, which are equal.
async fn actual(env: &TestEnv, created: &Value) -> Result<Size, String> {
    let layout = env.containerd.cgroup_layout();
    let pod = layout.pod(QosClass::Burstable, &PodUid::from(uid(created)));
    let running = env.runtime.running(uid(created)).await;
    let id = &running.first().ok_or("no container")?.id;
    let (of_pod, of_container) = (
        read(&pod),
        container_cgroup(&pod, id).and_then(|path| read(&path)),
    );
    match (of_pod, of_container) {
        (Some(pod), Some(container)) if pod == container => Ok(pod),
        other => Err(format!("{other:?}")),
    }
}

fn unified() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").exists()
}

fn dir(controller: &str, cgroup: &str) -> PathBuf {
    let root = match unified() {
        true => PathBuf::from(CGROUPS),
        false => Path::new(CGROUPS).join(controller),
    };
    root.join(cgroup.trim_start_matches('/'))
}

fn container_cgroup(pod: &str, id: &str) -> Option<String> {
    let entries = fs::read_dir(dir("memory", pod)).ok()?.flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    Some(format!("{pod}/{}", names.find(|name| name.contains(id))?))
}

/// Limits of a cgroup whose CPU shares match them.
fn read(cgroup: &str) -> Option<Size> {
    let number = |controller: &str, file: &str| -> Option<i64> {
        let text = fs::read_to_string(dir(controller, cgroup).join(file)).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let (quota, memory) = match unified() {
        true => (number("cpu", "cpu.max"), number("memory", "memory.max")),
        false => {
            let quota = number("cpu", "cpu.cfs_quota_us")?;
            let shares = number("cpu", "cpu.shares")?;
            let expected = quota / 100 / 2 * 1024 / 1000;
            let quota = (shares == expected).then_some(quota);
            (quota, number("memory", "memory.limit_in_bytes"))
        }
    };
    Some(Size {
        cpu: quota? / 100,
        memory: memory? >> 20,
    })
}
