//! The StatusManager actor: brings statuses and mirror pods to the API server.
//!
//! * owns: a machine for each pod and for each mirror's name, the queue of those with something
//!   to send
//! * hears: the board's changes, `ApiPodUpdate` (coalesced per UID), `NodeUpdate`, `SourcesReady`,
//!   answers of its own requests
//! * says: nothing to actors; patches, deletions and creations to the API server
//! * invariant: one request in flight for each pod; it carries the newest state; nothing is sent
//!   while nothing differs; no pod waits for any of it
//! * bound and overflow: 16 requests in flight, each with a deadline; who waits is in the queue
//!   once, and waits with its newest state
//! * restart: none by itself, a panic ends the process; the next one compares the board with the
//!   API and sends what differs

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use futures::stream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{
    CompletionSender, Completions, ApiPodUpdate, Delivery, NodeUpdate, SlotReceiver, SourcesReady, completions,
    spawn_io,
};
use windlass_client::ApiClient;
use windlass_pod_status::mirror::NodeOwner;
use windlass_pod_status::status_sync::{Answer, Call, Failure, Request};
use windlass_metrics::Metrics;
use windlass_timelines::{Outcome, Timelines, RecordKind, What};
use windlass_types::{Clock, PodUid, Timestamp};

use super::book::{Book, Key};
use super::io;
use super::starts::Starts;
use crate::status_store::{StatusChange, StatusSubscription, PodStatusStore};

/// What the manager works with.
#[derive(Clone, Debug)]
pub struct StatusManagerDeps {
    /// What the node says.
    pub board: PodStatusStore,
    /// Told of each request.
    pub timelines: Timelines,
    /// The way to the API server: `ApiClients::main`.
    pub client: ApiClient,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// What came of a request.
#[derive(Debug)]
struct Answered {
    key: Key,
    /// Of a patch: since when it was due.
    patch_since: Option<Timestamp>,
    result: Result<Answer, Failure>,
}

#[derive(Debug)]
struct Streams {
    pods: SlotReceiver<PodUid, ApiPodUpdate>,
    node: watch::Receiver<NodeUpdate>,
    sources: watch::Receiver<SourcesReady>,
    completions: Completions<Answered>,
}

/// See the module page.
#[derive(Debug)]
pub struct StatusManager {
    deps: StatusManagerDeps,
    book: Book,
    starts: Starts,
    timer: Option<SpawnHandle>,
    completions: CompletionSender<Answered>,
    streams: Option<Streams>,
}

impl StatusManager {
    /// A manager that has not begun. `pods` is told of this node's pods in the API, mirrors
    /// included, `node` of its Node object, `sources` whether every pod source has spoken.
    pub fn new(
        deps: StatusManagerDeps,
        pods: SlotReceiver<PodUid, ApiPodUpdate>,
        node: watch::Receiver<NodeUpdate>,
        sources: watch::Receiver<SourcesReady>,
    ) -> Self {
        let (sender, completions) = completions();
        Self {
            deps,
            book: Book::default(),
            starts: Starts::default(),
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

    /// Takes something in, then sends what is due and arms the timer.
    fn turn(&mut self, ctx: &mut Context<Self>, take_in: impl FnOnce(&mut Book, Timestamp)) {
        let now = self.deps.clock.now();
        take_in(&mut self.book, now);
        while let Some((key, request)) = self.book.take(now) {
            self.send(key, request);
        }
        self.arm_timer(now, ctx);
        self.deps
            .metrics
            .mirror_pods
            .set(self.book.mirror_count() as f64);
    }

    fn send(&self, key: Key, request: Request) {
        tracing::debug!(pod = %request.name, call = %request.call, "to the API server");
        let patch_since = matches!(request.call, Call::Patch(_)).then_some(request.since);
        let client = self.deps.client.clone();
        let completions = self.completions.clone();
        let what = What::new(RecordKind::ApiRequest, request.call.verb());
        let uid = self.book.pod(&key);
        let touch = uid.map(|uid| self.deps.timelines.begin(&uid, what));
        spawn_io("pod-request", async move {
            let sent = io::send(&client, request);
            let result = match touch {
                None => sent.await,
                Some(touch) => {
                    let result = touch.within(sent).await;
                    touch.end(Outcome::of(
                        &result.as_ref().map_err(|failure| failure.kind),
                    ));
                    result
                }
            };
            completions.send(Answered {
                key,
                patch_since,
                result,
            });
        });
    }

    fn answered(&mut self, answered: Answered, ctx: &mut Context<Self>) {
        let Answered {
            key,
            patch_since,
            result,
        } = answered;
        if let (Some(since), Ok(_)) = (patch_since, &result) {
            let took = self.deps.clock.now().duration_since(since).as_secs_f64();
            self.deps
                .metrics
                .pod_status_sync_duration
                .observe(took.max(0.0));
        }
        self.turn(ctx, |book, now| book.answered(key, result, now));
    }

    /// The timer is whatever the book says now; an older one is replaced.
    fn arm_timer(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = self.book.wake_at() {
            let delay = Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
            self.timer = Some(ctx.run_later(delay, |this, ctx| {
                this.timer = None;
                this.turn(ctx, Book::tick);
            }));
        }
    }
}

impl Actor for StatusManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(streams) = self.streams.take() else {
            return;
        };
        // what the sources and the server said comes before what is concluded from it
        ctx.add_stream(board_changes(self.deps.board.subscribe()));
        ctx.add_stream(streams.pods);
        ctx.add_stream(WatchStream::new(streams.node));
        ctx.add_stream(WatchStream::new(streams.sources));
        ctx.add_stream(streams.completions);
    }
}

/// The board's changes; the first is the whole board.
fn board_changes(reader: StatusSubscription) -> impl stream::Stream<Item = StatusChange> {
    stream::unfold(reader, async |mut reader| {
        let change = reader.next().await?;
        Some((change, reader))
    })
}

impl StreamHandler<StatusChange> for StatusManager {
    fn handle(&mut self, change: StatusChange, ctx: &mut Context<Self>) {
        self.starts.board(&change);
        self.turn(ctx, |book, now| book.board(change, now));
    }

    // the others go on without it
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, ApiPodUpdate)> for StatusManager {
    fn handle(&mut self, (uid, seen): (PodUid, ApiPodUpdate), ctx: &mut Context<Self>) {
        let now = self.deps.clock.now();
        self.starts.api(&uid, &seen, now, &self.deps.metrics.starts);
        self.turn(ctx, |book, now| book.api(uid, seen, now));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodeUpdate> for StatusManager {
    fn handle(&mut self, NodeUpdate(node): NodeUpdate, ctx: &mut Context<Self>) {
        let node = node.as_deref().and_then(NodeOwner::of);
        self.turn(ctx, |book, now| {
            book.cluster(|cluster| cluster.node = node, now);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<SourcesReady> for StatusManager {
    fn handle(&mut self, SourcesReady(ready): SourcesReady, ctx: &mut Context<Self>) {
        self.turn(ctx, |book, now| {
            book.cluster(|cluster| cluster.sources_ready = ready, now);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<Answered>> for StatusManager {
    fn handle(&mut self, delivery: Delivery<Answered>, ctx: &mut Context<Self>) {
        delivery.open(|answered| self.answered(answered, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
