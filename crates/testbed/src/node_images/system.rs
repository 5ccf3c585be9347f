//! Source of image files: this host, or downloaded Debian packages of another architecture, unpacked
//! into a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::DebianPackage;
use crate::platform::Platform;

/// Packages of the runtime image, without dependencies.
const RUNTIME_PACKAGES: &[&str] = &[
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "ca-certificates",
];

/// A Debian system of one platform: files and their packages.
#[derive(Debug)]
pub struct System {
    platform: Platform,
    root: PathBuf,
    /// `None` for this host with its dpkg.
    unpacked: Option<Packages>,
}

/// Unpacked packages.
#[derive(Debug, Default)]
struct Packages {
    by_name: BTreeMap<String, DebianPackage>,
    /// Package by absolute path of a file, link or directory; directories belong to the first one.
    owners: BTreeMap<PathBuf, String>,
}

impl System {
    /// Returns this host.
    ///
    /// # Errors
    /// Images are not built on its architecture.
    pub fn host() -> anyhow::Result<Self> {
        Ok(Self {
            platform: Platform::host()?,
            root: PathBuf::from("/"),
            unpacked: None,
        })
    }

    /// Returns the system that the runtime's programs for a platform come from: this host, or the
    /// current packages of its Debian release in another architecture, unpacked below `work`.
    ///
    /// # Errors
    /// apt or dpkg-deb fails, or `work` cannot be written.
    pub fn of_runtime(platform: Platform, work: &Path, progress: fn(&str)) -> anyhow::Result<Self> {
        if platform.is_host() {
            return Self::host();
        }
        progress(&format!("downloading Debian packages for {platform}"));
        let apt = Apt::new(&work.join("apt"), platform)?;
        let archives = apt.download(RUNTIME_PACKAGES)?;
        progress(&format!(
            "unpacking {} packages for {platform}",
            archives.len()
        ));
        let root = work.join("root");
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        }
        fs::create_dir_all(&root).with_context(|| root.display().to_string())?;
        let mut unpacked = Packages::default();
        for archive in archives {
            unpacked
                .unpack(&archive, &root)
                .with_context(|| archive.display().to_string())?;
        }
        let root = root.canonicalize()?;
        Ok(Self {
            platform,
            root,
            unpacked: Some(unpacked),
        })
    }

    /// Returns what its programs run on.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// Returns `os-release` of the Debian that the packages are from, which is this host's.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn os_release() -> anyhow::Result<String> {
        fs::read_to_string("/etc/os-release").context("/etc/os-release")
    }

    /// Returns the place of one of its files on this host, given the path that the file has in the system.
    pub(super) fn on_host(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the content of a file; links are followed, but not out of the system.
    pub(super) fn read(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        let place = self.on_host(path);
        let context = || place.display().to_string();
        let real = place.canonicalize().with_context(context)?;
        if !real.starts_with(&self.root) {
            bail!("{} links to {}", place.display(), real.display());
        }
        fs::read(&real).with_context(context)
    }

    /// Returns the package that a file belongs to, and what is known of the package.
    ///
    /// # Errors
    /// The file belongs to no package, or dpkg fails.
    pub(super) fn package_of(&self, file: &Path) -> anyhow::Result<(String, DebianPackage)> {
        let name = self.owner(file)?;
        let name = name.with_context(|| format!("{} is of no package", file.display()))?;
        let package = match &self.unpacked {
            Some(packages) => packages.by_name.get(&name).cloned(),
            None => installed(&name)?,
        };
        let package = package.with_context(|| format!("dpkg does not know {name}"))?;
        Ok((name, package))
    }

    /// Returns the owner of a file. Debian moved `/lib` and `/bin` below `/usr`; packages list their files by
    /// either name.
    fn owner(&self, file: &Path) -> anyhow::Result<Option<String>> {
        let real = self.on_host(file).canonicalize()?;
        let real = Path::new("/").join(real.strip_prefix(&self.root).unwrap_or(&real));
        let without_usr = Path::new("/").join(real.strip_prefix("/usr").unwrap_or(&real));
        for path in [file, &real, &without_usr] {
            let owner = match &self.unpacked {
                Some(packages) => packages.owners.get(path).cloned(),
                None => installed_owner(path)?,
            };
            if owner.is_some() {
                return Ok(owner);
            }
        }
        Ok(None)
    }
}

impl Packages {
    /// Unpacks an archive and records its files.
    fn unpack(&mut self, archive: &Path, root: &Path) -> anyhow::Result<()> {
        let fields = dpkg_deb(&[
            "--show".as_ref(),
            "--showformat=${Package} ${Version} ${Architecture}".as_ref(),
            archive.as_os_str(),
        ])?;
        let fields = String::from_utf8(fields)?;
        let mut fields = fields.split_whitespace().map(str::to_owned);
        let mut field = || fields.next().context("dpkg-deb --show");
        let (name, version, architecture) = (field()?, field()?, field()?);
        let files = dpkg_deb(&["--fsys-tarfile".as_ref(), archive.as_os_str()])?;
        for entry in tar::Archive::new(&files[..]).entries()? {
            let path = absolute(&entry?.path()?);
            self.owners.entry(path).or_insert_with(|| name.clone());
        }
        dpkg_deb(&["--extract".as_ref(), archive.as_os_str(), root.as_os_str()])?;
        let package = DebianPackage {
            version,
            architecture,
        };
        self.by_name.insert(name, package);
        Ok(())
    }
}

/// `./usr/bin/` as `/usr/bin`.
fn absolute(path: &Path) -> PathBuf {
    let names = path.components();
    let names = names.filter(|it| matches!(it, Component::Normal(_)));
    Path::new("/").join(names.collect::<PathBuf>())
}

/// An apt with separate state that uses the sources and keys of the host.
struct Apt {
    settings: Vec<String>,
    archives: PathBuf,
}

impl Apt {
    fn new(dir: &Path, platform: Platform) -> anyhow::Result<Self> {
        let archives = dir.join("cache/archives");
        for needed in [&dir.join("state/lists/partial"), &archives.join("partial")] {
            fs::create_dir_all(needed).with_context(|| needed.display().to_string())?;
        }
        let dir = dir.canonicalize()?;
        let status = dir.join("status");
        fs::write(&status, "").with_context(|| status.display().to_string())?;
        let architecture = platform.architecture();
        let dir = dir.display();
        let settings = [
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            "APT::Install-Recommends=false".to_owned(),
            // the user _apt could not write below a private directory
            "APT::Sandbox::User=".to_owned(),
            format!("Dir::State={dir}/state"),
            format!("Dir::State::status={}", status.display()),
            format!("Dir::Cache={dir}/cache"),
        ];
        Ok(Self {
            settings: settings.into(),
            archives,
        })
    }

    /// Downloads packages and those that they depend on, unless they are there already, and returns
    /// their archives.
    fn download(&self, packages: &[&str]) -> anyhow::Result<BTreeSet<PathBuf>> {
        self.run(&["update"])?;
        let install = |option| {
            let mut args = vec!["install", "--yes", option];
            args.extend(packages);
            args
        };
        let plan = self.run(&install("--simulate"))?;
        self.run(&install("--download-only"))?;
        let archives: BTreeSet<PathBuf> = plan
            .lines()
            .filter_map(archive_name)
            .map(|name| self.archives.join(name))
            .collect();
        if archives.is_empty() {
            bail!("apt-get has nothing to install for {}", packages.join(", "));
        }
        Ok(archives)
    }

    fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new("apt-get");
        command.arg("-q");
        for setting in &self.settings {
            command.args(["-o", setting]);
        }
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        output(&mut command, "apt-get")
            .with_context(|| format!("apt-get {}", args.join(" ")))
            .and_then(|it| Ok(String::from_utf8(it)?))
    }
}

/// Returns the name that apt stores an archive under, from `Inst name (version origin [architecture])` of
/// `apt-get --simulate`.
fn archive_name(line: &str) -> Option<String> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
    let version = rest.split_whitespace().next()?.replace(':', "%3a");
    let (parenthesis, _) = rest.split_once(')')?;
    let (_, architecture) = parenthesis.strip_suffix(']')?.rsplit_once('[')?;
    Some(format!("{name}_{version}_{architecture}.deb"))
}

/// Returns an installed package of this host.
fn installed(name: &str) -> anyhow::Result<Option<DebianPackage>> {
    let Some(fields) = dpkg_query(&["-W", "-f", "${Version} ${Architecture}", name])? else {
        return Ok(None);
    };
    let (version, architecture) = fields.split_once(' ').context("dpkg-query -W")?;
    Ok(Some(DebianPackage {
        version: version.to_owned(),
        architecture: architecture.to_owned(),
    }))
}

/// Returns the installed package that lists this path.
fn installed_owner(path: &Path) -> anyhow::Result<Option<String>> {
    let found = dpkg_query(&["-S", &path.to_string_lossy()])?;
    Ok(found.map(|text| {
        let name = text.split([':', ',']).next().unwrap_or_default();
        name.to_owned()
    }))
}

/// Output of a `dpkg-query` that finds something.
fn dpkg_query(args: &[&str]) -> anyhow::Result<Option<String>> {
    let output = Command::new("dpkg-query").args(args).output();
    let output = output.context("dpkg-query (the images are built on Debian)")?;
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8(output.stdout)?)),
        // nothing found
        Some(1) => Ok(None),
        _ => bail!(
            "dpkg-query: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

fn dpkg_deb(args: &[&OsStr]) -> anyhow::Result<Vec<u8>> {
    output(Command::new("dpkg-deb").args(args), "dpkg-deb")
}

/// Output of a command that succeeds.
fn output(command: &mut Command, name: &str) -> anyhow::Result<Vec<u8>> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name} (the images are built on Debian)"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut lines = stderr.lines();
        let last = lines.rfind(|line| !line.trim().is_empty());
        bail!("{name} failed: {}", last.unwrap_or("no message"));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn archive_name_is_read_from_a_simulated_install() {
        let line = "Inst busybox-static (1:1.35.0-4+deb12u1+b1 Debian:12.11/oldstable [arm64])";
        let name = archive_name(line).expect("a name");
        assert_eq!(name, "busybox-static_1%3a1.35.0-4+deb12u1+b1_arm64.deb");
        let all = "Inst netbase (6.4 Debian:12.11/oldstable, Debian-Security:12/x [all]) []";
        assert_eq!(archive_name(all).as_deref(), Some("netbase_6.4_all.deb"));
        assert_eq!(archive_name("Conf netbase (6.4 Debian [all])"), None);
        assert_eq!(archive_name("Need to get 31.1 MB of archives."), None);
    }

    #[test]
    fn unpacked_system_knows_files_owners_and_stays_inside() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        let write = |path: &str, text: &str| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        };
        write(
            "DEBIAN/control",
            "Package: libx\nVersion: 1:2-3\nArchitecture: arm64\nMaintainer: x <x@y.z>\nDescription: x\n",
        );
        write("lib/libx.so.1.2", "x");
        symlink("libx.so.1.2", tree.join("lib/libx.so.1")).expect("a link");
        symlink("/etc/hostname", tree.join("lib/outside")).expect("a link");
        let archive = dir.path().join("libx.deb");
        dpkg_deb(&[
            "--root-owner-group".as_ref(),
            "--build".as_ref(),
            tree.as_os_str(),
            archive.as_os_str(),
        ])
        .expect("a package");
        let root = dir.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let mut unpacked = Packages::default();
        unpacked.unpack(&archive, &root).expect("unpacked");
        let system = System {
            platform: Platform::Arm64,
            root: root.canonicalize().expect("a path"),
            unpacked: Some(unpacked),
        };
        let library = Path::new("/lib/libx.so.1");
        assert_eq!(system.read(library).expect("content"), b"x");
        let (name, package) = system.package_of(library).expect("a package");
        assert_eq!(
            format!("{name} {} {}", package.version, package.architecture),
            "libx 1:2-3 arm64"
        );
        let outside = Path::new("/lib/outside");
        system.read(outside).expect_err("a file of this host");
        let error = system.package_of(Path::new("/missing"));
        error.expect_err("no such file");
    }
}
