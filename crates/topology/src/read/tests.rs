//! Machines as files below a folder, and this machine.

use std::fs;
use std::path::Path;

use crate::Machine;

fn write(sys: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = sys.join("devices/system").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Writes a CPU: its core, socket, and the cache of level 3 with the CPUs that share it.
fn cpu(sys: &Path, number: u32, core: &str, socket: &str, cache: Option<(&str, &str)>) {
    let dir = format!("cpu/cpu{number}");
    let file = |name: &str| format!("{dir}/{name}");
    write(
        sys,
        &[
            (&file("topology/core_id"), core),
            (&file("topology/physical_package_id"), socket),
        ],
    );
    if let Some((id, shared)) = cache {
        write(
            sys,
            &[
                (&file("cache/index3/level"), "3\n"),
                (&file("cache/index3/id"), id),
                (&file("cache/index3/shared_cpu_list"), shared),
            ],
        );
    }
}

fn line(machine: &Machine) -> String {
    let cpus = machine.cpus.iter().map(|(number, it)| {
        format!(
            "{number}: core {} socket {} node {} uncore {}",
            it.core, it.socket, it.numa, it.uncore
        )
    });
    let nodes = machine.nodes.iter().map(|(number, it)| {
        format!(
            "node {number}: {} {:?} {:?}",
            it.memory, it.huge_pages, it.distances
        )
    });
    cpus.chain(nodes).collect::<Vec<_>>().join("; ")
}

#[test]
fn nodes_caches_memory_and_huge_pages_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let sys = dir.path();
    write(
        sys,
        &[
            ("cpu/online", "0-2,4-5\n"),
            ("node/node0/cpulist", "0-3\n"),
            (
                "node/node0/meminfo",
                "Node 0 MemTotal:  1024 kB\nNode 0 MemFree: 1 kB\n",
            ),
            ("node/node0/distance", "10 21\n"),
            ("node/node0/hugepages/hugepages-2048kB/nr_hugepages", "7\n"),
            ("node/node2/cpulist", "4-5\n"),
            ("node/node2/meminfo", "Node 2 MemTotal: 2048 kB\n"),
            ("node/node2/distance", "21 10\n"),
            ("node/online", "0,2\n"),
        ],
    );
    // two threads share core 0, whose cache is not that of CPU 1; CPU 3 is offline
    cpu(sys, 0, "0", "0", Some(("6", "0,2")));
    cpu(sys, 1, "1", "0", Some(("7", "1")));
    cpu(sys, 2, "0", "0", Some(("6", "0,2")));
    // a cache that the whole node shares does not count
    cpu(sys, 4, "0", "1", Some(("9", "4-5")));
    cpu(sys, 5, "1", "1", Some(("9", "4-5")));
    assert_eq!(
        line(&Machine::read(sys).unwrap()),
        "0: core 0 socket 0 node 0 uncore 6; 1: core 1 socket 0 node 0 uncore 7; \
         2: core 0 socket 0 node 0 uncore 6; 4: core 4 socket 1 node 2 uncore 1; \
         5: core 5 socket 1 node 2 uncore 1; node 0: 1048576 {2097152: 7} {0: 10, 2: 21}; \
         node 2: 2097152 {} {0: 21, 2: 10}"
    );
}

#[test]
fn machine_without_nodes_and_online_file_has_node_0() {
    let dir = tempfile::tempdir().unwrap();
    cpu(dir.path(), 0, "0", "-1", None);
    cpu(dir.path(), 1, "1", "-1", None);
    assert_eq!(
        line(&Machine::read(dir.path()).unwrap()),
        "0: core 0 socket 0 node 0 uncore 0; 1: core 1 socket 0 node 0 uncore 0; node 0: 0 {} {}"
    );
}

#[test]
fn errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let sys = dir.path();
    let error = |part: &str| {
        let text = Machine::read(sys).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    error("devices/system/cpu: no online CPU has a topology");
    write(sys, &[("cpu/online", "0"), ("node/node0/cpulist", "0")]);
    cpu(sys, 0, "zero", "0", None);
    error("cpu0/topology/core_id: unexpected content \"zero\"");
    cpu(sys, 0, "0", "0", None);
    write(sys, &[("node/node0/meminfo", "nothing")]);
    error("node0/meminfo: unexpected content \"nothing\"");
    write(
        sys,
        &[
            ("node/node0/meminfo", "MemTotal: 1 kB"),
            ("node/node0/distance", "near"),
        ],
    );
    error("node0/distance: unexpected content \"near\"");
}

#[test]
fn this_machine_has_cpus_and_nodes() {
    let machine = Machine::read(Path::new("/sys")).unwrap();
    assert!(machine.threads_per_core() >= 1);
    let nodes = machine.nodes_of_cpus(&machine.all_cpus());
    assert!(nodes.is_subset(machine.all_nodes()));
}
