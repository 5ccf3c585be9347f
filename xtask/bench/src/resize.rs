//! `bench --resize`: latency of in-place resizes, and their cost over the bare calls.
//!
//! The pods run in a cluster with the fake API server in this process. The CPU limit changes and
//! the cgroup file of the container is polled. The bare side sets the same resources with
//! UpdateContainerResources while the agent is frozen.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testbed::agent::NODE_NAME;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;
use windlass_types::Pod;

use super::bare::Bare;
use super::cluster::node::ClusterNode;
use super::report::{Report, Unit};
use super::{Options, median, names, percentile};
use xtask_run as run;

/// Options of `bench --resize`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResizeOptions {
    /// Measure in-place resizes.
    #[arg(long, conflicts_with_all = ["cluster", "lifecycle", "volumes", "api"])]
    pub(super) resize: bool,
    /// Running pods, which are resized one at a time and all at once.
    #[arg(long, default_value_t = 100, requires = "resize")]
    resized_pods: usize,
}

/// Max milliseconds from the change of a pod to its cgroup, at the 99th percentile.
const LATENCY_TARGET: f64 = 50.0;
/// Max time of a burst, as a multiple of the bare calls.
const BURST_TARGET: f64 = 1.3;
/// Concurrency of the bare side; windlass is compared with the best of these.
const BARE_CONCURRENCY: [usize; 4] = [2, 4, 8, 16];
/// Timeout of a resize.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between resizes of single pods, for status patches and inspections.
const PAUSE: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
const CGROUPS: &str = "/sys/fs/cgroup";
/// CPU limits that alternate, in thousandths.
const LIMITS: [i64; 2] = [100, 150];

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    format!(
        "cargo xtask bench --resize --resized-pods {} --rounds {} {}",
        options.resize.resized_pods,
        options.rounds,
        options.binary(),
    )
}

/// A running container and its cgroup.
struct Resized {
    pod: String,
    container: String,
    /// File of its CPU quota.
    quota: PathBuf,
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    let mut node = ClusterNode::start(&containerd, binary).await?;
    let mut report = Report::default();
    let names = names("resized", options.resize.resized_pods);
    run::step(&format!("starting {} pods", names.len()));
    let pods = names.iter().map(|name| pod(name));
    let pods: Vec<Pod> = pods.collect::<Result<_, _>>()?;
    node.create_all(&pods).await?;
    let root = containerd.cgroup_layout().kubepods();
    let mut resized = Vec::new();
    for name in &names {
        let container = bare.container_of(&node.uid(name)?).await?;
        resized.push(Resized {
            quota: quota_file(&root, &container)?,
            pod: name.clone(),
            container,
        });
    }
    node.settle().await?;
    single(&mut node, &bare, &resized, &mut report).await?;
    bursts(options, &mut node, &bare, &resized, &mut report).await?;
    node.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

/// Resizes one pod after the other.
async fn single(
    node: &mut ClusterNode,
    bare: &Bare,
    resized: &[Resized],
    report: &mut Report,
) -> anyhow::Result<()> {
    run::step("one resize at a time");
    let mut ours = Vec::new();
    for one in resized {
        tokio::time::sleep(PAUSE).await;
        let begin = Instant::now();
        set_limit(node, one, LIMITS[1])?;
        wait_for(one, LIMITS[1]).await?;
        ours.push(begin.elapsed().as_secs_f64());
    }
    node.settle().await?;
    node.freeze()?;
    let mut theirs = Vec::new();
    for one in resized {
        let begin = Instant::now();
        bare.resize(&one.container, LIMITS[1]).await?;
        theirs.push(begin.elapsed().as_secs_f64());
    }
    node.thaw()?;
    report.ratio("one resize, p50", median(&ours), median(&theirs), f64::NAN);
    report.figure(
        "one resize, p99",
        percentile(&ours, 99) * 1000.0,
        Unit::Milliseconds,
        LATENCY_TARGET,
    );
    node.settle().await
}

/// Resizes all pods at once, in turns with the bare side.
async fn bursts(
    options: &Options,
    node: &mut ClusterNode,
    bare: &Bare,
    resized: &[Resized],
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut costs = Costs::default();
    for round in 0..options.rounds {
        let limit = LIMITS[round % LIMITS.len()];
        run::step(&format!(
            "{} resizes at once, {} of {}",
            resized.len(),
            round + 1,
            options.rounds
        ));
        node.forget_requests();
        let process = node.process()?;
        let cpu = process.cpu_seconds()?;
        let begin = Instant::now();
        for one in resized {
            set_limit(node, one, limit)?;
        }
        for one in resized {
            wait_for(one, limit).await?;
        }
        ours.push(begin.elapsed().as_secs_f64());
        let of_each = |seconds: f64| seconds * 1000.0 / resized.len() as f64;
        costs.resized.push(of_each(process.cpu_seconds()? - cpu));
        node.settle().await?;
        costs.settled.push(of_each(process.cpu_seconds()? - cpu));
        let patches: usize = node.status_patches().values().sum();
        costs.patches.push(patches as f64 / resized.len() as f64);
        node.freeze()?;
        let mut best = f64::INFINITY;
        for concurrency in BARE_CONCURRENCY {
            let containers = resized.iter().map(|one| one.container.as_str());
            let wall = bare.resize_all(containers, limit, concurrency).await?;
            best = best.min(wall);
        }
        theirs.push(best);
        node.thaw()?;
        node.settle().await?;
    }
    let what = format!("{} resizes at once, wall", resized.len());
    report.rounds(&what, &ours, &theirs, BURST_TARGET);
    costs.report(report);
    Ok(())
}

/// What each resize of a burst costs the agent, by round.
#[derive(Default)]
struct Costs {
    /// Milliseconds of CPU time until all cgroups are changed.
    resized: Vec<f64>,
    /// The same until the agent is idle.
    settled: Vec<f64>,
    /// Status patches until then.
    patches: Vec<f64>,
}

impl Costs {
    fn report(&self, report: &mut Report) {
        for (what, values, unit) in [
            (
                "CPU of the agent until then, each",
                &self.resized,
                Unit::Milliseconds,
            ),
            (
                "CPU of the agent until it is idle, each",
                &self.settled,
                Unit::Milliseconds,
            ),
            (
                "status patches until then, each",
                &self.patches,
                Unit::Count,
            ),
        ] {
            report.figure(what, median(values), unit, f64::NAN);
        }
    }
}

fn set_limit(node: &ClusterNode, one: &Resized, milli_cpu: i64) -> anyhow::Result<()> {
    let resources = serde_json::from_value(resources(milli_cpu))?;
    node.api()
        .modify::<Pod>(Some("default"), &one.pod, |pod: &mut Pod| {
            let spec = pod.spec.get_or_insert_default();
            if let Some(container) = spec.containers.first_mut() {
                container.resources = Some(resources);
            }
        });
    Ok(())
}

async fn wait_for(one: &Resized, milli_cpu: i64) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let quota = (milli_cpu * 100).to_string();
    loop {
        let text = fs::read_to_string(&one.quota)?;
        if text.split_whitespace().next() == Some(&quota) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{} is not resized", one.pod);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The file with the CPU quota of a container, below the cgroups of all pods.
fn quota_file(root: &str, container: &str) -> anyhow::Result<PathBuf> {
    let v2 = Path::new(CGROUPS).join("cgroup.controllers").exists();
    let (hierarchy, file) = match v2 {
        true => (PathBuf::from(CGROUPS), "cpu.max"),
        false => (Path::new(CGROUPS).join("cpu"), "cpu.cfs_quota_us"),
    };
    let root = hierarchy.join(root.trim_start_matches('/'));
    let dir = find(&root, container)?;
    Ok(dir
        .with_context(|| format!("container {container} has no cgroup"))?
        .join(file))
}

fn find(dir: &Path, container: &str) -> anyhow::Result<Option<PathBuf>> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.file_name().to_string_lossy().contains(container) {
            return Ok(Some(entry.path()));
        }
        if let Some(found) = find(&entry.path(), container)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn resources(milli_cpu: i64) -> Value {
    json!({
        "requests": { "cpu": "10m", "memory": "4Mi" },
        "limits": { "cpu": format!("{milli_cpu}m"), "memory": "32Mi" },
    })
}

fn pod(name: &str) -> serde_json::Result<Pod> {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": NODE_NAME,
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": images::PAUSE,
                "imagePullPolicy": "IfNotPresent",
                "resources": resources(LIMITS[0]),
            }],
        },
    }))
}
