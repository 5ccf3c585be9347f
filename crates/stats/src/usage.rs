//! Usage as plain data. Times are nanoseconds, sizes bytes; counters count from the start of what
//! they belong to; `None` is "not known here" (cgroup v1 has no pressure, a kernel no PSI).

use std::collections::BTreeMap;

use windlass_types::{ContainerId, PodUid, SandboxId, Timestamp};

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
    /// Nanoseconds in all.
    pub total_ns: u64,
}

/// Processor time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// All processor time.
    pub total_ns: u64,
    /// Of it in user mode.
    pub user_ns: u64,
    /// Of it in the kernel.
    pub system_ns: u64,
    /// Rate between this look and the one before, in billionths of a core; `None` at the first look.
    pub nano_cores: Option<u64>,
    /// Enforcement periods of the quota that passed.
    pub periods: u64,
    /// Of them throttled.
    pub throttled_periods: u64,
    /// Time throttled.
    pub throttled_ns: u64,
    /// Stalls.
    pub pressure: Option<Pressure>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// In use, page cache included.
    pub usage: u64,
    /// In use less inactive file pages: what eviction and autoscalers look at.
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
    /// Most that was ever in use; 0 on kernels that do not keep it, as upstream.
    pub max_usage: u64,
    /// How often the limit was hit.
    pub failures: Option<u64>,
    /// Limit; `None` without one.
    pub limit: Option<u64>,
    /// What the kernel tries to leave it (soft limit, `memory.min`); `None` without one.
    pub reservation: Option<u64>,
    /// Swap in use; 0 on kernels that do not count it, as upstream.
    pub swap: u64,
    /// Swap that may be used; `None` without a limit.
    pub swap_limit: Option<u64>,
    /// Minor and major page faults.
    pub page_faults: u64,
    /// Major page faults.
    pub major_page_faults: u64,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Huge pages by page size in bytes: in use, and most ever.
    pub huge_pages: Vec<HugePages>,
    /// Stalls.
    pub pressure: Option<Pressure>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page.
    pub page_size: u64,
    /// In use.
    pub usage: u64,
    /// Most that was ever in use.
    pub max_usage: u64,
}

/// Block I/O.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoUsage {
    /// By device.
    pub devices: Vec<DeviceIo>,
    /// Stalls.
    pub pressure: Option<Pressure>,
}

/// I/O on one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// Path such as `/dev/vda`, or `major:minor` where it has no name.
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

/// What the machine has done on one block device or partition, besides what [`DeviceIo`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Reads that were merged with others.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Milliseconds spent reading.
    pub read_ms: u64,
    /// Writes that were merged with others.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Milliseconds spent writing.
    pub write_ms: u64,
    /// Reads and writes under way.
    pub in_progress: u64,
    /// Milliseconds in which any were.
    pub io_ms: u64,
    /// The same, times how many there were.
    pub weighted_io_ms: u64,
}

/// What runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Most threads allowed; `None` without a limit.
    pub threads_max: Option<u64>,
    /// Open file descriptors.
    pub descriptors: Option<u64>,
    /// Of them sockets.
    pub sockets: Option<u64>,
    /// Soft limit of open files of the first process; `None` without a limit or if not known.
    pub open_files_max: Option<u64>,
}

/// What a cgroup says at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupUsage {
    /// When it was read.
    pub at: Timestamp,
    /// Its path below the controller's mount, such as `/kubepods/burstable/pod…`.
    pub path: String,
    /// Processor.
    pub cpu: Option<CpuUsage>,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// Block I/O, if wanted.
    pub io: Option<IoUsage>,
    /// What runs, if wanted.
    pub processes: Option<ProcessUsage>,
    /// Shares, quota and period, as configured.
    pub cpu_limits: CpuLimits,
}

/// How processor time is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuLimits {
    /// Shares of cgroup v1's scale (1024 are one core's).
    pub shares: Option<u64>,
    /// Microseconds in each period; `None` without a quota.
    pub quota_us: Option<u64>,
    /// Microseconds of a period.
    pub period_us: Option<u64>,
}

/// A file system, or what something occupies on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsUsage {
    /// When it was measured.
    pub at: Timestamp,
    /// Device of the file system, if known.
    pub device: Option<String>,
    /// Size of the file system.
    pub capacity: Option<u64>,
    /// Free for unprivileged users.
    pub available: Option<u64>,
    /// Occupied: by the thing itself, or on the whole file system if it is one.
    pub used: Option<u64>,
    /// Inodes of the file system.
    pub inodes: Option<u64>,
    /// Of them free.
    pub inodes_free: Option<u64>,
    /// Inodes occupied.
    pub inodes_used: Option<u64>,
}

/// Interfaces of a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkUsage {
    /// When it was read.
    pub at: Timestamp,
    /// All but loopback and the node's ends of pods' interfaces, ordered by name.
    pub interfaces: Vec<InterfaceUsage>,
    /// The one with the default route, or `eth0`.
    pub default: Option<String>,
}

/// One interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceUsage {
    /// Its name.
    pub name: String,
    /// Bytes, packets, errors and drops received.
    pub received: Traffic,
    /// Bytes, packets, errors and drops sent.
    pub sent: Traffic,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Errors.
    pub errors: u64,
    /// Packets dropped.
    pub dropped: u64,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerUsage {
    /// Name in the pod's spec.
    pub name: String,
    /// The runtime's ID.
    pub id: ContainerId,
    /// Image as the pod asks for it.
    pub image: String,
    /// When it started.
    pub started_at: Timestamp,
    /// Its cgroup; `None` when it is gone or cannot be found.
    pub cgroup: Option<CgroupUsage>,
    /// Its writable layer, if wanted.
    pub rootfs: Option<FsUsage>,
    /// Its logs, if wanted.
    pub logs: Option<FsUsage>,
}

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Name in the pod's spec.
    pub name: String,
    /// Namespace and name of its claim.
    pub claim: Option<(String, String)>,
    /// What it holds.
    pub fs: FsUsage,
    /// Its driver says that it is not well.
    pub abnormal: Option<bool>,
}

/// One pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUsage {
    /// UID.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Of pods with this name it is the one that series are told of, which know no UID.
    pub present: bool,
    /// When it started.
    pub started_at: Timestamp,
    /// The pod's cgroup.
    pub cgroup: Option<CgroupUsage>,
    /// The sandbox' own cgroup, ID and image, for cAdvisor's labels.
    pub sandbox: Option<SandboxUsage>,
    /// The pod's network namespace; `None` on the host's network or if not wanted.
    pub network: Option<NetworkUsage>,
    /// Containers that run, ordered by name.
    pub containers: Vec<ContainerUsage>,
    /// Volumes, if wanted, ordered by name.
    pub volumes: Vec<VolumeUsage>,
    /// Local storage that counts against the pod: writable layers, logs, emptyDirs on disk.
    pub ephemeral: Option<FsUsage>,
}

/// A pod's sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxUsage {
    /// The runtime's ID.
    pub id: SandboxId,
    /// Name of its image; empty if the runtime has not told it.
    pub image: String,
    /// Its cgroup.
    pub cgroup: Option<CgroupUsage>,
}

/// A cgroup that is no pod's, such as `kubelet` or `pods`.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemUsage {
    /// `kubelet`, `runtime`, `misc` or `pods`; of a QoS class `burstable` or `besteffort`.
    pub name: &'static str,
    /// When it started.
    pub started_at: Timestamp,
    /// Its cgroup.
    pub cgroup: CgroupUsage,
}

/// The node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeUsage {
    /// When it booted.
    pub started_at: Timestamp,
    /// The root cgroup, or `/proc` where that has no figures; its limits are the machine.
    pub cgroup: CgroupUsage,
    /// The node's interfaces, if wanted.
    pub network: Option<NetworkUsage>,
    /// The file system of `--root-dir`, if wanted.
    pub fs: Option<FsUsage>,
    /// Where the runtime keeps images, if wanted.
    pub image_fs: Option<FsUsage>,
    /// Where it keeps writable layers, if wanted.
    pub container_fs: Option<FsUsage>,
    /// By path of the device, if block I/O is wanted.
    pub disks: BTreeMap<String, DiskUsage>,
    /// Processes and threads that may be and that are.
    pub max_pid: Option<u64>,
    /// Of them in use.
    pub running_processes: Option<u64>,
    /// Containers of the system.
    pub system: Vec<SystemUsage>,
    /// Parents of the pods of a QoS class; empty if only CPU and memory are wanted.
    pub classes: Vec<SystemUsage>,
}
