//! Running other programs, with what is run shown and failures in one line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// The workspace's root directory.
pub fn root() -> PathBuf {
    let run = Path::new(env!("CARGO_MANIFEST_DIR"));
    run.ancestors().nth(2).unwrap_or(run).to_owned()
}

/// Says what is being done. On stderr: stdout belongs to results.
pub fn step(text: &str) {
    eprintln!("==> {text}");
}

/// Runs cargo in the workspace with its output shown; an error names the command to repeat.
pub fn cargo(args: &[&str]) -> anyhow::Result<()> {
    step(&format!("cargo {}", args.join(" ")));
    let status = cargo_command(args).status().context("cannot run cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    Ok(())
}

/// Runs cargo and returns its standard output.
pub fn cargo_output(args: &[&str]) -> anyhow::Result<String> {
    let output = cargo_command(args)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A cargo command in the workspace. Variables that `cargo xtask` itself was given are taken
/// out: they would make the inner cargo believe it builds xtask, and build all anew.
pub fn cargo_command(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// Sees to `cargo <name>`, a command of the package `cargo-<name>`; `hint` helps if that cannot
/// be installed.
pub fn ensure_installed(name: &str, hint: &str) -> anyhow::Result<()> {
    let present = cargo_command(&[name, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("cannot run cargo")?
        .success();
    if present {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    step(&format!(
        "installing {package}, which takes a few minutes once"
    ));
    cargo(&["install", "--locked", "--quiet", &package])
        .with_context(|| format!("fix: install {package} by hand ({hint})"))
}

/// Completes when the user or the system wants us to end: Ctrl-C, a kill, a closed terminal.
pub async fn interrupted() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// The agent's binary: the given one, or one built with the profile.
pub fn agent(given: Option<&Path>, profile: &str) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => path
            .canonicalize()
            .with_context(|| path.display().to_string()),
        None => build("windlass", profile),
    }
}

/// Builds the package's binary of the same name with the profile.
pub fn build(package: &str, profile: &str) -> anyhow::Result<PathBuf> {
    let args = [
        "build",
        "--package",
        package,
        "--bin",
        package,
        "--profile",
        profile,
    ];
    cargo(&args)?;
    Ok(target_directory()?
        .join(profile_folder(profile))
        .join(package))
}

/// Where cargo puts what it builds.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let metadata = cargo_output(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str();
    Ok(PathBuf::from(target.context("no target_directory")?))
}

/// The directory of a profile below it: called like the profile, but for one.
pub fn profile_folder(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}
