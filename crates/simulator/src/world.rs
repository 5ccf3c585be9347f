//! Executes the steps of a plan on a simulated node, and collects what happens.
//!
//! *owns* the observations that are not checked yet, the ends of faults and the restarts that are
//! due · *receives* steps · *sends* observations to the checker · *invariant* observations are
//! checked in the order in which they happened · *bound* one entry per fault in effect; observations
//! are checked at least once per [`TICK`] · *restart* none.

mod apply;
mod converge;
mod faults;
mod setup;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_testing::NodeSim;

use crate::checker::Checker;
use crate::mutation::Mutation;
use crate::observation::{Event, Observation};
use crate::step::Step;

/// Maximum time between two checks. Invariants about time are as precise.
pub const TICK: Duration = Duration::from_secs(5);

/// Observations between two checks, at most [`TICK`] apart, beyond which the agent acts without a
/// pause: time would stand.
const MAX_PENDING: usize = 10_000;

/// What becomes due at a time.
enum Due {
    /// A fault ends.
    End(String, Box<dyn FnOnce(&mut NodeSim)>),
    /// The agent starts, if it does not run.
    Start,
}

/// The node and everything around it.
pub(crate) struct World<'a> {
    pub(crate) sim: &'a mut NodeSim,
    pub(crate) checker: Checker,
    queue: Queue,
    due: BTreeMap<(Duration, u64), Due>,
    /// Number of the last entry of `due`.
    last: u64,
    /// Version of each manifest so far, and whether it is desired.
    statics: BTreeMap<String, (u32, bool)>,
    /// Time until the restart after an armed kill.
    restart_after: Duration,
    volume_violations: usize,
    mutation: Option<Box<dyn Mutation>>,
}

/// Observations in order, from any part of the simulation.
#[derive(Clone)]
struct Queue {
    began: Instant,
    observations: Arc<Mutex<Vec<Observation>>>,
    /// [`MAX_PENDING`] observations wait for a check.
    is_full: Arc<Notify>,
}

impl Queue {
    fn push(&self, event: Event) {
        let observation = Observation {
            at: self.began.elapsed(),
            event,
        };
        let mut observations = self.lock();
        observations.push(observation);
        if observations.len() == MAX_PENDING {
            self.is_full.notify_one();
        }
    }

    fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Observation>> {
        let lock = self.observations.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> World<'a> {
    /// Sets up the node; the agent is not started.
    pub(crate) fn new(
        sim: &'a mut NodeSim,
        keep_log: bool,
        mutation: Option<Box<dyn Mutation>>,
    ) -> Self {
        let queue = Queue {
            began: Instant::now(),
            observations: Arc::default(),
            is_full: Arc::default(),
        };
        setup::prepare(sim);
        setup::observe(sim, &queue);
        Self {
            sim,
            checker: Checker::new(keep_log),
            queue,
            due: BTreeMap::new(),
            last: 0,
            statics: BTreeMap::new(),
            restart_after: Duration::ZERO,
            volume_violations: 0,
            mutation,
        }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.queue.began.elapsed()
    }

    /// Returns true after the first violation.
    pub(crate) fn is_over(&self) -> bool {
        self.checker.violation.is_some()
    }

    /// Lets time pass, with all that becomes due.
    pub(crate) async fn advance(&mut self, until: Duration) {
        loop {
            self.check();
            if self.is_over() {
                return;
            }
            let now = self.now();
            let due = self.due.first_key_value().map(|((at, _), _)| *at);
            let next = due.map_or(until, |due| due.min(until)).min(now + TICK);
            if next > now {
                let at = self.queue.began + next;
                tokio::select! {
                    biased;
                    () = self.sim.agent_killed() => self.armed_kill().await,
                    () = self.queue.is_full.notified() => continue,
                    () = tokio::time::sleep_until(at) => {}
                }
            }
            let now = self.now();
            while let Some(entry) = self.due.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                match entry.remove() {
                    Due::Start => self.start().await,
                    Due::End(fault, end) => {
                        end(self.sim);
                        self.queue.push(Event::FaultEnded(fault));
                    }
                }
            }
            if now >= until {
                self.check();
                return;
            }
        }
    }

    /// Executes a step.
    pub(crate) async fn step(&mut self, step: &Step) {
        if self.apply(step).await {
            self.queue.push(Event::Step(step.clone()));
        }
        self.check();
    }

    /// Starts the agent, if it does not run.
    pub(crate) async fn start(&mut self) {
        if self.sim.agent().is_some() {
            return;
        }
        if let Some(mutation) = &mut self.mutation {
            mutation.before_start(self.sim);
        }
        self.queue.push(Event::AgentStarted);
        self.sim.start_agent().await;
        self.start_device_plugin();
    }

    /// Kills the agent; it starts again after a time.
    async fn kill(&mut self, down: Duration) {
        if self.sim.agent().is_some() {
            self.sim.kill_agent().await;
            self.queue.push(Event::AgentKilled);
        }
        self.after(down, Due::Start);
    }

    async fn armed_kill(&mut self) {
        self.checker.coverage.count("kill-at took effect");
        self.kill(self.restart_after).await;
    }

    fn after(&mut self, time: Duration, due: Due) {
        self.last += 1;
        let at = self.now() + time;
        self.due.insert((at, self.last), due);
    }

    /// A fault has an effect for a time.
    fn fault(&mut self, text: &str, time: Duration, end: impl FnOnce(&mut NodeSim) + 'static) {
        let text = format!("{text} #{}", self.last + 1);
        self.queue.push(Event::FaultBegan(text.clone()));
        self.after(time, Due::End(text, Box::new(end)));
    }

    /// Ends all faults now, and starts the agent if that is due.
    async fn end_faults(&mut self) {
        self.sim.cancel_kill();
        let due = std::mem::take(&mut self.due);
        for entry in due.into_values() {
            if let Due::End(fault, end) = entry {
                end(self.sim);
                self.queue.push(Event::FaultEnded(fault));
            }
        }
        self.start().await;
    }

    /// Checks what was observed since the last check.
    pub(crate) fn check(&mut self) {
        let violations = self.sim.volumes.violations();
        for text in violations.iter().skip(self.volume_violations) {
            self.queue.push(Event::Volumes(text.clone()));
        }
        self.volume_violations = violations.len();
        self.queue.push(Event::Tick);
        let observations = self.queue.take();
        let count = observations.len();
        for observation in observations {
            self.checker.observe(&observation);
            if let Some(mutation) = &mut self.mutation {
                mutation.after(&observation, self.sim);
            }
        }
        if count > MAX_PENDING {
            let (name, sentence) = ("agent-pauses", "The agent does not act without a pause.");
            let text = format!("more than {MAX_PENDING} observations within {TICK:?}");
            self.checker.fail(name, sentence, self.now(), text);
        }
        // a run of any length has bounded records
        self.sim.runtime.clear_calls();
        self.sim.api.clear_requests();
        self.sim.checks.clear_requests();
        self.sim.volumes.clear_calls();
    }
}
