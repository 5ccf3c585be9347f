//! A pod fills the disk of the node as fast as it can.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{THRESHOLDS, assert_unharmed, delete, log_lines, prepare};
use crate::objects::{HOLD, container_with, phase, pod};
use crate::test_env::TestEnv;

/// Size of the disk; the threshold is 10 % of it.
const SIZE: u64 = 4 << 30;
/// Writes new blocks ten times a second; ends when that fails.
const WRITER: &str = "while dd if=/dev/zero of=/d/new bs=64k count=1 2>/dev/null; do \
                      mv /d/new /d/old && sleep 0.1; done; exit 9";
const FILLER: &str = "dd if=/dev/zero of=/d/large bs=1M; HOLD";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_vm_full_disk_evicts_filler_before_others_fail() {
    let Some((rounds, mut env)) = prepare("v-disk", THRESHOLDS).await else {
        return;
    };
    let disk = LoopDisk::mount(&env.containerd.base().join("disk"), &env.agent.root_dir());
    env.agent.spawn().unwrap();
    env.node_ready().await;
    let other = volume_pod(&env, "writer", WRITER).await;
    env.pod_ready("writer").await;
    for round in 1..=rounds.div_ceil(4) {
        let name = format!("filler-{round}");
        let began = Instant::now();
        let created = volume_pod(&env, &name, &FILLER.replace("HOLD", HOLD)).await;
        let ended = env.pod(&name, "has ended", |pod| phase(pod) == "Failed");
        let ended = ended.await;
        let reason = ended["status"]["reason"].as_str().unwrap_or("Failed");
        let message = &ended["status"]["message"];
        println!(
            "round {round}: {reason} after {:?}: {message}",
            began.elapsed()
        );
        assert_eq!(reason, "Evicted");
        assert_unharmed(&env, &other).await;
        delete(&env, &created).await;
    }
    for line in log_lines(&env, &["evicting a pod"]) {
        println!("{line}");
    }
    delete(&env, &other).await;
    env.stop().await;
    drop(disk);
}

async fn volume_pod(env: &TestEnv, name: &str, script: &str) -> Value {
    let mounts = json!({ "volumeMounts": [{ "name": "d", "mountPath": "/d" }] });
    let spec = json!({
        "containers": [container_with(script, mounts)],
        "volumes": [{ "name": "d", "emptyDir": {} }],
        "restartPolicy": "Never",
    });
    env.create(&pod(name, script, spec)).await
}

/// An ext4 file system in a sparse file.
struct LoopDisk(PathBuf);

impl LoopDisk {
    fn mount(image: &Path, place: &Path) -> Self {
        File::create(image).unwrap().set_len(SIZE).unwrap();
        fs::create_dir_all(place).unwrap();
        let [image, place] = [image, place].map(|path| path.to_str().unwrap());
        run("mkfs.ext4", &["-q", "-F", "-m", "0", image]);
        run("mount", &["-o", "loop", image, place]);
        Self(place.into())
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program} {args:?}");
}
