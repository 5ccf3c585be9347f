//! Memory and processes of the node and of pods, without the rest of the stats.
//!
//! For readers that cannot wait for a collection, such as eviction. Cgroup files stay open, as in
//! `cgroup`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_types::{ContainerState, ObservedPod, PodUid, Timestamp};

use crate::cgroup::{Cgroups, read_all};
use crate::cgroup_paths::CgroupPaths;
use crate::host::KernelRoots;
use crate::machine::max_tasks;
use crate::parse::{MemInfo, parse_loadavg, parse_meminfo, parse_pressure};
use crate::usage::{MemoryUsage, Pressure};

/// Maximum depth of cgroups that a container creates and whose processes are counted.
const MAX_DEPTH: usize = 4;

/// Reads memory and processes. Blocks on the kernel, usually for microseconds.
#[derive(Debug)]
pub struct MemoryReader {
    proc: PathBuf,
    cgroups: Option<Cgroups>,
    paths: CgroupPaths,
}

/// Memory and processes of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeMemory {
    /// The root cgroup, or values of `/proc`; its limit is the memory of the host.
    pub node: Option<MemoryUsage>,
    /// The cgroup of all pods.
    pub pods: Option<MemoryUsage>,
    /// `MemAvailable` in bytes; `None` if `/proc/meminfo` cannot be read.
    pub available: Option<u64>,
    /// Maximum number of processes and threads.
    pub max_pid: Option<u64>,
    /// Number of processes and threads.
    pub running_processes: Option<u64>,
}

/// Memory and processes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodMemory {
    /// Working set in bytes.
    pub working_set: Option<u64>,
    /// Processes of all containers.
    pub processes: Option<u64>,
    /// Working set of running containers, ordered by name.
    pub containers: Vec<(String, Option<u64>)>,
}

impl MemoryReader {
    /// Opens the cgroups below `cgroup_root` (`cgroupRoot`). Without cgroups the values are those
    /// of `/proc`.
    pub fn open(roots: &KernelRoots, cgroup_root: &str) -> Self {
        let cgroups: io::Result<Cgroups> =
            Cgroups::open(&roots.cgroups, &roots.proc, &roots.huge_pages);
        let warn = |error: &io::Error| {
            tracing::warn!(%error, "cgroups unavailable, memory is that of /proc");
        };
        Self {
            proc: roots.proc.clone(),
            cgroups: cgroups.inspect_err(warn).ok(),
            paths: CgroupPaths::new(cgroup_root),
        }
    }

    /// Returns the directory of the cgroup of all pods in the hierarchy of memory, if it exists.
    pub fn pods_dir(&self) -> Option<PathBuf> {
        let cgroups = self.cgroups.as_ref()?;
        cgroups.memory_dir(&self.paths.kubepods(cgroups)?)
    }

    /// Returns the directory of the root cgroup in the hierarchy of memory.
    pub fn root_dir(&self) -> Option<PathBuf> {
        self.cgroups.as_ref()?.memory_dir("/")
    }

    /// True for cgroup v2.
    pub fn unified(&self) -> bool {
        self.cgroups.as_ref().is_some_and(Cgroups::unified)
    }

    /// Reads the node.
    pub fn read(&mut self, at: Timestamp) -> NodeMemory {
        let info = self.proc_file("meminfo");
        let info = parse_meminfo(&info);
        let (mut node, mut pods) = (None, None);
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.begin_collection(false);
            node = cgroups.read_memory("/", at);
            let path = self.paths.kubepods(cgroups);
            pods = path.and_then(|path| cgroups.read_memory(&path, at));
            cgroups.end_collection(at);
        }
        NodeMemory {
            node: self.complete(node, &info),
            pods,
            available: (info.total > 0).then_some(info.available),
            max_pid: max_tasks(&self.proc),
            running_processes: parse_loadavg(&self.proc_file("loadavg")),
        }
    }

    /// Reads pods. A pod without a cgroup is absent.
    pub fn pods(
        &mut self,
        pods: &[Arc<ObservedPod>],
        at: Timestamp,
    ) -> BTreeMap<PodUid, PodMemory> {
        let Some(cgroups) = &mut self.cgroups else {
            return BTreeMap::new();
        };
        cgroups.begin_collection(false);
        let mut usages = BTreeMap::new();
        for pod in pods {
            let path = self.paths.pod(cgroups, &pod.uid);
            let usage = path.as_ref().and_then(|path| cgroups.read_memory(path, at));
            let Some(usage) = usage else {
                if let Some(path) = path {
                    self.paths.remove_path(&path);
                }
                continue;
            };
            let path = path.as_deref();
            let mut read = PodMemory {
                working_set: Some(usage.working_set),
                ..PodMemory::default()
            };
            let running = pod.containers.iter();
            let running = running.filter(|it| it.state == ContainerState::Running);
            for container in running {
                let path = self.paths.container(cgroups, path, container.id.as_str());
                let Some(path) = path else {
                    read.containers.push((container.name.clone(), None));
                    continue;
                };
                let usage = cgroups.read_memory(&path, at);
                let used = usage.map(|usage| usage.working_set);
                read.containers.push((container.name.clone(), used));
                let processes = cgroups.count_processes(&path, MAX_DEPTH);
                *read.processes.get_or_insert(0) += processes;
            }
            read.containers.sort();
            usages.insert(pod.uid.clone(), read);
        }
        self.paths.end_collection();
        cgroups.end_collection(at);
        usages
    }

    /// Sets the limit above which the kernel slows down a pod (`memory.high`) to what it uses. It
    /// then has time to end before it uses up the memory of others. Does nothing with cgroup v1.
    ///
    /// # Errors
    /// The cgroup is absent or read-only.
    pub fn hold_pod(&mut self, uid: &PodUid) -> io::Result<()> {
        let Some(cgroups) = self.cgroups.as_ref().filter(|it| it.unified()) else {
            return Ok(());
        };
        let path = self.paths.pod(cgroups, uid);
        let dir = path.and_then(|path| cgroups.memory_dir(&path));
        let dir = dir.ok_or(io::ErrorKind::NotFound)?;
        let used = std::fs::read(dir.join("memory.current"))?;
        std::fs::write(dir.join("memory.high"), used)
    }

    /// Kills the processes of all running containers of a pod, on cgroup v2 with Linux 5.14
    /// (`cgroup.kill`). Those of the sandbox stay, which the container runtime expects.
    ///
    /// # Errors
    /// A cgroup is absent or read-only, or the kernel is older.
    pub fn kill_containers(&mut self, pod: &ObservedPod) -> io::Result<()> {
        let Some(cgroups) = self.cgroups.as_ref().filter(|it| it.unified()) else {
            return Ok(());
        };
        let of_pod = self.paths.pod(cgroups, &pod.uid);
        for container in pod.running() {
            let id = container.id.as_str();
            let path = self.paths.container(cgroups, of_pod.as_deref(), id);
            let dir = path.and_then(|path| cgroups.memory_dir(&path));
            let dir = dir.ok_or(io::ErrorKind::NotFound)?;
            std::fs::write(dir.join("cgroup.kill"), "1")?;
        }
        Ok(())
    }

    fn complete(&self, node: Option<MemoryUsage>, info: &MemInfo) -> Option<MemoryUsage> {
        if info.total == 0 {
            return node;
        }
        let mut node = node.unwrap_or_else(|| MemoryUsage {
            usage: info.total.saturating_sub(info.free),
            working_set: info.total.saturating_sub(info.available),
            ..MemoryUsage::default()
        });
        node.limit = Some(info.total);
        node.pressure = node.pressure.or_else(|| self.pressure());
        Some(node)
    }

    fn pressure(&self) -> Option<Pressure> {
        parse_pressure(&self.proc_file("pressure/memory"))
    }

    fn proc_file(&self, name: &str) -> Vec<u8> {
        read_all(&self.proc.join(Path::new(name))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_host_is_read() {
        let mut reader = MemoryReader::open(&KernelRoots::default(), "");
        let memory = reader.read(Timestamp::UNIX_EPOCH);
        let node = memory.node.expect("memory");
        let total = node.limit.expect("the memory of the host");
        assert!(node.working_set > 0 && node.working_set < total, "{node:?}");
        assert!(
            memory
                .available
                .is_some_and(|bytes| bytes > 0 && bytes < total)
        );
        assert!(memory.running_processes.is_some_and(|count| count > 0));
        assert!(memory.max_pid > memory.running_processes);
    }

    #[test]
    fn host_without_cgroups_has_memory_of_proc() {
        let dir = tempfile::tempdir().expect("a directory");
        let roots = KernelRoots {
            cgroups: dir.path().join("none"),
            proc: dir.path().to_owned(),
            huge_pages: dir.path().join("none"),
        };
        let meminfo = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\n";
        std::fs::write(dir.path().join("meminfo"), meminfo).expect("a file");
        let mut reader = MemoryReader::open(&roots, "");
        let memory = reader.read(Timestamp::UNIX_EPOCH);
        let node = memory.node.expect("memory");
        assert_eq!(
            (node.limit, node.working_set),
            (Some(1000 << 10), 400 << 10)
        );
        assert_eq!(memory.available, Some(600 << 10));
        assert_eq!((memory.pods, memory.max_pid), (None, None));
    }
}
