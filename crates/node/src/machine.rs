//! Facts of the host: identifiers, system, processors, memory, disk, huge pages.
//!
//! They are read from files below configurable roots. A missing file leaves its fact empty.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_node_rules::node_object::MachineFacts;
use windlass_stats::DiskSpace;
use windlass_types::Timestamp;

/// Source of the host's facts.
#[derive(Clone, Debug)]
pub enum Machine {
    /// Files of a system.
    Files(MachineRoots),
    /// Fixed facts, for simulations.
    Fixed(MachineFacts),
}

impl Machine {
    /// Returns the boot time, from the uptime.
    pub(crate) fn booted(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Files(roots) => roots.booted(now),
            Self::Fixed(_) => None,
        }
    }
}

/// The directories of a system's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRoots {
    /// `/etc`.
    pub etc: PathBuf,
    /// `/usr/lib`, where `os-release` may be instead of `/etc`.
    pub usr_lib: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// The agent's root directory, on the file system that holds pods.
    pub root_dir: PathBuf,
}

impl MachineRoots {
    /// Returns the roots of the host of this process.
    pub fn for_host(root_dir: PathBuf) -> Self {
        Self {
            etc: "/etc".into(),
            usr_lib: "/usr/lib".into(),
            proc: "/proc".into(),
            sys: "/sys".into(),
            root_dir,
        }
    }

    /// Returns the boot time, from the uptime; `None` if that cannot be read.
    pub fn booted(&self, now: Timestamp) -> Option<Timestamp> {
        let text = read(&self.proc.join("uptime"));
        let seconds = text.split_whitespace().next()?.parse::<f64>().ok()?;
        let uptime = Duration::try_from_secs_f64(seconds).ok()?;
        now.checked_sub(uptime).ok()
    }

    /// Reads everything. Blocks on the disk.
    pub fn read(&self) -> MachineFacts {
        let meminfo = read(&self.proc.join("meminfo"));
        let os_release = [&self.etc, &self.usr_lib]
            .map(|dir| read(&dir.join("os-release")))
            .into_iter()
            .find(|text| !text.is_empty());
        MachineFacts {
            machine_id: line(&self.etc.join("machine-id")),
            system_uuid: self.system_uuid(),
            boot_id: line(&self.proc.join("sys/kernel/random/boot_id")),
            kernel_version: self.kernel_version(),
            os_image: os_image(&os_release.unwrap_or_default()),
            cpus: cpus(&read(&self.proc.join("stat"))),
            memory: kib(&meminfo, "MemTotal:"),
            swap: kib(&meminfo, "SwapTotal:"),
            storage: storage(&self.root_dir),
            huge_pages: huge_pages(&self.sys.join("kernel/mm/hugepages")),
            ..platform_facts()
        }
    }

    /// The DMI UUID; without DMI the hypervisor's, else the machine ID (as upstream).
    fn system_uuid(&self) -> String {
        [
            self.sys.join("class/dmi/id/product_uuid"),
            self.proc.join("device-tree/vm,uuid"),
            self.etc.join("machine-id"),
        ]
        .iter()
        .map(|path| line(path).trim_matches('\0').to_owned())
        .find(|text| !text.is_empty())
        .unwrap_or_default()
    }

    fn kernel_version(&self) -> String {
        match line(&self.proc.join("sys/kernel/osrelease")) {
            text if text.is_empty() => rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            text => text,
        }
    }
}

/// Returns operating system and architecture, by Go's names; all other facts are empty.
pub(crate) fn platform_facts() -> MachineFacts {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    };
    MachineFacts {
        operating_system: std::env::consts::OS.to_owned(),
        architecture: architecture.to_owned(),
        ..MachineFacts::default()
    }
}

/// Returns the text of a file, empty if it is unreadable.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn line(path: &Path) -> String {
    read(path).trim().to_owned()
}

/// Returns `PRETTY_NAME`, without quotes.
fn os_image(os_release: &str) -> String {
    let value = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let value = value.unwrap_or("Linux").trim();
    value.trim_matches(['"', '\'']).to_owned()
}

/// Returns a value of `/proc/meminfo`, in bytes.
fn kib(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Returns the number of online CPUs: the lines of single CPUs in `/proc/stat`.
fn cpus(stat: &str) -> u32 {
    let single = |line: &&str| {
        let rest = line.strip_prefix("cpu");
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    u32::try_from(stat.lines().filter(single).count()).unwrap_or(u32::MAX)
}

/// Returns the size of the file system of a directory, or of its nearest existing parent.
fn storage(root_dir: &Path) -> u64 {
    DiskSpace::read_nearest(root_dir).map_or(0, |space| space.capacity)
}

/// Returns the number of huge pages by page size in KiB.
fn huge_pages(dir: &Path) -> BTreeMap<u64, u64> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let size = name.to_str()?.strip_prefix("hugepages-")?;
            let size = size.strip_suffix("kB")?.parse().ok()?;
            let pages = line(&entry.path().join("nr_hugepages")).parse().ok()?;
            Some((size, pages))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> MachineFacts {
        let dir = tempfile::tempdir().expect("temp dir");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }
        let root = |name: &str| dir.path().join(name);
        MachineRoots {
            etc: root("etc"),
            usr_lib: root("usr/lib"),
            proc: root("proc"),
            sys: root("sys"),
            root_dir: root("not/there/yet"),
        }
        .read()
    }

    #[test]
    fn machine_facts_are_read_from_files() {
        let facts = machine(&[
            ("etc/machine-id", "abc\n"),
            ("sys/class/dmi/id/product_uuid", "def\n"),
            ("proc/sys/kernel/random/boot_id", "ghi\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-1-amd64\n"),
            ("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 12\"\n"),
            ("proc/meminfo", "MemTotal: 1024 kB\nSwapTotal: 2 kB\n"),
            ("proc/stat", "cpu  1\ncpu0 1\ncpu1 1\nintr 5\n"),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "4\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                "0\n",
            ),
        ]);
        assert!(facts.storage > 0, "the nearest directory counts");
        let expected = MachineFacts {
            machine_id: "abc".into(),
            system_uuid: "def".into(),
            boot_id: "ghi".into(),
            kernel_version: "6.1.0-1-amd64".into(),
            os_image: "Debian 12".into(),
            cpus: 2,
            memory: 1 << 20,
            swap: 2048,
            storage: facts.storage,
            huge_pages: BTreeMap::from([(2048, 4), (1_048_576, 0)]),
            ..platform_facts()
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn boot_time_is_now_minus_uptime() {
        let dir = tempfile::tempdir().expect("dir");
        let roots = MachineRoots {
            proc: dir.path().into(),
            ..MachineRoots::for_host(PathBuf::new())
        };
        let machine = Machine::Files(roots);
        let now = Timestamp::from_second(1000).expect("time");
        assert_eq!(machine.booted(now), None);
        std::fs::write(dir.path().join("uptime"), "250.25 480.11\n").expect("write");
        let booted = machine.booted(now).expect("known");
        assert_eq!(booted.as_millisecond(), 749_750);
        assert_eq!(Machine::Fixed(MachineFacts::default()).booted(now), None);
    }

    #[test]
    fn missing_files_leave_facts_empty() {
        let facts = machine(&[
            ("etc/machine-id", "abc"),
            ("usr/lib/os-release", "PRETTY_NAME='Flatcar'"),
        ]);
        assert_eq!(facts.system_uuid, "abc", "no DMI");
        assert_eq!(facts.os_image, "Flatcar");
        assert_eq!((facts.cpus, facts.memory, facts.swap), (0, 0, 0));
        assert!(!facts.kernel_version.is_empty(), "from uname");
        assert!(facts.huge_pages.is_empty());
    }
}
