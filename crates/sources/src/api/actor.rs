//! The ApiSource actor.
//!
//! * owns: the last known pods
//! * receives: `NodeUpdate` once, then the events of its watch
//! * sends: `SourceSnapshot` to PodStorage, `ApiPodUpdate` to the StatusManager; whether the pods
//!   can be watched, by a `watch`, a log message and an event of the node
//! * invariant: PodStorage receives a pod in the order of its resource versions; a failing watch
//!   changes no pod
//! * bound and overflow: a full PodStorage stops this actor, whose full mailbox stops the watch;
//!   the StatusManager's slots keep the newest version of each pod
//! * restart: the watch begins with a list

use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler, WrapFuture};
use futures::StreamExt;
use tokio::sync::watch;
use windlass_actors::{ApiPodUpdate, NodeUpdate, SourceSnapshot};
use windlass_client::{ApiClient, ReflectEvent, Selector, reflect};
use windlass_mailboxes::{Delivery, Mailbox, MailboxSender, SlotSender, spawn_io};
use windlass_types::view::{EventType, PodWatch};
use windlass_types::{Clock, EventRecorder, Pod, PodSource, PodUid, Reason};

use super::health::{Report, WatchHealth};
use super::state::{ApiPods, ApiSourceOutput};

/// Configuration of an [`ApiSource`].
#[derive(Debug)]
pub struct ApiSourceConfig {
    /// The client for watches.
    pub client: ApiClient,
    /// Name of this node.
    pub node_name: String,
    /// The Node object.
    pub node: watch::Receiver<NodeUpdate>,
    /// PodStorage.
    pub storage: MailboxSender<SourceSnapshot>,
    /// The StatusManager.
    pub seen: SlotSender<PodUid, ApiPodUpdate>,
    /// Sender of watch events to this actor.
    pub events: MailboxSender<ReflectEvent<Pod>>,
    /// Publishes the watch status; `None` before the first response.
    pub pod_watch: watch::Sender<Option<PodWatch>>,
    /// Records events of the node.
    pub recorder: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// The ApiSource actor.
#[derive(Debug)]
pub struct ApiSource {
    config: ApiSourceConfig,
    pods: ApiPods,
    health: WatchHealth,
    mailbox: Option<Mailbox<ReflectEvent<Pod>>>,
}

impl ApiSource {
    /// Creates a source; `mailbox` receives from `config.events`.
    pub fn new(config: ApiSourceConfig, mailbox: Mailbox<ReflectEvent<Pod>>) -> Self {
        Self {
            config,
            pods: ApiPods::default(),
            health: WatchHealth::default(),
            mailbox: Some(mailbox),
        }
    }

    fn watch(&self) {
        let selector = Selector {
            fields: Some(format!("spec.nodeName={}", self.config.node_name)),
            ..Selector::default()
        };
        let client = self.config.client.clone();
        let mut node = self.config.node.clone();
        let events = self.config.events.clone();
        spawn_io("watch-pods", async move {
            // an error means that the agent is shutting down
            if node.wait_for(|seen| seen.0.is_some()).await.is_err() {
                return;
            }
            let mut watch = Box::pin(reflect::<Pod>(client, selector));
            while let Some(event) = watch.next().await {
                if events.send(event).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Publishes the watch status and records events.
    fn publish(&self, report: &Report) {
        let recorder = &self.config.recorder;
        match report {
            Report::Failing {
                event: Some(message),
                ..
            } => recorder.record_node(EventType::Warning, Reason::FailedPodWatch, message),
            Report::Recovered {
                event: Some(message),
                ..
            } => recorder.record_node(EventType::Normal, Reason::PodWatchRestored, message),
            _ => {}
        }
        let pod_watch = self.health.pod_watch();
        self.config.pod_watch.send_if_modified(|known| {
            let changed = known.as_ref() != pod_watch;
            if changed {
                *known = pod_watch.cloned();
            }
            changed
        });
    }

    fn event(&mut self, event: ReflectEvent<Pod>, ctx: &mut Context<Self>) {
        let now = self.config.clock.now();
        let report = match &event {
            ReflectEvent::Synced(_) => self.health.list_succeeded(now),
            ReflectEvent::Failed { error, .. } => self.health.failed(error, now),
            _ => self.health.succeeded(now),
        };
        self.publish(&report);
        let outputs = match event {
            ReflectEvent::Synced(pods) => {
                tracing::info!(pods = pods.len(), "pods listed");
                self.pods.synced(pods)
            }
            ReflectEvent::Applied(pod) => self.pods.applied(pod),
            ReflectEvent::Deleted(pod) => self.pods.deleted(pod),
            ReflectEvent::Failed { error, retry_in } => {
                match &report {
                    Report::Failing { failing_for, .. } => {
                        tracing::warn!(%error, ?retry_in, ?failing_for, "watching pods failed");
                    }
                    _ => tracing::debug!(%error, ?retry_in, "watching pods failed"),
                }
                return;
            }
            ReflectEvent::Resumed => Vec::new(),
        };
        if let Report::Recovered { failed_for, .. } = &report {
            tracing::info!(?failed_for, "watching pods recovered");
        }
        for output in outputs {
            tracing::debug!(%output, "api source");
            match output {
                ApiSourceOutput::ToStatusManager(uid, seen) => self.config.seen.put(uid, seen),
                ApiSourceOutput::ToStorage(op, pods) => {
                    let storage = self.config.storage.clone();
                    let snapshot = SourceSnapshot {
                        source: PodSource::Api,
                        op,
                        pods,
                        rejected: Vec::new(),
                    };
                    let send = async move {
                        if storage.send(snapshot).await.is_err() {
                            tracing::debug!("pods not delivered, agent is shutting down");
                        }
                    };
                    ctx.wait(send.into_actor(self));
                }
            }
        }
    }
}

impl Actor for ApiSource {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(mailbox) = self.mailbox.take() else {
            return ctx.stop();
        };
        ctx.add_stream(mailbox);
        self.watch();
    }
}

impl StreamHandler<Delivery<ReflectEvent<Pod>>> for ApiSource {
    fn handle(&mut self, delivery: Delivery<ReflectEvent<Pod>>, ctx: &mut Context<Self>) {
        delivery.open(|event| self.event(event, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
