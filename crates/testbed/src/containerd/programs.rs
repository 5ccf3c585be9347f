//! Which containerd is run: the machine's, or that of a folder.
//!
//! Debian's is old, most nodes are not: what it cannot do is tried on another one, which the
//! environment variable [`VARIABLE`] names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::debian;

/// Names a folder with `containerd`, `containerd-shim-runc-v2`, `ctr` and perhaps `runc`. What
/// it does not have is looked for on the `PATH`.
pub const VARIABLE: &str = "WINDLASS_CONTAINERD";
/// Without these a folder is not what the variable is for.
const NEEDED: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// The programs of a containerd.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: Option<PathBuf>,
    version: [u64; 2],
}

impl Programs {
    /// Those of the folder that [`VARIABLE`] names, else the machine's; of these, what is missing
    /// is installed, which `progress` is told.
    ///
    /// # Errors
    /// This is not root, the folder lacks a program, a package cannot be installed, or nobody knows
    /// how old it is.
    pub fn from_env(progress: fn(&str)) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("containers need root: run the same command with sudo");
        }
        let folder = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let folder = folder.map(PathBuf::from);
        if let Some(folder) = &folder
            && let Some(missing) = NEEDED.iter().find(|name| !folder.join(name).is_file())
        {
            bail!("{VARIABLE}: {} has no {missing}", folder.display());
        }
        let has = |name: &str| {
            let path = folder.as_ref().map(|folder| folder.join(name));
            path.is_some_and(|path| path.is_file())
        };
        debian::ensure_packages(progress, has)?;
        let mut programs = Self {
            folder,
            version: [0, 0],
        };
        let said = programs.said("containerd")?;
        programs.version = version(&said)
            .with_context(|| format!("containerd does not say its version: {said}"))?;
        Ok(programs)
    }

    /// Major and minor number of containerd's version.
    pub fn version(&self) -> [u64; 2] {
        self.version
    }

    /// What `<name> --version` prints.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn said(&self, name: &str) -> anyhow::Result<String> {
        let output = Command::new(self.path(name))
            .arg("--version")
            .env("PATH", self.search_path())
            .output()
            .with_context(|| format!("cannot run {name}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A program to be started: its path in the folder, else its name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        let path = path.filter(|path| path.is_file());
        path.unwrap_or_else(|| PathBuf::from(name))
    }

    /// `PATH` of the daemon: where it finds its shim, and the shim runc.
    pub(super) fn search_path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folder = self.folder.iter().cloned();
        let all = folder.chain(std::env::split_paths(&path));
        // fails for a folder with a colon in its name only, which no PATH can have
        std::env::join_paths(all).unwrap_or(path)
    }
}

/// `containerd github.com/containerd/containerd/v2 v2.3.4 1a2b3c` is `[2, 3]`.
fn version(said: &str) -> Option<[u64; 2]> {
    let version = said.split_ascii_whitespace().nth(2)?;
    let mut parts = version.strip_prefix('v').unwrap_or(version).splitn(3, '.');
    let mut number = || parts.next()?.parse().ok();
    Some([number()?, number()?])
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_version_is_read_as_debian_and_upstream_print_it() {
        let check = |said: &str, expected: Option<[u64; 2]>| assert_eq!(version(said), expected);
        let debian = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1";
        check(debian, Some([1, 6]));
        let upstream = "containerd github.com/containerd/containerd/v2 v2.3.4 1a2b3c\n";
        check(upstream, Some([2, 3]));
        check("containerd", None);
        check("", None);
    }
}
