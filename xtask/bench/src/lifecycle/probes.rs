//! CPU time of HTTP probes in the agent, and of exec probes on the whole host.

use std::time::Duration;

use anyhow::Context;
use futures::future::try_join_all;
use tokio::time::Instant;
use windlass_testbed::images;

use crate::bare::Bare;
use crate::fleet::Fleet;
use crate::process::machine_busy_seconds;
use crate::report::{Report, Unit};
use crate::{Options, median, names};
use xtask_run as run;

/// Port of the server in the probed pods.
const PORT: u16 = 8080;
/// HTTP probes of a pod.
const PROBES: usize = 3;
/// Max percent of a core for 300 HTTP probes per second.
const HTTP_TARGET: f64 = 3.0;
/// Max cost of an exec probe, as a multiple of the bare call.
const EXEC_TARGET: f64 = 1.2;
/// Length of a round of exec probes.
const EXEC_ROUND: Duration = Duration::from_secs(15);
/// Probes run for this time before they are measured: first attempts are bunched at the start.
const WARM_UP: Duration = Duration::from_secs(5);

/// Many pods with three HTTP probes each.
pub(super) async fn http(
    options: &Options,
    fleet: &mut Fleet,
    report: &mut Report,
) -> anyhow::Result<()> {
    let count = options.lifecycle.probed;
    run::step(&format!(
        "{count} pods with {PROBES} HTTP probes each, one a second"
    ));
    let pods = names("http", count);
    let manifests = pods.iter().map(|name| (name.clone(), http_pod(name)));
    fleet.start_manifests(manifests.collect()).await?;
    tokio::time::sleep(WARM_UP).await;
    let process = fleet.process()?;
    let before = (process.cpu_seconds()?, asked(fleet).await?);
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(options.idle_seconds)).await;
    let elapsed = begin.elapsed().as_secs_f64();
    let used = process.cpu_seconds()? - before.0;
    let asked = asked(fleet).await? - before.1;
    let rate = asked / elapsed;
    let wanted = (count * PROBES) as f64;
    anyhow::ensure!(
        rate > wanted * 0.95,
        "{rate:.0} probes a second instead of {wanted}"
    );
    let percent = 100.0 * used / elapsed;
    let what = format!("CPU with {count} pods × {PROBES} HTTP probes a second, {rate:.0} asked");
    report.figure(&what, percent, Unit::PercentOfCore, HTTP_TARGET);
    fleet.remove_pods(&pods).await
}

/// Number of HTTP probe attempts, counted by the agent.
async fn asked(fleet: &Fleet) -> anyhow::Result<f64> {
    let text = fleet.agent().metrics(true).await?;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("prober_probe_total{"));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

/// Exec probes against ExecSync calls at the same rate on the same containers. Measures
/// the CPU time of the whole host, because most is spent by the runtime.
pub(super) async fn exec(
    options: &Options,
    fleet: &mut Fleet,
    bare: &Bare,
    report: &mut Report,
) -> anyhow::Result<()> {
    let count = options.lifecycle.exec_probed;
    run::step(&format!("{count} pods with an exec probe, one a second"));
    let pods = names("exec", count);
    let manifests = pods.iter().map(|name| (name.clone(), exec_pod(name)));
    fleet.start_manifests(manifests.collect()).await?;
    tokio::time::sleep(WARM_UP).await;
    let containers = fleet.containers();
    let ids: Vec<&str> = containers
        .iter()
        .map(|(_, id, _)| id.rsplit('/').next().unwrap_or(id))
        .collect();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        for windlass in [round % 2 == 0, round % 2 != 0] {
            if windlass {
                let before = (machine_busy_seconds()?, execs(fleet).await?);
                tokio::time::sleep(EXEC_ROUND).await;
                let after = (machine_busy_seconds()?, execs(fleet).await?);
                ours.push((after.0 - before.0) / (after.1 - before.1));
            } else {
                fleet.freeze()?;
                let before = machine_busy_seconds()?;
                let calls = bare_execs(bare, &ids).await?;
                theirs.push((machine_busy_seconds()? - before) / calls as f64);
                fleet.thaw()?;
                tokio::time::sleep(WARM_UP).await;
            }
        }
    }
    let what = format!(
        "exec probe, CPU time of the whole machine, median of {} rounds",
        options.rounds
    );
    report.rounds(&what, &ours, &theirs, EXEC_TARGET);
    anyhow::ensure!(median(&ours) > 0.0, "no exec probe ran");
    fleet.remove_pods(&pods).await
}

/// Number of ExecSync calls of the agent.
async fn execs(fleet: &Fleet) -> anyhow::Result<f64> {
    let name = "kubelet_runtime_operations_total{operation_type=\"exec_sync\"}";
    let text = fleet.agent().metrics(false).await?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line
        .context("no exec_sync among the metrics")?
        .trim()
        .parse()?)
}

/// One call per second on each container, spread as by the agent.
async fn bare_execs(bare: &Bare, ids: &[&str]) -> anyhow::Result<usize> {
    let begin = Instant::now();
    let calls = ids.iter().enumerate().map(|(index, id)| async move {
        let offset = Duration::from_secs(1) * index as u32 / ids.len() as u32;
        let mut timer = tokio::time::interval_at(begin + offset, Duration::from_secs(1));
        let mut calls = 0;
        while timer.tick().await.duration_since(begin) < EXEC_ROUND {
            bare.exec(id).await?;
            calls += 1;
        }
        anyhow::Ok(calls)
    });
    let counts: Vec<usize> = try_join_all(calls).await?;
    tokio::time::sleep_until(begin + EXEC_ROUND).await;
    Ok(counts.into_iter().sum())
}

/// A server that is target of two own probes and of one of its neighbor.
fn http_pod(name: &str) -> String {
    let (busybox, pause) = (images::BUSYBOX, images::PAUSE);
    let probe = format!("{{periodSeconds: 1, httpGet: {{path: /hosts, port: {PORT}}}}}");
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  \
         - name: main\n    image: {busybox}\n    command: [httpd, -f, -p, '{PORT}', -h, /etc]\n    \
         livenessProbe: {probe}\n    readinessProbe: {probe}\n  \
         - name: side\n    image: {pause}\n    livenessProbe: {probe}\n"
    )
}

fn exec_pod(name: &str) -> String {
    let busybox = images::BUSYBOX;
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {busybox}\n    \
         command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 1000 & wait; done']\n    \
         readinessProbe: {{periodSeconds: 1, timeoutSeconds: 10, exec: {{command: ['true']}}}}\n"
    )
}
