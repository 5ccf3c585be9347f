//! A node with cgroup v2 and systemd, as files: what this machine's kernel cannot show.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use windlass_cri::{CriCode, CriError, CriResult, ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_stats::{
    HostStats, HostStatsConfig, KernelRoots, StatsSelection, StatsSource, SystemCgroups,
};
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, OomKills, PodUid, SandboxId,
    Timestamp,
};

use crate::fixture::{FixedPods, config, running_pod};

const SLICE: &str = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice";
const NET_DEV: &str = "Inter-| Receive | Transmit\n face |bytes | bytes\n\
    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  net1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n  \
    eth0: 7 1 0 0 0 0 0 0 8 1 0 0 0 0 0 0\n";
const ROUTE: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
    net1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
const PRESSURE: &str = "some avg10=2.00 avg60=0.00 avg300=0.00 total=7\n";

fn write(path: &Path, content: &str) {
    let dir = path.parent().expect("a directory");
    fs::create_dir_all(dir).expect("a directory");
    fs::write(path, content).expect("a file");
}

/// A cgroup with so many milliseconds of processor time and kilobytes of memory, a third of them
/// inactive files.
fn cgroup(dir: &Path, millis: u64, kilobytes: u64) {
    let cpu = format!("usage_usec {}\nuser_usec 1\nsystem_usec 1\n", millis * 1000);
    write(&dir.join("cpu.stat"), &cpu);
    write(
        &dir.join("memory.current"),
        &format!("{}\n", kilobytes * 1000),
    );
    let stat = format!("anon 1\nfile 2\ninactive_file {}\n", kilobytes * 1000 / 3);
    write(&dir.join("memory.stat"), &stat);
    write(&dir.join("memory.max"), "max\n");
    write(&dir.join("cgroup.procs"), "");
}

/// The node and the configuration to measure it with.
fn node() -> (TempDir, HostStatsConfig) {
    let dir = TempDir::new().expect("a directory");
    let mount = dir.path().join("cgroup");
    write(&mount.join("cgroup.controllers"), "cpu memory pids io\n");
    write(&mount.join("cpu.stat"), "usage_usec 9000000\n");
    write(
        &mount.join("memory.stat"),
        "anon 1000\nfile 2000\ninactive_file 500\n",
    );
    cgroup(&mount.join("system.slice/windlass.service"), 50, 30);
    cgroup(&mount.join("system.slice/containerd.service"), 60, 60);
    cgroup(&mount.join("system.slice"), 200, 300);
    cgroup(&mount.join("kubepods.slice"), 800, 900);
    cgroup(
        &mount.join("kubepods.slice/kubepods-burstable.slice"),
        700,
        900,
    );
    let pod = mount.join(SLICE);
    cgroup(&pod, 600, 900);
    cgroup(&pod.join("cri-containerd-5a4db0c5-1.scope"), 1, 3);
    cgroup(&pod.join("cri-containerd-c047a14e-0-1.scope"), 500, 600);
    // of an unknown runtime
    cgroup(&pod.join("runtime:c047a14e-1-1:x"), 90, 60);
    write(
        &pod.join("cri-containerd-5a4db0c5-1.scope/cgroup.procs"),
        "0\n77\n78\n",
    );

    let proc = dir.path().join("proc");
    write(&proc.join("78/net/dev"), NET_DEV);
    write(&proc.join("78/net/route"), ROUTE);
    write(&proc.join("net/dev"), NET_DEV);
    write(
        &proc.join("self/cgroup"),
        "0::/system.slice/windlass.service\n",
    );
    write(&proc.join("stat"), "cpu 1 1 1 1\nbtime 1600000000\n");
    write(
        &proc.join("meminfo"),
        "MemTotal: 8000 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
    );
    write(&proc.join("loadavg"), "0.1 0.1 0.1 1/210 99\n");
    write(&proc.join("sys/kernel/pid_max"), "4194304\n");
    write(&proc.join("sys/kernel/threads-max"), "60000\n");
    write(&proc.join("pressure/cpu"), PRESSURE);

    let pods = vec![running_pod(&PodUid::from("u-1"), "1", 2)];
    let config = HostStatsConfig {
        roots: KernelRoots {
            cgroups: mount,
            proc,
            huge_pages: dir.path().join("none"),
        },
        system: SystemCgroups {
            kubelet: String::new(),
            runtime: "/system.slice/containerd.service".to_owned(),
            misc: "system.slice".to_owned(),
        },
        ..config(dir.path(), Arc::new(FixedPods::new(pods)))
    };
    (dir, config)
}

#[tokio::test]
async fn systemd_driver_pods_are_found_for_any_container_name() {
    let (_dir, config) = node();
    let stats = HostStats::new(config);
    let wanted = StatsSelection {
        disk: false,
        ..StatsSelection::ALL
    };
    for _ in 0..2 {
        let pods = stats.pods(wanted).await.expect("figures");
        let pod = &pods[0];
        let cgroup = pod.cgroup.as_ref().expect("its cgroup");
        assert_eq!(cgroup.path, format!("/{SLICE}"));
        let memory = |cgroup: &Option<windlass_stats::usage::CgroupUsage>| {
            let memory = cgroup.as_ref().and_then(|it| it.memory.as_ref());
            memory.map(|memory| (memory.usage, memory.working_set))
        };
        assert_eq!(memory(&pod.cgroup), Some((900_000, 600_000)));
        let of_containers: Vec<_> = pod.containers.iter().map(|it| memory(&it.cgroup)).collect();
        assert_eq!(
            of_containers,
            [Some((600_000, 400_000)), Some((60_000, 40_000))]
        );
        let sandbox = pod.sandbox.as_ref().expect("its sandbox");
        assert_eq!(memory(&sandbox.cgroup), Some((3000, 2000)));
        // the first process has ended meanwhile
        let network = pod.network.as_ref().expect("its network");
        let names: Vec<&str> = network
            .interfaces
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(
            (names, network.default.as_deref()),
            (vec!["eth0", "net1"], Some("net1"))
        );
    }
}

#[tokio::test]
async fn node_stats_have_system_cgroups() {
    let (_dir, config) = node();
    let agent_started = config.started_at;
    let stats = HostStats::new(config);
    let wanted = StatsSelection {
        disk: false,
        ..StatsSelection::ALL
    };
    let node = stats.node(wanted).await.expect("figures");
    assert_eq!(node.started_at.as_second(), 1_600_000_000);
    assert_eq!(
        (node.max_pid, node.running_processes),
        (Some(60_000), Some(210))
    );
    let memory = node.cgroup.memory.as_ref().expect("memory");
    assert_eq!((memory.usage, memory.working_set), (3000, 2500));
    assert_eq!((memory.limit, memory.swap), (Some(8_192_000), 6144));
    assert_eq!(memory.swap_limit, Some(10_240));
    let cpu = node.cgroup.cpu.as_ref().expect("processor time");
    assert_eq!(cpu.pressure.map(|it| it.some.total_ns), Some(7000));
    let network = node.network.expect("a network");
    assert_eq!(network.default.as_deref(), Some("eth0"));
    let system: Vec<(&str, &str)> = node
        .system
        .iter()
        .map(|it| (it.name, it.cgroup.path.as_str()))
        .collect();
    let expected = [
        ("kubelet", "/system.slice/windlass.service"),
        ("runtime", "/system.slice/containerd.service"),
        ("misc", "/system.slice"),
        ("pods", "/kubepods.slice"),
    ];
    assert_eq!(system, expected);
    assert_eq!(node.system[0].started_at, agent_started);
    let classes: Vec<&str> = node.classes.iter().map(|it| it.name).collect();
    assert_eq!(classes, ["burstable"]);
    let lean = stats
        .node(StatsSelection::CPU_AND_MEMORY)
        .await
        .expect("figures");
    assert_eq!((lean.classes.len(), lean.network, lean.fs), (0, None, None));
    assert_eq!(lean.system.len(), 4);
}

#[tokio::test]
async fn host_without_cgroups_has_stats_from_proc() {
    let (dir, mut config) = node();
    config.roots.cgroups = dir.path().join("none");
    let stats = HostStats::new(config);
    let node = stats
        .node(StatsSelection::CPU_AND_MEMORY)
        .await
        .expect("figures");
    let cpu = node.cgroup.cpu.expect("processor time");
    assert_eq!(cpu.total_ns, 30_000_000);
    assert!(node.cgroup.memory.is_some() && node.system.is_empty());
    let pods = stats
        .pods(StatsSelection::CPU_AND_MEMORY)
        .await
        .expect("figures");
    assert_eq!((pods.len(), pods[0].containers.len()), (1, 2));
    assert!(pods[0].cgroup.is_none() && pods[0].containers[0].cgroup.is_none());
}

#[tokio::test]
async fn node_without_stats_is_upstream_error() {
    let (dir, mut config) = node();
    config.roots.cgroups = dir.path().join("none");
    config.roots.proc = dir.path().join("none");
    let stats = HostStats::new(config);
    let node = stats.node(StatsSelection::CPU_AND_MEMORY).await;
    let error = node.expect_err("no figure").to_string();
    assert_eq!(
        error,
        "failed to get root cgroup stats: cannot read CPU time or memory"
    );
}

#[tokio::test(start_paused = true)]
async fn hung_runtime_affects_only_its_stats() {
    let (_dir, config) = node();
    let stats = HostStats::new(config);
    let begin = tokio::time::Instant::now();
    let measured = tokio::try_join!(
        stats.node(StatsSelection::ALL),
        stats.pods(StatsSelection::ALL)
    );
    let (node, pods) = measured.expect("figures");
    assert!(
        begin.elapsed() <= Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    assert!(node.image_fs.is_none() && node.container_fs.is_none());
    assert!(pods[0].containers.iter().all(|it| it.rootfs.is_none()));
    assert_eq!(pods[0].volumes.len(), 1);
}

/// A runtime that returns sandbox info while `reachable`, and counts the requests.
#[derive(Debug, Default)]
struct FakeSandboxInfo {
    reachable: AtomicBool,
    requests: AtomicUsize,
}

#[async_trait]
impl RuntimeStats for FakeSandboxInfo {
    async fn image_fs_info(&self) -> CriResult<ImageFsInfo> {
        Ok(ImageFsInfo::default())
    }

    async fn writable_layers(&self) -> CriResult<Vec<(ContainerId, RuntimeFs)>> {
        Ok(Vec::new())
    }

    async fn sandbox_info(&self, id: &SandboxId) -> CriResult<String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.reachable.load(Ordering::Relaxed) {
            true => Ok(format!(r#"{{"pid": 1, "image": "pause of {id}"}}"#)),
            false => Err(CriError::new("podsandbox_status", CriCode::Other, "no")),
        }
    }
}

#[tokio::test]
async fn sandbox_image_is_requested_until_known() {
    let (_dir, mut config) = node();
    let runtime = Arc::new(FakeSandboxInfo::default());
    config.runtime = runtime.clone();
    let stats = HostStats::new(config);
    let wanted = StatsSelection {
        network: true,
        ..StatsSelection::CPU_AND_MEMORY
    };
    let collect = async || {
        let pods = stats.pods(wanted).await.expect("figures");
        let image = pods[0].sandbox.as_ref().map(|it| it.image.clone());
        (
            image.expect("a sandbox"),
            runtime.requests.load(Ordering::Relaxed),
        )
    };
    assert_eq!(collect().await, (String::new(), 1));
    runtime.reachable.store(true, Ordering::Relaxed);
    let image = "pause of 5a4db0c5-1".to_owned();
    assert_eq!(collect().await, (image.clone(), 2));
    assert_eq!(collect().await, (image, 2));
    // not requested without its selection
    stats
        .pods(StatsSelection::CPU_AND_MEMORY)
        .await
        .expect("figures");
    assert_eq!(runtime.requests.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn oom_kills_of_exited_containers_are_collected_for_cadvisor() {
    let (dir, config) = node();
    let mut pod = running_pod(&PodUid::from("u-1"), "1", 2);
    let mut observed = ObservedPod::clone(&pod.observed);
    let kills = OomKills {
        cgroup: format!("/{SLICE}/cri-containerd-c047a14e-0-0.scope"),
        count: 2,
        last: Timestamp::UNIX_EPOCH,
    };
    observed.containers.push(ObservedContainer {
        id: "c047a14e-0-0".into(),
        name: "c0".to_owned(),
        state: ContainerState::Exited,
        oom_kills: Some(kills.clone()),
        ..ObservedContainer::default()
    });
    // its cgroup has the count
    observed.containers[0].oom_kills = Some(kills.clone());
    let running = dir.path().join("cgroup").join(SLICE);
    let running = running.join("cri-containerd-c047a14e-0-1.scope");
    write(&running.join("memory.events"), "max 9\noom_kill 5\n");
    pod.observed = Arc::new(observed);
    let stats = HostStats::new(HostStatsConfig {
        pods: Arc::new(FixedPods::new(vec![pod])),
        ..config
    });
    let few = stats.pods(StatsSelection::CPU_AND_MEMORY).await;
    assert!(few.expect("figures")[0].oom_killed.is_empty());
    let wanted = StatsSelection {
        disk: false,
        ..StatsSelection::ALL
    };
    let pods = stats.pods(wanted).await.expect("figures");
    let ended: Vec<_> = pods[0]
        .oom_killed
        .iter()
        .map(|it| (&*it.name, &it.kills))
        .collect();
    assert_eq!(ended, [("c0", &kills)]);
    let cgroup = pods[0].containers[0].cgroup.as_ref();
    let memory = cgroup.and_then(|it| it.memory.as_ref()).expect("memory");
    assert_eq!(memory.oom_kills, Some(5));
}
