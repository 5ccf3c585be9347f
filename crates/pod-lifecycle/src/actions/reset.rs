//! Restart of all containers of a pod in its sandbox, after an exit that matches a rule with
//! `RestartAllContainers` (KEP-5532, gate `RestartAllContainersOnContainerExits`).
//!
//! The containers are killed with the minimum stop timeout and removed. Those whose exits cause it
//! are removed last, so that an interrupted reset continues. Ephemeral containers stay.

use windlass_types::corev1::Container;
use windlass_types::{ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt};

use super::restart::matching_rule;
use super::{ActionsInput, Decision};

/// An instance to kill and remove.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToReset {
    /// ID of the instance.
    pub id: ContainerId,
    /// Name in the pod spec.
    pub name: String,
    /// True if it may run.
    pub kill: bool,
    /// True if its exit causes the reset: it counts in the back-off table and is removed last.
    pub source: bool,
}

/// True during a restart of all containers of the pod (upstream `ShouldAllContainersRestart`).
pub fn restarts_all_containers(pod: &Pod, observed: &ObservedPod) -> bool {
    specs(pod).any(|spec| source(spec, observed).is_some())
}

impl Decision<'_> {
    /// Plans a reset; true if one is due. It waits for the back-off of the container that causes
    /// it.
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
            let source = source(spec, observed).map(|dead| dead.id.clone());
            for instance in observed.instances(&spec.name) {
                let reset = ContainerToReset {
                    id: instance.id.clone(),
                    name: instance.name.clone(),
                    kill: instance.state.may_run(),
                    source: source.as_ref() == Some(&instance.id),
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
