//! Names of sandboxes and containers, and the errors for those that are missing.

use windlass_cri::CriCode;
use windlass_types::cri::{ContainerConfig, SandboxConfig};
use windlass_types::{ContainerId, SandboxId};

use super::model::CallError;

/// Returns the reserved name of a sandbox, as in the CRI plugin of containerd.
pub(super) fn sandbox_name(config: &SandboxConfig) -> String {
    format!(
        "{}_{}_{}_{}",
        config.name, config.namespace, config.uid, config.attempt
    )
}

/// Returns the reserved name of a container.
pub(super) fn container_name(config: &ContainerConfig, sandbox: &SandboxConfig) -> String {
    let pod = format!("{}_{}_{}", sandbox.name, sandbox.namespace, sandbox.uid);
    format!("{}_{pod}_{}", config.name, config.attempt)
}

pub(super) fn sandbox_subject(config: &SandboxConfig) -> String {
    format!("{}/{}", config.namespace, config.name)
}

pub(super) fn no_sandbox(id: &SandboxId) -> CallError {
    let message = format!("an error occurred when try to find sandbox \"{id}\": not found");
    (CriCode::NotFound, message)
}

pub(super) fn no_container(id: &ContainerId) -> CallError {
    let message = format!("an error occurred when try to find container \"{id}\": not found");
    (CriCode::NotFound, message)
}

pub(super) fn sandbox_not_running(id: &SandboxId) -> CallError {
    (
        CriCode::Other,
        format!("sandbox container \"{id}\" is not running"),
    )
}
