//! `bench --cluster`: overhead of windlass as a cluster node.
//!
//! The API server is the fake one, over real TLS, in this process; otherwise as in standalone
//! mode: one private containerd, the bare CRI sequence in turns, and the agent frozen meanwhile.

pub(super) mod latency;
pub(super) mod node;
mod observer;
pub(super) mod runtime_log;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use windlass_testbed::containerd::PrivateContainerd;

use self::node::ClusterNode;
use super::bare::Bare;
use super::report::{Report, Unit};
use super::{KIB_PER_MIB, Options, median, names};
use xtask_run as run;

/// Options of `bench --cluster`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterOptions {
    /// Measure windlass as a cluster node, with a fake API server in this process.
    #[arg(long)]
    pub(super) cluster: bool,
    /// Pods that are created and deleted concurrently.
    #[arg(long, default_value_t = 100, requires = "cluster")]
    pods: usize,
    /// Pods that run while others are created one at a time.
    #[arg(long, default_value_t = 50, requires = "cluster")]
    running: usize,
    /// Pods that are created one at a time.
    #[arg(long, default_value_t = 100, requires = "cluster")]
    paced: usize,
    /// Concurrency of the bare side; windlass is compared with the best of these.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "2,4,8",
        requires = "cluster"
    )]
    bare_concurrency: Vec<usize>,
}

/// Status patches of a normal pod start: pending and running.
const PATCHES_PER_START: f64 = 2.0;

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let cluster = &options.cluster;
    let candidates: Vec<String> = cluster
        .bare_concurrency
        .iter()
        .map(usize::to_string)
        .collect();
    format!(
        "cargo xtask bench --cluster --pods {} --rounds {} --running {} --paced {} \
         --bare-concurrency {} --idle-seconds {} {}",
        cluster.pods,
        options.rounds,
        cluster.running,
        cluster.paced,
        candidates.join(","),
        options.idle_seconds,
        options.binary(),
    )
}

/// Restarts as a release build, because the API server shares the CPUs. A dev build of the agent or
/// a given binary is a test of the benchmark itself.
pub(super) fn with_a_fast_server(options: &Options) -> anyhow::Result<()> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    if options.profile == "dev" || options.windlass.is_some() {
        run::step("the API server of this measurement is a dev build");
        return Ok(());
    }
    let xtask = run::build("xtask", "bench-fast")?;
    // returns only on failure
    Err(Command::new(xtask)
        .args(std::env::args_os().skip(1))
        .exec()
        .into())
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    run::step("joining the cluster");
    let mut node = ClusterNode::start(&containerd, binary).await?;
    let mut report = Report::default();
    node.settle().await?;
    report.figure("RSS without pods", rss(&node)?, Unit::MiB, f64::NAN);
    bare.remove_dead().await?;
    bursts(options, &mut node, &bare, &mut report).await?;
    latency::paced(options, &mut node, &containerd, &mut report).await?;
    node.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

/// Times of the rounds, in seconds.
#[derive(Debug, Default)]
struct Walls {
    start: Vec<f64>,
    remove: Vec<f64>,
}

/// Creates and deletes all pods; the bare side with each of its concurrencies.
async fn bursts(
    options: &Options,
    node: &mut ClusterNode,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    let pods = options.cluster.pods;
    let candidates = &options.cluster.bare_concurrency;
    let mut ours = Walls::default();
    let mut medians = Vec::new();
    let mut theirs: Vec<Walls> = candidates.iter().map(|_| Walls::default()).collect();
    for round in 0..options.rounds {
        let what = format!("{pods} pods at once, {} of {}", round + 1, options.rounds);
        run::step(&what);
        let names = names(&format!("burst-{round}"), pods);
        // the order alternates, so that drift affects all sides
        let turns = candidates.len() + 1;
        for turn in (0..turns).map(|turn| (turn + round) % turns) {
            match candidates.get(turn) {
                None => {
                    node.forget_requests();
                    let started = node.start_pods(&names).await?;
                    ours.start.push(started.wall());
                    medians.push(median(&started.seconds));
                    node.settle().await?;
                    if round == 0 {
                        at_rest(options, node, report).await?;
                    }
                    node.forget_requests();
                    ours.remove.push(node.delete_pods(&names).await?);
                    if round == 0 {
                        requests(options, node, "end", f64::NAN, report);
                    }
                }
                Some(concurrency) => {
                    node.freeze()?;
                    let started = bare.start_pods_at(*concurrency, &names).await?;
                    theirs[turn].start.push(started.wall());
                    let removed = bare.stop_and_remove(*concurrency, &started).await?;
                    theirs[turn].remove.push(removed);
                    node.thaw()?;
                }
            }
            bare.remove_dead().await?;
            node.settle().await?;
        }
    }
    for (concurrency, walls) in candidates.iter().zip(&theirs) {
        let (start, remove) = (median(&walls.start), median(&walls.remove));
        eprintln!("      bare, {concurrency} at a time: start {start:.3} s, remove {remove:.3} s");
    }
    let (at, start) = best(candidates, &theirs, |walls| &walls.start);
    let what = format!("{pods} pods created at once, all ready (bare: {at} at a time)");
    report.rounds(&what, &ours.start, start, 1.2);
    let what = format!("{pods} pods created at once, median pod ready against the wall");
    report.rounds(&what, &medians, &ours.start, 0.55);
    let (at, remove) = best(candidates, &theirs, |walls| &walls.remove);
    let what = format!("{pods} pods deleted at once, all gone (bare: {at} at a time)");
    report.rounds(&what, &ours.remove, remove, 1.2);
    Ok(())
}

/// The concurrency with the lowest median, and its times.
fn best<'a>(
    candidates: &[usize],
    walls: &'a [Walls],
    of: fn(&Walls) -> &Vec<f64>,
) -> (usize, &'a [f64]) {
    let all = candidates.iter().zip(walls);
    let best = all.min_by(|a, b| median(of(a.1)).total_cmp(&median(of(b.1))));
    best.map_or((0, &[]), |(at, walls)| (*at, of(walls)))
}

/// Requests of pod starts and of idle pods.
async fn at_rest(
    options: &Options,
    node: &mut ClusterNode,
    report: &mut Report,
) -> anyhow::Result<()> {
    let pods = options.cluster.pods;
    requests(options, node, "start", PATCHES_PER_START, report);
    let what = format!("RSS with {pods} pods, their status, secrets and tokens");
    report.figure(&what, rss(node)?, Unit::MiB, 40.0);

    let seconds = options.idle_seconds;
    run::step(&format!("{pods} idle pods for {seconds} s"));
    node.forget_requests();
    let process = node.process()?;
    let before = process.cpu_seconds()?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = process.cpu_seconds()? - before;
    report.figure(
        &format!("CPU with {pods} idle pods over {seconds} s"),
        100.0 * used / seconds as f64,
        Unit::PercentOfCore,
        f64::NAN,
    );
    report.figure(
        &format!("status patches of {pods} idle pods over {seconds} s"),
        node.status_patches().values().sum::<usize>() as f64,
        Unit::Count,
        0.0,
    );
    report.figure(
        &format!("all requests with {pods} idle pods over {seconds} s"),
        node.requests() as f64,
        Unit::Count,
        f64::NAN,
    );
    Ok(())
}

/// Requests since the last reset of the count.
fn requests(options: &Options, node: &ClusterNode, part: &str, target: f64, report: &mut Report) {
    let pods = options.cluster.pods as f64;
    let patches = node.status_patches();
    let most = patches.values().copied().max().unwrap_or_default() as f64;
    let mean = patches.values().sum::<usize>() as f64 / pods;
    let all = node.requests() as f64 / pods;
    for (what, value, target) in [
        ("status patches", mean, target),
        ("status patches of the pod with most,", most, f64::NAN),
        ("all requests", all, f64::NAN),
    ] {
        let what = format!("{what} for a pod's {part}");
        report.figure(&what, value, Unit::Count, target);
    }
}

fn rss(node: &ClusterNode) -> anyhow::Result<f64> {
    Ok(node.process()?.rss_kib()? as f64 / KIB_PER_MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_concurrency_has_the_least_median() {
        let walls = |start: &[f64]| Walls {
            start: start.to_vec(),
            remove: Vec::new(),
        };
        let walls = [walls(&[3.0, 3.0, 1.0]), walls(&[2.0, 2.0, 9.0])];
        let (at, times) = best(&[2, 4], &walls, |walls| &walls.start);
        assert_eq!((at, times), (4, &[2.0, 2.0, 9.0][..]));
    }
}
