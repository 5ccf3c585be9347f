//! Time from the death of a container to its restart, among many pods.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;
use windlass_testbed::containerd::PrivateContainerd;

use crate::bare::Bare;
use crate::fleet::Fleet;
use crate::report::{Report, Unit};
use crate::{Options, median, names, percentile};
use xtask_run as run;

/// Max restart time, as a multiple of the bare calls.
const TARGET: f64 = 1.3;
/// Interval between kills, for removal of the dead container.
const KILL_INTERVAL: Duration = Duration::from_millis(300);

/// Kills containers one at a time. The bare side polls the runtime for the exit, then creates and
/// starts a container in the same sandbox.
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
    let started = bare.start_pods(&names("bare-death", running)).await?;
    let pids = pids(containerd).await?;
    let (mut theirs, mut calls) = (Vec::new(), Vec::new());
    for pod in started.bare.iter().take(deaths) {
        tokio::time::sleep(KILL_INTERVAL).await;
        let begin = Instant::now();
        kill(&pids, pod.container_id())?;
        bare.wait_until_dead(pod).await?;
        let dead = Instant::now();
        bare.start_replacement(pod).await?;
        theirs.push(begin.elapsed().as_secs_f64());
        calls.push(dead.elapsed().as_secs_f64());
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
        tokio::time::sleep(KILL_INTERVAL).await;
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
    report.ratio(
        "the same, p99",
        percentile(&ours, 99),
        percentile(&theirs, 99),
        f64::NAN,
    );
    report.ratio(
        "the same, p50, against CreateContainer and StartContainer alone",
        median(&ours),
        median(&calls),
        f64::NAN,
    );
    // without the runtime's detection of the exit and its start of the replacement
    let own = (median(&ours) - median(&theirs)) * 1e3;
    report.figure(
        "the agent's own part of it, p50",
        own,
        Unit::Milliseconds,
        100.0,
    );
    fleet.remove_pods(&pods).await
}

/// PID of the first process of each container.
pub(crate) async fn pids(containerd: &PrivateContainerd) -> anyhow::Result<BTreeMap<String, i32>> {
    let text = containerd.ctr(&["tasks", "ls"]).await?;
    let row = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Kills the first process of a container.
pub(crate) fn kill(pids: &BTreeMap<String, i32>, container: &str) -> anyhow::Result<()> {
    let pid = pids.get(container).and_then(|pid| Pid::from_raw(*pid));
    kill_process(pid.context("a container without a process")?, Signal::KILL)?;
    Ok(())
}
