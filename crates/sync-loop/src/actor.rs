//! The SyncLoop actor.
//!
//! * owns: the desired pods and their allocated resources, the admitted pods, the preemptions and
//!   resizes in progress, the runtime state
//! * receives: `ConfigChanged` from PodStorage, `PodChanged` from the PLEG, `ObjectsChanged` from
//!   the object cache, `VolumesChanged` from the VolumeManager and `ProbeUpdate` from the probe
//!   managers, `TerminatePod` from NodeShutdown and the EvictionManager, `ResourcesAllocated` from the
//!   ContainerManager (coalesced per pod), its timers, completions of its runtime checks and
//!   housekeeping rounds
//! * sends: `UpdatePod` to PodWorkers, `AllocateResources` to the ContainerManager, `RuntimeState`
//!   to every worker, `SourcesReady` to the StatusManager and the VolumeManager
//! * invariant: every update of a worker is a [`Dispatch`] of this actor; an iteration never waits;
//!   no orphaned pod is terminated before all sources are ready, except a pod replaced by a static
//!   pod
//! * bound and overflow: config changes wait in a mailbox of 50, which delays PodStorage when full;
//!   other events coalesce per pod; at most one check and one round are in progress
//! * restart: the desired pods are rebuilt from the sources; it ends when PodStorage has stopped

mod admit;
mod resize;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use tokio::sync::watch;
use windlass_actors::{
    AllocationsHandle, ConfigChanged, KillPod, NodePressure, NodeUpdate, ObjectsChanged,
    PlegHealth, PodChanged, PodWorkersHandle, ProbeUpdate, ResourcesAllocated, RuntimeState,
    ShutdownState, SourcesReady, StatusCache, TerminatePod, VolumesChanged, VolumesHandle,
};
use windlass_cri::{CriCode, CriError, RuntimeService};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Mailbox, SlotReceiver, completions, spawn_io,
};
use windlass_metrics::Metrics;
use windlass_node_rules::admission::AdmissionPolicy;
use windlass_pod_lifecycle::housekeeping::{
    HousekeepingPlan, HousekeepingSchedule, Scope, can_remove_pod_content,
};
use windlass_runtime::PodRuntime;
use windlass_runtime_config::node_cgroups::{ClassValues, class_values};
use windlass_runtime_config::runtime_gaps::runtime_gaps;
use windlass_status::PodStatusStore;
use windlass_store::{AdmittedPods, BackoffFile, PodResourceFiles, PodResources};
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::corev1::Node;
use windlass_types::cri::RuntimeStatus;
use windlass_types::{
    Clock, ContainerState, EventRecorder, PodExt, PodLifecycleEventKind, PodSource, PodUid,
    SharedPod,
};

use crate::admissions::AdmittedPodSet;
use crate::desired::DesiredPods;
use crate::dispatch::{Dispatch, volumes_changed};
use crate::event::SyncLoopEvent;
use crate::housekeeping::{self, Snapshots};
use crate::pods_to_sync::{SyncCandidate, pods_to_sync};
use crate::resizes::ResizeQueue;
use crate::runtime_check::RuntimeCheck;

/// Interval of the sync timer.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of housekeeping rounds.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of a runtime check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Max time that the cgroups of pods delay the first ready state of the runtime.
const CGROUPS_TIMEOUT: Duration = Duration::from_secs(10);

/// Dependencies of the [`SyncLoop`].
#[derive(Clone, Debug)]
pub struct SyncLoopDeps {
    /// The configured pod sources; housekeeping waits until all are ready.
    pub sources: BTreeSet<PodSource>,
    /// The pod workers.
    pub workers: PodWorkersHandle,
    /// Observed state of all pods.
    pub cache: StatusCache,
    /// Published statuses, for the deadlines of pods.
    pub status_store: PodStatusStore,
    /// The runtime, for checks.
    pub cri: Arc<dyn RuntimeService>,
    /// Age of the last relist.
    pub pleg_health: PlegHealth,
    /// Tears down the volumes of orphaned pods.
    pub volumes: VolumesHandle,
    /// Grace period of an orphaned pod.
    pub orphan_grace: Duration,
    /// Removes directories, cgroups and containers.
    pub runtime: PodRuntime,
    /// Back-off state file; `None` in simulations without a disk.
    pub backoff_file: Option<BackoffFile>,
    /// Publishes the runtime state.
    pub runtime_state: watch::Sender<RuntimeState>,
    /// Publishes whether all sources are ready.
    pub sources_ready: watch::Sender<SourcesReady>,
    /// Dependencies of the admission.
    pub admission: AdmissionDeps,
    /// Records admissions and changed probe results.
    pub timelines: Timelines,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Time of the last iteration, for the health check.
    pub health: SyncLoopHealth,
}

/// Dependencies of the admission.
#[derive(Clone, Debug)]
pub struct AdmissionDeps {
    /// The Node object.
    pub node: watch::Receiver<NodeUpdate>,
    /// The Node object that the agent would register, for use before or without an API server.
    pub initial_node: Arc<Node>,
    /// Limits of host and configuration.
    pub admission_policy: Arc<AdmissionPolicy>,
    /// State of the host shutdown.
    pub shutdown: watch::Receiver<ShutdownState>,
    /// Pressure conditions; `None` until the node was read.
    pub pressure: watch::Receiver<NodePressure>,
    /// Checkpoint of admitted pods; `None` in simulations without a disk.
    pub checkpoint: Option<AdmittedPods>,
    /// Checkpoints of pod resources; `None` in simulations without a disk.
    pub resource_files: Option<PodResourceFiles>,
    /// Resources that previous agent runs, of this agent or the Go kubelet, have allocated.
    pub restored: PodResources,
    /// Recorder of rejections.
    pub events: Arc<dyn EventRecorder>,
    /// Allocates CPUs, memory nodes and devices.
    pub allocations: AllocationsHandle,
}

/// Time of the last iteration. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SyncLoopHealth(Arc<AtomicI64>);

impl SyncLoopHealth {
    /// Returns the Unix time of the last iteration; 0 before the first.
    pub fn last_iteration(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The SyncLoop actor.
#[derive(Debug)]
pub struct SyncLoop {
    deps: SyncLoopDeps,
    desired: DesiredPods,
    admissions: AdmittedPodSet,
    resizes: ResizeQueue,
    check: RuntimeCheck,
    rounds: HousekeepingSchedule,
    /// Version of the status cache in the gauges; `None` after a change to the desired pods.
    gauges: Option<u64>,
    /// Whether the runtime supports `supplementalGroupsPolicy: Strict`.
    strict_groups: Option<bool>,
    /// Name, version and gaps of the runtime are logged, or are being requested.
    gaps_reported: bool,
    completions: CompletionSender<SyncLoopEvent>,
    streams: Option<(SyncLoopStreams, Completions<SyncLoopEvent>)>,
}

/// What a [`SyncLoop`] receives from other actors.
#[derive(Debug)]
pub struct SyncLoopStreams {
    /// Changes to the desired pods, from PodStorage.
    pub config: Mailbox<ConfigChanged>,
    /// Changes in the runtime, from the PLEG.
    pub pleg: SlotReceiver<PodUid, PodChanged>,
    /// Changed references, from the object cache.
    pub objects: SlotReceiver<PodUid, ObjectsChanged>,
    /// Changed volumes, from the VolumeManager.
    pub volumes: SlotReceiver<PodUid, VolumesChanged>,
    /// Changed probe results, from the probe managers.
    pub probes: SlotReceiver<PodUid, ProbeUpdate>,
    /// Pods to terminate, from NodeShutdown and the EvictionManager.
    pub terminations: SlotReceiver<PodUid, TerminatePod>,
    /// Answers to requests for resources, from the ContainerManager.
    pub allocations: SlotReceiver<PodUid, ResourcesAllocated>,
}

impl SyncLoop {
    /// Creates a loop.
    pub fn new(mut deps: SyncLoopDeps, streams: SyncLoopStreams) -> Self {
        let (completion_sender, completions) = completions();
        let allocations = std::mem::take(&mut deps.admission.restored);
        let policy = deps.admission.admission_policy.resize;
        Self {
            deps,
            desired: DesiredPods::new(policy, allocations),
            admissions: AdmittedPodSet::default(),
            resizes: ResizeQueue::default(),
            check: RuntimeCheck::default(),
            rounds: HousekeepingSchedule::default(),
            gauges: None,
            strict_groups: None,
            gaps_reported: false,
            completions: completion_sender,
            streams: Some((streams, completions)),
        }
    }

    /// Handles one event.
    fn iterate(&mut self, event: SyncLoopEvent, ctx: &mut Context<Self>) {
        let cause = event.cause();
        self.deps
            .metrics
            .sync_loop
            .events
            .with_label_values(&[cause])
            .inc();
        self.deps
            .health
            .0
            .store(self.deps.clock.now().as_second(), Ordering::Relaxed);
        tracing::trace!(cause, "sync loop");
        if event.is_change() {
            self.rounds.event();
        }
        match event {
            SyncLoopEvent::Config(update) => self.config(update),
            SyncLoopEvent::ConfigClosed => {
                tracing::error!("config channel closed, stopping the sync loop");
                ctx.stop();
            }
            SyncLoopEvent::Pleg(uid, changed) => self.pleg(uid, &changed),
            SyncLoopEvent::Objects(uid) => self.dispatch(Dispatch::Sync(uid)),
            SyncLoopEvent::Volumes(uid, changed) => {
                self.admit(volumes_changed(uid, changed), false);
            }
            SyncLoopEvent::Probe(uid, update) => self.probe(uid, &update),
            SyncLoopEvent::Termination(uid, request) => {
                self.admit(Dispatch::Kill(uid, request.into()), false);
            }
            SyncLoopEvent::Allocation(uid, answer) => self.allocation(uid, answer),
            SyncLoopEvent::SyncTick => {
                self.continue_preemptions();
                self.tick_resizes();
                self.sync_due_pods();
                self.publish_gauges();
            }
            SyncLoopEvent::HousekeepingTick => self.begin_housekeeping(),
            SyncLoopEvent::HousekeepingPlanned(plan) => self.execute_plan(plan),
            SyncLoopEvent::HousekeepingDone => self.rounds.finished(),
            SyncLoopEvent::GapsUnknown => self.gaps_reported = false,
            SyncLoopEvent::RuntimeChecked(answer) => {
                if let Ok(status) = &answer {
                    self.strict_groups = Some(status.supplemental_groups_policy == Some(true));
                    self.report_gaps(status);
                }
                let listing = self.deps.pleg_health.age();
                let (state, delay) = self.check.evaluate(&answer, listing);
                self.runtime_state(state);
                ctx.run_later(delay, |this, _| this.check_runtime());
            }
        }
    }

    fn probe(&self, uid: PodUid, update: &ProbeUpdate) {
        for change in &update.changes {
            tracing::info!(pod = %uid, probe = %change.kind, container = change.container,
                success = change.success, "probe result changed");
            let kind = change.kind.as_str();
            let what = RecordKey::with_subject(RecordKind::Probe, kind, &change.container);
            let outcome = match change.success {
                true => RecordOutcome::Done,
                false => RecordOutcome::failed("probe failed"),
            };
            self.deps.timelines.record_instant(&uid, what, outcome);
        }
        self.dispatch(Dispatch::Sync(uid));
    }

    fn dispatch(&self, dispatch: Dispatch) {
        tracing::debug!(%dispatch, "dispatch");
        let (uid, update) = dispatch.into_update();
        self.deps.workers.update_pod(uid, update);
    }

    fn sync_due_pods(&self) {
        let has_deadline =
            |pod: &&SharedPod| PodExt::spec(&***pod).active_deadline_seconds.is_some();
        let entries = self.desired.pods().filter(has_deadline).filter_map(|pod| {
            let entry = self.deps.status_store.get(&pod.uid())?;
            let observed = self.deps.cache.get(&pod.uid()).unwrap_or_default();
            Some((pod, entry, observed))
        });
        let entries: Vec<_> = entries.collect();
        let candidates = entries.iter().map(|(pod, entry, observed)| SyncCandidate {
            pod,
            status: &entry.status,
            observed,
            worker_state: entry.worker_state,
        });
        for uid in pods_to_sync(candidates, self.deps.clock.now()) {
            self.dispatch(Dispatch::Sync(uid));
        }
    }

    fn pleg(&mut self, uid: PodUid, changed: &PodChanged) {
        let died =
            |e: &windlass_types::PodLifecycleEvent| e.kind == PodLifecycleEventKind::ContainerDied;
        // a terminating pod reports its hung calls
        if changed.calls || self.desired.get(&uid).is_some() {
            self.dispatch(Dispatch::Sync(uid.clone()));
        }
        // containers of a pod that is not desired are removed by housekeeping, after the worker has
        // recorded their exit
        if changed.events.iter().any(died) && self.desired.get(&uid).is_some() {
            self.remove_older_dead_containers(&uid);
        }
    }

    fn remove_older_dead_containers(&self, uid: &PodUid) {
        let Some(observed) = self.deps.cache.get(uid) else {
            return;
        };
        let runtime = self.deps.runtime.clone();
        spawn_io("remove-dead-containers", async move {
            let report = runtime.remove_older_dead_containers(&observed).await;
            for failure in &report.failures {
                tracing::warn!(pod = %observed.uid, failure, "removing dead container failed");
            }
        });
    }

    fn begin_housekeeping(&mut self) {
        let Some(round) = self.rounds.tick(|| self.desired.uids()) else {
            return;
        };
        tracing::trace!(%round, "housekeeping");
        if round.update_classes {
            self.update_classes();
        }
        let snapshots = self.snapshots(round.scope);
        let deps = self.deps.clone();
        let completions = self.completions.clone();
        spawn_io("housekeeping-plan", async move {
            let plan = housekeeping::decide(&snapshots, &deps).await;
            completions.send(SyncLoopEvent::HousekeepingPlanned(plan));
        });
    }

    /// Sets the CPU shares and memory limits of the QoS classes for the desired pods.
    fn update_classes(&self) {
        let runtime = self.deps.runtime.clone();
        let pods = self.desired.pods().map(|pod| &**pod);
        let values = class_values(pods, runtime.qos_memory());
        self.publish_protected(values);
        spawn_io("qos-classes", async move {
            if let Err(error) = runtime.update_classes(values).await {
                tracing::warn!(%error, "setting values of the QoS classes failed");
            }
        });
    }

    /// Publishes the memory that `MemoryQoS` protects, with the feature gate only.
    fn publish_protected(&self, values: ClassValues) {
        let families = &self.deps.metrics.sync_loop;
        let Some((guaranteed, burstable)) = values.protected() else {
            return;
        };
        for (family, bytes) in [
            (&families.protected_memory, guaranteed),
            (&families.preferred_memory, burstable),
        ] {
            family.with_label_values::<&str>(&[]).set(bytes as f64);
        }
    }

    fn snapshots(&self, scope: Scope) -> Snapshots {
        Snapshots {
            desired: self.desired.uids(),
            static_pods: self.desired.static_uids(),
            ended: {
                let ended = self
                    .desired
                    .pods()
                    .filter(|pod| can_remove_pod_content(pod));
                ended.map(|pod| pod.uid()).collect()
            },
            sources_ready: self.desired.sources_ready(&self.deps.sources),
            static_sources_ready: self.desired.static_sources_ready(&self.deps.sources),
            statics: self.desired.static_names(),
            scope,
        }
    }

    fn execute_plan(&mut self, plan: HousekeepingPlan) {
        let actions = self.rounds.planned(&plan, &self.desired.uids());
        if actions.is_new {
            tracing::info!(%plan, "housekeeping");
        }
        tracing::trace!(%actions, "housekeeping");
        for uid in actions.orphans_to_kill {
            if let Some(observed) = self.deps.cache.get(&uid) {
                let kill = KillPod {
                    grace: Some(self.deps.orphan_grace),
                    reason: "orphaned pod without a source".into(),
                    removed: true,
                    orphan: Some(observed),
                    phase_override: None,
                };
                self.dispatch(Dispatch::Kill(uid, kill));
            }
        }
        for uid in actions.workers_to_kill {
            self.dispatch(Dispatch::Remove(uid));
        }
        let Some(scope) = actions.finish else {
            return;
        };
        let snapshots = self.snapshots(scope);
        let deps = self.deps.clone();
        let completions = self.completions.clone();
        spawn_io("housekeeping", async move {
            housekeeping::finish(&snapshots, &plan, &deps).await;
            completions.send(SyncLoopEvent::HousekeepingDone);
        });
    }

    /// Checks the runtime. The first response counts when the cgroups of pods exist, so that the node
    /// is not ready before.
    fn check_runtime(&self) {
        let cri = Arc::clone(&self.deps.cri);
        let is_first = !self.deps.runtime_state.borrow().answered;
        let runtime = is_first.then(|| self.deps.runtime.clone());
        let completions = self.completions.clone();
        spawn_io("runtime-check", async move {
            let status = tokio::time::timeout(CHECK_TIMEOUT, cri.status()).await;
            let answer = status.unwrap_or_else(|_| {
                let message = format!("timed out after {} s", CHECK_TIMEOUT.as_secs());
                let code = CriCode::DeadlineExceeded;
                Err(CriError::new("status", code, message))
            });
            if let (Ok(_), Some(runtime)) = (&answer, runtime) {
                runtime.wait_for_cgroups(CGROUPS_TIMEOUT).await;
            }
            completions.send(SyncLoopEvent::RuntimeChecked(answer));
        });
    }

    /// Logs name, version and gaps of the runtime once.
    fn report_gaps(&mut self, status: &RuntimeStatus) {
        if status.runtime_error.is_some() || std::mem::replace(&mut self.gaps_reported, true) {
            return;
        }
        let (cri, status) = (Arc::clone(&self.deps.cri), status.clone());
        let later = self.completions.clone();
        spawn_io("runtime-gaps", async move {
            let responses = async { tokio::join!(cri.version(), cri.cgroup_driver()) };
            let responses = tokio::time::timeout(CHECK_TIMEOUT, responses).await;
            let Ok((Ok(version), Ok(driver))) = responses else {
                later.send(SyncLoopEvent::GapsUnknown);
                return;
            };
            let gaps = runtime_gaps(&version, &status, driver);
            let gaps: Vec<String> = gaps.iter().map(ToString::to_string).collect();
            let lacks = gaps.join(", ");
            tracing::info!(
                name = version.name,
                version = version.version,
                lacks,
                "container runtime"
            );
        });
    }

    fn runtime_state(&self, state: RuntimeState) {
        self.deps.runtime_state.send_if_modified(|known| {
            if *known == state {
                return false;
            }
            match (&state.runtime_error, &state.network_error) {
                (None, None) => tracing::info!("container runtime ready"),
                (Some(error), _) if !state.answered => tracing::warn!(
                    error,
                    "container runtime not ready; check that it is running and that \
                     containerRuntimeEndpoint is correct"
                ),
                (Some(error), _) => tracing::warn!(error, "container runtime not ready"),
                (None, Some(error)) => tracing::warn!(error, "container network not ready"),
            }
            if let Some(error) = &state.pleg_error {
                tracing::warn!(error, "relist failed");
            }
            *known = state;
            true
        });
    }

    fn publish_gauges(&mut self) {
        let version = Some(self.deps.cache.version());
        if std::mem::replace(&mut self.gauges, version) == version {
            return;
        }
        let statics = self
            .desired
            .pods()
            .filter(|pod: &&SharedPod| pod.is_static())
            .count();
        let others = self.desired.pods().count() - statics;
        let metrics = &self.deps.metrics;
        metrics
            .sync_loop
            .desired_pods
            .with_label_values(&["true"])
            .set(statics as f64);
        metrics
            .sync_loop
            .desired_pods
            .with_label_values(&[""])
            .set(others as f64);
        let observed = self.deps.cache.all();
        let ready = observed
            .iter()
            .filter(|pod| pod.sandboxes.iter().any(|s| s.ready))
            .count();
        metrics.sync_loop.running_pods.set(ready as f64);
        let mut counts = [0usize; 4];
        for container in observed.iter().flat_map(|pod| &pod.containers) {
            counts[match container.state {
                ContainerState::Created => 0,
                ContainerState::Running => 1,
                ContainerState::Exited => 2,
                ContainerState::Unknown => 3,
            }] += 1;
        }
        for (state, count) in ["created", "running", "exited", "unknown"]
            .iter()
            .zip(counts)
        {
            metrics
                .sync_loop
                .running_containers
                .with_label_values(&[state])
                .set(count as f64);
        }
    }
}

impl Actor for SyncLoop {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((streams, completions)) = self.streams.take() {
            ctx.add_stream(streams.config);
            ctx.add_stream(streams.pleg);
            ctx.add_stream(streams.objects);
            ctx.add_stream(streams.volumes);
            ctx.add_stream(streams.probes);
            ctx.add_stream(streams.terminations);
            ctx.add_stream(streams.allocations);
            ctx.add_stream(completions);
        }
        ctx.run_interval(SYNC_INTERVAL, |this, ctx| {
            this.iterate(SyncLoopEvent::SyncTick, ctx)
        });
        ctx.run_interval(HOUSEKEEPING_INTERVAL, |this, ctx| {
            this.iterate(SyncLoopEvent::HousekeepingTick, ctx);
        });
        self.check_runtime();
    }
}

impl StreamHandler<Delivery<ConfigChanged>> for SyncLoop {
    fn handle(&mut self, delivery: Delivery<ConfigChanged>, ctx: &mut Context<Self>) {
        delivery.open(|ConfigChanged(update)| self.iterate(SyncLoopEvent::Config(update), ctx));
    }

    fn finished(&mut self, ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::ConfigClosed, ctx);
    }
}

impl StreamHandler<(PodUid, PodChanged)> for SyncLoop {
    fn handle(&mut self, (uid, changed): (PodUid, PodChanged), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Pleg(uid, changed), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, ObjectsChanged)> for SyncLoop {
    fn handle(&mut self, (uid, _): (PodUid, ObjectsChanged), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Objects(uid), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, VolumesChanged)> for SyncLoop {
    fn handle(&mut self, (uid, changed): (PodUid, VolumesChanged), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Volumes(uid, changed), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, ProbeUpdate)> for SyncLoop {
    fn handle(&mut self, (uid, update): (PodUid, ProbeUpdate), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Probe(uid, update), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, TerminatePod)> for SyncLoop {
    fn handle(&mut self, (uid, request): (PodUid, TerminatePod), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Termination(uid, request), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, ResourcesAllocated)> for SyncLoop {
    fn handle(&mut self, (uid, answer): (PodUid, ResourcesAllocated), ctx: &mut Context<Self>) {
        self.iterate(SyncLoopEvent::Allocation(uid, answer), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<SyncLoopEvent>> for SyncLoop {
    fn handle(&mut self, delivery: Delivery<SyncLoopEvent>, ctx: &mut Context<Self>) {
        delivery.open(|event| self.iterate(event, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

#[cfg(test)]
mod tests;
