//! Latency of pod starts within the agent, one pod at a time among running ones.

use std::time::Duration;

use anyhow::Context;
use windlass_fake_api::RequestRecord;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_types::Timestamp;

use super::node::ClusterNode;
use super::runtime_log::{self, RuntimeTimes};
use crate::report::{Report, Unit};
use crate::{Options, median, names, percentile};
use xtask_run as run;

/// Interval before each pod, for cleanup of the last one.
const START_INTERVAL: Duration = Duration::from_millis(300);
/// Max milliseconds within the agent.
const TARGET: f64 = 50.0;
/// Max milliseconds of a deletion besides stopping the container.
const END_TARGET: f64 = 500.0;

/// A created pod.
#[derive(Debug)]
struct Sample {
    uid: String,
    created: Timestamp,
    /// Seconds from the deletion until the API object was removed.
    deletion: f64,
    patches: Vec<RequestRecord>,
}

/// Creates pods one at a time while others run.
pub(super) async fn paced(
    options: &Options,
    node: &mut ClusterNode,
    containerd: &PrivateContainerd,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (count, running) = (options.cluster.paced, options.cluster.running);
    run::step(&format!("{count} pods one at a time while {running} run"));
    let others = names("running", running);
    node.start_pods(&others).await?;
    node.settle().await?;
    let mut samples = Vec::new();
    // the first is a warm-up and not counted
    for index in 0..=count {
        tokio::time::sleep(START_INTERVAL).await;
        node.forget_requests();
        let name = format!("paced-{index}");
        let created = now()?;
        node.start_pods(std::slice::from_ref(&name)).await?;
        let uid = node.uid(&name)?;
        let deletion = node.delete_pods(std::slice::from_ref(&name)).await?;
        // read at the end: requests are recorded after their watch events
        let sample = Sample {
            uid,
            created,
            deletion,
            patches: node.patches_of(&name),
        };
        if index > 0 {
            samples.push(sample);
        }
    }
    let log = std::fs::read_to_string(containerd.log_file())?;
    let times = runtime_log::read(&log, samples.iter().map(|sample| sample.uid.as_str()));
    let (mut first, mut last, mut end) = (Vec::new(), Vec::new(), Vec::new());
    for sample in &samples {
        let times = times.get(sample.uid.as_str());
        let times = times.context("the runtime's log does not tell of a pod")?;
        let (before, after) = sample
            .parts(times)
            .with_context(|| format!("no start of a pod was found: {times:?} {sample:?}"))?;
        first.push(before);
        last.push(after);
        let beyond = sample.beyond_its_stop(times);
        end.push(beyond.context("the runtime's log does not tell of a stop")?);
    }
    for (what, values, target) in [
        ("pod created → RunPodSandbox at the runtime", &first, TARGET),
        ("StartContainer answered → status patched", &last, TARGET),
        (
            "pod deleted → gone from the API, beyond its StopContainer",
            &end,
            END_TARGET,
        ),
    ] {
        let what = format!("{what}, {running} pods running");
        let p99 = percentile(values, 99);
        report.figure(&format!("{what}, p99"), p99, Unit::Milliseconds, target);
        let p50 = median(values);
        report.figure(&format!("{what}, p50"), p50, Unit::Milliseconds, f64::NAN);
    }
    node.delete_pods(&others).await?;
    Ok(())
}

impl Sample {
    /// Milliseconds from creation to the first call, and from the last response to the first patch
    /// after it.
    fn parts(&self, times: &RuntimeTimes) -> Option<(f64, f64)> {
        let (asked, started) = (times.sandbox_asked?, times.container_started?);
        let mut patches = self.patches.iter().map(|patch| patch.at);
        let patched = patches.find(|at| *at >= started)?;
        let millis = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64() * 1e3;
        Some((millis(self.created, asked), millis(started, patched)))
    }

    /// Milliseconds of the deletion without stopping the container.
    fn beyond_its_stop(&self, times: &RuntimeTimes) -> Option<f64> {
        let stop = times.container_stopped?.duration_since(times.stop_asked?);
        Some((self.deletion - stop.as_secs_f64()) * 1e3)
    }
}

/// The wall clock, as in the runtime's log.
pub(crate) fn now() -> anyhow::Result<Timestamp> {
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the times of another process's log"
    )]
    let now = std::time::SystemTime::now();
    Ok(Timestamp::try_from(now)?)
}
