//! CPU, memory, device and topology managers: settings, the machine, and the state files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use windlass_config::Config;
use windlass_container_manager::{HostStateFiles, ManagerParts, Managers};
use windlass_resource_managers::cpu::CpuManager;
use windlass_resource_managers::memory::{MemoryManager, MemoryPolicy};
use windlass_resource_managers::topology::{TopologyManager, TopologyPolicy};
use windlass_topology::Machine;

use crate::wiring::{ContainerManagerParts, DevicePluginParts};

/// Shortest time between two updates of a container's CPUs that fail.
const MIN_CPU_RETRY: Duration = Duration::from_secs(1);

/// Builds the parts of the ContainerManager on a host with this memory in bytes. Blocks on the disk.
pub(super) fn container_manager_parts(
    config: &Config,
    memory: u64,
) -> anyhow::Result<ContainerManagerParts> {
    let root_dir = &config.flags.root_dir;
    let machine = machine(config)?;
    let files = HostStateFiles::new(root_dir);
    let state = |error: String| anyhow::Error::msg(error).context("state files under --root-dir");
    let topology = TopologyManager::new(config.topology_manager(), &machine)?;
    let mut cpus = CpuManager::new(&config.cpu_manager(), Arc::new(machine.clone()))
        .context("cpuManagerPolicy")?;
    let memory = config.memory_manager(&machine, memory)?;
    let mut memory = MemoryManager::new(memory, &machine);
    Managers::restore_files(&mut cpus, &mut memory, &files).map_err(state)?;
    let parts = ManagerParts {
        topology,
        cpus,
        reports_health: config.gates.enabled("ResourceHealthStatus"),
        unlimited_exclusive_cpus: config.gates.enabled("DisableCPUQuotaWithExclusiveCPUs"),
        cpu_retry: config
            .kubelet
            .cpu_manager_reconcile_period
            .to_std()
            .max(MIN_CPU_RETRY),
        memory,
        devices: Managers::restore_devices(&files).map_err(state)?,
        machine,
    };
    Ok(ContainerManagerParts {
        managers: Managers::new(parts),
        files: Some(Arc::new(files)),
        plugins: DevicePluginParts::Directory(root_dir.join("device-plugins")),
    })
}

/// Reads the machine. Only a policy that depends on its CPUs and nodes cannot do without.
///
/// The CPU capacity of the node is the number of online CPUs in `/proc/stat`. The two differ on a host
/// that hides CPUs in `/proc`, or reports no core of one in `/sys`.
fn machine(config: &Config) -> anyhow::Result<Machine> {
    let machine = Machine::read(Path::new("/sys"));
    let needs_it = config.cpu_manager().is_static
        || config.topology_manager().policy != TopologyPolicy::None
        || config.kubelet.memory_manager_policy == MemoryPolicy::Static.as_str();
    match machine {
        Err(error) if !needs_it => {
            tracing::warn!(%error, "CPU topology unknown");
            Ok(Machine::default())
        }
        machine => {
            let machine = machine?;
            let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
            if let Some(difference) = cpu_difference(&machine, super::cpu_count(&stat)) {
                tracing::warn!(
                    difference,
                    "CPUs of the topology are not those of the capacity"
                );
            }
            Ok(machine)
        }
    }
}

/// Returns how the CPUs of the machine differ from the CPU capacity.
fn cpu_difference(machine: &Machine, capacity: i64) -> Option<String> {
    let count = i64::try_from(machine.cpus.len()).unwrap_or(i64::MAX);
    (count != capacity).then(|| {
        let cpus = machine.all_cpus();
        format!("/sys has {count} CPUs with a known core ({cpus}), /proc/stat {capacity}")
    })
}

#[cfg(test)]
mod tests {
    use windlass_topology::fake::FakeMachine;

    use super::*;

    #[test]
    fn hidden_cpus_are_reported() {
        let machine = FakeMachine {
            cores: 4,
            ..FakeMachine::default()
        };
        let machine = machine.build();
        assert_eq!(cpu_difference(&machine, 4), None);
        let expected = "/sys has 4 CPUs with a known core (0-3), /proc/stat 2";
        assert_eq!(cpu_difference(&machine, 2).as_deref(), Some(expected));
    }
}
