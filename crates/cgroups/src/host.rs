//! The kernel's cgroups, below `/sys/fs/cgroup`.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::tree::CgroupTree;

/// Files of cgroup v1's `cpuset` that are empty in a new cgroup; no process can enter it then.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// Implementation of [`CgroupTree`] on the host.
#[derive(Debug)]
pub struct HostTree {
    mount: PathBuf,
    unified: bool,
    /// Directories of the hierarchies below `mount`; one empty name for v2.
    hierarchies: Vec<String>,
    /// Controller to hierarchy.
    controllers: BTreeMap<String, String>,
}

impl HostTree {
    /// Reads the hierarchies mounted at `mount`, usually `/sys/fs/cgroup`. Changes nothing.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(mount: PathBuf) -> io::Result<Self> {
        let unified = mount.join("cgroup.controllers").exists();
        let mut tree = Self {
            mount,
            unified,
            hierarchies: Vec::new(),
            controllers: BTreeMap::new(),
        };
        if unified {
            let available = fs::read_to_string(tree.mount.join("cgroup.controllers"))?;
            tree.hierarchies.push(String::new());
            let available = available.split_whitespace();
            tree.controllers = available.map(|c| (c.to_owned(), String::new())).collect();
            return Ok(tree);
        }
        for entry in fs::read_dir(&tree.mount)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // `cpu` may be a link to `cpu,cpuacct`; `unified` (v2 in hybrid mode) has no
            // controllers, but runtimes create cgroups there too
            let has_cgroups = entry.path().join("cgroup.procs").exists();
            if entry.file_type()?.is_dir() && has_cgroups {
                let controllers = name.split(',');
                let controllers = controllers.map(|c| (c.to_owned(), name.clone()));
                tree.controllers.extend(controllers);
                tree.hierarchies.push(name);
            }
        }
        tree.hierarchies.sort();
        Ok(tree)
    }

    fn path(&self, hierarchy: &str, path: &str) -> PathBuf {
        let below = path.trim_start_matches('/');
        let mut full = self.mount.clone();
        full.extend([hierarchy, below].iter().filter(|part| !part.is_empty()));
        full
    }

    /// v2: enables all available controllers for the children of a cgroup.
    fn delegate(dir: &Path) -> io::Result<()> {
        let available = fs::read_to_string(dir.join("cgroup.controllers"))?;
        let control = dir.join("cgroup.subtree_control");
        let enabled = fs::read_to_string(&control)?;
        for controller in available.split_whitespace() {
            if enabled.split_whitespace().any(|c| c == controller) {
                continue;
            }
            // one that cannot be delegated (`cpu` with realtime processes) does not block the
            // others
            if let Err(error) = write_file(&control, &format!("+{controller}")) {
                tracing::debug!(controller, dir = %dir.display(), %error, "not delegated");
            }
        }
        Ok(())
    }

    /// v1: copies the parent's CPUs and memory nodes to a new cgroup.
    fn inherit_cpuset(dir: &Path) -> io::Result<()> {
        let Some(parent) = dir.parent() else {
            return Ok(());
        };
        for name in CPUSET {
            let own = dir.join(name);
            if fs::read_to_string(&own)?.trim().is_empty() {
                let inherited = fs::read_to_string(parent.join(name))?;
                write_file(&own, inherited.trim())?;
            }
        }
        Ok(())
    }
}

impl CgroupTree for HostTree {
    fn unified(&self) -> bool {
        self.unified
    }

    fn hierarchies(&self) -> Vec<String> {
        self.hierarchies.clone()
    }

    fn hierarchy_of(&self, controller: &str) -> Option<String> {
        self.controllers.get(controller).cloned()
    }

    fn make(&self, hierarchy: &str, path: &str) -> io::Result<bool> {
        let dir = self.path(hierarchy, path);
        let new = match fs::create_dir(&dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        if self.unified {
            // systemd does not enable `hugetlb` in the root
            if dir.parent() == Some(self.mount.as_path()) {
                Self::delegate(&self.mount)?;
            }
            Self::delegate(&dir)?;
        } else if self.hierarchy_of("cpuset").as_deref() == Some(hierarchy) {
            Self::inherit_cpuset(&dir)?;
        }
        Ok(new)
    }

    fn exists(&self, hierarchy: &str, path: &str) -> bool {
        self.path(hierarchy, path).is_dir()
    }

    fn write(&self, hierarchy: &str, path: &str, file: &str, content: &str) -> io::Result<()> {
        write_file(&self.path(hierarchy, path).join(file), content)
    }

    fn read(&self, hierarchy: &str, path: &str, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path(hierarchy, path).join(file))
    }

    fn children(&self, hierarchy: &str, path: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.path(hierarchy, path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn processes(&self, hierarchy: &str, path: &str) -> io::Result<Vec<i32>> {
        let text = match fs::read_to_string(self.path(hierarchy, path).join("cgroup.procs")) {
            // the cgroup was removed during the read
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
                return Ok(Vec::new());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text?,
        };
        // a process outside of the agent's PID namespace is listed as 0
        let pids = text.lines().filter_map(|line| line.parse().ok());
        Ok(pids.filter(|pid| *pid > 1).collect())
    }

    fn remove(&self, hierarchy: &str, path: &str) -> io::Result<()> {
        match fs::remove_dir(self.path(hierarchy, path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn kill(&self, pid: i32) {
        if let Some(pid) = Pid::from_raw(pid)
            && let Err(error) = kill_process(pid, Signal::KILL)
        {
            tracing::debug!(?pid, %error, "not killed");
        }
    }
}

/// Writes in one call: the kernel parses each write on its own.
fn write_file(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(content.as_bytes())
}
