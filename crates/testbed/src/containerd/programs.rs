//! Selection of the runtime: containerd of the host or of a directory, or CRI-O.
//!
//! An environment variable selects a newer containerd than that of Debian.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

use crate::debian::{self, Package};

/// Directory with `containerd`, `containerd-shim-runc-v2`, `ctr` and optionally `runc`; others are
/// searched in `PATH`.
pub const VARIABLE: &str = "WINDLASS_CONTAINERD";
/// Directory with `crio`, `pinns` and optionally `conmon`, `runc` and `skopeo`, to use CRI-O.
const CRIO_VARIABLE: &str = "WINDLASS_CRIO";
/// OCI runtime, `runc` (default) or `crun`.
const OCI_RUNTIME_VARIABLE: &str = "WINDLASS_OCI_RUNTIME";
/// Required programs of the directory.
const NEEDED: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];
const NEEDED_CRIO: [&str; 2] = ["crio", "pinns"];
/// Debian packages for CRI-O.
const CRIO_PACKAGES: [Package; 2] = [
    Package {
        name: "conmon",
        probe: &["/usr/bin/conmon"],
    },
    // imports images
    Package {
        name: "skopeo",
        probe: &["/usr/bin/skopeo"],
    },
];
const CRUN_PACKAGE: Package = Package {
    name: "crun",
    probe: &["/usr/bin/crun"],
};

/// Container runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    /// Major and minor version.
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
    /// Returns the programs of the folder in `VARIABLE` or `CRIO_VARIABLE`, by default the host's
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
                .with_context(|| format!("unexpected version output of containerd: {output}"))?;
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

    /// Returns the version of containerd if it is older than `since`; `None` for CRI-O.
    pub fn older_than(&self, since: [u64; 2]) -> Option<[u64; 2]> {
        match self.runtime {
            Runtime::Containerd(version) => Some(version).filter(|version| *version < since),
            Runtime::Crio => None,
        }
    }

    /// Returns the output of `<name> --version`.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn version_output(&self, name: &str) -> anyhow::Result<String> {
        let output = Command::new(self.path(name))
            .arg("--version")
            .env("PATH", self.search_path())
            .output()
            .with_context(|| format!("cannot run {name}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the path of a program in the directory, else its name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.as_ref().map(|folder| folder.join(name));
        let path = path.filter(|path| path.is_file());
        path.unwrap_or_else(|| PathBuf::from(name))
    }

    /// Returns the `PATH` of the daemon, for the shim and runc.
    pub(super) fn search_path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folder = self.folder.iter().cloned();
        let all = folder.chain(std::env::split_paths(&path));
        // fails only for a directory with a colon
        std::env::join_paths(all).unwrap_or(path)
    }
}

/// Returns the directory in a variable, checked for `needed` programs.
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
    fn debian_and_upstream_versions_are_parsed() {
        let check =
            |output: &str, expected: Option<[u64; 2]>| assert_eq!(version(output), expected);
        let debian = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1";
        check(debian, Some([1, 6]));
        let upstream = "containerd github.com/containerd/containerd/v2 v2.3.4 1a2b3c\n";
        check(upstream, Some([2, 3]));
        check("containerd", None);
        check("", None);
    }
}
