//! Runs cargo and other programs for the tools of this workspace.
//!
//! For `xtask` and the programs beside it.
//!
//! # Entry points
//!
//! * [`cargo`] runs cargo with its output shown, [`cargo_output`] returns the output
//! * [`agent`] and [`build`] build a binary with a profile and return its path
//! * [`ensure_installed`] installs a cargo command
//! * [`interrupted`] completes when the user or the system ends the tool
//!
//! # Example
//!
//! ```no_run
//! let output = xtask_run::cargo_output(&["tree", "--package", "windlass"])?;
//! println!("{} lines in {}", output.lines().count(), xtask_run::root().display());
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Guarantees
//!
//! An error names the command to repeat. What is run is written to stderr: stdout is for results.
//!
//! # Limits
//!
//! Only for this workspace: the root is that of the sources.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

/// The workspace's root directory.
pub fn root() -> PathBuf {
    let run = Path::new(env!("CARGO_MANIFEST_DIR"));
    run.ancestors().nth(2).unwrap_or(run).to_owned()
}

/// Prints the current step to stderr; stdout is for results.
pub fn step(text: &str) {
    eprintln!("==> {text}");
}

/// Runs cargo in the workspace with visible output; an error has the command to repeat.
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

/// A cargo command in the workspace, without the variables of `cargo xtask`, which would cause a
/// full rebuild.
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

/// Installs `cargo-<name>` unless present; `hint` is for a failed installation.
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
        .with_context(|| format!("install {package} manually ({hint})"))
}

/// Completes on Ctrl-C, SIGTERM or a closed terminal.
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

/// Returns the given agent binary, or builds one with the profile.
pub fn agent(given: Option<&Path>, profile: &str) -> anyhow::Result<PathBuf> {
    match given {
        Some(path) => path
            .canonicalize()
            .with_context(|| path.display().to_string()),
        None => build("windlass", profile),
    }
}

/// Builds the binary with the name of the package.
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

/// Cargo's target directory.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let metadata = cargo_output(&["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str();
    Ok(PathBuf::from(target.context("no target_directory")?))
}

/// Cargo's directory of downloads: `CARGO_HOME`, else `.cargo` in the home directory.
pub fn cargo_home() -> anyhow::Result<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let default = || Some(std::env::home_dir()?.join(".cargo"));
    set.or_else(default)
        .context("no home directory, set CARGO_HOME")
}

/// The subdirectory of the target directory for a profile.
pub fn profile_folder(profile: &str) -> &str {
    if profile == "dev" { "debug" } else { profile }
}
