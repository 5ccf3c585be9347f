//! The probe managers: LivenessManager, ReadinessManager and StartupManager.
//!
//! * owns: the probes of one kind and their consecutive outcomes
//! * receives: `ProbePod` from the pod workers (coalesced per pod), its timer, completions of
//!   attempts
//! * sends: `ProbeUpdate` to the SyncLoop (coalesced per pod); results to `ProbeResults`
//! * invariant: one attempt of a probe is in progress; a result applies to one container instance
//!   and is persisted before it is published
//! * bound and overflow: a slot per pod, one timer, one attempt per probe; a late attempt skips
//!   periods
//! * restart: results are restored from the store, and the first attempts have jitter

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use windlass_actors::ProbePod;
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, SlotReceiver, completions, spawn_io,
};
use windlass_types::{PodUid, ProbeKind};

use crate::io::{Completion, persist, run_attempt};
use crate::probes::{Now, ProbeDeps, ProbeSet};

/// Time after which restored results of pods that no worker has reported are removed.
const RESTORED_RESULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The manager of one probe kind.
#[derive(Debug)]
pub struct ProbeManager {
    deps: ProbeDeps,
    probes: ProbeSet,
    timer: Option<(Instant, SpawnHandle)>,
    completions: CompletionSender<Completion>,
    streams: Option<(SlotReceiver<PodUid, ProbePod>, Completions<Completion>)>,
}

impl ProbeManager {
    /// Creates a manager without probes.
    pub fn new(kind: ProbeKind, deps: ProbeDeps, pods: SlotReceiver<PodUid, ProbePod>) -> Self {
        let (completion_sender, completion_stream) = completions();
        Self {
            probes: ProbeSet::new(kind, deps.clone()),
            deps,
            timer: None,
            completions: completion_sender,
            streams: Some((pods, completion_stream)),
        }
    }

    fn now(&self) -> Now {
        Now::read(self.deps.clock.as_ref())
    }

    fn start_due_attempts(&mut self) {
        let due = self.probes.due(self.now());
        if due.is_empty() {
            return;
        }
        let attempts = due.into_iter().map(|attempt| {
            let runtime = Arc::clone(&self.deps.runtime);
            let checks = Arc::clone(&self.deps.checks);
            run_attempt(attempt, runtime, checks, self.completions.clone())
        });
        // one task for all: spawning a task costs as much as an attempt
        let attempts: FuturesUnordered<_> = attempts.collect();
        spawn_io("probes", attempts.collect::<()>());
    }

    fn persist_results(&mut self) {
        let results = self.probes.take_unpersisted();
        if let Some(file) = self.deps.file.clone().filter(|_| !results.is_empty()) {
            spawn_io(
                "probe results",
                persist(results, file, self.completions.clone()),
            );
        }
    }

    /// Arms the timer for the next due probe.
    fn arm_timer(&mut self, ctx: &mut Context<Self>) {
        let Some(at) = self.probes.next_wake() else {
            return;
        };
        if let Some((armed, timer)) = self.timer {
            if armed <= at {
                return;
            }
            ctx.cancel_future(timer);
        }
        let delay = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(delay, |this, ctx| {
            this.timer = None;
            this.start_due_attempts();
            this.arm_timer(ctx);
        });
        self.timer = Some((at, timer));
    }
}

impl Actor for ProbeManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((pods, completions)) = self.streams.take() {
            ctx.add_stream(pods);
            ctx.add_stream(completions);
        }
        ctx.run_later(RESTORED_RESULT_TIMEOUT, |this, _| {
            this.probes.forget_unclaimed()
        });
    }
}

impl StreamHandler<(PodUid, ProbePod)> for ProbeManager {
    fn handle(&mut self, (uid, message): (PodUid, ProbePod), ctx: &mut Context<Self>) {
        match message {
            ProbePod::Probe(targets) => {
                let now = self.now();
                self.probes.targets(&uid, &targets, now);
            }
            ProbePod::Forget => self.probes.forget(&uid),
        }
        self.arm_timer(ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<Completion>> for ProbeManager {
    fn handle(&mut self, delivery: Delivery<Completion>, ctx: &mut Context<Self>) {
        delivery.open(|completion| {
            let now = self.now();
            self.probes.completed(completion, now);
            self.persist_results();
        });
        self.arm_timer(ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
