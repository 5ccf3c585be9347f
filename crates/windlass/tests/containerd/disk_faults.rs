//! Disks that are full, read-only or broken, under the directories of pods. What becomes of the
//! update of a volume on such a disk is in the tests of a cluster.

use std::fs;

use windlass_testing::small_disk::{BrokenDisk, SmallDisk};

use crate::bed::{Bed, SOON, eventually, skipped};
use crate::manifest::{fill, shell};

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

fn apply(bed: &Bed, name: &str) {
    let text = fill(&PODS.replace("NAME", name));
    bed.apply(&format!("{name}.yaml"), &text);
}

/// Waits until the pod is held back with all of these words, in `explain`, too.
async fn held_back(bed: &Bed, name: &str, reason: &str, words: &[&str]) {
    eventually(&format!("{name} says why it waits"), SOON, async || {
        let explained = bed.ctl(&["explain", "pod", &format!("{name}-node")]).await;
        let text = String::from_utf8(explained.stdout).unwrap();
        let told = text.contains(&format!(": {reason}\n"))
            && words.iter().all(|words| text.contains(words));
        told.then_some(()).ok_or(text)
    })
    .await;
}

/// A pod that runs all the time.
struct Steady(i32);

impl Steady {
    async fn start(bed: &mut Bed) -> Self {
        apply(bed, "steady");
        bed.ready("steady").await;
        Self(bed.process("steady", "main").await)
    }

    async fn is_undisturbed(&self, bed: &mut Bed) {
        bed.ready("steady").await;
        assert_eq!(bed.process("steady", "main").await, self.0);
        let seen = bed.exec("steady", "main", "cat /facts/name").await;
        assert_eq!(seen, "steady");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_full_disk_blocks_only_new_pods() {
    if skipped() {
        return;
    }
    let mut disks = None;
    let mut bed = Bed::prepared("m-disk", |root| {
        // what the agent keeps for itself, and the pods
        let own = SmallDisk::mount(&root.with_file_name("own"), root).unwrap();
        let pods = SmallDisk::mount(&root.with_file_name("disk"), &root.join("pods"));
        disks = Some((own, pods.unwrap()));
    })
    .await;
    let (own, disk) = disks.unwrap();
    let steady = Steady::start(&mut bed).await;

    // ---- full
    own.fill().unwrap();
    disk.fill().unwrap();
    apply(&bed, "late");
    bed.apply("plain.yaml", &shell("plain", "HOLD"));
    let full = "No space left on device (os error 28)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", full];
    let no_directory = ["error making pod data directories: cannot create", full];
    held_back(&bed, "late", "FailedMount", &words).await;
    held_back(&bed, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut bed).await;
    bed.kill_and_respawn().await;
    held_back(&bed, "late", "FailedMount", &words).await;
    held_back(&bed, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut bed).await;
    own.free().unwrap();
    disk.free().unwrap();
    for name in ["late", "plain"] {
        bed.ready(name).await;
    }
    assert_eq!(bed.exec("late", "main", "cat /facts/name").await, "late");

    // ---- read-only: no pod comes and none goes
    disk.set_read_only(true).unwrap();
    apply(&bed, "later");
    bed.remove("late.yaml");
    let refused = "Read-only file system (os error 30)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", refused];
    held_back(&bed, "later", "FailedMount", &words).await;
    bed.logged(&["UnmountVolume.TearDown failed for volume", refused])
        .await;
    steady.is_undisturbed(&mut bed).await;
    bed.kill_and_respawn().await;
    held_back(&bed, "later", "FailedMount", &words).await;
    steady.is_undisturbed(&mut bed).await;
    disk.set_read_only(false).unwrap();
    bed.ready("later").await;
    bed.gone("late").await;

    for name in ["steady", "plain", "later"] {
        bed.remove(&format!("{name}.yaml"));
    }
    for name in ["steady", "plain", "later"] {
        bed.gone(name).await;
    }
    nothing_is_left(&bed).await;
    bed.stop().await;
}

/// Directories go with the housekeeping that follows the end of their pods.
async fn nothing_is_left(bed: &Bed) {
    let pods = bed.agent.root_dir().join("pods");
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
    let mut bed = Bed::start("m-broken").await;
    let steady = Steady::start(&mut bed).await;
    // the UID of a static pod is a hash of its manifest: it is the same the next time
    apply(&bed, "unlucky");
    bed.ready("unlucky").await;
    let uid = bed.pod("unlucky").await["metadata"]["uid"].clone();
    bed.remove("unlucky.yaml");
    bed.gone("unlucky").await;
    nothing_but(&bed, "steady").await;

    // its directory lies on a disk of its own, which breaks before anything of the pod is there
    bed.agent.kill().unwrap();
    let dir = bed
        .agent
        .root_dir()
        .join("pods")
        .join(uid.as_str().unwrap());
    fs::create_dir(&dir).unwrap();
    let image = bed.containerd.base().join("disk.img");
    let Some(disk) = BrokenDisk::mount(&image, &dir).unwrap() else {
        eprintln!("skipped: no disk can be broken here");
        return;
    };
    apply(&bed, "unlucky");
    apply(&bed, "other");
    bed.kill_and_respawn().await;
    bed.ready("other").await;
    let words = [
        "MountVolume.SetUp failed for volume \"facts\"",
        "Input/output error (os error 5)",
    ];
    held_back(&bed, "unlucky", "FailedMount", &words).await;
    steady.is_undisturbed(&mut bed).await;
    // it comes and goes like any other
    bed.remove("other.yaml");
    bed.gone("other").await;

    disk.remove().unwrap();
    bed.ready("unlucky").await;
    let seen = bed.exec("unlucky", "main", "cat /facts/name").await;
    assert_eq!(seen, "unlucky");
    steady.is_undisturbed(&mut bed).await;
    for name in ["steady", "unlucky"] {
        bed.remove(&format!("{name}.yaml"));
        bed.gone(name).await;
    }
    nothing_is_left(&bed).await;
    bed.stop().await;
}

/// Waits until no other pod has a directory.
async fn nothing_but(bed: &Bed, name: &str) {
    let uid = bed.pod(name).await["metadata"]["uid"].clone();
    let pods = bed.agent.root_dir().join("pods");
    eventually("one pod has a directory", SOON, async || {
        let all = fs::read_dir(&pods).unwrap();
        let mut names = all.map(|entry| entry.unwrap().file_name());
        let other = names.find(|name| name.to_str() != uid.as_str());
        other.map_or(Ok(()), |other| Err(format!("{other:?}")))
    })
    .await;
}
