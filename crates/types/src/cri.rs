//! Requests to and responses from a container runtime, independent of protobuf.
//!
//! Fields have the meaning of `runtime.v1` of the CRI; unused ones are omitted. `windlass-cri`
//! converts them to protobuf, and `windlass-runtime-config` creates them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Timestamp;
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::observed::ContainerState;

/// Scope of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// One for the whole pod.
    #[default]
    Pod,
    /// One for each container.
    Container,
    /// The namespace of the node.
    Node,
}

/// Namespaces of a sandbox or container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceOptions {
    /// Network.
    pub network: NamespaceMode,
    /// PID.
    pub pid: NamespaceMode,
    /// IPC.
    pub ipc: NamespaceMode,
    /// Users and groups.
    pub users: UserNamespace,
}

/// User and group IDs of the processes of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserNamespace {
    /// Those of the node: root in the container is root on the node.
    #[default]
    Node,
    /// A separate range, the same for users and groups.
    Pod(IdMapping),
}

/// Mapping of container IDs to node IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// First ID on the node.
    pub host_id: u32,
    /// The same ID in the container.
    pub container_id: u32,
    /// Number of IDs.
    pub length: u32,
}

/// Source of the groups that the pod does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SupplementalGroupsPolicy {
    /// The groups of the user in `/etc/group` of the image.
    #[default]
    Merge,
    /// No others.
    Strict,
}

/// A seccomp or AppArmor profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SecurityProfile {
    /// The runtime's default profile.
    #[default]
    RuntimeDefault,
    /// No confinement.
    Unconfined,
    /// A profile on the node: absolute path (seccomp) or loaded name (AppArmor).
    Localhost(String),
}

/// SELinux labels; empty parts are left to the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelinuxOptions {
    /// User.
    pub user: String,
    /// Role.
    pub role: String,
    /// Type.
    pub type_: String,
    /// Level.
    pub level: String,
}

/// Security settings of a sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SandboxSecurity {
    /// Namespaces.
    pub namespaces: NamespaceOptions,
    /// UID the sandbox process runs as.
    pub run_as_user: Option<i64>,
    /// GID the sandbox process runs as.
    pub run_as_group: Option<i64>,
    /// Extra groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether the image may add groups.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// Some container of the pod is privileged.
    pub privileged: bool,
    /// The root file system is read-only.
    pub readonly_rootfs: bool,
    /// Seccomp profile of the sandbox.
    pub seccomp: SecurityProfile,
    /// SELinux labels.
    pub selinux: Option<SelinuxOptions>,
}

/// A port that the runtime's network maps from the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMapping {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Protocol,
    /// Port in the pod.
    pub container_port: i32,
    /// Port on the node; 0 means none.
    pub host_port: i32,
    /// Address on the node; empty means all.
    pub host_ip: String,
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Content of a pod's `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsConfig {
    /// `nameserver` lines.
    pub servers: Vec<String>,
    /// The `search` line.
    pub searches: Vec<String>,
    /// The `options` line.
    pub options: Vec<String>,
}

/// `PodSandboxConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SandboxConfig {
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod UID.
    pub uid: PodUid,
    /// Attempt of this sandbox.
    pub attempt: u32,
    /// Host name; empty for host network.
    pub hostname: String,
    /// Directory of the pod's logs, absolute.
    pub log_directory: String,
    /// `resolv.conf`; `None` leaves the runtime's.
    pub dns: Option<DnsConfig>,
    /// Port mappings.
    pub port_mappings: Vec<PortMapping>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup; empty leaves the runtime's.
    pub cgroup_parent: String,
    /// Kernel parameters set in the sandbox' namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Security settings.
    pub security: SandboxSecurity,
    /// RuntimeClass overhead.
    pub overhead: Option<LinuxResources>,
    /// Sum of the containers' resources.
    pub resources: Option<LinuxResources>,
}

/// Mount propagation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountPropagation {
    /// `None`.
    #[default]
    Private,
    /// `HostToContainer`.
    HostToContainer,
    /// `Bidirectional`.
    Bidirectional,
}

/// A mount into a container: a path of the node, or an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Path in the container.
    pub container_path: String,
    /// Path on the node; empty for an image.
    pub host_path: String,
    /// Read-only.
    pub readonly: bool,
    /// Read-only with everything that is mounted below it.
    pub recursive_read_only: bool,
    /// The runtime relabels the content for SELinux.
    pub selinux_relabel: bool,
    /// Propagation.
    pub propagation: MountPropagation,
    /// The image that is mounted instead of a path of the node.
    pub image: Option<MountedImage>,
}

/// An image or artifact that the runtime mounts into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedImage {
    /// ID or digest that the runtime resolved.
    pub image: String,
    /// As the pod names it.
    pub user_specified_image: String,
    /// Handler of the pod's sandbox; empty for the default one.
    pub runtime_handler: String,
    /// Annotations of the pod, as upstream passes them.
    pub annotations: BTreeMap<String, String>,
    /// Directory of the image to mount; empty for all of it.
    pub sub_path: String,
}

/// A device of the node in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Path in the container.
    pub container_path: String,
    /// Path on the node, of the device or of a link to it.
    pub host_path: String,
    /// Permissions: `r` read, `w` write, `m` mknod.
    pub permissions: String,
}

/// Resource settings as the kernel understands them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinuxResources {
    /// CFS period in microseconds; 0 is unset.
    pub cpu_period: i64,
    /// CFS quota in microseconds; 0 is unset.
    pub cpu_quota: i64,
    /// CPU shares (2–262144); 0 is unset.
    pub cpu_shares: i64,
    /// Memory limit in bytes; 0 is unset.
    pub memory_limit: i64,
    /// Limit of memory and swap together in bytes, on cgroup v1; 0 is unset.
    pub memory_swap_limit: i64,
    /// Limits of huge pages in bytes, by page size as in `2MB`.
    pub huge_page_limits: BTreeMap<String, u64>,
    /// `oom_score_adj`.
    pub oom_score_adj: i64,
    /// cgroup v2 keys.
    pub unified: BTreeMap<String, String>,
    /// CPUs in the list format of the kernel (`0-2,7`); empty is unset.
    pub cpuset_cpus: String,
    /// NUMA nodes for memory, in the list format of the kernel; empty is unset.
    pub cpuset_mems: String,
}

/// Security settings of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSecurity {
    /// Namespaces.
    pub namespaces: NamespaceOptions,
    /// The container whose PID namespace it joins; overrides `namespaces`.
    pub pid_target: Option<ContainerId>,
    /// Capabilities to add.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop.
    pub drop_capabilities: Vec<String>,
    /// Privileged.
    pub privileged: bool,
    /// UID.
    pub run_as_user: Option<i64>,
    /// User name, where the image has no numeric user.
    pub run_as_username: String,
    /// GID.
    pub run_as_group: Option<i64>,
    /// Extra groups.
    pub supplemental_groups: Vec<i64>,
    /// Whether the image may add groups.
    pub supplemental_groups_policy: SupplementalGroupsPolicy,
    /// Read-only root file system.
    pub readonly_rootfs: bool,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// Seccomp profile.
    pub seccomp: SecurityProfile,
    /// AppArmor profile; `None` leaves it to the runtime.
    pub apparmor: Option<SecurityProfile>,
    /// SELinux labels.
    pub selinux: Option<SelinuxOptions>,
    /// Paths hidden from the container.
    pub masked_paths: Vec<String>,
    /// Paths read-only in the container.
    pub readonly_paths: Vec<String>,
}

/// `ContainerConfig`.
#[derive(Clone, Default, PartialEq)]
pub struct ContainerConfig {
    /// Name in the pod spec.
    pub name: String,
    /// Attempt, equal to the restart count.
    pub attempt: u32,
    /// Image reference to run: the ID or digest that the runtime resolved.
    pub image: String,
    /// Image as the user wrote it.
    pub user_specified_image: String,
    /// Entry point; empty means the image's.
    pub command: Vec<String>,
    /// Arguments; empty means the image's.
    pub args: Vec<String>,
    /// Working directory; empty means the image's.
    pub working_dir: String,
    /// Environment in order.
    pub envs: Vec<(String, String)>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Devices.
    pub devices: Vec<Device>,
    /// Fully qualified names of CDI devices.
    pub cdi_devices: Vec<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Log path relative to the sandbox' log directory.
    pub log_path: String,
    /// Keep stdin open.
    pub stdin: bool,
    /// Close stdin after the first attach.
    pub stdin_once: bool,
    /// Allocate a terminal.
    pub tty: bool,
    /// Signal that stops it, as the API spells it (`SIGRTMIN+1`); empty means the image's.
    pub stop_signal: String,
    /// Resources.
    pub resources: LinuxResources,
    /// Security settings.
    pub security: ContainerSecurity,
}

impl std::fmt::Debug for ContainerConfig {
    /// Omits what may be secret: values of variables, and the command, which may repeat them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.envs.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ContainerConfig")
            .field("name", &self.name)
            .field("attempt", &self.attempt)
            .field("image", &self.image)
            .field("user_specified_image", &self.user_specified_image)
            .field("command", &self.command.len())
            .field("args", &self.args.len())
            .field("working_dir", &self.working_dir)
            .field("envs", &names)
            .field("mounts", &self.mounts)
            .field("devices", &self.devices)
            .field("cdi_devices", &self.cdi_devices)
            .field("labels", &self.labels)
            .field("annotations", &self.annotations)
            .field("log_path", &self.log_path)
            .field("resources", &self.resources)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

/// Filter of a list of sandboxes or containers; an empty filter lists all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListFilter {
    /// Only this ID.
    pub id: Option<String>,
    /// Only containers of this sandbox.
    pub sandbox: Option<SandboxId>,
    /// Only objects with these labels.
    pub labels: BTreeMap<String, String>,
}

impl ListFilter {
    /// Selects the objects of one pod.
    pub fn of_pod(uid: &PodUid) -> Self {
        Self {
            labels: [(crate::names::LABEL_POD_UID.to_owned(), uid.to_string())].into(),
            ..Self::default()
        }
    }
}

/// A row of ListPodSandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSummary {
    /// ID.
    pub id: SandboxId,
    /// Pod UID.
    pub uid: PodUid,
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Attempt.
    pub attempt: u32,
    /// Ready.
    pub ready: bool,
    /// Creation time.
    pub created_at: Timestamp,
}

/// PodSandboxStatus.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxDetail {
    /// The row of the list.
    pub summary: SandboxSummary,
    /// IPs, primary first; empty for host network.
    pub ips: Vec<IpAddr>,
    /// It uses the node's network namespace.
    pub host_network: bool,
}

/// A row of ListContainers.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSummary {
    /// ID.
    pub id: ContainerId,
    /// Sandbox.
    pub sandbox_id: SandboxId,
    /// Pod UID, from the label; empty if the container is not a pod's.
    pub uid: PodUid,
    /// Container name, from the metadata.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// State.
    pub state: ContainerState,
    /// Creation time.
    pub created_at: Timestamp,
    /// ID of its image (`sha256:…`), or a reference from a runtime without that field.
    pub image_id: String,
}

/// ContainerStatus.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDetail {
    /// The observed state, with hash and restart count from the annotations. `sandbox_id` is empty:
    /// the CRI omits the sandbox here.
    pub observed: crate::observed::ObservedContainer,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Mounts, for example to find the termination message's file on the node.
    pub mounts: Vec<Mount>,
}

/// Result of a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Standard output; the runtime keeps 16 MiB.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code.
    pub exit_code: i32,
}

/// Version of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// For example `containerd`.
    pub name: String,
    /// Version of the runtime.
    pub version: String,
    /// CRI version, `v1`.
    pub api_version: String,
}

/// Status of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Why `RuntimeReady` is false; `None` when it is true.
    pub runtime_error: Option<String>,
    /// Why `NetworkReady` is false; `None` when it is true.
    pub network_error: Option<String>,
    /// Handlers that a RuntimeClass may name; the default handler has an empty name. Empty if not
    /// reported.
    pub handlers: Vec<RuntimeHandler>,
    /// `features.supplemental_groups_policy`; `None` if not reported.
    pub supplemental_groups_policy: Option<bool>,
}

/// A handler of the runtime and its features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    /// Name, empty for the default one.
    pub name: String,
    /// Mounts can be made read-only with everything below them.
    pub recursive_read_only_mounts: bool,
    /// Pods can have their own user namespace.
    pub user_namespaces: bool,
}

/// An image on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageInfo {
    /// `sha256:…`.
    pub id: String,
    /// Tags.
    pub repo_tags: Vec<String>,
    /// Digest references.
    pub repo_digests: Vec<String>,
    /// Size in bytes.
    pub size: u64,
    /// Numeric user of the image.
    pub uid: Option<i64>,
    /// User name of the image.
    pub username: String,
    /// Exempt from garbage collection.
    pub pinned: bool,
}

/// Credentials for a pull.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct ImageAuth {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// `user:password` in base64.
    pub auth: String,
    /// Registry address.
    pub server_address: String,
    /// Identity token.
    pub identity_token: String,
    /// Bearer token.
    pub registry_token: String,
}

impl std::fmt::Debug for ImageAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageAuth")
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

/// Event of the runtime about a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Kind of the event.
    pub kind: RuntimeEventKind,
    /// Container or sandbox ID.
    pub id: String,
    /// Pod UID where the event carries it (CRI events do, containerd's do not).
    pub uid: Option<PodUid>,
}

/// Kinds of [`RuntimeEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeEventKind {
    /// Created.
    Created,
    /// Started.
    Started,
    /// Its process exited.
    Stopped,
    /// Removed.
    Deleted,
    /// The OOM killer killed one of its processes.
    Oom,
}

/// `cgroupDriver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// cgroups as plain directories.
    Cgroupfs,
    /// cgroups as systemd slices.
    Systemd,
}

impl CgroupDriver {
    /// Returns the driver with this name in the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cgroupfs" => Some(Self::Cgroupfs),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}
