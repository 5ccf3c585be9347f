//! Drives the pure model: lock, clock, latencies, faults, timers and call log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_cri::{CriCode, CriError, CriResult};
use windlass_types::{Clock, Timestamp};

use super::change::Observer;
use super::events::EventHub;
use super::exec::Execs;
use super::fault::{FaultKind, FaultPlan};
use super::model::{CallError, Model, after};
use super::operation::{Call, Operation, Outcome};

pub(super) struct SimDriver {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Notified after every change.
    changed: Notify,
    /// Held by the served call if calls are serialized.
    serving: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) model: Model,
    pub(super) faults: FaultPlan,
    pub(super) events: EventHub,
    /// Receives the changes of the model.
    pub(super) observer: Option<Observer>,
    /// Whether the socket streams lists.
    pub(super) stream_lists: bool,
    pub(super) execs: Execs,
    pub(super) latencies: BTreeMap<Operation, Duration>,
    /// Service time of serialized calls.
    pub(super) serial_time: Option<Duration>,
    pub(super) log: Vec<Call>,
    /// Number of cleared calls, so that older tickets stay valid.
    cleared: usize,
    pub(super) down: bool,
    /// `runtimeRequestTimeout`.
    pub(super) timeout: Duration,
}

/// A call after its latency and faults.
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
            observer: None,
            stream_lists: false,
            execs: Execs::default(),
            latencies: BTreeMap::new(),
            serial_time: None,
            log: Vec::new(),
            cleared: 0,
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

    /// Changes the state and wakes waiting calls.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// Runs a step of the model after its due timers, and publishes the events.
    pub(super) fn step<T>(self: &Arc<Self>, step: impl FnOnce(&mut Model, Timestamp) -> T) -> T {
        self.step_at(self.clock.now(), step)
    }

    fn step_at<T>(
        self: &Arc<Self>,
        now: Timestamp,
        step: impl FnOnce(&mut Model, Timestamp) -> T,
    ) -> T {
        let mut late = Vec::new();
        let (result, timers, changes, observer) = {
            let mut state = self.lock();
            state.model.settle(now);
            let result = step(&mut state.model, now);
            state.model.settle(now);
            for event in std::mem::take(&mut state.model.outbox) {
                late.extend(state.events.publish(event));
            }
            let timers = std::mem::take(&mut state.model.timers);
            let changes = std::mem::take(&mut state.model.changes);
            (result, timers, changes, state.observer.clone())
        };
        if let Some(observer) = observer {
            changes.into_iter().for_each(|change| observer(change));
        }
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

    /// Settles the model after `wait`, so that exit events are sent on time.
    fn wake_after(self: &Arc<Self>, now: Timestamp, wait: Duration) {
        let driver: Weak<Self> = Arc::downgrade(self);
        let due = after(now, wait);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            if let Some(driver) = driver.upgrade() {
                // the clock may be 1 ns behind the timer
                let now = driver.clock.now().max(due);
                driver.step_at(now, |_, _| ());
            }
        });
    }

    /// Starts a call: logs it and applies latency and fault.
    pub(super) async fn begin(
        &self,
        operation: Operation,
        subject: String,
    ) -> CriResult<CallTicket> {
        let (mut ticket, latency, deadline) = {
            let mut state = self.lock();
            let call = Call {
                at: self.clock.now(),
                operation,
                subject: subject.clone(),
                outcome: Outcome::Open,
            };
            state.log.push(call);
            let index = state.cleared + state.log.len() - 1;
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
            Err(error) => self.finish::<()>(&ticket, Err(error)).map(|()| ticket),
        }
    }

    /// Waits for the latency, then applies the planned fault.
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

    /// Waits for a predicate on the state.
    pub(super) async fn wait_until(&self, mut done: impl FnMut(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // registered first, so that no change is missed
            changed.as_mut().enable();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// Applies the effect of a call and finishes it.
    pub(super) fn complete<T>(
        self: &Arc<Self>,
        ticket: &CallTicket,
        effect: impl FnOnce(&mut Model, Timestamp) -> Result<T, CallError>,
    ) -> CriResult<T> {
        let result = self.check_up().and_then(|()| self.step(effect));
        self.finish(ticket, result)
    }

    /// Returns the result of a call, unless its reply is lost.
    pub(super) fn finish<T>(
        &self,
        ticket: &CallTicket,
        result: Result<T, CallError>,
    ) -> CriResult<T> {
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
        let index = ticket.index.checked_sub(state.cleared);
        if let Some(call) = index.and_then(|index| state.log.get_mut(index)) {
            call.outcome = outcome;
        }
        result.map_err(|(code, message)| CriError::new(ticket.operation.as_str(), code, message))
    }

    /// Runs a call with one step.
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
        state.cleared += state.log.len();
        state.log.clear();
    }
}

/// Returns the timeout of a call, without the stop timeout and image pulls.
fn deadline(operation: Operation, timeout: Duration) -> Option<Duration> {
    match operation {
        Operation::PullImage | Operation::Events => None,
        Operation::RunPodSandbox => Some(timeout * 2),
        _ => Some(timeout),
    }
}
