//! Cgroup settings of pods.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_cgroups::{CgroupTree, HostTree, SystemdSlices};
use windlass_config::{FeatureGates, KubeletConfiguration, percent};
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::node_cgroups::{QosMemory, Reservations, reserved_limits};
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_stats::max_tasks;
use windlass_types::corev1::Node;
use windlass_types::cri::CgroupDriver;

/// Mount point of cgroupfs.
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";
/// Value of `enforceNodeAllocatable` that limits all pods together.
const PODS: &str = "pods";

/// Returns `None` if the runtime manages cgroups or the host has none. `proc` is the mount point of
/// procfs.
pub(super) fn cgroup_settings(
    kubelet: &KubeletConfiguration,
    gates: &FeatureGates,
    node: &Node,
    proc: &Path,
) -> Option<CgroupSettings> {
    if !kubelet.cgroups_per_qos {
        return None;
    }
    let tree = match HostTree::open(PathBuf::from(CGROUPS)) {
        Ok(tree) => tree,
        Err(error) => {
            tracing::warn!(%error, "cgroups not available on this host; pods use the cgroups of the runtime");
            return None;
        }
    };
    let capacity = node.status.as_ref().and_then(|s| s.capacity.clone());
    let capacity = capacity.unwrap_or_default();
    let max_tasks = max_tasks(proc).and_then(|tasks| i64::try_from(tasks).ok());
    let max_tasks = max_tasks.unwrap_or(0);
    let reserved = [&kubelet.system_reserved, &kubelet.kube_reserved];
    let enforced = kubelet
        .enforce_node_allocatable
        .iter()
        .any(|key| key == PODS);
    let is_v2 = tree.unified();
    Some(CgroupSettings {
        tree: Arc::new(tree),
        slices: Some(Arc::new(SystemdSlices::system())),
        root: kubelet.cgroup_root.clone(),
        // validated; the default is that of upstream
        driver: CgroupDriver::parse(&kubelet.cgroup_driver).unwrap_or(CgroupDriver::Cgroupfs),
        node: NodeLimits::new(&capacity, max_tasks, if enforced { &reserved } else { &[] }),
        pids_limit: Some(kubelet.pod_pids_limit).filter(|limit| *limit > 0),
        reserved: reserved_limits(
            &kubelet.enforce_node_allocatable,
            Reservations {
                system: &kubelet.system_reserved,
                kube: &kubelet.kube_reserved,
                system_cgroup: &kubelet.system_reserved_cgroup,
                kube_cgroup: &kubelet.kube_reserved_cgroup,
                memory_qos: is_v2 && gates.enabled("MemoryQoS"),
            },
        ),
        qos_memory: qos_share(kubelet, gates).map(|percent| QosMemory {
            percent,
            allocatable: NodeLimits::new(&capacity, max_tasks, &reserved).memory,
        }),
    })
}

/// Returns the share of memory requests to reserve; `None` without the feature gate.
fn qos_share(kubelet: &KubeletConfiguration, gates: &FeatureGates) -> Option<i64> {
    let share = kubelet.qos_reserved.get("memory")?;
    gates.enabled("QOSReserved").then(|| percent(share))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_settings_follow_kubelet_configuration() {
        let proc = Path::new("/proc");
        let mut kubelet = KubeletConfiguration {
            cgroups_per_qos: false,
            ..KubeletConfiguration::default()
        };
        assert!(
            cgroup_settings(&kubelet, &FeatureGates::default(), &Node::default(), proc).is_none()
        );
        kubelet.cgroups_per_qos = true;
        kubelet.cgroup_driver = "systemd".to_owned();
        kubelet.cgroup_root = "/pods".to_owned();
        for list in [&mut kubelet.system_reserved, &mut kubelet.kube_reserved] {
            list.insert("memory".to_owned(), "1Gi".to_owned());
        }
        let node = serde_json::json!({"status": {"capacity": {"memory": "8Gi"}}});
        let node: Node = serde_json::from_value(node).expect("a node");
        let settings = cgroup_settings(&kubelet, &FeatureGates::default(), &node, proc)
            .expect("the host has cgroups");
        assert_eq!(settings.driver, CgroupDriver::Systemd);
        assert_eq!(settings.root, "/pods");
        assert_eq!(settings.node.memory, 6 << 30);
        assert_eq!(settings.pids_limit, None);
        kubelet.enforce_node_allocatable = vec!["none".to_owned()];
        kubelet.pod_pids_limit = 64;
        let settings = cgroup_settings(&kubelet, &FeatureGates::default(), &node, proc)
            .expect("the host has cgroups");
        assert_eq!(settings.node.memory, 8 << 30);
        assert_eq!(settings.pids_limit, Some(64));
    }

    #[test]
    fn pid_limit_of_pods_is_lower_of_two_kernel_limits() {
        let proc = tempfile::tempdir().expect("directory");
        let kernel = proc.path().join("sys/kernel");
        std::fs::create_dir_all(&kernel).expect("made");
        let mut kubelet = KubeletConfiguration::default();
        kubelet
            .system_reserved
            .insert("pid".to_owned(), "500".to_owned());
        let check = |pid_max: &str, threads_max: &str, expected: i64| {
            std::fs::write(kernel.join("pid_max"), pid_max).expect("written");
            std::fs::write(kernel.join("threads-max"), threads_max).expect("written");
            let gates = FeatureGates::default();
            let settings = cgroup_settings(&kubelet, &gates, &Node::default(), proc.path());
            let settings = settings.expect("the host has cgroups");
            assert_eq!(settings.node.pids, expected);
        };
        check("4194304\n", "60000\n", 59_500);
        check("32768\n", "60000\n", 32_268);
    }
}
