//! Numbers of physical cores and sockets, from `/sys/bus/cpu/devices`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Numbers of online cores and sockets; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Physical cores.
    pub cores: u64,
    /// Sockets.
    pub sockets: u64,
}

impl Topology {
    /// Reads the directory of logical CPUs (cAdvisor `GetUniqueCPUPropertyCount`). A core ID is
    /// unique only within its socket.
    pub fn read(processors: &Path) -> Self {
        let entries = fs::read_dir(processors).into_iter().flatten().flatten();
        let cgroup_paths = entries.filter_map(|entry| {
            let name = entry.file_name();
            let number = name.to_str()?.strip_prefix("cpu")?;
            number.parse::<u32>().ok()?;
            let number = |file: &str| -> Option<i64> {
                let text = fs::read_to_string(entry.path().join(file)).ok()?;
                text.trim().parse().ok()
            };
            // a CPU that cannot be taken offline has no such file
            let online = number("online") != Some(0);
            let socket = number("topology/physical_package_id")?;
            online.then_some((socket, number("topology/core_id")?))
        });
        let cgroup_paths: BTreeSet<(i64, i64)> = cgroup_paths.collect();
        let sockets: BTreeSet<i64> = cgroup_paths.iter().map(|(socket, _)| *socket).collect();
        Self {
            cores: cgroup_paths.len() as u64,
            sockets: sockets.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets with two cores of two threads each; one thread is off.
    #[test]
    fn only_online_cores_and_sockets_are_counted() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |file: &str, text: &str| {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(file, text).expect("a file");
        };
        assert_eq!(Topology::read(dir.path()), Topology::default());
        for cpu in 0..8 {
            let (socket, core) = (cpu % 2, (cpu / 2) % 2);
            write(&format!("cpu{cpu}/topology/core_id"), &format!("{core}\n"));
            write(
                &format!("cpu{cpu}/topology/physical_package_id"),
                &format!("{socket}\n"),
            );
            if cpu > 0 {
                write(&format!("cpu{cpu}/online"), "1\n");
            }
        }
        write("cpufreq/online", "1\n");
        let told =
            |cores, sockets| assert_eq!(Topology::read(dir.path()), Topology { cores, sockets });
        told(4, 2);
        write("cpu7/online", "0\n");
        told(4, 2);
        write("cpu3/online", "0\n");
        told(3, 2);
        for cpu in [1, 5] {
            write(&format!("cpu{cpu}/online"), "0\n");
        }
        told(2, 1);
    }
}
