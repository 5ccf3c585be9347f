//! The NodeStatus actor.
//!
//! * owns: the newest Node object, the facts it is built from, the time of the last report
//! * receives: its own watch of the object, `RuntimeState`, `ShutdownState`, `NodePressure`,
//!   `VolumesInUse`, `PluginResourceUpdate`, `CsiNodeStatus`, the message of hung pods, its timer and
//!   completions
//! * sends: `NodeUpdate` to its subscribers
//! * invariant: one status update is in progress; a hung one ends at its deadline and costs a tick
//! * bound and overflow: the watch blocks on a mailbox of 4; state channels keep the newest value
//! * restart: the object is read again; a ready node stays ready until the runtime was checked

use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use futures::StreamExt;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{
    NodePressure, NodeUpdate, PluginResourceUpdate, RuntimeState, ShutdownState, VolumesInUse,
};
use windlass_client::{ReflectEvent, Selector, reflect};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Mailbox, MailboxSender, completions, mailbox, spawn_io,
};
use windlass_types::corev1::Node;

use super::fsm::{Effect, Input, NodeStatusFsm, UpdateError};
use super::startup::Startup;
use super::{NodeStatusDeps, io};
use crate::csi_node::CsiNodeStatus;
use crate::hung_pods::HungPodsMessage;

/// See the module documentation.
#[derive(Debug)]
pub struct NodeStatus {
    deps: Arc<NodeStatusDeps>,
    fsm: NodeStatusFsm,
    first: Vec<Effect>,
    began: Instant,
    failing: bool,
    startup: Startup,
    completions: CompletionSender<Input>,
    streams: Option<Streams>,
}

#[derive(Debug)]
struct Streams {
    watch: MailboxSender<ReflectEvent<Node>>,
    events: Mailbox<ReflectEvent<Node>>,
    completions: Completions<Input>,
}

impl NodeStatus {
    /// Creates an actor that has not started.
    pub fn new(deps: NodeStatusDeps) -> Self {
        let (fsm, first) = NodeStatusFsm::begin(deps.settings.clone());
        let (watch, events) = mailbox(crate::NODE_STATUS, &deps.metrics.mailboxes);
        let (sender, completions) = completions();
        let now = deps.clock.now();
        Self {
            startup: Startup::begin(deps.machine.booted(now), now),
            deps: Arc::new(deps),
            fsm,
            first,
            began: Instant::now(),
            failing: false,
            completions: sender,
            streams: Some(Streams {
                watch,
                events,
                completions,
            }),
        }
    }

    fn handle_input(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = self.deps.clock.now();
        let effects = self.fsm.handle(input, self.began.elapsed(), now);
        self.perform(effects, ctx);
    }

    fn perform(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            tracing::debug!(%effect, "node status");
            let deps = Arc::clone(&self.deps);
            let completions = self.completions.clone();
            match effect {
                Effect::Register(report) => {
                    self.startup.registration_attempted(deps.clock.now());
                    spawn_io("register-node", async move {
                        let done = io::register(&deps, &report).await;
                        completions.send(Input::Registered(done));
                    });
                }
                Effect::Update(update) => {
                    spawn_io("update-node-status", async move {
                        let done = io::update(&deps, update).await;
                        completions.send(Input::Updated(done));
                    });
                }
                Effect::ReadFacts { deadline } => {
                    spawn_io("read-node-facts", async move {
                        let facts = io::facts(&deps, deadline).await;
                        completions.send(Input::Facts(Box::new(facts)));
                    });
                }
                Effect::RetryIn(pause) => {
                    ctx.run_later(pause, |this, ctx| {
                        this.handle_input(Input::RetryRegistration, ctx)
                    });
                }
                Effect::Publish(node) => {
                    deps.seen.send_replace(NodeUpdate(node));
                }
                Effect::Record(event) => {
                    deps.events
                        .record_node(event.event_type, event.reason, &event.message);
                }
            }
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        let next = self.fsm.next_tick();
        ctx.run_later(next, |this, ctx| {
            this.handle_input(Input::Tick, ctx);
            this.tick(ctx);
        });
    }

    /// Watches the node object; the watch ends with the actor, whose mailbox closes.
    fn watch(&self, events: MailboxSender<ReflectEvent<Node>>) {
        let selector = Selector {
            fields: Some(format!("metadata.name={}", self.deps.settings.node.name)),
            ..Selector::default()
        };
        let client = self.deps.clients.watch.clone();
        spawn_io("watch-node", async move {
            let mut watch = Box::pin(reflect::<Node>(client, selector));
            while let Some(event) = watch.next().await {
                if events.send(event).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Logs the first failure and the recovery.
    fn log(&mut self, input: &Input) {
        let error = match input {
            Input::Registered(Err(error)) => error,
            Input::Updated(Err(UpdateError::Failed(error))) => error,
            Input::Registered(Ok(_)) | Input::Updated(Ok(_)) => {
                if std::mem::replace(&mut self.failing, false) {
                    tracing::info!("node status reported again");
                }
                return;
            }
            _ => return,
        };
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(error, "node status not reported");
        } else {
            tracing::warn!(error, further_at_debug = true, "node status not reported");
        }
    }
}

impl Actor for NodeStatus {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(streams) = self.streams.take() else {
            return ctx.stop();
        };
        ctx.add_stream(streams.events);
        ctx.add_stream(streams.completions);
        ctx.add_stream(WatchStream::new(self.deps.runtime_state.clone()));
        ctx.add_stream(WatchStream::from_changes(self.deps.shutdown.clone()));
        ctx.add_stream(WatchStream::new(self.deps.pressure.clone()));
        ctx.add_stream(WatchStream::new(self.deps.volumes_in_use.clone()));
        ctx.add_stream(WatchStream::new(self.deps.plugin_resources.clone()));
        ctx.add_stream(WatchStream::new(self.deps.csi_node.clone()));
        ctx.add_stream(WatchStream::from_changes(self.deps.hung_pods.clone()));
        self.watch(streams.watch);
        let first = std::mem::take(&mut self.first);
        self.perform(first, ctx);
        self.tick(ctx);
    }
}

impl StreamHandler<Delivery<ReflectEvent<Node>>> for NodeStatus {
    fn handle(&mut self, delivery: Delivery<ReflectEvent<Node>>, ctx: &mut Context<Self>) {
        delivery.open(|event| match event {
            ReflectEvent::Synced(nodes) => {
                let node = nodes.into_iter().next().map(Box::new);
                self.handle_input(Input::Read(node), ctx);
            }
            ReflectEvent::Applied(node) => {
                self.handle_input(Input::Read(Some(Box::new(node))), ctx)
            }
            ReflectEvent::Deleted(node) => self.handle_input(Input::Deleted(Box::new(node)), ctx),
            ReflectEvent::Failed { error, retry_in } => {
                tracing::debug!(%error, ?retry_in, "watch of the node failed");
            }
            ReflectEvent::Resumed => tracing::debug!("node watch resumed"),
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<Input>> for NodeStatus {
    fn handle(&mut self, delivery: Delivery<Input>, ctx: &mut Context<Self>) {
        delivery.open(|input| {
            self.log(&input);
            if let Input::Registered(Ok(written)) | Input::Updated(Ok(written)) = &input {
                let now = self.deps.clock.now();
                let metrics = &self.deps.metrics;
                self.startup
                    .object_written(&written.node, written.created, now, metrics);
            }
            self.handle_input(input, ctx);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<RuntimeState> for NodeStatus {
    fn handle(&mut self, state: RuntimeState, ctx: &mut Context<Self>) {
        self.handle_input(Input::Runtime(state), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<CsiNodeStatus> for NodeStatus {
    fn handle(&mut self, status: CsiNodeStatus, ctx: &mut Context<Self>) {
        self.handle_input(Input::CsiNode(status), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<HungPodsMessage> for NodeStatus {
    fn handle(&mut self, message: HungPodsMessage, ctx: &mut Context<Self>) {
        self.handle_input(Input::HungPods(message), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<ShutdownState> for NodeStatus {
    fn handle(&mut self, state: ShutdownState, ctx: &mut Context<Self>) {
        self.handle_input(Input::ShuttingDown(state.shutting_down), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodePressure> for NodeStatus {
    fn handle(&mut self, NodePressure(pressure): NodePressure, ctx: &mut Context<Self>) {
        // until known, the conditions of the previous agent run stay
        if let Some(pressure) = pressure {
            self.handle_input(Input::Pressure(pressure), ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<PluginResourceUpdate> for NodeStatus {
    fn handle(&mut self, update: PluginResourceUpdate, ctx: &mut Context<Self>) {
        self.handle_input(Input::PluginResources(update.0), ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Option<VolumesInUse>> for NodeStatus {
    fn handle(&mut self, in_use: Option<VolumesInUse>, ctx: &mut Context<Self>) {
        // until known, the value of the previous agent run stays
        if let Some(VolumesInUse(devices)) = in_use {
            let names = devices.into_iter().map(|device| device.0).collect();
            self.handle_input(Input::VolumesInUse(names), ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
