//! Kills the agent, the runtime and containers at random instants under load, and counts what the
//! pods lost.
//!
//! For the figures of `docs/RELIABILITY.md`, through `cargo xtask chaos`.
//!
//! # Entry points
//!
//! * [`Options`] are the options of the command, [`run`] runs it and prints a table
//! * [`run_power_cuts`] cuts the power of a [`Machine`] instead
//!
//! # Example
//!
//! ```no_run
//! # async fn shake(options: windlass_chaos::Options) -> anyhow::Result<()> {
//! windlass_chaos::run(&options).await
//! # }
//! ```
//!
//! # Guarantees
//!
//! The same seed gives the same faults, pauses and edits. Every figure has a budget, and the command
//! fails if one exceeds it. What the run itself kills is not counted as a loss.
//!
//! # Limits
//!
//! The instant of a fault within the agent is not reproduced by the seed: it depends on the host.

mod cuts;
mod faults;
mod fleet;
mod fuse;
mod instances;
mod ledger;
mod leftovers;
mod plan;
mod power;
mod report;
mod shake;

use std::path::PathBuf;
use std::time::Duration;

use xtask_run as run;

use self::plan::Fault;
pub use self::power::{Machine, MachineFile, run_power_cuts};

/// Pods of a run.
const PODS: usize = 50;
/// Pods in a machine with an emulated processor.
const PODS_IN_MACHINE: usize = 6;

/// What to break, and how often.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Pods that exist during the whole run; by default 50, with --power-cuts 6.
    #[arg(long)]
    pods: Option<usize>,
    /// Number of faults.
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// Minutes after which the run ends, even with fewer faults.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Seed of faults, pauses and edits.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these faults: agent, containerd, shims, containers, stop, disk, fuse.
    #[arg(long, value_delimiter = ',', value_name = "FAULT")]
    only: Vec<Fault>,
    /// Max pause between two faults, in milliseconds.
    #[arg(long, default_value_t = 2000)]
    max_pause: u64,
    /// Pods that are created and deleted during the run.
    #[arg(long, default_value_t = 10)]
    edited: usize,
    /// Cargo profile to build windlass with.
    #[arg(long, default_value = "bench-fast")]
    profile: String,
    /// Use this windlass binary instead of building one.
    #[arg(long, conflicts_with = "profile")]
    windlass: Option<PathBuf>,
    /// Cut each CRI call this many times instead, and print what the runtime shows afterwards.
    #[arg(long, value_name = "TIMES")]
    cut_calls: Option<u32>,
    /// Cut the power of a virtual machine with the agent this many times instead, boot it again and
    /// count what was lost.
    ///
    /// The machine is that of `cargo xtask vm`: emulated and about ten times slower than the host. A
    /// cut with its boot takes some minutes.
    #[arg(long, value_name = "N", conflicts_with_all = ["cut_calls", "kills", "minutes", "only", "max_pause", "edited"])]
    power_cuts: Option<usize>,
}

impl Options {
    /// Whether the run is one of power cuts, which [`run_power_cuts`] does.
    pub fn wants_power_cuts(&self) -> bool {
        self.power_cuts.is_some()
    }

    /// Returns the given agent binary, or builds one with the selected profile.
    ///
    /// # Errors
    /// There is no such file, or cargo fails.
    pub fn agent(&self) -> anyhow::Result<PathBuf> {
        run::agent(self.windlass.as_deref(), &self.profile)
    }

    fn pods(&self) -> usize {
        let default = match self.power_cuts {
            Some(_) => PODS_IN_MACHINE,
            None => PODS,
        };
        self.pods.unwrap_or(default)
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = self.only.clone();
        if faults.is_empty() {
            faults = Fault::ALL.to_vec();
        }
        faults.sort();
        faults.dedup();
        faults
    }

    fn max_pause(&self) -> Duration {
        Duration::from_millis(self.max_pause)
    }

    /// The command that repeats the run.
    fn command(&self) -> String {
        if let Some(cuts) = self.power_cuts {
            let (pods, seed) = (self.pods(), self.seed);
            return format!("cargo xtask chaos --power-cuts {cuts} --pods {pods} --seed {seed}");
        }
        let faults: Vec<&str> = self.faults().iter().map(|fault| fault.name()).collect();
        format!(
            "cargo xtask chaos --pods {} --kills {} --minutes {} --seed {} --max-pause {} --edited {} --only {}",
            self.pods(),
            self.kills,
            self.minutes,
            self.seed,
            self.max_pause,
            self.edited,
            faults.join(","),
        )
    }
}

/// Runs the faults, or the experiment on cut calls, and prints a Markdown table.
///
/// # Errors
/// A program cannot be built or started, or a figure exceeds its budget.
pub async fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(times) = options.cut_calls {
        // the future that loses the race is dropped, which cleans up
        let table = tokio::select! {
            _ = run::interrupted() => anyhow::bail!("interrupted"),
            table = cuts::measure(times) => table?,
        };
        println!("{table}");
        return Ok(());
    }
    let binary = options.agent()?;
    let report = tokio::select! {
        _ = run::interrupted() => anyhow::bail!("interrupted"),
        report = shake::shake(options, &binary) => report?,
    };
    println!("Command: `{}`\n\n{}", options.command(), report.markdown());
    let over = report.over_budget();
    anyhow::ensure!(over.is_empty(), "over budget: {}", over.join(", "));
    Ok(())
}
