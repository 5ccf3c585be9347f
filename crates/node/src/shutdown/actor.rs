//! The NodeShutdown actor.
//!
//! * owns: the inhibitor, and the job that stops the pods
//! * hears: what logind says, and the end of its own jobs
//! * says: `UpdatePod` (kill) to PodWorkers, `ShutdownState` to everyone
//! * invariant: while the inhibitor is held the machine does not go down before its delay is over;
//!   it is let go only when all groups had their turn, or when this process ends
//! * bound and overflow: one stopping job and one call to logind; logind sends one signal for each
//!   shutdown
//! * restart: takes the inhibitor again; a shutdown that had begun goes on without the agent

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_actors::{
    AnswerSender, Answers, Delivery, PodWorkersHandle, ShutdownState, answers, spawn_io,
};
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_status::PodBoard;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Reason};

use super::drain::{active_pods, drain};
use super::logind::{Logind, LogindBus, LogindError};
use super::record::ShutdownRecord;
use super::watch::{WatchConfig, watch};

/// What a [`NodeShutdown`] works with.
#[derive(Clone, Debug)]
pub struct NodeShutdownConfig {
    /// Who gets how long; without a period there is nothing to do.
    pub periods: ShutdownPeriods,
    /// Where logind is.
    pub bus: LogindBus,
    /// Directory of logind's drop-ins, `/etc/systemd/logind.conf.d`.
    pub logind_conf_dir: PathBuf,
    /// The way to the pod workers.
    pub workers: PodWorkersHandle,
    /// Which pods there are and how far they are.
    pub board: PodBoard,
    /// Where events of the node go.
    pub recorder: Arc<dyn EventRecorder>,
    /// Where its times are kept; `None` without `GracefulNodeShutdownBasedOnPodPriority`, as
    /// upstream.
    pub record: Option<ShutdownRecord>,
    /// Who wants to know of a shutdown.
    pub state: watch::Sender<ShutdownState>,
}

/// What the actor hears from its own jobs.
#[derive(Debug)]
pub(super) enum Heard {
    /// logind is there and its inhibitor is held.
    Armed(Logind, OwnedFd),
    /// A shutdown begins, or was cancelled.
    Preparing(bool),
    /// The connection broke; it is being replaced.
    Lost,
    /// There is no logind, or none that can be used.
    Unavailable(LogindError),
    /// The answer to the wish for a new inhibitor.
    Locked(Result<OwnedFd, LogindError>),
    /// All groups of the shutdown with this number had their turn.
    Drained(u64),
}

/// See the module page.
#[derive(Debug)]
pub struct NodeShutdown {
    config: NodeShutdownConfig,
    logind: Option<Logind>,
    lock: Option<OwnedFd>,
    /// Counts shutdowns, to know the end of a job that was stopped from that of the present one.
    shutdown: u64,
    draining: Option<JoinHandle<()>>,
    answers: AnswerSender<Heard>,
    stream: Option<Answers<Heard>>,
}

impl NodeShutdown {
    /// An actor that has not spoken to logind yet.
    pub fn new(config: NodeShutdownConfig) -> Self {
        let (sender, stream) = answers();
        Self {
            config,
            logind: None,
            lock: None,
            shutdown: 0,
            draining: None,
            answers: sender,
            stream: Some(stream),
        }
    }

    fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Armed(logind, lock) => {
                tracing::info!(delay = ?self.config.periods.total(), "shutdowns are delayed");
                self.logind = Some(logind);
                self.hold(lock);
            }
            Heard::Preparing(true) => self.begin(),
            Heard::Preparing(false) => self.cancel(),
            Heard::Lost => tracing::warn!("connection to logind lost, connecting again"),
            Heard::Unavailable(error) => {
                tracing::warn!(%error, "shutdowns of this machine are not delayed");
            }
            Heard::Locked(Ok(lock)) => self.hold(lock),
            Heard::Locked(Err(error)) => {
                tracing::error!(%error, "the next shutdown will not be delayed");
            }
            Heard::Drained(shutdown) if shutdown == self.shutdown => {
                tracing::info!("pods have ended, the machine may shut down");
                self.draining = None;
                self.lock = None;
            }
            Heard::Drained(_) => {}
        }
    }

    /// Keeps an inhibitor, unless it comes after the pods of the present shutdown have ended: then
    /// nobody would let it go.
    fn hold(&mut self, lock: OwnedFd) {
        let over = self.is_shutting_down() && self.draining.is_none();
        self.lock = (!over).then_some(lock);
    }

    fn is_shutting_down(&self) -> bool {
        self.config.state.borrow().shutting_down
    }

    /// A second signal for the same shutdown changes nothing.
    fn begin(&mut self) {
        if self.is_shutting_down() {
            return;
        }
        self.tell("Shutdown manager detected shutdown event", true);
        self.shutdown += 1;
        let plan = self.config.periods.plan(active_pods(&self.config.board));
        tracing::info!(%plan, "the machine is shutting down");
        let stop = drain(plan, self.config.workers.clone(), self.config.board.clone());
        let (answers, shutdown) = (self.answers.clone(), self.shutdown);
        let record = self.config.record.clone();
        self.draining = Some(spawn_io("node-shutdown", async move {
            if let Some(record) = record {
                let ((), start) = tokio::join!(stop, record.begin());
                record.end(start).await;
            } else {
                stop.await;
            }
            answers.answer(Heard::Drained(shutdown));
        }));
    }

    /// Groups whose turn has not come go on as if nothing had been; pods that were stopped stay
    /// so. The next shutdown is delayed again.
    fn cancel(&mut self) {
        if !self.is_shutting_down() {
            return;
        }
        self.tell("Shutdown manager detected shutdown cancellation", false);
        self.shutdown += 1;
        if let Some(draining) = self.draining.take() {
            draining.abort();
        }
        let Some(logind) = self.logind.clone() else {
            return;
        };
        let answers = self.answers.clone();
        spawn_io("inhibit-shutdown", async move {
            answers.answer(Heard::Locked(logind.inhibit().await));
        });
    }

    fn tell(&self, message: &str, shutting_down: bool) {
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
        spawn_io("logind", watch(config, self.answers.clone()));
    }
}

impl StreamHandler<Delivery<Heard>> for NodeShutdown {
    fn handle(&mut self, delivery: Delivery<Heard>, _: &mut Context<Self>) {
        delivery.open(|heard| self.heard(heard));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
