//! Collects the inputs of sandbox and container configurations.

use std::path::Path;

use windlass_node_rules::admission::STRICT_NOT_SUPPORTED;
use windlass_pod_inputs::env::{
    EnvError, EnvFile, EnvFiles, MAX_ENV_FILES_BYTES, referenced_files,
};
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_runtime_config::config_error::ConfigError;
use windlass_runtime_config::container_config::{
    ContainerInput, ImageUser, SubPath, container_config, gets_hosts_file, sub_paths, without_quota,
};
use windlass_runtime_config::dns::pod_dns;
use windlass_runtime_config::hosts::{hosts_file, pod_hostname};
use windlass_runtime_config::image_volumes::MountedImages;
use windlass_runtime_config::sandbox_config::{
    SandboxInput, sandbox_config, supplemental_groups_policy, wants_user_namespace,
};
use windlass_types::corev1::Container;
use windlass_types::cri::{
    ContainerConfig, SandboxConfig, SupplementalGroupsPolicy, UserNamespace,
};
use windlass_types::view::EventType;
use windlass_types::{MountedVolume, Pod, PodExt, Reason, Retry};

use crate::PodRuntime;
use crate::images::PresentImage;
use crate::request::StartFailure;
use crate::sync::{Sandbox, SyncPass};
use crate::termination::termination_log_path;
use windlass_runtime_config::port::PodInputs;

/// The node's hosts file, the base for pods on the host network.
const NODE_HOSTS: &str = "/etc/hosts";

impl PodRuntime {
    /// Creates the sandbox configuration of a pod. The resolver file is read each time, as it may
    /// change. `announce` records events for DNS problems.
    pub(crate) async fn make_sandbox_config(
        &self,
        pod: &Pod,
        inputs: &PodInputs,
        attempt: u32,
        cgroup_parent: &str,
        announce: bool,
    ) -> Result<SandboxConfig, StartFailure> {
        let deps = self.deps();
        let invalid =
            |text: String, retry| StartFailure::for_pod(Reason::CreatePodSandboxError, text, retry);
        let users = self.isolation(pod, inputs).await?;
        let resolv_conf = match &deps.node.resolv_conf {
            None => None,
            Some(path) => Some(
                deps.files
                    .read_node_file(path)
                    .await
                    .map_err(|error| invalid(error.to_string(), error.retry()))?,
            ),
        };
        let dns = pod_dns(pod, &deps.node, resolv_conf.as_deref())
            .map_err(|error| invalid(error.to_string(), Retry::Later))?;
        for warning in dns.warnings.iter().filter(|_| announce) {
            let events = &deps.events;
            events.record(
                pod,
                None,
                EventType::Warning,
                warning.reason,
                &warning.message,
            );
        }
        let mut config = sandbox_config(SandboxInput {
            pod,
            attempt,
            node: &deps.node,
            dns: &dns.config,
            cgroup_parent,
            runtime_class_resolved: inputs.runtime_handler.is_some(),
            volumes: &inputs.volumes,
            users,
        })
        .map_err(|error| invalid(error.to_string(), error.retry()))?;
        if !self.exclusive_cpus(pod).is_empty()
            && let Some(resources) = &mut config.resources
        {
            without_quota(resources);
        }
        Ok(config)
    }

    /// RuntimeClass handler of a pod's sandbox.
    pub(crate) fn handler<'a>(&'a self, inputs: &'a PodInputs) -> &'a str {
        match inputs.runtime_handler.as_deref() {
            Some(handler) if !handler.is_empty() => handler,
            _ => &self.deps().options.handler,
        }
    }

    /// Checks isolation features that an older runtime would silently ignore. The runtime status is
    /// read only for pods that use them.
    async fn isolation(
        &self,
        pod: &Pod,
        inputs: &PodInputs,
    ) -> Result<UserNamespace, StartFailure> {
        let failed =
            |text: String, retry| StartFailure::for_pod(Reason::CreatePodSandboxError, text, retry);
        let policy = supplemental_groups_policy(pod)
            .map_err(|error| failed(error.to_string(), error.retry()))?;
        let strict = policy == SupplementalGroupsPolicy::Strict;
        if !strict && !wants_user_namespace(pod) {
            return Ok(UserNamespace::Node);
        }
        let status = self.deps().runtime.status().await;
        let status = status.map_err(|error| failed(error.message.clone(), error.retry()))?;
        if strict && status.supplemental_groups_policy != Some(true) {
            return Err(failed(STRICT_NOT_SUPPORTED.to_owned(), Retry::Later));
        }
        self.pod_users(pod, self.handler(inputs), &status)
            .await
            .map_err(|error| failed(error.to_string(), error.retry()))
    }
}

/// Inputs of a container configuration besides the pod and the node.
#[derive(Clone, Copy)]
pub(crate) struct ContainerFacts<'a> {
    /// The container.
    pub(crate) container: &'a Container,
    /// Its image.
    pub(crate) image: &'a PresentImage,
    /// The images that it mounts.
    pub(crate) mounted: &'a MountedImages,
    /// Its pod's sandbox.
    pub(crate) sandbox: &'a Sandbox,
    /// Attempt of the container instance.
    pub(crate) restart_count: u32,
    /// Environment files from volumes.
    pub(crate) env_files: &'a EnvFiles,
    /// Whether the runtime handler supports recursive read-only mounts.
    pub(crate) recursive_read_only: bool,
    /// What the resource managers assign to it.
    pub(crate) assignment: &'a ContainerAssignment,
}

impl SyncPass<'_> {
    /// Creates the configuration of one container, and the subPaths to bind before its creation.
    pub(crate) fn make_container_config(
        &self,
        facts: ContainerFacts<'_>,
    ) -> Result<(ContainerConfig, Vec<SubPath>), ConfigError> {
        let ContainerFacts {
            container,
            image,
            sandbox,
            restart_count,
            ..
        } = facts;
        let deps = self.runtime.deps();
        let pod = self.pod();
        let (uid, node_paths) = (pod.uid(), &deps.node.paths);
        let termination_log =
            termination_log_path(node_paths, &uid, &container.name, restart_count);
        let input = ContainerInput {
            pod,
            container,
            restart_count,
            image_ref: &image.image_ref,
            image_user: &ImageUser {
                uid: image.info.uid,
                username: image.info.username.clone(),
            },
            pod_ips: &sandbox.ips,
            node: &deps.node,
            volumes: &self.req.volumes,
            pod_volumes: &self.req.inputs.volumes,
            images: facts.mounted,
            recursive_read_only: facts.recursive_read_only,
            hosts_file: Some(&deps.node.paths.etc_hosts(&pod.uid())),
            termination_log: Some(&termination_log),
            env_sources: &self.req.inputs.env,
            env_files: facts.env_files,
            users: sandbox.config.security.namespaces.users,
            assignment: facts.assignment,
        };
        let made = container_config(input);
        let made = made.and_then(|config| Ok((config, sub_paths(input)?)));
        made.inspect_err(|error| {
            // upstream's message omits the cause
            if let ConfigError::Env(EnvError::File { path, cause }) = error {
                tracing::warn!(pod = %pod.full_name(), path, cause, "variables not read");
            }
        })
    }

    /// Reads the environment files of a container, which the pod wrote into its volumes.
    pub(crate) async fn read_env_files(&self, container: &Container) -> EnvFiles {
        let deps = self.runtime.deps();
        let mut files = EnvFiles::default();
        if !deps.node.env_files {
            return files;
        }
        let uid = self.pod().uid();
        let mut room = MAX_ENV_FILES_BYTES;
        for key in referenced_files(container) {
            let volume = self.req.volumes.get(&key.volume);
            let Some(volume) = volume.and_then(MountedVolume::path) else {
                continue;
            };
            let read = deps.files.read_volume_file(&uid, volume, &key.path).await;
            let mut text = read.map_err(|error| error.to_string());
            let length = text.as_ref().map_or(0, String::len);
            match room.checked_sub(length) {
                Some(left) => room = left,
                None => {
                    text = Err(format!(
                        "all files together have over {MAX_ENV_FILES_BYTES} bytes"
                    ))
                }
            }
            let host_path = volume.join(&key.path).display().to_string();
            let file = EnvFile { host_path, text };
            files.0.insert(key, file);
        }
        files
    }

    /// Writes the pod's hosts file before each container start: host aliases and, on the host
    /// network, the node's file may have changed.
    pub(crate) async fn write_hosts(
        &self,
        sandbox: &Sandbox,
        container: &Container,
    ) -> Result<(), StartFailure> {
        let deps = self.runtime.deps();
        let pod = self.pod();
        if !gets_hosts_file(pod, container, &sandbox.ips) {
            return Ok(());
        }
        let node_hosts = if pod.host_network() {
            // a missing file is empty
            let text = deps.files.read_node_file(Path::new(NODE_HOSTS)).await;
            text.unwrap_or_default()
        } else {
            String::new()
        };
        let failed = |text: String, retry| self.config_failure(container, text, retry);
        let name = pod_hostname(pod, &deps.node)
            .map_err(|error| failed(error.to_string(), Retry::Never))?;
        let content = hosts_file(pod, &name, &sandbox.ips, &node_hosts);
        deps.files
            .write_hosts_file(&pod.uid(), &content)
            .await
            .map_err(|error| failed(error.to_string(), error.retry()))
    }
}
