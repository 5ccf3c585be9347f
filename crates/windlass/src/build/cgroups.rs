//! Cgroup settings of pods.

use std::path::PathBuf;
use std::sync::Arc;

use windlass_cgroups::{CgroupTree, HostTree, SystemdSlices};
use windlass_config::{FeatureGates, KubeletConfiguration, percent};
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::node_cgroups::{QosMemory, Reservations, reserved_limits};
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_types::corev1::Node;
use windlass_types::cri::CgroupDriver;

use super::read;

/// Mount point of cgroupfs.
pub(super) const CGROUPS: &str = "/sys/fs/cgroup";
/// The kernel's limit of processes and threads.
const PID_MAX: &str = "/proc/sys/kernel/pid_max";
/// Value of `enforceNodeAllocatable` that limits all pods together.
const PODS: &str = "pods";

/// Returns `None` if the runtime manages cgroups or the host has none.
pub(super) fn cgroup_settings(
    kubelet: &KubeletConfiguration,
    gates: &FeatureGates,
    node: &Node,
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
    let pid_max = read(PID_MAX).trim().parse().unwrap_or(0);
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
        node: NodeLimits::new(&capacity, pid_max, if enforced { &reserved } else { &[] }),
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
            allocatable: NodeLimits::new(&capacity, pid_max, &reserved).memory,
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
        let mut kubelet = KubeletConfiguration {
            cgroups_per_qos: false,
            ..KubeletConfiguration::default()
        };
        assert!(cgroup_settings(&kubelet, &FeatureGates::default(), &Node::default()).is_none());
        kubelet.cgroups_per_qos = true;
        kubelet.cgroup_driver = "systemd".to_owned();
        kubelet.cgroup_root = "/pods".to_owned();
        for list in [&mut kubelet.system_reserved, &mut kubelet.kube_reserved] {
            list.insert("memory".to_owned(), "1Gi".to_owned());
        }
        let node = serde_json::json!({"status": {"capacity": {"memory": "8Gi"}}});
        let node: Node = serde_json::from_value(node).expect("a node");
        let settings = cgroup_settings(&kubelet, &FeatureGates::default(), &node)
            .expect("the host has cgroups");
        assert_eq!(settings.driver, CgroupDriver::Systemd);
        assert_eq!(settings.root, "/pods");
        assert_eq!(settings.node.memory, 6 << 30);
        assert_eq!(settings.pids_limit, None);
        kubelet.enforce_node_allocatable = vec!["none".to_owned()];
        kubelet.pod_pids_limit = 64;
        let settings = cgroup_settings(&kubelet, &FeatureGates::default(), &node)
            .expect("the host has cgroups");
        assert_eq!(settings.node.memory, 8 << 30);
        assert_eq!(settings.pids_limit, Some(64));
    }
}
