//! One run: boots, cuts and the report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use windlass_fake_api::{FakeApiServer, KubeconfigUser, TlsServer};
use windlass_testbed::agent::NODE_NAME;
use windlass_types::Pod;
use windlass_types::corev1::{ConfigMap, Secret, ServiceAccount};

use crate::Options;
use crate::fleet::Member;
use crate::ledger::Promise;
use crate::leftovers::Kind;
use crate::report::{Report, percentile};

use super::compare::{Expected, container_ids, unmet};
use super::history::{History, Loss, PodState};
use super::plan::{Cut, Durations, Stage, by_stage, cuts};
use super::snapshot::{self, Snapshot};
use super::{HOST_ADDRESS, Machine, pods};

/// Timeout until all pods are as expected after power-on, on an emulated processor.
const CONVERGE_TIMEOUT: Duration = Duration::from_secs(900);
/// Timeout until nothing of removed pods is left: garbage collection of containers waits a minute.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of reading the API server.
const POLL: Duration = Duration::from_millis(500);
/// Interval of snapshots, each of which takes the machine seconds.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(5);
/// Lifetime of the node's certificate, longer than any run.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const NAMESPACE: &str = "default";
/// Value of the key in the ConfigMap.
const MODE: &str = "calm";
/// Lines of the agent's log that are printed of a boot that did not converge.
const LOG_LINES: usize = 60;

/// Cuts the power and returns the table.
pub(super) async fn run<M: Machine>(
    options: &Options,
    agent: &Path,
    machine: &mut M,
) -> anyhow::Result<Report> {
    let plan = cuts(options.seed, options.power_cuts.unwrap_or_default());
    let control_plane = ControlPlane::start().await?;
    run_plan(
        &plan,
        pods::members(options.pods()),
        control_plane,
        agent,
        machine,
    )
    .await
}

async fn run_plan<M: Machine>(
    plan: &[Cut],
    members: Vec<Member>,
    control_plane: ControlPlane,
    agent: &Path,
    machine: &mut M,
) -> anyhow::Result<Report> {
    let kubeconfig = control_plane.kubeconfig()?;
    machine
        .prepare(agent, &pods::files(&members, &kubeconfig))
        .await?;
    let mut run = Run::new(control_plane, members);
    let result = Box::pin(run.cut_all(machine, plan)).await;
    let mut report = run.report(plan, machine.hung_boots());
    // what was seen until then is as true
    if let Err(error) = result {
        report.count(format!("ended early: {error:#}"), 1, 0);
    }
    Ok(report)
}

/// The API server, on the host.
struct ControlPlane {
    api: FakeApiServer,
    /// Serves until dropped.
    server: TlsServer,
}

impl ControlPlane {
    async fn start() -> anyhow::Result<Self> {
        let api = FakeApiServer::new();
        let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        let account = json!({ "metadata": metadata("default") });
        api.create::<ServiceAccount>(&serde_json::from_value(account)?);
        let map = json!({ "metadata": metadata("settings"), "data": { "mode": MODE } });
        api.create::<ConfigMap>(&serde_json::from_value(map)?);
        let secret = json!({ "metadata": metadata(pods::SECRET), "data": { "key": "dmFsdWU=" } });
        api.create::<Secret>(&serde_json::from_value(secret)?);
        let server = api.serve_tls().await?;
        Ok(Self { api, server })
    }

    /// Kubeconfig of the node for use in the machine.
    fn kubeconfig(&self) -> anyhow::Result<Value> {
        let user = format!("system:node:{NODE_NAME}");
        let groups = ["system:nodes"];
        let certificate = self
            .server
            .issue_client_cert(&user, &groups, CERTIFICATE_LIFETIME)?;
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("kubeconfig");
        self.server
            .kubeconfig(&path, KubeconfigUser::Certificate(&certificate))?;
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        let port = self.server.address().port();
        cluster["server"] = json!(format!("https://{HOST_ADDRESS}:{port}"));
        // the certificate is for the loopback address
        cluster["tls-server-name"] = json!("localhost");
        Ok(config)
    }
}

/// Returns the pods of the API server.
fn states(api: &FakeApiServer) -> Vec<PodState> {
    api.list::<Pod>().iter().map(PodState::new).collect()
}

/// A boot.
struct Boot {
    at: Instant,
    /// Containers of earlier boots.
    before: BTreeSet<String>,
}

struct Run {
    api: FakeApiServer,
    _server: TlsServer,
    history: Arc<Mutex<History>>,
    observer: JoinHandle<()>,
    expected: Vec<Expected>,
    /// Pods that the run created and has not deleted, oldest first.
    created: Vec<String>,
    /// Static pods by the name of their manifest.
    manifests: Vec<String>,
    /// Number of pods that were created so far.
    creations: usize,
    /// Number that the emptyDir of a pod has on the disk, by UID.
    data: BTreeMap<String, usize>,
    data_checks: usize,
    /// File without a flush, of the last cut.
    unsynced: Option<usize>,
    unsynced_lost: usize,
    unsynced_checked: usize,
    cuts: usize,
    durations: Durations,
    boots: usize,
    converged: Vec<Duration>,
    agent_exits: usize,
    damaged: BTreeSet<String>,
    left: BTreeMap<Kind, BTreeSet<String>>,
    /// Pods that the API server still has at the end.
    objects_left: usize,
    /// Addresses of sandboxes that containerd forgot.
    forgotten: BTreeSet<String>,
    /// Empty result files of CNI.
    empty_results: usize,
    /// What was wrong, for a person.
    lines: Vec<String>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.observer.abort();
    }
}

fn lock(history: &Mutex<History>) -> MutexGuard<'_, History> {
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn new(control_plane: ControlPlane, members: Vec<Member>) -> Self {
        let ControlPlane { api, server } = control_plane;
        let history = Arc::<Mutex<History>>::default();
        let observer = tokio::spawn(observe(api.clone(), history.clone()));
        let is_static = members.iter().filter(|member| !member.api);
        let mut run = Self {
            api,
            _server: server,
            history,
            observer,
            expected: Vec::new(),
            created: Vec::new(),
            manifests: is_static.map(|member| member.name.clone()).collect(),
            creations: 0,
            data: BTreeMap::new(),
            data_checks: 0,
            unsynced: None,
            unsynced_lost: 0,
            unsynced_checked: 0,
            cuts: 0,
            durations: Durations::default(),
            boots: 0,
            converged: Vec::new(),
            agent_exits: 0,
            damaged: BTreeSet::new(),
            left: BTreeMap::new(),
            objects_left: 0,
            forgotten: BTreeSet::new(),
            empty_results: 0,
            lines: Vec::new(),
        };
        for member in &members {
            run.add(member);
        }
        run
    }

    /// Expects the pod from now on, and creates it unless it is static.
    fn add(&mut self, member: &Member) {
        let name = format!("{}-{NODE_NAME}", member.name);
        let promise = member.kind.promise();
        lock(&self.history).add(&name, promise);
        if member.api {
            // a manifest of this program, tested to be a pod
            match serde_json::from_value::<Pod>(pods::manifest(member)) {
                Ok(pod) => drop(self.api.create(&pod)),
                Err(error) => self.lines.push(format!("{name}: {error}")),
            }
        }
        self.expected.push(Expected { name, promise });
    }

    async fn cut_all<M: Machine>(&mut self, machine: &mut M, plan: &[Cut]) -> anyhow::Result<()> {
        for (number, cut) in plan.iter().enumerate() {
            xtask_run::step(&format!(
                "power cut {} of {}: {}, after {:.1} s",
                number + 1,
                plan.len(),
                cut.stage.name(),
                self.durations.delay(*cut).as_secs_f64()
            ));
            Box::pin(self.boot_and_cut(machine, *cut)).await?;
        }
        xtask_run::step("the last boot");
        let booted = self.boot(machine).await?;
        Box::pin(self.converge(machine, booted)).await?;
        Box::pin(self.remove_all(machine)).await
    }

    async fn boot<M: Machine>(&mut self, machine: &mut M) -> anyhow::Result<Boot> {
        let before = container_ids(&states(&self.api));
        machine.power_on().await?;
        let at = Instant::now();
        Ok(Boot { at, before })
    }

    async fn boot_and_cut<M: Machine>(&mut self, machine: &mut M, cut: Cut) -> anyhow::Result<()> {
        let booted = self.boot(machine).await?;
        match cut.stage {
            Stage::Boot => {}
            Stage::Start => {
                machine.system_started().await?;
                agent_started(machine).await?;
            }
            Stage::Rest | Stage::Create | Stage::Delete => {
                self.converge(machine, booted).await?;
                self.prepare_cut(machine, cut.stage).await?;
            }
        }
        sleep(self.durations.delay(cut)).await;
        if !cut.stage.is_early() {
            let number = self.cuts;
            machine.run(&snapshot::write_unsynced(number)).await?;
            self.unsynced = Some(number);
        }
        machine.cut().await?;
        self.cuts += 1;
        lock(&self.history).record_cut();
        Ok(())
    }

    /// Writes what must survive the cut, then edits the pods.
    async fn prepare_cut<M: Machine>(
        &mut self,
        machine: &mut M,
        stage: Stage,
    ) -> anyhow::Result<()> {
        let with_data = self.pods_with_data();
        let number = self.cuts;
        machine
            .run(&snapshot::write_data(&with_data, number))
            .await?;
        self.data = with_data.into_iter().map(|uid| (uid, number)).collect();
        match stage {
            Stage::Create => {
                self.creations += 1;
                let member = pods::created(self.creations);
                self.created.push(format!("{}-{NODE_NAME}", member.name));
                self.add(&member);
            }
            Stage::Delete if !self.created.is_empty() => {
                let name = self.created.remove(0);
                self.remove(&name);
            }
            _ => {}
        }
        Ok(())
    }

    /// Deletes a pod of the API server.
    fn remove(&mut self, name: &str) {
        let uid = states(&self.api)
            .into_iter()
            .find(|pod| pod.name == name)
            .map(|pod| pod.uid);
        self.data.retain(|of, _| Some(of) != uid.as_ref());
        self.expected.retain(|it| it.name != name);
        self.api.delete::<Pod>(Some(NAMESPACE), name, None);
    }

    /// UIDs of the pods that run with an emptyDir.
    fn pods_with_data(&self) -> BTreeSet<String> {
        let steady = |pod: &PodState| {
            let mut expected = self.expected.iter();
            expected.any(|it| it.name == pod.name && it.promise == Promise::Steady)
        };
        let pods = states(&self.api).into_iter().filter(steady);
        pods.map(|pod| pod.uid).collect()
    }

    /// Waits until the pods have converged and nothing is left of others, and records what is not so.
    async fn converge<M: Machine>(&mut self, machine: &mut M, boot: Boot) -> anyhow::Result<()> {
        self.boots += 1;
        machine.system_started().await?;
        let boot_time = boot.at.elapsed();
        let mut wrong = self.pods_converged(&boot).await;
        let time = boot.at.elapsed();
        let empty = machine.run(snapshot::REMOVE_EMPTY_RESULTS).await?;
        self.empty_results += empty.lines().filter(|line| !line.trim().is_empty()).count();
        let snapshot = self.settled(machine).await?;
        if !snapshot.is_agent_active() {
            wrong.push("the agent's service is not active".to_owned());
        }
        if wrong.is_empty() {
            xtask_run::step(&format!("converged after {:.1} s", time.as_secs_f64()));
            self.converged.push(time);
            self.durations = Durations {
                boot: boot_time,
                start: time.saturating_sub(boot_time),
            };
        } else {
            let log = machine
                .run(&format!(
                    "journalctl -u windlass -b -n {LOG_LINES} -o cat --no-pager"
                ))
                .await?;
            eprintln!("{log}");
            self.note(wrong);
        }
        self.check(&snapshot);
        Ok(())
    }

    /// Waits until the pods have converged; returns what is not as expected at the timeout.
    async fn pods_converged(&self, boot: &Boot) -> Vec<String> {
        let end = boot.at + CONVERGE_TIMEOUT;
        loop {
            let pods = states(&self.api);
            lock(&self.history).observe(&pods);
            let lines = unmet(&self.expected, &pods, &boot.before);
            if lines.is_empty() || Instant::now() > end {
                return lines;
            }
            sleep(POLL).await;
        }
    }

    /// Returns the first snapshot without leftovers, or the last one at the timeout.
    async fn settled<M: Machine>(&mut self, machine: &mut M) -> anyhow::Result<Snapshot> {
        let end = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let live: BTreeSet<String> = states(&self.api).into_iter().map(|it| it.uid).collect();
            let text = machine.run(&snapshot::script(&live)).await?;
            let snapshot = Snapshot::parse(&text).context("an incomplete snapshot")?;
            let left = snapshot.leftovers(&live);
            if left.is_empty() {
                return Ok(snapshot);
            }
            if Instant::now() > end {
                for (kind, names) in left {
                    self.note(names.iter().map(|name| format!("left: {kind}: {name}")));
                    self.left.entry(kind).or_default().extend(names);
                }
                return Ok(snapshot);
            }
            sleep(SNAPSHOT_INTERVAL).await;
        }
    }

    /// Compares a snapshot with what must have survived the cuts.
    fn check(&mut self, snapshot: &Snapshot) {
        self.agent_exits += snapshot.agent_exits();
        self.forgotten.extend(snapshot.forgotten_addresses());
        let new: Vec<String> = snapshot
            .damaged_files()
            .difference(&self.damaged)
            .cloned()
            .collect();
        self.note(new.iter().map(|name| format!("set aside: {name}")));
        self.damaged.extend(new);
        let found = snapshot.data();
        for (uid, number) in &self.data {
            self.data_checks += 1;
            if found.get(uid.as_str()) != Some(number) {
                let what = format!("{uid}: {:?} in place of {number}", found.get(uid.as_str()));
                lock(&self.history).record_loss(Loss::Data, what);
            }
        }
        for what in snapshot.other_payloads(MODE) {
            lock(&self.history).record_loss(Loss::Payload, what);
        }
        if let Some(number) = self.unsynced.take() {
            self.unsynced_checked += 1;
            self.unsynced_lost += usize::from(!snapshot.has_unsynced(number));
        }
    }

    fn note(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            let line = format!("after {} cuts: {line}", self.cuts);
            eprintln!("      {line}");
            self.lines.push(line);
        }
    }

    /// Removes all pods and counts what is left.
    async fn remove_all<M: Machine>(&mut self, machine: &mut M) -> anyhow::Result<()> {
        xtask_run::step("removing all pods");
        let names: Vec<String> = self.expected.drain(..).map(|it| it.name).collect();
        for name in &self.manifests {
            let path = format!("{}/{name}.yaml", pods::MANIFESTS);
            machine.run(&format!("rm {path}")).await?;
        }
        let of_manifest = |name: &String| {
            let mut manifests = self.manifests.iter();
            manifests.any(|manifest| format!("{manifest}-{NODE_NAME}") == *name)
        };
        let of_api: Vec<&String> = names.iter().filter(|name| !of_manifest(name)).collect();
        for name in of_api {
            self.api.delete::<Pod>(Some(NAMESPACE), name, None);
        }
        self.data.clear();
        let end = Instant::now() + SETTLE_TIMEOUT;
        while !states(&self.api).is_empty() && Instant::now() < end {
            sleep(POLL).await;
        }
        let remain = unmet(&[], &states(&self.api), &BTreeSet::new());
        self.objects_left = remain.len();
        self.note(remain);
        let snapshot = self.settled(machine).await?;
        self.check(&snapshot);
        Ok(())
    }

    fn report(mut self, plan: &[Cut], hung_boots: usize) -> Report {
        let mut report = Report::default();
        report.figure("power cuts", self.cuts);
        for (stage, count) in by_stage(plan) {
            report.figure(format!("power cuts {}", stage.name()), count);
        }
        report.figure("boots that were not cut before they converged", self.boots);
        let failed = self.boots.saturating_sub(self.converged.len());
        report.count("of them not converged", failed, 0);
        report.figure("boots repeated, because the kernel hung", hung_boots);
        for percent in [50, 100] {
            let time = percentile(&self.converged, percent);
            let what = format!("from power-on until all pods are as expected, p{percent}");
            report.time(what, time, CONVERGE_TIMEOUT);
        }
        report.figure(
            "files without a flush that the cut lost",
            format!("{} of {}", self.unsynced_lost, self.unsynced_checked),
        );
        let what = "addresses of sandboxes that containerd forgot";
        report.figure(what, self.forgotten.len());
        let what = "empty result files of CNI, removed after the pods had started";
        report.figure(what, self.empty_results);
        report.count("state files set aside", self.damaged.len(), 0);
        report.count("exits of the agent", self.agent_exits, 0);
        report.figure("checks of synced data in emptyDirs", self.data_checks);
        let (losses, restarts) = {
            let history = lock(&self.history);
            (history.losses(), history.restarts_of_loops())
        };
        report.figure("restarts of crash loops", restarts);
        for kind in Loss::ALL {
            let count = losses.iter().filter(|(loss, _)| *loss == kind).count();
            report.count(kind.to_string(), count, 0);
        }
        for kind in [Kind::Mounts, Kind::Cgroups, Kind::Files, Kind::Sandboxes] {
            let count = self.left.remove(&kind).unwrap_or_default().len();
            report.count(format!("left behind: {kind}"), count, 0);
        }
        report.count("left behind: pods in the API server", self.objects_left, 0);
        for (loss, what) in &losses {
            eprintln!("      {loss}: {what}");
        }
        for line in &self.lines {
            eprintln!("      {line}");
        }
        report
    }
}

/// Waits until the agent's service is active.
async fn agent_started<M: Machine>(machine: &mut M) -> anyhow::Result<()> {
    let end = Instant::now() + CONVERGE_TIMEOUT;
    while machine.run("systemctl is-active windlass").await?.trim() != "active" {
        anyhow::ensure!(Instant::now() < end, "the agent's service does not start");
        sleep(POLL * 2).await;
    }
    Ok(())
}

/// Records what the API server shows.
async fn observe(api: FakeApiServer, history: Arc<Mutex<History>>) {
    loop {
        sleep(POLL).await;
        lock(&history).observe(&states(&api));
    }
}

#[cfg(test)]
mod tests;
