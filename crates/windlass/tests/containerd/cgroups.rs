//! Pod cgroups: limits and lifetime.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use windlass_cgroups::{CgroupTree, HostTree};
use windlass_pod_inputs::resources::QosClass;
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::manifest::{fill, shell};
use crate::test_env::{SOON, TestEnv, eventually, skipped};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Interval of the check for cgroups of unknown pods.
const GARBAGE: Duration = Duration::from_secs(100);

const LIMITED: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: limited}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: IMAGE
      command: [sh, -c, "HOLD"]
      resources: {requests: {cpu: 250m, memory: 32Mi}, limits: {cpu: 500m, memory: 64Mi}}
"#;

const BY_THE_RUNTIME: &str = "cgroupsPerQOS: false\nenforceNodeAllocatable: [none]";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_pod_cgroup_is_created_and_removed() {
    if skipped() {
        return;
    }
    // runc with the systemd driver rejects containers without a slice, so this half is for cgroupfs
    let mut env = TestEnv::configured("m-cgroups", BY_THE_RUNTIME).await;
    let has_old = env.containerd.cgroup_layout().driver() == CgroupDriver::Cgroupfs;
    let old = match has_old {
        true => {
            env.apply("old.yaml", &shell("old", "HOLD"));
            Some(env.ready("old").await)
        }
        false => None,
    };
    let config = env.agent.root_dir().with_file_name("config.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace(BY_THE_RUNTIME, "")).unwrap();
    env.kill_and_respawn().await;

    env.apply("limited.yaml", &fill(LIMITED));
    env.apply("plain.yaml", &shell("plain", "HOLD"));
    env.ready("limited").await;
    env.ready("plain").await;
    let layout = env.containerd.cgroup_layout();
    let kubepods = layout.kubepods();
    let limited = layout.pod(QosClass::Burstable, &uid(&env, "limited").await);
    let plain = layout.pod(QosClass::BestEffort, &uid(&env, "plain").await);
    for (pod, cgroup) in [("limited", &limited), ("plain", &plain)] {
        let process = env.process(pod, "main").await;
        let lines = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
        let inside = lines.lines().filter(|line| line.contains(cgroup.as_str()));
        assert!(inside.count() > 0, "{pod} is not in {cgroup}: {lines}");
    }
    expect(&limited, "cpu", ["cpu.shares", "cpu.weight"], ["256", "10"]);
    expect(
        &limited,
        "cpu",
        ["cpu.cfs_quota_us", "cpu.max"],
        ["50000", "50000 100000"],
    );
    let bytes = "67108864";
    expect(
        &limited,
        "memory",
        ["memory.limit_in_bytes", "memory.max"],
        [bytes, bytes],
    );
    expect(&plain, "cpu", ["cpu.shares", "cpu.weight"], ["2", "1"]);
    let class = layout.qos(QosClass::Burstable);
    eventually("the class weighs what its pods do", SOON, async || {
        let weight = value(&class, "cpu", ["cpu.shares", "cpu.weight"]);
        let right = weight == if unified() { "10" } else { "256" };
        right.then_some(()).ok_or(weight)
    })
    .await;
    let node = value(&kubepods, "memory", ["memory.limit_in_bytes", "memory.max"]);
    assert!(
        node.parse::<u64>().is_ok_and(|bytes| bytes < 1 << 50),
        "{node}"
    );

    // an agent restart keeps pods and removes unknown cgroups
    let unknown = layout.pod(QosClass::BestEffort, &PodUid::from("nobodys"));
    let mut stray = stray_process(&unknown);
    let before = env.running("limited").await[0].id.clone();
    env.kill_and_respawn().await;
    eventually(
        "the cgroup of an unknown pod is removed",
        GARBAGE,
        async || {
            let left = places(&unknown);
            left.is_empty().then_some(()).ok_or(format!("{left:?}"))
        },
    )
    .await;
    assert!(!stray.wait().unwrap().success(), "killed");
    assert_eq!(env.running("limited").await[0].id, before);
    if let Some(old) = old {
        let still = env.ready("old").await;
        assert_eq!(still.containers[0].id, old.containers[0].id);
        assert_eq!(still.restarts(), 0);
    }

    env.remove("limited.yaml");
    env.gone("limited").await;
    assert_eq!(places(&limited), Vec::<PathBuf>::new());
    assert!(!places(&plain).is_empty());
    env.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_node_allocatable_limits_pods_and_daemons() {
    if skipped() {
        return;
    }
    // the same path under both drivers
    let daemons = format!("/windlass_daemons{}.slice", std::process::id());
    let tree = HostTree::open(PathBuf::from(CGROUPS)).unwrap();
    let controllers = ["cpu", "memory", "pids"].into_iter();
    let hierarchies: BTreeSet<String> =
        { controllers.filter_map(|controller| tree.hierarchy_of(controller)) }.collect();
    for hierarchy in &hierarchies {
        tree.make(hierarchy, &daemons).unwrap();
    }
    let config = format!(
        "enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: {daemons}\n\
         kubeReserved: {{cpu: 100m, memory: 100Mi, pid: \"500\"}}"
    );
    let mut env = TestEnv::configured("m-reserved", &config).await;
    env.apply("plain.yaml", &shell("plain", "HOLD"));
    env.ready("plain").await;
    env.logged(&["NodeAllocatableEnforced"]).await;
    let kubepods = env.containerd.cgroup_layout().kubepods();
    let limit = |cgroup: &str| value(cgroup, "memory", ["memory.limit_in_bytes", "memory.max"]);
    let shares = ["cpu.shares", "cpu.weight"];
    eventually("the daemons are limited", SOON, async || {
        let found = limit(&daemons);
        (found == "104857600").then_some(()).ok_or(found)
    })
    .await;
    expect(&daemons, "cpu", shares, ["102", "4"]);
    expect(&daemons, "pids", ["pids.max"; 2], ["500"; 2]);
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total = memory.split_whitespace().nth(1).unwrap();
    let total: u64 = total.parse().unwrap();
    let allocatable = (total << 10) - (100 << 20);
    assert_eq!(limit(&kubepods), allocatable.to_string());
    let processes = ["pid_max", "threads-max"].map(|name| {
        let limit = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        limit.trim().parse::<u64>().unwrap()
    });
    let allocatable = (processes[0].min(processes[1]) - 500).to_string();
    let allocatable = [allocatable.as_str(); 2];
    expect(&kubepods, "pids", ["pids.max"; 2], allocatable);
    env.stop().await;
    for hierarchy in &hierarchies {
        tree.remove(hierarchy, &daemons).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_containerd_memory_is_protected_and_not_swapped() {
    if skipped() {
        return;
    }
    let config = "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n\
                  memorySwap: {swapBehavior: LimitedSwap}";
    let mut env = TestEnv::configured("m-memory", config).await;
    env.apply("limited.yaml", &fill(LIMITED));
    env.ready("limited").await;
    let layout = env.containerd.cgroup_layout();
    let pod = layout.pod(QosClass::Burstable, &uid(&env, "limited").await);
    let process = env.process("limited", "main").await;
    let lines = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap();
    let own = lines.lines().find_map(|line| {
        let (_, rest) = line.split_once(if unified() { "0::" } else { ":memory:" })?;
        Some(rest.to_owned())
    });
    let own = own.expect("in a cgroup of memory");
    let has = |cgroup: &str, controller: &str, files| {
        !value(cgroup, controller, files).contains("No such file")
    };
    // a static pod is critical
    let swap = ["memory.memsw.limit_in_bytes", "memory.swap.max"];
    if has(&own, "memory", swap) {
        expect(&own, "memory", swap, ["67108864", "0"]);
    }
    let huge = ["hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"];
    // containerd gives containers no limit unless `disable_hugetlb_controller` is false
    if has(&pod, "hugetlb", huge) {
        expect(&pod, "hugetlb", huge, ["0"; 2]);
    }
    if unified() {
        let check = |cgroup: &str, file, expected: &str| {
            assert_eq!(
                value(cgroup, "memory", [file; 2]),
                expected,
                "{file} of {cgroup}"
            );
        };
        check(&own, "memory.low", "33554432");
        check(&own, "memory.high", "63750144");
        check(&own, "memory.oom.group", "1");
        check(&pod, "memory.low", "33554432");
        eventually("the classes are protected", SOON, async || {
            let low = value(
                &layout.qos(QosClass::Burstable),
                "memory",
                ["memory.low"; 2],
            );
            let min = value(&layout.kubepods(), "memory", ["memory.min"; 2]);
            let right = low == "33554432" && min == low;
            right.then_some(()).ok_or(format!("{low} {min}"))
        })
        .await;
    }
    env.stop().await;
}

async fn uid(env: &TestEnv, name: &str) -> PodUid {
    let pod = env.pod(name).await;
    PodUid::from(pod["metadata"]["uid"].as_str().unwrap())
}

fn unified() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").exists()
}

/// Content of a file of a cgroup; the names are v1's and v2's.
fn value(cgroup: &str, controller: &str, files: [&str; 2]) -> String {
    let (dir, file) = match unified() {
        true => (PathBuf::from(CGROUPS), files[1]),
        false => (Path::new(CGROUPS).join(controller), files[0]),
    };
    let path = format!("{}{cgroup}/{file}", dir.display());
    let text = fs::read_to_string(&path);
    text.map_or_else(
        |error| format!("{path}: {error}"),
        |text| text.trim().to_owned(),
    )
}

fn expect(cgroup: &str, controller: &str, files: [&str; 2], expected: [&str; 2]) {
    let expected = expected[usize::from(unified())];
    assert_eq!(
        value(cgroup, controller, files),
        expected,
        "{files:?} of {cgroup}"
    );
}

/// Directories of a cgroup in all hierarchies.
fn places(cgroup: &str) -> Vec<PathBuf> {
    let mut roots = vec![PathBuf::from(CGROUPS)];
    if !unified() {
        let entries = fs::read_dir(CGROUPS).unwrap().flatten();
        roots = entries.map(|entry| entry.path()).collect();
    }
    let places = roots.iter().map(|root| root.join(&cgroup[1..]));
    places.filter(|dir| dir.exists()).collect()
}

/// A process in a cgroup of an unknown pod.
fn stray_process(cgroup: &str) -> Child {
    let root = match unified() {
        true => PathBuf::from(CGROUPS),
        false => Path::new(CGROUPS).join("memory"),
    };
    let dir = root.join(&cgroup[1..]);
    fs::create_dir(&dir).unwrap();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
    child
}
