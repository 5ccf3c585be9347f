//! Containers to stop or remove, with their causes and event messages.

use std::time::Duration;

use windlass_types::{ContainerId, ContainerState, ObservedContainer, ProbeKind};

use super::Decision;

/// Cause of the stop or removal of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillCause {
    /// Its definition changed.
    SpecChanged,
    /// Its allocated resources changed, and its `resizePolicy` requires a restart.
    Resized,
    /// Its liveness or startup probe failed.
    ProbeFailed(ProbeKind),
    /// It is not in the pod spec.
    NotInSpec,
    /// It runs in an outdated sandbox.
    OutdatedSandbox,
    /// A newer instance exists.
    NewerInstance,
    /// An init container that runs after its pod was initialized.
    Initialized,
    /// Its state is unknown, so it may run.
    UnknownState,
    /// It was created but never started.
    NeverStarted,
}

impl KillCause {
    /// Returns the failed probe.
    pub fn probe(self) -> Option<ProbeKind> {
        match self {
            Self::ProbeFailed(kind) => Some(kind),
            _ => None,
        }
    }

    /// Returns the message of the `Killing` event; `label` is `Container` or `Init container`.
    pub(super) fn message(self, label: &str, name: &str) -> String {
        match self {
            Self::SpecChanged => format!("{label} {name} definition changed"),
            Self::Resized => format!("Container {name} resize requires restart"),
            Self::ProbeFailed(kind) => {
                let kind = kind.as_str().to_ascii_lowercase();
                format!("{label} {name} failed {kind} probe")
            }
            Self::NotInSpec => format!("{label} {name} is no longer part of the pod"),
            Self::OutdatedSandbox => format!("{label} {name} runs in an outdated sandbox"),
            Self::NewerInstance => format!("{label} {name} has a newer instance"),
            Self::Initialized => format!("{label} {name} runs in an initialized pod"),
            Self::UnknownState => {
                format!("{label} is in \"unknown\" state, try killing it before restart")
            }
            Self::NeverStarted => format!("{label} {name} was never started"),
        }
    }
}

/// A container to stop or remove.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToKill {
    /// ID of the instance.
    pub id: ContainerId,
    /// Name in the pod spec.
    pub name: String,
    /// Cause.
    pub cause: KillCause,
    /// Message of the `Killing` event.
    pub message: String,
    /// Probe grace period.
    pub grace: Option<Duration>,
    /// True for an instance that was never started: remove it, so that the next instance can use
    /// its name and attempt.
    pub remove: bool,
}

impl Decision<'_> {
    pub(super) fn kill(&mut self, instance: &ObservedContainer, cause: KillCause) {
        let message = cause.message("Container", &instance.name);
        self.kill_with(instance, cause, message, None);
    }

    pub(super) fn kill_init(&mut self, instance: &ObservedContainer, cause: KillCause) {
        let message = cause.message("Init container", &instance.name);
        self.kill_with(instance, cause, message, None);
    }

    pub(super) fn kill_with(
        &mut self,
        instance: &ObservedContainer,
        cause: KillCause,
        message: String,
        grace: Option<Duration>,
    ) {
        let kills = &mut self.actions.containers_to_kill;
        if kills.iter().any(|k| k.id == instance.id) {
            return;
        }
        kills.push(ContainerToKill {
            id: instance.id.clone(),
            name: instance.name.clone(),
            cause,
            message,
            grace,
            remove: instance.state == ContainerState::Created,
        });
    }
}
