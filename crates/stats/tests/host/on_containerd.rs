//! What is measured of a pod on a real containerd.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};
use windlass_cgroups::{HostTree, PodCgroups, Slices, SystemdSlices};
use windlass_cri::{CriClient, CriOptions, RuntimeService, RuntimeStats};
use windlass_metrics::Metrics;
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::pod_cgroup::CgroupValues;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{
    HostStats, HostStatsConfig, RunningPod, RunningPods, StatsSelection, StatsSource,
};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::environment::scaled;
use windlass_testbed::images;
use windlass_types::cri::{CgroupDriver, ContainerConfig, SandboxConfig};
use windlass_types::{ObservedPod, ObservedSandbox, Pod, PodUid, names};

use crate::fixture::{FixedPods, config, running_container};

const TIMEOUT: Duration = Duration::from_secs(90);
const LIMIT: i64 = 256 << 20;
/// Memory that a program may free or allocate between two reads, in bytes.
const READ_SLACK: u64 = 4 << 20;
/// Uses 50 MB of memory, 3 MB on the disk, a line of log, and a CPU.
const SCRIPT: &str = "head -c 50000000 /dev/zero > /dev/shm/x; head -c 3000000 /dev/zero > /y; \
    echo ready; while :; do :; done";

/// Collects until the usage is as expected.
async fn until(
    stats: &HostStats,
    wanted: StatsSelection,
    what: &str,
    expected: impl Fn(&PodUsage) -> bool,
) -> PodUsage {
    let begin = Instant::now();
    loop {
        let pods = stats.pods(wanted).await.expect("figures");
        let pod = pods.into_iter().next().expect("the pod");
        if expected(&pod) {
            return pod;
        }
        assert!(begin.elapsed() < scaled(TIMEOUT), "{what}: {pod:#?}");
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_busy_container_has_usage() {
    let containerd = PrivateContainerd::start("t-stats", |_| ())
        .await
        .expect("containerd");
    let options = CriOptions::new(Metrics::new().expect("metrics").runtime_calls);
    let client = CriClient::connect(&containerd.endpoint(), options).expect("endpoint");
    let client = Arc::new(client);

    let uid = PodUid::from("5e8f-stats");
    let root = containerd.cgroup_root();
    let tree = HostTree::open(PathBuf::from("/sys/fs/cgroup")).expect("cgroups");
    let layout = containerd.cgroup_layout();
    let kubepods = layout.kubepods();
    let slices: Option<Arc<dyn Slices>> = match layout.driver() {
        CgroupDriver::Systemd => Some(Arc::new(SystemdSlices::system())),
        CgroupDriver::Cgroupfs => None,
    };
    let cgroups = PodCgroups::new(layout, Arc::new(tree), slices);
    let values = CgroupValues {
        memory_limit: Some(LIMIT),
        ..CgroupValues::default()
    };
    let class = QosClass::Burstable;
    // calls of systemd block
    block_in_place(|| {
        cgroups.set_up(CgroupValues::default());
        cgroups.ensure(&uid, class, values).expect("a cgroup");
    });

    let pod = serde_json::json!({
        "metadata": {"name": "burn", "namespace": "default", "uid": uid.as_str()},
        "spec": {
            "containers": [{"name": "app"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    let paths = NodePaths {
        root_dir: containerd.base().join("kubelet"),
        pod_logs_dir: containerd.base().join("logs"),
    };
    let sandbox_config = SandboxConfig {
        name: "burn".into(),
        namespace: "default".into(),
        uid: uid.clone(),
        log_directory: paths.pod_log_dir(&pod).display().to_string(),
        cgroup_parent: cgroups.parent_of(class, &uid).expect("a parent"),
        labels: [(names::LABEL_POD_UID.to_owned(), uid.to_string())].into(),
        ..SandboxConfig::default()
    };
    std::fs::create_dir_all(paths.container_log_dir(&pod, "app")).expect("a directory");
    let sandbox = client.run_pod_sandbox(&sandbox_config, "").await;
    let sandbox = sandbox.expect("sandbox");
    let container = ContainerConfig {
        name: "app".into(),
        image: images::BUSYBOX.into(),
        command: ["sh", "-c", SCRIPT].map(str::to_owned).to_vec(),
        labels: [(names::LABEL_POD_UID.to_owned(), uid.to_string())].into(),
        log_path: "app/0.log".to_owned(),
        ..ContainerConfig::default()
    };
    let created = client.create_container(&sandbox, &container, &sandbox_config);
    let id = created.await.expect("container");
    client.start_container(&id).await.expect("started");

    let observed = ObservedPod {
        uid: uid.clone(),
        name: "burn".to_owned(),
        namespace: "default".to_owned(),
        sandboxes: vec![ObservedSandbox {
            id: sandbox.clone(),
            attempt: 0,
            ready: true,
            created_at: Default::default(),
            host_network: false,
            ips: Vec::new(),
        }],
        containers: vec![running_container(id.clone(), "app", &sandbox)],
        ..ObservedPod::default()
    };
    let running = RunningPod {
        observed: Arc::new(observed),
        pod: Some(Arc::new(pod)),
        present: true,
        started_at: None,
    };
    let pods: Arc<dyn RunningPods> = Arc::new(FixedPods::new(vec![running]));
    let runtime: Arc<dyn RuntimeStats> = Arc::<CriClient>::clone(&client);
    let stats = HostStats::new(HostStatsConfig {
        cgroup_root: root.clone(),
        paths,
        runtime: Arc::clone(&runtime),
        images: runtime,
        ..config(containerd.base(), pods)
    });

    let usage = until(
        &stats,
        StatsSelection::CPU_AND_MEMORY,
        "processor time",
        |pod| {
            let cgroup = pod.containers[0].cgroup.as_ref();
            let memory = cgroup.and_then(|it| it.memory.as_ref());
            let cpu = cgroup.and_then(|it| it.cpu.as_ref());
            // a tenth of a processor at least, whatever else this machine does
            cpu.is_some_and(|cpu| cpu.nano_cores > Some(100_000_000))
                && memory.is_some_and(|memory| memory.working_set > 50_000_000)
        },
    )
    .await;
    let app = usage.containers[0].cgroup.as_ref().expect("its cgroup");
    let cpu = app.cpu.as_ref().expect("processor time");
    assert!(cpu.nano_cores < Some(1_200_000_000), "one thread: {cpu:?}");
    assert!(cpu.total_ns > 100_000_000, "{cpu:?}");
    assert!(
        // with the systemd driver, the parent is the name of a slice and the end a scope
        app.path.contains(&sandbox_config.cgroup_parent) && app.path.contains(id.as_str()),
        "{}",
        app.path
    );
    let memory = app.memory.as_ref().expect("memory");
    assert!(
        memory.usage < 70_000_000 && memory.working_set <= memory.usage,
        "{memory:?}"
    );
    let whole = usage.cgroup.expect("the pod's cgroup");
    let whole_memory = whole.memory.expect("memory");
    assert_eq!(whole_memory.limit, u64::try_from(LIMIT).ok());
    // the two cgroups are read one after the other, while the program allocates
    assert!(
        whole_memory.usage + READ_SLACK >= memory.usage,
        "{whole_memory:?} {memory:?}"
    );
    assert!(usage.sandbox.is_none() && usage.network.is_none());

    let usage = until(&stats, StatsSelection::ALL, "the disk", |pod| {
        let app = &pod.containers[0];
        let rootfs = app.rootfs.as_ref().and_then(|fs| fs.used);
        rootfs > Some(3_000_000) && app.logs.is_some()
    })
    .await;
    let network = usage.network.expect("its network");
    assert_eq!(network.default.as_deref(), Some("eth0"), "{network:?}");
    let seen = usage.sandbox.expect("the sandbox");
    assert_eq!(seen.image, images::PAUSE);
    let sandbox_cgroup = seen.cgroup.expect("its cgroup");
    assert_eq!(sandbox_cgroup.processes.map(|it| it.processes), Some(1));
    let app = &usage.containers[0];
    let processes = app.cgroup.as_ref().and_then(|it| it.processes.clone());
    let processes = processes.expect("processes");
    assert!(
        processes.processes >= 1 && processes.descriptors >= Some(3),
        "{processes:?}"
    );
    let logs = app.logs.as_ref().expect("logs");
    assert!(
        logs.used > Some(0) && logs.inodes_used == Some(1),
        "{logs:?}"
    );
    let told = stats.logs().await;
    let told: Vec<_> = told.iter().map(|it| (&*it.container, it.bytes)).collect();
    assert_eq!(told, [("app", logs.used.unwrap_or(0))]);
    let rootfs = app.rootfs.as_ref().and_then(|fs| fs.used).unwrap_or(0);
    let ephemeral = usage.ephemeral.expect("local storage");
    assert_eq!(usage.volumes.len(), 1);
    let expected = rootfs + logs.used.unwrap_or(0) + 1000;
    assert_eq!(ephemeral.used, Some(expected), "layer, logs and emptyDir");

    let node = stats.node(StatsSelection::ALL).await.expect("figures");
    check_node(&node, &kubepods);

    client.stop_pod_sandbox(&sandbox).await.expect("stopped");
    let gone = until(&stats, StatsSelection::ALL, "the end", |pod| {
        pod.containers[0].cgroup.is_none()
    })
    .await;
    assert_eq!(gone.network, None);
    block_in_place(|| cgroups.remove(&uid)).expect("removed");
    containerd.stop().await.expect("stopped");
}

#[track_caller]
fn check_node(node: &NodeUsage, kubepods: &str) {
    let memory = node.cgroup.memory.as_ref().expect("memory");
    assert!(Some(memory.working_set) < memory.limit, "{memory:?}");
    assert!(node.cgroup.cpu.as_ref().is_some_and(|cpu| cpu.total_ns > 0));
    let network = node.network.as_ref().expect("the node's network");
    assert!(network.interfaces.iter().any(|it| it.received.bytes > 0));
    let fs = |fs: &Option<windlass_stats::usage::FsUsage>| {
        let fs = fs.clone().expect("a file system");
        assert!(
            fs.capacity > Some(0) && fs.available < fs.capacity,
            "{fs:?}"
        );
        fs.used
    };
    assert!(fs(&node.fs) > Some(0));
    assert!(fs(&node.image_fs) > Some(1_000_000), "{:?}", node.image_fs);
    fs(&node.container_fs);
    assert!(node.max_pid > node.running_processes && node.running_processes > Some(1));
    let pods = node.system.iter().find(|it| it.name == "pods");
    let pods = pods.expect("the cgroup of all pods");
    assert_eq!(pods.cgroup.path, kubepods);
    assert!(pods.started_at > node.started_at);
    assert_eq!(node.classes.len(), 2);
}
