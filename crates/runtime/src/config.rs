//! Collects what the configurations of a sandbox and its containers are made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use windlass_core::config_error::ConfigError;
use windlass_core::container_config::{ContainerInput, ImageUser, container_config};
use windlass_core::dns::pod_dns;
use windlass_core::hosts::{hosts_file, pod_hostname};
use windlass_core::sandbox_config::{SandboxInput, sandbox_config};
use windlass_types::corev1::Container;
use windlass_types::cri::{ContainerConfig, SandboxConfig};
use windlass_types::view::EventType;
use windlass_types::{Pod, PodExt, Reason, Retry};
use windlass_volumes::volume_path;

use crate::PodRuntime;
use crate::images::PresentImage;
use crate::inputs::PodInputs;
use crate::request::StartFailure;
use crate::sync::{Pass, Sandbox};
use crate::termination::termination_log_path;

/// The node's own names, the base for pods on its network.
const NODE_HOSTS: &str = "/etc/hosts";

impl PodRuntime {
    /// The request for a pod's sandbox. The resolver file is read each time: it may change
    /// under a running agent. `announce` tells the user what is wrong with the pod's DNS.
    pub(crate) async fn make_sandbox_config(
        &self,
        pod: &Pod,
        inputs: &PodInputs,
        attempt: u32,
        announce: bool,
    ) -> Result<SandboxConfig, StartFailure> {
        let deps = self.deps();
        let invalid =
            |text: String, retry| StartFailure::of_pod(Reason::CreatePodSandboxError, text, retry);
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
        sandbox_config(SandboxInput {
            pod,
            attempt,
            node: &deps.node,
            dns: &dns.config,
            cgroup_parent: &deps.options.cgroup_parent,
            runtime_class_resolved: inputs.runtime_handler.is_some(),
        })
        .map_err(|error| invalid(error.to_string(), error.retry()))
    }
}

impl Pass<'_> {
    /// The request for one container.
    pub(crate) fn make_container_config(
        &self,
        container: &Container,
        image: &PresentImage,
        sandbox: &Sandbox,
        restart_count: u32,
    ) -> Result<ContainerConfig, ConfigError> {
        let deps = self.runtime.deps();
        let pod = self.pod();
        let (uid, node_paths) = (pod.uid(), &deps.node.paths);
        let termination_log =
            termination_log_path(node_paths, &uid, &container.name, restart_count);
        let pod_dir = node_paths.pod_dir(&uid);
        let volumes: BTreeMap<String, PathBuf> = PodExt::spec(pod)
            .volumes
            .iter()
            .flatten()
            .filter_map(|v| Some((v.name.clone(), volume_path(&pod_dir, v)?)))
            .collect();
        container_config(ContainerInput {
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
            volumes: &volumes,
            hosts_file: Some(&deps.node.paths.etc_hosts(&pod.uid())),
            termination_log: Some(&termination_log),
            env_sources: &self.req.inputs.env,
        })
    }

    /// Writes the pod's hosts file anew: host aliases may have changed.
    pub(crate) async fn write_hosts(&self, sandbox: &Sandbox) -> Result<(), StartFailure> {
        let deps = self.runtime.deps();
        let pod = self.pod();
        let node_hosts = if pod.host_network() {
            // a node without the file has no names to pass on
            let text = deps.files.read_node_file(Path::new(NODE_HOSTS)).await;
            text.unwrap_or_default()
        } else {
            String::new()
        };
        let failed = |text: String, retry| {
            StartFailure::of_pod(Reason::CreateContainerConfigError, text, retry)
        };
        let name = pod_hostname(pod, &deps.node.cluster_domain)
            .map_err(|error| failed(error.to_string(), Retry::Never))?;
        let content = hosts_file(pod, &name, &sandbox.ips, &node_hosts);
        deps.files
            .write_hosts_file(&pod.uid(), &content)
            .await
            .map_err(|error| failed(error.to_string(), error.retry()))
    }
}
