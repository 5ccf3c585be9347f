//! Usage of file systems and pod logs. Everything here blocks on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::{Pod, PodExt, PodUid, Timestamp};

use crate::cgroup::read_all;
use crate::disk_space::DiskSpace;
use crate::parse::parse_partitions;
use crate::usage::FsUsage;

/// Maximum number of counted entries of a directory. A container has few rotated logs.
const MAX_ENTRIES: usize = 1000;
/// Unit of `st_blocks` on every file system.
const BLOCK: u64 = 512;

/// Returns the usage of the file system of `path` or its nearest existing parent.
pub(crate) fn file_system(path: &Path, proc: &Path, at: Timestamp) -> Option<FsUsage> {
    let space = DiskSpace::read_nearest(path)?;
    let known = |inodes: u64| (space.inodes > 0).then_some(inodes);
    Some(FsUsage {
        at,
        device: device_name(space.device, proc),
        capacity: Some(space.capacity),
        available: Some(space.available),
        used: Some(space.capacity.saturating_sub(space.free)),
        inodes: known(space.inodes),
        inodes_free: known(space.inodes_free),
        inodes_used: known(space.inodes.saturating_sub(space.inodes_free)),
    })
}

fn device_name(device: u64, proc: &Path) -> Option<String> {
    let names = parse_partitions(&read_all(&proc.join("partitions")).ok()?);
    names.get(&(major(device), minor(device))).cloned()
}

/// Bytes and inodes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsageTotal {
    /// Allocated bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

impl std::ops::AddAssign for DiskUsageTotal {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// Paths of the files of a pod besides volumes and writable layers.
#[derive(Clone, Debug)]
pub struct PodFilePaths {
    /// The pod.
    pub uid: PodUid,
    /// Log directory of the pod.
    pub log_dir: PathBuf,
    /// Hosts file of the pod.
    pub etc_hosts: PathBuf,
    /// Log directories by container.
    pub containers: Vec<(String, PathBuf)>,
}

impl PodFilePaths {
    /// Returns the paths of a pod.
    pub fn from_pod(paths: &NodePaths, pod: &Pod) -> Self {
        let all = pod.containers().iter().chain(pod.init_containers());
        let containers = all.map(|it| (it.name.clone(), paths.container_log_dir(pod, &it.name)));
        Self {
            uid: pod.uid(),
            log_dir: paths.pod_log_dir(pod),
            etc_hosts: paths.etc_hosts(&pod.uid()),
            containers: containers.collect(),
        }
    }
}

/// Usage of these files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFiles {
    /// Logs by container; without a directory a container is absent.
    pub logs: BTreeMap<String, DiskUsageTotal>,
    /// Files directly in the pod log directory, and the hosts file.
    pub others: DiskUsageTotal,
}

impl PodFiles {
    /// Measures the files. Blocks on the disk.
    pub fn read(paths: &PodFilePaths) -> Self {
        let mut files = Self::default();
        for (name, dir) in &paths.containers {
            if let Some(taken) = files_in(dir) {
                files.logs.insert(name.clone(), taken);
            }
        }
        files.others += files_in(&paths.log_dir).unwrap_or_default();
        files.others += file(&paths.etc_hosts).unwrap_or_default();
        files
    }
}

/// Returns the usage of the files directly in a directory; links are not followed.
fn files_in(dir: &Path) -> Option<DiskUsageTotal> {
    let mut all = DiskUsageTotal::default();
    for entry in fs::read_dir(dir).ok()?.take(MAX_ENTRIES).flatten() {
        all += file(&entry.path()).unwrap_or_default();
    }
    Some(all)
}

fn file(path: &Path) -> Option<DiskUsageTotal> {
    let metadata = fs::symlink_metadata(path).ok()?;
    metadata.is_file().then(|| DiskUsageTotal {
        bytes: metadata.blocks().saturating_mul(BLOCK),
        inodes: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_counted_by_container_without_following_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let logs = dir.path().join("ns_pod_u1");
        let web = logs.join("web");
        fs::create_dir_all(&web).expect("a directory");
        fs::write(web.join("0.log"), vec![b'x'; 100_000]).expect("a log");
        fs::write(web.join("0.log.20260101-000000.gz"), b"old").expect("a log");
        fs::create_dir(web.join("sub")).expect("a directory");
        std::os::unix::fs::symlink("/proc/self/exe", web.join("1.log")).expect("a link");
        fs::write(dir.path().join("etc-hosts"), b"127.0.0.1 localhost").expect("a file");
        let paths = PodFilePaths {
            uid: PodUid::from("u1"),
            log_dir: logs.clone(),
            etc_hosts: dir.path().join("etc-hosts"),
            containers: vec![
                ("web".to_owned(), web),
                ("gone".to_owned(), logs.join("gone")),
            ],
        };
        let files = PodFiles::read(&paths);
        let web = files.logs.get("web").expect("the logs of web");
        assert_eq!(web.inodes, 2);
        assert!((100_000..200_000).contains(&web.bytes), "{web:?}");
        assert!(!files.logs.contains_key("gone"));
        assert_eq!(files.others.inodes, 1);
    }

    #[test]
    fn file_system_of_missing_path_is_that_of_parent() {
        let at = Timestamp::UNIX_EPOCH;
        let proc = Path::new("/proc");
        let here = file_system(Path::new("/tmp"), proc, at).expect("a file system");
        let there = file_system(Path::new("/tmp/no/such"), proc, at).expect("a file system");
        assert_eq!(here.capacity, there.capacity);
        assert!(here.available <= here.capacity && here.used <= here.capacity);
        assert!(here.capacity > Some(0));
    }
}
