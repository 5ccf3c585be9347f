//! Sources of OOM kills.

use std::path::{Path, PathBuf};

use windlass_oom_watcher::{KernelLog, OomSource};
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_types::cri::CgroupDriver;

use super::cgroups::CGROUPS;

/// The kernel log.
const KERNEL_LOG: &str = "/dev/kmsg";
/// A file that only the root of cgroup v2 has.
const V2_FILE: &str = "cgroup.controllers";

/// Returns the sources; the cgroups of pods are below `cgroup_root`, with either driver.
pub(super) fn oom_source(cgroup_root: &str) -> OomSource {
    OomSource {
        log: KernelLog::Device(PathBuf::from(KERNEL_LOG)),
        cgroups: v2_cgroups(Path::new(CGROUPS), cgroup_root),
    }
}

fn v2_cgroups(mount: &Path, cgroup_root: &str) -> Option<(PathBuf, Vec<PathBuf>)> {
    if !mount.join(V2_FILE).exists() {
        return None;
    }
    let drivers = [CgroupDriver::Systemd, CgroupDriver::Cgroupfs];
    let kubepods = drivers.map(|driver| {
        let path = CgroupLayout::new(driver, cgroup_root).kubepods();
        mount.join(path.trim_start_matches('/'))
    });
    Some((mount.to_owned(), kubepods.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_events_are_sources_on_cgroup_v2_only() {
        let mount = tempfile::TempDir::new().expect("directory");
        assert_eq!(v2_cgroups(mount.path(), "/a"), None);
        std::fs::write(mount.path().join(V2_FILE), "memory").expect("written");
        let (_, kubepods) = v2_cgroups(mount.path(), "/a").expect("cgroup v2");
        let expected = ["a.slice/a-kubepods.slice", "a/kubepods"];
        assert_eq!(kubepods, expected.map(|path| mount.path().join(path)));
    }
}
