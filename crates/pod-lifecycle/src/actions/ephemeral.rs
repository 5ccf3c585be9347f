//! Ephemeral containers, which start once in a running pod.

use windlass_types::corev1::{Container, EphemeralContainer};
use windlass_types::{ContainerState, Pod, PodExt};

use super::{ActionsInput, ContainerKind, Decision};

/// Returns `spec.ephemeralContainers`.
pub fn ephemeral_containers(pod: &Pod) -> &[EphemeralContainer] {
    let list = PodExt::spec(pod).ephemeral_containers.as_deref();
    list.unwrap_or_default()
}

/// Converts an ephemeral container to a container, without its target.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let e = ephemeral.clone();
    Container {
        args: e.args,
        command: e.command,
        env: e.env,
        env_from: e.env_from,
        image: e.image,
        image_pull_policy: e.image_pull_policy,
        lifecycle: e.lifecycle,
        liveness_probe: e.liveness_probe,
        name: e.name,
        ports: e.ports,
        readiness_probe: e.readiness_probe,
        resize_policy: e.resize_policy,
        resources: e.resources,
        restart_policy: e.restart_policy,
        restart_policy_rules: e.restart_policy_rules,
        security_context: e.security_context,
        startup_probe: e.startup_probe,
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path,
        termination_message_policy: e.termination_message_policy,
        tty: e.tty,
        volume_devices: e.volume_devices,
        volume_mounts: e.volume_mounts,
        working_dir: e.working_dir,
    }
}

/// Returns a container of the pod by kind and index.
pub fn find_container(pod: &Pod, kind: ContainerKind, index: usize) -> Option<Container> {
    match kind {
        ContainerKind::Init => pod.init_containers().get(index).cloned(),
        ContainerKind::App => pod.containers().get(index).cloned(),
        ContainerKind::Ephemeral => ephemeral_containers(pod).get(index).map(as_container),
    }
}

impl Decision<'_> {
    /// Starts the ephemeral containers that have not run, by their instances and the pod status.
    pub(super) fn start_ephemeral(&mut self) {
        let ActionsInput { pod, observed, .. } = self.input;
        for (index, ephemeral) in ephemeral_containers(pod).iter().enumerate() {
            let has_run = match observed.latest(&ephemeral.name) {
                Some(latest) => latest.state != ContainerState::Created,
                None => ran_before(pod, &ephemeral.name),
            };
            if has_run {
                continue;
            }
            let spec = as_container(ephemeral);
            if let Some(start) = self.start(&spec, index, ContainerKind::Ephemeral) {
                self.actions.ephemeral_to_start.push(start);
            }
        }
    }
}

fn ran_before(pod: &Pod, name: &str) -> bool {
    let status = pod.status.as_ref();
    let list = status.and_then(|s| s.ephemeral_container_statuses.as_deref());
    let mut list = list.unwrap_or_default().iter();
    list.any(|s| s.name == name && s.container_id.as_deref().is_some_and(|id| !id.is_empty()))
}
