//! cgroup v2, with one hierarchy whose root has no memory stats.

use std::path::PathBuf;

use super::{Cgroups, Depth, Hierarchy, below};
use crate::parse::{
    parse_cpu_max, parse_cpu_stat, parse_io_stat, parse_meminfo, parse_memory_stat_v2,
    parse_number, shares_of_weight,
};
use crate::usage::{CpuLimits, CpuUsage, IoUsage, MemoryUsage};

impl Cgroups {
    fn dir_v2(&self, path: &str) -> Option<PathBuf> {
        match &self.hierarchy {
            Hierarchy::V1(_) => None,
            Hierarchy::V2(mount) => Some(below(mount, path)),
        }
    }

    pub(super) fn cpu_v2(&mut self, path: &str) -> Option<CpuUsage> {
        let dir = self.dir_v2(path)?;
        let stat = self.kept(path, 0, &dir.join("cpu.stat"), parse_cpu_stat)?;
        Some(CpuUsage {
            total_ns: stat.total_ns?,
            user_ns: stat.user_ns,
            system_ns: stat.system_ns,
            nano_cores: None,
            periods: stat.periods,
            throttled_periods: stat.throttled_periods,
            throttled_ns: stat.throttled_ns,
            pressure: self.pressure(&dir.join("cpu.pressure")),
        })
    }

    pub(super) fn memory_v2(&mut self, path: &str, depth: Depth) -> Option<MemoryUsage> {
        let dir = self.dir_v2(path)?;
        let stat = dir.join("memory.stat");
        let stat = self.kept(path, 2, &stat, parse_memory_stat_v2)?;
        let current = dir.join("memory.current");
        let usage = self.kept(path, 1, &current, parse_number).flatten();
        let (usage, swap) = match usage {
            Some(usage) => {
                let swap = self.number(&dir.join("memory.swap.current"));
                (usage, swap.unwrap_or(0))
            }
            // the root has neither file; the v1 root counts these two
            None if path == "/" => {
                let info = self.file(&self.proc.join("meminfo"), parse_meminfo)?;
                let swap = info.swap_total.saturating_sub(info.swap_free);
                (stat.rss.saturating_add(stat.cache), swap)
            }
            None => return None,
        };
        let mut memory = MemoryUsage {
            usage,
            working_set: usage.saturating_sub(stat.inactive_file),
            rss: stat.rss,
            cache: stat.cache,
            mapped_file: stat.mapped_file,
            active_file: stat.active_file,
            inactive_file: stat.inactive_file,
            kernel: stat.kernel,
            limit: self.limit(&dir.join("memory.max")),
            swap,
            swap_limit: self.limit(&dir.join("memory.swap.max")),
            page_faults: stat.page_faults,
            major_page_faults: stat.major_page_faults,
            pressure: self.pressure(&dir.join("memory.pressure")),
            ..MemoryUsage::default()
        };
        if depth.details {
            memory.max_usage = self.number(&dir.join("memory.peak")).unwrap_or(0);
            let reservation = self.limit(&dir.join("memory.min"));
            memory.reservation = reservation.filter(|bytes| *bytes > 0);
            let events = dir.join("memory.events");
            memory.failures = self.keyed(&events, "max");
            memory.oom_kills = self.keyed(&events, "oom_kill");
            memory.huge_pages = self.huge_pages(&dir, ".current", ".max_usage_in_bytes");
        }
        Some(memory)
    }

    pub(super) fn cpu_limits_v2(&mut self, path: &str) -> CpuLimits {
        let Some(dir) = self.dir_v2(path) else {
            return CpuLimits::default();
        };
        let weight = self.number(&dir.join("cpu.weight"));
        let max = self.file(&dir.join("cpu.max"), parse_cpu_max);
        let (quota_us, period_us) = max.unwrap_or_default();
        CpuLimits {
            shares: weight.and_then(shares_of_weight),
            quota_us,
            period_us,
        }
    }

    pub(super) fn io_v2(&mut self, path: &str) -> Option<IoUsage> {
        let dir = self.dir_v2(path)?;
        let devices = self.file(&dir.join("io.stat"), parse_io_stat)?;
        Some(IoUsage {
            devices: self.named(devices),
            pressure: self.pressure(&dir.join("io.pressure")),
        })
    }
}
