//! All containers of a pod begin anew in its sandbox, because one exited with a code for which
//! its rules say `RestartAllContainers` (KEP-5532, gate `RestartAllContainersOnContainerExits`).
//!
//! The containers are killed with the least grace and removed. The ones whose exits ask for it go last:
//! while one of them is known, the reset is not through, whoever begins again with it. What
//! follows is an ordinary start of a pod without containers. Ephemeral containers stay.

use windlass_types::corev1::Container;
use windlass_types::{ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt};

use super::restart::matching_rule;
use super::{ActionsInput, Decision};

/// An instance to stop, if it lives, and to remove.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToReset {
    /// Which instance.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// It may be running.
    pub kill: bool,
    /// Its exit asks for the reset: it counts as a failure in the back-off table, and it goes
    /// when the others have gone.
    pub source: bool,
}

/// True if the end of some container of the pod asks for a restart of all of them, and they have
/// not been removed yet (upstream `ShouldAllContainersRestart`).
pub fn restarts_all_containers(pod: &Pod, observed: &ObservedPod) -> bool {
    specs(pod).any(|spec| source(spec, observed).is_some())
}

impl Decision<'_> {
    /// Decides on a reset; true if one is due. The container that asks for it waits for the end of
    /// its back-off like one that restarts alone, and the others go on meanwhile.
    pub(super) fn resets(&mut self) -> bool {
        let ActionsInput { pod, observed, .. } = self.input;
        let mut due = false;
        for spec in specs(pod) {
            if let Some(dead) = source(spec, observed) {
                let waits = self.is_backing_off(spec, dead);
                self.reset_waits |= waits;
                due |= !waits;
            }
        }
        if !due {
            return false;
        }
        self.reset_waits = false;
        self.actions.backing_off.clear();
        let mut sources = Vec::new();
        for spec in specs(pod) {
            let asks = source(spec, observed).map(|dead| dead.id.clone());
            for instance in observed.instances(&spec.name) {
                let reset = ContainerToReset {
                    id: instance.id.clone(),
                    name: instance.name.clone(),
                    kill: instance.state.may_run(),
                    source: asks.as_ref() == Some(&instance.id),
                };
                match reset.source {
                    true => sources.push(reset),
                    false => self.actions.containers_to_reset.push(reset),
                }
            }
        }
        self.actions.containers_to_reset.append(&mut sources);
        true
    }
}

fn specs(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.init_containers().iter().chain(pod.containers())
}

fn source<'a>(spec: &'a Container, observed: &'a ObservedPod) -> Option<&'a ObservedContainer> {
    let latest = observed.latest(&spec.name)?;
    if latest.state != ContainerState::Exited {
        return None;
    }
    let rule = matching_rule(spec, latest.exit_code)?;
    (rule.action == "RestartAllContainers").then_some(latest)
}
