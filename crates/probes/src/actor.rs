//! The probe managers: LivenessManager, ReadinessManager and StartupManager.
//!
//! * owns: what is probed of one kind, and how often it went well or badly in a row
//! * hears: `ProbePod` from the pod workers (coalesced per pod), its timer, answers of its questions
//! * says: `ProbeUpdate` to the SyncLoop (coalesced per pod); verdicts to `ProbeResults`
//! * invariant: one question of a probe is in flight; a verdict is about one container instance,
//!   and on the disk before anybody hears of it
//! * bound and overflow: a slot per pod, one timer, one question per probe; a question that is
//!   late makes the next ones fall out, not pile up
//! * restart: verdicts come back from the store, and the first questions are spread

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use windlass_actors::{CompletionSender, Completions, Delivery, ProbePod, SlotReceiver, completions, spawn_io};
use windlass_types::{PodUid, ProbeKind};

use crate::io::{Answer, ask, write};
use crate::probes::{Now, ProbeDeps, Probes};

/// After this time a pod that an earlier life of the agent probed has been told of, or is gone.
const CLAIMED_WITHIN: Duration = Duration::from_secs(600);

/// See the module page.
#[derive(Debug)]
pub struct ProbeManager {
    deps: ProbeDeps,
    probes: Probes,
    timer: Option<(Instant, SpawnHandle)>,
    completions: CompletionSender<Answer>,
    streams: Option<(SlotReceiver<PodUid, ProbePod>, Completions<Answer>)>,
}

impl ProbeManager {
    /// A manager that probes nothing yet.
    pub fn new(kind: ProbeKind, deps: ProbeDeps, pods: SlotReceiver<PodUid, ProbePod>) -> Self {
        let (completion_sender, completion_stream) = completions();
        Self {
            probes: Probes::new(kind, deps.clone()),
            deps,
            timer: None,
            completions: completion_sender,
            streams: Some((pods, completion_stream)),
        }
    }

    fn now(&self) -> Now {
        Now::of(self.deps.clock.as_ref())
    }

    fn ask_what_is_due(&mut self) {
        let due = self.probes.due(self.now());
        if due.is_empty() {
            return;
        }
        let asked = due.into_iter().map(|question| {
            let runtime = Arc::clone(&self.deps.runtime);
            let checks = Arc::clone(&self.deps.checks);
            ask(question, runtime, checks, self.completions.clone())
        });
        // one task for all of them: to start one for each costs as much as to ask
        let asked: FuturesUnordered<_> = asked.collect();
        spawn_io("probes", asked.collect::<()>());
    }

    fn write_what_is_decided(&mut self) {
        let verdicts = self.probes.take_unwritten();
        if let Some(file) = self.deps.file.clone().filter(|_| !verdicts.is_empty()) {
            spawn_io("verdicts", write(verdicts, file, self.completions.clone()));
        }
    }

    /// One timer for all probes. One that is set too early only looks once too often.
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
            this.ask_what_is_due();
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
        ctx.run_later(CLAIMED_WITHIN, |this, _| this.probes.forget_unclaimed());
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

impl StreamHandler<Delivery<Answer>> for ProbeManager {
    fn handle(&mut self, delivery: Delivery<Answer>, ctx: &mut Context<Self>) {
        delivery.open(|answer| {
            let now = self.now();
            self.probes.answered(answer, now);
            self.write_what_is_decided();
        });
        self.arm_timer(ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
