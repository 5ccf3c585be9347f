//! CPUs of running containers: which of them have others than they should. Pure.

use std::collections::BTreeMap;

use windlass_topology::CpuSet;
use windlass_types::{ContainerId, ContainerState, ObservedPod};

use crate::managers::Managers;

/// A running container whose CPUs change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuUpdate {
    /// ID of the instance.
    pub(crate) id: ContainerId,
    /// Its CPUs.
    pub(crate) cpus: CpuSet,
}

/// Returns the updates of a pod's containers. `known` has the CPUs that the runtime accepted; those
/// of other instances are as the runtime reports them.
pub(crate) fn updates(
    managers: &Managers,
    observed: &ObservedPod,
    known: &BTreeMap<ContainerId, CpuSet>,
) -> Vec<CpuUpdate> {
    let running = observed.containers.iter();
    let running = running.filter(|it| it.state == ContainerState::Running);
    let updates = running.filter_map(|instance| {
        // an empty set would be all CPUs
        let cpus = managers.cpus.cpus_of(&observed.uid, &instance.name)?;
        let reported = instance.resources.as_ref();
        let reported = || reported?.cpuset_cpus.parse::<CpuSet>().ok();
        let present = known.get(&instance.id).cloned().or_else(reported);
        (!cpus.is_empty() && present.as_ref() != Some(cpus)).then(|| CpuUpdate {
            id: instance.id.clone(),
            cpus: cpus.clone(),
        })
    });
    updates.collect()
}
