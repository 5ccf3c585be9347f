//! Swap, memory protection and huge pages of this host.

use std::fs;
use std::path::Path;

use windlass_config::checks::{CgroupVersion, cgroup_version};
use windlass_config::{FeatureGates, KubeletConfiguration};
use windlass_node_rules::node_object::MachineFacts;
use windlass_pod_inputs::node_facts::{MemoryQos, MemorySettings};
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_types::corev1::Node;

use super::cgroups::CGROUPS;

/// File of cgroup v1 with the limit of memory and swap; of every cgroup.
const SWAP_V1: &str = "memory/memory.memsw.limit_in_bytes";
/// File of cgroup v2 with the limit of swap; not of the root.
const SWAP_V2: &str = "memory.swap.max";
/// Key of the page size in the auxiliary vector.
const AT_PAGESZ: usize = 6;

pub(super) fn memory_settings(
    kubelet: &KubeletConfiguration,
    gates: &FeatureGates,
    machine: &MachineFacts,
    node: &Node,
) -> MemorySettings {
    let is_v2 = cgroup_version().is_ok_and(|version| version == CgroupVersion::V2);
    MemorySettings {
        swap_controller: has_swap_controller(Path::new(CGROUPS), Path::new("/proc")),
        limited_swap: kubelet.memory_swap.swap_behavior == "LimitedSwap",
        swap_capacity: i64::try_from(machine.swap).unwrap_or(i64::MAX),
        qos: (is_v2 && gates.enabled("MemoryQoS")).then(|| memory_qos(kubelet, node)),
        huge_page_sizes: machine.huge_pages.keys().map(|kib| kib * 1024).collect(),
    }
}

fn memory_qos(kubelet: &KubeletConfiguration, node: &Node) -> MemoryQos {
    let capacity = node.status.as_ref().and_then(|s| s.capacity.clone());
    let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
    MemoryQos {
        protects_requests: kubelet.memory_reservation_policy == "TieredReservation",
        throttling_factor: kubelet.memory_throttling_factor,
        allocatable: NodeLimits::new(&capacity.unwrap_or_default(), 0, &reserved).memory,
        page_size: page_size(&fs::read("/proc/self/auxv").unwrap_or_default()),
    }
}

/// Returns the page size in bytes from the auxiliary vector of a process.
fn page_size(auxv: &[u8]) -> i64 {
    let (words, _) = auxv.as_chunks::<{ size_of::<usize>() }>();
    let words: Vec<usize> = words
        .iter()
        .map(|word| usize::from_ne_bytes(*word))
        .collect();
    let pairs = words.chunks_exact(2);
    let sizes = pairs
        .filter(|pair| pair[0] == AT_PAGESZ)
        .map(|pair| pair[1]);
    let size = sizes.filter_map(|size| i64::try_from(size).ok()).next();
    size.unwrap_or(4096)
}

/// Returns true if the kernel limits the swap of cgroups (upstream `checkSwapControllerAvailability`);
/// `proc` is the mount point of procfs. An agent in the root of cgroup v2 looks at the children of
/// the root. If none has the memory controller, which the agent enables for its pods, the kernel
/// need only have both.
fn has_swap_controller(mount: &Path, proc: &Path) -> bool {
    if mount.join(SWAP_V1).exists() {
        return true;
    }
    let own = fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    if own.is_some_and(|path| mount.join(path).join(SWAP_V2).exists()) {
        return true;
    }
    let children = || fs::read_dir(mount).into_iter().flatten().flatten();
    let has = |file| children().any(|child| child.path().join(file).exists());
    let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
    let can_enable = controllers.split_whitespace().any(|name| name == "memory");
    has(SWAP_V2) || (can_enable && !has("memory.max") && proc.join("swaps").exists())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(files: &[&str], own: &str, expected: bool) {
        let dir = tempfile::tempdir().expect("a directory");
        let (mount, proc) = (dir.path().join("cgroup"), dir.path().join("proc"));
        let write = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("written");
        };
        write(proc.join("self/cgroup"), own);
        write(proc.join("swaps"), "");
        for file in files {
            let text = match *file {
                "cgroup.controllers" => "cpuset cpu io memory pids\n",
                _ => "max\n",
            };
            write(mount.join(file), text);
        }
        assert_eq!(has_swap_controller(&mount, &proc), expected, "{files:?}");
        fs::remove_file(proc.join("swaps")).expect("removed");
        let found = has_swap_controller(&mount, &proc);
        let only_enabled = files.contains(&"cgroup.controllers") && expected;
        assert_eq!(found, expected && !only_enabled, "{files:?}");
    }

    #[test]
    fn swap_controller_is_found_on_both_cgroup_versions() {
        check(&[], "0::/\n", false);
        check(&["memory/memory.limit_in_bytes"], "4:memory:/x\n", false);
        check(
            &["memory/memory.memsw.limit_in_bytes"],
            "4:memory:/x\n",
            true,
        );
        check(&["a/b/memory.swap.max"], "0::/a/b\n", true);
        check(&["a/b/memory.max"], "0::/a/b\n", false);
        // in a cgroup namespace, and in the root of the host
        check(&["memory.swap.max"], "0::/\n", true);
        check(&["system.slice/memory.swap.max"], "0::/\n", true);
        // nothing has the memory controller yet
        check(&["cgroup.controllers"], "0::/\n", true);
        let without = ["cgroup.controllers", "system.slice/memory.max"];
        check(&without, "0::/\n", false);
    }

    #[test]
    fn memory_settings_follow_configuration_and_machine() {
        let mut kubelet = KubeletConfiguration::default();
        let machine = MachineFacts {
            swap: 1 << 30,
            huge_pages: [(2048, 4), (1 << 20, 0)].into(),
            ..MachineFacts::default()
        };
        let settings = |kubelet: &KubeletConfiguration| {
            memory_settings(
                kubelet,
                &FeatureGates::default(),
                &machine,
                &Node::default(),
            )
        };
        let defaults = settings(&kubelet);
        assert!(!defaults.limited_swap && defaults.qos.is_none());
        assert_eq!(defaults.swap_capacity, 1 << 30);
        assert_eq!(defaults.huge_page_sizes, [2 << 20, 1 << 30]);
        kubelet.memory_swap.swap_behavior = "LimitedSwap".to_owned();
        assert!(settings(&kubelet).limited_swap);

        kubelet.memory_reservation_policy = "TieredReservation".to_owned();
        let reserved = [("memory".to_owned(), "1Gi".to_owned())];
        kubelet.kube_reserved.extend(reserved);
        let node = json!({"status": {"capacity": {"memory": "8Gi"}}});
        let qos = memory_qos(&kubelet, &serde_json::from_value(node).expect("a node"));
        assert!(qos.protects_requests);
        assert_eq!((qos.throttling_factor, qos.allocatable), (0.9, 7 << 30));
        assert!(qos.page_size >= 4096);
    }
}
