//! Requests to a container runtime in our own words.
//!
//! Field meanings follow `runtime.v1` of the CRI; only what Windlass uses is here. The
//! conversion to protobuf lives in `windlass-cri`, the decisions that fill these in
//! `windlass-core`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Timestamp;
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::observed::ContainerState;

/// Who a namespace is shared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceMode {
    /// One for the whole pod.
    #[default]
    Pod,
    /// One for each container.
    Container,
    /// The node's.
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

/// Whose user and group IDs the processes of a pod have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserNamespace {
    /// The node's: root in the container is root on the node.
    #[default]
    Node,
    /// A range of the pod's own, the same for users and groups.
    Pod(IdMapping),
}

/// IDs of a container and what they are on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// First ID on the node.
    pub host_id: u32,
    /// The same ID in the container.
    pub container_id: u32,
    /// How many IDs from there on.
    pub length: u32,
}

/// Which groups a process has beside those the pod names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SupplementalGroupsPolicy {
    /// Also those that the image's `/etc/group` gives its user.
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

/// How a mount's later mounts travel.
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
    /// Annotations of the pod, as upstream hands them over.
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
    /// What the container may do: of `r` read, `w` write, `m` make the node.
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
    /// Memory limit in bytes; 0 is none.
    pub memory_limit: i64,
    /// `oom_score_adj`.
    pub oom_score_adj: i64,
    /// cgroup v2 keys.
    pub unified: BTreeMap<String, String>,
}

/// Security settings of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerSecurity {
    /// Namespaces.
    pub namespaces: NamespaceOptions,
    /// The container whose PID namespace it joins, whatever `namespaces` say of PIDs.
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
    /// Everything but what may be secret: the values of variables, and the words of the command
    /// in which they may be repeated.
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
            .field("labels", &self.labels)
            .field("annotations", &self.annotations)
            .field("log_path", &self.log_path)
            .field("resources", &self.resources)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

/// Which sandboxes or containers to list. Empty lists all.
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
    /// Everything that belongs to one pod.
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
    /// What the list says.
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
}

/// ContainerStatus.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerDetail {
    /// What was observed, with hash and restart count read from the annotations. The CRI leaves
    /// the sandbox out of this answer: `sandbox_id` is empty, take it from the list's row.
    pub observed: crate::observed::ObservedContainer,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Mounts, for example to find the termination message's file on the node.
    pub mounts: Vec<Mount>,
}

/// What a command that ran in a container left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to standard output, as far as the runtime keeps it (16 MiB).
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
}

/// Version of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// For example `containerd`.
    pub name: String,
    /// The runtime's own version.
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
    /// Handlers that a RuntimeClass may name; the default one has an empty name. Empty if the
    /// runtime does not tell.
    pub handlers: Vec<RuntimeHandler>,
    /// `features.supplemental_groups_policy`; `None` if the runtime does not tell.
    pub supplemental_groups_policy: Option<bool>,
}

/// A handler of the runtime and what it can do.
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
    /// Never to be collected.
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

/// A hint from the runtime that something about a container or sandbox changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// What happened.
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
    /// The kernel killed something in it for memory.
    Oom,
}

/// `cgroupDriver`: who makes and names cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Directories, made by whoever needs them.
    Cgroupfs,
    /// Slices of systemd.
    Systemd,
}

impl CgroupDriver {
    /// The driver that a configuration names.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "cgroupfs" => Some(Self::Cgroupfs),
            "systemd" => Some(Self::Systemd),
            _ => None,
        }
    }
}
