//! The NodeShutdown actor.
//!
//! * owns: the inhibitor and the task that stops the pods
//! * receives: signals of logind and completions of its own tasks
//! * sends: `TerminatePod` to the SyncLoop, `ShutdownState` to its subscribers
//! * invariant: the inhibitor delays the host's shutdown; it is released when all groups were
//!   stopped, or when this process ends
//! * bound and overflow: one drain task and one call to logind; logind sends one signal per
//!   shutdown
//! * restart: acquires the inhibitor again; a shutdown in progress continues without the agent

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_actors::{ShutdownState, TerminatePod};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, SlotSender, completions, spawn_io,
};
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_status::PodStatusStore;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, PodUid, Reason};

use super::drain::{active_pods, drain};
use super::logind::{Logind, LogindBus, LogindError};
use super::record::ShutdownRecord;
use super::watch::{WatchConfig, watch};

/// Configuration of [`NodeShutdown`].
#[derive(Clone, Debug)]
pub struct NodeShutdownConfig {
    /// Grace periods by priority; empty turns graceful shutdown off.
    pub periods: ShutdownPeriods,
    /// Connection to logind.
    pub bus: LogindBus,
    /// Directory of logind's drop-ins, `/etc/systemd/logind.conf.d`.
    pub logind_conf_dir: PathBuf,
    /// Terminations for the SyncLoop.
    pub terminations: SlotSender<PodUid, TerminatePod>,
    /// Statuses of the pods.
    pub status_store: PodStatusStore,
    /// Records events of the node.
    pub recorder: Arc<dyn EventRecorder>,
    /// Persists the times; `None` without `GracefulNodeShutdownBasedOnPodPriority`, as upstream.
    pub record: Option<ShutdownRecord>,
    /// Publishes whether the node is shutting down.
    pub state: watch::Sender<ShutdownState>,
}

/// Message from the actor's own tasks.
#[derive(Debug)]
pub(super) enum ShutdownEvent {
    /// logind is connected and its inhibitor is held.
    Connected(Logind, OwnedFd),
    /// A shutdown starts, or was cancelled.
    PrepareForShutdown(bool),
    /// The connection broke and is being replaced.
    Lost,
    /// logind is missing or unusable.
    Unavailable(LogindError),
    /// Result of the request for a new inhibitor.
    Inhibited(Result<OwnedFd, LogindError>),
    /// All groups of the shutdown with this number were stopped.
    Drained(u64),
}

/// See the module documentation.
#[derive(Debug)]
pub struct NodeShutdown {
    config: NodeShutdownConfig,
    logind: Option<Logind>,
    lock: Option<OwnedFd>,
    /// Number of shutdowns, to tell completions of a cancelled one apart.
    shutdown: u64,
    draining: Option<JoinHandle<()>>,
    completions: CompletionSender<ShutdownEvent>,
    stream: Option<Completions<ShutdownEvent>>,
}

impl NodeShutdown {
    /// Creates an actor that has not connected to logind.
    pub fn new(config: NodeShutdownConfig) -> Self {
        let (sender, stream) = completions();
        Self {
            config,
            logind: None,
            lock: None,
            shutdown: 0,
            draining: None,
            completions: sender,
            stream: Some(stream),
        }
    }

    fn handle_event(&mut self, event: ShutdownEvent) {
        match event {
            ShutdownEvent::Connected(logind, lock) => {
                tracing::info!(delay = ?self.config.periods.total(), "shutdowns are delayed");
                self.logind = Some(logind);
                self.hold(lock);
            }
            ShutdownEvent::PrepareForShutdown(true) => self.begin(),
            ShutdownEvent::PrepareForShutdown(false) => self.cancel(),
            ShutdownEvent::Lost => tracing::warn!("connection to logind lost, reconnecting"),
            ShutdownEvent::Unavailable(error) => {
                tracing::warn!(%error, "shutdowns are not delayed");
            }
            ShutdownEvent::Inhibited(Ok(lock)) => self.hold(lock),
            ShutdownEvent::Inhibited(Err(error)) => {
                tracing::error!(%error, "next shutdown will not be delayed");
            }
            ShutdownEvent::Drained(shutdown) if shutdown == self.shutdown => {
                tracing::info!("pods stopped, releasing the shutdown inhibitor");
                self.draining = None;
                self.lock = None;
            }
            ShutdownEvent::Drained(_) => {}
        }
    }

    /// Keeps an inhibitor, except after the pods of the current shutdown were stopped: it would
    /// never be released.
    fn hold(&mut self, lock: OwnedFd) {
        let stopped = self.is_shutting_down() && self.draining.is_none();
        self.lock = (!stopped).then_some(lock);
    }

    fn is_shutting_down(&self) -> bool {
        self.config.state.borrow().shutting_down
    }

    /// Ignores a second signal for the same shutdown.
    fn begin(&mut self) {
        if self.is_shutting_down() {
            return;
        }
        self.announce("Shutdown manager detected shutdown event", true);
        self.shutdown += 1;
        let plan = self
            .config
            .periods
            .plan(active_pods(&self.config.status_store));
        tracing::info!(%plan, "node is shutting down");
        let terminations = self.config.terminations.clone();
        let stop = drain(plan, terminations, self.config.status_store.clone());
        let (completions, shutdown) = (self.completions.clone(), self.shutdown);
        let record = self.config.record.clone();
        self.draining = Some(spawn_io("node-shutdown", async move {
            if let Some(record) = record {
                let ((), start) = tokio::join!(stop, record.begin());
                record.end(start).await;
            } else {
                stop.await;
            }
            completions.send(ShutdownEvent::Drained(shutdown));
        }));
    }

    /// Groups that were not stopped yet keep running; stopped pods stay stopped. The next shutdown
    /// is delayed again.
    fn cancel(&mut self) {
        if !self.is_shutting_down() {
            return;
        }
        self.announce("Shutdown manager detected shutdown cancellation", false);
        self.shutdown += 1;
        if let Some(draining) = self.draining.take() {
            draining.abort();
        }
        let Some(logind) = self.logind.clone() else {
            return;
        };
        let completions = self.completions.clone();
        spawn_io("inhibit-shutdown", async move {
            completions.send(ShutdownEvent::Inhibited(logind.inhibit().await));
        });
    }

    fn announce(&self, message: &str, shutting_down: bool) {
        let recorder = &self.config.recorder;
        recorder.record_node(EventType::Normal, Reason::Shutdown, message);
        self.config
            .state
            .send_replace(ShutdownState { shutting_down });
    }
}

impl Actor for NodeShutdown {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(stream) = self.stream.take() else {
            return ctx.stop();
        };
        if self.config.periods.is_empty() {
            return ctx.stop();
        }
        ctx.add_stream(stream);
        if let Some(record) = self.config.record.clone() {
            spawn_io("last-shutdown", record.load());
        }
        let config = WatchConfig {
            bus: self.config.bus.clone(),
            delay: self.config.periods.total(),
            conf_dir: self.config.logind_conf_dir.clone(),
        };
        spawn_io("logind", watch(config, self.completions.clone()));
    }
}

impl StreamHandler<Delivery<ShutdownEvent>> for NodeShutdown {
    fn handle(&mut self, delivery: Delivery<ShutdownEvent>, _: &mut Context<Self>) {
        delivery.open(|event| self.handle_event(event));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
