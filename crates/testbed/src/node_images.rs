//! The two images that Windlass is shipped as: the agent, and the container runtime that stands
//! beside it on the nodes of an existing cluster.
//!
//! The runtime's programs are those of the Debian packages on this machine, together with the
//! shared libraries that they name. They are read with an ELF parser: `ldd` would run them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use serde_json::json;

use crate::debian;
use crate::images::{BUSYBOX_BINARY, add_busybox};
use crate::oci::{Image, Layer};

/// Name of the agent's image, without a tag.
pub const AGENT: &str = "windlass.dev/windlass";
/// Name of the runtime's image, without a tag.
pub const RUNTIME: &str = "windlass.dev/windlass-containerd";

/// Registries, and whoever else is asked over TLS, are believed by these.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Where they are from. This machine's own bundle may have its owner's besides.
const AUTHORITIES_OF_PACKAGE: &str = "/usr/share/ca-certificates/mozilla";
/// What every static program has something of: the C library, and how the stack is unwound.
const STATIC_LIBRARIES: [&str; 2] = ["libc.a", "libgcc_eh.a"];
/// Programs of the runtime, and where they lie in the image.
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
    // the bridge plugin masquerades with it
    ("/usr/sbin/xtables-nft-multi", "usr/sbin/iptables"),
];
/// `iptables` loads by name what the rules of the machine use, and kube-proxy's use much.
const IPTABLES_EXTENSIONS: &str = "xtables";

/// An image and the Debian packages whose files are in it.
#[derive(Debug)]
pub struct NodeImage {
    /// The image.
    pub image: Image,
    /// By name.
    pub packages: BTreeMap<String, DebianPackage>,
}

/// An installed package, as `dpkg-query` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebianPackage {
    /// Version with the revision.
    pub version: String,
    /// `amd64`.
    pub architecture: String,
}

/// What an image is tagged with and how old everything in it is.
#[derive(Clone, Copy, Debug)]
pub struct Edition<'a> {
    /// The tag.
    pub version: &'a str,
    /// Seconds since 1970.
    pub epoch: u64,
}

/// Installs the packages that images are made of and this machine lacks, which `progress` is told.
///
/// # Errors
/// One is missing and cannot be installed; a line that names the fix.
pub fn ensure_packages(progress: fn(&str)) -> anyhow::Result<()> {
    debian::ensure_packages(progress, &[], |_| false)
}

/// The agent, its `kubelet` name and `windlassctl`. Static programs need nothing else; for those
/// that are not, such as a test's, their libraries come along.
///
/// # Errors
/// A file cannot be read, a library of it is not on this machine, or dpkg does not know one.
pub fn agent(
    windlass: &Path,
    windlassctl: &Path,
    edition: Edition<'_>,
) -> anyhow::Result<NodeImage> {
    let mut files = Files::default();
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

/// containerd with its shim and `ctr`, runc, the CNI plugins of a bridge, and busybox for the
/// scripts around them.
///
/// # Errors
/// A file cannot be read, a library is not on this machine, or dpkg does not know a file.
pub fn runtime(edition: Edition<'_>) -> anyhow::Result<NodeImage> {
    let mut files = Files::default();
    for (source, path) in PROGRAMS {
        files.program(Path::new(source), path)?;
    }
    files.folder(&format!("usr/lib/{}/{IPTABLES_EXTENSIONS}", triple()))?;
    files.package_of(Path::new(BUSYBOX_BINARY))?;
    add_busybox(&mut files.layer)?;
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

/// A layer in the making, with what its programs need.
#[derive(Default)]
struct Files {
    layer: Layer,
    packages: BTreeMap<String, DebianPackage>,
    libraries: BTreeSet<String>,
}

impl Files {
    /// Adds a program or library of a package, and what it names.
    fn program(&mut self, source: &Path, path: &str) -> anyhow::Result<()> {
        self.package_of(source)?;
        self.of_nobody(source, path)
    }

    /// The same of a program that is in no package.
    fn of_nobody(&mut self, source: &Path, path: &str) -> anyhow::Result<()> {
        let content = std::fs::read(source).with_context(|| source.display().to_string())?;
        let needs = Needs::of(&content).with_context(|| source.display().to_string())?;
        self.layer.file(path, 0o755, content);
        // libraries name the loader too, without its folder
        if let Some(loader) = needs.loader
            && let Some(name) = loader.rsplit('/').next()
            && self.libraries.insert(name.to_owned())
        {
            self.program(Path::new(&loader), loader.trim_start_matches('/'))?;
        }
        for name in needs.libraries {
            if self.libraries.insert(name.clone()) {
                let found =
                    library(&name).with_context(|| format!("{} needs {name}", source.display()))?;
                self.program(&found, &format!("usr/lib/{}/{name}", triple()))?;
            }
        }
        Ok(())
    }

    /// Adds the libraries of a folder, at the place that they have here.
    fn folder(&mut self, path: &str) -> anyhow::Result<()> {
        let folder = Path::new("/").join(path);
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let source = entry?.path();
            let name = source.file_name().unwrap_or_default().to_string_lossy();
            let path = format!("{path}/{name}");
            match std::fs::read_link(&source) {
                Ok(target) => self.layer.symlink(&path, &target.to_string_lossy()),
                Err(_) => self.program(&source, &path)?,
            }
        }
        Ok(())
    }

    /// Notes the packages of what the compiler puts into static programs.
    fn linked_statically(&mut self) -> anyhow::Result<()> {
        for library in STATIC_LIBRARIES {
            let mut cc = Command::new("cc");
            cc.arg(format!("-print-file-name={library}"));
            let said = cc.output().context("cc (fix: apt-get install gcc)")?;
            let path = String::from_utf8(said.stdout)?;
            self.package_of(Path::new(path.trim()))?;
        }
        Ok(())
    }

    /// Adds whom the package of authorities believes, as one file.
    fn authorities(&mut self) -> anyhow::Result<()> {
        let folder = Path::new(AUTHORITIES_OF_PACKAGE);
        let missing = || format!("{AUTHORITIES_OF_PACKAGE} (fix: apt-get install ca-certificates)");
        self.package_of(folder).with_context(missing)?;
        let mut bundle = Vec::new();
        let entries = std::fs::read_dir(folder)?;
        let entries = entries.map(|entry| Ok(entry?.path()));
        for file in entries.collect::<std::io::Result<BTreeSet<_>>>()? {
            bundle.extend(std::fs::read(&file).with_context(|| file.display().to_string())?);
        }
        self.layer.file(AUTHORITIES, 0o644, bundle);
        Ok(())
    }

    /// Notes which package a file of this machine comes from.
    fn package_of(&mut self, file: &Path) -> anyhow::Result<()> {
        let name = owner(file)?.with_context(|| format!("{} is of no package", file.display()))?;
        if let Entry::Vacant(unknown) = self.packages.entry(name) {
            let name = unknown.key();
            let said = dpkg(&["-W", "-f", "${Version} ${Architecture}", name])?;
            let said = said.with_context(|| format!("dpkg does not know {name}"))?;
            let (version, architecture) = said.split_once(' ').context("dpkg-query -W")?;
            let package = DebianPackage {
                version: version.to_owned(),
                architecture: architecture.to_owned(),
            };
            unknown.insert(package);
        }
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
            // the licences of what is in it, some of which have to go with it
            let path = format!("usr/share/doc/{package}/copyright");
            let text = std::fs::read(Path::new("/").join(&path)).with_context(|| path.clone())?;
            self.layer.file(&path, 0o644, text);
        }
        self.layer.directory("tmp", 0o1777);
        let image = Image {
            name: format!("{name}:{}", edition.version),
            layer: self.layer,
            runtime_config,
            epoch: edition.epoch,
        };
        Ok(NodeImage {
            image,
            packages: self.packages,
        })
    }
}

/// What an ELF file names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    loader: Option<String>,
    libraries: Vec<String>,
}

impl Needs {
    fn of(content: &[u8]) -> anyhow::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(content)?;
        let endian = header.endian()?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let mut needs = Self::default();
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

/// `x86_64-linux-gnu`: where Debian keeps libraries.
fn triple() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// Finds a shared library where the loader does without further settings.
fn library(name: &str) -> anyhow::Result<PathBuf> {
    let triple = triple();
    let folders = [
        format!("/lib/{triple}"),
        format!("/usr/lib/{triple}"),
        "/lib".into(),
        "/usr/lib".into(),
    ];
    let mut paths = folders.iter().map(|folder| Path::new(folder).join(name));
    let found = paths.find(|path| path.is_file());
    found.with_context(|| format!("no {name} in {}", folders.join(", ")))
}

/// The package that a file belongs to. Debian moved `/lib` and `/bin` below `/usr`, packages list
/// their files by either name.
fn owner(file: &Path) -> anyhow::Result<Option<String>> {
    let real = file.canonicalize()?;
    let without_usr = Path::new("/").join(real.strip_prefix("/usr").unwrap_or(&real));
    for path in [file, &real, &without_usr] {
        if let Some(said) = dpkg(&["-S", &path.to_string_lossy()])? {
            let name = said.split([':', ',']).next().unwrap_or_default();
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Output of a `dpkg-query` that finds something.
fn dpkg(args: &[&str]) -> anyhow::Result<Option<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_linked_dynamically_names_its_loader_and_libraries() {
        let ours = std::fs::read("/proc/self/exe").expect("this test");
        let needs = Needs::of(&ours).expect("ELF");
        assert!(needs.loader.is_some_and(|it| it.contains("ld-linux")));
        assert!(needs.libraries.iter().any(|it| it == "libc.so.6"));
        assert!(Needs::of(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn the_libraries_of_a_program_come_along_with_it() {
        let this = std::env::current_exe().expect("this test");
        let edition = Edition {
            version: "1",
            epoch: 0,
        };
        let built = agent(&this, &this, edition).expect("an image");
        let files: Vec<&str> = built.image.layer.files().collect();
        let libc = format!("usr/lib/{}/libc.so.6", triple());
        for file in ["usr/local/bin/windlass", "usr/local/bin/windlassctl", &libc] {
            assert!(files.contains(&file), "{file} is not among {files:?}");
        }
        assert!(files.iter().any(|file| file.contains("ld-linux")));
        assert!(built.packages.contains_key("libc6"), "{:?}", built.packages);
        assert_eq!(built.image.name, "windlass.dev/windlass:1");
    }

    #[test]
    fn a_static_program_has_the_libraries_of_the_compiler_in_it_and_their_licences_with_it() {
        let edition = Edition {
            version: "1",
            epoch: 0,
        };
        let busybox = Path::new(BUSYBOX_BINARY);
        let built = agent(busybox, busybox, edition).expect("an image");
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
        let mut files = Files::default();
        files.authorities().expect("authorities");
        let bundle = files.layer.content(AUTHORITIES).expect("a bundle");
        let bundle = std::str::from_utf8(bundle).expect("PEM");
        let count = std::fs::read_dir(AUTHORITIES_OF_PACKAGE)
            .expect("them")
            .count();
        let begin = "-----BEGIN CERTIFICATE-----\n";
        let begins = bundle.lines().filter(|line| *line == begin.trim_end());
        assert_eq!(begins.count(), count);
        // what somebody added to this machine
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
    fn what_no_package_has_is_not_taken_for_a_part_of_the_runtime() {
        let this = std::env::current_exe().expect("this test");
        let error = Files::default()
            .program(&this, "usr/bin/x")
            .expect_err("ours");
        assert!(error.to_string().ends_with("is of no package"), "{error:#}");
    }
}
