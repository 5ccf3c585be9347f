//! Usage as plain data. Times are nanoseconds, sizes bytes; counters start with their object;
//! `None` means unknown.

use std::collections::BTreeMap;

use windlass_types::{ContainerId, OomKills, PodUid, SandboxId, Timestamp};

/// Stall times of a resource, from PSI files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Some tasks waited.
    pub some: PressureLine,
    /// All tasks waited.
    pub full: PressureLine,
}

/// One line of a PSI file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureLine {
    /// Share of the last 10 s, percent.
    pub avg10: f64,
    /// Share of the last 60 s, percent.
    pub avg60: f64,
    /// Share of the last 300 s, percent.
    pub avg300: f64,
    /// Total nanoseconds.
    pub total_ns: u64,
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// Total CPU time.
    pub total_ns: u64,
    /// CPU time in user mode.
    pub user_ns: u64,
    /// CPU time in the kernel.
    pub system_ns: u64,
    /// Rate since the previous sample in nanocores; `None` for the first sample.
    pub nano_cores: Option<u64>,
    /// Elapsed enforcement periods.
    pub periods: u64,
    /// Throttled enforcement periods.
    pub throttled_periods: u64,
    /// Time throttled.
    pub throttled_ns: u64,
    /// Pressure.
    pub pressure: Option<Pressure>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// Usage including page cache.
    pub usage: u64,
    /// Working set: usage without inactive file pages.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Page cache.
    pub cache: u64,
    /// Mapped files.
    pub mapped_file: u64,
    /// Active file pages.
    pub active_file: u64,
    /// Inactive file pages.
    pub inactive_file: u64,
    /// Kernel memory.
    pub kernel: Option<u64>,
    /// Maximum usage; 0 if unknown, as upstream.
    pub max_usage: u64,
    /// Number of times the limit was hit.
    pub failures: Option<u64>,
    /// Limit; `None` without one.
    pub limit: Option<u64>,
    /// Reservation (soft limit, `memory.min`); `None` without one.
    pub reservation: Option<u64>,
    /// Swap usage; 0 if unknown, as upstream.
    pub swap: u64,
    /// Swap limit; `None` without one.
    pub swap_limit: Option<u64>,
    /// Minor and major page faults.
    pub page_faults: u64,
    /// Major page faults.
    pub major_page_faults: u64,
    /// Number of OOM kills.
    pub oom_kills: Option<u64>,
    /// Huge pages by page size in bytes.
    pub huge_pages: Vec<HugePages>,
    /// Pressure.
    pub pressure: Option<Pressure>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page.
    pub page_size: u64,
    /// Usage.
    pub usage: u64,
    /// Maximum usage.
    pub max_usage: u64,
}

/// Block I/O.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoUsage {
    /// By device.
    pub devices: Vec<DeviceIo>,
    /// Pressure.
    pub pressure: Option<Pressure>,
}

/// I/O on one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// Path such as `/dev/vda`, or `major:minor` without a name.
    pub device: String,
    /// Major and minor number.
    pub number: (u32, u32),
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Host I/O on one block device or partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Reads.
    pub reads: u64,
    /// Merged reads.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Milliseconds spent reading.
    pub read_ms: u64,
    /// Writes.
    pub writes: u64,
    /// Merged writes.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Milliseconds spent writing.
    pub write_ms: u64,
    /// I/O requests in progress.
    pub in_progress: u64,
    /// Milliseconds with I/O in progress.
    pub io_ms: u64,
    /// Weighted milliseconds with I/O in progress.
    pub weighted_io_ms: u64,
}

/// Processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Thread limit; `None` without one.
    pub threads_max: Option<u64>,
    /// Open file descriptors.
    pub descriptors: Option<u64>,
    /// Open sockets.
    pub sockets: Option<u64>,
    /// Soft limit of open files of the first process; `None` without one or if unknown.
    pub open_files_max: Option<u64>,
}

/// Stats of a cgroup at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupUsage {
    /// When it was read.
    pub at: Timestamp,
    /// Path below the mount point, such as `/kubepods/burstable/pod…`.
    pub path: String,
    /// CPU.
    pub cpu: Option<CpuUsage>,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// Block I/O, if selected.
    pub io: Option<IoUsage>,
    /// Processes, if selected.
    pub processes: Option<ProcessUsage>,
    /// Configured shares, quota and period.
    pub cpu_limits: CpuLimits,
}

/// CPU limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuLimits {
    /// Shares on the scale of cgroup v1 (1024 per core).
    pub shares: Option<u64>,
    /// Quota in microseconds per period; `None` without one.
    pub quota_us: Option<u64>,
    /// Period in microseconds.
    pub period_us: Option<u64>,
}

/// A file system, or the usage of an object on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// Device of the file system, if known.
    pub device: Option<String>,
    /// Size of the file system.
    pub capacity: Option<u64>,
    /// Available to unprivileged users.
    pub available: Option<u64>,
    /// Used by the object, or on the whole file system.
    pub used: Option<u64>,
    /// Inodes of the file system.
    pub inodes: Option<u64>,
    /// Free inodes.
    pub inodes_free: Option<u64>,
    /// Used inodes.
    pub inodes_used: Option<u64>,
}

/// Interfaces of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkUsage {
    /// When it was read.
    pub at: Timestamp,
    /// Interfaces without loopback and the node ends of pod interfaces, ordered by name.
    pub interfaces: Vec<InterfaceUsage>,
    /// Name of the interface with the default route, or `eth0`.
    pub default: Option<String>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    /// Name.
    pub name: String,
    /// Received bytes, packets, errors and drops.
    pub received: Traffic,
    /// Sent bytes, packets, errors and drops.
    pub sent: Traffic,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Errors.
    pub errors: u64,
    /// Dropped packets.
    pub dropped: u64,
}

/// Usage of one container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Name in the pod's spec.
    pub name: String,
    /// The runtime's ID.
    pub id: ContainerId,
    /// Image in the pod spec.
    pub image: String,
    /// When it started.
    pub started_at: Timestamp,
    /// Its cgroup; `None` if not found.
    pub cgroup: Option<CgroupUsage>,
    /// Its writable layer, if selected.
    pub rootfs: Option<FsUsage>,
    /// Its logs, if selected.
    pub logs: Option<FsUsage>,
}

/// An exited container with OOM kills. Its cgroup is gone, usually before a scrape sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OomKilledContainer {
    /// Name in the pod's spec.
    pub name: String,
    /// The runtime's ID.
    pub id: ContainerId,
    /// Image in the pod spec.
    pub image: String,
    /// The kills.
    pub kills: OomKills,
    /// When they were collected.
    pub at: Timestamp,
}

/// Usage of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Name in the pod's spec.
    pub name: String,
    /// Namespace and name of its PVC.
    pub claim: Option<(String, String)>,
    /// Its usage.
    pub fs: FsUsage,
    /// Its driver reports it as abnormal.
    pub abnormal: Option<bool>,
}

/// Usage of one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The current one of several pods with the same full name; series have no UID.
    pub present: bool,
    /// When it started.
    pub started_at: Timestamp,
    /// The pod's cgroup.
    pub cgroup: Option<CgroupUsage>,
    /// Cgroup, ID and image of the sandbox, for cAdvisor labels.
    pub sandbox: Option<SandboxUsage>,
    /// Network namespace; `None` for the host network or if not selected.
    pub network: Option<NetworkUsage>,
    /// Running containers, ordered by name.
    pub containers: Vec<ContainerUsage>,
    /// Exited containers with OOM kills; empty if only CPU and memory are selected.
    pub oom_killed: Vec<OomKilledContainer>,
    /// Volumes, if selected, ordered by name.
    pub volumes: Vec<VolumeUsage>,
    /// Local storage of the pod: writable layers, logs, emptyDir volumes on disk.
    pub ephemeral: Option<FsUsage>,
}

/// Usage of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxUsage {
    /// The runtime's ID.
    pub id: SandboxId,
    /// Image name; empty if unknown.
    pub image: String,
    /// Its cgroup.
    pub cgroup: Option<CgroupUsage>,
}

/// Usage of a system cgroup, such as `kubelet` or `pods`.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemUsage {
    /// `kubelet`, `runtime`, `misc`, `pods`, `burstable` or `besteffort`.
    pub name: &'static str,
    /// When it started.
    pub started_at: Timestamp,
    /// Its cgroup.
    pub cgroup: CgroupUsage,
}

/// Usage of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeUsage {
    /// Boot time.
    pub started_at: Timestamp,
    /// The root cgroup, or values of `/proc`; the limits are those of the host.
    pub cgroup: CgroupUsage,
    /// Interfaces, if selected.
    pub network: Option<NetworkUsage>,
    /// The file system of `--root-dir`, if selected.
    pub fs: Option<FsUsage>,
    /// The file system of images, if selected.
    pub image_fs: Option<FsUsage>,
    /// The file system of writable layers, if selected.
    pub container_fs: Option<FsUsage>,
    /// Host disks by device path, if block I/O is selected.
    pub disks: BTreeMap<String, DiskUsage>,
    /// Maximum number of processes and threads.
    pub max_pid: Option<u64>,
    /// Number of processes and threads.
    pub running_processes: Option<u64>,
    /// System cgroups.
    pub system: Vec<SystemUsage>,
    /// Cgroups of the QoS classes; empty if only CPU and memory are selected.
    pub classes: Vec<SystemUsage>,
}
