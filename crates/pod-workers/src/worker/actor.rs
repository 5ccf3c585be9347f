//! The PodWorker actor: one for each pod UID.
//!
//! * owns: the pod's state machine, its back-off table, its status entry
//! * receives: `UpdatePod` and `RuntimeState` (coalesced, in its own slot), events of its own job
//! * sends: `WorkerStateChanged` to PodWorkers; its results to the pod status store
//! * invariant: one job in flight; states never go back; events of earlier jobs are ignored
//! * bound and overflow: one coalescing slot, one job, one timer; a termination is never queued
//! * restart: a panic ends the process; after an agent restart a new worker adopts the containers

use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::{
    KillPod, PodWorkerState, ProbePod, ProbeTargets, RuntimeState, UpdatePod, WorkerStateChanged,
};
use windlass_cri::{HungCall, for_pod};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Merge, SlotReceiver, SlotSender, completions, spawn_io,
};
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_pod_lifecycle::deadline;
use windlass_pod_lifecycle::pod_worker::{Effect, Input, Job, JobId, JobResult, PodWorker, State};
use windlass_pod_lifecycle::stop::{
    MIN_GRACE_PERIOD, effective_grace_period, is_resumed_stop, remaining_grace_period,
};
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome};
use windlass_types::view::EventType;
use windlass_types::{PodProbeResults, PodUid, Reason, SharedPod};

use super::WorkerDeps;
use super::jobs::{self, JobEvent, Progress, SyncCancellation, SyncJob, SyncReport};
use super::report::{Report, worker_state};
use super::terminate::{self, TerminatingJob};

/// Update from the registry; the newest of each kind counts.
#[derive(Clone, Debug, Default)]
pub struct WorkerUpdate {
    /// Update of the pod.
    pub update: Option<UpdatePod>,
    /// State of the runtime.
    pub runtime: Option<RuntimeState>,
}

impl Merge for WorkerUpdate {
    fn merge(&mut self, newer: Self) {
        match (&mut self.update, newer.update) {
            (Some(waiting), Some(update)) => waiting.merge(update),
            (waiting, Some(update)) => *waiting = Some(update),
            (_, None) => {}
        }
        self.runtime = newer.runtime.or_else(|| self.runtime.take());
    }
}

/// Initial state of a worker.
#[derive(Debug)]
pub enum InitialState {
    /// A desired pod, with the back-off of the previous agent run.
    Run(SharedPod, BackoffTable),
    /// A pod to terminate.
    Terminate(SharedPod, KillPod),
    /// An orphaned pod to terminate.
    TerminateOrphan(KillPod),
}

/// See the module page.
#[derive(Debug)]
pub(crate) struct PodWorkerActor {
    uid: PodUid,
    deps: Arc<WorkerDeps>,
    machine: PodWorker,
    pod: Option<SharedPod>,
    backoff: BackoffTable,
    report: Report,
    /// Probe targets that were sent last.
    probed: Option<ProbeTargets>,
    /// Probe results in the status.
    probe_results: Arc<PodProbeResults>,
    /// Hung calls for which an event was recorded.
    hung: Vec<HungCall>,
    /// The status cache may lack what a sync changed.
    must_inspect: bool,
    /// A previous agent run began to terminate the pod.
    resumed_stop: bool,
    /// Start of the first terminating sync.
    stop_began: Option<Instant>,
    runtime: RuntimeState,
    job: Option<(JobId, CancellationToken, Instant)>,
    timer: Option<SpawnHandle>,
    completions: CompletionSender<JobEvent>,
    states: SlotSender<PodUid, WorkerStateChanged>,
    /// State that PodWorkers know.
    sent_state: PodWorkerState,
    streams: Option<(SlotReceiver<(), WorkerUpdate>, Completions<JobEvent>)>,
    begin: Option<Input>,
}

impl PodWorkerActor {
    /// Creates the worker of one pod, with the stream of its updates.
    pub(crate) fn new(
        uid: PodUid,
        deps: Arc<WorkerDeps>,
        begin: InitialState,
        updates: SlotReceiver<(), WorkerUpdate>,
        states: SlotSender<PodUid, WorkerStateChanged>,
    ) -> Self {
        let (completion_sender, completion_stream) = completions();
        let runtime = deps.runtime_state.borrow().clone();
        let (pod, backoff, kill) = match begin {
            InitialState::Run(pod, backoff) => (Some(pod), backoff, None),
            InitialState::Terminate(pod, kill) => (Some(pod), BackoffTable::default(), Some(kill)),
            InitialState::TerminateOrphan(kill) => (None, BackoffTable::default(), Some(kill)),
        };
        let mut report = Report::new(pod.clone(), deps.clock.now(), &deps.metrics);
        let input = match kill {
            None => Input::PodUpdated,
            Some(kill) => {
                report.decided(kill.reason, kill.phase_override);
                Input::Terminate(kill.grace)
            }
        };
        if let Some(pod) = &pod {
            deps.objects.register(pod);
        }
        let resumed_stop = pod.as_deref().is_some_and(is_resumed_stop);
        let grace_period = pod
            .as_deref()
            .map_or(MIN_GRACE_PERIOD, |pod| effective_grace_period(pod, None));
        let machine = PodWorker::new(
            uid.clone(),
            grace_period,
            deps.settings.sync_frequency,
            runtime.usable(),
        );
        Self {
            report,
            probed: None,
            probe_results: Arc::default(),
            hung: Vec::new(),
            uid,
            deps,
            machine,
            pod,
            backoff,
            must_inspect: false,
            resumed_stop,
            stop_began: None,
            runtime,
            job: None,
            timer: None,
            completions: completion_sender,
            states,
            sent_state: PodWorkerState::SyncPod,
            streams: Some((updates, completion_stream)),
            begin: Some(input),
        }
    }

    fn handle(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = self.deps.clock.now();
        let effects = self.machine.handle(input, now);
        for effect in &effects {
            tracing::debug!(pod = %self.uid, ?input, %effect, "pod worker");
        }
        let state = worker_state(self.machine.state());
        if state != self.sent_state {
            self.send_state(state, false);
        }
        for effect in effects {
            match effect {
                Effect::Start(id, job) => self.start(id, job),
                Effect::Cancel(_) => {
                    if let Some((_, token, _)) = &self.job {
                        token.cancel();
                    }
                }
                Effect::Wake(_) => {}
                Effect::Finished => self.finish(ctx),
            }
        }
        self.arm_timer(ctx);
        self.publish();
        self.check_deadline(ctx);
    }

    /// Terminates the pod if its deadline has passed, even if its job waits. The SyncLoop resyncs a pod
    /// whose deadline passes.
    fn check_deadline(&mut self, ctx: &mut Context<Self>) {
        let now = self.deps.clock.now();
        if self.machine.state() != State::SyncPod || !self.report.is_past_deadline(now) {
            return;
        }
        if let Some(pod) = &self.pod {
            let (reason, text) = (Reason::DeadlineExceeded, deadline::MESSAGE);
            let events = &self.deps.events;
            events.record(pod, None, EventType::Normal, reason, text);
        }
        let reason = deadline::MESSAGE.to_owned();
        let phase_override = Some(deadline::phase_override());
        self.report.decided(reason, phase_override);
        self.handle(Input::Terminate(None), ctx);
    }

    /// Replaces the timer by that of the state machine.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(delay) = self.machine.next_wake_up(self.deps.clock.now()) {
            self.timer = Some(ctx.run_later(delay, |this, ctx| {
                this.timer = None;
                this.handle(Input::TimerFired, ctx);
            }));
        }
    }

    fn start(&mut self, id: JobId, job: Job) {
        let token = CancellationToken::new();
        self.job = Some((id, token.clone(), Instant::now()));
        let deps = Arc::clone(&self.deps);
        let completions = self.completions.clone();
        let uid = self.uid.clone();
        let what = RecordKey::new(RecordKind::Sync, job.name());
        let record = deps.timelines.begin(&uid, what);
        match job {
            Job::SyncPod => {
                let Some(pod) = self.pod.clone() else { return };
                let job = SyncJob {
                    pod,
                    backoff: self.backoff.clone(),
                    probe_results: self.deps.probes.results.get(&self.uid),
                    status: self.report.status(),
                    known: self.report.known(),
                    must_inspect: self.must_inspect,
                    network_ready: self.runtime.network_error.is_none(),
                };
                spawn_io("sync-pod", async move {
                    let progress = |update| completions.send(JobEvent::Progress(id, update));
                    let cancel = SyncCancellation::new(token);
                    let report = record.within(async {
                        tokio::select! {
                            biased;
                            () = cancel.may_drop() => None,
                            report = Box::pin(jobs::sync_pod(&deps, job, cancel.clone(), &progress)) => Some(report),
                        }
                    });
                    let report = report.await;
                    record.end(
                        report
                            .as_ref()
                            .map_or(RecordOutcome::Cancelled, SyncReport::record_outcome),
                    );
                    completions.send(match report {
                        Some(report) => JobEvent::Synced(id, Box::new(report)),
                        None => JobEvent::Cancelled(id),
                    });
                });
            }
            Job::SyncTerminatingPod { grace } => {
                let pod = self.pod.clone();
                let now = self.deps.clock.now();
                let grace = match &pod {
                    Some(pod) if self.resumed_stop => remaining_grace_period(pod, grace, now),
                    _ => grace,
                };
                self.report.terminating(grace, now);
                let waited = self.stop_began.get_or_insert_with(Instant::now).elapsed();
                let job = TerminatingJob { pod, grace, waited };
                spawn_io("kill-pod", async move {
                    let kill = Box::pin(terminate::sync_terminating_pod(&deps, &uid, job));
                    let kill = for_pod(uid.clone(), kill);
                    tokio::select! {
                        biased;
                        () = token.cancelled() => completions.send(JobEvent::Cancelled(id)),
                        result = record.within(kill) => {
                            record.end(RecordOutcome::from_result(&result.as_ref().map_err(|error| &error.message)));
                            completions.send(JobEvent::Killed(id, result));
                        }
                    }
                });
            }
            Job::SyncTerminatedPod => {
                spawn_io("release-pod", async move {
                    let result = record
                        .within(terminate::sync_terminated_pod(&deps, &uid))
                        .await;
                    record.end(RecordOutcome::from_result(
                        &result.as_ref().map_err(|error| &error.message),
                    ));
                    completions.send(JobEvent::Released(id, result));
                });
            }
        }
    }

    fn job_event(&mut self, event: JobEvent, ctx: &mut Context<Self>) {
        let (id, operation, result) = match event {
            JobEvent::Progress(id, progress) => {
                let current = self.job.as_ref().map(|(current, _, _)| *current);
                if current == Some(id) {
                    match progress {
                        Progress::Observed(observed) => {
                            self.report.observed_before_sync(observed, &self.deps);
                        }
                        Progress::Dispatched(at) => {
                            self.report.dispatched(at, &self.deps.metrics);
                        }
                    }
                    self.publish();
                    self.check_deadline(ctx);
                }
                return;
            }
            JobEvent::Cancelled(id) => (id, "cancelled", JobResult::Cancelled),
            JobEvent::Synced(id, report) => (id, "sync", self.synced(*report)),
            JobEvent::Killed(id, result) => {
                if let Err(error) = &result {
                    self.job_failed(Reason::FailedKillPod, &error.message);
                }
                if let Ok(observed) = &result {
                    self.report.observed(Arc::clone(observed));
                }
                (
                    id,
                    "terminating",
                    JobResult::Killed(result.map(drop).map_err(|e| e.retry)),
                )
            }
            JobEvent::Released(id, result) => {
                if let Err(error) = &result {
                    self.job_failed(Reason::FailedSync, &error.message);
                }
                (
                    id,
                    "terminated",
                    JobResult::Released(result.map_err(|e| e.retry)),
                )
            }
        };
        if let Some((_, _, begin)) = self.job.take_if(|(current, _, _)| *current == id) {
            let seconds = begin.elapsed().as_secs_f64();
            self.deps
                .metrics
                .workers
                .sync_duration
                .with_label_values(&[operation])
                .observe(seconds);
        }
        self.handle(Input::JobFinished(id, result), ctx);
    }

    fn synced(&mut self, report: SyncReport) -> JobResult {
        let now = self.deps.clock.now();
        if let Some(outcome) = &report.outcome
            && outcome.backoff != self.backoff
        {
            self.backoff = outcome.backoff.clone();
            if let Some(file) = &self.deps.backoff_file {
                file.record(&self.uid, &self.backoff);
            }
        }
        if let Err(error) = &report.observed {
            self.job_failed(Reason::FailedSync, &error.message);
        }
        self.must_inspect = report.has_unread_changes(self.must_inspect);
        let summary = self.report.synced(report, &self.deps, now);
        JobResult::Synced {
            retry_at: summary.retry_at,
            terminal: summary.terminal,
        }
    }

    fn job_failed(&self, reason: Reason, message: &str) {
        tracing::warn!(pod = %self.uid, %reason, message, "pod sync failed");
        if let Some(pod) = &self.pod {
            self.deps
                .events
                .record(pod, None, EventType::Warning, reason, message);
        }
    }

    fn update(&mut self, update: UpdatePod, ctx: &mut Context<Self>) {
        let UpdatePod { run, kill, .. } = update;
        let probe_results = self.deps.probes.results.get(&self.uid);
        if probe_results != self.probe_results {
            // readiness is published immediately, even if the job in flight waits
            self.probe_results = probe_results;
            self.report.probed(&self.deps);
            // a successful startup probe starts the others
            self.probed = None;
        }
        self.record_hung_calls();
        let had_run = run.is_some();
        if let Some(pod) = run {
            self.machine
                .set_grace_period(effective_grace_period(&pod, None));
            self.deps.objects.register(&pod);
            self.report.updated(Arc::clone(&pod), &self.deps);
            self.pod = Some(pod);
        }
        if let Some(kill) = kill {
            self.report.decided(kill.reason, kill.phase_override);
            self.handle(Input::Terminate(kill.grace), ctx);
        } else {
            self.handle(
                if had_run {
                    Input::PodUpdated
                } else {
                    Input::Resync
                },
                ctx,
            );
        }
    }

    /// Records one event per hung call.
    fn record_hung_calls(&mut self) {
        let hung = self.deps.hung.for_pod(&self.uid);
        let begins = |call: &&HungCall| !self.hung.iter().any(|old| old.is_same_call(call));
        if let Some(pod) = &self.pod {
            for call in hung.iter().filter(begins) {
                self.deps.events.record(
                    pod,
                    None,
                    EventType::Warning,
                    Reason::RuntimeCallHung,
                    &call.to_string(),
                );
            }
        }
        self.hung = hung;
    }

    fn runtime_state(&mut self, state: RuntimeState, ctx: &mut Context<Self>) {
        let network_came = self.runtime.network_error.is_some() && state.network_error.is_none();
        self.runtime = state;
        self.handle(Input::RuntimeReady(self.runtime.usable()), ctx);
        if network_came {
            self.handle(Input::Resync, ctx);
        }
    }

    fn publish(&mut self) {
        self.report
            .publish(self.machine.state(), &self.runtime, &self.deps);
        self.probe();
    }

    /// Sends the probe targets if they changed.
    fn probe(&mut self) {
        let phase = worker_state(self.machine.state());
        let Some(targets) = self.report.probe_targets(phase) else {
            return;
        };
        if !self.probed.as_ref().is_some_and(|sent| sent.is(&targets)) {
            self.probed = Some(targets.clone());
            self.deps.probes.probe(&self.uid, &ProbePod::Probe(targets));
        }
    }

    fn finish(&mut self, ctx: &mut Context<Self>) {
        tracing::info!(pod = %self.uid, "pod terminated");
        self.deps.objects.unregister(&self.uid);
        self.deps.hung.forget(&self.uid);
        self.deps.probes.probe(&self.uid, &ProbePod::Forget);
        self.send_state(PodWorkerState::TerminatedPod, true);
        ctx.stop();
    }

    fn send_state(&mut self, state: PodWorkerState, finished: bool) {
        self.sent_state = state;
        let changed = WorkerStateChanged { state, finished };
        self.states.put(self.uid.clone(), changed);
    }
}

impl Actor for PodWorkerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((updates, completions)) = self.streams.take() {
            ctx.add_stream(updates);
            ctx.add_stream(completions);
        }
        if let Some(input) = self.begin.take() {
            self.handle(input, ctx);
        }
    }
}

impl StreamHandler<((), WorkerUpdate)> for PodWorkerActor {
    fn handle(&mut self, ((), update): ((), WorkerUpdate), ctx: &mut Context<Self>) {
        if let Some(state) = update.runtime {
            self.runtime_state(state, ctx);
        }
        if let Some(update) = update.update {
            self.update(update, ctx);
        }
    }

    // the registry drops the sender only when the worker has finished
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<JobEvent>> for PodWorkerActor {
    fn handle(&mut self, delivery: Delivery<JobEvent>, ctx: &mut Context<Self>) {
        delivery.open(|event| self.job_event(event, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

#[cfg(test)]
mod tests;
