//! Full, read-only or broken disks below pod directories. Volume updates on such disks are tested
//! in
//! `cluster/full_disks.rs`.

use std::fs;

use windlass_testing::small_disk::{BrokenDisk, SmallDisk};

use crate::manifest::{fill, shell};
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {of: NAME}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: facts, mountPath: /facts}, {name: scratch, mountPath: /scratch}]
  volumes:
    - name: facts
      projected:
        sources:
          - downwardAPI:
              items: [{path: name, fieldRef: {fieldPath: "metadata.labels['of']"}}]
    - {name: scratch, emptyDir: {}}
"#;

fn apply(env: &TestEnv, name: &str) {
    let text = fill(&PODS.replace("NAME", name));
    env.apply(&format!("{name}.yaml"), &text);
}

/// Waits until the pod is blocked with all of these words, also in `explain`.
async fn held_back(env: &TestEnv, name: &str, reason: &str, words: &[&str]) {
    eventually(&format!("{name} reports why it waits"), SOON, async || {
        let explained = env.ctl(&["explain", "pod", &format!("{name}-node")]).await;
        let text = String::from_utf8(explained.stdout).unwrap();
        let told = text.contains(&format!(": {reason}\n"))
            && words.iter().all(|words| text.contains(words));
        told.then_some(()).ok_or(text)
    })
    .await;
}

/// A long-running pod.
struct Steady(i32);

impl Steady {
    async fn start(env: &mut TestEnv) -> Self {
        apply(env, "steady");
        env.ready("steady").await;
        Self(env.process("steady", "main").await)
    }

    async fn is_undisturbed(&self, env: &mut TestEnv) {
        env.ready("steady").await;
        assert_eq!(env.process("steady", "main").await, self.0);
        let seen = env.exec("steady", "main", "cat /facts/name").await;
        assert_eq!(seen, "steady");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_full_disk_blocks_only_new_pods() {
    if skipped() {
        return;
    }
    let mut disks = None;
    let mut env = TestEnv::prepared("m-disk", |root| {
        // state files and pods
        let own = SmallDisk::mount(&root.with_file_name("own"), root).unwrap();
        let pods = SmallDisk::mount(&root.with_file_name("disk"), &root.join("pods"));
        disks = Some((own, pods.unwrap()));
    })
    .await;
    let (own, disk) = disks.unwrap();
    let steady = Steady::start(&mut env).await;

    // ---- full
    own.fill().unwrap();
    disk.fill().unwrap();
    apply(&env, "late");
    env.apply("plain.yaml", &shell("plain", "HOLD"));
    let full = "No space left on device (os error 28)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", full];
    let no_directory = ["error making pod data directories: cannot create", full];
    held_back(&env, "late", "FailedMount", &words).await;
    held_back(&env, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut env).await;
    env.kill_and_respawn().await;
    held_back(&env, "late", "FailedMount", &words).await;
    held_back(&env, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut env).await;
    own.free().unwrap();
    disk.free().unwrap();
    for name in ["late", "plain"] {
        env.ready(name).await;
    }
    assert_eq!(env.exec("late", "main", "cat /facts/name").await, "late");

    // ---- read-only: no pod starts or is removed
    disk.set_read_only(true).unwrap();
    apply(&env, "later");
    env.remove("late.yaml");
    let refused = "Read-only file system (os error 30)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", refused];
    held_back(&env, "later", "FailedMount", &words).await;
    env.logged(&["UnmountVolume.TearDown failed for volume", refused])
        .await;
    steady.is_undisturbed(&mut env).await;
    env.kill_and_respawn().await;
    held_back(&env, "later", "FailedMount", &words).await;
    steady.is_undisturbed(&mut env).await;
    disk.set_read_only(false).unwrap();
    env.ready("later").await;
    env.gone("late").await;

    for name in ["steady", "plain", "later"] {
        env.remove(&format!("{name}.yaml"));
    }
    for name in ["steady", "plain", "later"] {
        env.gone(name).await;
    }
    nothing_is_left(&env).await;
    env.stop().await;
}

/// Directories are removed by housekeeping after their pods terminated.
async fn nothing_is_left(env: &TestEnv) {
    let pods = env.agent.root_dir().join("pods");
    eventually("the directories of pods are gone", SOON, async || {
        let left: Vec<_> = fs::read_dir(&pods).unwrap().collect();
        left.is_empty()
            .then_some(())
            .ok_or_else(|| format!("{left:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_disk_errors_block_only_pods_on_that_disk() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::start("m-broken").await;
    let steady = Steady::start(&mut env).await;
    // the UID of a static pod is a hash of its manifest, and so the same next time
    apply(&env, "unlucky");
    env.ready("unlucky").await;
    let uid = env.pod("unlucky").await["metadata"]["uid"].clone();
    env.remove("unlucky.yaml");
    env.gone("unlucky").await;
    nothing_but(&env, "steady").await;

    // the pod directory is on a separate disk that fails before the pod starts
    env.agent.kill().unwrap();
    let dir = env
        .agent
        .root_dir()
        .join("pods")
        .join(uid.as_str().unwrap());
    fs::create_dir(&dir).unwrap();
    let image = env.containerd.base().join("disk.img");
    let Some(disk) = BrokenDisk::mount(&image, &dir).unwrap() else {
        eprintln!("skipped: no disk can be broken here");
        return;
    };
    apply(&env, "unlucky");
    apply(&env, "other");
    env.kill_and_respawn().await;
    env.ready("other").await;
    let words = [
        "MountVolume.SetUp failed for volume \"facts\"",
        "Input/output error (os error 5)",
    ];
    held_back(&env, "unlucky", "FailedMount", &words).await;
    steady.is_undisturbed(&mut env).await;
    // it starts and terminates as others
    env.remove("other.yaml");
    env.gone("other").await;

    disk.remove().unwrap();
    env.ready("unlucky").await;
    let seen = env.exec("unlucky", "main", "cat /facts/name").await;
    assert_eq!(seen, "unlucky");
    steady.is_undisturbed(&mut env).await;
    for name in ["steady", "unlucky"] {
        env.remove(&format!("{name}.yaml"));
        env.gone(name).await;
    }
    nothing_is_left(&env).await;
    env.stop().await;
}

/// Waits until no other pod has a directory.
async fn nothing_but(env: &TestEnv, name: &str) {
    let uid = env.pod(name).await["metadata"]["uid"].clone();
    let pods = env.agent.root_dir().join("pods");
    eventually("one pod has a directory", SOON, async || {
        let all = fs::read_dir(&pods).unwrap();
        let mut names = all.map(|entry| entry.unwrap().file_name());
        let other = names.find(|name| name.to_str() != uid.as_str());
        other.map_or(Ok(()), |other| Err(format!("{other:?}")))
    })
    .await;
}
