//! Benchmarks: overhead of the agent over the bare CRI calls, and its cost at rest.
//!
//! For the figures of `docs/PERFORMANCE.md`, through `cargo xtask bench`.
//!
//! # Entry points
//!
//! * [`Options`] are the options of the command, [`run`] measures and prints a table
//! * [`check_briefly`] compares counts with `budgets.md`, for the tests
//!
//! # Example
//!
//! ```no_run
//! # async fn measure(options: windlass_bench::Options) -> anyhow::Result<()> {
//! windlass_bench::run(&options).await
//! # }
//! ```
//!
//! # Guarantees
//!
//! Both sides use the same private containerd, image and requests, in turns, so that drift of the host
//! affects both. Targets are ratios where possible.
//!
//! # Limits
//!
//! It measures a real runtime on this host: other load changes the figures.

mod api;
mod bare;
mod check;
mod cluster;
mod fleet;
mod isolation;
mod lifecycle;
mod pressure;
mod process;
mod report;
mod resize;
mod scale;
mod volumes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, FromArgMatches};
use windlass_testbed::containerd::PrivateContainerd;

use self::bare::{Bare, BarePod};
use self::fleet::Fleet;
use self::report::{Report, Section, Unit};
use xtask_run as run;

/// Which benchmark to run, and how often.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Pods started one at a time on each side.
    #[arg(long, default_value_t = 20)]
    serial: usize,
    /// Pods of a burst.
    #[arg(long, default_value_t = 50)]
    burst: usize,
    /// Bursts on each side; with an even number each side is first equally often.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Max concurrent pod starts, on both sides.
    #[arg(long, default_value_t = 4)]
    concurrency: usize,
    /// Seconds of measuring the CPU time of an idle agent.
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Number of agent kills.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Cargo profile to build windlass with.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Use this windlass binary instead of building one.
    #[arg(long, conflicts_with = "profile")]
    windlass: Option<PathBuf>,
    /// Write the table to docs/PERFORMANCE.md.
    #[arg(long)]
    write: bool,
    /// Measure windlass as a cluster node instead of standalone.
    #[command(
        flatten,
        next_help_heading = "A node of a cluster instead of one on its own"
    )]
    cluster: cluster::ClusterOptions,
    /// Measure probes and restarts instead of starts.
    #[command(flatten, next_help_heading = "Probes and restarts instead of starts")]
    lifecycle: lifecycle::LifecycleOptions,
    /// Measure volumes.
    #[command(flatten, next_help_heading = "Volumes instead of starts")]
    volumes: volumes::VolumeOptions,
    /// Measure the node API.
    #[command(flatten, next_help_heading = "The node's own API instead of starts")]
    api: api::ApiOptions,
    /// Measure with growing numbers of pods.
    #[command(
        flatten,
        next_help_heading = "Growing numbers of pods instead of starts"
    )]
    scale: scale::ScaleOptions,
    /// Measure eviction, image collection and log rotation.
    #[command(flatten, next_help_heading = "Pressure instead of starts")]
    pressure: pressure::PressureOptions,
    /// Measure pods beside hung operations of others.
    #[command(flatten, next_help_heading = "Hung operations instead of starts")]
    isolation: isolation::IsolationOptions,
    /// Compare figures with their budgets.
    #[command(flatten, next_help_heading = "Budgets instead of a table")]
    check: check::CheckOptions,
    /// Measure in-place resizes.
    #[command(flatten, next_help_heading = "In-place resizes instead of starts")]
    resize: resize::ResizeOptions,
}

/// Pods that run while the agent is killed.
const KILL_PODS: usize = 20;
/// MiB of a value in `/proc`, which is in KiB.
const KIB_PER_MIB: f64 = 1024.0;

/// Compares the figures of a minute with their budgets, with the dev build of the agent that the tests
/// have built.
///
/// # Errors
/// A program cannot be started, or a figure is over its budget.
pub async fn check_briefly() -> anyhow::Result<()> {
    let arguments = ["bench", "--check", "--short"];
    let command = Options::augment_args(clap::Command::new("bench"));
    let options = Options::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
    check::run(&options).await
}

/// Runs the benchmark and prints its table.
///
/// # Errors
/// A program cannot be built or started, or a figure misses its limit.
pub async fn run(options: &Options) -> anyhow::Result<()> {
    if options.check.check {
        return check::run(options).await;
    }
    if options.cluster.cluster || options.volumes.volumes || options.resize.resize {
        cluster::with_a_fast_server(options)?;
    }
    let binary = run::agent(options.windlass.as_deref(), &options.profile)?;
    // The future that loses the race is dropped, which cleans up.
    let (section, command, report) = tokio::select! {
        _ = run::interrupted() => anyhow::bail!("interrupted"),
        report = cluster::measure(options, &binary), if options.cluster.cluster => {
            (Section::Cluster, cluster::command(options), report?)
        }
        report = lifecycle::measure(options, &binary), if options.lifecycle.lifecycle => {
            (Section::Lifecycle, lifecycle::command(options), report?)
        }
        report = volumes::measure(options, &binary), if options.volumes.volumes => {
            (Section::Volumes, volumes::command(options), report?)
        }
        report = api::measure(options, &binary), if options.api.api => {
            (Section::Api, api::command(options), report?)
        }
        report = scale::measure(options, &binary), if !options.scale.scale.is_empty() => {
            (Section::Scale, scale::command(options), report?)
        }
        report = pressure::measure(options, &binary), if options.pressure.pressure => {
            (Section::Pressure, pressure::command(options), report?)
        }
        report = isolation::measure(options, &binary), if options.isolation.isolation => {
            (Section::Isolation, isolation::command(options), report?)
        }
        report = resize::measure(options, &binary), if options.resize.resize => {
            (Section::Resize, resize::command(options), report?)
        }
        report = measure(options, &binary), if options.stands_alone() => {
            (Section::StandAlone, command(options), report?)
        }
    };
    let text = report
        .markdown(&command)
        .context("cannot describe this machine")?;
    println!("{text}");
    if options.write {
        report::write(section, &text)?;
    }
    report.into_result()
}

/// The command that repeats this run.
fn command(options: &Options) -> String {
    format!(
        "cargo xtask bench --serial {} --burst {} --rounds {} --concurrency {} --idle-seconds {} \
         --kills {} {}",
        options.serial,
        options.burst,
        options.rounds,
        options.concurrency,
        options.idle_seconds,
        options.kills,
        options.binary(),
    )
}

impl Options {
    /// Whether no other measurement is selected.
    fn stands_alone(&self) -> bool {
        let Self {
            cluster,
            lifecycle,
            volumes,
            api,
            scale,
            pressure,
            resize,
            isolation,
            ..
        } = self;
        let chosen = [
            cluster.cluster,
            lifecycle.lifecycle,
            volumes.volumes,
            api.api,
            pressure.pressure,
            resize.resize,
            isolation.isolation,
        ];
        !chosen.contains(&true) && scale.scale.is_empty()
    }

    /// The option that selects the binary.
    fn binary(&self) -> String {
        match &self.windlass {
            Some(path) => format!("--windlass {}", path.display()),
            None => format!("--profile {}", self.profile),
        }
    }
}

async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    let mut fleet = Fleet::start(&containerd, binary, options.concurrency).await?;
    let mut report = Report::default();
    idle(options, &mut fleet, &mut report).await?;
    bare.remove_dead().await?;
    serial(options, &mut fleet, &bare, &mut report).await?;
    bursts(options, &mut fleet, &bare, &mut report).await?;
    kills(options, &mut fleet, &bare, &mut report).await?;
    fleet.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

/// Measures memory without pods, then memory and CPU time with idle pods of a burst.
async fn idle(options: &Options, fleet: &mut Fleet, report: &mut Report) -> anyhow::Result<()> {
    run::step("memory of an idle agent");
    fleet.settle().await?;
    let rss = fleet.process()?.rss_kib()? as f64 / KIB_PER_MIB;
    report.figure("RSS without pods", rss, Unit::MiB, 16.0);

    run::step(&format!(
        "memory and CPU time with {} idle pods",
        options.burst
    ));
    let names = names("idle", options.burst);
    fleet.start_pods(&names).await?;
    fleet.settle().await?;
    let process = fleet.process()?;
    let rss = process.rss_kib()? as f64 / KIB_PER_MIB;
    report.figure(
        &format!("RSS with {} pods", options.burst),
        rss,
        Unit::MiB,
        28.0,
    );

    let before = process.cpu_seconds()?;
    tokio::time::sleep(Duration::from_secs(options.idle_seconds)).await;
    let used = process.cpu_seconds()? - before;
    let percent = 100.0 * used / options.idle_seconds as f64;
    let what = format!(
        "CPU with {} idle pods over {} s",
        options.burst, options.idle_seconds
    );
    report.figure(&what, percent, Unit::PercentOfCore, 0.5);
    fleet.remove_pods(&names).await
}

/// Starts one pod at a time, with both sides in alternating order.
async fn serial(
    options: &Options,
    fleet: &mut Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    run::step(&format!("{} pods one at a time", options.serial));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first pair warms the page cache and is not counted.
    for round in 0..=options.serial {
        let name = vec![format!("serial-{round}")];
        for windlass in [round % 2 == 0, round % 2 != 0] {
            let started = turn(windlass, &name, fleet, bare).await?;
            if round > 0 {
                if windlass { &mut ours } else { &mut theirs }.push(started.wall());
            }
        }
    }
    report.ratio("serial start, p50", median(&ours), median(&theirs), 1.15);
    report.ratio(
        "serial start, p90",
        percentile(&ours, 90),
        percentile(&theirs, 90),
        f64::NAN,
    );
    Ok(())
}

/// Starts a burst of pods, with the same concurrency on both sides.
async fn bursts(
    options: &Options,
    fleet: &mut Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut ours, mut theirs, mut medians) = (vec![], vec![], vec![]);
    for round in 0..options.rounds {
        run::step(&format!(
            "burst of {} pods, {} of {}",
            options.burst,
            round + 1,
            options.rounds
        ));
        let names = names(&format!("burst-{round}"), options.burst);
        for windlass in [round % 2 == 0, round % 2 != 0] {
            let started = turn(windlass, &names, fleet, bare).await?;
            if windlass {
                ours.push(started.wall());
                medians.push(median(&started.seconds));
            } else {
                theirs.push(started.wall());
            }
            fleet.settle().await?;
        }
    }
    let what = format!(
        "burst of {}, wall, median of {} rounds",
        options.burst, options.rounds
    );
    report.rounds(&what, &ours, &theirs, 1.10);
    let what = format!(
        "burst of {}, median pod ready against the wall",
        options.burst
    );
    report.rounds(&what, &medians, &ours, 0.6);
    Ok(())
}

/// Starts pods on one side, then empties the runtime.
async fn turn(
    windlass: bool,
    names: &[String],
    fleet: &mut Fleet,
    bare: &Bare,
) -> anyhow::Result<Started> {
    let started = if windlass {
        let started = fleet.start_pods(names).await?;
        fleet.remove_pods(names).await?;
        started
    } else {
        fleet.freeze()?;
        let started = bare.start_pods(names).await?;
        bare.remove_pods(&started).await?;
        fleet.thaw()?;
        started
    };
    bare.remove_dead().await?;
    Ok(started)
}

/// Kills the agent repeatedly while pods run.
async fn kills(
    options: &Options,
    fleet: &mut Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    run::step(&format!(
        "kill -9, {} times, with {KILL_PODS} pods",
        options.kills
    ));
    let names = names("kill", KILL_PODS);
    fleet.start_pods(&names).await?;
    let before = (fleet.containers(), bare.container_ids().await?);
    let mut back = Vec::new();
    let mut changed = 0;
    for _ in 0..options.kills {
        back.push(fleet.kill_and_respawn(&names).await?);
        fleet.settle().await?;
        let after = (fleet.containers(), bare.container_ids().await?);
        changed += usize::from(after != before);
    }
    let what = format!(
        "kill -9 × {}: rounds that changed a container or restart count",
        options.kills
    );
    report.figure(&what, changed as f64, Unit::Count, 0.0);
    report.figure(
        "kill -9: all pods reported ready again, p50",
        median(&back),
        Unit::Seconds,
        f64::NAN,
    );
    let rss = fleet.process()?.rss_kib()? as f64 / KIB_PER_MIB;
    report.figure(
        &format!("RSS with {KILL_PODS} pods after adopting them"),
        rss,
        Unit::MiB,
        f64::NAN,
    );
    fleet.remove_pods(&names).await
}

/// Seconds until each pod was started, from the first request.
#[derive(Debug, Default)]
struct Started {
    seconds: Vec<f64>,
    /// Pods without an agent, which the caller has to remove.
    bare: Vec<BarePod>,
}

impl Started {
    fn wall(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|index| format!("{prefix}-{index}"))
        .collect()
}

fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The percentile of the values, interpolated.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = (sorted.len().saturating_sub(1) * percent) as f64 / 100.0;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => low + (high - low) * position.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 3.0, 4.0]), 2.5);
        assert_eq!(percentile(&[1.0, 2.0], 90), 1.9);
        assert!(median(&[]).is_nan());
    }
}
