//! `bench --isolation`: starts and probes of pods beside a hung mount and a hung CRI call, in turns with
//! the same pods without them.
//!
//! The mount is a program that waits; a proxy in front of the runtime holds the call back. Probes go to
//! a server in this process, which records when they arrive.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_testbed::agent::AgentOptions;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::cri_proxy::{Action, CriProxy, Rule, RuleHandle};
use windlass_testbed::images;

use super::Options;
use super::bare::Bare;
use super::fleet::Fleet;
use super::report::{Report, Unit};
use super::{names, percentile};
use xtask_run as run;

/// Options of `bench --isolation`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IsolationOptions {
    /// Measure pods beside a hung mount and a hung CRI call.
    #[arg(long, conflicts_with = "cluster")]
    pub(super) isolation: bool,
    /// Pods that start in each half of a round.
    #[arg(long, default_value_t = 25, requires = "isolation")]
    isolated: usize,
    /// Pods with an HTTP probe, one a second.
    #[arg(long, default_value_t = 25, requires = "isolation")]
    isolated_probed: usize,
}

/// Time between two starts: longer than a start, so that the runtime does not queue them.
const START_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which hung operations are named.
const NAMED: Duration = Duration::from_secs(5);
/// Max p99 beside the hangs, as a multiple of that without them.
const TARGET: f64 = 1.1;

/// A mount of NFS that lasts as long as the file `hangs` exists.
const MOUNT: &str = r#"#!/bin/sh
[ "$1 $2" = "-t nfs" ] || exec /bin/mount "$@"
for last; do :; done
while [ -e "${0%/*}/hangs" ]; do sleep 0.1; done
exec /bin/mount --bind "${0%/*}/export" "$last"
"#;

/// The command that repeats this run.
pub(super) fn command(options: &Options) -> String {
    let IsolationOptions {
        isolated,
        isolated_probed,
        ..
    } = options.isolation;
    format!(
        "cargo xtask bench --isolation --isolated {isolated} --isolated-probed {isolated_probed} \
         --rounds {} {}",
        options.rounds,
        options.binary(),
    )
}

/// Runs all measurements.
pub(super) async fn measure(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let containerd = PrivateContainerd::start("bench", run::step).await?;
    let bare = Bare::new(&containerd, options.concurrency)?;
    let hangs = Hangs::prepare(&containerd)?;
    let mut fleet = Fleet::with(&containerd, binary, hangs.options(options)?).await?;
    let probes = ProbeServer::start().await?;
    let mut report = Report::default();
    let measured = rounds(options, &mut fleet, (&hangs, &probes, &bare), &mut report).await;
    hangs.end();
    measured?;
    fleet.stop().await?;
    containerd.stop().await?;
    Ok(report)
}

/// Start times and times between probe attempts, in seconds.
#[derive(Debug, Default)]
struct Figures {
    starts: Vec<f64>,
    probes: Vec<f64>,
}

async fn rounds(
    options: &Options,
    fleet: &mut Fleet,
    (hangs, probes, bare): (&Hangs, &ProbeServer, &Bare),
    report: &mut Report,
) -> anyhow::Result<()> {
    let probed = names("probed", options.isolation.isolated_probed);
    let manifests = probed
        .iter()
        .map(|name| (name.clone(), probes.manifest(name)));
    fleet.start_manifests(manifests.collect()).await?;
    let (mut with, mut without) = (Figures::default(), Figures::default());
    for round in 0..options.rounds {
        run::step(&format!(
            "{} pods with and without hangs, {} of {}",
            options.isolation.isolated,
            round + 1,
            options.rounds
        ));
        for is_hung in [round % 2 == 0, round % 2 != 0] {
            let pods = names(
                &format!("round-{round}-{is_hung}"),
                options.isolation.isolated,
            );
            let sick = [format!("sick-mount-{round}"), format!("sick-call-{round}")];
            let hang = match is_hung {
                true => Some(hangs.begin(fleet, &sick).await?),
                false => None,
            };
            probes.take();
            let started = fleet.start_pods_apart(&pods, START_INTERVAL).await?;
            let figures = if is_hung { &mut with } else { &mut without };
            figures.probes.extend(intervals(&probes.take()));
            figures.starts.extend(started.seconds);
            fleet.remove_pods(&pods).await?;
            if let Some(hang) = hang {
                hangs.release(fleet, &hang, &sick).await?;
            }
            // the agent never becomes idle, because it probes
            bare.remove_dead_beside(probed.len()).await?;
        }
    }
    for (percent, target) in [(50, f64::NAN), (99, TARGET)] {
        let what = format!(
            "start of {} pods, p{percent}, with a hung mount and a hung CRI call",
            with.starts.len()
        );
        let [hung, usual] = [&with, &without].map(|it| percentile(&it.starts, percent));
        report.against(&what, hung, usual, Unit::Seconds, target);
        let what = format!("time between two probe attempts, p{percent}, with the same");
        let [hung, usual] = [&with, &without].map(|it| percentile(&it.probes, percent));
        report.against(&what, hung, usual, Unit::Seconds, target);
    }
    fleet.remove_pods(&probed).await
}

/// Times between consecutive attempts of each pod.
fn intervals(attempts: &BTreeMap<String, Vec<Instant>>) -> Vec<f64> {
    let pairs = attempts.values().flat_map(|times| times.windows(2));
    pairs
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect()
}

/// The hung mount and the hung call.
#[derive(Debug)]
struct Hangs {
    programs: PathBuf,
    proxy: CriProxy,
}

impl Hangs {
    fn prepare(containerd: &PrivateContainerd) -> anyhow::Result<Self> {
        let programs = containerd.base().join("programs");
        std::fs::create_dir_all(programs.join("export"))?;
        let mount = programs.join("mount");
        std::fs::write(&mount, MOUNT)?;
        std::fs::set_permissions(&mount, std::fs::Permissions::from_mode(0o755))?;
        let socket = containerd.base().join("proxy.sock");
        let proxy = CriProxy::start(&socket, &containerd.socket())?;
        Ok(Self { programs, proxy })
    }

    fn options(&self, options: &Options) -> anyhow::Result<AgentOptions> {
        let path = std::env::var("PATH").context("no PATH")?;
        let path = format!("{}:{path}", self.programs.display());
        Ok(AgentOptions {
            args: vec![
                format!("--container-runtime-endpoint={}", self.proxy.endpoint()),
                format!("--start-concurrency={}", options.concurrency),
            ],
            env: vec![("PATH".to_owned(), path)],
            ..AgentOptions::default()
        })
    }

    fn flag(&self) -> PathBuf {
        self.programs.join("hangs")
    }

    /// Starts two sick pods, and checks that the agent names both of their operations.
    async fn begin(
        &self,
        fleet: &Fleet,
        [mount, call]: &[String; 2],
    ) -> anyhow::Result<RuleHandle> {
        std::fs::write(self.flag(), "")?;
        let rule = Rule::new("RunPodSandbox", Action::Hang).with(call);
        let rule = self.proxy.add(rule);
        fleet.put(mount, &sick_pod(mount, true))?;
        fleet.put(call, &sick_pod(call, false))?;
        tokio::time::sleep(NAMED).await;
        let metrics = fleet.agent().metrics(false).await?;
        for kind in ["volume", "runtime_call"] {
            let line = format!("windlass_hung_operations{{kind=\"{kind}\"}} 1");
            let is_named = metrics.lines().any(|it| it == line);
            anyhow::ensure!(is_named, "no {kind} is named as hung after {NAMED:?}");
        }
        Ok(rule)
    }

    /// Ends the hangs, and removes the pods when they run.
    async fn release(
        &self,
        fleet: &mut Fleet,
        rule: &RuleHandle,
        pods: &[String],
    ) -> anyhow::Result<()> {
        self.end();
        rule.release();
        fleet.wait_ready(pods).await?;
        fleet.remove_pods(pods).await
    }

    fn end(&self) {
        // absent without a hang
        let _ = std::fs::remove_file(self.flag());
    }
}

fn sick_pod(name: &str, mounts: bool) -> String {
    let pause = images::PAUSE;
    let (volumes, mounts) = match mounts {
        true => (
            "  volumes: [{name: share, nfs: {server: dead, path: /export}}]\n",
            "    volumeMounts: [{name: share, mountPath: /share}]\n",
        ),
        false => ("", ""),
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n{volumes}  containers:\n  - name: main\n    \
         image: {pause}\n{mounts}"
    )
}

/// A server that responds to probes and records them.
#[derive(Debug)]
struct ProbeServer {
    port: u16,
    attempts: Arc<Mutex<BTreeMap<String, Vec<Instant>>>>,
    server: JoinHandle<()>,
}

impl ProbeServer {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let attempts = Arc::<Mutex<BTreeMap<String, Vec<Instant>>>>::default();
        let recorded = Arc::clone(&attempts);
        let server = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let at = Instant::now();
                let recorded = Arc::clone(&recorded);
                tokio::spawn(async move {
                    let mut head = [0; 512];
                    let read = stream.read(&mut head).await.unwrap_or(0);
                    let head = String::from_utf8_lossy(&head[..read]).into_owned();
                    if let Some(path) = head.split(' ').nth(1) {
                        let mut recorded = lock(&recorded);
                        recorded.entry(path.to_owned()).or_default().push(at);
                    }
                    let reply =
                        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    // the prober may be gone
                    let _ = stream.write_all(reply).await;
                });
            }
        });
        Ok(Self {
            port,
            attempts,
            server,
        })
    }

    /// Returns the attempts since the last call.
    fn take(&self) -> BTreeMap<String, Vec<Instant>> {
        std::mem::take(&mut lock(&self.attempts))
    }

    fn manifest(&self, name: &str) -> String {
        let (pause, port) = (images::PAUSE, self.port);
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  \
             terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {pause}\n    \
             readinessProbe: {{periodSeconds: 1, timeoutSeconds: 5, \
             httpGet: {{host: 127.0.0.1, path: /{name}, port: {port}}}}}\n"
        )
    }
}

impl Drop for ProbeServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock(
    attempts: &Mutex<BTreeMap<String, Vec<Instant>>>,
) -> MutexGuard<'_, BTreeMap<String, Vec<Instant>>> {
    attempts.lock().unwrap_or_else(PoisonError::into_inner)
}
