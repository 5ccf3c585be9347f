//! The ApiSource actor.
//!
//! * owns: the pods as last seen
//! * hears: `NodeSeen` once, then the events of its own watch
//! * says: `SourceSnapshot` to PodStorage, `ApiPodSeen` to the StatusManager
//! * invariant: PodStorage hears of a pod in the order of its resource versions; a failing
//!   watch changes no pod
//! * bound and overflow: a full PodStorage stops this actor, whose full mailbox stops the watch;
//!   the StatusManager's slots keep the newest version of each pod
//! * restart: the watch begins with the whole set

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler, WrapFuture};
use futures::StreamExt;
use tokio::sync::watch;
use windlass_actors::{
    ApiPodSeen, Delivery, Mailbox, MailboxSender, NodeSeen, SlotSender, SourceSnapshot, spawn_io,
};
use windlass_client::{ApiClient, ReflectEvent, Selector, reflect};
use windlass_types::{Pod, PodSource, PodUid};

use super::state::{ApiPods, Say};

/// What an [`ApiSource`] works with.
#[derive(Debug)]
pub struct ApiSourceConfig {
    /// The client for watches.
    pub client: ApiClient,
    /// Name of this node.
    pub node_name: String,
    /// Whether the node object was read.
    pub node: watch::Receiver<NodeSeen>,
    /// PodStorage.
    pub storage: MailboxSender<SourceSnapshot>,
    /// The StatusManager.
    pub seen: SlotSender<PodUid, ApiPodSeen>,
    /// The way of the watch's events to this actor.
    pub events: MailboxSender<ReflectEvent<Pod>>,
}

/// See the module page.
#[derive(Debug)]
pub struct ApiSource {
    config: ApiSourceConfig,
    pods: ApiPods,
    failing: bool,
    mailbox: Option<Mailbox<ReflectEvent<Pod>>>,
}

impl ApiSource {
    /// A source that has not looked yet; `mailbox` is the other end of `config.events`.
    pub fn new(config: ApiSourceConfig, mailbox: Mailbox<ReflectEvent<Pod>>) -> Self {
        Self {
            config,
            pods: ApiPods::default(),
            failing: false,
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
            // an error means that the agent stops
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

    fn event(&mut self, event: ReflectEvent<Pod>, ctx: &mut Context<Self>) {
        let say = match event {
            ReflectEvent::Synced(pods) => {
                tracing::info!(pods = pods.len(), "pods of this node read");
                self.pods.synced(pods)
            }
            ReflectEvent::Applied(pod) => self.pods.applied(pod),
            ReflectEvent::Deleted(pod) => self.pods.deleted(pod),
            ReflectEvent::Failed { error, retry_in } => {
                // said once; the pods stay as they are
                if std::mem::replace(&mut self.failing, true) {
                    tracing::debug!(%error, ?retry_in, "pods cannot be watched");
                } else {
                    tracing::warn!(%error, ?retry_in, further_at_debug = true, "pods cannot be watched");
                }
                return;
            }
        };
        if std::mem::replace(&mut self.failing, false) {
            tracing::info!("pods are watched again");
        }
        for say in say {
            tracing::debug!(%say, "api source");
            match say {
                Say::Seen(uid, seen) => self.config.seen.put(uid, seen),
                Say::Storage(op, pods) => {
                    let storage = self.config.storage.clone();
                    let snapshot = SourceSnapshot {
                        source: PodSource::Api,
                        op,
                        pods,
                        rejected: Vec::new(),
                    };
                    let send = async move {
                        if storage.send(snapshot).await.is_err() {
                            tracing::debug!("pods not delivered: the agent stops");
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
