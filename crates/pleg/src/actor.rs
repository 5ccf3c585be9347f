//! The Pleg actor.
//!
//! * owns: the status cache (sole writer), the summary of the last relist, the inspection queue
//! * receives: `InspectPod`, `GetObserved`, runtime events, changes of hung calls, completions of
//!   its own reads
//! * sends: `PodChanged` to the SyncLoop (coalesced per pod)
//! * invariant: the cache is written before a change is sent; each change is sent exactly once; an
//!   inspection never overtakes an older one of the same pod
//! * bound and overflow: events coalesce per container, changes per pod; one inspection per pod,
//!   `MAX_CONCURRENT_INSPECTIONS` in all besides hung ones; nothing is dropped
//! * restart: the first relist restores the state

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_actors::{
    GetObserved, InspectError, InspectPod, OomKillCache, PlegHealth, PlegMessage, PodChanged,
    RuntimeName, StatusCache,
};
use windlass_cri::{CriResult, HungCalls, RuntimeService};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Mailbox, Merge, SlotReceiver, SlotSender, completions,
    slots, spawn_io,
};
use windlass_metrics::{MailboxMetrics, PlegMetrics};
use windlass_pacing::Limiter;
use windlass_pod_lifecycle::pleg::{RuntimePods, diff, forget_cut_off_starts};
use windlass_types::cri::RuntimeEventKind;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{Clock, ObservedPod, PodUid, Timestamp};

use crate::io::{self, Inspection};
use crate::queue::{InspectQueue, NextInspection};

/// An inspection is four short calls; eight keep containerd busy without contention on its metadata
/// lock.
pub(crate) const MAX_CONCURRENT_INSPECTIONS: usize = 8;
/// Inspections of pods whose last inspection failed have their own limiter, so that they do not
/// delay healthy pods.
const MAX_CONCURRENT_RETRIES: usize = 4;
/// An inspection takes 10 ms alone and about 100 ms under load. One that takes longer, while the
/// others do not, loses its permit.
const MIN_READ_TIME: Duration = Duration::from_millis(500);
/// Relist interval without runtime events: upstream's.
const RELIST_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// Relist interval with runtime events. It bounds the effect of an event that the runtime loses:
/// the CRI event stream drops events when its queue is full.
const RELIST_WITH_EVENTS: Duration = Duration::from_secs(10);
/// Back-off after a failed relist: 100 ms doubling to 5 s.
const MIN_LIST_RETRY: Duration = Duration::from_millis(100);
const MAX_LIST_RETRY: Duration = Duration::from_secs(5);

/// Dependencies of the PLEG.
#[derive(Debug, Clone)]
pub struct PlegDeps {
    /// The runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: PlegMetrics,
    /// Metrics of mailboxes.
    pub mailboxes: MailboxMetrics,
    /// The status cache.
    pub cache: StatusCache,
    /// Receiver of changes.
    pub changes: SlotSender<PodUid, PodChanged>,
    /// Cancelled at shutdown.
    pub cancel: CancellationToken,
    /// Read by the health checks.
    pub health: PlegHealth,
    /// The name of the runtime, set by the first read.
    pub runtime_name: RuntimeName,
    /// Hung calls, reported to their pods.
    pub hung: HungCalls,
    /// OOM kills, which become part of the observation of a container.
    pub oom_kills: OomKillCache,
}

/// Runtime events of one container or sandbox since its last inspection.
#[derive(Debug)]
pub struct PendingEvent {
    /// Kinds of the events, in order.
    pub kinds: Vec<RuntimeEventKind>,
    /// The pod, if the event has it.
    pub uid: Option<PodUid>,
}

impl Merge for PendingEvent {
    fn merge(&mut self, newer: Self) {
        for kind in newer.kinds {
            if !self.kinds.contains(&kind) {
                self.kinds.push(kind);
            }
        }
        self.uid = newer.uid.or_else(|| self.uid.take());
    }
}

/// Result of a task that the actor started.
#[derive(Debug)]
pub enum Completion {
    /// A relist ended.
    Listed(CriResult<RuntimePods>, Duration),
    /// An inspection ended.
    Inspected(PodUid, CriResult<Inspection>, Duration),
    /// The pod of an unknown container was found.
    OwnerFound(String, PodUid),
    /// The event stream opened or closed.
    EventStream {
        /// Open now.
        open: bool,
    },
}

type Waiter = oneshot::Sender<Result<Arc<ObservedPod>, InspectError>>;

/// Input streams of the PLEG.
#[derive(Debug)]
struct Streams {
    mailbox: Mailbox<PlegMessage>,
    completions: Completions<Completion>,
    pending_events: SlotReceiver<String, PendingEvent>,
}

/// See the module page.
#[derive(Debug)]
pub struct Pleg {
    deps: PlegDeps,
    completions: CompletionSender<Completion>,
    streams: Option<Streams>,
    pending_events: SlotSender<String, PendingEvent>,
    known: RuntimePods,
    queue: InspectQueue<Waiter>,
    reads: Arc<Limiter>,
    retries: Arc<Limiter>,
    listed_once: bool,
    queries_before_list: Vec<GetObserved>,
    listing: bool,
    /// The relist in progress may be too old for a later request.
    list_again: bool,
    list_failures: u32,
    list_timer: Option<actix::SpawnHandle>,
    last_list_at: Option<Instant>,
    events_open: bool,
    /// When this agent run began.
    started: Timestamp,
}

impl Pleg {
    /// Creates a PLEG without observations.
    pub fn new(deps: PlegDeps, mailbox: Mailbox<PlegMessage>) -> Self {
        let (completion_sender, completion_stream) = completions();
        let (pending_events, event_stream) = slots(crate::PLEG, &deps.mailboxes);
        Self {
            started: deps.clock.now(),
            deps,
            completions: completion_sender,
            streams: Some(Streams {
                mailbox,
                completions: completion_stream,
                pending_events: event_stream,
            }),
            pending_events,
            known: RuntimePods::default(),
            queue: InspectQueue::default(),
            reads: Arc::new(Limiter::new(MAX_CONCURRENT_INSPECTIONS, MIN_READ_TIME)),
            retries: Arc::new(Limiter::new(MAX_CONCURRENT_RETRIES, MIN_READ_TIME)),
            listed_once: false,
            queries_before_list: Vec::new(),
            listing: false,
            list_again: false,
            list_failures: 0,
            list_timer: None,
            last_list_at: None,
            events_open: false,
        }
    }

    fn list_now(&mut self, ctx: &mut Context<Self>) {
        if let Some(timer) = self.list_timer.take() {
            ctx.cancel_future(timer);
        }
        if self.listing {
            self.list_again = true;
            return;
        }
        self.listing = true;
        let now = Instant::now();
        if let Some(before) = self.last_list_at.replace(now) {
            self.deps
                .metrics
                .relist_interval
                .observe((now - before).as_secs_f64());
        }
        let runtime = Arc::clone(&self.deps.runtime);
        let name = self.deps.runtime_name.clone();
        let completions = self.completions.clone();
        spawn_io("pleg-list", async move {
            let begin = Instant::now();
            let result = io::list(runtime.as_ref(), &name).await;
            completions.send(Completion::Listed(result, begin.elapsed()));
        });
    }

    fn list_after(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        self.list_timer = Some(ctx.run_later(delay, |this, ctx| {
            this.list_timer = None;
            this.list_now(ctx);
        }));
    }

    fn listed(&mut self, result: CriResult<RuntimePods>, took: Duration, ctx: &mut Context<Self>) {
        self.listing = false;
        let listing = match result {
            Ok(listing) => listing,
            Err(error) => {
                if self.list_failures == 0 {
                    tracing::warn!(%error, retry = %error.retry(), "relist failed");
                }
                let delay = MIN_LIST_RETRY * 2u32.pow(self.list_failures.min(6));
                self.list_failures += 1;
                self.list_after(delay.min(MAX_LIST_RETRY), ctx);
                return;
            }
        };
        if self.list_failures > 0 {
            tracing::info!(failures = self.list_failures, "relist succeeded again");
        }
        self.list_failures = 0;
        self.deps
            .metrics
            .relist_duration
            .observe(took.as_secs_f64());
        let now = self.deps.clock.now().as_second();
        if !(mutated(Mutation::HungCallStopsPleg) && self.queue.has_reads()) {
            self.deps.health.record_relist();
        }
        self.deps.metrics.last_seen.set(now as f64);

        let changed = self.known.changed_pods(&listing);
        tracing::debug!(changed = changed.len(), "relist done");
        self.listed_once = true;
        for uid in changed {
            if !(mutated(Mutation::MissedEventIsLost) && self.events_open) {
                self.inspect(&uid, None);
            }
        }
        for query in std::mem::take(&mut self.queries_before_list) {
            self.observed(query, Some(&listing));
        }
        if std::mem::take(&mut self.list_again) {
            self.list_now(ctx);
            return;
        }
        let period = if self.events_open {
            RELIST_WITH_EVENTS
        } else {
            RELIST_WITHOUT_EVENTS
        };
        self.list_after(period, ctx);
    }

    fn inspect(&mut self, uid: &PodUid, waiter: Option<Waiter>) {
        if self.queue.request(uid, waiter) {
            self.start_inspection(uid.clone());
        }
    }

    fn start_inspection(&self, uid: PodUid) {
        let runtime = Arc::clone(&self.deps.runtime);
        let clock = Arc::clone(&self.deps.clock);
        let name = self.deps.runtime_name.clone();
        let completions = self.completions.clone();
        let limiter = if self.queue.is_failing(&uid) {
            Arc::clone(&self.retries)
        } else {
            Arc::clone(&self.reads)
        };
        let load = self.deps.hung.load();
        let started = self.started;
        spawn_io("pleg-inspect", async move {
            let read = async {
                let begin = Instant::now();
                let mut result =
                    io::inspect(runtime.as_ref(), clock.as_ref(), &name, &load, &uid).await;
                if let Ok(inspection) = &mut result {
                    forget_cut_off_starts(&mut inspection.pod, started);
                }
                (result, begin.elapsed())
            };
            let (result, took) = limiter.run(read).await;
            completions.send(Completion::Inspected(uid, result, took));
        });
    }

    fn inspected(
        &mut self,
        uid: PodUid,
        result: CriResult<Inspection>,
        took: Duration,
        ctx: &mut Context<Self>,
    ) {
        self.deps
            .metrics
            .inspection_duration
            .observe(took.as_secs_f64());
        let (after, answer) = match result {
            Ok(inspection) => {
                let alive = inspection.summary.alive_ids(&uid);
                let events = diff(&self.known.only(&uid), &inspection.summary);
                let mut pod = inspection.pod;
                for container in &mut pod.containers {
                    container.oom_kills = self.deps.oom_kills.get(&container.id);
                }
                let pod = Arc::new(pod);
                // cache first: the receiver of the change reads it there
                self.deps.cache.record(Arc::clone(&pod));
                self.known.replace(&uid, inspection.summary);
                if !events.is_empty() {
                    for event in &events {
                        tracing::debug!(%event, "pod lifecycle event");
                    }
                    let calls = false;
                    let changed = PodChanged { events, calls };
                    self.deps.changes.put(uid.clone(), changed);
                }
                (self.queue.succeeded(&uid, &alive), Ok(pod))
            }
            Err(error) => {
                tracing::warn!(pod = %uid, %error, retry = %error.retry(), "pod inspection failed");
                (
                    self.queue.failed(&uid),
                    Err(InspectError(error.to_string())),
                )
            }
        };
        self.after_read(uid, after, &answer, ctx);
    }

    fn after_read(
        &mut self,
        uid: PodUid,
        after: NextInspection<Waiter>,
        answer: &Result<Arc<ObservedPod>, InspectError>,
        ctx: &mut Context<Self>,
    ) {
        for waiter in after.answered {
            // the caller may have been cancelled
            let _ = waiter.send(answer.clone());
        }
        if after.start {
            self.start_inspection(uid);
        } else if let Some(delay) = after.retry_after {
            ctx.run_later(delay, move |this, _| this.inspect(&uid, None));
        }
    }

    /// Replies from the cache; for a pod that was listed but not inspected yet, after its
    /// inspection.
    fn observed(&mut self, query: GetObserved, listing: Option<&RuntimePods>) {
        let GetObserved { uid, reply } = query;
        if !self.listed_once {
            self.queries_before_list.push(GetObserved { uid, reply });
        } else if let Some(pod) = self.deps.cache.get(&uid) {
            let _ = reply.send(Ok(pod));
        } else if self.queue.is_reading(&uid) || listing.is_some_and(|l| l.contains(&uid)) {
            self.inspect(&uid, Some(reply));
        } else {
            let _ = reply.send(Ok(Arc::new(ObservedPod {
                uid,
                ..ObservedPod::default()
            })));
        }
    }

    /// Inspects the pod of a stop or removal. Starts are inspected by the sync that causes them or
    /// found by the next relist.
    fn runtime_event(&mut self, id: String, event: PendingEvent) {
        let starts = [RuntimeEventKind::Created, RuntimeEventKind::Started];
        if event.kinds.iter().all(|kind| starts.contains(kind)) {
            return;
        }
        match event.uid.or_else(|| self.known.owner(&id)) {
            Some(uid) => {
                if event.kinds.contains(&RuntimeEventKind::Stopped) {
                    self.queue.expect_exit(&uid, &id);
                }
                self.inspect(&uid, None);
            }
            None => self.look_up_owner(id),
        }
    }

    fn look_up_owner(&self, id: String) {
        let runtime = Arc::clone(&self.deps.runtime);
        let completions = self.completions.clone();
        spawn_io("pleg-owner", async move {
            match io::owner_of(runtime.as_ref(), &id).await {
                Ok(Some(uid)) => completions.send(Completion::OwnerFound(id, uid)),
                Ok(None) => tracing::trace!(id, "event of a container that is not a pod's"),
                Err(error) => tracing::debug!(id, %error, "owner of a container not found"),
            }
        });
    }

    fn completed(&mut self, completion: Completion, ctx: &mut Context<Self>) {
        match completion {
            Completion::Listed(result, took) => self.listed(result, took, ctx),
            Completion::Inspected(uid, result, took) => self.inspected(uid, result, took, ctx),
            Completion::OwnerFound(id, uid) => {
                self.queue.expect_exit(&uid, &id);
                self.inspect(&uid, None);
            }
            Completion::EventStream { open } => {
                tracing::info!(open, "runtime event stream");
                self.events_open = open;
                // a relist finds what happened without a stream
                self.list_now(ctx);
            }
        }
    }
}

/// Notifies pods of changes of their hung calls.
async fn notify_hung_calls(
    hung: HungCalls,
    changes: SlotSender<PodUid, PodChanged>,
    cancel: CancellationToken,
) {
    loop {
        let pods = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            pods = hung.changed() => pods,
        };
        for uid in pods {
            let changed = PodChanged {
                events: Vec::new(),
                calls: true,
            };
            changes.put(uid, changed);
        }
    }
}

impl Actor for Pleg {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(streams) = self.streams.take() {
            ctx.add_stream(streams.mailbox);
            ctx.add_stream(streams.completions);
            ctx.add_stream(streams.pending_events);
        }
        spawn_io(
            "runtime-events",
            io::follow_events(
                Arc::clone(&self.deps.runtime),
                self.pending_events.clone(),
                self.completions.clone(),
                self.deps.cancel.clone(),
            ),
        );
        spawn_io(
            "hung-calls",
            notify_hung_calls(
                self.deps.hung.clone(),
                self.deps.changes.clone(),
                self.deps.cancel.clone(),
            ),
        );
        self.list_now(ctx);
    }
}

impl StreamHandler<Delivery<PlegMessage>> for Pleg {
    fn handle(&mut self, delivery: Delivery<PlegMessage>, _: &mut Context<Self>) {
        delivery.open(|message| match message {
            PlegMessage::Inspect(InspectPod { uid, reply }) => self.inspect(&uid, Some(reply)),
            PlegMessage::Observed(query) => self.observed(query, None),
        });
    }

    // the default stops the actor with its first stream; it ends with the process
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<Completion>> for Pleg {
    fn handle(&mut self, delivery: Delivery<Completion>, ctx: &mut Context<Self>) {
        delivery.open(|completion| self.completed(completion, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(String, PendingEvent)> for Pleg {
    fn handle(&mut self, (id, event): (String, PendingEvent), _: &mut Context<Self>) {
        self.runtime_event(id, event);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
