//! Cgroup files, version 1 and 2, through descriptors that stay open.
//!
//! *owns* the open files and the last CPU samples by cgroup · *invariant* files that every
//! collection reads stay open, others are opened for each read; files of a cgroup that the last
//! collection did not read are closed · *bound* [`MAX_OPEN`] descriptors, and one entry for each
//! cgroup read in the last two minutes · *restart* nothing to restore: the first collection has no
//! rates.
//!
//! Everything here blocks on the kernel, usually for microseconds; callers use a blocking thread.

mod v1;
mod v2;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_cgroups::{CgroupTree, HostTree};
use windlass_types::Timestamp;

use crate::parse::{
    BlockIo, DeviceNumber, parse_keyed, parse_limit, parse_number, parse_open_files_limit,
    parse_partitions, parse_pressure, parse_procs, whole_lines,
};
use crate::rate::Rate;
use crate::usage::{
    CgroupUsage, CpuLimits, DeviceIo, HugePages, IoUsage, MemoryUsage, Pressure, ProcessUsage,
};

/// Open files per cgroup: CPU time, memory usage, and memory stats.
const FILES_PER_CGROUP: usize = 3;
/// Maximum number of open descriptors: [`FILES_PER_CGROUP`] for each of 250 pods and their two
/// containers, 2250, and some for the node. The kernel keeps a page for each, 10 MiB. Other files
/// are opened for each read, which takes four times as long.
const MAX_OPEN: usize = 2560;
/// Buffer size for a file. `memory.stat` has about 2 KiB, a line of `io.stat` about 100 bytes;
/// longer content is truncated after a whole line.
const ROOM: usize = 16 << 10;
/// Maximum bytes of a list of PIDs or a table of `/proc`.
const MAX_LIST_BYTES: u64 = 1 << 20;
/// Time after which a cgroup without requests is forgotten.
const RETENTION: Duration = Duration::from_secs(120);
/// Maximum number of process descriptors counted per collection; later processes have no value.
const MAX_COUNTED_DESCRIPTORS: usize = 50_000;

/// Stats to read besides CPU time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Depth {
    /// CPU modes and limits, and further memory stats.
    pub(crate) details: bool,
    /// Block I/O.
    pub(crate) io: bool,
    /// Processes and threads.
    pub(crate) processes: bool,
    /// Open descriptors of the processes.
    pub(crate) descriptors: bool,
}

/// The cgroups of this host.
#[derive(Debug)]
pub(crate) struct Cgroups {
    hierarchy: Hierarchy,
    proc: PathBuf,
    entries: HashMap<String, Entry>,
    open: usize,
    max_open: usize,
    look: u64,
    buffer: Vec<u8>,
    /// Kernel names of page sizes, such as `2MB`, with bytes.
    page_sizes: Vec<(String, u64)>,
    devices: BTreeMap<DeviceNumber, String>,
    /// Number of descriptors that may still be counted.
    countable: usize,
}

#[derive(Debug)]
enum Hierarchy {
    V1(v1::Roots),
    /// Mount point.
    V2(PathBuf),
}

#[derive(Debug, Default)]
struct Entry {
    kept: [Option<File>; FILES_PER_CGROUP],
    rate: Rate,
    look: u64,
    at: Timestamp,
}

impl Cgroups {
    /// Opens the cgroups at `mount`; `proc` is the path of `/proc`, `huge_pages` that of
    /// `/sys/kernel/mm/hugepages`.
    ///
    /// # Errors
    /// No cgroups are mounted.
    pub(crate) fn open(mount: &Path, proc: &Path, huge_pages: &Path) -> io::Result<Self> {
        let tree = HostTree::open(mount.to_owned())?;
        let hierarchy = if tree.unified() {
            Hierarchy::V2(mount.to_owned())
        } else {
            Hierarchy::V1(v1::Roots::new(&tree, mount))
        };
        Ok(Self {
            hierarchy,
            proc: proc.to_owned(),
            entries: HashMap::new(),
            open: 0,
            max_open: MAX_OPEN,
            look: 1,
            buffer: vec![0; ROOM],
            page_sizes: page_sizes(huge_pages),
            devices: BTreeMap::new(),
            countable: MAX_COUNTED_DESCRIPTORS,
        })
    }

    /// True for cgroup v2.
    pub(crate) fn unified(&self) -> bool {
        matches!(self.hierarchy, Hierarchy::V2(_))
    }

    /// Starts a collection; reads the device names if I/O is selected.
    pub(crate) fn begin_collection(&mut self, io: bool) {
        self.countable = MAX_COUNTED_DESCRIPTORS;
        if io {
            let table = read_all(&self.proc.join("partitions")).unwrap_or_default();
            self.devices = parse_partitions(&table);
        }
    }

    /// Ends a collection; closes the files of cgroups that it did not read.
    pub(crate) fn end_collection(&mut self, at: Timestamp) {
        let look = self.look;
        self.look += 1;
        self.entries.retain(|_, entry| {
            if entry.look != look {
                entry.kept = Default::default();
            }
            let age = Duration::try_from(at.duration_since(entry.at)).unwrap_or_default();
            age <= RETENTION
        });
        let open = self.entries.values().flat_map(|entry| &entry.kept);
        self.open = open.flatten().count();
    }

    /// Reads a cgroup; `None` if it does not exist, or has neither CPU time nor memory.
    pub(crate) fn read(&mut self, path: &str, depth: Depth, at: Timestamp) -> Option<CgroupUsage> {
        let (cpu, memory) = (self.cpu(path, depth), self.memory(path, depth));
        if cpu.is_none() && memory.is_none() {
            self.entries.remove(path);
            return None;
        }
        let entry = self.entry(path);
        entry.at = at;
        let cpu = cpu.map(|mut cpu| {
            cpu.nano_cores = entry.rate.add_sample(at, cpu.total_ns);
            cpu
        });
        let cpu_limits = match depth.details {
            true => self.cpu_limits(path),
            false => CpuLimits::default(),
        };
        Some(CgroupUsage {
            at,
            path: path.to_owned(),
            cpu,
            memory,
            io: depth.io.then(|| self.io(path)).flatten(),
            processes: depth
                .processes
                .then(|| self.processes(path, depth))
                .flatten(),
            cpu_limits,
        })
    }

    /// Reads the memory of a cgroup, without details; `None` if it does not exist.
    pub(crate) fn read_memory(&mut self, path: &str, at: Timestamp) -> Option<MemoryUsage> {
        let memory = self.memory(path, Depth::default());
        if memory.is_none() {
            self.entries.remove(path);
            return None;
        }
        self.entry(path).at = at;
        memory
    }

    /// Returns the directory of a cgroup in the hierarchy of memory.
    pub(crate) fn memory_dir(&self, path: &str) -> Option<PathBuf> {
        self.controller_dir("memory", path)
    }

    /// True if the cgroup exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.main_dir(path).is_some_and(|dir| dir.is_dir())
    }

    /// Returns the names of the child cgroups.
    pub(crate) fn children(&self, path: &str) -> Vec<String> {
        let entries = self.main_dir(path).and_then(|dir| fs::read_dir(dir).ok());
        let entries = entries.into_iter().flatten().flatten();
        let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        dirs.filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Returns the PIDs directly in a cgroup.
    pub(crate) fn pids(&self, path: &str) -> Vec<u32> {
        let file = self.main_dir(path).map(|dir| dir.join("cgroup.procs"));
        let text = file.and_then(|file| read_all(&file).ok());
        text.map(|text| parse_procs(&text)).unwrap_or_default()
    }

    /// Returns the number of processes in a cgroup and its descendants down to `depth`.
    pub(crate) fn count_processes(&self, path: &str, depth: usize) -> u64 {
        let own = self.pids(path).len() as u64;
        let children = match depth {
            0 => Vec::new(),
            _ => self.children(path),
        };
        let below = children.iter();
        let below = below.map(|name| self.count_processes(&format!("{path}/{name}"), depth - 1));
        own + below.sum::<u64>()
    }

    /// Returns the creation time of a cgroup from its files, as cAdvisor.
    pub(crate) fn created_at(&self, path: &str) -> Option<Timestamp> {
        let dir = self.main_dir(path)?;
        let unchanging = match self.unified() {
            true => "cgroup.events",
            false => "cgroup.clone_children",
        };
        let times = [dir.join(unchanging), dir];
        let times = times
            .iter()
            .filter_map(|path| fs::metadata(path).ok()?.modified().ok());
        times.min().and_then(|time| Timestamp::try_from(time).ok())
    }

    fn entry(&mut self, path: &str) -> &mut Entry {
        if !self.entries.contains_key(path) {
            self.entries.insert(path.to_owned(), Entry::default());
        }
        let look = self.look;
        let entry = self.entries.entry(path.to_owned()).or_default();
        entry.look = look;
        entry
    }

    /// Reads one of the files that stay open and parses it.
    fn kept<T>(
        &mut self,
        path: &str,
        which: usize,
        file: &Path,
        parse: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let length = self.read_kept(path, which, file, &mut buffer);
        let value = length.map(|length| parse(&buffer[..length]));
        self.buffer = buffer;
        value
    }

    fn read_kept(
        &mut self,
        path: &str,
        which: usize,
        file: &Path,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let at_start = |open: &File, buffer: &mut [u8]| {
            // one read returns the whole file; a second one would make the kernel count again
            let length = open.read_at(buffer, 0).ok()?;
            let full = length == buffer.len();
            Some(if full {
                whole_lines(buffer).len()
            } else {
                length
            })
        };
        if let Some(open) = &self.entry(path).kept[which] {
            if let Some(length) = at_start(open, buffer) {
                return Some(length);
            }
            // the cgroup was removed; it may have been recreated
            self.entry(path).kept[which] = None;
            self.open = self.open.saturating_sub(1);
        }
        let open = File::open(file).ok()?;
        let length = at_start(&open, buffer)?;
        if self.open < self.max_open {
            self.entry(path).kept[which] = Some(open);
            self.open += 1;
        }
        Some(length)
    }

    /// Opens, reads and parses a file, which one read returns as a whole.
    fn file<T>(&mut self, file: &Path, parse: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let length = File::open(file).ok()?.read(&mut self.buffer).ok()?;
        let full = length == self.buffer.len();
        let text = &self.buffer[..length];
        Some(parse(if full { whole_lines(text) } else { text }))
    }

    fn number(&mut self, file: &Path) -> Option<u64> {
        self.file(file, parse_number).flatten()
    }

    fn limit(&mut self, file: &Path) -> Option<u64> {
        self.file(file, parse_limit).flatten()
    }

    fn keyed(&mut self, file: &Path, key: &str) -> Option<u64> {
        self.file(file, |text| parse_keyed(text, key)).flatten()
    }

    fn pressure(&mut self, file: &Path) -> Option<Pressure> {
        self.file(file, parse_pressure).flatten()
    }

    fn cpu(&mut self, path: &str, depth: Depth) -> Option<crate::usage::CpuUsage> {
        match &self.hierarchy {
            Hierarchy::V1(_) => self.cpu_v1(path, depth),
            Hierarchy::V2(_) => self.cpu_v2(path),
        }
    }

    fn memory(&mut self, path: &str, depth: Depth) -> Option<MemoryUsage> {
        match &self.hierarchy {
            Hierarchy::V1(_) => self.memory_v1(path, depth),
            Hierarchy::V2(_) => self.memory_v2(path, depth),
        }
    }

    fn cpu_limits(&mut self, path: &str) -> CpuLimits {
        match &self.hierarchy {
            Hierarchy::V1(_) => self.cpu_limits_v1(path),
            Hierarchy::V2(_) => self.cpu_limits_v2(path),
        }
    }

    fn io(&mut self, path: &str) -> Option<IoUsage> {
        match &self.hierarchy {
            Hierarchy::V1(_) => self.io_v1(path),
            Hierarchy::V2(_) => self.io_v2(path),
        }
    }

    fn processes(&mut self, path: &str, depth: Depth) -> Option<ProcessUsage> {
        let pids = self.pids(path);
        let dir = self.controller_dir("pids", path);
        let threads = dir
            .as_ref()
            .and_then(|dir| self.number(&dir.join("pids.current")));
        let threads_max = dir.and_then(|dir| self.limit(&dir.join("pids.max")));
        let mut usage = ProcessUsage {
            processes: pids.len() as u64,
            // without the controller: at least one thread per process
            threads: threads.unwrap_or(pids.len() as u64),
            threads_max,
            ..ProcessUsage::default()
        };
        if depth.descriptors {
            let counted = self.descriptors(&pids);
            usage.descriptors = counted.map(|(all, _)| all);
            usage.sockets = counted.map(|(_, sockets)| sockets);
            let first = pids.iter().find(|pid| **pid > 0);
            let limits = first.map(|pid| self.proc.join(pid.to_string()).join("limits"));
            usage.open_files_max =
                limits.and_then(|file| self.file(&file, parse_open_files_limit).flatten());
        }
        Some(usage)
    }

    /// Returns the numbers of open descriptors and sockets of processes; `None` over the limit.
    fn descriptors(&mut self, pids: &[u32]) -> Option<(u64, u64)> {
        let (mut all, mut sockets) = (0, 0);
        for pid in pids {
            let dir = self.proc.join(pid.to_string()).join("fd");
            // the process has exited
            let Ok(entries) = fs::read_dir(dir) else {
                continue;
            };
            for entry in entries.flatten() {
                self.countable = self.countable.checked_sub(1)?;
                all += 1;
                let target = fs::read_link(entry.path());
                let is_socket = target.is_ok_and(|target| {
                    target.as_os_str().as_encoded_bytes().starts_with(b"socket")
                });
                sockets += u64::from(is_socket);
            }
        }
        Some((all, sockets))
    }

    /// Returns the path of a cgroup in the hierarchy of a controller.
    fn controller_dir(&self, controller: &str, path: &str) -> Option<PathBuf> {
        match &self.hierarchy {
            Hierarchy::V1(roots) => roots.dir(controller, path),
            Hierarchy::V2(mount) => Some(below(mount, path)),
        }
    }

    /// Returns the path of a cgroup in the main hierarchy.
    fn main_dir(&self, path: &str) -> Option<PathBuf> {
        self.controller_dir("memory", path)
            .or_else(|| self.controller_dir("cpuacct", path))
    }

    fn named(&self, devices: BTreeMap<DeviceNumber, BlockIo>) -> Vec<DeviceIo> {
        let name = |number: &DeviceNumber| match self.devices.get(number) {
            Some(name) => name.clone(),
            None => format!("{}:{}", number.0, number.1),
        };
        let devices = devices.iter().map(|(number, io)| DeviceIo {
            device: name(number),
            number: *number,
            read_bytes: io.read_bytes,
            written_bytes: io.written_bytes,
            reads: io.reads,
            writes: io.writes,
        });
        devices.collect()
    }

    /// Reads huge pages by size; `current` and `most` are the suffixes of the file names.
    fn huge_pages(&mut self, dir: &Path, current: &str, most: &str) -> Vec<HugePages> {
        let mut pages = Vec::new();
        for (name, page_size) in self.page_sizes.clone() {
            // as upstream, with reservations if the kernel counts them
            let mut prefix = format!("hugetlb.{name}.rsvd");
            if !dir.join(format!("{prefix}{current}")).exists() {
                prefix = format!("hugetlb.{name}");
            }
            let Some(usage) = self.number(&dir.join(format!("{prefix}{current}"))) else {
                continue;
            };
            let max_usage = self.number(&dir.join(format!("{prefix}{most}")));
            pages.push(HugePages {
                page_size,
                usage,
                max_usage: max_usage.unwrap_or(0),
            });
        }
        pages
    }
}

/// Returns `path` below `root`.
fn below(root: &Path, path: &str) -> PathBuf {
    match path.trim_matches('/') {
        "" => root.to_owned(),
        path => root.join(path),
    }
}

/// Reads a file up to the buffer size, without a partial last line.
pub(crate) fn read_into(file: &Path, buffer: &mut [u8]) -> io::Result<usize> {
    let mut open = File::open(file)?;
    let mut length = 0;
    while length < buffer.len() {
        match open.read(&mut buffer[length..]) {
            Ok(0) => return Ok(length),
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(whole_lines(buffer).len())
}

/// Reads a list or table, up to its maximum size.
pub(crate) fn read_all(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?
        .take(MAX_LIST_BYTES)
        .read_to_end(&mut text)?;
    if text.len() as u64 == MAX_LIST_BYTES {
        text.truncate(whole_lines(&text).len());
    }
    Ok(text)
}

/// Returns the page sizes from the names in `/sys/kernel/mm/hugepages`, such as `hugepages-2048kB`.
fn page_sizes(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut sizes: Vec<u64> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            kib.parse::<u64>().ok()?.checked_mul(1024)
        })
        .collect();
    sizes.sort_unstable();
    sizes
        .into_iter()
        .map(|size| (page_size_name(size), size))
        .collect()
}

/// Formats a page size as in kernel file names: `2MB`, `1GB`, `64KB`.
pub(crate) fn page_size_name(size: u64) -> String {
    match size {
        size if size >= 1 << 30 => format!("{}GB", size >> 30),
        size if size >= 1 << 20 => format!("{}MB", size >> 20),
        size => format!("{}KB", size >> 10),
    }
}

#[cfg(test)]
mod tests;
