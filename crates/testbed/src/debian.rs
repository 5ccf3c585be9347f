//! Installs the Debian packages for tests on a real runtime and for images.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// A package and files that indicate its installation.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Name.
    pub name: &'static str,
    /// Absolute paths.
    pub probe: &'static [&'static str],
}

/// Packages of a private containerd and its images.
const PACKAGES: &[Package] = &[
    Package {
        name: "containerd",
        probe: &["/usr/bin/containerd", "/usr/local/bin/containerd"],
    },
    Package {
        name: "runc",
        probe: &["/usr/sbin/runc", "/usr/bin/runc", "/usr/local/sbin/runc"],
    },
    Package {
        name: "containernetworking-plugins",
        probe: &["/usr/lib/cni/bridge"],
    },
    Package {
        name: "busybox-static",
        probe: &["/bin/busybox"],
    },
    Package {
        name: "iproute2",
        probe: &["/sbin/ip", "/usr/sbin/ip", "/bin/ip"],
    },
    Package {
        name: "gcc",
        probe: &["/usr/bin/cc"],
    },
    Package {
        name: "libc6-dev",
        probe: &["/usr/include/stdlib.h"],
    },
    Package {
        name: "iptables",
        probe: &["/usr/sbin/iptables"],
    },
    Package {
        name: "ca-certificates",
        probe: &["/usr/share/ca-certificates/mozilla"],
    },
];

/// Installs missing packages of containerd, images and `more`, except those for which `has` returns
/// true. `progress` receives each step; an error is one line with the remedy.
pub(crate) fn ensure_packages(
    progress: fn(&str),
    more: &[&Package],
    has: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let needed: Vec<Package> = PACKAGES
        .iter()
        .chain(more.iter().copied())
        .filter(|package| !has(package.name))
        .copied()
        .collect();
    ensure(&needed, progress)
}

/// Installs missing packages; `progress` receives their names.
///
/// # Errors
/// A package is missing and the user is not root, or `apt-get` is missing or fails.
pub fn ensure(packages: &[Package], progress: fn(&str)) -> anyhow::Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|package| !package.is_installed())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let fix = format!("apt-get install {}", missing.join(" "));
    if !rustix::process::geteuid().is_root() {
        bail!("missing {}: as root, {fix}", missing.join(", "));
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!(
            "missing {}, and there is no apt-get: install them by hand",
            missing.join(", ")
        );
    }
    progress(&format!(
        "installing Debian packages: {}",
        missing.join(" ")
    ));
    // the package list may be outdated
    apt(&["update", "-q"]).with_context(|| format!("fix: check the network, then {fix}"))?;
    let mut args = vec!["install", "-q", "-y", "--no-install-recommends"];
    args.extend(&missing);
    apt(&args).with_context(|| format!("fix: {fix}"))?;
    match packages.iter().find(|package| !package.is_installed()) {
        None => Ok(()),
        Some(package) => bail!(
            "{} is installed but none of {} exists",
            package.name,
            package.probe.join(", ")
        ),
    }
}

impl Package {
    fn is_installed(&self) -> bool {
        self.probe.iter().any(|path| Path::new(path).exists())
    }
}

fn apt(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("cannot run apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("no message");
    bail!(
        "apt-get {} failed: {last}",
        args.first().copied().unwrap_or_default()
    )
}
