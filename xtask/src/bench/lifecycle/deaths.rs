//! From a container's death to its replacement, among many pods.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;
use windlass_testbed::containerd::PrivateContainerd;

use crate::bench::bare::{Bare, BarePod};
use crate::bench::fleet::Fleet;
use crate::bench::report::{Report, Unit};
use crate::bench::{Options, median, names, percentile};
use crate::run;

/// What the replacement may take against the bare calls that it needs.
const TARGET: f64 = 1.3;
/// Pause between two deaths, in which the dead container is cleared away.
const PACE: Duration = Duration::from_millis(300);

/// Kills containers one at a time. The bare side creates and starts one more container in the
/// sandbox of one that was killed: the replacement, as if it was known at once what to do.
pub(super) async fn replaced(
    options: &Options,
    containerd: &PrivateContainerd,
    fleet: &mut Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    let deaths = options.lifecycle.deaths;
    let running = options.lifecycle.probed.max(deaths);
    run::step(&format!("{deaths} containers die among {running} pods"));

    fleet.freeze()?;
    let started = bare.start_pods(&names("bare-death", deaths)).await?;
    let pids = pids(containerd).await?;
    let mut theirs = Vec::new();
    for pod in &started.bare {
        tokio::time::sleep(PACE).await;
        kill(&pids, pod.container_id())?;
        bare.wait_until_dead(pod).await?;
        theirs.push(replace(bare, pod).await?);
    }
    bare.remove_pods(&started).await?;
    fleet.thaw()?;
    bare.remove_dead().await?;

    let pods = names("death", running);
    fleet.start_pods(&pods).await?;
    fleet.settle().await?;
    let pids = self::pids(containerd).await?;
    let mut ours = Vec::new();
    for name in pods.iter().take(deaths) {
        tokio::time::sleep(PACE).await;
        let before = fleet
            .container_of(name)
            .context("a pod without a container")?;
        let begin = Instant::now();
        kill(&pids, &before)?;
        fleet.replaced(name, &before).await?;
        ours.push(begin.elapsed().as_secs_f64());
    }
    let what = format!("container killed → its replacement ready, {running} pods running, p50");
    report.ratio(&what, median(&ours), median(&theirs), TARGET);
    let late = (percentile(&ours, 99) - median(&theirs)) * 1e3;
    report.figure(
        "the same beyond the bare replacement, p99",
        late,
        Unit::Milliseconds,
        f64::NAN,
    );
    fleet.remove_pods(&pods).await
}

async fn replace(bare: &Bare, pod: &BarePod) -> anyhow::Result<f64> {
    let begin = Instant::now();
    bare.start_replacement(pod).await?;
    Ok(begin.elapsed().as_secs_f64())
}

/// First process of each container.
async fn pids(containerd: &PrivateContainerd) -> anyhow::Result<BTreeMap<String, i32>> {
    let text = containerd.ctr(&["tasks", "ls"]).await?;
    let row = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(row).collect())
}

fn kill(pids: &BTreeMap<String, i32>, container: &str) -> anyhow::Result<()> {
    let pid = pids.get(container).and_then(|pid| Pid::from_raw(*pid));
    kill_process(pid.context("a container without a process")?, Signal::KILL)?;
    Ok(())
}
