//! `image`: builds the images of Windlass without a container engine: an OCI layout and an archive each,
//! and an SBOM per platform.
//!
//! The agent is linked statically against glibc, which resolves names without loading libraries
//! since
//! 2.34. Builds are reproducible for one commit, rustc and set of Debian packages.

mod sbom;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use flate2::Compression;
use windlass_testbed::node_images::{self, Edition, NodeImage, System};
use windlass_testbed::oci::{Blobs, PackedImage};
use windlass_testbed::platform::Platform;

use crate::cross::toolchain;
use crate::terminal;
use sbom::Part;
use xtask_run as run;

/// Crates of the programs in the agent image.
const CRATES: [&str; 2] = ["windlass", "windlass-ctl"];
const MIB: usize = 1 << 20;
/// Max bytes of the compressed agent image, which has 12 MiB.
const AGENT_LIMIT: usize = 16 * MIB;
/// The same for the runtime image, which has 37 MiB, mostly containerd and `ctr`.
const RUNTIME_LIMIT: usize = 48 * MIB;
/// The same for the sandbox image.
const SANDBOX_LIMIT: usize = MIB / 16;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for layouts, archives and SBOMs.
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
    /// Cargo profile to build the agent with.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Platforms, such as linux/amd64,linux/arm64; by default the host's.
    #[arg(long, value_delimiter = ',', value_name = "PLATFORM,…")]
    platform: Vec<Platform>,
}

impl Options {
    /// Returns the selected platforms.
    fn platforms(&self) -> anyhow::Result<BTreeSet<Platform>> {
        if self.platform.is_empty() {
            return Ok(BTreeSet::from([Platform::host()?]));
        }
        Ok(self.platform.iter().copied().collect())
    }
}

/// Builds the images and prints the written files.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let platforms = options.platforms()?;
    for platform in &platforms {
        toolchain::ensure(*platform)?;
    }
    let listed: Vec<Platform> = platforms.iter().copied().collect();
    node_images::ensure_packages(&listed, run::step)?;
    let epoch = epoch()?;
    let version = env!("CARGO_PKG_VERSION");
    let edition = Edition { version, epoch };
    let out = run::root().join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;

    let mut agent = Output::new(&out, "windlass", AGENT_LIMIT)?;
    let mut runtime = Output::new(&out, "windlass-containerd", RUNTIME_LIMIT)?;
    let mut sandbox = Output::new(&out, "windlass-pause", SANDBOX_LIMIT)?;
    for platform in platforms {
        agent.add(
            build_agent(&options.profile, platform, edition)?,
            linked_crates(platform)?,
        )?;
        let work = work(platform)?;
        let system = System::of_runtime(platform, &work, run::step)?;
        run::step(&format!(
            "collecting the runtime's programs and their packages for {platform}"
        ));
        runtime.add(node_images::runtime(&system, edition)?, Vec::new())?;
        sandbox.add(node_images::sandbox(&work, platform, edition)?, Vec::new())?;
    }
    let written = [agent.write()?, runtime.write()?, sandbox.write()?];
    print!("{}", table(&written));
    let over = over_limit(&written);
    if !over.is_empty() {
        bail!("image exceeds its size limit: {}", over.join(", "));
    }
    Ok(())
}

/// Directory for downloads and intermediate files.
fn work(platform: Platform) -> anyhow::Result<PathBuf> {
    let work = run::target_directory()?.join("image-work");
    let work = work.join(platform.architecture());
    std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(work)
}

fn build_agent(
    profile: &str,
    platform: Platform,
    edition: Edition<'_>,
) -> anyhow::Result<NodeImage> {
    let programs = build(profile, platform)?;
    let agent = node_images::agent(
        &programs.join("windlass"),
        &programs.join("windlassctl"),
        platform,
        edition,
    )?;
    if let Some(library) = agent.image.layer.files().find(|path| path.contains(".so")) {
        bail!("the agent is not static: it requires {library}");
    }
    Ok(agent)
}

fn linked_crates(platform: Platform) -> anyhow::Result<Vec<Part>> {
    let mut crates = sbom::crates(&CRATES, &platform.rust_target())?;
    crates.push(sbom::standard_library()?);
    Ok(crates)
}

/// An image that is written once all its platforms are built.
struct Output {
    out: PathBuf,
    file: &'static str,
    limit: usize,
    /// Name and time, from the first platform.
    name: String,
    epoch: u64,
    platforms: Vec<Blobs>,
}

impl Output {
    /// Creates an image and removes its files of a previous run.
    fn new(out: &Path, file: &'static str, limit: usize) -> anyhow::Result<Self> {
        for platform in Platform::ALL {
            remove(&out.join(parts_file(file, platform)))?;
        }
        remove(&out.join(format!("{file}.tar")))?;
        remove(&out.join(file))?;
        Ok(Self {
            out: out.to_owned(),
            file,
            limit,
            name: String::new(),
            epoch: 0,
            platforms: Vec::new(),
        })
    }

    /// Packs the image for one platform and writes its SBOM.
    fn add(&mut self, built: NodeImage, crates: Vec<Part>) -> anyhow::Result<()> {
        let image = &built.image;
        run::step(&format!("packing {} for {}", image.name, image.platform));
        let blobs = image.blobs(Compression::default())?;
        let system = System::os_release()?;
        let parts = crates
            .into_iter()
            .chain(sbom::packages(&built.packages, &system));
        let list = sbom::document(image, &blobs.digest(), parts)?;
        let path = self.out.join(parts_file(self.file, image.platform));
        std::fs::write(&path, list).with_context(|| path.display().to_string())?;
        self.name.clone_from(&image.name);
        self.epoch = image.epoch;
        self.platforms.push(blobs);
        Ok(())
    }

    /// Writes the layout and the archive.
    fn write(self) -> anyhow::Result<ImageSummary> {
        let image = PackedImage::new(&self.name, self.epoch, self.platforms)?;
        image.layout()?.write_files(&self.out.join(self.file))?;
        let archive = self.out.join(format!("{}.tar", self.file));
        image.write_archive(&archive)?;
        Ok(ImageSummary {
            image,
            limit: self.limit,
            archive,
        })
    }
}

/// File name of the SBOM of an image for a platform.
fn parts_file(file: &str, platform: Platform) -> String {
    format!("{file}.{}.spdx.json", platform.architecture())
}

/// Removes a file or directory, if it exists.
fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = match path.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| path.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Summary of a built image.
struct ImageSummary {
    image: PackedImage,
    limit: usize,
    archive: PathBuf,
}

/// Images whose compressed size exceeds their limit on a platform.
fn over_limit(written: &[ImageSummary]) -> Vec<String> {
    let mut over = Vec::new();
    for it in written {
        let platforms = it.image.platforms().iter();
        let large = platforms.filter(|blobs| blobs.packed_bytes() > it.limit);
        over.extend(large.map(|blobs| format!("{} for {}", it.image.name(), blobs.platform())));
    }
    over
}

fn table(written: &[ImageSummary]) -> String {
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / MIB as f64);
    let header = [
        "IMAGE", "PLATFORM", "PULLED", "LIMIT", "UNPACKED", "DIGEST", "ARCHIVE",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for it in written {
        let name = || it.image.name().to_owned();
        let archive = || it.archive.display().to_string();
        let platforms = it.image.platforms();
        rows.extend(platforms.iter().map(|blobs| {
            vec![
                name(),
                blobs.platform().to_string(),
                mib(blobs.packed_bytes()),
                mib(it.limit),
                mib(blobs.unpacked_bytes()),
                blobs.digest(),
                archive(),
            ]
        }));
        if platforms.len() > 1 {
            let none = String::new;
            rows.push(vec![
                name(),
                "index".to_owned(),
                none(),
                none(),
                none(),
                it.image.digest(),
                archive(),
            ]);
        }
    }
    terminal::table(&rows)
}

/// Time of all files: `SOURCE_DATE_EPOCH` or the time of the commit.
fn epoch() -> anyhow::Result<u64> {
    if let Some(given) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let given = given.to_string_lossy().into_owned();
        return given
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH={given}"));
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(run::root())
        .output()
        .context("cannot run git; set SOURCE_DATE_EPOCH")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .context("git found no commit; set SOURCE_DATE_EPOCH")
}

/// Flags of rustc for a static program. On arm64 position-independent code is off: glibc's libm
/// supports at most 4,096 entries of its offset table, and a debug build has more.
fn code_flags(platform: Platform) -> &'static [&'static str] {
    match platform {
        Platform::Amd64 => &["-Ctarget-feature=+crt-static"],
        Platform::Arm64 => &["-Ctarget-feature=+crt-static", "-Crelocation-model=static"],
    }
}

/// Builds both programs statically and returns their directory.
fn build(profile: &str, platform: Platform) -> anyhow::Result<PathBuf> {
    let triple = platform.rust_target();
    let target = run::target_directory()?;
    let root = run::root();
    let cargo_home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME").context("neither HOME nor CARGO_HOME")?)
            .join(".cargo"),
    };
    // the last match wins: the target directory may be in the workspace
    let places = [
        (root.as_path(), "/windlass"),
        (&cargo_home, "/cargo"),
        (&target, "/target"),
    ];
    let mut rust: Vec<String> = code_flags(platform).iter().map(|&it| it.into()).collect();
    let remap = |(from, to): &(&Path, _)| format!("--remap-path-prefix={}={to}", from.display());
    rust.extend(places.iter().map(remap));
    let c: Vec<String> = places
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
        .collect();
    let mut args = vec![
        "build".to_owned(),
        "--locked".to_owned(),
        format!("--profile={profile}"),
        format!("--target={triple}"),
    ];
    args.extend(CRATES.map(|name| format!("--package={name}")));
    args.push("--bins".to_owned());
    for setting in [
        format!("target.{triple}.rustflags=['{}']", rust.join("','")),
        format!("profile.{profile}.debug=false"),
        // keeps function names for backtraces
        format!("profile.{profile}.strip='debuginfo'"),
        format!("profile.{profile}.split-debuginfo='off'"),
    ] {
        args.extend(["--config".to_owned(), setting]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run::step(&format!(
        "cargo build --profile {profile} for a static agent on {platform}"
    ));
    let status = run::cargo_command(&args)
        .env("CFLAGS", c.join(" "))
        .envs(toolchain::environment(platform))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    Ok(target.join(triple).join(run::profile_folder(profile)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn platforms(args: &[&str]) -> String {
        let args = std::iter::once("image").chain(args.iter().copied());
        let parsed = match Arguments::try_parse_from(args) {
            Ok(parsed) => parsed.options.platforms().expect("platforms"),
            Err(error) => return error.kind().to_string(),
        };
        let names: Vec<String> = parsed.iter().map(Platform::to_string).collect();
        names.join(" ")
    }

    #[test]
    fn platform_argument_lists_platforms() {
        let host = Platform::host().expect("a platform").to_string();
        assert_eq!(platforms(&[]), host);
        let both = "linux/amd64 linux/arm64";
        assert_eq!(platforms(&["--platform", "linux/arm64,linux/amd64"]), both);
        let repeated = ["--platform=linux/arm64", "--platform=linux/arm64/v8"];
        assert_eq!(platforms(&repeated), "linux/arm64");
        let refused = platforms(&["--platform=linux/mips"]);
        assert!(refused.contains("invalid"), "{refused}");
    }
}
