//! Host checks before the start: cgroup v2, no swap, and support of the memory settings.

use std::io;
use std::path::Path;

use rustix::fs::FsWord;

use crate::gates::FeatureGates;
use crate::kubelet::KubeletConfiguration;

/// Mount point of the cgroup hierarchy.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// Oldest kernel on which `memory.high` does not block processes.
const MEMORY_QOS_KERNEL: (u32, u32) = (5, 9);

/// A check that prevents the start.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The host uses cgroup v1.
    #[error(
        "this host uses cgroup v1, which is no longer maintained; boot it with cgroup v2 or set \
         failCgroupV1: false"
    )]
    CgroupV1,
    /// Swap is on.
    #[error("swap is enabled: {0}; disable it or set failSwapOn: false (--fail-swap-on=false)")]
    SwapOn(String),
    /// Cgroup v1 has no `memory.oom.group`.
    #[error("singleProcessOOMKill: must not be false on cgroup v1; remove it")]
    GroupKill,
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// File.
        path: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// Version of the cgroup hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy for each controller, or a mix.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Runs the checks and returns warnings.
pub fn run(config: &KubeletConfiguration, gates: &FeatureGates) -> Result<Vec<String>, CheckError> {
    let mut warnings = Vec::new();
    let cgroups = cgroup_version()?;
    warnings.extend(check_cgroup(cgroups, config.fail_cgroup_v1)?);
    let kernel = rustix::system::uname();
    let kernel = kernel.release().to_string_lossy();
    let memory_qos = gates.enabled("MemoryQoS");
    warnings.extend(check_memory(config, memory_qos, cgroups, &kernel)?);
    let swaps = match std::fs::read_to_string("/proc/swaps") {
        Ok(text) => text,
        // a kernel without swap support has no such file
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            let path = "/proc/swaps";
            return Err(CheckError::Read { path, source });
        }
    };
    warnings.extend(check_swap(&swaps, config.fail_swap_on)?);
    Ok(warnings)
}

/// Returns the version of the hierarchy at `/sys/fs/cgroup`.
pub fn cgroup_version() -> Result<CgroupVersion, CheckError> {
    let stat = rustix::fs::statfs(Path::new(CGROUP_ROOT)).map_err(|error| CheckError::Read {
        path: CGROUP_ROOT,
        source: error.into(),
    })?;
    Ok(version_of(stat.f_type))
}

fn version_of(file_system: FsWord) -> CgroupVersion {
    if file_system == CGROUP2_MAGIC {
        CgroupVersion::V2
    } else {
        CgroupVersion::V1
    }
}

/// Checks the cgroup version.
pub(crate) fn check_cgroup(
    version: CgroupVersion,
    fail: bool,
) -> Result<Option<String>, CheckError> {
    match (version, fail) {
        (CgroupVersion::V2, _) => Ok(None),
        (CgroupVersion::V1, true) => Err(CheckError::CgroupV1),
        (CgroupVersion::V1, false) => Ok(Some(
            "cgroup v1 is no longer maintained (allowed by failCgroupV1: false)".to_owned(),
        )),
    }
}

/// Checks `/proc/swaps`: every line after the heading is a swap area.
pub(crate) fn check_swap(swaps: &str, fail: bool) -> Result<Option<String>, CheckError> {
    let areas: Vec<_> = swaps
        .lines()
        .skip(1)
        .filter(|l| !l.trim().is_empty())
        .collect();
    if areas.is_empty() {
        return Ok(None);
    }
    if fail {
        return Err(CheckError::SwapOn(areas.join("; ")));
    }
    Ok(Some(format!(
        "swap is enabled ({} areas, allowed by failSwapOn: false)",
        areas.len()
    )))
}

/// Checks the settings of swap, `MemoryQoS` and OOM kills against cgroups and kernel release.
fn check_memory(
    config: &KubeletConfiguration,
    memory_qos: bool,
    cgroups: CgroupVersion,
    kernel: &str,
) -> Result<Vec<String>, CheckError> {
    let mut warnings = Vec::new();
    if cgroups == CgroupVersion::V1 {
        if config.single_process_oom_kill == Some(false) {
            return Err(CheckError::GroupKill);
        }
        if memory_qos {
            warnings.push("feature gate MemoryQoS has no effect on cgroup v1".to_owned());
        }
        if config.memory_swap.swap_behavior == "LimitedSwap" {
            let warning =
                "memorySwap.swapBehavior: LimitedSwap requires cgroup v2; no pod may swap";
            warnings.push(warning.to_owned());
        }
    } else if memory_qos && release(kernel) < MEMORY_QOS_KERNEL {
        warnings.push(format!(
            "processes may hang at memory.high (feature gate MemoryQoS) on kernel {kernel}; \
             use 5.9 or newer"
        ));
    }
    Ok(warnings)
}

/// Returns major and minor version of a kernel release; 0 where it has none.
fn release(kernel: &str) -> (u32, u32) {
    let mut numbers = kernel
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{
        CgroupVersion, KubeletConfiguration, check_cgroup, check_memory, check_swap, version_of,
    };

    const HEADING: &str = "Filename\tType\tSize\tUsed\tPriority\n";

    fn check_swaps(areas: &str, fail: bool, expected: &str) {
        let line = match check_swap(&format!("{HEADING}{areas}"), fail) {
            Ok(None) => "fine".to_owned(),
            Ok(Some(warning)) => warning,
            Err(error) => error.to_string(),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn swap_is_rejected_unless_allowed() {
        check_swaps("", true, "fine");
        check_swaps(
            "/swapfile file 1048572 0 -2\n",
            true,
            "swap is enabled: /swapfile file 1048572 0 -2; disable it or set failSwapOn: false \
             (--fail-swap-on=false)",
        );
        check_swaps(
            "/a file 1 0 -2\n/b file 1 0 -3\n",
            false,
            "swap is enabled (2 areas, allowed by failSwapOn: false)",
        );
        assert!(matches!(check_swap("", true), Ok(None)));
    }

    #[test]
    fn memory_settings_without_effect_are_reported() {
        let check = |cgroups, memory_qos, kernel: &str, single: Option<bool>, expected: &str| {
            let mut config = KubeletConfiguration {
                single_process_oom_kill: single,
                ..KubeletConfiguration::default()
            };
            config.memory_swap.swap_behavior = "LimitedSwap".to_owned();
            let line = match check_memory(&config, memory_qos, cgroups, kernel) {
                Ok(warnings) => warnings.join("; "),
                Err(error) => error.to_string(),
            };
            assert_eq!(line, expected);
        };
        let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
        check(v2, true, "5.9.0-1", Some(false), "");
        check(v2, false, "5.8", None, "");
        check(
            v2,
            true,
            "5.8.18-generic",
            None,
            "processes may hang at memory.high (feature gate MemoryQoS) on kernel \
             5.8.18-generic; use 5.9 or newer",
        );
        let swap = "memorySwap.swapBehavior: LimitedSwap requires cgroup v2; no pod may swap";
        check(v1, false, "6.1", Some(true), swap);
        let both = format!("feature gate MemoryQoS has no effect on cgroup v1; {swap}");
        check(v1, true, "6.1", None, &both);
        check(
            v1,
            true,
            "6.1",
            Some(false),
            "singleProcessOOMKill: must not be false on cgroup v1; remove it",
        );
    }

    #[test]
    fn cgroup_v1_is_rejected_unless_allowed() {
        assert_eq!(version_of(0x6367_7270), CgroupVersion::V2);
        assert_eq!(version_of(0x0102_1994), CgroupVersion::V1);
        assert!(check_cgroup(CgroupVersion::V1, true).is_err());
        assert!(matches!(
            check_cgroup(CgroupVersion::V1, false),
            Ok(Some(_))
        ));
        assert!(matches!(check_cgroup(CgroupVersion::V2, true), Ok(None)));
    }
}
