//! `sim`: builds the simulator with the profile `sim` and runs it.

use std::process::Command;

use anyhow::{Context, bail};

use xtask_run as run;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Options of the simulator.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let simulator = run::build("windlass-simulator", "sim")?;
    let status = Command::new(&simulator)
        .args(&options.arguments)
        .status()
        .with_context(|| simulator.display().to_string())?;
    if !status.success() {
        bail!("an invariant was violated, or the simulator failed");
    }
    Ok(())
}
