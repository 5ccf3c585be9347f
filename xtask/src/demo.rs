//! `demo`: runs the agent on a private containerd and removes both at the end.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, MissedTickBehavior};
use windlass_testbed::agent::{Agent, AgentOptions};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::pod_watch::{PodTable, PodView};

use crate::phases;
use crate::terminal::{self, Screen};
use xtask_run as run;

/// Time for the examples to reach their expected states: a few seconds, and 10 s of restart
/// back-off.
const ONCE_DEADLINE: Duration = Duration::from_secs(120);
/// Interval for redrawing ages.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Stop when the examples have reached their expected states; fail otherwise.
    #[arg(long)]
    once: bool,
    /// Keep everything running at the end; the next demo removes it.
    #[arg(long)]
    keep: bool,
    /// Cargo profile to build windlass with.
    #[arg(long, default_value = "dev")]
    profile: String,
    /// Use this windlass binary instead of building one.
    #[arg(long, conflicts_with = "profile")]
    windlass: Option<PathBuf>,
    /// File or directory of manifests to run.
    #[arg(long, default_value = "examples")]
    manifests: PathBuf,
}

/// A pod of `examples/` and its expected state.
struct Expectation {
    pod: &'static str,
    state: &'static str,
    reached: fn(&PodView) -> bool,
}

const EXPECTATIONS: &[Expectation] = &[
    Expectation {
        pod: "web",
        state: "running and ready with its sidecar",
        reached: |pod| {
            pod.phase == "Running"
                && pod.ready
                && pod
                    .init_containers
                    .iter()
                    .any(|c| c.name == "clock" && c.state == "running")
        },
    },
    Expectation {
        pod: "job",
        state: "succeeded",
        reached: |pod| pod.phase == "Succeeded",
    },
    Expectation {
        pod: "crash-looper",
        state: "waiting in CrashLoopBackOff after a restart",
        reached: |pod| pod.status() == "CrashLoopBackOff" && pod.restarts() >= 1,
    },
];

pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    if options.once && options.manifests.as_os_str() != "examples" {
        bail!("--once knows the expected states of examples/ only");
    }
    let manifests = run::root().join(&options.manifests);
    if !manifests.exists() {
        bail!("{} does not exist", manifests.display());
    }
    let binary = run::agent(options.windlass.as_deref(), &options.profile)?;

    let mut interrupted = pin!(run::interrupted());
    // An interrupt drops the future and everything that it started.
    let containerd = tokio::select! {
        containerd = PrivateContainerd::start("demo", run::step) => containerd?,
        _ = &mut interrupted => bail!("interrupted"),
    };
    run::step(&format!(
        "starting windlass on {}",
        options.manifests.display()
    ));
    let mut agent = Agent::start(&containerd, &binary, &manifests, AgentOptions::default())?;
    if !options.once {
        run::step("Ctrl-C ends the demo and removes everything it made");
    }

    let outcome = tokio::select! {
        outcome = show(&mut agent, options.once) => outcome,
        interrupted = &mut interrupted => interrupted,
    };
    if outcome.is_err() {
        eprintln!("\nlast lines of windlass' log:\n{}", agent.log_tail(20));
    }
    if options.keep {
        run::step("still running; try:");
        eprintln!(
            "      cargo run -q -p windlass-ctl -- --socket {} get pods",
            agent.socket().display()
        );
        eprintln!(
            "      crictl --runtime-endpoint {} ps -a",
            containerd.endpoint()
        );
        eprintln!("      less {}", agent.log_file().display());
        agent.abandon();
        containerd.abandon();
        return outcome;
    }
    run::step("removing everything");
    let stopped = agent.terminate().await;
    containerd.stop().await?;
    outcome.and(stopped)
}

/// Shows the pods forever, or with `once` until they are in their expected states.
async fn show(agent: &mut Agent, once: bool) -> anyhow::Result<()> {
    let mut watch = agent.watch();
    let mut screen = Screen::stdout();
    let mut redraw = tokio::time::interval(REDRAW_INTERVAL);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let started = Instant::now();
    loop {
        tokio::select! {
            changed = watch.changed() => changed.context("the watch ended")?,
            _ = redraw.tick() => agent.check_alive()?,
        }
        let pods = watch.now();
        draw(&mut screen, &pods);
        if once {
            let Some(missing) = missing(&pods) else {
                run::step(&format!(
                    "all examples are in their expected states after {:.1} s",
                    started.elapsed().as_secs_f64()
                ));
                return Ok(());
            };
            if started.elapsed() > ONCE_DEADLINE {
                bail!("not reached within {ONCE_DEADLINE:?}: {missing}");
            }
        }
    }
}

/// Returns the states that are not reached yet; `None` if all are.
fn missing(pods: &PodTable) -> Option<String> {
    let missing: Vec<String> = EXPECTATIONS
        .iter()
        .filter_map(|expected| match pods.pod(expected.pod) {
            Some(pod) if (expected.reached)(pod) => None,
            Some(pod) => Some(format!(
                "{} is {}, expected: {}",
                expected.pod,
                pod.status(),
                expected.state
            )),
            None => Some(format!("{} is not there", expected.pod)),
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

fn draw(screen: &mut Screen, pods: &PodTable) {
    let header = [
        "NAME", "READY", "STATUS", "RESTARTS", "AGE", "START", "BLOCKER",
    ]
    .map(str::to_owned);
    let mut rows = vec![header.to_vec()];
    let mut sorted: Vec<&PodView> = pods.pods.values().collect();
    sorted.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut key = pods.connected.to_string();
    for pod in sorted {
        let init = pod.init_containers.iter();
        let sidecars = init.filter(|c| pod.sidecars.contains(&c.name));
        let containers: Vec<_> = pod.containers.iter().chain(sidecars).collect();
        let ready = containers.iter().filter(|c| c.ready).count();
        let blocker = pod
            .blocker
            .as_ref()
            .map(|b| format!("{}: {}", b.reason, b.message));
        let row = vec![
            pod.name.clone(),
            format!("{ready}/{}", containers.len()),
            pod.status().to_owned(),
            pod.restarts().to_string(),
            phases::age(&pod.timings),
            phases::line(&pod.timings),
            blocker.unwrap_or_default(),
        ];
        // All columns but the age.
        key.push_str(&format!("{:?}{:?}", &row[..4], &row[5..6]));
        rows.push(row);
    }
    let mut text = terminal::table(&rows);
    if !pods.connected {
        text.push_str("(waiting for windlass)\n");
    }
    screen.draw(&text, &key);
}
