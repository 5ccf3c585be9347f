//! The request to create a container (upstream `generateContainerConfig`).
//!
//! The parts are in submodules: `security` has user and privileges, `annotations` labels and
//! annotations, `mounts` the mounts, and [`sub_paths`](self::sub_paths()) the volume subpaths.

mod annotations;
mod devices;
mod mounts;
mod security;
mod sub_paths;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use windlass_types::corev1::Container;
use windlass_types::cri::{ContainerConfig, UserNamespace};
use windlass_types::{MountedVolumes, Pod, names};

pub use annotations::restored_container;

use crate::config_error::ConfigError;
use crate::image_volumes::MountedImages;
use crate::sandbox_config::identity_labels;
use windlass_pod_inputs::env::{EnvFiles, EnvInput, EnvSources, environment, expand_words};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::paths::{check_pod_names, container_log_path};
use windlass_pod_inputs::resources::{check_amounts, container_resources};
use windlass_volume_plan::volume_source::PodVolume;

pub use mounts::{gets_hosts_file, wants_recursive_read_only};
pub use sub_paths::{SUB_PATHS_DIR, SubPath, sub_paths};

/// Default path of the termination message.
pub(crate) const DEFAULT_TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";

/// Who the image says its process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Numeric user, if the image has one.
    pub uid: Option<i64>,
    /// User name, if the image has that instead. With neither the image runs as root.
    pub username: String,
}

/// What a container is made of.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container, from `initContainers` or `containers`.
    pub container: &'a Container,
    /// Restart count of the new instance; also its attempt.
    pub restart_count: u32,
    /// Image to run: the ID or digest the runtime resolved.
    pub image_ref: &'a str,
    /// The image's user.
    pub image_user: &'a ImageUser,
    /// Addresses of the pod, primary first; empty for host network.
    pub pod_ips: &'a [IpAddr],
    /// The node.
    pub node: &'a NodeFacts,
    /// The pod's volumes as they were set up.
    pub volumes: &'a MountedVolumes,
    /// What they are.
    pub pod_volumes: &'a [PodVolume],
    /// Images that it mounts, by the names of their volumes.
    pub images: &'a MountedImages,
    /// The runtime's handler makes mounts read-only with everything below them.
    pub recursive_read_only: bool,
    /// The pod's `etc-hosts` file, written before; `None` if the pod gets none.
    pub hosts_file: Option<&'a Path>,
    /// The instance's termination log, created before; `None` mounts none.
    pub termination_log: Option<&'a Path>,
    /// ConfigMaps, Secrets and services for the environment.
    pub env_sources: &'a EnvSources,
    /// What the files say that variables of this container come from.
    pub env_files: &'a EnvFiles,
    /// The pod's user and group IDs: those of its sandbox.
    pub users: UserNamespace,
}

impl<'a> ContainerInput<'a> {
    fn env(self) -> EnvInput<'a> {
        EnvInput {
            pod: self.pod,
            container: self.container,
            pod_ips: self.pod_ips,
            node: self.node,
            sources: self.env_sources,
            files: self.env_files,
        }
    }
}

/// Makes the request.
///
/// # Errors
/// Something the container asks for is not valid, not there or not supported: the container
/// waits with `CreateContainerConfigError`.
pub fn container_config(input: ContainerInput<'_>) -> Result<ContainerConfig, ConfigError> {
    let ContainerInput { pod, container, .. } = input;
    check_pod_names(pod)?;
    check_amounts(pod)?;
    security::verify_run_as_non_root(input)?;
    let envs = environment(input.env())?;
    let mut labels = BTreeMap::from(identity_labels(pod));
    labels.insert(
        names::LABEL_CONTAINER_NAME.to_owned(),
        container.name.clone(),
    );
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt: input.restart_count,
        image: input.image_ref.to_owned(),
        user_specified_image: container.image.clone().unwrap_or_default(),
        command: expand_words("command", container.command.as_ref(), &envs)?,
        args: expand_words("args", container.args.as_ref(), &envs)?,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        mounts: mounts::mounts(input, &envs)?,
        devices: devices::devices(input)?,
        labels,
        annotations: annotations::annotations(pod, container, input.restart_count),
        log_path: container_log_path(&container.name, input.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        stop_signal: stop_signal(container, input.node),
        resources: container_resources(pod, container, input.node),
        security: security::container_security(input)?,
        envs,
    })
}

/// The signal that stops a container, empty for its image's.
fn stop_signal(container: &Container, node: &NodeFacts) -> String {
    let lifecycle = container.lifecycle.as_ref();
    let signal = lifecycle.and_then(|l| l.stop_signal.clone());
    signal.filter(|_| node.stop_signals).unwrap_or_default()
}

/// Where the container writes its termination message: `terminationMessagePath` or its default.
pub(crate) fn termination_message_path(container: &Container) -> &str {
    match container.termination_message_path.as_deref() {
        Some(path) if !path.is_empty() => path,
        _ => DEFAULT_TERMINATION_MESSAGE_PATH,
    }
}

#[cfg(test)]
mod tests;
