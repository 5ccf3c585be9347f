//! `image`: the two images of Windlass, built without a container engine, each as an OCI layout
//! and an archive, with a list of what is in it.
//!
//! The agent is linked statically against glibc: no musl target is needed, and since 2.34 glibc
//! resolves names by itself, without loading anything. Two runs on one commit, one rustc and one set
//! of Debian packages give the same digests: no path of this machine and no time but the commit's
//! gets in.

mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use flate2::Compression;
use windlass_testbed::node_images::{self, Edition, NodeImage};
use windlass_testbed::oci::{Blobs, Layer};

use crate::{run, terminal};
use sbom::Part;

/// The architecture of `deploy/`: its scripts know where the loader of this one is.
const ARCH: &str = "x86_64";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The crates whose programs are in the agent's image.
const CRATES: [&str; 2] = ["windlass", "windlass-ctl"];
const MIB: usize = 1 << 20;
/// Most bytes that a node pulls for the agent. It was 12 MiB in November 2026: a third as much again
/// is a decision.
const AGENT_LIMIT: usize = 16 * MIB;
/// The same for the runtime, 37 MiB, most of which are containerd and `ctr`.
const RUNTIME_LIMIT: usize = 48 * MIB;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for layouts, archives and lists of parts.
    #[arg(long, value_name = "DIR", default_value = "target/image")]
    out: PathBuf,
    /// Cargo profile to build the agent with.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Builds, writes, and prints what it has written.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if std::env::consts::ARCH != ARCH {
        bail!("images are made on and for {ARCH} only");
    }
    node_images::ensure_packages(run::step)?;
    let epoch = epoch()?;
    let version = env!("CARGO_PKG_VERSION");
    let edition = Edition { version, epoch };
    let out = run::root().join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;

    let programs = build(&options.profile)?;
    let agent = node_images::agent(
        &programs.join("windlass"),
        &programs.join("windlassctl"),
        edition,
    )?;
    if let Some(library) = agent.image.layer.files().find(|path| path.contains(".so")) {
        bail!("the agent is not static: it needs {library}");
    }
    let mut crates = sbom::crates(&CRATES, TARGET)?;
    crates.push(sbom::standard_library()?);
    run::step("collecting the runtime's programs, and the packages that they are from");
    let runtime = node_images::runtime(edition)?;
    let written = [
        write(&out, "windlass", &agent, crates, AGENT_LIMIT)?,
        write(
            &out,
            "windlass-containerd",
            &runtime,
            Vec::new(),
            RUNTIME_LIMIT,
        )?,
    ];
    print!("{}", table(&written));
    let over: Vec<&str> = written
        .iter()
        .filter(|it| it.blobs.packed_bytes() > it.limit)
        .map(|it| it.name.as_str())
        .collect();
    if !over.is_empty() {
        bail!("larger than its limit: {}", over.join(", "));
    }
    Ok(())
}

/// What a user sees of an image.
struct Written {
    name: String,
    blobs: Blobs,
    limit: usize,
    archive: PathBuf,
}

fn write(
    out: &Path,
    file: &str,
    built: &NodeImage,
    crates: Vec<Part>,
    limit: usize,
) -> anyhow::Result<Written> {
    let image = &built.image;
    run::step(&format!("packing {}", image.name));
    let blobs = image.blobs(Compression::default())?;
    let layout: Layer = image.layout(&blobs)?;
    let folder = out.join(file);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    layout.write_files(&folder)?;
    let archive = image.write_archive(&out.join(format!("{file}.tar")), &blobs)?;
    let system = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let parts = crates
        .into_iter()
        .chain(sbom::packages(&built.packages, &system));
    let list = sbom::document(image, &blobs.digest(), parts)?;
    let path = out.join(format!("{file}.spdx.json"));
    std::fs::write(&path, list).with_context(|| path.display().to_string())?;
    Ok(Written {
        name: image.name.clone(),
        blobs,
        limit,
        archive,
    })
}

fn table(written: &[Written]) -> String {
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / MIB as f64);
    let header = ["IMAGE", "PULLED", "LIMIT", "UNPACKED", "DIGEST", "ARCHIVE"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(written.iter().map(|it| {
        vec![
            it.name.clone(),
            mib(it.blobs.packed_bytes()),
            mib(it.limit),
            mib(it.blobs.unpacked_bytes()),
            it.blobs.digest(),
            it.archive.display().to_string(),
        ]
    }));
    terminal::table(&rows)
}

/// How old everything is: `SOURCE_DATE_EPOCH`, else the time of the commit.
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
        .context("cannot run git (fix: set SOURCE_DATE_EPOCH)")?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim()
        .parse()
        .context("git knows no commit here: set SOURCE_DATE_EPOCH")
}

/// Builds both programs statically and returns the directory that they are in.
fn build(profile: &str) -> anyhow::Result<PathBuf> {
    let target = run::target_directory()?;
    let root = run::root();
    let cargo_home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME").context("neither HOME nor CARGO_HOME")?)
            .join(".cargo"),
    };
    // the last one that fits is taken: the target directory may lie in the workspace
    let places = [
        (root.as_path(), "/windlass"),
        (&cargo_home, "/cargo"),
        (&target, "/target"),
    ];
    let rust: Vec<String> = places
        .iter()
        .map(|(from, to)| format!("'--remap-path-prefix={}={to}'", from.display()))
        .collect();
    let c: Vec<String> = places
        .iter()
        .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
        .collect();
    let mut args = vec![
        "build".to_owned(),
        "--locked".to_owned(),
        format!("--profile={profile}"),
        format!("--target={TARGET}"),
    ];
    args.extend(CRATES.map(|name| format!("--package={name}")));
    args.push("--bins".to_owned());
    for setting in [
        format!(
            "target.{TARGET}.rustflags=['-Ctarget-feature=+crt-static',{}]",
            rust.join(",")
        ),
        format!("profile.{profile}.debug=false"),
        // names of functions stay: a backtrace from a node has to say something
        format!("profile.{profile}.strip='debuginfo'"),
        format!("profile.{profile}.split-debuginfo='off'"),
    ] {
        args.extend(["--config".to_owned(), setting]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run::step(&format!(
        "cargo build --profile {profile} for a static agent"
    ));
    let status = run::cargo_command(&args)
        .env("CFLAGS", c.join(" "))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    Ok(target.join(TARGET).join(run::profile_folder(profile)))
}
