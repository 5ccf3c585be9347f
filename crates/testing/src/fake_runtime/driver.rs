//! Around the pure model: its lock, its clock, latencies, faults, timers and the call log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_cri::{CriCode, CriError, CriResult};
use windlass_types::{Clock, Timestamp};

use super::events::EventHub;
use super::exec::Execs;
use super::fault::{FaultKind, FaultPlan};
use super::model::{Model, CallError, after};
use super::operation::{Call, Operation, Outcome};

pub(super) struct SimDriver {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Told after every change; waiting calls look again.
    changed: Notify,
    /// Held by the call that is served, if calls are served one at a time.
    serving: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) model: Model,
    pub(super) faults: FaultPlan,
    pub(super) events: EventHub,
    /// The socket streams lists.
    pub(super) stream_lists: bool,
    pub(super) execs: Execs,
    pub(super) latencies: BTreeMap<Operation, Duration>,
    /// Calls are served one at a time, each for this long.
    pub(super) serial_time: Option<Duration>,
    pub(super) log: Vec<Call>,
    /// Calls forgotten by `clear_log`, so that tickets of older calls stay valid.
    forgotten: usize,
    pub(super) down: bool,
    /// `runtimeRequestTimeout`.
    pub(super) timeout: Duration,
}

/// A call that has passed its latency and faults and may take effect.
pub(super) struct CallTicket {
    operation: Operation,
    index: usize,
    lose_reply: bool,
}

impl SimDriver {
    pub(super) fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let state = State {
            model: Model::new(seed),
            faults: FaultPlan::default(),
            events: EventHub::default(),
            stream_lists: false,
            execs: Execs::default(),
            latencies: BTreeMap::new(),
            serial_time: None,
            log: Vec::new(),
            forgotten: 0,
            down: false,
            timeout: Duration::from_secs(120),
        };
        Self {
            clock,
            state: Mutex::new(state),
            changed: Notify::new(),
            serving: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes settings; waiting calls look again.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// One step of the model at the present: what was due happens first, what follows from the
    /// step is published and timed.
    pub(super) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut Model, Timestamp) -> T) -> T {
        self.step_at(self.clock.now(), step)
    }

    fn step_at<T>(
        self: &Arc<Self>,
        now: Timestamp,
        step: impl FnOnce(&mut Model, Timestamp) -> T,
    ) -> T {
        let mut late = Vec::new();
        let (result, timers) = {
            let mut state = self.lock();
            state.model.settle(now);
            let result = step(&mut state.model, now);
            state.model.settle(now);
            for event in std::mem::take(&mut state.model.outbox) {
                late.extend(state.events.publish(event));
            }
            (result, std::mem::take(&mut state.model.timers))
        };
        for wait in timers {
            if !wait.is_zero() {
                self.wake_after(now, wait);
            }
        }
        for (delay, event) in late {
            let driver: Weak<Self> = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                if let Some(driver) = driver.upgrade() {
                    driver.lock().events.deliver(event);
                }
            });
        }
        self.changed.notify_waiters();
        result
    }

    /// Settles the model once `wait` has passed, so that ends are told when they happen. The
    /// state itself never depends on it: every step settles first.
    fn wake_after(self: &Arc<Self>, now: Timestamp, wait: Duration) {
        let driver: Weak<Self> = Arc::downgrade(self);
        let due = after(now, wait);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(driver) = driver.upgrade() {
                // The clock may be a nanosecond short of what it was asked to wait.
                let now = driver.clock.now().max(due);
                driver.step_at(now, |_, _| ());
            }
        });
    }

    /// Takes a call in: logs it, lets its latency pass and its fault happen.
    pub(super) async fn begin(&self, operation: Operation, subject: String) -> CriResult<CallTicket> {
        let (mut ticket, latency, deadline) = {
            let mut state = self.lock();
            let call = Call {
                at: self.clock.now(),
                operation,
                subject: subject.clone(),
                outcome: Outcome::Open,
            };
            state.log.push(call);
            let index = state.forgotten + state.log.len() - 1;
            let latency = state.latencies.get(&operation).copied().unwrap_or_default();
            let deadline = deadline(operation, state.timeout);
            (
                CallTicket {
                    operation,
                    index,
                    lose_reply: false,
                },
                latency,
                deadline,
            )
        };
        let passed = self.pass(&mut ticket, &subject, latency);
        let result = match deadline {
            None => passed.await,
            Some(deadline) => tokio::time::timeout(deadline, passed)
                .await
                .unwrap_or_else(|_| {
                    Err((
                        CriCode::DeadlineExceeded,
                        "context deadline exceeded".to_owned(),
                    ))
                }),
        };
        match result {
            Ok(()) => Ok(ticket),
            Err(refusal) => self.finish::<()>(&ticket, Err(refusal)).map(|()| ticket),
        }
    }

    /// Latency, then the fault planned for the call.
    async fn pass(
        &self,
        ticket: &mut CallTicket,
        subject: &str,
        latency: Duration,
    ) -> Result<(), CallError> {
        let operation = ticket.operation;
        self.check_up()?;
        let serial_time = self.lock().serial_time;
        if let Some(time) = serial_time.filter(|_| operation != Operation::Events) {
            let _served = self.serving.lock().await;
            tokio::time::sleep(time).await;
        }
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
            self.check_up()?;
        }
        let fault = self.lock().faults.take(operation, subject);
        match fault {
            None => Ok(()),
            Some(FaultKind::Fail { code, message }) => Err((code, message)),
            Some(FaultKind::LoseReply) => {
                ticket.lose_reply = true;
                Ok(())
            }
            Some(FaultKind::Hang) => {
                self.wait_until(|state| !state.faults.hangs(operation, subject) || state.down)
                    .await;
                self.check_up()
            }
        }
    }

    fn check_up(&self) -> Result<(), CallError> {
        match self.lock().down {
            false => Ok(()),
            true => {
                let message = "connection error: connect: connection refused";
                Err((CriCode::Unavailable, message.to_owned()))
            }
        }
    }

    /// Waits until a look at the state says yes.
    pub(super) async fn wait_until(&self, mut done: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Lets a call take effect and answers it.
    pub(super) fn complete<T>(
        self: &Arc<Self>,
        ticket: &CallTicket,
        effect: impl FnOnce(&mut Model, Timestamp) -> Result<T, CallError>,
    ) -> CriResult<T> {
        let result = self.check_up().and_then(|()| self.step(effect));
        self.finish(ticket, result)
    }

    /// Answers a call, unless its answer gets lost.
    pub(super) fn finish<T>(&self, ticket: &CallTicket, result: Result<T, CallError>) -> CriResult<T> {
        let result = match result {
            Ok(_) if ticket.lose_reply => Err((
                CriCode::DeadlineExceeded,
                "context deadline exceeded".to_owned(),
            )),
            other => other,
        };
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err((code, _)) => Outcome::Failed(*code),
        };
        let mut state = self.lock();
        let index = ticket.index.checked_sub(state.forgotten);
        if let Some(call) = index.and_then(|index| state.log.get_mut(index)) {
            call.outcome = outcome;
        }
        result.map_err(|(code, message)| CriError::new(ticket.operation.as_str(), code, message))
    }

    /// A whole call of one step.
    pub(super) async fn call<T>(
        self: &Arc<Self>,
        operation: Operation,
        subject: String,
        effect: impl FnOnce(&mut Model, Timestamp) -> Result<T, CallError>,
    ) -> CriResult<T> {
        let ticket = self.begin(operation, subject).await?;
        self.complete(&ticket, effect)
    }

    pub(super) fn clear_log(&self) {
        let mut state = self.lock();
        state.forgotten += state.log.len();
        state.log.clear();
    }
}

/// The deadline that the port promises for a call; what it waits for after it began (the grace
/// of a stop, a pull) is not in it.
fn deadline(operation: Operation, timeout: Duration) -> Option<Duration> {
    match operation {
        Operation::PullImage | Operation::Events => None,
        Operation::RunPodSandbox => Some(timeout * 2),
        _ => Some(timeout),
    }
}
