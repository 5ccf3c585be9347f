//! Parsers of cgroup files and `/proc`.
//!
//! Pure functions of bytes. An invalid line is skipped, an invalid file is `None`. Truncated
//! content only lacks the truncated values.

use std::collections::BTreeMap;

use crate::usage::{DiskUsage, InterfaceUsage, Pressure, PressureLine, Traffic};

/// Nanoseconds of a tick of `cpuacct.stat` and `/proc/stat`: `USER_HZ` is 100 on every
/// architecture that Linux runs containers on.
const TICK_NS: u64 = 10_000_000;
/// Minimum value that means no limit (upstream `isMemoryUnlimited`): cgroup v1 rounds its maximum
/// down to whole pages.
const UNLIMITED: u64 = 1 << 62;
/// Prefixes of omitted interfaces (cAdvisor `ignoredDevicePrefixes`): loopback, and the node ends
/// of pod interfaces.
const IGNORED_INTERFACES: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// Parses a file with one number.
pub fn parse_number(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii())
}

/// Parses a file with a limit; `None` for `max` or the maximum of v1.
pub fn parse_limit(text: &[u8]) -> Option<u64> {
    parse_number(text).filter(|limit| *limit < UNLIMITED)
}

/// Returns the value of a key in a file of `key value` lines.
pub fn parse_keyed(text: &[u8], key: &str) -> Option<u64> {
    let mut found = None;
    keyed(text, |name, value| {
        if name == key.as_bytes() {
            found = Some(value);
        }
    });
    found
}

/// Values of `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
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
    /// Kernel memory; v2 only.
    pub kernel: Option<u64>,
    /// Swap; v1 only.
    pub swap: Option<u64>,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Major page faults.
    pub major_page_faults: u64,
}

/// Parses `memory.stat` of cgroup v1. The `total_` keys include child cgroups; page faults do not,
/// as upstream.
pub fn parse_memory_stat_v1(text: &[u8]) -> MemoryStat {
    let mut stat = MemoryStat::default();
    keyed(text, |name, value| match name {
        b"total_rss" => stat.rss = value,
        b"total_cache" => stat.cache = value,
        b"total_mapped_file" => stat.mapped_file = value,
        b"total_active_file" => stat.active_file = value,
        b"total_inactive_file" => stat.inactive_file = value,
        b"total_swap" => stat.swap = Some(value),
        b"pgfault" => stat.page_faults = value,
        b"pgmajfault" => stat.major_page_faults = value,
        _ => {}
    });
    stat
}

/// Parses `memory.stat` of cgroup v2.
pub fn parse_memory_stat_v2(text: &[u8]) -> MemoryStat {
    let mut stat = MemoryStat::default();
    keyed(text, |name, value| match name {
        b"anon" => stat.rss = value,
        b"file" => stat.cache = value,
        b"file_mapped" => stat.mapped_file = value,
        b"active_file" => stat.active_file = value,
        b"inactive_file" => stat.inactive_file = value,
        b"kernel" => stat.kernel = Some(value),
        b"pgfault" => stat.page_faults = value,
        b"pgmajfault" => stat.major_page_faults = value,
        _ => {}
    });
    stat
}

/// Values of `cpu.stat` in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Total CPU time; `None` on v1, which has it in another file.
    pub total_ns: Option<u64>,
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
    /// Enforcement periods.
    pub periods: u64,
    /// Of them throttled.
    pub throttled_periods: u64,
    /// Time throttled.
    pub throttled_ns: u64,
}

/// Parses `cpu.stat` of cgroup v1 (throttling only) or v2.
pub fn parse_cpu_stat(text: &[u8]) -> CpuStat {
    let mut stat = CpuStat::default();
    let micros = |value: u64| value.saturating_mul(1000);
    keyed(text, |name, value| match name {
        b"usage_usec" => stat.total_ns = Some(micros(value)),
        b"user_usec" => stat.user_ns = micros(value),
        b"system_usec" => stat.system_ns = micros(value),
        b"nr_periods" => stat.periods = value,
        b"nr_throttled" => stat.throttled_periods = value,
        b"throttled_usec" => stat.throttled_ns = micros(value),
        b"throttled_time" => stat.throttled_ns = value,
        _ => {}
    });
    stat
}

/// Parses `cpuacct.stat` of v1: nanoseconds in user mode and in the kernel.
pub fn parse_cpuacct_stat(text: &[u8]) -> (u64, u64) {
    let (mut user, mut system) = (0, 0);
    keyed(text, |name, value| match name {
        b"user" => user = value.saturating_mul(TICK_NS),
        b"system" => system = value.saturating_mul(TICK_NS),
        _ => {}
    });
    (user, system)
}

/// Parses `cpu.max` of v2: quota, if set, and period in microseconds.
pub fn parse_cpu_max(text: &[u8]) -> (Option<u64>, Option<u64>) {
    let mut words = words(text);
    let quota = words.next().and_then(number);
    (quota, words.next().and_then(number))
}

/// Converts a v2 weight (1 to 10000) to v1 shares, linearly as cAdvisor; `None` out of range.
pub(crate) fn shares_of_weight(weight: u64) -> Option<u64> {
    (1..=10_000)
        .contains(&weight)
        .then(|| 2 + (weight - 1) * 262_142 / 9999)
}

/// Parses a PSI file; `None` without a `some` line. CPU has no `full` line on old kernels.
pub fn parse_pressure(text: &[u8]) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    let mut any = false;
    for line in lines(text) {
        let mut words = words(line);
        let target = match words.next() {
            Some(b"some") => {
                any = true;
                &mut pressure.some
            }
            Some(b"full") => &mut pressure.full,
            _ => continue,
        };
        *target = pressure_line(words);
    }
    any.then_some(pressure)
}

fn pressure_line<'a>(words: impl Iterator<Item = &'a [u8]>) -> PressureLine {
    let mut line = PressureLine::default();
    for word in words {
        let Some((key, value)) = split_once(word, b'=') else {
            continue;
        };
        match key {
            b"avg10" => line.avg10 = share(value),
            b"avg60" => line.avg60 = share(value),
            b"avg300" => line.avg300 = share(value),
            b"total" => line.total_ns = number(value).unwrap_or(0).saturating_mul(1000),
            _ => {}
        }
    }
    line
}

/// I/O of one block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockIo {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Major and minor number of a block device.
pub type DeviceNumber = (u32, u32);

/// Parses `io.stat` of v2.
pub fn parse_io_stat(text: &[u8]) -> BTreeMap<DeviceNumber, BlockIo> {
    let mut devices = BTreeMap::new();
    for line in lines(text) {
        let mut words = words(line);
        let Some(device) = words.next().and_then(device_number) else {
            continue;
        };
        let mut io = BlockIo::default();
        for word in words {
            let Some((key, value)) = split_once(word, b'=') else {
                continue;
            };
            let Some(value) = number(value) else { continue };
            match key {
                b"rbytes" => io.read_bytes = value,
                b"wbytes" => io.written_bytes = value,
                b"rios" => io.reads = value,
                b"wios" => io.writes = value,
                _ => {}
            }
        }
        devices.insert(device, io);
    }
    devices
}

/// Parses a `blkio` file of v1: reads and writes by device.
pub fn parse_blkio(text: &[u8]) -> BTreeMap<DeviceNumber, (u64, u64)> {
    let mut devices: BTreeMap<DeviceNumber, (u64, u64)> = BTreeMap::new();
    for line in lines(text) {
        let mut words = words(line);
        let Some(device) = words.next().and_then(device_number) else {
            continue;
        };
        let (operation, value) = (words.next(), words.next().and_then(number));
        let Some(value) = value else { continue };
        match operation {
            Some(b"Read") => devices.entry(device).or_default().0 = value,
            Some(b"Write") => devices.entry(device).or_default().1 = value,
            _ => {}
        }
    }
    devices
}

/// Parses `/proc/partitions`: names of block devices.
pub fn parse_partitions(text: &[u8]) -> BTreeMap<DeviceNumber, String> {
    let mut names = BTreeMap::new();
    for line in lines(text) {
        let mut words = words(line);
        let major = words.next().and_then(number);
        let minor = words.next().and_then(number);
        let name = words.nth(1).and_then(|name| std::str::from_utf8(name).ok());
        if let (Some(major), Some(minor), Some(name)) = (major, minor, name)
            && let (Ok(major), Ok(minor)) = (u32::try_from(major), u32::try_from(minor))
        {
            names.insert((major, minor), format!("/dev/{name}"));
        }
    }
    names
}

/// Parses `/proc/diskstats`, by device path.
pub fn parse_diskstats(text: &[u8]) -> BTreeMap<String, DiskUsage> {
    let disk = |line| {
        let mut words = words(line).skip(2);
        let name = std::str::from_utf8(words.next()?).ok()?;
        let mut next = || words.next().and_then(number);
        let (reads, reads_merged, sectors_read, read_ms) = (next()?, next()?, next()?, next()?);
        let (writes, writes_merged, sectors_written, write_ms) =
            (next()?, next()?, next()?, next()?);
        let disk = DiskUsage {
            reads,
            reads_merged,
            sectors_read,
            read_ms,
            writes,
            writes_merged,
            sectors_written,
            write_ms,
            in_progress: next()?,
            io_ms: next()?,
            weighted_io_ms: next()?,
        };
        Some((format!("/dev/{name}"), disk))
    };
    lines(text).filter_map(disk).collect()
}

/// Parses the PIDs in `cgroup.procs`. A process outside of our PID namespace is 0 and counts.
pub fn parse_procs(text: &[u8]) -> Vec<u32> {
    let pids = lines(text).filter_map(|line| number(line.trim_ascii()));
    pids.filter_map(|pid| u32::try_from(pid).ok()).collect()
}

/// Parses `net/dev` of a network namespace, without `IGNORED_INTERFACES`, ordered by name.
pub fn parse_net_dev(text: &[u8]) -> Vec<InterfaceUsage> {
    let mut interfaces: Vec<InterfaceUsage> = lines(text).filter_map(interface).collect();
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    interfaces
}

fn interface(line: &[u8]) -> Option<InterfaceUsage> {
    // a name may contain colons (aliases), a number never does
    let colon = line.iter().rposition(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&line[..colon]).ok()?.trim();
    let lower = name.to_ascii_lowercase();
    let ignored = IGNORED_INTERFACES
        .iter()
        .any(|prefix| lower.starts_with(prefix));
    if name.is_empty() || ignored {
        return None;
    }
    let fields: Option<Vec<u64>> = words(&line[colon + 1..]).map(number).collect();
    let fields = fields.filter(|fields| fields.len() == 16)?;
    let traffic = |first: usize| Traffic {
        bytes: fields[first],
        packets: fields[first + 1],
        errors: fields[first + 2],
        dropped: fields[first + 3],
    };
    Some(InterfaceUsage {
        name: name.to_owned(),
        received: traffic(0),
        sent: traffic(8),
    })
}

/// Returns the interface of the default route with the lowest metric in `net/route`.
pub fn parse_default_route(text: &[u8]) -> Option<String> {
    let routes = lines(text).filter_map(|line| {
        let words: Vec<&[u8]> = words(line).collect();
        let is_default =
            words.get(1) == Some(&&b"00000000"[..]) && words.get(7) == Some(&&b"00000000"[..]);
        let metric = number(words.get(6)?)?;
        let name = std::str::from_utf8(words.first()?).ok()?;
        is_default.then(|| (metric, name.to_owned()))
    });
    routes.min().map(|(_, name)| name)
}

/// Values of `/proc/meminfo` in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// All memory.
    pub total: u64,
    /// Free memory.
    pub free: u64,
    /// Memory available without swapping.
    pub available: u64,
    /// All swap.
    pub swap_total: u64,
    /// Swap that is free.
    pub swap_free: u64,
}

/// Parses `/proc/meminfo`.
pub fn parse_meminfo(text: &[u8]) -> MemInfo {
    let mut info = MemInfo::default();
    keyed(text, |name, value| {
        let bytes = value.saturating_mul(1024);
        match name {
            b"MemTotal:" => info.total = bytes,
            b"MemFree:" => info.free = bytes,
            b"MemAvailable:" => info.available = bytes,
            b"SwapTotal:" => info.swap_total = bytes,
            b"SwapFree:" => info.swap_free = bytes,
            _ => {}
        }
    });
    info
}

/// Values of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcStat {
    /// When the machine booted, seconds since 1970.
    pub boot_time: Option<u64>,
    /// Processor time in user mode.
    pub user_ns: u64,
    /// Processor time in the kernel, interrupts included.
    pub system_ns: u64,
}

/// Parses `/proc/stat`.
pub fn parse_proc_stat(text: &[u8]) -> ProcStat {
    let mut stat = ProcStat::default();
    for line in lines(text) {
        let mut words = words(line);
        match words.next() {
            Some(b"btime") => stat.boot_time = words.next().and_then(number),
            Some(b"cpu") => {
                let ticks: Vec<u64> = words.map_while(number).collect();
                let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
                let ns = |ticks: u64| ticks.saturating_mul(TICK_NS);
                // user nice system idle iowait irq softirq
                stat.user_ns = ns(at(0).saturating_add(at(1)));
                stat.system_ns = ns(at(2).saturating_add(at(5)).saturating_add(at(6)));
            }
            _ => {}
        }
    }
    stat
}

/// Returns the number of processes and threads in `/proc/loadavg`.
pub fn parse_loadavg(text: &[u8]) -> Option<u64> {
    let field = words(text).nth(3)?;
    number(split_once(field, b'/')?.1)
}

/// Returns the soft limit of open files in `/proc/<pid>/limits`; `None` without one.
pub fn parse_open_files_limit(text: &[u8]) -> Option<u64> {
    let mut limits = lines(text).filter_map(|line| line.strip_prefix(b"Max open files"));
    number(words(limits.next()?).next()?)
}

/// Returns the path in the hierarchy of a controller in `/proc/<pid>/cgroup`; of cgroup v2 if
/// `None`.
pub fn parse_proc_cgroup(text: &[u8], controller: Option<&str>) -> Option<String> {
    let mut paths = lines(text).filter_map(|line| {
        let (number, rest) = split_once(line, b':')?;
        let (controllers, path) = split_once(rest, b':')?;
        let here = match controller {
            None => number == b"0" && controllers.is_empty(),
            Some(name) => controllers
                .split(|byte| *byte == b',')
                .any(|controller| controller == name.as_bytes()),
        };
        let path = std::str::from_utf8(path).ok()?;
        (here && path.starts_with('/')).then(|| path.to_owned())
    });
    paths.next()
}

/// Returns the whole lines, if the buffer is full.
pub fn whole_lines(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n');
    &text[..end.map_or(0, |end| end + 1)]
}

fn keyed(text: &[u8], mut tell: impl FnMut(&[u8], u64)) {
    for line in lines(text) {
        let mut words = words(line);
        if let (Some(name), Some(value)) = (words.next(), words.next().and_then(number)) {
            tell(name, value);
        }
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses a percentage; an invalid one is 0.
fn share(text: &[u8]) -> f64 {
    let text = std::str::from_utf8(text).ok();
    let value: Option<f64> = text.and_then(|text| text.parse().ok());
    value
        .filter(|value| value.is_finite() && *value >= 0.0)
        .unwrap_or(0.0)
}

fn device_number(word: &[u8]) -> Option<DeviceNumber> {
    let (major, minor) = split_once(word, b':')?;
    let half = |text| number(text).and_then(|number| u32::try_from(number).ok());
    Some((half(major)?, half(minor)?))
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = text.iter().position(|byte| *byte == at)?;
    Some((&text[..position], &text[position + 1..]))
}

#[cfg(test)]
mod tests;
