//! cgroup v1, with one hierarchy per controller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use windlass_cgroups::{CgroupTree, HostTree};

use super::{Cgroups, Depth, Hierarchy, below};
use crate::parse::{
    BlockIo, DeviceNumber, parse_blkio, parse_cpu_stat, parse_cpuacct_stat, parse_memory_stat_v1,
    parse_number,
};
use crate::usage::{CpuLimits, CpuUsage, IoUsage, MemoryUsage};

/// Controllers with stats.
const CONTROLLERS: [&str; 6] = ["cpu", "cpuacct", "memory", "blkio", "pids", "hugetlb"];

/// Mount points of the hierarchies.
#[derive(Debug)]
pub(super) struct Roots(BTreeMap<&'static str, PathBuf>);

impl Roots {
    pub(super) fn new(tree: &HostTree, mount: &Path) -> Self {
        let root = |name| Some((name, mount.join(tree.hierarchy_of(name)?)));
        Self(CONTROLLERS.into_iter().filter_map(root).collect())
    }

    pub(super) fn dir(&self, controller: &str, path: &str) -> Option<PathBuf> {
        self.0.get(controller).map(|root| below(root, path))
    }
}

impl Cgroups {
    fn dir_v1(&self, controller: &str, path: &str) -> Option<PathBuf> {
        match &self.hierarchy {
            Hierarchy::V1(roots) => roots.dir(controller, path),
            Hierarchy::V2(_) => None,
        }
    }

    pub(super) fn cpu_v1(&mut self, path: &str, depth: Depth) -> Option<CpuUsage> {
        let dir = self.dir_v1("cpuacct", path)?;
        let usage = dir.join("cpuacct.usage");
        let total_ns = self.kept(path, 0, &usage, parse_number).flatten()?;
        if !depth.details {
            return Some(CpuUsage {
                total_ns,
                ..CpuUsage::default()
            });
        }
        let modes = self.file(&dir.join("cpuacct.stat"), parse_cpuacct_stat);
        let (user_ns, system_ns) = modes.unwrap_or_default();
        let cpu = self.dir_v1("cpu", path);
        let stat = cpu.and_then(|dir| self.file(&dir.join("cpu.stat"), parse_cpu_stat));
        let stat = stat.unwrap_or_default();
        Some(CpuUsage {
            total_ns,
            user_ns,
            system_ns,
            nano_cores: None,
            periods: stat.periods,
            throttled_periods: stat.throttled_periods,
            throttled_ns: stat.throttled_ns,
            pressure: None,
        })
    }

    pub(super) fn memory_v1(&mut self, path: &str, depth: Depth) -> Option<MemoryUsage> {
        let dir = self.dir_v1("memory", path)?;
        let usage = dir.join("memory.usage_in_bytes");
        let usage = self.kept(path, 1, &usage, parse_number).flatten()?;
        let stat = dir.join("memory.stat");
        let stat = self.kept(path, 2, &stat, parse_memory_stat_v1)?;
        let limit = self.limit(&dir.join("memory.limit_in_bytes"));
        // this limit includes memory and swap
        let swap_limit = self.limit(&dir.join("memory.memsw.limit_in_bytes"));
        let swap_limit = swap_limit.and_then(|both| Some(both.saturating_sub(limit?)));
        let mut memory = MemoryUsage {
            usage,
            working_set: usage.saturating_sub(stat.inactive_file),
            rss: stat.rss,
            cache: stat.cache,
            mapped_file: stat.mapped_file,
            active_file: stat.active_file,
            inactive_file: stat.inactive_file,
            limit,
            swap: stat.swap.unwrap_or(0),
            swap_limit,
            page_faults: stat.page_faults,
            major_page_faults: stat.major_page_faults,
            ..MemoryUsage::default()
        };
        if depth.details {
            memory.kernel = self.number(&dir.join("memory.kmem.usage_in_bytes"));
            memory.max_usage = self
                .number(&dir.join("memory.max_usage_in_bytes"))
                .unwrap_or(0);
            memory.failures = self.number(&dir.join("memory.failcnt"));
            memory.reservation = self.limit(&dir.join("memory.soft_limit_in_bytes"));
            memory.oom_kills = self.keyed(&dir.join("memory.oom_control"), "oom_kill");
            let pages = self.dir_v1("hugetlb", path);
            memory.huge_pages = pages
                .map(|dir| self.huge_pages(&dir, ".usage_in_bytes", ".max_usage_in_bytes"))
                .unwrap_or_default();
        }
        Some(memory)
    }

    pub(super) fn cpu_limits_v1(&mut self, path: &str) -> CpuLimits {
        let Some(dir) = self.dir_v1("cpu", path) else {
            return CpuLimits::default();
        };
        CpuLimits {
            shares: self.number(&dir.join("cpu.shares")),
            // -1 means no limit
            quota_us: self.number(&dir.join("cpu.cfs_quota_us")),
            period_us: self.number(&dir.join("cpu.cfs_period_us")),
        }
    }

    pub(super) fn io_v1(&mut self, path: &str) -> Option<IoUsage> {
        let dir = self.dir_v1("blkio", path)?;
        let mut devices: BTreeMap<DeviceNumber, BlockIo> = BTreeMap::new();
        for (device, (read, written)) in self.blkio(&dir, "io_service_bytes")? {
            let io = devices.entry(device).or_default();
            (io.read_bytes, io.written_bytes) = (read, written);
        }
        let operations = self.blkio(&dir, "io_serviced").unwrap_or_default();
        for (device, (reads, writes)) in operations {
            let io = devices.entry(device).or_default();
            (io.reads, io.writes) = (reads, writes);
        }
        Some(IoUsage {
            devices: self.named(devices),
            pressure: None,
        })
    }

    /// Reads a counter file; prefers the newer one that includes child cgroups.
    fn blkio(&mut self, dir: &Path, name: &str) -> Option<BTreeMap<DeviceNumber, (u64, u64)>> {
        let recursive = dir.join(format!("blkio.throttle.{name}_recursive"));
        let own = dir.join(format!("blkio.throttle.{name}"));
        self.file(&recursive, parse_blkio)
            .or_else(|| self.file(&own, parse_blkio))
    }
}
