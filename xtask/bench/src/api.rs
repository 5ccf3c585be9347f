//! `bench --api`: cost of the node API compared with the same work without it.
//!
//! A log against a file of the same bytes through the same connection, a command's first byte
//! against the runtime's own stream, and a scrape of `/metrics/resource` with many pods.

mod exec;
mod http;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;

use super::bare::Bare;
use super::fleet::Fleet;
use super::report::{Report, Unit};
use super::{KIB_PER_MIB, Options, median, names, percentile};
use xtask_run as run;

/// Options of `bench --api`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ApiOptions {
    /// Measure the node API: logs, exec and a scrape.
    #[arg(long, conflicts_with_all = ["cluster", "lifecycle", "volumes"])]
    pub(super) api: bool,
    /// Size of the log without the runtime's timestamps, in MiB.
    #[arg(long, default_value_t = 1024, requires = "api")]
    log_mib: usize,
    /// Commands on each side.
    #[arg(long, default_value_t = 40, requires = "api")]
    execs: usize,
    /// Pods in `/metrics/resource`.
    #[arg(long, default_value_t = 250, requires = "api")]
    scraped: usize,
}

/// Max time of reading a log, as a multiple of reading a file.
const LOG_TARGET: f64 = 1.25;
/// Max time to the first byte of a command, as a multiple of the runtime's stream.
const EXEC_TARGET: f64 = 1.2;
/// Max milliseconds and MiB of memory of a scrape.
const SCRAPE_TARGET: (f64, f64) = (50.0, 1.0);
/// Number of measured scrapes.
const SCRAPES: usize = 20;
/// Without authentication and authorization, which are not measured.
const CONFIG: &str = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\n\
                      authorization: {mode: AlwaysAllow}\n\
                      containerLogMaxSize: 16Gi\n\
                      maxPods: 1000\n";
/// Bytes of a log line with its line end, and the prefix of the runtime.
const LINE: usize = 100;
const STAMP: &str = "2026-11-22T07:00:00.123456789Z stdout F ";
/// The pod of logs and commands.
const POD: &str = "talker";

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let ApiOptions {
        log_mib,
        execs,
        scraped,
        ..
    } = options.api;
    format!(
        "cargo xtask bench --api --log-mib {log_mib} --execs {execs} --scraped {scraped} --rounds {} {}",
        options.rounds,
        options.binary(),
    )
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    let mut fleet = Fleet::configured(&containerd, binary, options.concurrency, CONFIG).await?;
    let mut report = Report::default();
    fleet.settle().await?;
    let manifest = (POD.to_owned(), talker());
    fleet.start_manifests(vec![manifest]).await?;
    execs(options, &fleet, &bare, &mut report).await?;
    logs(options, &containerd, &fleet, &mut report).await?;
    fleet.remove_pods(&[POD.to_owned()]).await?;
    scrapes(options, &mut fleet, &mut report).await?;
    fleet.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

fn talker() -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {POD}\nspec:\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n  - name: main\n    image: {}\n    \
         command: [sleep, '86400']\n",
        images::BUSYBOX
    )
}

/// Name of the pod in the API.
fn path(endpoint: &str) -> String {
    let node = windlass_testbed::agent::NODE_NAME;
    format!("/{endpoint}/default/{POD}-{node}/main")
}

/// Time to the first byte of a command, with both sides in alternating order.
async fn execs(
    options: &Options,
    fleet: &Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    run::step(&format!("{} commands on each side", options.api.execs));
    let container = fleet.container_of(POD).context("the pod's container")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // the first pair is not counted
    for round in 0..=options.api.execs {
        for windlass in [round % 2 == 0, round % 2 != 0] {
            let seconds = match windlass {
                true => exec::through(fleet.agent(), &path("exec")).await?,
                false => exec::bare(bare, &container).await?,
            };
            if round > 0 {
                if windlass { &mut ours } else { &mut theirs }.push(seconds);
            }
        }
    }
    let what = "exec, first byte, p50, against Exec and the runtime's stream";
    report.ratio(what, median(&ours), median(&theirs), EXEC_TARGET);
    let (ours, theirs) = (percentile(&ours, 90), percentile(&theirs, 90));
    report.ratio("the same, p90", ours, theirs, f64::NAN);
    Ok(())
}

/// Times of reading a log, and a file with the same content.
async fn logs(
    options: &Options,
    containerd: &PrivateContainerd,
    fleet: &Fleet,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mib = options.api.log_mib;
    run::step(&format!("a log and a file of {mib} MiB each"));
    let log = log_file(&containerd.base().join("logs"))?;
    let plain = Plain::new()?;
    let lines = (mib << 20) / LINE;
    write(&log, &plain.0, lines)?;
    let bytes = (lines * LINE) as u64;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // the first pair brings both into the page cache
    for round in 0..=options.rounds {
        for of_log in [round % 2 == 0, round % 2 != 0] {
            let target = match of_log {
                true => path("containerLogs"),
                false => format!("/logs/{}", plain.name()?),
            };
            let response = http::get(fleet.agent(), &target).await?;
            anyhow::ensure!(
                response.bytes == bytes,
                "{} of {bytes} bytes",
                response.bytes
            );
            if round > 0 {
                if of_log { &mut ours } else { &mut theirs }.push(response.seconds);
            }
        }
    }
    let what = format!("log of {mib} MiB over TLS, against a file of the same bytes");
    report.rounds(&what, &ours, &theirs, LOG_TARGET);
    Ok(())
}

/// The log of the only container.
fn log_file(logs: &Path) -> anyhow::Result<PathBuf> {
    let mut pods = fs::read_dir(logs)?.flatten();
    let of_pod = |name: &str| name.starts_with(&format!("default_{POD}"));
    let pod = pods.find(|entry| entry.file_name().to_str().is_some_and(of_pod));
    Ok(pod.context("no log of the pod")?.path().join("main/0.log"))
}

/// The same lines with and without the runtime's timestamps.
fn write(log: &Path, plain: &Path, lines: usize) -> anyhow::Result<()> {
    let mut log = BufWriter::new(File::options().append(true).open(log)?);
    let mut plain = BufWriter::new(File::create(plain)?);
    let text = "windlass ".repeat(LINE);
    for line in 0..lines {
        let line = format!("{line:010} {}", &text[..LINE - 12]);
        writeln!(log, "{STAMP}{line}")?;
        writeln!(plain, "{line}")?;
    }
    log.flush()?;
    Ok(plain.flush()?)
}

/// A file served by `/logs/`, removed on drop.
struct Plain(PathBuf);

impl Plain {
    fn new() -> anyhow::Result<Self> {
        let path = Path::new("/var/log").join(format!("windlass-bench-{}", std::process::id()));
        File::create(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn name(&self) -> anyhow::Result<&str> {
        let name = self.0.file_name().and_then(|name| name.to_str());
        name.context("a name")
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Time and memory of a scrape.
async fn scrapes(options: &Options, fleet: &mut Fleet, report: &mut Report) -> anyhow::Result<()> {
    let count = options.api.scraped;
    run::step(&format!("/metrics/resource with {count} pods"));
    fleet.start_pods(&names("scraped", count)).await?;
    fleet.settle().await?;
    let process = fleet.process()?;
    let mib = |kib: u64| kib as f64 / KIB_PER_MIB;
    let before = process.rss_kib()?;
    // the first opens files that stay open
    http::get(fleet.agent(), "/metrics/resource").await?;
    let resident = process.rss_kib()?;
    let (mut milliseconds, mut peaks) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..SCRAPES {
        let resident = process.rss_kib()?;
        process.reset_peak()?;
        let response = http::get(fleet.agent(), "/metrics/resource").await?;
        peaks.push(mib(process.peak_kib()?.saturating_sub(resident)));
        milliseconds.push(response.seconds * 1000.0);
        bytes = response.bytes;
    }
    anyhow::ensure!(bytes > (count * 200) as u64, "{bytes} bytes");
    let (time, memory) = SCRAPE_TARGET;
    let what = format!("/metrics/resource with {count} pods, {bytes} bytes, over TLS, p50");
    report.figure(&what, median(&milliseconds), Unit::Milliseconds, time);
    let slowest = percentile(&milliseconds, 100);
    report.figure("the same, slowest", slowest, Unit::Milliseconds, f64::NAN);
    let most = percentile(&peaks, 100);
    report.figure("memory that it takes, most of all", most, Unit::MiB, memory);
    let stays = mib(resident.saturating_sub(before));
    report.figure("memory that stays of the first", stays, Unit::MiB, f64::NAN);
    report.figure(
        &format!("RSS with {count} pods that are scraped"),
        mib(process.rss_kib()?),
        Unit::MiB,
        f64::NAN,
    );
    Ok(())
}
