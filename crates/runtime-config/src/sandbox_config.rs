//! Sandbox configuration of a pod (upstream `generatePodSandboxConfig`).

use std::collections::BTreeMap;

use windlass_types::corev1::Container;
use windlass_types::cri::{
    DnsConfig, NamespaceMode, NamespaceOptions, PortMapping, Protocol, SandboxConfig,
    SandboxSecurity, SecurityProfile, SelinuxOptions, SupplementalGroupsPolicy, UserNamespace,
};
use windlass_types::names::dotted_sysctl;
use windlass_types::{Pod, PodExt, corev1, names};

use crate::config_error::ConfigError;
use crate::hosts::{kernel_hostname, pod_hostname};
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::paths::check_pod_names;
use windlass_pod_inputs::resources::{check_amounts, overhead_resources, sandbox_resources};
use windlass_volume_plan::volume_source::{PodVolume, extra_groups};

/// Input of [`sandbox_config`].
#[derive(Clone, Copy, Debug)]
pub struct SandboxInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Attempt of the sandbox.
    pub attempt: u32,
    /// The node.
    pub node: &'a NodeFacts,
    /// The pod's DNS, from [`crate::dns::pod_dns`].
    pub dns: &'a DnsConfig,
    /// Parent cgroup; empty leaves the runtime's.
    pub cgroup_parent: &'a str,
    /// The handler of the pod's RuntimeClass was resolved.
    pub runtime_class_resolved: bool,
    /// Volumes of the pod, for their groups.
    pub volumes: &'a [PodVolume],
    /// The pod's user and group IDs; a pod with `hostUsers: false` must have its own.
    pub users: UserNamespace,
}

/// Creates the configuration.
///
/// # Errors
/// A name, quantity or host name is invalid, or the required isolation is not supported.
pub fn sandbox_config(input: SandboxInput<'_>) -> Result<SandboxConfig, ConfigError> {
    let SandboxInput { pod, node, .. } = input;
    check_pod_names(pod)?;
    check_amounts(pod)?;
    refuse_weaker_isolation(input)?;
    // on the host network the node's own host name stays
    let hostname = if pod.host_network() {
        String::new()
    } else {
        kernel_hostname(pod, &pod_hostname(pod, node)?)?
    };
    Ok(SandboxConfig {
        name: pod.name().to_owned(),
        namespace: pod.namespace().to_owned(),
        uid: pod.uid(),
        attempt: input.attempt,
        hostname,
        log_directory: node.paths.pod_log_dir(pod).display().to_string(),
        dns: Some(input.dns.clone()),
        port_mappings: pod.containers().iter().flat_map(port_mappings).collect(),
        labels: sandbox_labels(pod),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        cgroup_parent: input.cgroup_parent.to_owned(),
        sysctls: sysctls(pod),
        security: sandbox_security(pod, input.volumes, input.users)?,
        overhead: overhead_resources(pod, node),
        resources: Some(sandbox_resources(pod, node)),
    })
}

/// Returns the namespaces of a pod and its containers; `users` are the IDs of the pod.
pub(crate) fn pod_namespaces(pod: &Pod, users: UserNamespace) -> NamespaceOptions {
    let spec = PodExt::spec(pod);
    let node_or_pod = |host: Option<bool>| match host {
        Some(true) => NamespaceMode::Node,
        _ => NamespaceMode::Pod,
    };
    let pid = if spec.host_pid == Some(true) {
        NamespaceMode::Node
    } else if spec.share_process_namespace == Some(true) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    NamespaceOptions {
        network: node_or_pod(spec.host_network),
        pid,
        ipc: node_or_pod(spec.host_ipc),
        users,
    }
}

/// Returns true for `hostUsers: false`.
pub fn wants_user_namespace(pod: &Pod) -> bool {
    PodExt::spec(pod).host_users == Some(false)
}

/// Returns `supplementalGroupsPolicy`; `Merge` by default.
///
/// # Errors
/// The value is invalid.
pub fn supplemental_groups_policy(pod: &Pod) -> Result<SupplementalGroupsPolicy, ConfigError> {
    let security = PodExt::spec(pod).security_context.as_ref();
    match security.and_then(|s| s.supplemental_groups_policy.as_deref()) {
        None | Some("Merge") => Ok(SupplementalGroupsPolicy::Merge),
        Some("Strict") => Ok(SupplementalGroupsPolicy::Strict),
        Some(other) => Err(ConfigError::Invalid {
            field: "securityContext.supplementalGroupsPolicy".to_owned(),
            value: other.to_owned(),
            hint: ": use Merge or Strict",
        }),
    }
}

/// Returns the supplemental groups of a pod: `fsGroup` first, those of volumes last.
pub fn supplemental_groups(pod: &Pod, volumes: &[PodVolume]) -> Vec<i64> {
    let security = PodExt::spec(pod).security_context.as_ref();
    let fs_group = security.and_then(|security| security.fs_group);
    let extra = security.and_then(|security| security.supplemental_groups.as_ref());
    let groups = fs_group
        .into_iter()
        .chain(extra.into_iter().flatten().copied());
    groups.chain(extra_groups(pod, volumes)).collect()
}

/// Converts SELinux options.
pub(crate) fn selinux(options: &corev1::SELinuxOptions) -> SelinuxOptions {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    SelinuxOptions {
        user: text(&options.user),
        role: text(&options.role),
        type_: text(&options.type_),
        level: text(&options.level),
    }
}

/// Returns the labels of the pod; identifying labels replace those of the user.
pub(crate) fn identity_labels(pod: &Pod) -> [(String, String); 3] {
    [
        (names::LABEL_POD_NAME.to_owned(), pod.name().to_owned()),
        (
            names::LABEL_POD_NAMESPACE.to_owned(),
            pod.namespace().to_owned(),
        ),
        (names::LABEL_POD_UID.to_owned(), pod.uid().to_string()),
    ]
}

/// Rejects a pod that would run with less isolation than its spec requires.
fn refuse_weaker_isolation(input: SandboxInput<'_>) -> Result<(), ConfigError> {
    let spec = PodExt::spec(input.pod);
    if wants_user_namespace(input.pod) && input.users == UserNamespace::Node {
        return Err(ConfigError::NoUserNamespace);
    }
    let runtime_class = spec.runtime_class_name.as_deref().unwrap_or_default();
    if !runtime_class.is_empty() && !input.runtime_class_resolved {
        return Err(ConfigError::UnresolvedRuntimeClass(
            runtime_class.to_owned(),
        ));
    }
    Ok(())
}

fn sandbox_labels(pod: &Pod) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(identity_labels(pod));
    labels
}

/// Returns the ports of a container without duplicate names.
fn port_mappings(container: &Container) -> Vec<PortMapping> {
    let mut seen = Vec::new();
    let mut mappings = Vec::new();
    for port in container.ports.iter().flatten() {
        let mapping = PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            },
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        };
        let key = match port.name.as_deref() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => format!("{mapping:?}"),
        };
        if !seen.contains(&key) {
            seen.push(key);
            mappings.push(mapping);
        }
    }
    mappings
}

fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let security = PodExt::spec(pod).security_context.as_ref();
    let list = security
        .and_then(|s| s.sysctls.as_deref())
        .unwrap_or_default();
    list.iter()
        .map(|s| (dotted_sysctl(&s.name), s.value.clone()))
        .collect()
}

fn sandbox_security(
    pod: &Pod,
    volumes: &[PodVolume],
    users: UserNamespace,
) -> Result<SandboxSecurity, ConfigError> {
    let context = PodExt::spec(pod).security_context.as_ref();
    Ok(SandboxSecurity {
        namespaces: pod_namespaces(pod, users),
        run_as_user: context.and_then(|c| c.run_as_user),
        run_as_group: context.and_then(|c| c.run_as_group),
        supplemental_groups: supplemental_groups(pod, volumes),
        supplemental_groups_policy: supplemental_groups_policy(pod)?,
        privileged: has_privileged_container(pod),
        readonly_rootfs: false,
        // sufficient for the pause process with any profile of the pod
        seccomp: SecurityProfile::RuntimeDefault,
        selinux: context
            .and_then(|c| c.se_linux_options.as_ref())
            .map(selinux),
    })
}

fn has_privileged_container(pod: &Pod) -> bool {
    let mut all = pod.containers().iter().chain(pod.init_containers());
    all.any(|c| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true))
}

#[cfg(test)]
mod tests;
