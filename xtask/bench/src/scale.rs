//! `bench --scale`: resource usage of the agent by number of pods.
//!
//! Each step runs the same measurements with more pods: start, rest, `kill -9`, deletion of
//! all. Times are compared with bare calls, memory with an agent without pods, within one run.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;
use windlass_testbed::containerd::PrivateContainerd;

use super::bare::Bare;
use super::fleet::Fleet;
use super::report::{Report, Unit};
use super::{KIB_PER_MIB, Options, median, names};
use xtask_run as run;

/// Targets for up to 500 idle pods.
const TARGET_PODS: usize = 500;
const MAX_RSS_MIB: f64 = 45.0;
const MAX_IDLE_CPU_PERCENT: f64 = 0.6;
/// Max milliseconds that relists and housekeeping block the main thread.
const MAX_HANDLER_MS: f64 = 10.0;
/// Max time of deleting all pods, as a multiple of the bare calls.
const MAX_DELETION_RATIO: f64 = 1.2;
/// Max memory after the deletion, as a multiple of an agent without pods.
const MAX_RSS_AFTER_RATIO: f64 = 1.3;
/// Time for the agent to release unused memory.
const MEMORY_RELEASE: Duration = Duration::from_secs(30);
/// Max concurrent stops of the bare side, which saturate the runtime.
const BARE_STOPS: usize = 8;

/// Options of `bench --scale`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ScaleOptions {
    /// Numbers of pods, one step each, such as 100,250,500,1000.
    #[arg(
        long,
        value_name = "PODS",
        value_delimiter = ',',
        conflicts_with_all = ["cluster", "lifecycle", "volumes", "api"]
    )]
    pub(super) scale: Vec<usize>,
}

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let steps: Vec<String> = options.scale.scale.iter().map(usize::to_string).collect();
    format!(
        "cargo xtask bench --scale {} --concurrency {} --idle-seconds {} {}",
        steps.join(","),
        options.concurrency,
        options.idle_seconds,
        options.binary(),
    )
}

/// Runs all measurements. A failed step ends the run; the report keeps previous results.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for pods in &options.scale.scale {
        ensure!(*pods > 0, "--scale: a step needs at least one pod");
        // a separate runtime and agent, so that steps do not affect each other
        let containerd = PrivateContainerd::start("bench", run::step).await?;
        let result = step(options, binary, &containerd, *pods, &mut report).await;
        containerd.stop().await?;
        if let Err(error) = result {
            report.fail(error.context(format!("with {pods} pods")));
            break;
        }
    }
    Ok(report)
}

async fn step(
    options: &Options,
    binary: &Path,
    containerd: &PrivateContainerd,
    pods: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let bare = Bare::new(containerd, options.concurrency)?;
    let names = names("scale", pods);
    run::step(&format!("{pods} pods: bare calls"));
    let started = bare.start_pods(&names).await?;
    let bare_start = started.seconds.iter().copied().fold(0.0, f64::max);
    let bare_median = median(&started.seconds);
    let bare_deletion = bare.stop_and_remove(BARE_STOPS, &started).await?;

    let config = format!("maxPods: {}\n", pods + 10);
    let mut fleet = Fleet::configured(containerd, binary, options.concurrency, &config).await?;
    fleet.settle().await?;
    let empty = rss_mib(&fleet)?;

    run::step(&format!("{pods} pods: start"));
    let events = fleet.sync_loop_events().await?;
    let begin = Instant::now();
    let started = fleet.start_pods(&names).await?;
    let wall = begin.elapsed().as_secs_f64();
    let events = fleet.sync_loop_events().await? - events;
    report.ratio(&format!("{pods} pods: all ready"), wall, bare_start, 1.1);
    let ours = median(&started.seconds);
    report.ratio(
        &format!("{pods} pods: median ready"),
        ours,
        bare_median,
        f64::NAN,
    );

    report.figure(
        &format!("{pods} pods: events of the sync loop per start"),
        per_pod(events, pods),
        Unit::Count,
        f64::NAN,
    );

    rest(options, &mut fleet, pods, report).await?;

    run::step(&format!("{pods} pods: kill -9"));
    let before = fleet.containers();
    let back = fleet.kill_and_respawn(&names).await?;
    report.figure(
        &format!("{pods} pods: in service after kill -9"),
        back,
        Unit::Seconds,
        f64::NAN,
    );
    let restarted = before.difference(&fleet.containers()).count() as f64;
    report.figure(
        &format!("{pods} pods: containers changed by it"),
        restarted,
        Unit::Count,
        0.0,
    );

    run::step(&format!("{pods} pods: deletion of all at once"));
    let events = fleet.sync_loop_events().await?;
    let begin = Instant::now();
    fleet.remove_pods(&names).await?;
    bare.wait_until_stopped().await?;
    let wall = begin.elapsed().as_secs_f64();
    let events = fleet.sync_loop_events().await? - events;
    report.ratio(
        &format!("{pods} pods: all stopped"),
        wall,
        bare_deletion,
        MAX_DELETION_RATIO,
    );
    report.figure(
        &format!("{pods} pods: events of the sync loop per deletion"),
        per_pod(events, pods),
        Unit::Count,
        f64::NAN,
    );
    fleet.settle().await?;
    tokio::time::sleep(MEMORY_RELEASE).await;
    report.against(
        &format!("{pods} pods: RSS afterwards, against the empty agent"),
        rss_mib(&fleet)?,
        empty,
        Unit::MiB,
        MAX_RSS_AFTER_RATIO,
    );
    fleet.stop().await
}

/// Memory and CPU time of an agent with idle pods, and the time of a relist.
async fn rest(
    options: &Options,
    fleet: &mut Fleet,
    pods: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    run::step(&format!("{pods} pods: at rest"));
    fleet.settle().await?;
    let target = |limit: f64| if pods <= TARGET_PODS { limit } else { f64::NAN };
    let what = format!("{pods} pods: RSS at rest");
    report.figure(&what, rss_mib(fleet)?, Unit::MiB, target(MAX_RSS_MIB));
    let process = fleet.process()?;
    let relists = fleet.relists().await?;
    let before = process.cpu_seconds()?;
    let period = Duration::from_secs(options.idle_seconds);
    let longest = process.longest_burst(period).await?;
    let used = process.cpu_seconds()? - before;
    let what = format!("{pods} pods: CPU at rest over {} s", options.idle_seconds);
    let percent = 100.0 * used / options.idle_seconds as f64;
    report.figure(
        &what,
        percent,
        Unit::PercentOfCore,
        target(MAX_IDLE_CPU_PERCENT),
    );
    let relists = fleet.relists().await?.since(relists);
    let what = format!("{pods} pods: longest work of the actors' thread at rest");
    let longest = longest.as_secs_f64() * 1e3;
    report.figure(&what, longest, Unit::Milliseconds, MAX_HANDLER_MS);
    let what = format!("{pods} pods: mean relist");
    report.figure(&what, relists.mean_ms(), Unit::Milliseconds, f64::NAN);
    Ok(())
}

/// Rounded to one decimal place.
fn per_pod(events: f64, pods: usize) -> f64 {
    (10.0 * events / pods as f64).round() / 10.0
}

fn rss_mib(fleet: &Fleet) -> anyhow::Result<f64> {
    Ok(fleet.process()?.rss_kib()? as f64 / KIB_PER_MIB)
}
