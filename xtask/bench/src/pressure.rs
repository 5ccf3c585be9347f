//! `bench --pressure`: cost of eviction and image collection for an idle agent, and sizes of the log
//! files of a container that writes as fast as it can.

mod flood;

use std::path::Path;
use std::time::Duration;

use windlass_testbed::containerd::PrivateContainerd;

use super::fleet::Fleet;
use super::report::{Report, Unit};
use super::{Options, median, names};
use xtask_run as run;

/// Options of `bench --pressure`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PressureOptions {
    /// Measure eviction, image collection and log rotation.
    #[arg(long, conflicts_with_all = ["cluster", "lifecycle", "volumes", "api", "scale"])]
    pub(super) pressure: bool,
    /// Idle pods.
    #[arg(long, default_value_t = 110, requires = "pressure")]
    watched: usize,
    /// Seconds in which a container writes its log as fast as it can.
    #[arg(long, default_value_t = 20, requires = "pressure")]
    flood_seconds: u64,
}

/// Six signals with thresholds, far from all of them.
const WITH: &str = "\
evictionHard:
  memory.available: 50Mi
  nodefs.available: 2%
  nodefs.inodesFree: 2%
  imagefs.available: 2%
  imagefs.inodesFree: 2%
  pid.available: 2%
imageGCHighThresholdPercent: 98
imageGCLowThresholdPercent: 97
imageMaximumGCAge: 1000h
";
const WITHOUT: &str = "\
evictionHard:
  memory.available: 0%
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
";
/// Max cost of eviction, image collection and OOM watching, in percent of a core.
const MAX_COST: f64 = 0.1;

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let PressureOptions {
        watched,
        flood_seconds,
        ..
    } = options.pressure;
    format!(
        "cargo xtask bench --pressure --watched {watched} --flood-seconds {flood_seconds} --rounds {} \
         --idle-seconds {} {}",
        options.rounds,
        options.idle_seconds,
        options.binary(),
    )
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let mut report = Report::default();
    flood::measure(options, &containerd, binary, &mut report).await?;
    idle(options, &containerd, binary, &mut report).await?;
    containerd.stop().await?;
    Ok(report)
}

/// Measures the same idle pods with two configurations, in turns.
async fn idle(
    options: &Options,
    containerd: &PrivateContainerd,
    binary: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let names = names("watched", options.pressure.watched);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        for is_with in [round % 2 != 0, round % 2 == 0] {
            run::step(&format!(
                "{} idle pods {} eviction and image collection, {} of {}",
                names.len(),
                if is_with { "with" } else { "without" },
                round + 1,
                options.rounds
            ));
            let config = if is_with { WITH } else { WITHOUT };
            // adopts the pods of the turn before
            let mut fleet =
                Fleet::configured(containerd, binary, options.concurrency, config).await?;
            fleet.start_pods(&names).await?;
            fleet.settle().await?;
            let percent = rest(&fleet, options.idle_seconds).await?;
            if is_with { &mut with } else { &mut without }.push(percent);
            eprintln!("      {percent:.3} % of a core");
            fleet.stop().await?;
        }
    }
    let pods = options.pressure.watched;
    let seconds = options.idle_seconds;
    let (with, without) = (median(&with), median(&without));
    report.against(
        &format!(
            "CPU with {pods} idle pods over {seconds} s, with against without eviction and image \
             collection, medians"
        ),
        with,
        without,
        Unit::PercentOfCore,
        f64::NAN,
    );
    report.figure(
        "difference: eviction, image collection",
        (with - without).max(0.0),
        Unit::PercentOfCore,
        MAX_COST,
    );
    Ok(())
}

/// CPU time of the agent in percent of a core.
async fn rest(fleet: &Fleet, seconds: u64) -> anyhow::Result<f64> {
    let process = fleet.process()?;
    let before = process.cpu_seconds()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = process.cpu_seconds()? - before;
    Ok(100.0 * used / seconds as f64)
}
