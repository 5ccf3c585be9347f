//! Trees of both versions with real contents, and this machine's own.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

const ALL: Depth = Depth {
    details: true,
    io: true,
    processes: true,
    descriptors: true,
};
const POD: &str = "/kubepods/burstable/podu1";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

/// Writes files below a directory that is made for them.
fn write(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).expect("a directory");
    for (name, content) in files {
        fs::write(dir.join(name), content).expect("a file");
    }
}

const V2_MEMORY: &str = "anon 1000\nfile 5000\nkernel 300\nfile_mapped 700\ninactive_file 4000\n\
    active_file 1000\npgfault 52\npgmajfault 3\n";
const V2_ROOT_MEMORY: &str = "anon 100000\nfile 900000\ninactive_file 400000\nactive_file 500000\n";
const PRESSURE: &str = "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\n\
    full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";

fn v2() -> (TempDir, Cgroups) {
    let dir = TempDir::new().expect("a directory");
    let mount = dir.path().join("cgroup");
    let controllers = "cpuset cpu io memory hugetlb pids\n";
    write(
        &mount,
        &[
            ("cgroup.controllers", controllers),
            ("cgroup.procs", "1\n2\n"),
            (
                "cpu.stat",
                "usage_usec 9000000\nuser_usec 1\nsystem_usec 2\n",
            ),
            ("memory.stat", V2_ROOT_MEMORY),
        ],
    );
    write(
        &mount.join(&POD[1..]),
        &[
            ("cgroup.procs", ""),
            (
                "cpu.stat",
                "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 40\n\
                 nr_throttled 7\nthrottled_usec 350000\n",
            ),
            ("cpu.pressure", PRESSURE),
            ("cpu.weight", "39\n"),
            ("cpu.max", "50000 100000\n"),
            ("memory.current", "6300\n"),
            ("memory.stat", V2_MEMORY),
            ("memory.max", "104857600\n"),
            ("memory.min", "0\n"),
            ("memory.peak", "7000\n"),
            (
                "memory.events",
                "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\noom_group_kill 0\n",
            ),
            ("memory.swap.current", "20\n"),
            ("memory.swap.max", "max\n"),
            ("memory.pressure", PRESSURE),
            (
                "io.stat",
                "254:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n",
            ),
            ("io.pressure", PRESSURE),
            ("pids.current", "5\n"),
            ("pids.max", "max\n"),
            ("hugetlb.2MB.rsvd.current", "2097152\n"),
        ],
    );
    let proc = dir.path().join("proc");
    let meminfo = "MemTotal: 2000 kB\nMemFree: 500 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n";
    write(
        &proc,
        &[
            ("meminfo", meminfo),
            (
                "partitions",
                "major minor  #blocks  name\n\n 254 0 268435456 vda\n",
            ),
        ],
    );
    let pages = dir.path().join("hugepages");
    fs::create_dir_all(pages.join("hugepages-2048kB")).expect("a directory");
    let mut cgroups = Cgroups::open(&mount, &proc, &pages).expect("cgroups");
    cgroups.begin_collection(true);
    (dir, cgroups)
}

#[test]
fn v2_cgroup_is_read() {
    let (_dir, mut cgroups) = v2();
    assert!(cgroups.unified());
    let usage = cgroups.read(POD, ALL, at(0)).expect("the pod");
    let cpu = usage.cpu.expect("processor time");
    assert_eq!((cpu.total_ns, cpu.user_ns), (2_500_000_000, 2_000_000_000));
    assert_eq!(
        (cpu.periods, cpu.throttled_periods, cpu.throttled_ns),
        (40, 7, 350_000_000)
    );
    assert_eq!(cpu.pressure.map(|p| p.some.total_ns), Some(12_000));
    let memory = usage.memory.expect("memory");
    assert_eq!((memory.usage, memory.working_set), (6300, 2300));
    assert_eq!(
        (memory.rss, memory.cache, memory.mapped_file),
        (1000, 5000, 700)
    );
    assert_eq!(
        (memory.limit, memory.swap, memory.swap_limit),
        (Some(104_857_600), 20, None)
    );
    assert_eq!((memory.max_usage, memory.kernel), (7000, Some(300)));
    assert_eq!(
        (memory.failures, memory.oom_kills, memory.reservation),
        (Some(4), Some(1), None)
    );
    assert_eq!((memory.page_faults, memory.major_page_faults), (52, 3));
    let pages = HugePages {
        page_size: 2 << 20,
        usage: 2 << 20,
        max_usage: 0,
    };
    assert_eq!(memory.huge_pages, [pages]);
    let io = usage.io.expect("I/O");
    let disk = DeviceIo {
        device: "/dev/vda".to_owned(),
        number: (254, 0),
        read_bytes: 10,
        written_bytes: 20,
        reads: 1,
        writes: 2,
    };
    assert_eq!((io.devices, io.pressure.is_some()), (vec![disk], true));
    let processes = usage.processes.expect("processes");
    assert_eq!(
        (
            processes.processes,
            processes.threads,
            processes.threads_max
        ),
        (0, 5, None)
    );
    let limits = CpuLimits {
        shares: Some(998),
        quota_us: Some(50_000),
        period_us: Some(100_000),
    };
    assert_eq!(usage.cpu_limits, limits);
}

#[test]
fn v2_root_has_total_memory_and_host_swap() {
    let (_dir, mut cgroups) = v2();
    let usage = cgroups.read("/", ALL, at(0)).expect("the root");
    let memory = usage.memory.expect("memory");
    assert_eq!((memory.usage, memory.working_set), (1_000_000, 600_000));
    assert_eq!((memory.swap, memory.limit), (60 << 10, None));
    assert_eq!(usage.cpu.map(|cpu| cpu.total_ns), Some(9_000_000_000));
}

#[test]
fn second_collection_has_rates_and_keeps_files_open() {
    let (dir, mut cgroups) = v2();
    let rate = |cgroups: &mut Cgroups, at| {
        let usage = cgroups.read(POD, Depth::default(), at).expect("the pod");
        cgroups.end_collection(at);
        usage.cpu.and_then(|cpu| cpu.nano_cores)
    };
    assert_eq!(rate(&mut cgroups, at(0)), None);
    assert_eq!(cgroups.open, FILES_PER_CGROUP);
    // the same file, as in the kernel: written, not replaced
    let stat = dir.path().join("cgroup").join(&POD[1..]).join("cpu.stat");
    fs::write(&stat, "usage_usec 7500000\n").expect("a file");
    assert_eq!(rate(&mut cgroups, at(10)), Some(500_000_000));
    assert_eq!(cgroups.open, FILES_PER_CGROUP);
    // without requests its files are closed, then it is forgotten
    cgroups.end_collection(at(20));
    assert_eq!((cgroups.open, cgroups.entries.len()), (0, 1));
    cgroups.end_collection(at(131));
    assert_eq!(cgroups.entries.len(), 0);
}

#[test]
fn open_files_are_bounded_without_losing_values() {
    let (_dir, mut cgroups) = v2();
    cgroups.max_open = 2;
    for second in [0, 5] {
        let usage = cgroups.read(POD, Depth::default(), at(second));
        assert!(usage.is_some_and(|usage| usage.cpu.is_some() && usage.memory.is_some()));
        cgroups.end_collection(at(second));
        assert_eq!(cgroups.open, 2);
    }
}

#[test]
fn removed_or_empty_cgroup_is_none() {
    let (dir, mut cgroups) = v2();
    assert!(cgroups.exists(POD) && !cgroups.exists("/kubepods/podx"));
    assert_eq!(cgroups.children("/kubepods/burstable"), ["podu1"]);
    assert_eq!(cgroups.read("/kubepods/podx", ALL, at(0)), None);
    fs::create_dir(dir.path().join("cgroup/kubepods/empty")).expect("a directory");
    assert_eq!(cgroups.read("/kubepods/empty", ALL, at(0)), None);
    assert_eq!(cgroups.entries.len(), 0);
    assert!(cgroups.created_at(POD).is_some());
}

#[test]
fn missing_file_affects_only_its_values() {
    let (dir, mut cgroups) = v2();
    let pod = dir.path().join("cgroup").join(&POD[1..]);
    for name in [
        "cpu.pressure",
        "memory.swap.current",
        "memory.peak",
        "io.stat",
        "pids.current",
    ] {
        fs::remove_file(pod.join(name)).expect("removed");
    }
    fs::write(pod.join("memory.events"), "gibberish").expect("a file");
    let usage = cgroups.read(POD, ALL, at(0)).expect("the pod");
    assert_eq!(usage.cpu.and_then(|cpu| cpu.pressure), None);
    let memory = usage.memory.expect("memory");
    assert_eq!(
        (memory.swap, memory.max_usage, memory.oom_kills),
        (0, 0, None)
    );
    assert_eq!(memory.usage, 6300);
    assert_eq!(usage.io, None);
    fs::remove_file(pod.join("memory.current")).expect("removed");
    let usage = cgroups.read(POD, ALL, at(0)).expect("the pod");
    assert!(usage.memory.is_some(), "its descriptor is open still");
    cgroups.end_collection(at(0));
    cgroups.end_collection(at(1));
    let usage = cgroups.read(POD, ALL, at(2)).expect("the pod");
    assert_eq!(usage.memory, None);
}

#[test]
fn v1_cgroup_is_read_from_all_hierarchies() {
    let dir = TempDir::new().expect("a directory");
    let mount = dir.path();
    for hierarchy in ["cpu,cpuacct", "memory", "blkio", "pids"] {
        write(&mount.join(hierarchy), &[("cgroup.procs", "1\n")]);
    }
    let pod = |hierarchy: &str, files: &[(&str, &str)]| {
        write(&mount.join(hierarchy).join(&POD[1..]), files);
    };
    pod(
        "cpu,cpuacct",
        &[
            ("cpuacct.usage", "2500000000\n"),
            ("cpuacct.stat", "user 125\nsystem 25\n"),
            (
                "cpu.stat",
                "nr_periods 40\nnr_throttled 7\nthrottled_time 350000000\n",
            ),
            ("cpu.shares", "512\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
        ],
    );
    let stat = "cache 1\ntotal_cache 5000\ntotal_rss 1000\ntotal_swap 20\ntotal_inactive_file 9000\n\
                pgfault 52\n";
    pod(
        "memory",
        &[
            ("cgroup.procs", "4194304\n0\n"),
            ("memory.usage_in_bytes", "6300\n"),
            ("memory.stat", stat),
            ("memory.limit_in_bytes", "1000000\n"),
            ("memory.memsw.limit_in_bytes", "1500000\n"),
            ("memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory.failcnt", "4\n"),
            ("memory.max_usage_in_bytes", "7000\n"),
            ("memory.kmem.usage_in_bytes", "300\n"),
            (
                "memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            ),
        ],
    );
    let bytes = "254:0 Read 10\n254:0 Write 20\n254:0 Total 30\nTotal 30\n";
    pod(
        "blkio",
        &[
            ("blkio.throttle.io_service_bytes_recursive", bytes),
            (
                "blkio.throttle.io_serviced",
                "254:0 Read 1\n254:0 Write 2\n",
            ),
        ],
    );
    pod("pids", &[("pids.current", "5\n"), ("pids.max", "64\n")]);
    let none = Path::new("/nonexistent");
    let mut cgroups = Cgroups::open(mount, none, none).expect("cgroups");
    assert!(!cgroups.unified());
    let usage = cgroups.read(POD, ALL, at(0)).expect("the pod");
    let cpu = usage.cpu.expect("processor time");
    assert_eq!((cpu.total_ns, cpu.user_ns), (2_500_000_000, 1_250_000_000));
    assert_eq!((cpu.throttled_periods, cpu.throttled_ns), (7, 350_000_000));
    let memory = usage.memory.expect("memory");
    // more inactive than in use: counted at different moments
    assert_eq!((memory.usage, memory.working_set), (6300, 0));
    assert_eq!(
        (memory.limit, memory.swap, memory.swap_limit),
        (Some(1_000_000), 20, Some(500_000))
    );
    assert_eq!(
        (memory.failures, memory.max_usage, memory.kernel),
        (Some(4), 7000, Some(300))
    );
    assert_eq!((memory.oom_kills, memory.reservation), (Some(2), None));
    let io = usage.io.expect("I/O");
    assert_eq!(io.devices.len(), 1);
    assert_eq!(
        (io.devices[0].device.as_str(), io.devices[0].number),
        ("254:0", (254, 0))
    );
    assert_eq!((io.devices[0].written_bytes, io.devices[0].writes), (20, 2));
    let processes = usage.processes.expect("processes");
    assert_eq!(
        (
            processes.processes,
            processes.threads,
            processes.threads_max
        ),
        (2, 5, Some(64))
    );
    let limits = CpuLimits {
        shares: Some(512),
        quota_us: None,
        period_us: Some(100_000),
    };
    assert_eq!(usage.cpu_limits, limits);
}

#[test]
fn cgroups_of_host_are_read() {
    let mut cgroups = Cgroups::open(
        Path::new("/sys/fs/cgroup"),
        Path::new("/proc"),
        Path::new("/sys/kernel/mm/hugepages"),
    )
    .expect("cgroups");
    cgroups.begin_collection(true);
    let usage = cgroups.read("/", ALL, at(0)).expect("the root");
    let (cpu, memory) = (usage.cpu.expect("cpu"), usage.memory.expect("memory"));
    assert!(cpu.total_ns > 1_000_000_000, "{cpu:?}");
    assert!(
        memory.usage > 1 << 20 && memory.working_set <= memory.usage,
        "{memory:?}"
    );
    assert!(memory.rss > 0 && memory.cache > 0, "{memory:?}");
}
