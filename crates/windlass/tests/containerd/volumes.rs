//! Volumes that the node creates or mounts: tmpfs with limits, fsGroup, huge pages, NFS.

use std::fs;
use std::path::Path;

use crate::manifest::fill;
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const NR_HUGEPAGES: &str = "/proc/sys/vm/nr_hugepages";

const MADE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: made}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, fsGroup: 2000, fsGroupChangePolicy: OnRootMismatch}
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      resources: {limits: {memory: 32Mi, LARGE}}
      volumeMounts:
        - {name: memory, mountPath: /memory}
        - {name: small, mountPath: /small}
        - {name: disk, mountPath: /disk}
        - {name: large, mountPath: /large}
  volumes:
    - {name: memory, emptyDir: {medium: Memory}}
    - {name: small, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
    - {name: disk, emptyDir: {}}
    - {name: large, emptyDir: {medium: "MEDIUM"}}
"#;

/// Huge pages of 2 MiB, reserved until dropped.
struct HugePages {
    before: String,
}

impl HugePages {
    /// `None` if the host has none.
    fn reserve() -> Option<Self> {
        let before = fs::read_to_string(NR_HUGEPAGES).ok()?;
        let pages = Self { before };
        fs::write(NR_HUGEPAGES, "4").ok()?;
        let now = fs::read_to_string(NR_HUGEPAGES).ok()?;
        let has_mebibytes = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
        (has_mebibytes && now.trim() == "4").then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(NR_HUGEPAGES, self.before.trim());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_tmpfs_size_and_fs_group_survive_kill() {
    if skipped() {
        return;
    }
    let pages = HugePages::reserve();
    let (large, medium) = match &pages {
        Some(_) => ("hugepages-2Mi: 4Mi", "HugePages"),
        None => ("cpu: 1", "Memory"),
    };
    let mut env = TestEnv::start("m-volumes").await;
    let manifest = MADE.replace("LARGE", large).replace("MEDIUM", medium);
    env.apply("made.yaml", &fill(&manifest));
    env.ready("made").await;

    let sizes = "df -k /memory /small | awk 'NR > 1 {print $2}'";
    assert_eq!(env.exec("made", "main", sizes).await, "32768\n1024\n");
    let fill_up = "dd if=/dev/zero of=/small/file bs=1M count=2 2>&1 | grep -o 'No space left'";
    assert_eq!(env.exec("made", "main", fill_up).await, "No space left\n");
    let owners = "for v in memory small disk; do echo kept >/$v/kept; stat -c '%a %g' /$v; \
                  stat -c '%u %g' /$v/kept; done";
    // tmpfs is sticky
    let of = |mode: u32| format!("{mode} 2000\n1000 2000\n");
    let expected = [3777, 3777, 2777].map(of).concat();
    env.exec("made", "main", "rm /small/file").await;
    assert_eq!(env.exec("made", "main", owners).await, expected);
    if pages.is_some() {
        let seen = env
            .exec("made", "main", "grep ' /large ' /proc/mounts")
            .await;
        assert!(
            seen.contains(" hugetlbfs ") && seen.contains("pagesize=2M"),
            "{seen}"
        );
    } else {
        eprintln!("no huge pages here: not looked at");
    }

    let mounts = mounts_beneath(&env.agent.root_dir());
    assert_eq!(mounts.len(), 3, "{mounts:?}");
    env.kill_and_respawn().await;
    env.ready("made").await;
    assert_eq!(mounts_beneath(&env.agent.root_dir()), mounts);
    let kept = "cat /memory/kept /small/kept /disk/kept";
    assert_eq!(env.exec("made", "main", kept).await, "kept\n".repeat(3));

    env.remove("made.yaml");
    env.gone("made").await;
    assert!(mounts_beneath(&env.agent.root_dir()).is_empty());
    env.stop().await;
}

const SHARES: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      volumeMounts: [{name: share, mountPath: /share}]
  volumes: [{name: share, nfs: {server: NAME, path: /export}}]
"#;

/// A fake NFS mount: binds a directory of the test once the server is up.
const MOUNT: &str = r#"#!/bin/sh
[ "$1 $2" = "-t nfs" ] || exec /bin/mount "$@"
for last; do :; done
server=${3%%:*}
[ -d "${0%/*}/$server" ] || { echo "mount.nfs: no answer of $server" >&2; exit 32; }
exec /bin/mount --bind "${0%/*}/$server" "$last"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_nfs_volume_is_mounted_and_data_persists() {
    if skipped() {
        return;
    }
    let mut env = TestEnv::with_program("m-nfs", "mount", MOUNT).await;
    let programs = env.containerd.base().join("programs");
    let at = |name: &str| programs.join(name);
    fs::create_dir(at("near")).unwrap();
    fs::write(at("near").join("file"), "of the server\n").unwrap();

    let apply = |env: &TestEnv, name: &str| {
        env.apply(
            &format!("{name}.yaml"),
            &fill(&SHARES.replace("NAME", name)),
        );
    };
    apply(&env, "far");
    apply(&env, "near");
    env.ready("near").await;
    let read = "cat /share/file; echo of the pod >/share/new";
    assert_eq!(env.exec("near", "main", read).await, "of the server\n");
    eventually("the pod reports why it waits", SOON, async || {
        let blocker = env.entry("far").await.blocker;
        let text = format!("{blocker:?}");
        let words = ["share", "mount failed: exit status 32", "no answer of far"];
        let told = words.iter().all(|words| text.contains(words));
        told.then_some(()).ok_or(text)
    })
    .await;

    // the server is reachable: the pod starts without intervention
    fs::create_dir(at("far")).unwrap();
    env.ready("far").await;
    for name in ["near", "far"] {
        env.remove(&format!("{name}.yaml"));
        env.gone(name).await;
    }
    assert!(mounts_beneath(&env.agent.root_dir()).is_empty());
    let written = fs::read_to_string(at("near").join("new")).unwrap();
    assert_eq!(written, "of the pod\n");
    assert!(at("near").join("file").exists());
    env.stop().await;
}

/// Mount points below a directory.
fn mounts_beneath(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4));
    let dir = dir.canonicalize().unwrap();
    let below = places
        .filter(|place| Path::new(place).starts_with(&dir) && *place != dir.to_string_lossy());
    below.map(str::to_owned).collect()
}
