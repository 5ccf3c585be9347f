//! Configuration of a container (upstream `generateContainerConfig`).
//!
//! Submodules: `security` for user and privileges, `annotations` for labels and annotations,
//! `mounts` for mounts, and [`sub_paths`](self::sub_paths()) for volume subpaths.

mod annotations;
mod devices;
mod mounts;
mod security;
mod sub_paths;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_types::corev1::Container;
use windlass_types::cri::{ContainerConfig, LinuxResources, UserNamespace};
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

/// User of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    /// Numeric user, if set.
    pub uid: Option<i64>,
    /// User name, if set instead. Without both the container runs as root.
    pub username: String,
}

/// Input of [`container_config`].
#[derive(Clone, Copy, Debug)]
pub struct ContainerInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container, from `initContainers` or `containers`.
    pub container: &'a Container,
    /// Restart count and attempt of the new instance.
    pub restart_count: u32,
    /// Image ID or digest from the runtime.
    pub image_ref: &'a str,
    /// The image's user.
    pub image_user: &'a ImageUser,
    /// Addresses of the pod, primary first; empty for host network.
    pub pod_ips: &'a [IpAddr],
    /// The node.
    pub node: &'a NodeFacts,
    /// Mounted volumes of the pod.
    pub volumes: &'a MountedVolumes,
    /// Definitions of the volumes.
    pub pod_volumes: &'a [PodVolume],
    /// Mounted images, by volume name.
    pub images: &'a MountedImages,
    /// The handler supports recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The `etc-hosts` file of the pod, if any.
    pub hosts_file: Option<&'a Path>,
    /// The termination log of the instance, if any.
    pub termination_log: Option<&'a Path>,
    /// ConfigMaps, Secrets and services for the environment.
    pub env_sources: &'a EnvSources,
    /// Contents of the files that variables refer to.
    pub env_files: &'a EnvFiles,
    /// The pod's user and group IDs: those of its sandbox.
    pub users: UserNamespace,
    /// What the resource managers assign.
    pub assignment: &'a ContainerAssignment,
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

/// Creates the configuration.
///
/// # Errors
/// A field is invalid, missing or not supported: the container waits with
/// `CreateContainerConfigError`.
pub fn container_config(input: ContainerInput<'_>) -> Result<ContainerConfig, ConfigError> {
    let ContainerInput { pod, container, .. } = input;
    check_pod_names(pod)?;
    check_amounts(pod)?;
    security::verify_run_as_non_root(input)?;
    let envs = environment(input.env())?;
    let assigned = input.assignment;
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
        mounts: joined(&assigned.mounts, mounts::mounts(input, &envs)?),
        devices: joined(&assigned.devices, devices::devices(input)?),
        cdi_devices: assigned.cdi_devices.clone(),
        labels,
        annotations: {
            let own = annotations::annotations(pod, container, input.restart_count);
            assigned
                .annotations
                .clone()
                .into_iter()
                .chain(own)
                .collect()
        },
        log_path: container_log_path(&container.name, input.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        stop_signal: stop_signal(container, input.node),
        resources: assigned_resources(container_resources(pod, container, input.node), assigned),
        security: security::container_security(input)?,
        envs: with_assigned(&assigned.envs, envs),
    })
}

/// What is assigned comes first, as upstream.
fn joined<T: Clone>(assigned: &[T], own: Vec<T>) -> Vec<T> {
    let mut all = assigned.to_vec();
    all.extend(own);
    all
}

/// Adds the assigned variables that the spec does not set.
fn with_assigned(
    assigned: &BTreeMap<String, String>,
    own: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let is_new = |name: &str| own.iter().all(|(other, _)| other != name);
    let assigned = assigned.iter().filter(|(name, _)| is_new(name));
    let mut all: Vec<_> = assigned.map(|(k, v)| (k.clone(), v.clone())).collect();
    all.extend(own);
    all
}

fn assigned_resources(
    mut resources: LinuxResources,
    assigned: &ContainerAssignment,
) -> LinuxResources {
    if assigned.exclusive_cpus {
        without_quota(&mut resources);
    }
    let cpus = assigned.cpus.as_ref().filter(|cpus| !cpus.is_empty());
    resources.cpuset_cpus = cpus.map(ToString::to_string).unwrap_or_default();
    let nodes = assigned.memory_nodes.filter(|nodes| !nodes.is_empty());
    let nodes = nodes.map(|nodes| nodes.to_string());
    resources.cpuset_mems = nodes.unwrap_or_default();
    resources
}

/// Removes the CFS quota, because of exclusive CPUs.
pub fn without_quota(resources: &mut LinuxResources) {
    if resources.cpu_period != 0 {
        resources.cpu_quota = -1;
    }
}

/// Returns the stop signal; empty is that of the image.
fn stop_signal(container: &Container, node: &NodeFacts) -> String {
    let lifecycle = container.lifecycle.as_ref();
    let signal = lifecycle.and_then(|l| l.stop_signal.clone());
    signal.filter(|_| node.stop_signals).unwrap_or_default()
}

/// Returns `terminationMessagePath` or its default.
pub(crate) fn termination_message_path(container: &Container) -> &str {
    match container.termination_message_path.as_deref() {
        Some(path) if !path.is_empty() => path,
        _ => DEFAULT_TERMINATION_MESSAGE_PATH,
    }
}

#[cfg(test)]
mod tests;
