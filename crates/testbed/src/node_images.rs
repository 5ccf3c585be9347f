//! The images of Windlass: the agent, and the container runtime for nodes of an existing cluster.
//!
//! The runtime programs come from the Debian packages of a [`System`], with their shared libraries,
//! which an ELF parser finds (`ldd` would run the programs).

mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use object::Endianness;
use object::elf::{DT_NEEDED, EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use serde_json::json;

use crate::debian;
use crate::images::{BUSYBOX_BINARY, add_busybox_from, compile_pause, pause};
use crate::oci::{Image, Layer};
use crate::platform::Platform;

pub use system::System;

/// Name of the agent image without tag.
pub const AGENT: &str = "windlass.dev/windlass";
/// Name of the runtime image without tag.
pub const RUNTIME: &str = "windlass.dev/windlass-containerd";
/// Name of the sandbox image without tag.
pub const PAUSE: &str = "windlass.dev/windlass-pause";

/// Bundle of trusted certificate authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Authorities of the Debian package, without additions on this host.
const AUTHORITIES_OF_PACKAGE: &str = "/usr/share/ca-certificates/mozilla";
/// Packages whose code is in every static program.
const STATIC_LIBRARIES: [&str; 2] = ["libc.a", "libgcc_eh.a"];
/// Programs of the runtime and their paths in the image.
const PROGRAMS: &[(&str, &str)] = &[
    ("/usr/bin/containerd", "usr/bin/containerd"),
    (
        "/usr/bin/containerd-shim-runc-v2",
        "usr/bin/containerd-shim-runc-v2",
    ),
    ("/usr/bin/ctr", "usr/bin/ctr"),
    ("/usr/sbin/runc", "usr/sbin/runc"),
    ("/usr/lib/cni/bridge", "usr/lib/cni/bridge"),
    ("/usr/lib/cni/host-local", "usr/lib/cni/host-local"),
    ("/usr/lib/cni/loopback", "usr/lib/cni/loopback"),
    // used by the bridge plugin for masquerading
    ("/usr/sbin/xtables-nft-multi", "usr/sbin/iptables"),
];
/// Extensions that `iptables` loads by name.
const IPTABLES_EXTENSIONS: &str = "xtables";
/// Directories of the loader that programs name without `/usr`.
const MERGED: [&str; 2] = ["lib", "lib64"];

/// An image and the Debian packages whose files are in it.
#[derive(Debug)]
pub struct NodeImage {
    /// The image.
    pub image: Image,
    /// By name.
    pub packages: BTreeMap<String, DebianPackage>,
}

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebianPackage {
    /// Version with the revision.
    pub version: String,
    /// `amd64`.
    pub architecture: String,
}

/// Tag and time of an image.
#[derive(Clone, Copy, Debug)]
pub struct Edition<'a> {
    /// The tag.
    pub version: &'a str,
    /// Seconds since 1970.
    pub epoch: u64,
}

/// Installs the missing packages of the images for these platforms. `progress` receives them.
///
/// # Errors
/// A package cannot be installed; the error is one line with the remedy.
pub fn ensure_packages(platforms: &[Platform], progress: fn(&str)) -> anyhow::Result<()> {
    let mut cross = Vec::new();
    for platform in platforms {
        cross.extend(platform.cross_packages()?);
    }
    debian::ensure_packages(progress, &cross, |_| false)
}

/// Builds the agent image: the agent, its link `kubelet`, `windlassctl`, and the libraries of dynamic
/// programs.
///
/// # Errors
/// A file cannot be read, or a library is missing or in no package.
pub fn agent(
    windlass: &Path,
    windlassctl: &Path,
    platform: Platform,
    edition: Edition<'_>,
) -> anyhow::Result<NodeImage> {
    // static programs use only architecture-independent files of a system
    let system = System::host()?;
    let mut files = Files::new(&system, platform);
    files.of_nobody(windlass, "usr/local/bin/windlass")?;
    files.of_nobody(windlassctl, "usr/local/bin/windlassctl")?;
    if files.libraries.is_empty() {
        files.linked_statically()?;
    }
    files.layer.symlink("usr/local/bin/kubelet", "windlass");
    files.finish(
        AGENT,
        edition,
        json!({
            "Entrypoint": ["/usr/local/bin/windlass"],
            "Env": ["PATH=/usr/local/bin"],
            "WorkingDir": "/",
        }),
    )
}

/// Builds the sandbox image with one program, compiled in `work`.
///
/// # Errors
/// The compiler for the platform is missing or fails.
pub fn sandbox(work: &Path, platform: Platform, edition: Edition<'_>) -> anyhow::Result<NodeImage> {
    let (layer, runtime_config) = pause(compile_pause(work, platform)?);
    Ok(NodeImage {
        image: Image {
            name: format!("{PAUSE}:{}", edition.version),
            layer,
            runtime_config,
            epoch: edition.epoch,
            platform,
        },
        packages: BTreeMap::new(),
    })
}

/// Builds the runtime image: containerd with its shim and `ctr`, runc, CNI plugins of a bridge, and
/// busybox.
///
/// # Errors
/// A file cannot be read, a library is not in the system, or no package has a file.
pub fn runtime(system: &System, edition: Edition<'_>) -> anyhow::Result<NodeImage> {
    let platform = system.platform();
    let mut files = Files::new(system, platform);
    for (source, path) in PROGRAMS {
        files.program(Path::new(source), path)?;
    }
    files.folder(&format!(
        "usr/lib/{}/{IPTABLES_EXTENSIONS}",
        platform.gnu_triple()
    ))?;
    let busybox = Path::new(BUSYBOX_BINARY);
    files.package_of(busybox)?;
    add_busybox_from(&mut files.layer, &system.on_host(busybox), platform)?;
    files.finish(
        RUNTIME,
        edition,
        json!({
            "Cmd": ["/bin/sh"],
            "Env": ["PATH=/usr/sbin:/usr/bin:/bin"],
            "WorkingDir": "/",
        }),
    )
}

/// A layer under construction with the libraries of its programs.
struct Files<'a> {
    system: &'a System,
    platform: Platform,
    layer: Layer,
    packages: BTreeMap<String, DebianPackage>,
    libraries: BTreeSet<String>,
}

impl<'a> Files<'a> {
    /// Creates an empty layer for a platform.
    fn new(system: &'a System, platform: Platform) -> Self {
        Self {
            system,
            platform,
            layer: Layer::default(),
            packages: BTreeMap::new(),
            libraries: BTreeSet::new(),
        }
    }

    /// Adds a program or library of a package, with its libraries.
    fn program(&mut self, source: &Path, path: &str) -> anyhow::Result<()> {
        self.package_of(source)?;
        let content = self.system.read(source)?;
        self.add(source, path, content)
    }

    /// Adds a program that is in no package, with its libraries.
    fn of_nobody(&mut self, source: &Path, path: &str) -> anyhow::Result<()> {
        let content = std::fs::read(source).with_context(|| source.display().to_string())?;
        self.add(source, path, content)
    }

    fn add(&mut self, source: &Path, path: &str, content: Vec<u8>) -> anyhow::Result<()> {
        let needs = Needs::parse(&content).with_context(|| source.display().to_string())?;
        if needs.machine != machine(self.platform) {
            bail!("{} is not for {}", source.display(), self.platform);
        }
        self.layer.file(path, 0o755, content);
        // libraries name the loader without its directory
        if let Some(loader) = needs.loader
            && let Some(name) = loader.rsplit('/').next()
            && self.libraries.insert(name.to_owned())
        {
            let path = self.merged(loader.trim_start_matches('/'));
            self.program(Path::new(&loader), &path)?;
        }
        for name in needs.libraries {
            if self.libraries.insert(name.clone()) {
                let found = self
                    .library(&name)
                    .with_context(|| format!("{} needs {name}", source.display()))?;
                let path = format!("usr/lib/{}/{name}", self.platform.gnu_triple());
                self.program(&found, &path)?;
            }
        }
        Ok(())
    }

    /// Returns the path of a file of `lib` or `lib64` below `usr`, and adds a link.
    fn merged(&mut self, path: &str) -> String {
        match path.split_once('/') {
            Some((folder, _)) if MERGED.contains(&folder) => {
                self.layer.symlink(folder, &format!("usr/{folder}"));
                format!("usr/{path}")
            }
            _ => path.to_owned(),
        }
    }

    /// Finds a shared library in the default directories of the loader.
    fn library(&self, name: &str) -> anyhow::Result<PathBuf> {
        let triple = self.platform.gnu_triple();
        let folders = [
            format!("/lib/{triple}"),
            format!("/usr/lib/{triple}"),
            "/lib".into(),
            "/usr/lib".into(),
        ];
        let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
        let found = paths.find(|path| self.system.on_host(path).is_file());
        found.with_context(|| format!("no {name} in {}", folders.join(", ")))
    }

    /// Adds the libraries of a directory at the same path.
    fn folder(&mut self, path: &str) -> anyhow::Result<()> {
        let folder = self.system.on_host(Path::new(path));
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let source = entry?.path();
            let name = source.file_name().unwrap_or_default().to_string_lossy();
            let path = format!("{path}/{name}");
            match std::fs::read_link(&source) {
                Ok(target) => self.layer.symlink(&path, &target.to_string_lossy()),
                Err(_) => self.program(&Path::new("/").join(&path), &path)?,
            }
        }
        Ok(())
    }

    /// Records the packages of libraries in static programs.
    fn linked_statically(&mut self) -> anyhow::Result<()> {
        for library in STATIC_LIBRARIES {
            let compiler = self.platform.c_compiler();
            let mut cc = Command::new(&compiler);
            cc.arg(format!("-print-file-name={library}"));
            let output = cc.output().with_context(|| {
                format!(
                    "{compiler} (fix: install Debian's gcc for {})",
                    self.platform
                )
            })?;
            let path = String::from_utf8(output.stdout)?;
            self.package_of(Path::new(path.trim()))?;
        }
        Ok(())
    }

    /// Adds the certificate authorities of the package as one file.
    fn authorities(&mut self) -> anyhow::Result<()> {
        let folder = Path::new(AUTHORITIES_OF_PACKAGE);
        let missing = || format!("{AUTHORITIES_OF_PACKAGE} (fix: apt-get install ca-certificates)");
        self.package_of(folder).with_context(missing)?;
        let mut bundle = Vec::new();
        let entries = std::fs::read_dir(self.system.on_host(folder)).with_context(missing)?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        for name in names.collect::<std::io::Result<BTreeSet<_>>>()? {
            bundle.extend(self.system.read(&folder.join(name))?);
        }
        self.layer.file(AUTHORITIES, 0o644, bundle);
        Ok(())
    }

    /// Records the package of a file.
    fn package_of(&mut self, file: &Path) -> anyhow::Result<()> {
        let (name, package) = self.system.package_of(file)?;
        self.packages.insert(name, package);
        Ok(())
    }

    fn finish(
        mut self,
        name: &str,
        edition: Edition<'_>,
        runtime_config: serde_json::Value,
    ) -> anyhow::Result<NodeImage> {
        self.authorities()?;
        for package in self.packages.keys() {
            // licenses, some of which must be included
            let path = format!("usr/share/doc/{package}/copyright");
            let text = self.system.read(&Path::new("/").join(&path))?;
            self.layer.file(&path, 0o644, text);
        }
        self.layer.directory("tmp", 0o1777);
        let image = Image {
            name: format!("{name}:{}", edition.version),
            layer: self.layer,
            runtime_config,
            epoch: edition.epoch,
            platform: self.platform,
        };
        Ok(NodeImage {
            image,
            packages: self.packages,
        })
    }
}

/// Dependencies of an ELF file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    machine: u16,
    loader: Option<String>,
    libraries: Vec<String>,
}

impl Needs {
    fn parse(content: &[u8]) -> anyhow::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(content)?;
        let endian = header.endian()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let mut needs = Self {
            machine: header.e_machine(endian),
            ..Self::default()
        };
        for segment in header.program_headers(endian, content)? {
            if let Some(loader) = segment.interpreter(endian, content)? {
                needs.loader = Some(text(loader)?);
            }
        }
        let sections = header.sections(endian, content)?;
        let dynamic = sections.dynamic_table(endian, content)?;
        for entry in dynamic.iter().filter(|entry| entry.tag == DT_NEEDED) {
            needs.libraries.push(text(dynamic.string(entry)?)?);
        }
        Ok(needs)
    }
}

/// Returns the ELF machine of a platform.
fn machine(platform: Platform) -> u16 {
    match platform {
        Platform::Amd64 => EM_X86_64,
        Platform::Arm64 => EM_AARCH64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_program_names_its_loader_and_libraries() {
        let ours = std::fs::read("/proc/self/exe").expect("this test");
        let needs = Needs::parse(&ours).expect("ELF");
        assert!(needs.loader.is_some_and(|it| it.contains("ld-linux")));
        assert!(needs.libraries.iter().any(|it| it == "libc.so.6"));
        assert!(Needs::parse(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn libraries_of_a_program_are_added() {
        let this = std::env::current_exe().expect("this test");
        let edition = Edition {
            version: "1",
            epoch: 0,
        };
        let host = Platform::host().expect("a platform");
        let built = agent(&this, &this, host, edition).expect("an image");
        let files: Vec<&str> = built.image.layer.files().collect();
        let libc = format!("usr/lib/{}/libc.so.6", host.gnu_triple());
        for file in ["usr/local/bin/windlass", "usr/local/bin/windlassctl", &libc] {
            assert!(files.contains(&file), "{file} is not among {files:?}");
        }
        // the DaemonSet mounts copies of /usr only
        let loader = files.iter().find(|file| file.contains("ld-linux"));
        assert!(
            loader.is_some_and(|it| it.starts_with("usr/lib")),
            "{loader:?}"
        );
        assert!(built.packages.contains_key("libc6"), "{:?}", built.packages);
        assert_eq!(built.image.name, "windlass.dev/windlass:1");
    }

    #[test]
    fn static_program_image_has_licenses_of_its_libraries() {
        let edition = Edition {
            version: "1",
            epoch: 0,
        };
        let busybox = Path::new(BUSYBOX_BINARY);
        let host = Platform::host().expect("a platform");
        let built = agent(busybox, busybox, host, edition).expect("an image");
        let files: Vec<&str> = built.image.layer.files().collect();
        assert!(!files.iter().any(|file| file.contains(".so")), "{files:?}");
        let packages: Vec<&str> = built.packages.keys().map(String::as_str).collect();
        let [authorities, c, unwinder] = packages[..] else {
            panic!("{packages:?}");
        };
        assert_eq!([authorities, c], ["ca-certificates", "libc6-dev"]);
        assert!(unwinder.starts_with("libgcc-"), "{unwinder}");
        for package in packages {
            let licence = format!("usr/share/doc/{package}/copyright");
            assert!(files.contains(&licence.as_str()), "{files:?}");
        }
    }

    #[test]
    fn only_authorities_of_the_package_are_believed() {
        let host = System::host().expect("a host");
        let mut files = Files::new(&host, host.platform());
        files.authorities().expect("authorities");
        let bundle = files.layer.content(AUTHORITIES).expect("a bundle");
        let bundle = std::str::from_utf8(bundle).expect("PEM");
        let count = std::fs::read_dir(AUTHORITIES_OF_PACKAGE)
            .expect("them")
            .count();
        let begin = "-----BEGIN CERTIFICATE-----\n";
        let begins = bundle.lines().filter(|line| *line == begin.trim_end());
        assert_eq!(begins.count(), count);
        // additions on this host
        let added = Path::new("/usr/local/share/ca-certificates");
        for entry in std::fs::read_dir(added).into_iter().flatten() {
            let text = std::fs::read_to_string(entry.expect("an entry").path());
            let text = text.expect("a certificate");
            assert!(
                !bundle.contains(text.trim_start_matches(begin).trim()),
                "{text}"
            );
        }
    }

    #[test]
    fn file_without_package_is_not_added_to_runtime_image() {
        let this = std::env::current_exe().expect("this test");
        let host = System::host().expect("a host");
        let error = Files::new(&host, host.platform())
            .program(&this, "usr/bin/x")
            .expect_err("ours");
        assert!(error.to_string().ends_with("is of no package"), "{error:#}");
    }
    #[test]
    fn program_for_another_platform_is_rejected() {
        let host = Platform::host().expect("a platform");
        let other = Platform::ALL.into_iter().find(|it| *it != host);
        let other = other.expect("another platform");
        let edition = Edition {
            version: "1",
            epoch: 0,
        };
        let busybox = Path::new(BUSYBOX_BINARY);
        let error = agent(busybox, busybox, other, edition).expect_err("rejected");
        assert_eq!(
            error.to_string(),
            format!("/bin/busybox is not for {other}")
        );
    }
}
