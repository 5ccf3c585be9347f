//! One run: pods start, faults are injected, everything is deleted, and the losses are counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use windlass_fake_api::FakeApiServer;
use windlass_testbed::pod_watch::{PodTable, PodWatch};

use crate::Options;
use crate::faults::{self, Disk, POLL, Stopped};
use crate::fleet::{Fleet, Member, api_ready};
use crate::fuse::HungMount;
use crate::instances::{self, Expected, Instances};
use crate::ledger::{Ledger, Loss, Promise};
use crate::leftovers::{self, Counts, Kind};
use crate::plan::{Fault, Plan, Step};
use crate::report::{Report, percentile};

/// Timeout of the start of all pods, on a host whose cores others use too.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout until everything is in service after a fault.
const REST_TIMEOUT: Duration = Duration::from_secs(180);
/// Timeout of the removal of everything, garbage collection included.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(420);
/// Budget of the time until everything is in service after the agent was killed.
const BACK_BUDGET: Duration = Duration::from_secs(20);
/// A status reaches the API server, and a list of the runtime this program, within this time after the
/// local socket.
const DELAY: Duration = Duration::from_secs(5);
/// Losses that are printed.
const SHOWN: usize = 40;
/// A shim that containerd 1.6 forgets when a RunPodSandbox call is cut off while it starts the shim: it
/// is in no list, so no client of the CRI can remove it.
const FORGOTTEN_SHIMS: &str = "shims that containerd has forgotten";
/// One in so many kills of the agent; measured are 1 of 300, and 3 of 150 and 27 of 1,000 on a host whose
/// cores are busy otherwise.
const KILLS_PER_SHIM: usize = 25;
/// A killed containerd forgets the shims of sandboxes in creation, at most one for each start slot.
const SHIMS_PER_CONTAINERD: usize = 4;
/// The pod on the file system that hangs.
const ON_FUSE: &str = "fuse";

/// Runs the faults and returns the table.
pub(crate) async fn shake(options: &Options, binary: &Path) -> anyhow::Result<Report> {
    let mut disk = None;
    let wants_disk = options.faults().contains(&Fault::Disk);
    let fleet = Fleet::start(binary, |root| {
        if wants_disk {
            disk = Some(Disk::mount(root)?);
        }
        Ok(())
    });
    let fleet = fleet.await?;
    let mut run = Run::new(options, fleet, disk);
    let report = run.execute(options).await;
    report.or_else(|error| {
        let kept = run.keep_logs(options)?;
        Err(error.context(format!("the run ended early; logs: {}", kept.display())))
    })
}

/// What the observers record.
#[derive(Debug, Default)]
struct Record {
    ledger: Ledger,
    instances: Instances,
    losses: Vec<(Loss, String)>,
    /// Time of the last change of the Ready condition in the API, by pod.
    ready_since: BTreeMap<String, String>,
    /// Number of snapshots of the agent's pods so far.
    snapshots: u64,
    /// The last kill of the agent, until the pods are back.
    pending: Option<Pending>,
    /// Times until the pods were back in service after a kill of the agent.
    back: Vec<Duration>,
}

/// A kill of the agent.
#[derive(Debug)]
struct Pending {
    at: Instant,
    /// Number of snapshots before it.
    snapshots: u64,
    /// Pods that were ready.
    ready: Vec<String>,
}

impl Record {
    /// Measures the time since the last kill once the pods that were ready are ready again.
    fn observe_back(&mut self, table: &PodTable) {
        let back = self.pending.take_if(|pending| {
            let mut ready = pending.ready.iter();
            table.connected
                && table.snapshots > pending.snapshots
                && ready.all(|name| match self.ledger.is_known(name) {
                    true => table.pod(name).is_some_and(|pod| pod.ready),
                    // deleted by the run since
                    false => true,
                })
        });
        self.back.extend(back.map(|pending| pending.at.elapsed()));
    }
}

type Shared = Arc<Mutex<Record>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Record> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Run {
    fleet: Fleet,
    watch: PodWatch,
    record: Shared,
    disk: Option<Disk>,
    members: Vec<Member>,
    edited: BTreeMap<usize, Member>,
    generation: usize,
    before: Counts,
    injected: BTreeMap<Fault, usize>,
    skipped: usize,
    observers: Vec<JoinHandle<()>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        for observer in &self.observers {
            observer.abort();
        }
    }
}

impl Run {
    fn new(options: &Options, fleet: Fleet, disk: Option<Disk>) -> Self {
        Self {
            watch: fleet.agent.watch(),
            fleet,
            record: Shared::default(),
            disk,
            members: Member::all(options.pods()),
            edited: BTreeMap::new(),
            generation: 0,
            before: Counts::default(),
            injected: BTreeMap::new(),
            skipped: 0,
            observers: Vec::new(),
        }
    }

    async fn execute(&mut self, options: &Options) -> anyhow::Result<Report> {
        self.start_pods().await?;
        self.inject_all(options).await?;
        self.finish(options).await
    }

    fn own_mounts(&self) -> Vec<PathBuf> {
        let disk = self.disk.iter().map(|disk| disk.place().to_owned());
        disk.collect()
    }

    async fn start_pods(&mut self) -> anyhow::Result<()> {
        let connected = |table: &PodTable| table.connected;
        self.watch
            .wait_for("the agent answers", START_TIMEOUT, connected)
            .await?;
        let own = self.own_mounts();
        self.before = self.started(&own).await?;
        self.observers.push(tokio::spawn(observe_statuses(
            self.fleet.agent.watch(),
            self.record.clone(),
        )));
        self.observers.push(tokio::spawn(observe_runtime(
            self.fleet.containerd.socket(),
            self.record.clone(),
        )));
        self.observers.push(tokio::spawn(observe_api(
            self.fleet.api.clone(),
            self.record.clone(),
            self.members.iter().map(|m| m.name.clone()).collect(),
        )));
        xtask_run::step(&format!("starting {} pods", self.members.len()));
        for member in &self.members {
            lock(&self.record)
                .ledger
                .add(&member.name, member.kind.promise());
            self.fleet.create(member)?;
        }
        Ok(())
    }

    /// Counts before the first pod, when all parts of the agent have started: two equal ones in
    /// succession.
    async fn started(&self, own: &[PathBuf]) -> anyhow::Result<Counts> {
        let mut before = Counts::default();
        let equal = async {
            loop {
                let now = Counts::read(&self.fleet.containerd, &self.fleet.agent, own).await?;
                if now == before {
                    return anyhow::Ok(now);
                }
                before = now;
                sleep(POLL * 20).await;
            }
        };
        timeout(START_TIMEOUT, equal).await.with_context(|| {
            format!("the counts of an agent without pods change after {START_TIMEOUT:?}")
        })?
    }

    async fn inject_all(&mut self, options: &Options) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(60 * options.minutes);
        let faults = options.faults();
        let mut plan = Plan::new(options.seed, faults, options.max_pause(), options.edited);
        xtask_run::step("injecting faults, the first while the pods start");
        for number in 1..=options.kills {
            if Instant::now() > end {
                break;
            }
            let step = plan.next();
            if let Some(edited) = step.edit.filter(|_| options.edited > 0) {
                self.edit(edited)?;
            }
            sleep(step.pause).await;
            self.inject(step).await?;
            if step.rest {
                self.rest().await?;
                let losses = lock(&self.record)
                    .losses
                    .iter()
                    .filter(|(loss, _)| loss.counts())
                    .count();
                xtask_run::step(&format!("{number} faults, {losses} losses"));
            }
        }
        self.rest().await
    }

    /// Waits until everything is in service.
    async fn rest(&mut self) -> anyhow::Result<()> {
        let record = self.record.clone();
        let names = move |table: &PodTable| lock(&record).ledger.in_service(table);
        self.watch
            .wait_for("all pods are in service", REST_TIMEOUT, names)
            .await?;
        Ok(())
    }

    /// Creates the pod with this number, or deletes it if it exists.
    fn edit(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(member) = self.edited.remove(&number) {
            lock(&self.record).ledger.remove(&member.name);
            return self.fleet.delete(&member.name, member.api);
        }
        self.generation += 1;
        let member = Member::edited(number, self.generation);
        lock(&self.record)
            .ledger
            .add(&member.name, member.kind.promise());
        self.fleet.create(&member)?;
        self.edited.insert(number, member);
        Ok(())
    }

    async fn inject(&mut self, step: Step) -> anyhow::Result<()> {
        let done = match step.fault {
            Fault::Agent => {
                self.kill_agent()?;
                true
            }
            Fault::Containerd => {
                self.fleet.containerd.kill_daemon()?;
                self.fleet.containerd.start_daemon().await?;
                true
            }
            Fault::Shim => self.kill_shim(step.pick).await?,
            Fault::Container => self.kill_container(step.pick).await?,
            Fault::Stop => {
                let pid = self.fleet.containerd.daemon_pid();
                let stopped = Stopped::stop(pid.context("containerd does not run")?)?;
                sleep(step.lasts).await;
                drop(stopped);
                true
            }
            Fault::Disk => self.fill_disk(step).await?,
            Fault::Fuse => self.hang_fuse(step).await?,
        };
        match done {
            true => *self.injected.entry(step.fault).or_default() += 1,
            false => self.skipped += 1,
        }
        Ok(())
    }

    /// Kills the agent and starts it again. The time until the pods that were ready are ready again is
    /// measured unless it is killed before.
    fn kill_agent(&mut self) -> anyhow::Result<()> {
        let table = self.watch.now();
        self.fleet.agent.kill()?;
        {
            let mut record = lock(&self.record);
            let steady = record.ledger.names(Promise::Steady).into_iter();
            let ready = steady.filter(|name| table.pod(name).is_some_and(|pod| pod.ready));
            record.pending = Some(Pending {
                at: Instant::now(),
                snapshots: record.snapshots,
                ready: ready.collect(),
            });
        }
        self.fleet.agent.spawn()
    }

    async fn kill_shim(&mut self, pick: usize) -> anyhow::Result<bool> {
        let mut runtime = instances::connect(&self.fleet.containerd.socket());
        let list = instances::list(&mut runtime).await?;
        let shims = leftovers::shims(self.fleet.containerd.base());
        let owners = shims.into_iter().filter_map(|(sandbox, pid)| {
            let of = list.iter().find(|instance| instance.sandbox == sandbox)?;
            Some((self.steady(&of.pod)?, pid))
        });
        let owners: Vec<(String, u32)> = owners.collect();
        let Some((pod, pid)) = owners.get(pick % owners.len().max(1)) else {
            return Ok(false);
        };
        lock(&self.record).ledger.excuse(pod);
        faults::kill(*pid)
    }

    async fn kill_container(&mut self, pick: usize) -> anyhow::Result<bool> {
        let mut runtime = instances::connect(&self.fleet.containerd.socket());
        let list = instances::list(&mut runtime).await?;
        let running = list.iter().filter(|instance| instance.running);
        let owned = running.filter_map(|it| Some((self.steady(&it.pod)?, it.id.clone())));
        let owned: Vec<(String, String)> = owned.collect();
        let Some((pod, id)) = owned.get(pick % owned.len().max(1)) else {
            return Ok(false);
        };
        let tasks = self.fleet.containerd.ctr(&["tasks", "ls"]).await?;
        let Some(pid) = faults::pid_of_task(&tasks, id) else {
            return Ok(false);
        };
        lock(&self.record).ledger.excuse(pod);
        faults::kill(pid)
    }

    /// Name in the manifest of a ready pod that promises to be steady, from its name in the API.
    fn steady(&self, pod: &str) -> Option<String> {
        let name = pod.strip_suffix("-node")?;
        let ready = self.watch.now().pod(name).is_some_and(|pod| pod.ready);
        let steady = lock(&self.record).ledger.names(Promise::Steady);
        (ready && steady.iter().any(|it| it == name)).then(|| name.to_owned())
    }

    /// Fills the disk, and kills the agent on the full disk.
    async fn fill_disk(&mut self, step: Step) -> anyhow::Result<bool> {
        let Some(disk) = &self.disk else {
            return Ok(false);
        };
        disk.fill()?;
        sleep(step.lasts / 2).await;
        self.kill_agent()?;
        sleep(step.lasts / 2).await;
        if let Some(disk) = &self.disk {
            disk.free()?;
        }
        Ok(true)
    }

    /// Starts a pod on a file system that hangs, and kills the agent meanwhile.
    async fn hang_fuse(&mut self, step: Step) -> anyhow::Result<bool> {
        let place = self.fleet.containerd.base().join("hung");
        let hung = HungMount::mount(&place)?;
        lock(&self.record).ledger.add(ON_FUSE, Promise::None);
        self.fleet.create_on(ON_FUSE, &place)?;
        sleep(step.lasts / 2).await;
        self.kill_agent()?;
        // the pods on other file systems are in service while it hangs
        self.rest().await?;
        sleep(step.lasts / 2).await;
        self.fleet.delete(ON_FUSE, false)?;
        tokio::task::spawn_blocking(move || drop(hung)).await?;
        let gone = |table: &PodTable| table.connected && table.pod(ON_FUSE).is_none();
        self.watch
            .wait_for("the pod on the hung mount is removed", REST_TIMEOUT, gone)
            .await?;
        lock(&self.record).ledger.remove(ON_FUSE);
        std::fs::remove_dir(&place)?;
        Ok(true)
    }

    /// Deletes everything and counts.
    async fn finish(&mut self, options: &Options) -> anyhow::Result<Report> {
        let restarts_of_loops = self.restarts_of_loops();
        xtask_run::step("removing all pods");
        let names: Vec<Member> = self
            .members
            .iter()
            .chain(self.edited.values())
            .cloned()
            .collect();
        for member in &names {
            lock(&self.record).ledger.remove(&member.name);
            self.fleet.delete(&member.name, member.api)?;
        }
        let gone = |table: &PodTable| table.connected && table.pods.is_empty();
        self.watch
            .wait_for("all pods are removed", REMOVE_TIMEOUT, gone)
            .await?;
        let after = self.settled().await?;
        let mut report = Report::default();
        for (fault, count) in &self.injected {
            report.figure(format!("faults: {fault}"), count);
        }
        report.figure("faults skipped, for want of a target", self.skipped);
        report.figure("pods created or deleted during the run", self.generation);
        let lost_tasks = self.lost_tasks();
        report.figure("starts whose task containerd has lost", lost_tasks);
        let mut shown = Vec::new();
        {
            let record = lock(&self.record);
            let of = |loss: Loss| record.losses.iter().filter(|(it, _)| *it == loss).count();
            report.count(
                "container restarts not caused by the run",
                of(Loss::Restart),
                lost_tasks,
            );
            report.count("Ready flips", of(Loss::ReadyFlip), 0);
            report.count(
                "failed pods, failed admissions included",
                of(Loss::Failed),
                0,
            );
            let unobserved = of(Loss::NotObserved);
            report.figure(
                "statuses on the local socket before the first observation",
                unobserved,
            );
            let restarted = record.instances.restarted();
            report.count(
                "containers that ran twice without a cause",
                restarted.len(),
                0,
            );
            shown.extend(restarted.iter().cloned());
            let went_back = record.instances.went_back();
            report.count(
                "restart counts that went back",
                went_back.len() + of(Loss::CountWentBack),
                0,
            );
            shown.extend(went_back.iter().cloned());
            let (restarts, early) = record.instances.backoffs();
            report.figure(
                "restarts of crash loops",
                format!("{restarts} ({restarts_of_loops})"),
            );
            report.count("restarts before the end of their back-off", early.len(), 0);
            let overlaps = record.instances.overlaps();
            report.count("containers with two running instances", overlaps.len(), 0);
            let losses = record.losses.iter();
            let losses = losses.filter(|(loss, _)| loss.counts());
            shown.extend(losses.map(|(loss, what)| format!("{loss}: {what}")));
            shown.extend(early);
            shown.extend(overlaps);
        }
        for kind in Kind::ALL {
            let (count, names) = after.since(&self.before, kind);
            let budget = self.budget(&after, kind, lost_tasks);
            if kind == Kind::Shims {
                report.count(FORGOTTEN_SHIMS, count, budget);
                continue;
            }
            report.count(format!("left behind: {kind}"), count, budget);
            if count > budget {
                shown.extend(names.into_iter().map(|name| format!("left behind: {name}")));
            }
        }
        let back = std::mem::take(&mut lock(&self.record).back);
        report.figure("kills after which the time was measured", back.len());
        for percent in [50, 99] {
            let time = percentile(&back, percent);
            let what = format!("ready pods back in service after a kill, p{percent}");
            report.time(what, time, BACK_BUDGET);
        }
        for line in shown.iter().take(SHOWN) {
            eprintln!("      {line}");
        }
        if !shown.is_empty() {
            let kept = self.keep_logs(options)?;
            eprintln!("      logs: {}", kept.display());
        }
        self.fleet.agent.terminate().await?;
        Ok(report)
    }

    /// Sum and maximum of the restart counts.
    fn restarts_of_loops(&self) -> String {
        let table = self.watch.now();
        let loops = lock(&self.record).ledger.names(Promise::CrashLoop);
        let counts = loops
            .iter()
            .filter_map(|name| Some(table.pod(name)?.restarts()));
        let counts: Vec<u64> = counts.collect();
        let max = counts.iter().max().copied().unwrap_or_default();
        format!("at most {max} of one pod")
    }

    /// Reads what is left once nothing is removed any more.
    async fn settled(&mut self) -> anyhow::Result<Counts> {
        let own = self.own_mounts();
        let end = Instant::now() + REMOVE_TIMEOUT;
        loop {
            let now = Counts::read(&self.fleet.containerd, &self.fleet.agent, &own).await?;
            let lost_tasks = self.lost_tasks();
            let clean = Kind::ALL.into_iter().all(|kind| {
                let (count, _) = now.since(&self.before, kind);
                count <= self.budget(&now, kind, lost_tasks)
            });
            if clean || Instant::now() > end {
                return Ok(now);
            }
            sleep(POLL * 20).await;
        }
    }

    /// Number of objects of a kind that may remain. containerd seems to keep a connection to each shim
    /// that it has forgotten: it had 26 descriptors more with 27 of them.
    fn budget(&self, remaining: &Counts, kind: Kind, lost_tasks: usize) -> usize {
        let budget = kind.budget(lost_tasks);
        match kind {
            Kind::Shims => self.forgotten_shims(),
            Kind::ContainerdDescriptors => {
                let (shims, _) = remaining.since(&self.before, Kind::Shims);
                budget + shims.min(self.forgotten_shims())
            }
            _ => budget,
        }
    }

    /// Number of starts whose task containerd has lost. Each costs a restart, because the next instance is
    /// started beside it, and leaves what a restart of containerd removes (docs/RELIABILITY.md).
    fn lost_tasks(&self) -> usize {
        let log = std::fs::read_to_string(self.fleet.containerd.log_file());
        log.as_deref()
            .map(leftovers::lost_tasks)
            .unwrap_or_default()
    }

    /// Number of shims that containerd may have forgotten.
    fn forgotten_shims(&self) -> usize {
        let of = |fault| self.injected.get(&fault).copied().unwrap_or_default();
        let faults = self.injected.values().sum::<usize>();
        faults / KILLS_PER_SHIM + 1 + of(Fault::Containerd) * SHIMS_PER_CONTAINERD
    }

    fn keep_logs(&self, options: &Options) -> anyhow::Result<PathBuf> {
        let dir = std::env::temp_dir().join(format!("chaos-logs-{}", options.seed));
        std::fs::create_dir_all(&dir)?;
        for log in [
            self.fleet.agent.log_file(),
            self.fleet.containerd.log_file(),
        ] {
            if let Some(name) = log.file_name() {
                std::fs::copy(&log, dir.join(name))?;
            }
        }
        Ok(dir)
    }
}

/// Times at which pods were excused last: others see the end of an excuse later than the ledger.
#[derive(Debug, Default)]
struct Excuses(BTreeMap<String, Instant>);

impl Excuses {
    /// Records whether a pod is excused now; true if it was within [`DELAY`].
    fn is_recent(&mut self, pod: &str, now: bool) -> bool {
        if now {
            self.0.insert(pod.to_owned(), Instant::now());
        }
        self.0.get(pod).is_some_and(|at| at.elapsed() < DELAY)
    }
}

/// Records every published status.
async fn observe_statuses(mut watch: PodWatch, record: Shared) {
    let begin = Instant::now();
    while watch.changed().await.is_ok() {
        let table = watch.now();
        let mut record = lock(&record);
        record.snapshots = table.snapshots;
        record.observe_back(&table);
        let losses = record.ledger.observe(&table);
        for (loss, what) in losses {
            let what = format!("{what}, after {:.1} s", begin.elapsed().as_secs_f64());
            if loss.counts() {
                eprintln!("      {loss}: {what}");
            }
            record.losses.push((loss, what));
        }
    }
}

/// Records the containers of the runtime.
async fn observe_runtime(socket: PathBuf, record: Shared) {
    let mut runtime = instances::connect(&socket);
    let mut excuses = Excuses::default();
    loop {
        sleep(instances::POLL).await;
        // containerd is killed and stopped at times
        let Ok(list) = instances::list(&mut runtime).await else {
            continue;
        };
        let exited = {
            let mut record = lock(&record);
            let Record {
                ledger, instances, ..
            } = &mut *record;
            let mut expected = BTreeMap::new();
            for instance in &list {
                let pod = instance.pod.as_str();
                let mut of_pod = ledger.expected(pod.strip_suffix("-node").unwrap_or(pod));
                if excuses.is_recent(pod, of_pod == Expected::Anything) {
                    of_pod = Expected::Anything;
                }
                expected.insert(pod, of_pod);
            }
            instances.record(&list, |pod| {
                expected.get(pod).copied().unwrap_or(Expected::Anything)
            })
        };
        for instance in exited {
            if let Ok(Some(exit)) = instances::exit_of(&mut runtime, &instance.id).await {
                lock(&record).instances.record_exit(&instance, exit);
            }
        }
    }
}

/// Records the Ready condition in the API server, of mirror pods too: each change has a new time.
async fn observe_api(api: FakeApiServer, record: Shared, names: Vec<String>) {
    let mut excuses = Excuses::default();
    loop {
        sleep(instances::POLL).await;
        for name in &names {
            let Some((ready, since)) = api_ready(&api, name) else {
                continue;
            };
            let mut record = lock(&record);
            let excused = excuses.is_recent(name, record.ledger.is_excused(name));
            let before = record.ready_since.get(name).cloned();
            if ready && (before.is_none() || excused) {
                record.ready_since.insert(name.clone(), since);
            } else if before.is_some_and(|before| before != since) && !excused {
                record.ready_since.insert(name.clone(), since.clone());
                let what = format!("{name}: in the API since {since}, ready {ready}");
                eprintln!("      {}: {what}", Loss::ReadyFlip);
                record.losses.push((Loss::ReadyFlip, what));
            }
        }
    }
}
