//! Changes of the resources of sandboxes and running containers.

use windlass_cri::CriCode;
use windlass_types::cri::LinuxResources;
use windlass_types::{ContainerId, ContainerState, SandboxId};

use super::FakeRuntime;
use super::identity::{no_container, no_sandbox};
use super::model::{CallError, Model};

/// How the runtime reports the resources of containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportedResources {
    /// As set.
    #[default]
    Exact,
    /// CPU shares as the kernel's weight of cgroup v2 has them: not all values exist.
    RoundedShares,
    /// Not at all, as old runtimes.
    Nothing,
}

impl ReportedResources {
    pub(super) fn report(self, set: &LinuxResources) -> Option<LinuxResources> {
        match self {
            Self::Exact => Some(set.clone()),
            Self::RoundedShares => Some(LinuxResources {
                cpu_shares: (set.cpu_shares / 26).max(1) * 26,
                ..set.clone()
            }),
            Self::Nothing => None,
        }
    }
}

impl FakeRuntime {
    /// Sets how resources are reported.
    pub fn report_resources(&self, reported: ReportedResources) {
        self.driver
            .change(|state| state.model.reported_resources = reported);
    }

    /// Returns the resources of a container in the runtime.
    pub fn resources(&self, id: &ContainerId) -> Option<LinuxResources> {
        Some(self.container_config(id)?.resources)
    }
}

impl Model {
    pub(super) fn resize_container(
        &mut self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> Result<(), CallError> {
        let container = self.containers.get_mut(id);
        let container = container.ok_or_else(|| no_container(id))?;
        if !matches!(
            container.state,
            ContainerState::Created | ContainerState::Running
        ) {
            let message = format!("container \"{id}\" is in {:?} state", container.state);
            return Err((CriCode::Other, message));
        }
        merge(&mut container.config.resources, resources);
        Ok(())
    }

    pub(super) fn resize_sandbox(
        &mut self,
        id: &SandboxId,
        resources: &LinuxResources,
    ) -> Result<(), CallError> {
        let sandbox = self.sandboxes.get_mut(id).ok_or_else(|| no_sandbox(id))?;
        sandbox.config.resources = Some(resources.clone());
        Ok(())
    }
}

/// Replaces what is set, as containerd: a new OOM score is ignored.
fn merge(current: &mut LinuxResources, newer: &LinuxResources) {
    for (current, newer) in [
        (&mut current.cpu_period, newer.cpu_period),
        (&mut current.cpu_quota, newer.cpu_quota),
        (&mut current.cpu_shares, newer.cpu_shares),
        (&mut current.memory_limit, newer.memory_limit),
        (&mut current.memory_swap_limit, newer.memory_swap_limit),
    ] {
        if newer != 0 {
            *current = newer;
        }
    }
    for (current, newer) in [
        (&mut current.cpuset_cpus, &newer.cpuset_cpus),
        (&mut current.cpuset_mems, &newer.cpuset_mems),
    ] {
        if !newer.is_empty() {
            current.clone_from(newer);
        }
    }
    current.unified.extend(newer.unified.clone());
}
