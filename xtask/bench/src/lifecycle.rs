//! `bench --lifecycle`: cost of probes, and restart latency of a dead container, in turns with bare CRI
//! calls.

pub(super) mod deaths;
mod probes;

use std::path::Path;

use windlass_testbed::containerd::PrivateContainerd;

use super::Options;
use super::bare::Bare;
use super::fleet::Fleet;
use super::report::Report;
use xtask_run as run;

/// Options of `bench --lifecycle`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LifecycleOptions {
    /// Measure probes and restarts.
    #[arg(long, conflicts_with = "cluster")]
    pub(super) lifecycle: bool,
    /// Pods with three HTTP probes each, one a second.
    #[arg(long, default_value_t = 100, requires = "lifecycle")]
    probed: usize,
    /// Pods with an exec probe, one a second.
    #[arg(long, default_value_t = 10, requires = "lifecycle")]
    exec_probed: usize,
    /// Containers that are killed, among as many pods as are probed over HTTP.
    #[arg(long, default_value_t = 30, requires = "lifecycle")]
    deaths: usize,
}

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let LifecycleOptions {
        probed,
        exec_probed,
        deaths,
        ..
    } = options.lifecycle;
    format!(
        "cargo xtask bench --lifecycle --probed {probed} --exec-probed {exec_probed} --deaths {deaths} \
         --rounds {} --idle-seconds {} {}",
        options.rounds,
        options.idle_seconds,
        options.binary(),
    )
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    let mut fleet = Fleet::start(&containerd, binary, options.concurrency).await?;
    let mut report = Report::default();
    fleet.settle().await?;
    probes::exec(options, &mut fleet, &bare, &mut report).await?;
    bare.remove_dead().await?;
    deaths::replaced(options, &containerd, &mut fleet, &bare, &mut report).await?;
    bare.remove_dead().await?;
    probes::http(options, &mut fleet, &mut report).await?;
    fleet.stop().await?;
    containerd.stop().await?;
    Ok(report)
}
