//! The EvictionManager actor.
//!
//! * owns: the eviction state, the pods that it evicted and that have not ended, the state file of
//!   the last evictions
//! * receives: completions of its own tasks, its timer, notifications of the kernel
//! * sends: `NodePressure` to NodeStatus and the SyncLoop, `TerminatePod` to the SyncLoop, its
//!   status to readers
//! * invariant: one step is in progress: reading, reclaiming, measuring pods, or waiting for the
//!   end of an evicted pod; conditions are published before anything is reclaimed or evicted
//! * bound and overflow: one task, and one watch of the kernel that notifies once a second; a
//!   notification during a step causes one more pass
//! * restart: the first pass publishes the conditions; a pod whose eviction was in progress is
//!   terminated by the SyncLoop, which has its cause in the checkpoint; its end is awaited before
//!   anything is reclaimed or evicted, and it is not chosen again; the last evictions come from the
//!   state file

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use windlass_actors::{NodePressure, StatusCache, TerminatePod};
use windlass_eviction::{
    Cadence, Decision, EvictionRecord, EvictionSettings, EvictionState, EvictionStatus,
    MetThreshold, Pass, PodFigures, Pressure,
};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, SlotSender, completions, spawn_io,
};
use windlass_metrics::Metrics;
use windlass_stats::SingleFlightIo;
use windlass_status::PodStatusStore;
use windlass_store::EvictionFile;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::EventType;
use windlass_types::{Clock, ClockReading, EventRecorder, PodUid, Reason};

use crate::measure::{Meter, candidates, reclaim};
use crate::ports::{
    MemoryTrigger, MemoryTriggers, NodeFigures, NodeReading, NodeReclaimer, PodDiskMeter,
    UsageThresholds,
};
use crate::records::save;
use crate::triggers::usage_thresholds;
use crate::wait::{CLEANUP_TIMEOUT, wait_for_end};

/// Time after its grace period in which the container runtime kills an evicted pod; then the kernel
/// does.
const KILL_DELAY: Duration = Duration::from_secs(1);

/// Dependencies of [`EvictionManager`].
#[derive(Debug)]
pub struct EvictionManagerDeps {
    /// Thresholds and periods; the file systems are those of the readings.
    pub settings: EvictionSettings,
    /// Readings of the node and of pods.
    pub figures: Arc<dyn NodeFigures>,
    /// Disk usage of pods.
    pub disk: Arc<dyn PodDiskMeter>,
    /// Reclaims on the node.
    pub reclaimer: Arc<dyn NodeReclaimer>,
    /// Notifications of the kernel.
    pub triggers: Arc<dyn MemoryTriggers>,
    /// The pods and their statuses.
    pub status_store: PodStatusStore,
    /// Observed pods.
    pub observed: StatusCache,
    /// Terminations for the SyncLoop.
    pub terminations: SlotSender<PodUid, TerminatePod>,
    /// Publishes the conditions.
    pub pressure: watch::Sender<NodePressure>,
    /// State file of the last evictions, and those of previous agent runs; `None` without a disk.
    pub file: Option<(EvictionFile, Vec<EvictionRecord>)>,
    /// Pods whose eviction was in progress in the previous agent run, with their grace periods.
    pub restored: Vec<(PodUid, Duration)>,
    /// Publishes what users are shown.
    pub status: watch::Sender<Arc<EvictionStatus>>,
    /// Records events.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// What happened.
#[derive(Debug)]
enum EvictionEvent {
    /// The node was read.
    Read(Box<NodeReading>),
    /// The node reclaimed for a threshold and was read again.
    Reclaimed(MetThreshold, Box<NodeReading>),
    /// The pods were measured.
    Measured(MetThreshold, Vec<PodFigures>),
    /// An evicted pod has ended, or not in time.
    VictimEnded(PodUid, bool),
    /// The kernel notified.
    Trigger(MemoryTrigger),
}

/// Step in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Reading,
    Reclaiming,
    Measuring,
    Waiting,
}

/// See the module documentation.
#[derive(Debug)]
pub struct EvictionManager {
    deps: EvictionManagerDeps,
    settings: EvictionSettings,
    state: EvictionState,
    status: EvictionStatus,
    /// Evicted pods that have not ended.
    evicted: BTreeSet<PodUid>,
    step: Step,
    /// A notification arrived during a step.
    is_triggered: bool,
    /// The notification that began this pass.
    trigger: Option<MemoryTrigger>,
    timer: Option<SpawnHandle>,
    began: Instant,
    cadence: Cadence,
    /// The last pass as it was logged.
    logged: String,
    file: Option<Arc<SingleFlightIo<EvictionFile, ()>>>,
    armed: watch::Sender<UsageThresholds>,
    completions: CompletionSender<EvictionEvent>,
    stream: Option<Completions<EvictionEvent>>,
}

impl EvictionManager {
    /// Creates an actor that has read nothing.
    pub fn new(mut deps: EvictionManagerDeps) -> Self {
        let (sender, stream) = completions();
        let (file, evictions) = deps.file.take().unzip();
        let evicted = deps.restored.iter().map(|(uid, _)| uid.clone()).collect();
        let status = EvictionStatus {
            evictions: evictions.unwrap_or_default(),
            ..EvictionStatus::default()
        };
        deps.status.send_replace(Arc::new(status.clone()));
        Self {
            settings: deps.settings.clone(),
            deps,
            state: EvictionState::default(),
            status,
            evicted,
            step: Step::Idle,
            is_triggered: false,
            trigger: None,
            timer: None,
            began: Instant::now(),
            cadence: Cadence::default(),
            logged: String::new(),
            file: file.map(|file| Arc::new(SingleFlightIo::new(file))),
            armed: watch::Sender::default(),
            completions: sender,
            stream: Some(stream),
        }
    }

    fn now(&self) -> ClockReading {
        ClockReading {
            wall: self.deps.clock.now(),
            monotonic: self.began.elapsed(),
        }
    }

    fn handle_event(&mut self, event: EvictionEvent, ctx: &mut Context<Self>) {
        tracing::trace!(%event, step = ?self.step, "eviction manager");
        match event {
            EvictionEvent::Read(reading) => self.evaluate(*reading, ctx),
            EvictionEvent::Reclaimed(met, reading) => self.reclaimed(met, *reading, ctx),
            EvictionEvent::Measured(met, pods) => self.evict(met, &pods, ctx),
            EvictionEvent::VictimEnded(uid, has_ended) => {
                self.victim_ended(uid, has_ended);
                self.read(ctx);
            }
            EvictionEvent::Trigger(trigger) => {
                tracing::debug!(%trigger, "notified by the kernel");
                match self.step {
                    Step::Idle => {
                        self.trigger = Some(trigger);
                        self.read(ctx);
                    }
                    _ => self.is_triggered = true,
                }
            }
        }
    }

    /// Begins a pass.
    fn read(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        self.step = Step::Reading;
        self.is_triggered = false;
        let figures = Arc::clone(&self.deps.figures);
        let completions = self.completions.clone();
        spawn_io("read-node-signals", async move {
            let reading = figures.read().await;
            completions.send(EvictionEvent::Read(Box::new(reading)));
        });
    }

    /// Ends a pass.
    fn rest(&mut self, ctx: &mut Context<Self>) {
        self.step = Step::Idle;
        self.trigger = None;
        let is_triggered = std::mem::take(&mut self.is_triggered);
        let delay = self.cadence.next(is_triggered);
        self.timer = Some(ctx.run_later(delay, |this, ctx| {
            this.timer = None;
            this.read(ctx);
        }));
    }

    fn evaluate(&mut self, reading: NodeReading, ctx: &mut Context<Self>) {
        if let Some(file_systems) = reading.file_systems {
            self.settings.file_systems = file_systems;
        }
        let now = self.now();
        let pass = self.state.pass(now, &reading.observations, &self.settings);
        let knows_file_systems = reading.file_systems.is_some();
        self.cadence.passed(pass.next, knows_file_systems);
        self.publish(now, &pass, &reading);
        self.log(&pass);
        let armed = usage_thresholds(&self.settings.thresholds, &reading);
        let update = |known: &mut UsageThresholds| std::mem::replace(known, armed) != armed;
        self.armed.send_if_modified(update);
        if let Some((uid, grace)) = self.deps.restored.pop() {
            tracing::info!(pod = %uid, "waiting for a pod evicted by the previous agent run");
            let limit = grace.saturating_add(CLEANUP_TIMEOUT);
            return self.wait(uid, false, limit.saturating_sub(now.monotonic));
        }
        match pass.decision {
            Decision::Idle => self.rest(ctx),
            Decision::Reclaim(met, steps) => {
                self.announce(&met);
                self.step = Step::Reclaiming;
                let reclaimer = Arc::clone(&self.deps.reclaimer);
                let figures = Arc::clone(&self.deps.figures);
                let completions = self.completions.clone();
                spawn_io("reclaim-node-resources", async move {
                    reclaim(&*reclaimer, steps).await;
                    let reading = Box::new(figures.read().await);
                    completions.send(EvictionEvent::Reclaimed(met, reading));
                });
            }
            Decision::Evict(met) => {
                self.announce(&met);
                self.measure(&pass.due, met);
            }
        }
    }

    fn reclaimed(&mut self, met: MetThreshold, reading: NodeReading, ctx: &mut Context<Self>) {
        let now = self.now();
        let observations = &reading.observations;
        let decision = self
            .state
            .after_reclaim(now, &met, observations, &self.settings);
        match decision {
            Decision::Idle | Decision::Reclaim(..) => {
                let signal = met.signal();
                tracing::info!(%signal, "reclaimed enough on the node, no pod is evicted");
                self.rest(ctx);
            }
            Decision::Evict(met) => self.measure(&[met], met),
        }
    }

    /// Records an event on the node.
    fn announce(&mut self, met: &MetThreshold) {
        let elapsed = self.began.elapsed();
        if self.cadence.announces(met.signal(), elapsed) {
            let (kind, reason) = (EventType::Warning, Reason::EvictionThresholdMet);
            let events = &self.deps.events;
            events.record_node(kind, reason, &met.event_message());
        }
    }

    fn measure(&mut self, due: &[MetThreshold], met: MetThreshold) {
        let now = self.deps.clock.now();
        for met in due {
            let age = now.duration_since(met.observed.at).as_secs_f64().max(0.0);
            let ages = &self.deps.metrics.node.eviction_stats_age;
            ages.with_label_values(&[met.signal().as_str()])
                .observe(age);
        }
        self.step = Step::Measuring;
        let candidates = candidates(&self.deps.status_store, &self.evicted);
        let meter = Meter {
            figures: Arc::clone(&self.deps.figures),
            disk: Arc::clone(&self.deps.disk),
            observed: self.deps.observed.clone(),
        };
        let completions = self.completions.clone();
        spawn_io("measure-pods", async move {
            let pods = meter.measure(candidates, met.signal().resource()).await;
            completions.send(EvictionEvent::Measured(met, pods));
        });
    }

    fn evict(&mut self, met: MetThreshold, pods: &[PodFigures], ctx: &mut Context<Self>) {
        let victim = self.settings.choose_victim(&met, pods);
        let entry = victim
            .as_ref()
            .and_then(|victim| self.deps.status_store.get(&victim.uid));
        let (Some(victim), Some(entry)) = (victim, entry) else {
            match self.cadence.chose(false) {
                true => tracing::error!(%met, pods = pods.len(), "no pod can be evicted"),
                false => tracing::debug!(%met, "no pod can be evicted"),
            }
            return self.rest(ctx);
        };
        self.cadence.chose(true);
        let noticed = self.noticed_by();
        tracing::info!(%victim, reason = %victim.explanation, %noticed, "evicting a pod");
        if met.holds_memory() {
            let (figures, uid) = (Arc::clone(&self.deps.figures), victim.uid.clone());
            let until_kill = victim.grace + KILL_DELAY;
            let observed = self.deps.observed.clone();
            spawn_io("end-evicted-pod", async move {
                figures.hold_memory(uid.clone()).await;
                sleep(until_kill).await;
                let pod = observed.get(&uid).filter(|pod| pod.is_alive());
                if let Some(pod) = pod {
                    figures.kill(pod).await;
                }
            });
        }
        self.deps.events.record_annotated(
            &entry.pod,
            EventType::Warning,
            Reason::Evicted,
            &victim.message,
            &victim.annotations,
        );
        self.deps.terminations.put(
            victim.uid.clone(),
            TerminatePod {
                grace: Some(victim.grace),
                reason: victim.message.clone(),
                phase_override: victim.phase_override(),
            },
        );
        let evictions = &self.deps.metrics.volumes.evictions;
        evictions.with_label_values(&[met.signal().as_str()]).inc();
        self.evicted.insert(victim.uid.clone());
        self.status
            .record(EvictionRecord::new(&victim, self.deps.clock.now()));
        self.deps.status.send_replace(Arc::new(self.status.clone()));
        let limit = victim.grace.saturating_add(CLEANUP_TIMEOUT);
        self.wait(victim.uid, true, limit);
    }

    /// What began this pass.
    fn noticed_by(&self) -> String {
        let by_timer = || "timer".to_owned();
        self.trigger.map_or_else(by_timer, |it| it.to_string())
    }

    /// Waits for the end of an evicted pod, see [`wait_for_end`].
    fn wait(&mut self, uid: PodUid, had_entry: bool, limit: Duration) {
        self.step = Step::Waiting;
        self.trigger = None;
        let store = self.deps.status_store.clone();
        let completions = self.completions.clone();
        let (file, records) = (self.file.clone(), self.status.evictions.clone());
        spawn_io("wait-for-evicted-pod", async move {
            let ended = async {
                mutated(Mutation::EvictsWithoutWaiting)
                    || wait_for_end(&store, &uid, had_entry, limit).await
            };
            let (has_ended, ()) = tokio::join!(ended, save(file, records));
            completions.send(EvictionEvent::VictimEnded(uid, has_ended));
        });
    }

    fn victim_ended(&mut self, uid: PodUid, has_ended: bool) {
        match has_ended {
            true => tracing::info!(pod = %uid, "evicted pod has ended"),
            false => tracing::warn!(pod = %uid, "evicted pod has not ended in time"),
        }
        let store = &self.deps.status_store;
        self.evicted
            .retain(|uid| store.get(uid).is_some_and(|entry| !entry.released));
    }

    fn publish(&mut self, now: ClockReading, pass: &Pass, reading: &NodeReading) {
        let pressure = NodePressure(Some(pass.pressure));
        let update = |known: &mut NodePressure| std::mem::replace(known, pressure) != pressure;
        self.deps.pressure.send_if_modified(update);
        let observations = &reading.observations;
        self.status
            .update(now, &self.state, pass, observations, &self.settings);
        self.deps.status.send_replace(Arc::new(self.status.clone()));
    }

    /// Logs a pass; at info level if conditions or thresholds that are met have changed.
    fn log(&mut self, pass: &Pass) {
        let names = pass.pressure.names().join(" ");
        let due = pass.due.iter().map(|met| met.threshold.to_string());
        let line = format!("{names} {}", due.collect::<Vec<_>>().join(" "));
        if std::mem::replace(&mut self.logged, line.clone()) == line {
            tracing::debug!(%pass, next = ?pass.next, "eviction pass");
        } else {
            tracing::info!(%pass, "eviction pass");
        }
    }

    /// Starts the watch of the kernel.
    fn watch(&self) {
        let triggers = Arc::clone(&self.deps.triggers);
        let (thresholds, completions) = (self.armed.subscribe(), self.completions.clone());
        spawn_io("memory-notifications", async move {
            let sink = move |trigger| completions.send(EvictionEvent::Trigger(trigger));
            triggers.run(thresholds, Arc::new(sink)).await;
        });
    }
}

impl Actor for EvictionManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(stream) = self.stream.take() else {
            return ctx.stop();
        };
        if self.settings.thresholds.is_empty() {
            // nothing can be short
            let pressure = NodePressure(Some(Pressure::default()));
            self.deps.pressure.send_replace(pressure);
            return ctx.stop();
        }
        self.logged = " ".to_owned();
        ctx.add_stream(stream);
        self.watch();
        self.read(ctx);
    }
}

impl StreamHandler<Delivery<EvictionEvent>> for EvictionManager {
    fn handle(&mut self, delivery: Delivery<EvictionEvent>, ctx: &mut Context<Self>) {
        delivery.open(|event| self.handle_event(event, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl fmt::Display for EvictionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("read"),
            Self::Reclaimed(met, _) => write!(f, "reclaimed for {}", met.signal()),
            Self::Measured(met, pods) => {
                write!(f, "measured {} pods for {}", pods.len(), met.signal())
            }
            Self::VictimEnded(uid, has_ended) => write!(f, "victim {uid} ended: {has_ended}"),
            Self::Trigger(trigger) => trigger.fmt(f),
        }
    }
}
