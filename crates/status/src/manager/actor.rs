//! The StatusManager actor: updates statuses and mirror pods at the API server.
//!
//! * owns: a state machine for each pod and mirror pod, the queue of due requests
//! * receives: changes of the pod status store, `ApiPodUpdate` (coalesced per UID), `NodeUpdate`,
//!   `SourcesReady`, completions of its requests
//! * sends: patches, deletions and creations to the API server; to the pod status store, which pods
//!   have no terminal phase there
//! * invariant: at most one request in flight per pod, with the newest state; no request without a
//!   difference; no pod waits for it
//! * bound and overflow: 16 requests in flight, each with a deadline; a pod is queued at most once
//! * restart: compares the pod status store with the API objects and sends the differences

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use futures::stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{ApiPodUpdate, NodeUpdate, SourcesReady};
use windlass_client::ApiClient;
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, SlotReceiver, completions, spawn_io,
};
use windlass_metrics::Metrics;
use windlass_pod_status::mirror::NodeOwner;
use windlass_pod_status::status_sync::{Call, Request, RequestFailure, RequestResult};
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::{Clock, PodUid, Timestamp};

use super::io;
use super::machines::{Key, PodMachines};
use super::start_latency::StartLatencyTracker;
use crate::status_store::{PodStatusStore, StatusChange, StatusSubscription};

/// Dependencies of the [`StatusManager`].
#[derive(Clone, Debug)]
pub struct StatusManagerDeps {
    /// The pod status store.
    pub status_store: PodStatusStore,
    /// Records each request.
    pub timelines: Timelines,
    /// API client: `ApiClients::main`.
    pub client: ApiClient,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Completion of a request.
#[derive(Debug)]
struct RequestCompleted {
    key: Key,
    /// For a patch: since when it was due.
    patch_since: Option<Timestamp>,
    result: Result<RequestResult, RequestFailure>,
}

#[derive(Debug)]
struct Streams {
    pods: SlotReceiver<PodUid, ApiPodUpdate>,
    node: watch::Receiver<NodeUpdate>,
    sources: watch::Receiver<SourcesReady>,
    completions: Completions<RequestCompleted>,
}

/// The StatusManager actor.
#[derive(Debug)]
pub struct StatusManager {
    deps: StatusManagerDeps,
    machines: PodMachines,
    start_latency: StartLatencyTracker,
    /// The armed timer and its time.
    timer: Option<(SpawnHandle, Timestamp)>,
    completions: CompletionSender<RequestCompleted>,
    streams: Option<Streams>,
}

impl StatusManager {
    /// Creates a manager. `pods` has the API objects of pods and mirror pods, `node` the Node
    /// object, `sources` whether all sources are ready.
    pub fn new(
        deps: StatusManagerDeps,
        pods: SlotReceiver<PodUid, ApiPodUpdate>,
        node: watch::Receiver<NodeUpdate>,
        sources: watch::Receiver<SourcesReady>,
    ) -> Self {
        let (sender, completions) = completions();
        Self {
            deps,
            machines: PodMachines::default(),
            start_latency: StartLatencyTracker::default(),
            timer: None,
            completions: sender,
            streams: Some(Streams {
                pods,
                node,
                sources,
                completions,
            }),
        }
    }

    /// Handles an input, then sends due requests and arms the timer.
    fn process(
        &mut self,
        ctx: &mut Context<Self>,
        handle: impl FnOnce(&mut PodMachines, Timestamp),
    ) {
        let now = self.deps.clock.now();
        self.machines.observe_clock(now);
        handle(&mut self.machines, now);
        while let Some((key, request)) = self.machines.take(now) {
            self.send(key, request);
        }
        self.arm_timer(now, ctx);
        let store = &self.deps.status_store;
        store.set_unfinished(self.machines.unfinished());
        self.deps
            .metrics
            .pod_status
            .mirror_pods
            .set(self.machines.mirror_count() as f64);
    }

    fn send(&self, key: Key, request: Request) {
        tracing::debug!(pod = %request.name, call = %request.call, "API request");
        let patch_since = matches!(request.call, Call::Patch(_)).then_some(request.since);
        let client = self.deps.client.clone();
        let completions = self.completions.clone();
        let what = RecordKey::new(RecordKind::ApiRequest, request.call.verb());
        let uid = self.machines.pod(&key);
        let record = uid.map(|uid| self.deps.timelines.begin(&uid, what));
        spawn_io("pod-request", async move {
            let sent = io::send(&client, request);
            let result = match record {
                None => sent.await,
                Some(record) => {
                    let result = record.within(sent).await;
                    record.end(RecordOutcome::from_result(
                        &result.as_ref().map_err(|failure| failure.kind),
                    ));
                    result
                }
            };
            completions.send(RequestCompleted {
                key,
                patch_since,
                result,
            });
        });
    }

    fn completed(&mut self, completed: RequestCompleted, ctx: &mut Context<Self>) {
        let RequestCompleted {
            key,
            patch_since,
            result,
        } = completed;
        if let (Some(since), Ok(_)) = (patch_since, &result) {
            let took = self.deps.clock.now().duration_since(since).as_secs_f64();
            self.deps
                .metrics
                .pod_status
                .sync_duration
                .observe(took.max(0.0));
        }
        self.process(ctx, |machines, now| machines.completed(key, result, now));
    }

    /// Replaces the timer unless it is that of the next wake-up.
    fn arm_timer(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let next = self.machines.next_wake_up();
        if self.timer.as_ref().map(|(_, at)| *at) == next {
            return;
        }
        if let Some((timer, _)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = next {
            let delay = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            let timer = ctx.run_later(delay, |this, ctx| {
                this.timer = None;
                this.process(ctx, PodMachines::tick);
            });
            self.timer = Some((timer, at));
        }
    }
}

impl Actor for StatusManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(streams) = self.streams.take() else {
            return;
        };
        // in this order: inputs before conclusions from them
        ctx.add_stream(store_changes(self.deps.status_store.subscribe()));
        ctx.add_stream(streams.pods);
        ctx.add_stream(WatchStream::new(streams.node));
        ctx.add_stream(WatchStream::new(streams.sources));
        ctx.add_stream(streams.completions);
    }
}

/// Streams the changes of the pod status store; the first is the whole store.
fn store_changes(reader: StatusSubscription) -> impl stream::Stream<Item = StatusChange> {
    stream::unfold(reader, async |mut reader| {
        let change = reader.next().await?;
        Some((change, reader))
    })
}

impl StreamHandler<StatusChange> for StatusManager {
    fn handle(&mut self, change: StatusChange, ctx: &mut Context<Self>) {
        self.start_latency.store_changed(&change);
        self.process(ctx, |machines, now| machines.store_changed(change, now));
    }

    // the other streams continue
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, ApiPodUpdate)> for StatusManager {
    fn handle(&mut self, (uid, seen): (PodUid, ApiPodUpdate), ctx: &mut Context<Self>) {
        let now = self.deps.clock.now();
        self.start_latency
            .api_changed(&uid, &seen, now, &self.deps.metrics.starts);
        self.process(ctx, |machines, now| machines.api_changed(uid, seen, now));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodeUpdate> for StatusManager {
    fn handle(&mut self, NodeUpdate(node): NodeUpdate, ctx: &mut Context<Self>) {
        let node = node.as_deref().and_then(NodeOwner::from_node);
        self.process(ctx, |machines, now| {
            machines.cluster_changed(|cluster| cluster.node = node, now);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<SourcesReady> for StatusManager {
    fn handle(&mut self, SourcesReady(ready): SourcesReady, ctx: &mut Context<Self>) {
        self.process(ctx, |machines, now| {
            machines.cluster_changed(|cluster| cluster.sources_ready = ready, now);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<RequestCompleted>> for StatusManager {
    fn handle(&mut self, delivery: Delivery<RequestCompleted>, ctx: &mut Context<Self>) {
        delivery.open(|completed| self.completed(completed, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
