//! The topology of this machine, read from `/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{Cpu, CpuSet, Machine, NumaNode};

/// Error of [`Machine::read`]; it names the file.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A file has an unexpected content.
    #[error("{}: unexpected content {text:?}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
    },
    /// There is no online CPU with a known core.
    #[error("{}: no online CPU has a topology", path.display())]
    NoCpus {
        /// The folder of the CPUs.
        path: PathBuf,
    },
}

impl Machine {
    /// Reads `devices/system/cpu` and `devices/system/node` below `/sys`. Blocks on the kernel.
    ///
    /// Without `devices/system/node` all CPUs are in node 0, whose memory is 0.
    ///
    /// # Errors
    /// A file cannot be read or has an unexpected content, or there are no CPUs.
    pub fn read(sys: &Path) -> Result<Self, TopologyError> {
        let cpu_dir = sys.join("devices/system/cpu");
        let online: Option<CpuSet> = parsed(&cpu_dir.join("online"))?;
        let online = match online {
            Some(online) => online,
            None => numbered(&cpu_dir, "cpu")?.into_iter().collect(),
        };
        let node_dir = sys.join("devices/system/node");
        let numbers = numbered(&node_dir, "node")?;
        let mut machine = Self::default();
        if numbers.is_empty() {
            let huge_pages = huge_pages(&sys.join("kernel/mm/hugepages"))?;
            let node = NumaNode {
                huge_pages,
                ..NumaNode::default()
            };
            machine.nodes.insert(0, node);
            machine.add_cpus(&cpu_dir, 0, &online)?;
        }
        for &number in &numbers {
            let dir = node_dir.join(format!("node{number}"));
            machine.nodes.insert(number, node(&dir, &numbers)?);
            let cpus: CpuSet = parsed(&dir.join("cpulist"))?.unwrap_or_default();
            machine.add_cpus(&cpu_dir, number, &(&cpus & &online))?;
        }
        match machine.cpus.is_empty() {
            true => Err(TopologyError::NoCpus { path: cpu_dir }),
            false => Ok(machine),
        }
    }

    /// Adds the CPUs of a node. CPUs whose core is unknown are left out, as upstream.
    fn add_cpus(&mut self, dir: &Path, numa: u32, cpus: &CpuSet) -> Result<(), TopologyError> {
        let mut cores: BTreeMap<(i64, i64), CpuSet> = BTreeMap::new();
        for cpu in cpus.iter() {
            let topology = dir.join(format!("cpu{cpu}/topology"));
            let socket: Option<i64> = parsed(&topology.join("physical_package_id"))?;
            let core: Option<i64> = parsed(&topology.join("core_id"))?;
            if let (Some(socket), Some(core)) = (socket, core) {
                cores.entry((socket, core)).or_default().insert(cpu);
            }
        }
        let core_count = cores.len();
        for ((socket, _), threads) in &cores {
            // -1 is an unknown package, of which a machine has one
            let socket = u32::try_from(*socket).unwrap_or(0);
            let Some(core) = threads.iter().next() else {
                continue;
            };
            let caches = dir.join(format!("cpu{core}/cache"));
            let uncore = uncore_cache(&caches, threads.len() * core_count)?;
            let cpu = Cpu {
                core,
                socket,
                numa,
                uncore: uncore.unwrap_or(socket),
            };
            self.cpus.extend(threads.iter().map(|thread| (thread, cpu)));
        }
        Ok(())
    }
}

/// ID of the cache beyond level 2 that a part of a NUMA node's CPUs share. `None` if all share it, or
/// the kernel describes no caches (Arm guests).
fn uncore_cache(dir: &Path, cpus_of_node: usize) -> Result<Option<u32>, TopologyError> {
    for index in numbered(dir, "index")? {
        let cache = dir.join(format!("index{index}"));
        let level: Option<u32> = parsed(&cache.join("level"))?;
        let id: Option<u32> = parsed(&cache.join("id"))?;
        let shared: Option<CpuSet> = parsed(&cache.join("shared_cpu_list"))?;
        let (Some(level), Some(id), Some(shared)) = (level, id, shared) else {
            return Ok(None);
        };
        if level > 2 && shared.len() != cpus_of_node {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn node(dir: &Path, numbers: &[u32]) -> Result<NumaNode, TopologyError> {
    let path = dir.join("meminfo");
    let memory = match text(&path)? {
        Some(text) => total_memory(&text).ok_or(TopologyError::Content { path, text })?,
        None => 0,
    };
    let path = dir.join("distance");
    let distances = match text(&path)? {
        Some(text) => {
            let all: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
            let all = all.map_err(|_| TopologyError::Content { path, text })?;
            numbers.iter().copied().zip(all).collect()
        }
        None => BTreeMap::new(),
    };
    Ok(NumaNode {
        memory,
        huge_pages: huge_pages(&dir.join("hugepages"))?,
        distances,
    })
}

/// `MemTotal` in bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let (_, rest) = meminfo.split_once("MemTotal:")?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

fn huge_pages(dir: &Path) -> Result<BTreeMap<u64, u64>, TopologyError> {
    let mut counts = BTreeMap::new();
    for name in names(dir)? {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"))
            .and_then(|kib| kib.parse::<u64>().ok());
        let Some(size) = size.and_then(|kib| kib.checked_mul(1024)) else {
            continue;
        };
        if let Some(count) = parsed(&dir.join(&name).join("nr_hugepages"))? {
            counts.insert(size, count);
        }
    }
    Ok(counts)
}

/// Numbers of the entries of a folder that are a word and a number, ascending. Empty without the
/// folder.
fn numbered(dir: &Path, word: &str) -> Result<Vec<u32>, TopologyError> {
    let names = names(dir)?;
    let numbers = names.iter().filter_map(|name| name.strip_prefix(word));
    let mut numbers: Vec<u32> = numbers.filter_map(|rest| rest.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn names(dir: &Path) -> Result<Vec<String>, TopologyError> {
    let read_error = |source| TopologyError::Read {
        path: dir.to_owned(),
        source,
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read_error(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(read_error)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The trimmed content of a file; `None` if it does not exist.
fn text(path: &Path) -> Result<Option<String>, TopologyError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TopologyError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parsed<T: FromStr>(path: &Path) -> Result<Option<T>, TopologyError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(TopologyError::Content {
            path: path.to_owned(),
            text,
        }),
    }
}

#[cfg(test)]
mod tests;
