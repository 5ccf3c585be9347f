//! The PodWorkers actor: the registry of all workers.
//!
//! * owns: the registry of workers and waiting pods, the senders to the workers
//! * receives: `UpdatePod` and `WorkerStateChanged` (coalesced per UID), `GetPodWorkers`,
//!   `RuntimeState`, completions of its own removals of dead containers
//! * sends: `UpdatePod` and `RuntimeState` to a worker; its removals read the Pleg
//! * invariant: one worker per UID; one worker per full name of a static pod; a static pod that was
//!   removed and has terminated starts again without its old containers
//! * bound and overflow: memory grows with pods, never with messages; nothing is dropped
//! * restart: workers are created from the pod sources and adopt running containers

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{GetPodWorkers, RuntimeState, UpdatePod, WorkerStateChanged};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, Mailbox, SlotReceiver, SlotSender, completions, slots,
    spawn_io,
};
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{PodExt, PodUid};

use super::state::{Registry, RegistryEffect};
use crate::worker::actor::{InitialState, PodWorkerActor, WorkerUpdate};
use crate::worker::remains::remove_remains;
use crate::worker::{WorkerDeps, report};

/// Dependencies of PodWorkers.
#[derive(Debug)]
pub struct PodWorkersDeps {
    /// Dependencies of the workers.
    pub worker: WorkerDeps,
    /// Back-off tables of the previous agent run.
    pub backoff: BTreeMap<PodUid, BackoffTable>,
}

/// See the module page.
#[derive(Debug)]
pub struct PodWorkers {
    deps: Arc<WorkerDeps>,
    backoff: BTreeMap<PodUid, BackoffTable>,
    registry: Registry,
    senders: BTreeMap<PodUid, SlotSender<(), WorkerUpdate>>,
    /// Given to each worker.
    states: SlotSender<PodUid, WorkerStateChanged>,
    /// Sends the pods whose dead containers are removed.
    removals: CompletionSender<PodUid>,
    streams: Option<Streams>,
}

#[derive(Debug)]
struct Streams {
    updates: SlotReceiver<PodUid, UpdatePod>,
    states: SlotReceiver<PodUid, WorkerStateChanged>,
    queries: Mailbox<GetPodWorkers>,
    removals: Completions<PodUid>,
}

impl PodWorkers {
    /// A registry without workers.
    pub fn new(
        deps: PodWorkersDeps,
        updates: SlotReceiver<PodUid, UpdatePod>,
        queries: Mailbox<GetPodWorkers>,
    ) -> Self {
        let mailboxes = &deps.worker.metrics.mailboxes;
        let (states, states_end) = slots(crate::POD_WORKERS, mailboxes);
        let (removals, removals_end) = completions();
        Self {
            deps: Arc::new(deps.worker),
            backoff: deps.backoff,
            registry: Registry::default(),
            senders: BTreeMap::new(),
            states,
            removals,
            streams: Some(Streams {
                updates,
                states: states_end,
                queries,
                removals: removals_end,
            }),
        }
    }

    fn apply(&mut self, effects: Vec<RegistryEffect>) {
        for effect in effects {
            tracing::debug!(%effect, "pod workers");
            match effect {
                RegistryEffect::StartWorker(uid, pod) => {
                    // it may start again after its removal
                    self.deps.timelines.seen(&pod);
                    let containers = pod.containers().len();
                    self.deps
                        .metrics
                        .workers
                        .containers_per_pod
                        .observe(containers as f64);
                    let backoff = self.backoff.remove(&uid);
                    let backoff = backoff.filter(|_| !mutated(Mutation::BackoffResetByRestart));
                    let backoff = backoff.unwrap_or_default();
                    self.spawn(uid, InitialState::Run(pod, backoff));
                }
                RegistryEffect::StartTerminatingWorker(uid, pod, kill) => {
                    self.spawn(uid, InitialState::Terminate(pod, kill));
                }
                RegistryEffect::StartOrphanWorker(uid, kill) => {
                    self.deps.metrics.workers.orphaned_runtime_pods.inc();
                    self.spawn(uid, InitialState::TerminateOrphan(kill));
                }
                RegistryEffect::Forward(uid, update) => {
                    if let Some(sender) = self.senders.get(&uid) {
                        sender.put(
                            (),
                            WorkerUpdate {
                                update: Some(update),
                                ..WorkerUpdate::default()
                            },
                        );
                    }
                }
                RegistryEffect::Queue {
                    uid: _,
                    pod,
                    behind,
                } => {
                    report::publish_waiting(&pod, &behind, &self.deps);
                }
                RegistryEffect::RemoveContainers(uid) => {
                    let (deps, removals) = (Arc::clone(&self.deps), self.removals.clone());
                    spawn_io("remove-remains", async move {
                        remove_remains(&deps, &uid).await;
                        removals.send(uid);
                    });
                }
                RegistryEffect::Remove(uid) => {
                    self.senders.remove(&uid);
                    self.deps.status_store.remove(&uid);
                    self.deps.timelines.forget(&uid);
                    if let Some(file) = &self.deps.backoff_file {
                        file.forget(&uid);
                    }
                    if let Some(file) = &self.deps.actuated_file {
                        file.forget(&uid);
                    }
                }
            }
        }
    }

    fn spawn(&mut self, uid: PodUid, begin: InitialState) {
        let (sender, updates) = slots(crate::POD_WORKER, &self.deps.metrics.mailboxes);
        self.senders.insert(uid.clone(), sender);
        let (deps, states) = (Arc::clone(&self.deps), self.states.clone());
        PodWorkerActor::new(uid, deps, begin, updates, states).start();
    }
}

impl Actor for PodWorkers {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(streams) = self.streams.take() {
            ctx.add_stream(streams.updates);
            ctx.add_stream(streams.states);
            ctx.add_stream(streams.queries);
            ctx.add_stream(streams.removals);
        }
        let state = self.deps.runtime_state.clone();
        ctx.add_stream(WatchStream::from_changes(state));
    }
}

impl StreamHandler<(PodUid, UpdatePod)> for PodWorkers {
    fn handle(&mut self, (uid, update): (PodUid, UpdatePod), _: &mut Context<Self>) {
        let effects = self.registry.update(&uid, update);
        self.apply(effects);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<(PodUid, WorkerStateChanged)> for PodWorkers {
    fn handle(&mut self, (uid, changed): (PodUid, WorkerStateChanged), _: &mut Context<Self>) {
        if changed.finished {
            self.senders.remove(&uid);
        }
        let effects = self.registry.state_changed(&uid, changed);
        self.apply(effects);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<GetPodWorkers>> for PodWorkers {
    fn handle(&mut self, delivery: Delivery<GetPodWorkers>, _: &mut Context<Self>) {
        delivery.open(|query| {
            // the caller may have been cancelled
            let _ = query.reply.send(self.registry.statuses());
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<PodUid>> for PodWorkers {
    fn handle(&mut self, delivery: Delivery<PodUid>, _: &mut Context<Self>) {
        delivery.open(|uid| {
            let effects = self.registry.containers_removed(&uid);
            self.apply(effects);
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<RuntimeState> for PodWorkers {
    /// Updates workers in a fixed order, so that waiting pods start in that order.
    fn handle(&mut self, state: RuntimeState, _: &mut Context<Self>) {
        for sender in self.senders.values() {
            let update = WorkerUpdate {
                runtime: Some(state.clone()),
                ..WorkerUpdate::default()
            };
            sender.put((), update);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
