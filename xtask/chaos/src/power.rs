//! Power cuts: a whole machine with the agent loses its power at random instants, boots again and must
//! converge.
//!
//! The API server is on the host, so it survives. The machine is a port: the caller implements
//! [`Machine`].

mod compare;
mod history;
mod plan;
mod pods;
mod run;
mod snapshot;

use std::path::Path;

pub use self::pods::MachineFile;
use crate::Options;

/// Address of the host in the machine, where the API server is reachable.
pub(crate) const HOST_ADDRESS: &str = "10.0.2.2";

/// A machine with systemd, containerd and the agent, on a disk that survives.
pub trait Machine {
    /// Puts the agent and the files onto the disk; agent and containerd start at each boot.
    fn prepare(
        &mut self,
        agent: &Path,
        files: &[MachineFile],
    ) -> impl Future<Output = anyhow::Result<()>>;

    /// Switches the power on; returns at once.
    fn power_on(&mut self) -> impl Future<Output = anyhow::Result<()>>;

    /// Completes when the system runs scripts. A machine that hangs before its system starts is
    /// switched off and on.
    fn system_started(&mut self) -> impl Future<Output = anyhow::Result<()>>;

    /// Runs a shell script in the machine and returns its output.
    fn run(&mut self, script: &str) -> impl Future<Output = anyhow::Result<String>>;

    /// Cuts the power: what was not flushed to the disk is lost.
    fn cut(&mut self) -> impl Future<Output = anyhow::Result<()>>;

    /// Number of boots that hung before the system had started.
    fn hung_boots(&self) -> usize;
}

/// Cuts the power of the machine as the options say, and prints a Markdown table.
///
/// # Errors
/// The machine cannot be prepared or booted, or a figure exceeds its budget.
pub async fn run_power_cuts<M: Machine>(
    options: &Options,
    agent: &Path,
    machine: &mut M,
) -> anyhow::Result<()> {
    let report = tokio::select! {
        _ = xtask_run::interrupted() => anyhow::bail!("interrupted"),
        report = run::run(options, agent, machine) => report?,
    };
    println!("Command: `{}`\n\n{}", options.command(), report.markdown());
    let over = report.over_budget();
    anyhow::ensure!(over.is_empty(), "over budget: {}", over.join(", "));
    Ok(())
}
