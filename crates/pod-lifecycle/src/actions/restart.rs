//! Container restarts and sandbox replacement.
//!
//! Mirrors upstream `ShouldContainerBeRestarted`, `ContainerShouldRestart` and `PodSandboxChanged`.
//! A container's `restartPolicy` and `restartPolicyRules` precede the pod's policy.

use windlass_types::corev1::{Container, ContainerRestartRule};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::pod::RestartPolicy;
use windlass_types::{ContainerState, ObservedContainer, ObservedPod, Pod, PodExt, SandboxId};

/// True if a container restarts after this exit code.
pub fn restarts_after_exit(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    if matching_rule(container, exit_code).is_some() {
        return true;
    }
    match policy_of(pod, container) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// Returns the first restart rule of the container that matches the exit code.
pub(super) fn matching_rule(
    container: &Container,
    exit_code: i32,
) -> Option<&ContainerRestartRule> {
    let rules = container.restart_policy_rules.as_deref()?;
    rules.iter().find(|rule| {
        let Some(on) = &rule.exit_codes else {
            return false;
        };
        let listed = on.values.iter().flatten().any(|v| *v == exit_code);
        match on.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    })
}

/// True if a container with the newest instance `latest` must be started.
pub fn should_be_started(
    pod: &Pod,
    container: &Container,
    latest: Option<&ObservedContainer>,
) -> bool {
    let Some(latest) = latest else { return true };
    match latest.state {
        ContainerState::Created => !mutated(Mutation::CreatedContainerStays),
        ContainerState::Unknown => true,
        ContainerState::Running => false,
        ContainerState::Exited => restarts_after_exit(pod, container, latest.exit_code),
    }
}

/// True if no app container may run twice.
pub(crate) fn never_restarts(pod: &Pod) -> bool {
    pod.restart_policy() == RestartPolicy::Never
        && pod.containers().iter().all(|c| {
            c.restart_policy_rules.iter().flatten().next().is_none()
                && policy_of(pod, c) == RestartPolicy::Never
        })
}

/// Returns the effective restart policy of a container.
pub(crate) fn policy_of(pod: &Pod, container: &Container) -> RestartPolicy {
    match container.restart_policy.as_deref() {
        Some("Always") => RestartPolicy::Always,
        Some("OnFailure") => RestartPolicy::OnFailure,
        Some("Never") => RestartPolicy::Never,
        _ => pod.restart_policy(),
    }
}

/// Decision about the sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxDecision {
    /// Use the newest sandbox with its attempt.
    Keep(SandboxId, u32),
    /// Create a sandbox.
    Create {
        /// Its attempt.
        attempt: u32,
    },
}

/// Decides on the sandbox: only the newest may be ready, with the desired network namespace and an
/// IP.
pub fn sandbox_decision(pod: &Pod, observed: &ObservedPod) -> SandboxDecision {
    let Some(newest) = observed.newest_sandbox() else {
        return SandboxDecision::Create { attempt: 0 };
    };
    let ready = observed.sandboxes.iter().filter(|s| s.ready).count();
    let unknown = mutated(Mutation::SecondSandbox) && observed.containers.is_empty();
    let usable = ready == 1
        && !unknown
        && newest.ready
        && newest.host_network == pod.host_network()
        && (newest.host_network || !newest.ips.is_empty());
    if usable {
        SandboxDecision::Keep(newest.id.clone(), newest.attempt)
    } else {
        SandboxDecision::Create {
            attempt: newest.attempt + 1,
        }
    }
}
