//! Which runtime is run: the machine's containerd, the containerd of a folder, or a CRI-O.
//!
//! Debian's containerd is old, most nodes are not: what it cannot do is tried on another one, which
//! an environment variable names.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::debian::{self, Package};

/// Names a folder with `containerd`, `containerd-shim-runc-v2`, `ctr` and perhaps `runc`. What
/// it does not have is looked for on the `PATH`.
pub const VARIABLE: &str = "WINDLASS_CONTAINERD";
/// Names a folder with `crio`, `pinns` and perhaps `conmon`, `runc` and `skopeo`: CRI-O runs in
/// place of containerd.
const CRIO_VARIABLE: &str = "WINDLASS_CRIO";
/// Names the OCI runtime that runs the containers, `runc` or `crun`. Default: `runc`.
const OCI_RUNTIME_VARIABLE: &str = "WINDLASS_OCI_RUNTIME";
/// Without these a folder is not what the variable is for.
const NEEDED: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];
const NEEDED_CRIO: [&str; 2] = ["crio", "pinns"];
/// What CRI-O needs of Debian's packages.
const CRIO_PACKAGES: [Package; 2] = [
    Package {
        name: "conmon",
        probe: &["/usr/bin/conmon"],
    },
    // puts the images of the tests into its storage
    Package {
        name: "skopeo",
        probe: &["/usr/bin/skopeo"],
    },
];
const CRUN_PACKAGE: Package = Package {
    name: "crun",
    probe: &["/usr/bin/crun"],
};

/// What implements CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// With major and minor number of its version.
    Containerd([u64; 2]),
    Crio,
}

/// The programs of a runtime.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: Option<PathBuf>,
    runtime: Runtime,
    oci_runtime: String,
}

impl Programs {
    /// Returns the programs of the folder in [`VARIABLE`] or [`CRIO_VARIABLE`], by default the host's
    /// containerd, whose missing packages are installed. `progress` receives the steps.
    ///
    /// # Errors
    /// This is not root, both variables are set, the folder lacks a program, a package cannot be
    /// installed, or the version of containerd is unknown.
    pub fn from_env(progress: fn(&str)) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("containers need root: run the same command with sudo");
        }
        let oci_runtime = std::env::var(OCI_RUNTIME_VARIABLE).unwrap_or_default();
        let oci_runtime = match &*oci_runtime {
            "" => "runc".to_owned(),
            "runc" | "crun" => oci_runtime,
            other => bail!("{OCI_RUNTIME_VARIABLE}: {other:?} is neither runc nor crun"),
        };
        let (folder, crio) = match (
            folder(VARIABLE, &NEEDED)?,
            folder(CRIO_VARIABLE, &NEEDED_CRIO)?,
        ) {
            (Some(_), Some(_)) => bail!("{VARIABLE} and {CRIO_VARIABLE} are both set"),
            (None, Some(crio)) => (Some(crio), true),
            (containerd, None) => (containerd, false),
        };
        let has = |name: &str| {
            let path = folder.as_ref().map(|folder| folder.join(name));
            path.is_some_and(|path| path.is_file()) || (crio && name == "containerd")
        };
        let mut more = Vec::new();
        more.extend(CRIO_PACKAGES.iter().filter(|_| crio));
        more.extend((oci_runtime == "crun").then_some(&CRUN_PACKAGE));
        debian::ensure_packages(progress, &more, has)?;
        let mut programs = Self {
            folder,
            runtime: Runtime::Crio,
            oci_runtime,
        };
        if !crio {
            let output = programs.version_output("containerd")?;
            let version = version(&output)
                .with_context(|| format!("containerd does not say its version: {output}"))?;
            programs.runtime = Runtime::Containerd(version);
        }
        Ok(programs)
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// `containerd` or `crio`.
    pub fn daemon(&self) -> &'static str {
        match self.runtime {
            Runtime::Containerd(_) => "containerd",
            Runtime::Crio => "crio",
        }
    }

    /// `runc` or `crun`.
    pub fn oci_runtime(&self) -> &str {
        &self.oci_runtime
    }

    /// Major and minor number of containerd's version if it is older than `since`. CRI-O is older
    /// than nothing: one that is tried knows what the newest containerd knows.
    pub fn older_than(&self, since: [u64; 2]) -> Option<[u64; 2]> {
        match self.runtime {
            Runtime::Containerd(version) => Some(version).filter(|version| *version < since),
            Runtime::Crio => None,
        }
    }

    /// What `<name> --version` prints.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn version_output(&self, name: &str) -> anyhow::Result<String> {
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

/// The folder that a variable names, which has what is `needed`.
fn folder(variable: &str, needed: &[&str]) -> anyhow::Result<Option<PathBuf>> {
    let folder = std::env::var_os(variable).filter(|value| !value.is_empty());
    let folder = folder.map(PathBuf::from);
    if let Some(folder) = &folder
        && let Some(missing) = needed.iter().find(|name| !folder.join(name).is_file())
    {
        bail!("{variable}: {} has no {missing}", folder.display());
    }
    Ok(folder)
}

/// `containerd github.com/containerd/containerd/v2 v2.3.4 1a2b3c` is `[2, 3]`.
fn version(output: &str) -> Option<[u64; 2]> {
    let version = output.split_ascii_whitespace().nth(2)?;
    let mut parts = version.strip_prefix('v').unwrap_or(version).splitn(3, '.');
    let mut number = || parts.next()?.parse().ok();
    Some([number()?, number()?])
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_version_is_read_as_debian_and_upstream_print_it() {
        let check = |output: &str, expected: Option<[u64; 2]>| assert_eq!(version(output), expected);
        let debian = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1";
        check(debian, Some([1, 6]));
        let upstream = "containerd github.com/containerd/containerd/v2 v2.3.4 1a2b3c\n";
        check(upstream, Some([2, 3]));
        check("containerd", None);
        check("", None);
    }
}
