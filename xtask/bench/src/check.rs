//! `bench --check`: figures of one node that may not exceed the budgets of `budgets.md`.
//!
//! Most figures are counts: CRI calls, requests to the API server, messages, wake-ups, descriptors. They
//! depend on the agent, not on the host. Times are ratios to the bare CRI calls in the same run, with
//! budgets for the build that the tests have built.

mod budgets;
mod counts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use windlass_testbed::containerd::PrivateContainerd;

use self::budgets::Budgets;
use self::counts::Counts;
use super::bare::Bare;
use super::cluster::node::ClusterNode;
use super::lifecycle::deaths::{kill, pids};
use super::process::own_cpu_seconds;
use super::report::{Section, write};
use super::{Options, median, names};
use xtask_run as run;

/// Options of `bench --check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckOptions {
    /// Compare the figures of a node with the budgets of xtask/bench/budgets.md.
    #[arg(long, conflicts_with_all = ["cluster", "lifecycle", "volumes", "api"])]
    pub(super) check: bool,
    /// Measure for a minute, with the dev build of the agent and the budgets for it.
    #[arg(long, requires = "check")]
    short: bool,
}

/// Pods of the node.
const PODS: usize = 10;
/// Containers that are killed.
const DEATHS: usize = 3;
/// Each pod is synced several times in a measurement.
const SYNC_FREQUENCY: Duration = Duration::from_secs(10);
/// Time of counting at rest: three relists and syncs.
const SHORT_REST: Duration = Duration::from_secs(30);
/// The same without `--short`.
const LONG_REST: Duration = Duration::from_secs(120);
/// The agent has finished a change if it calls neither the runtime for a pod nor the API server for
/// this time. A status patch waits at most for its rate limit.
const QUIET: Duration = Duration::from_secs(2);
/// Timeout of waiting for that.
const QUIET_DEADLINE: Duration = Duration::from_secs(60);
/// Interval of reading the counts meanwhile.
const QUIET_POLL: Duration = Duration::from_millis(250);
const SECONDS_PER_MINUTE: f64 = 60.0;

/// Measures and prints one line per figure.
///
/// # Errors
/// A program cannot be started, or a figure is over its budget.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    let short = options.check.short;
    let binary = match &options.windlass {
        None if short => dev_build()?,
        given => run::agent(given.as_deref(), &options.profile)?,
    };
    let figures = tokio::select! {
        _ = run::interrupted() => anyhow::bail!("interrupted"),
        figures = measure(&binary, if short { SHORT_REST } else { LONG_REST }) => figures?,
    };
    let results = Budgets::of_repository()?.compare(&figures.0, short)?;
    for result in &results {
        println!("{result}");
    }
    if options.write {
        let text = budgets::table(&results, &command(options))?;
        write(Section::Check, &text)?;
    }
    let over = results.iter().filter(|result| result.is_over());
    let over: Vec<&str> = over.map(|result| result.name.as_str()).collect();
    anyhow::ensure!(
        over.is_empty(),
        "over the budget of xtask/bench/budgets.md: {}; reduce them, or raise the budget with its \
         reason",
        over.join(", ")
    );
    Ok(())
}

fn command(options: &Options) -> String {
    let short = if options.check.short { " --short" } else { "" };
    format!("cargo xtask bench --check{short} {}", options.binary())
}

/// The binary that the tests on containerd use.
fn dev_build() -> anyhow::Result<PathBuf> {
    let built = run::target_directory()?.join("debug/windlass");
    match built.exists() {
        true => Ok(built),
        false => run::build("windlass", "dev"),
    }
}

/// Measured figures, with details.
#[derive(Debug, Default)]
struct Figures(BTreeMap<&'static str, (f64, String)>);

impl Figures {
    fn add(&mut self, name: &'static str, value: f64) {
        self.0.insert(name, (value, String::new()));
    }

    fn detailed(&mut self, name: &'static str, (value, detail): (f64, String)) {
        self.0.insert(name, (value, detail));
    }
}

/// A node that is measured, and the bare side.
struct Measured {
    containerd: PrivateContainerd,
    bare: Bare,
    node: ClusterNode,
    figures: Figures,
}

async fn measure(binary: &Path, rest: Duration) -> anyhow::Result<Figures> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, 1)?;
    run::step("joining the cluster");
    let config = format!("syncFrequency: {}s", SYNC_FREQUENCY.as_secs());
    let node = ClusterNode::configured(&containerd, binary, &config).await?;
    let mut measured = Measured {
        containerd,
        bare,
        node,
        figures: Figures::default(),
    };
    measured.quiet().await?;
    let empty = measured.rest("no pod", rest / 2).await?;
    let (starts, deaths) = measured.bare_times().await?;
    let pods = names("check", PODS);
    measured.starts(&pods, &starts).await?;
    let full = measured.rest("idle pods", rest).await?;
    measured.at_rest(&empty, &full);
    measured.deaths(&pods, &deaths).await?;
    measured.agent_kill().await?;
    measured.ends(&pods, &empty).await?;
    measured.node.stop().await?;
    measured.containerd.stop().await?;
    Ok(measured.figures)
}

/// Times of the bare side, and the CPU time of its client.
struct BareTimes {
    seconds: Vec<f64>,
    cpu: f64,
}

/// A node at rest for some time.
struct AtRest {
    minutes: f64,
    counts: Counts,
    anonymous_kib: f64,
    descriptors: f64,
    threads: f64,
}

impl AtRest {
    fn per_minute(&self, count: f64) -> f64 {
        count / self.minutes
    }
}

impl Measured {
    async fn counts(&self) -> anyhow::Result<Counts> {
        Counts::read(&self.node).await
    }

    /// Waits until the agent has finished what it does.
    async fn quiet(&mut self) -> anyhow::Result<Counts> {
        let deadline = Instant::now() + QUIET_DEADLINE;
        let (mut last, mut since) = (self.counts().await?, Instant::now());
        while since.elapsed() < QUIET {
            anyhow::ensure!(Instant::now() < deadline, "the agent does not become idle");
            tokio::time::sleep(QUIET_POLL).await;
            let now = self.counts().await?;
            if now.of_pods() != last.of_pods() {
                since = Instant::now();
            }
            last = now;
        }
        Ok(last)
    }

    async fn rest(&mut self, what: &str, rest: Duration) -> anyhow::Result<AtRest> {
        run::step(&format!("{what}, for {} s", rest.as_secs()));
        let process = self.node.process()?;
        let before = self.counts().await?;
        tokio::time::sleep(rest).await;
        Ok(AtRest {
            minutes: rest.as_secs_f64() / SECONDS_PER_MINUTE,
            counts: self.counts().await?.since(&before),
            anonymous_kib: process.anonymous_kib()? as f64,
            descriptors: process.descriptors()? as f64,
            threads: process.threads()? as f64,
        })
    }

    fn at_rest(&mut self, empty: &AtRest, full: &AtRest) {
        let (counts, pods) = (&full.counts, PODS as f64);
        let wakeups = full.per_minute(counts.wakeups);
        let of_pods = wakeups - empty.per_minute(empty.counts.wakeups);
        let figures = &mut self.figures;
        figures.add("idle.wakeups", wakeups);
        figures.add("idle.pod_wakeups", (of_pods / pods).max(0.0));
        let messages = full.per_minute(counts.messages) - empty.per_minute(empty.counts.messages);
        figures.add("idle.pod_messages", (messages / pods).max(0.0));
        let (calls, detail) = counts.periodic_calls();
        figures.detailed("idle.cri_calls", (full.per_minute(calls), detail));
        figures.detailed("idle.pod_cri_calls", counts.pod_calls(1.0));
        figures.add(
            "idle.api_requests",
            full.per_minute(counts.requests + counts.leases),
        );
        figures.add("idle.status_patches", counts.patches);
        figures.add("memory.anonymous", full.anonymous_kib / 1024.0);
        let grown = full.anonymous_kib - empty.anonymous_kib;
        figures.add("memory.pod", (grown / pods).max(0.0));
        figures.add("descriptors.all", full.descriptors);
        let more = full.descriptors - empty.descriptors;
        figures.add("descriptors.pod", (more / pods).max(0.0));
        figures.add("threads", full.threads);
    }

    /// Starts pods and replaces dead containers without the agent.
    async fn bare_times(&mut self) -> anyhow::Result<(BareTimes, Vec<f64>)> {
        run::step("the bare CRI calls");
        self.node.freeze()?;
        let (mut seconds, mut started) = (Vec::new(), Vec::new());
        let before = own_cpu_seconds();
        for name in names("bare", PODS) {
            let pod = self.bare.start_pods(&[name]).await?;
            seconds.push(pod.wall());
            started.push(pod);
        }
        let cpu = own_cpu_seconds() - before;
        let pids = pids(&self.containerd).await?;
        let mut deaths = Vec::new();
        for pod in started.iter().flat_map(|pod| &pod.bare).take(DEATHS) {
            let begin = Instant::now();
            kill(&pids, pod.container_id())?;
            self.bare.wait_until_dead(pod).await?;
            self.bare.start_replacement(pod).await?;
            deaths.push(begin.elapsed().as_secs_f64());
        }
        for pod in &started {
            self.bare.remove_pods(pod).await?;
        }
        self.node.thaw()?;
        self.bare.remove_dead().await?;
        self.quiet().await?;
        Ok((BareTimes { seconds, cpu }, deaths))
    }

    /// Starts the pods one at a time.
    async fn starts(&mut self, pods: &[String], bare: &BareTimes) -> anyhow::Result<()> {
        run::step(&format!("{PODS} pods, one at a time"));
        let process = self.node.process()?;
        let (before, cpu) = (self.counts().await?, process.cpu_seconds()?);
        let mut seconds = Vec::new();
        for name in pods {
            let started = self.node.start_pods(std::slice::from_ref(name)).await?;
            seconds.push(started.wall());
        }
        let counts = self.quiet().await?.since(&before);
        let cpu = process.cpu_seconds()? - cpu;
        let (figures, count) = (&mut self.figures, PODS as f64);
        figures.detailed("start.cri_calls", counts.pod_calls(count));
        figures.add("start.api_requests", counts.requests / count);
        figures.add("start.status_patches", counts.patches / count);
        figures.add("start.messages", counts.messages / count);
        figures.add("start.time", median(&seconds) / median(&bare.seconds));
        figures.add("start.cpu", cpu / bare.cpu);
        Ok(())
    }

    /// Kills containers one at a time.
    async fn deaths(&mut self, pods: &[String], bare: &[f64]) -> anyhow::Result<()> {
        run::step(&format!("{DEATHS} containers die"));
        let before = self.quiet().await?;
        let pids = pids(&self.containerd).await?;
        let mut seconds = Vec::new();
        for name in pods.iter().take(DEATHS) {
            let uid = self.node.uid(name)?;
            let container = self.bare.container_of(&uid).await?;
            let begin = Instant::now();
            kill(&pids, &container)?;
            self.node.restarted(name, 1).await?;
            seconds.push(begin.elapsed().as_secs_f64());
        }
        let counts = self.quiet().await?.since(&before);
        let (figures, count) = (&mut self.figures, DEATHS as f64);
        figures.detailed("death.cri_calls", counts.pod_calls(count));
        figures.add("death.api_requests", counts.requests / count);
        figures.add("death.status_patches", counts.patches / count);
        figures.add("death.time", median(&seconds) / median(bare));
        Ok(())
    }

    /// Kills the agent with SIGKILL and starts it again.
    async fn agent_kill(&mut self) -> anyhow::Result<()> {
        run::step("kill -9");
        let before = self.bare.container_ids().await?;
        self.node.forget_requests();
        let seconds = self.node.kill_and_respawn(PODS).await?;
        let counts = self.quiet().await?;
        let after = self.bare.container_ids().await?;
        let changed = before.symmetric_difference(&after).count();
        let (figures, count) = (&mut self.figures, PODS as f64);
        figures.add("restart.containers_changed", changed as f64);
        figures.detailed("restart.cri_calls", counts.pod_calls(count));
        figures.add("restart.api_requests", counts.requests);
        figures.add("restart.status_patches", counts.patches);
        figures.add("restart.time", seconds);
        Ok(())
    }

    /// Deletes the pods.
    async fn ends(&mut self, pods: &[String], empty: &AtRest) -> anyhow::Result<()> {
        run::step(&format!("{PODS} pods are deleted"));
        let before = self.quiet().await?;
        self.node.delete_pods(pods).await?;
        let counts = self.quiet().await?.since(&before);
        let process = self.node.process()?;
        let left = process.descriptors()? as f64 - empty.descriptors;
        let (figures, count) = (&mut self.figures, PODS as f64);
        figures.detailed("end.cri_calls", counts.pod_calls(count));
        figures.add("end.api_requests", counts.requests / count);
        figures.add("end.status_patches", counts.patches / count);
        figures.add("descriptors.left", left.max(0.0));
        Ok(())
    }
}
