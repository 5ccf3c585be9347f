//! Requests: sandbox and container configurations, filters, credentials.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_proto::cri_v1 as pb;
use windlass_types::SandboxId;
use windlass_types::cri::{
    ContainerConfig, ContainerSecurity, Device, ImageAuth, LinuxResources, ListFilter, Mount,
    MountPropagation, MountedImage, NamespaceMode, NamespaceOptions, PortMapping, Protocol,
    SandboxConfig, SandboxSecurity, SecurityProfile, SelinuxOptions, SupplementalGroupsPolicy,
    UserNamespace,
};

/// `PodSandboxConfig` for the wire.
pub(crate) fn sandbox_config_to_pb(config: &SandboxConfig) -> pb::PodSandboxConfig {
    pb::PodSandboxConfig {
        metadata: Some(pb::PodSandboxMetadata {
            name: config.name.clone(),
            uid: config.uid.to_string(),
            namespace: config.namespace.clone(),
            attempt: config.attempt,
        }),
        hostname: config.hostname.clone(),
        log_directory: config.log_directory.clone(),
        dns_config: config.dns.as_ref().map(|dns| pb::DnsConfig {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        port_mappings: config
            .port_mappings
            .iter()
            .map(port_mapping_to_pb)
            .collect(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        linux: Some(pb::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent.clone(),
            security_context: Some(sandbox_security_to_pb(&config.security)),
            sysctls: config.sysctls.clone(),
            overhead: config.overhead.as_ref().map(resources_to_pb),
            resources: config.resources.as_ref().map(resources_to_pb),
        }),
    }
}

fn port_mapping_to_pb(mapping: &PortMapping) -> pb::PortMapping {
    pb::PortMapping {
        protocol: match mapping.protocol {
            Protocol::Tcp => pb::Protocol::Tcp,
            Protocol::Udp => pb::Protocol::Udp,
            Protocol::Sctp => pb::Protocol::Sctp,
        } as i32,
        container_port: mapping.container_port,
        host_port: mapping.host_port,
        host_ip: mapping.host_ip.clone(),
    }
}

fn sandbox_security_to_pb(security: &SandboxSecurity) -> pb::LinuxSandboxSecurityContext {
    pb::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces_to_pb(security.namespaces)),
        selinux_options: security.selinux.as_ref().map(selinux_to_pb),
        run_as_user: security.run_as_user.map(int64_to_pb),
        run_as_group: security.run_as_group.map(int64_to_pb),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy_to_pb(security.supplemental_groups_policy),
        privileged: security.privileged,
        seccomp: Some(profile_to_pb(&security.seccomp)),
        ..Default::default()
    }
}

/// `ContainerConfig` for the wire.
pub(crate) fn container_config_to_pb(config: &ContainerConfig) -> pb::ContainerConfig {
    pb::ContainerConfig {
        metadata: Some(pb::ContainerMetadata {
            name: config.name.clone(),
            attempt: config.attempt,
        }),
        image: Some(pb::ImageSpec {
            image: config.image.clone(),
            user_specified_image: config.user_specified_image.clone(),
            ..Default::default()
        }),
        command: config.command.clone(),
        args: config.args.clone(),
        working_dir: config.working_dir.clone(),
        envs: config
            .envs
            .iter()
            .map(|(key, value)| pb::KeyValue {
                key: key.clone(),
                value: Bytes::copy_from_slice(value.as_bytes()),
            })
            .collect(),
        mounts: config
            .mounts
            .iter()
            .map(|mount| mapped_mount_to_pb(mount, config.security.namespaces.users))
            .collect(),
        devices: config.devices.iter().map(device_to_pb).collect(),
        cdi_devices: cdi_devices_to_pb(&config.cdi_devices),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        stop_signal: signal_to_pb(&config.stop_signal),
        linux: Some(pb::LinuxContainerConfig {
            resources: Some(resources_to_pb(&config.resources)),
            security_context: Some(container_security_to_pb(&config.security)),
        }),
    }
}

fn cdi_devices_to_pb(names: &[String]) -> Vec<pb::CdiDevice> {
    let names = names.iter().cloned();
    names.map(|name| pb::CdiDevice { name }).collect()
}

/// A signal by its name in the API; 0 leaves it to the runtime.
pub fn signal_to_pb(name: &str) -> i32 {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    pb::Signal::from_str_name(&name).map_or(0, |signal| signal as i32)
}

/// The API's name of a signal; empty for the runtime's default and for one this version does not
/// know.
pub fn signal_from_pb(number: i32) -> String {
    match pb::Signal::try_from(number) {
        Ok(pb::Signal::RuntimeDefault) | Err(_) => String::new(),
        Ok(signal) => signal
            .as_str_name()
            .replace("PLUS", "+")
            .replace("MINUS", "-"),
    }
}

fn device_to_pb(device: &Device) -> pb::Device {
    pb::Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    }
}

/// A mount for the wire, without ID mappings.
pub fn mount_to_pb(mount: &Mount) -> pb::Mount {
    pb::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation: match mount.propagation {
            MountPropagation::Private => pb::MountPropagation::PropagationPrivate,
            MountPropagation::HostToContainer => pb::MountPropagation::PropagationHostToContainer,
            MountPropagation::Bidirectional => pb::MountPropagation::PropagationBidirectional,
        } as i32,
        recursive_read_only: mount.recursive_read_only,
        image: mount.image.as_ref().map(|image| pb::ImageSpec {
            image: image.image.clone(),
            annotations: image.annotations.clone().into_iter().collect(),
            user_specified_image: image.user_specified_image.clone(),
            runtime_handler: image.runtime_handler.clone(),
            image_ref: String::new(),
        }),
        image_sub_path: mount
            .image
            .as_ref()
            .map(|image| image.sub_path.clone())
            .unwrap_or_default(),
        ..Default::default()
    }
}

/// ID mappings of a mount: the same as the container's, so that files keep their owners in a user
/// namespace.
fn mapped_mount_to_pb(mount: &Mount, users: UserNamespace) -> pb::Mount {
    let mappings = mappings_to_pb(users);
    pb::Mount {
        uid_mappings: mappings.clone(),
        gid_mappings: mappings,
        ..mount_to_pb(mount)
    }
}

/// A mount from the wire.
pub fn mount_from_pb(mount: pb::Mount) -> Mount {
    Mount {
        propagation: match mount.propagation() {
            pb::MountPropagation::PropagationPrivate => MountPropagation::Private,
            pb::MountPropagation::PropagationHostToContainer => MountPropagation::HostToContainer,
            pb::MountPropagation::PropagationBidirectional => MountPropagation::Bidirectional,
        },
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly: mount.readonly,
        recursive_read_only: mount.recursive_read_only,
        selinux_relabel: mount.selinux_relabel,
        image: mount.image.map(|image| MountedImage {
            image: image.image,
            user_specified_image: image.user_specified_image,
            runtime_handler: image.runtime_handler,
            annotations: image.annotations.into_iter().collect(),
            sub_path: mount.image_sub_path,
        }),
    }
}

#[expect(
    deprecated,
    reason = "runtimes before the message apparmor read the string only"
)]
fn container_security_to_pb(security: &ContainerSecurity) -> pb::LinuxContainerSecurityContext {
    pb::LinuxContainerSecurityContext {
        capabilities: Some(pb::Capability {
            add_capabilities: security.add_capabilities.clone(),
            drop_capabilities: security.drop_capabilities.clone(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: security.privileged,
        namespace_options: Some(container_namespaces_to_pb(security)),
        selinux_options: security.selinux.as_ref().map(selinux_to_pb),
        run_as_user: security.run_as_user.map(int64_to_pb),
        run_as_group: security.run_as_group.map(int64_to_pb),
        run_as_username: security.run_as_username.clone(),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy_to_pb(security.supplemental_groups_policy),
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths.clone(),
        readonly_paths: security.readonly_paths.clone(),
        seccomp: Some(profile_to_pb(&security.seccomp)),
        apparmor: security.apparmor.as_ref().map(profile_to_pb),
        apparmor_profile: security
            .apparmor
            .as_ref()
            .map(deprecated_profile)
            .unwrap_or_default(),
        ..Default::default()
    }
}

fn container_namespaces_to_pb(security: &ContainerSecurity) -> pb::NamespaceOption {
    let own = namespaces_to_pb(security.namespaces);
    match &security.pid_target {
        None => own,
        Some(target) => pb::NamespaceOption {
            pid: pb::NamespaceMode::Target as i32,
            target_id: target.to_string(),
            ..own
        },
    }
}

fn namespaces_to_pb(namespaces: NamespaceOptions) -> pb::NamespaceOption {
    let mode = |mode| match mode {
        NamespaceMode::Pod => pb::NamespaceMode::Pod as i32,
        NamespaceMode::Container => pb::NamespaceMode::Container as i32,
        NamespaceMode::Node => pb::NamespaceMode::Node as i32,
    };
    pb::NamespaceOption {
        network: mode(namespaces.network),
        pid: mode(namespaces.pid),
        ipc: mode(namespaces.ipc),
        userns_options: Some(users_to_pb(namespaces.users)),
        ..Default::default()
    }
}

fn users_to_pb(users: UserNamespace) -> pb::UserNamespace {
    let mode = match users {
        UserNamespace::Node => pb::NamespaceMode::Node,
        UserNamespace::Pod(_) => pb::NamespaceMode::Pod,
    };
    let mappings = mappings_to_pb(users);
    pb::UserNamespace {
        mode: mode as i32,
        uids: mappings.clone(),
        gids: mappings,
    }
}

fn mappings_to_pb(users: UserNamespace) -> Vec<pb::IdMapping> {
    match users {
        UserNamespace::Node => Vec::new(),
        UserNamespace::Pod(ids) => vec![pb::IdMapping {
            host_id: ids.host_id,
            container_id: ids.container_id,
            length: ids.length,
        }],
    }
}

fn groups_policy_to_pb(policy: SupplementalGroupsPolicy) -> i32 {
    match policy {
        SupplementalGroupsPolicy::Merge => pb::SupplementalGroupsPolicy::Merge as i32,
        SupplementalGroupsPolicy::Strict => pb::SupplementalGroupsPolicy::Strict as i32,
    }
}

fn profile_to_pb(profile: &SecurityProfile) -> pb::SecurityProfile {
    use pb::security_profile::ProfileType;
    let (profile_type, localhost_ref) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(name) => (ProfileType::Localhost, name.clone()),
    };
    pb::SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref,
    }
}

/// The form of `apparmor_profile`, which runtimes read that do not know `apparmor`.
fn deprecated_profile(profile: &SecurityProfile) -> String {
    match profile {
        SecurityProfile::RuntimeDefault => "runtime/default".to_owned(),
        SecurityProfile::Unconfined => "unconfined".to_owned(),
        SecurityProfile::Localhost(name) => format!("localhost/{name}"),
    }
}

fn selinux_to_pb(options: &SelinuxOptions) -> pb::SeLinuxOption {
    pb::SeLinuxOption {
        user: options.user.clone(),
        role: options.role.clone(),
        r#type: options.type_.clone(),
        level: options.level.clone(),
    }
}

/// Linux resources for the wire.
pub fn resources_to_pb(resources: &LinuxResources) -> pb::LinuxContainerResources {
    pb::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        memory_swap_limit_in_bytes: resources.memory_swap_limit,
        hugepage_limits: huge_pages_to_pb(&resources.huge_page_limits),
        oom_score_adj: resources.oom_score_adj,
        unified: resources.unified.clone(),
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
    }
}

/// Linux resources from the wire.
pub fn resources_from_pb(resources: pb::LinuxContainerResources) -> LinuxResources {
    LinuxResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit: resources.memory_limit_in_bytes,
        memory_swap_limit: resources.memory_swap_limit_in_bytes,
        huge_page_limits: resources
            .hugepage_limits
            .into_iter()
            .map(|it| (it.page_size, it.limit))
            .collect(),
        oom_score_adj: resources.oom_score_adj,
        unified: resources.unified,
        cpuset_cpus: resources.cpuset_cpus,
        cpuset_mems: resources.cpuset_mems,
    }
}

fn huge_pages_to_pb(limits: &BTreeMap<String, u64>) -> Vec<pb::HugepageLimit> {
    let limits = limits.iter();
    let limits = limits.map(|(page_size, limit)| pb::HugepageLimit {
        page_size: page_size.clone(),
        limit: *limit,
    });
    limits.collect()
}

fn int64_to_pb(value: i64) -> pb::Int64Value {
    pb::Int64Value { value }
}

/// Filter of ListPodSandbox; the `sandbox` field has no meaning there.
pub(crate) fn sandbox_filter_to_pb(filter: &ListFilter) -> Option<pb::PodSandboxFilter> {
    (*filter != ListFilter::default()).then(|| pb::PodSandboxFilter {
        id: filter.id.clone().unwrap_or_default(),
        state: None,
        label_selector: filter.labels.clone(),
    })
}

/// Filter of ListContainers.
pub(crate) fn container_filter_to_pb(filter: &ListFilter) -> Option<pb::ContainerFilter> {
    (*filter != ListFilter::default()).then(|| pb::ContainerFilter {
        id: filter.id.clone().unwrap_or_default(),
        state: None,
        pod_sandbox_id: filter
            .sandbox
            .as_ref()
            .map(SandboxId::to_string)
            .unwrap_or_default(),
        label_selector: filter.labels.clone(),
    })
}

/// Credentials for the wire.
pub(crate) fn auth_to_pb(auth: &ImageAuth) -> pb::AuthConfig {
    pb::AuthConfig {
        username: auth.username.clone(),
        password: auth.password.clone(),
        auth: auth.auth.clone(),
        server_address: auth.server_address.clone(),
        identity_token: auth.identity_token.clone(),
        registry_token: auth.registry_token.clone(),
    }
}
