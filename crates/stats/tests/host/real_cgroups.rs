//! The kernel's own cgroups, in a subtree of our own. Run as root.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use windlass_cgroups::{CgroupTree, HostTree};
use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_stats::{HostStats, StatsSelection, StatsSource, resource_metrics};
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::fixture::{FixedPods, config, running_pod};

const PODS: usize = 250;
/// Maximum CPU time of a collection. The limit is 50 ms for a release build; this is a debug build.
const BOUND: Duration = Duration::from_millis(200);
/// Maximum memory of a scrape of `/metrics/resource`, including allocator overhead. The limit of
/// the bench is 1 MiB; 936 to 1024 KiB were observed here.
const MORE_KIB: u64 = 2048;

/// Cgroups that are removed on drop.
struct Subtree {
    tree: HostTree,
    root: String,
}

impl Subtree {
    fn new(root: &str) -> Self {
        let tree = HostTree::open(PathBuf::from("/sys/fs/cgroup")).expect("cgroups");
        let subtree = Self {
            tree,
            root: root.to_owned(),
        };
        subtree.remove(root);
        subtree.make(root);
        subtree
    }

    fn make(&self, path: &str) {
        for hierarchy in self.tree.hierarchies() {
            self.tree.make(&hierarchy, path).expect("a cgroup");
        }
    }

    fn remove(&self, path: &str) {
        for hierarchy in self.tree.hierarchies() {
            self.remove_in(&hierarchy, path);
        }
    }

    fn remove_in(&self, hierarchy: &str, path: &str) {
        let children = self.tree.children(hierarchy, path).unwrap_or_default();
        for child in children {
            self.remove_in(hierarchy, &format!("{path}/{child}"));
        }
        let _ = self.tree.remove(hierarchy, path);
    }
}

impl Drop for Subtree {
    fn drop(&mut self) {
        self.remove(&self.root);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collection_of_250_pods_is_fast_and_closes_files() {
    let root = "/windlass-t-looks";
    let subtree = Subtree::new(root);
    let layout = CgroupLayout::new(CgroupDriver::Cgroupfs, root);
    subtree.make(&layout.kubepods());
    subtree.make(&layout.qos(QosClass::Burstable));
    let mut pods = Vec::new();
    for number in 0..PODS {
        let uid = PodUid::from(format!("u{number:04}"));
        let pod = running_pod(&uid, &format!("{number:04}"), 2);
        let path = layout.pod(QosClass::Burstable, &uid);
        subtree.make(&path);
        subtree.make(&format!("{path}/{}", pod.observed.sandboxes[0].id));
        for container in &pod.observed.containers {
            subtree.make(&format!("{path}/{}", container.id));
        }
        pods.push(pod);
    }
    let fixed = Arc::new(FixedPods::new(pods));
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path(), Arc::<FixedPods>::clone(&fixed));
    config.cgroup_root = root.to_owned();
    let stats = HostStats::new(config);

    let (before, rss) = (open_files(), status_kib("VmRSS:"));
    assert_eq!(
        stats
            .pods(StatsSelection::CPU_AND_MEMORY)
            .await
            .expect("figures")
            .len(),
        PODS
    );
    let kept = open_files().saturating_sub(before);
    // other processes and tests only add to it
    let mut spent = Duration::MAX;
    for _ in 0..10 {
        let before = processor_time();
        let pods = stats
            .pods(StatsSelection::CPU_AND_MEMORY)
            .await
            .expect("figures");
        spent = spent.min(processor_time() - before);
        let complete = pods.iter().all(|pod| {
            let whole =
                |it: &windlass_stats::usage::CgroupUsage| it.cpu.is_some() && it.memory.is_some();
            pod.cgroup.as_ref().is_some_and(whole)
                && pod.containers.len() == 2
                && pod
                    .containers
                    .iter()
                    .all(|it| it.cgroup.as_ref().is_some_and(whole))
        });
        assert!(complete);
    }
    let more = status_kib("VmRSS:").saturating_sub(rss);
    let without_disk = StatsSelection {
        disk: false,
        ..StatsSelection::ALL
    };
    let begin = Instant::now();
    assert_eq!(stats.pods(without_disk).await.expect("figures").len(), PODS);
    println!(
        "{PODS} pods: CPU and memory {spent:?} of the processor, all but the disk {:?}, \
         {kept} descriptors, {more} KiB more resident",
        begin.elapsed()
    );
    scrapes(&stats).await;
    // the runtime never answers: its figures are absent, all others are there
    let pods = stats.pods(StatsSelection::ALL).await.expect("figures");
    assert!(pods.iter().all(|pod| pod.containers[0].rootfs.is_none()));
    assert!(
        pods.iter()
            .all(|pod| pod.volumes.len() == 1 && pod.ephemeral.is_some())
    );
    assert!(spent < BOUND, "{spent:?}");
    assert!((1..=2600).contains(&kept), "{kept}");

    fixed.set(Vec::new());
    assert_eq!(
        stats
            .pods(StatsSelection::CPU_AND_MEMORY)
            .await
            .expect("figures"),
        []
    );
    assert!(open_files() <= before + 10, "files of pods that are gone");
}

/// `/metrics/resource` as the node's API makes it, without the connection.
async fn scrapes(stats: &HostStats) {
    let (mut slowest, mut bytes) = (Duration::ZERO, 0);
    reset_peak();
    let before = status_kib("VmRSS:");
    for _ in 0..10 {
        let begin = Instant::now();
        let usage = stats.resource().await.expect("figures");
        bytes = resource_metrics(Some(usage))
            .map(|family| family.len())
            .sum();
        slowest = slowest.max(begin.elapsed());
    }
    let more = status_kib("VmHWM:").saturating_sub(before);
    println!("/metrics/resource: {bytes} bytes, slowest {slowest:?}, {more} KiB more at its peak");
    assert!(bytes > PODS * 2 * 200, "{bytes}");
    assert!(more < MORE_KIB, "{more} KiB");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a time")
}

/// What `VmHWM` counts from now on.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
}

fn status_kib(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a number")
}
