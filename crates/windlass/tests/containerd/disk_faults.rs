//! Disks that are full, read-only or broken, under the directories of pods. What becomes of the
//! update of a volume on such a disk is in the tests of a cluster.

use std::fs;

use windlass_testing::small_disk::{BrokenDisk, SmallDisk};

use crate::fixture::{Fixture, SOON, eventually, skipped};
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

fn apply(fixture: &Fixture, name: &str) {
    let text = fill(&PODS.replace("NAME", name));
    fixture.apply(&format!("{name}.yaml"), &text);
}

/// Waits until the pod is held back with all of these words, in `explain`, too.
async fn held_back(fixture: &Fixture, name: &str, reason: &str, words: &[&str]) {
    eventually(&format!("{name} says why it waits"), SOON, async || {
        let explained = fixture
            .ctl(&["explain", "pod", &format!("{name}-node")])
            .await;
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
    async fn start(fixture: &mut Fixture) -> Self {
        apply(fixture, "steady");
        fixture.ready("steady").await;
        Self(fixture.process("steady", "main").await)
    }

    async fn is_undisturbed(&self, fixture: &mut Fixture) {
        fixture.ready("steady").await;
        assert_eq!(fixture.process("steady", "main").await, self.0);
        let seen = fixture.exec("steady", "main", "cat /facts/name").await;
        assert_eq!(seen, "steady");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_full_disk_blocks_only_new_pods() {
    if skipped() {
        return;
    }
    let mut disks = None;
    let mut fixture = Fixture::prepared("m-disk", |root| {
        // what the agent keeps for itself, and the pods
        let own = SmallDisk::mount(&root.with_file_name("own"), root).unwrap();
        let pods = SmallDisk::mount(&root.with_file_name("disk"), &root.join("pods"));
        disks = Some((own, pods.unwrap()));
    })
    .await;
    let (own, disk) = disks.unwrap();
    let steady = Steady::start(&mut fixture).await;

    // ---- full
    own.fill().unwrap();
    disk.fill().unwrap();
    apply(&fixture, "late");
    fixture.apply("plain.yaml", &shell("plain", "HOLD"));
    let full = "No space left on device (os error 28)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", full];
    let no_directory = ["error making pod data directories: cannot create", full];
    held_back(&fixture, "late", "FailedMount", &words).await;
    held_back(&fixture, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut fixture).await;
    fixture.kill_and_respawn().await;
    held_back(&fixture, "late", "FailedMount", &words).await;
    held_back(&fixture, "plain", "Failed", &no_directory).await;
    steady.is_undisturbed(&mut fixture).await;
    own.free().unwrap();
    disk.free().unwrap();
    for name in ["late", "plain"] {
        fixture.ready(name).await;
    }
    assert_eq!(
        fixture.exec("late", "main", "cat /facts/name").await,
        "late"
    );

    // ---- read-only: no pod comes and none goes
    disk.set_read_only(true).unwrap();
    apply(&fixture, "later");
    fixture.remove("late.yaml");
    let refused = "Read-only file system (os error 30)";
    let words = ["MountVolume.SetUp failed for volume \"facts\"", refused];
    held_back(&fixture, "later", "FailedMount", &words).await;
    fixture
        .logged(&["UnmountVolume.TearDown failed for volume", refused])
        .await;
    steady.is_undisturbed(&mut fixture).await;
    fixture.kill_and_respawn().await;
    held_back(&fixture, "later", "FailedMount", &words).await;
    steady.is_undisturbed(&mut fixture).await;
    disk.set_read_only(false).unwrap();
    fixture.ready("later").await;
    fixture.gone("late").await;

    for name in ["steady", "plain", "later"] {
        fixture.remove(&format!("{name}.yaml"));
    }
    for name in ["steady", "plain", "later"] {
        fixture.gone(name).await;
    }
    nothing_is_left(&fixture).await;
    fixture.stop().await;
}

/// Directories go with the housekeeping that follows the end of their pods.
async fn nothing_is_left(fixture: &Fixture) {
    let pods = fixture.agent.root_dir().join("pods");
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
    let mut fixture = Fixture::start("m-broken").await;
    let steady = Steady::start(&mut fixture).await;
    // the UID of a static pod is a hash of its manifest: it is the same the next time
    apply(&fixture, "unlucky");
    fixture.ready("unlucky").await;
    let uid = fixture.pod("unlucky").await["metadata"]["uid"].clone();
    fixture.remove("unlucky.yaml");
    fixture.gone("unlucky").await;
    nothing_but(&fixture, "steady").await;

    // its directory lies on a disk of its own, which breaks before anything of the pod is there
    fixture.agent.kill().unwrap();
    let dir = fixture
        .agent
        .root_dir()
        .join("pods")
        .join(uid.as_str().unwrap());
    fs::create_dir(&dir).unwrap();
    let image = fixture.containerd.base().join("disk.img");
    let Some(disk) = BrokenDisk::mount(&image, &dir).unwrap() else {
        eprintln!("skipped: no disk can be broken here");
        return;
    };
    apply(&fixture, "unlucky");
    apply(&fixture, "other");
    fixture.kill_and_respawn().await;
    fixture.ready("other").await;
    let words = [
        "MountVolume.SetUp failed for volume \"facts\"",
        "Input/output error (os error 5)",
    ];
    held_back(&fixture, "unlucky", "FailedMount", &words).await;
    steady.is_undisturbed(&mut fixture).await;
    // it comes and goes like any other
    fixture.remove("other.yaml");
    fixture.gone("other").await;

    disk.remove().unwrap();
    fixture.ready("unlucky").await;
    let seen = fixture.exec("unlucky", "main", "cat /facts/name").await;
    assert_eq!(seen, "unlucky");
    steady.is_undisturbed(&mut fixture).await;
    for name in ["steady", "unlucky"] {
        fixture.remove(&format!("{name}.yaml"));
        fixture.gone(name).await;
    }
    nothing_is_left(&fixture).await;
    fixture.stop().await;
}

/// Waits until no other pod has a directory.
async fn nothing_but(fixture: &Fixture, name: &str) {
    let uid = fixture.pod(name).await["metadata"]["uid"].clone();
    let pods = fixture.agent.root_dir().join("pods");
    eventually("one pod has a directory", SOON, async || {
        let all = fs::read_dir(&pods).unwrap();
        let mut names = all.map(|entry| entry.unwrap().file_name());
        let other = names.find(|name| name.to_str() != uid.as_str());
        other.map_or(Ok(()), |other| Err(format!("{other:?}")))
    })
    .await;
}
