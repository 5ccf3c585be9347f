//! Host stats from `/proc` that no cgroup has.

use std::path::Path;

use windlass_types::Timestamp;

use crate::cgroup::{read_all, read_into};
use crate::parse::{
    MemInfo, parse_loadavg, parse_meminfo, parse_number, parse_pressure, parse_proc_stat,
};
use crate::usage::{CgroupUsage, CpuLimits, CpuUsage, IoUsage, MemoryUsage, Pressure};

/// Buffer size for short files of `/proc`.
const ROOM: usize = 4096;

/// Stats of the whole host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) booted_at: Timestamp,
    pub(crate) memory: MemInfo,
    pub(crate) max_pid: Option<u64>,
    pub(crate) running_processes: Option<u64>,
}

/// Returns the maximum number of tasks of the host: the lower of two limits of the kernel (upstream
/// `pidlimit.Stats`). `proc` is the mount point of procfs.
pub fn max_tasks(proc: &Path) -> Option<u64> {
    let limits = ["sys/kernel/pid_max", "sys/kernel/threads-max"];
    let limits = limits
        .iter()
        .filter_map(|name| parse_number(&short(&proc.join(name))));
    limits.min()
}

impl Machine {
    /// Reads the stats.
    pub(crate) fn read(proc: &Path) -> Self {
        let stat = read_all(&proc.join("stat")).unwrap_or_default();
        let booted = parse_proc_stat(&stat).boot_time;
        let booted = booted.and_then(|seconds| i64::try_from(seconds).ok());
        Self {
            booted_at: booted
                .and_then(|seconds| Timestamp::from_second(seconds).ok())
                .unwrap_or(Timestamp::UNIX_EPOCH),
            memory: parse_meminfo(&short(&proc.join("meminfo"))),
            max_pid: max_tasks(proc),
            running_processes: parse_loadavg(&short(&proc.join("loadavg"))),
        }
    }

    /// Completes the root cgroup with memory limit and pressure of the host. Without a root cgroup
    /// the stats come from `/proc`.
    pub(crate) fn complete(
        &self,
        root: Option<CgroupUsage>,
        proc: &Path,
        at: Timestamp,
    ) -> CgroupUsage {
        let mut root = root.unwrap_or_else(|| self.without_cgroups(proc, at));
        let pressure = |name: &str| -> Option<Pressure> {
            parse_pressure(&short(&proc.join("pressure").join(name)))
        };
        if let Some(cpu) = &mut root.cpu {
            cpu.pressure = cpu.pressure.or_else(|| pressure("cpu"));
        }
        if let Some(memory) = &mut root.memory {
            memory.limit = Some(self.memory.total).filter(|total| *total > 0);
            memory.swap_limit = Some(self.memory.swap_total);
            memory.pressure = memory.pressure.or_else(|| pressure("memory"));
        }
        if let Some(io) = &mut root.io {
            io.pressure = io.pressure.or_else(|| pressure("io"));
        }
        root
    }

    fn without_cgroups(&self, proc: &Path, at: Timestamp) -> CgroupUsage {
        let stat = parse_proc_stat(&read_all(&proc.join("stat")).unwrap_or_default());
        CgroupUsage {
            at,
            path: "/".to_owned(),
            cpu: (stat.user_ns > 0).then(|| CpuUsage {
                total_ns: stat.user_ns.saturating_add(stat.system_ns),
                user_ns: stat.user_ns,
                system_ns: stat.system_ns,
                ..CpuUsage::default()
            }),
            memory: (self.memory.total > 0).then(|| MemoryUsage {
                usage: self.memory.total.saturating_sub(self.memory.free),
                working_set: self.memory.total.saturating_sub(self.memory.available),
                swap: self.memory.swap_total.saturating_sub(self.memory.swap_free),
                ..MemoryUsage::default()
            }),
            io: Some(IoUsage::default()),
            processes: None,
            cpu_limits: CpuLimits::default(),
        }
    }
}

fn short(file: &Path) -> Vec<u8> {
    let mut buffer = vec![0; ROOM];
    let length = read_into(file, &mut buffer).unwrap_or(0);
    buffer.truncate(length);
    buffer
}
