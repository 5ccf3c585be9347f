//! The runtime's side of the CRI: requests from protobuf, responses to protobuf.
//!
//! The inverse of `windlass_cri::convert`, whose unit tests check the round trips.

use std::net::IpAddr;

use windlass_cri::convert::{
    mount_from_pb, mount_to_pb, resources_from_pb, resources_to_pb, signal_from_pb, signal_to_pb,
};
use windlass_proto::cri_v1 as pb;
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSecurity, ContainerSummary, Device, DnsConfig,
    IdMapping, ImageAuth, ImageInfo, ListFilter, NamespaceMode, NamespaceOptions, PortMapping,
    Protocol, RuntimeEvent, RuntimeEventKind, RuntimeStatus, SandboxConfig, SandboxDetail,
    SandboxSecurity, SandboxSummary, SecurityProfile, SelinuxOptions, SupplementalGroupsPolicy,
    UserNamespace,
};
use windlass_types::{ContainerId, ContainerState, PodUid, SandboxId, Timestamp, names};

/// `PodSandboxConfig` from the wire.
pub fn sandbox_config_from_pb(config: pb::PodSandboxConfig) -> SandboxConfig {
    let metadata = config.metadata.unwrap_or_default();
    let linux = config.linux.unwrap_or_default();
    SandboxConfig {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: PodUid::from(metadata.uid),
        attempt: metadata.attempt,
        hostname: config.hostname,
        log_directory: config.log_directory,
        dns: config.dns_config.map(|dns| DnsConfig {
            servers: dns.servers,
            searches: dns.searches,
            options: dns.options,
        }),
        port_mappings: config
            .port_mappings
            .into_iter()
            .map(port_mapping_from_pb)
            .collect(),
        labels: config.labels,
        annotations: config.annotations,
        cgroup_parent: linux.cgroup_parent,
        sysctls: linux.sysctls,
        security: sandbox_security_from_pb(linux.security_context.unwrap_or_default()),
        overhead: linux.overhead.map(resources_from_pb),
        resources: linux.resources.map(resources_from_pb),
    }
}

fn port_mapping_from_pb(mapping: pb::PortMapping) -> PortMapping {
    PortMapping {
        protocol: match mapping.protocol() {
            pb::Protocol::Tcp => Protocol::Tcp,
            pb::Protocol::Udp => Protocol::Udp,
            pb::Protocol::Sctp => Protocol::Sctp,
        },
        container_port: mapping.container_port,
        host_port: mapping.host_port,
        host_ip: mapping.host_ip,
    }
}

fn sandbox_security_from_pb(security: pb::LinuxSandboxSecurityContext) -> SandboxSecurity {
    let groups_policy = security.supplemental_groups_policy();
    SandboxSecurity {
        namespaces: namespaces_from_pb(security.namespace_options.unwrap_or_default()),
        run_as_user: security.run_as_user.map(|user| user.value),
        run_as_group: security.run_as_group.map(|group| group.value),
        supplemental_groups_policy: groups_policy_from_pb(groups_policy),
        supplemental_groups: security.supplemental_groups,
        privileged: security.privileged,
        readonly_rootfs: security.readonly_rootfs,
        seccomp: security.seccomp.map(profile_from_pb).unwrap_or_default(),
        selinux: security.selinux_options.map(selinux_from_pb),
    }
}

/// `ContainerConfig` from the wire. Values that are not UTF-8 lose their broken bytes.
pub fn container_config_from_pb(config: pb::ContainerConfig) -> ContainerConfig {
    let metadata = config.metadata.unwrap_or_default();
    let image = config.image.unwrap_or_default();
    let linux = config.linux.unwrap_or_default();
    ContainerConfig {
        name: metadata.name,
        attempt: metadata.attempt,
        image: image.image,
        user_specified_image: image.user_specified_image,
        command: config.command,
        args: config.args,
        working_dir: config.working_dir,
        envs: config
            .envs
            .into_iter()
            .map(|env| (env.key, String::from_utf8_lossy(&env.value).into_owned()))
            .collect(),
        mounts: config.mounts.into_iter().map(mount_from_pb).collect(),
        devices: config.devices.into_iter().map(device_from_pb).collect(),
        cdi_devices: config.cdi_devices.into_iter().map(|it| it.name).collect(),
        labels: config.labels,
        annotations: config.annotations,
        log_path: config.log_path,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        stop_signal: signal_from_pb(config.stop_signal),
        resources: linux.resources.map(resources_from_pb).unwrap_or_default(),
        security: container_security_from_pb(linux.security_context.unwrap_or_default()),
    }
}

fn device_from_pb(device: pb::Device) -> Device {
    Device {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    }
}

fn container_security_from_pb(security: pb::LinuxContainerSecurityContext) -> ContainerSecurity {
    let namespaces = security.namespace_options.as_ref();
    let target = namespaces.map(|options| options.target_id.as_str());
    let target = target.filter(|id| !id.is_empty()).map(ContainerId::from);
    let groups_policy = security.supplemental_groups_policy();
    let capabilities = security.capabilities.unwrap_or_default();
    ContainerSecurity {
        pid_target: target,
        namespaces: namespaces_from_pb(security.namespace_options.unwrap_or_default()),
        add_capabilities: capabilities.add_capabilities,
        drop_capabilities: capabilities.drop_capabilities,
        privileged: security.privileged,
        run_as_user: security.run_as_user.map(|user| user.value),
        run_as_username: security.run_as_username,
        run_as_group: security.run_as_group.map(|group| group.value),
        supplemental_groups_policy: groups_policy_from_pb(groups_policy),
        supplemental_groups: security.supplemental_groups,
        readonly_rootfs: security.readonly_rootfs,
        no_new_privs: security.no_new_privs,
        seccomp: security.seccomp.map(profile_from_pb).unwrap_or_default(),
        apparmor: security.apparmor.map(profile_from_pb),
        selinux: security.selinux_options.map(selinux_from_pb),
        masked_paths: security.masked_paths,
        readonly_paths: security.readonly_paths,
    }
}

fn users_from_pb(users: &pb::UserNamespace) -> UserNamespace {
    let first = users.uids.first().copied();
    match (users.mode(), first) {
        (pb::NamespaceMode::Pod, Some(ids)) => UserNamespace::Pod(IdMapping {
            host_id: ids.host_id,
            container_id: ids.container_id,
            length: ids.length,
        }),
        _ => UserNamespace::Node,
    }
}

fn groups_policy_from_pb(policy: pb::SupplementalGroupsPolicy) -> SupplementalGroupsPolicy {
    match policy {
        pb::SupplementalGroupsPolicy::Merge => SupplementalGroupsPolicy::Merge,
        pb::SupplementalGroupsPolicy::Strict => SupplementalGroupsPolicy::Strict,
    }
}

fn namespaces_from_pb(namespaces: pb::NamespaceOption) -> NamespaceOptions {
    // TARGET joins another container's namespace: from here it is neither pod nor node.
    let mode = |mode| match mode {
        pb::NamespaceMode::Pod => NamespaceMode::Pod,
        pb::NamespaceMode::Container | pb::NamespaceMode::Target => NamespaceMode::Container,
        pb::NamespaceMode::Node => NamespaceMode::Node,
    };
    NamespaceOptions {
        network: mode(namespaces.network()),
        pid: mode(namespaces.pid()),
        ipc: mode(namespaces.ipc()),
        users: namespaces
            .userns_options
            .as_ref()
            .map(users_from_pb)
            .unwrap_or_default(),
    }
}

fn profile_from_pb(profile: pb::SecurityProfile) -> SecurityProfile {
    use pb::security_profile::ProfileType;
    match profile.profile_type() {
        ProfileType::RuntimeDefault => SecurityProfile::RuntimeDefault,
        ProfileType::Unconfined => SecurityProfile::Unconfined,
        ProfileType::Localhost => SecurityProfile::Localhost(profile.localhost_ref),
    }
}

fn selinux_from_pb(options: pb::SeLinuxOption) -> SelinuxOptions {
    SelinuxOptions {
        user: options.user,
        role: options.role,
        type_: options.r#type,
        level: options.level,
    }
}

/// Filter of ListPodSandbox from the wire.
pub fn sandbox_filter_from_pb(filter: Option<pb::PodSandboxFilter>) -> ListFilter {
    let filter = filter.unwrap_or_default();
    ListFilter {
        id: Some(filter.id).filter(|id| !id.is_empty()),
        sandbox: None,
        labels: filter.label_selector,
    }
}

/// Filter of ListContainers from the wire.
pub fn container_filter_from_pb(filter: Option<pb::ContainerFilter>) -> ListFilter {
    let filter = filter.unwrap_or_default();
    ListFilter {
        id: Some(filter.id).filter(|id| !id.is_empty()),
        sandbox: Some(filter.pod_sandbox_id)
            .filter(|id| !id.is_empty())
            .map(SandboxId::from),
        labels: filter.label_selector,
    }
}

/// Credentials from the wire.
pub fn auth_from_pb(auth: pb::AuthConfig) -> ImageAuth {
    ImageAuth {
        username: auth.username,
        password: auth.password,
        auth: auth.auth,
        server_address: auth.server_address,
        identity_token: auth.identity_token,
        registry_token: auth.registry_token,
    }
}

/// Status of the runtime for the wire.
pub(crate) fn runtime_status_to_pb(status: &RuntimeStatus) -> pb::RuntimeStatus {
    let condition = |name: &str, error: &Option<String>| pb::RuntimeCondition {
        r#type: name.to_owned(),
        status: error.is_none(),
        reason: error
            .as_ref()
            .map(|_| "NotReady".to_owned())
            .unwrap_or_default(),
        message: error.clone().unwrap_or_default(),
    };
    pb::RuntimeStatus {
        conditions: vec![
            condition("RuntimeReady", &status.runtime_error),
            condition("NetworkReady", &status.network_error),
        ],
    }
}

/// A row of ListPodSandbox for the wire.
pub(crate) fn sandbox_summary_to_pb(summary: &SandboxSummary) -> pb::PodSandbox {
    pb::PodSandbox {
        id: summary.id.to_string(),
        metadata: Some(sandbox_metadata_to_pb(summary)),
        state: sandbox_state_to_pb(summary.ready),
        created_at: nanos(Some(summary.created_at)),
        ..Default::default()
    }
}

fn sandbox_metadata_to_pb(summary: &SandboxSummary) -> pb::PodSandboxMetadata {
    pb::PodSandboxMetadata {
        name: summary.name.clone(),
        uid: summary.uid.to_string(),
        namespace: summary.namespace.clone(),
        attempt: summary.attempt,
    }
}

fn sandbox_state_to_pb(ready: bool) -> i32 {
    match ready {
        true => pb::PodSandboxState::SandboxReady as i32,
        false => pb::PodSandboxState::SandboxNotready as i32,
    }
}

/// PodSandboxStatus for the wire.
pub fn sandbox_detail_to_pb(detail: &SandboxDetail) -> pb::PodSandboxStatus {
    let mut ips = detail.ips.iter().map(IpAddr::to_string);
    let network_mode = match detail.host_network {
        true => pb::NamespaceMode::Node,
        false => pb::NamespaceMode::Pod,
    };
    pb::PodSandboxStatus {
        id: detail.summary.id.to_string(),
        metadata: Some(sandbox_metadata_to_pb(&detail.summary)),
        state: sandbox_state_to_pb(detail.summary.ready),
        created_at: nanos(Some(detail.summary.created_at)),
        network: Some(pb::PodSandboxNetworkStatus {
            ip: ips.next().unwrap_or_default(),
            additional_ips: ips.map(|ip| pb::PodIp { ip }).collect(),
        }),
        linux: Some(pb::LinuxPodSandboxStatus {
            namespaces: Some(pb::Namespace {
                options: Some(pb::NamespaceOption {
                    network: network_mode as i32,
                    ..Default::default()
                }),
            }),
        }),
        ..Default::default()
    }
}

fn state_to_pb(state: ContainerState) -> i32 {
    match state {
        ContainerState::Created => pb::ContainerState::ContainerCreated as i32,
        ContainerState::Running => pb::ContainerState::ContainerRunning as i32,
        ContainerState::Exited => pb::ContainerState::ContainerExited as i32,
        ContainerState::Unknown => pb::ContainerState::ContainerUnknown as i32,
    }
}

/// A row of ListContainers for the wire.
pub(crate) fn container_summary_to_pb(summary: &ContainerSummary) -> pb::Container {
    pb::Container {
        id: summary.id.to_string(),
        pod_sandbox_id: summary.sandbox_id.to_string(),
        metadata: Some(pb::ContainerMetadata {
            name: summary.name.clone(),
            attempt: summary.attempt,
        }),
        state: state_to_pb(summary.state),
        created_at: nanos(Some(summary.created_at)),
        labels: [(names::LABEL_POD_UID.to_owned(), summary.uid.to_string())].into(),
        ..Default::default()
    }
}

/// ContainerStatus for the wire.
pub fn container_detail_to_pb(detail: &ContainerDetail, attempt: u32) -> pb::ContainerStatus {
    let observed = &detail.observed;
    pb::ContainerStatus {
        id: observed.id.to_string(),
        metadata: Some(pb::ContainerMetadata {
            name: observed.name.clone(),
            attempt,
        }),
        state: state_to_pb(observed.state),
        created_at: nanos(Some(observed.created_at)),
        started_at: nanos(observed.started_at),
        finished_at: nanos(observed.finished_at),
        exit_code: observed.exit_code,
        image: Some(pb::ImageSpec {
            image: observed.image.clone(),
            ..Default::default()
        }),
        image_ref: observed.image_id.clone(),
        reason: observed.reason.clone(),
        message: observed.message.clone(),
        labels: detail.labels.clone(),
        annotations: detail.annotations.clone(),
        mounts: detail.mounts.iter().map(mount_to_pb).collect(),
        log_path: observed.log_path.clone(),
        resources: observed
            .resources
            .as_ref()
            .map(|resources| pb::ContainerResources {
                linux: Some(resources_to_pb(resources)),
            }),
        user: observed.user.as_ref().map(|user| pb::ContainerUser {
            linux: Some(pb::LinuxContainerUser {
                uid: user.uid,
                gid: user.gid,
                supplemental_groups: user.supplemental_groups.clone(),
            }),
        }),
        stop_signal: signal_to_pb(&observed.stop_signal),
        ..Default::default()
    }
}

/// An image for the wire.
pub(crate) fn image_to_pb(image: &ImageInfo) -> pb::Image {
    pb::Image {
        id: image.id.clone(),
        repo_tags: image.repo_tags.clone(),
        repo_digests: image.repo_digests.clone(),
        size: image.size,
        uid: image.uid.map(|value| pb::Int64Value { value }),
        username: image.username.clone(),
        spec: None,
        pinned: image.pinned,
    }
}

/// Converts an event for the wire. The CRI has no event for OOM kills; they are sent as "stopped".
pub(crate) fn event_to_pb(event: &RuntimeEvent) -> pb::ContainerEventResponse {
    let kind = match event.kind {
        RuntimeEventKind::Created => pb::ContainerEventType::ContainerCreatedEvent,
        RuntimeEventKind::Started => pb::ContainerEventType::ContainerStartedEvent,
        RuntimeEventKind::Stopped | RuntimeEventKind::Oom => {
            pb::ContainerEventType::ContainerStoppedEvent
        }
        RuntimeEventKind::Deleted => pb::ContainerEventType::ContainerDeletedEvent,
    };
    pb::ContainerEventResponse {
        container_id: event.id.clone(),
        container_event_type: kind as i32,
        pod_sandbox_status: event.uid.as_ref().map(|uid| pb::PodSandboxStatus {
            metadata: Some(pb::PodSandboxMetadata {
                uid: uid.to_string(),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Converts to nanoseconds since the epoch; `None` becomes 0.
pub fn nanos(moment: Option<Timestamp>) -> i64 {
    moment.map_or(0, |moment| {
        i64::try_from(moment.as_nanosecond()).unwrap_or(i64::MAX)
    })
}
