//! A small node with one pod and distinct values, for tests of the output formats.

use windlass_types::{ContainerId, PodUid, Timestamp};

use crate::parse::parse_diskstats;
use crate::usage::*;

/// Sample with the columns of kernels since 5.5.
const DISKSTATS: &[u8] = b"   7       0 loop0 75258 1206 1714970 6141 14866 6214 233136 \
    12019 0 17424 28538 160 0 2629792 36 10299 10340\n \
    254       0 vda 881374 113064 128600074 1620626 4140440 3138158 1083366704 11234490 3 1107108 \
    13598868 2265359 441 940804096 545841 641533 197910\n \
    254       1 vda1 881000 113000 128600000 1620000 4140000 3138000 1083366000 11234000 2 1107000 \
    13598000 2265359 441 940804096 545841\n";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or_default()
}

pub(crate) fn cgroup(path: &str, base: u64) -> CgroupUsage {
    CgroupUsage {
        at: at(1_000),
        path: path.into(),
        cpu: Some(CpuUsage {
            total_ns: base * 1_000_000_000,
            user_ns: base * 600_000_000,
            system_ns: base * 400_000_000,
            nano_cores: Some(base * 1_000),
            periods: base + 1,
            throttled_periods: base + 2,
            throttled_ns: base * 500_000_000,
            pressure: Some(Pressure {
                some: PressureLine {
                    avg10: 1.5,
                    avg60: 2.5,
                    avg300: 3.5,
                    total_ns: 4_000_000_000,
                },
                full: PressureLine::default(),
            }),
        }),
        memory: Some(MemoryUsage {
            usage: base * 1024,
            working_set: base * 1000,
            rss: base * 900,
            cache: base * 124,
            limit: Some(base * 4096),
            swap: base,
            failures: Some(0),
            oom_kills: Some(0),
            swap_limit: Some(base * 10),
            page_faults: base + 3,
            major_page_faults: base + 4,
            huge_pages: vec![HugePages {
                page_size: 2 << 20,
                usage: 2 << 20,
                max_usage: 4 << 20,
            }],
            ..MemoryUsage::default()
        }),
        io: Some(IoUsage {
            devices: vec![DeviceIo {
                device: "/dev/vda".into(),
                number: (254, 0),
                read_bytes: base * 512,
                written_bytes: base * 256,
                ..DeviceIo::default()
            }],
            pressure: None,
        }),
        processes: Some(ProcessUsage {
            processes: base,
            threads: base * 2,
            descriptors: Some(base + 5),
            sockets: Some(base + 6),
            open_files_max: Some(1024),
            threads_max: None,
        }),
        cpu_limits: CpuLimits {
            shares: Some(1024),
            quota_us: Some(50_000),
            period_us: Some(100_000),
        },
    }
}

fn fs(used: u64) -> FsUsage {
    FsUsage {
        at: at(1_001),
        device: Some("/dev/vda1".into()),
        capacity: Some(1 << 30),
        available: Some(1 << 29),
        used: Some(used),
        inodes: Some(1000),
        inodes_free: Some(900),
        inodes_used: Some(used / 1024),
    }
}

fn network(bytes: u64) -> NetworkUsage {
    let received = Traffic {
        bytes,
        packets: 2,
        errors: 3,
        dropped: 4,
    };
    NetworkUsage {
        at: at(1_002),
        interfaces: vec![InterfaceUsage {
            name: "eth0".into(),
            received,
            sent: Traffic {
                bytes: bytes * 2,
                ..received
            },
        }],
        default: Some("eth0".into()),
    }
}

pub(crate) fn node() -> NodeUsage {
    let mut root = cgroup("/", 100);
    if let Some(memory) = &mut root.memory {
        (memory.limit, memory.swap_limit) = (Some(1 << 20), None);
    }
    NodeUsage {
        started_at: at(10),
        cgroup: root,
        network: Some(network(7)),
        fs: Some(fs(4096)),
        image_fs: Some(fs(8192)),
        container_fs: None,
        disks: parse_diskstats(DISKSTATS),
        max_pid: Some(32768),
        running_processes: Some(123),
        system: vec![SystemUsage {
            name: "pods",
            started_at: at(11),
            cgroup: cgroup("/kubepods", 50),
        }],
        classes: Vec::new(),
    }
}

pub(crate) fn pod() -> PodUsage {
    PodUsage {
        uid: PodUid::from("u1"),
        namespace: "default".into(),
        name: "web".into(),
        present: true,
        started_at: at(20),
        cgroup: Some(cgroup("/kubepods/podu1", 30)),
        sandbox: Some(SandboxUsage {
            id: "sb".into(),
            image: "pause".into(),
            cgroup: Some(cgroup("/kubepods/podu1/sb", 1)),
        }),
        network: Some(network(9)),
        containers: vec![ContainerUsage {
            name: "app".into(),
            id: ContainerId::from("c1"),
            image: "busybox".into(),
            started_at: at(21),
            cgroup: Some(cgroup("/kubepods/podu1/c1", 20)),
            rootfs: Some(fs(2048)),
            logs: Some(fs(1024)),
        }],
        oom_killed: Vec::new(),
        volumes: vec![VolumeUsage {
            name: "data".into(),
            claim: Some(("default".into(), "claim".into())),
            fs: fs(3072),
            abnormal: Some(false),
        }],
        ephemeral: Some(fs(3072)),
    }
}
