//! Hung runtime calls.
//!
//! *owns* the list of hung calls, and the pod of each sandbox and container, learned from lists and
//! creations · *invariant* a call stays listed, across its deadline and retries, until the same
//! call on the same object is answered, the object is gone or settled, or the call was not retried
//! for [`FORGET_AFTER`] · *bound* one entry per operation and object ·
//! *restart* nothing is restored; calls that still hang are detected again.
//!
//! A call that is slow because of the agent's own load is not hung: each call in flight before it
//! adds [`CALL_TIME`] to its threshold ([`RuntimeLoad`]). Recent slow calls of the same operation
//! raise it as well ([`SLOW_FACTOR`]).
//!
//! A call that is answered in time costs a few atomic accesses and no lock. What is listed here is
//! listed in [`HungOperations`] too, among the hung operations of other kinds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_hung_operations::{HungAttempt, HungOperations, Operation, OperationKind};
use windlass_pacing::run_with_permit;
use windlass_types::cri::{ContainerSummary, SandboxSummary};
use windlass_types::{Clock, ContainerId, ContainerState, PodUid, SandboxId, Timestamp, api_time};

use crate::error::{CriCode, CriResult};

/// A call that was not retried for this long is no longer listed. It exceeds the maximum interval
/// between two attempts, the start back-off of five minutes.
const FORGET_AFTER: Duration = Duration::from_secs(330);
/// Allowance for each call in flight: a runtime that serves calls one after the other and takes
/// this long for each is slow, but not hung.
const CALL_TIME: Duration = Duration::from_millis(200);
/// Maximum time that a call counts as load, plus its allowance: after that it waits for something
/// of its own, such as the end of a container, or has hung.
const MAX_LOAD_TIME: Duration = Duration::from_secs(4);
const SLOW_CALL: Duration = Duration::from_secs(1);
/// A call has hung when it takes this many times as long as recent slow calls of its operation.
const SLOW_FACTOR: u32 = 3;
/// Maximum duration that is recorded for a slow call.
const MAX_SLOW_CALL: Duration = Duration::from_secs(10);
/// Time for which a slow call raises the threshold.
const SLOW_CALL_RELEVANCE: Duration = Duration::from_secs(60);
/// Number of stale owners of sandboxes and containers from which they are removed.
const MIN_STALE_OWNERS: usize = 1000;

/// Object of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallObject {
    /// The runtime as a whole.
    Runtime,
    /// A pod that has no sandbox yet, or a list of its objects.
    Pod(PodUid),
    /// A container of a pod that is not created yet, by name.
    NewContainer(PodUid, String),
    /// A sandbox.
    Sandbox(SandboxId),
    /// A container.
    Container(ContainerId),
    /// An image.
    Image(String),
}

impl fmt::Display for CallObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime => f.write_str("the runtime"),
            Self::Pod(uid) => write!(f, "pod {uid}"),
            Self::NewContainer(_, name) => write!(f, "container {name}"),
            Self::Sandbox(id) => write!(f, "sandbox {}", short(id.as_str())),
            Self::Container(id) => write!(f, "container {}", short(id.as_str())),
            Self::Image(name) => write!(f, "image {name}"),
        }
    }
}

/// Short ID as `crictl` prints and accepts it.
pub(crate) fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

/// A hung call. Its `Display` is shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungCall {
    /// CRI method, such as `PodSandboxStatus`.
    pub operation: &'static str,
    /// Object of the call.
    pub object: CallObject,
    /// Pod of the object, if known.
    pub pod: Option<PodUid>,
    /// Start of the first unanswered attempt.
    pub since: Timestamp,
    /// Number of attempts since then.
    pub attempts: u32,
}

impl HungCall {
    /// True for the same call with the same start.
    pub fn is_same_call(&self, other: &Self) -> bool {
        (self.operation, &self.object, self.since) == (other.operation, &other.object, other.since)
    }
}

impl fmt::Display for HungCall {
    /// Does not change over time, so that repeated events are recognized.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = api_time(self.since);
        write!(
            f,
            "{} on {} hung since {since}: no response from the container runtime",
            self.operation, self.object
        )
    }
}

/// Number of runtime calls in flight, and the delay they may cause. Clones share the count.
///
/// Hung calls, image pulls and event streams do not count, nor does the time that a stop waits for
/// its container.
#[derive(Clone, Debug, Default)]
pub struct RuntimeLoad(Arc<AtomicUsize>);

impl RuntimeLoad {
    /// Time that the runtime may need for the calls in flight: 200 ms for each.
    pub fn expected_delay(&self) -> Duration {
        let calls = u32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        CALL_TIME.saturating_mul(calls)
    }

    fn count(&self) -> CountedCall {
        self.0.fetch_add(1, Ordering::Relaxed);
        CountedCall(Arc::clone(&self.0))
    }
}

/// A call that counts as load until this is dropped.
struct CountedCall(Arc<AtomicUsize>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Operation and object.
pub(crate) type CallKey = (&'static str, CallObject);

/// List of hung calls. Clones share it.
#[derive(Clone, Debug)]
pub struct HungCalls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Entries in `state`, readable without its lock.
    listed: AtomicUsize,
    load: RuntimeLoad,
    changed_pods: Notify,
    operations: HungOperations,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<CallKey, Entry>,
    /// Duration and end of the last slow call that did not hang, by operation.
    slow: BTreeMap<&'static str, (Duration, Instant)>,
    /// By ID of a sandbox or container.
    owners: HashMap<String, Owner>,
    /// Pods with changes that [`HungCalls::changed`] has not returned yet.
    changed_pods: BTreeSet<PodUid>,
}

/// Pod and name of a sandbox or container.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) pod: PodUid,
    /// The container's name; `None` for a sandbox.
    pub(crate) container: Option<Arc<str>>,
    /// Time that its CPU limit adds to the start of a container; zero if it is not known.
    pub(crate) start_delay: Duration,
}

impl Owner {
    pub(crate) fn new(pod: PodUid, container: Option<&str>) -> Self {
        let (container, start_delay) = (container.map(Arc::from), Duration::ZERO);
        Self {
            pod,
            container,
            start_delay,
        }
    }
}

#[derive(Debug)]
struct Entry {
    pod: Option<PodUid>,
    since: Timestamp,
    attempts: u32,
    in_flight: u32,
    last_end: Instant,
    /// Lists it until the entry is removed.
    _listed: HungAttempt,
}

impl HungCalls {
    /// Creates an empty list, with a list of hung operations of its own.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let operations = HungOperations::new(Arc::clone(&clock));
        Self::listed_in(operations, clock)
    }

    /// Creates an empty list whose calls are also listed in `operations`.
    pub fn listed_in(operations: HungOperations, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            operations,
            clock,
            state: Mutex::default(),
            listed: AtomicUsize::new(0),
            load: RuntimeLoad::default(),
            changed_pods: Notify::new(),
        }))
    }

    /// Calls in flight that are not hung.
    pub fn load(&self) -> RuntimeLoad {
        self.0.load.clone()
    }

    /// The list that has hung operations of other kinds too.
    pub fn operations(&self) -> HungOperations {
        self.0.operations.clone()
    }

    /// Hung calls of one pod, oldest first.
    pub fn for_pod(&self, uid: &PodUid) -> Vec<HungCall> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut calls = self.all();
        calls.retain(|call| call.pod.as_ref() == Some(uid));
        calls
    }

    /// All hung calls, oldest first.
    pub fn all(&self) -> Vec<HungCall> {
        let state = self.0.state.lock();
        let rows = state
            .calls
            .iter()
            .map(|((operation, object), entry)| HungCall {
                operation,
                object: object.clone(),
                pod: entry.pod.clone(),
                since: entry.since,
                attempts: entry.attempts,
            });
        let mut calls: Vec<HungCall> = rows.collect();
        calls.sort_by_key(|call| call.since);
        calls
    }

    /// Removes the hung calls of a pod.
    pub fn forget(&self, uid: &PodUid) {
        if !self.is_empty() {
            self.remove(|_, entry| entry.pod.as_ref() == Some(uid));
            self.0.state.lock().changed_pods.remove(uid);
        }
    }

    /// Waits until calls hang, are retried or are answered, and returns their pods. For one reader.
    pub async fn changed(&self) -> BTreeSet<PodUid> {
        loop {
            let notified = self.0.changed_pods.notified();
            let changed_pods = std::mem::take(&mut self.0.state.lock().changed_pods);
            if !changed_pods.is_empty() {
                return changed_pods;
            }
            notified.await;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.listed.load(Ordering::Relaxed) == 0
    }

    /// Runs a call that counts as hung after `threshold` plus the expected delay of the calls in
    /// flight; `pod` is the pod of the caller, if known.
    pub(crate) async fn track<T>(
        &self,
        key: CallKey,
        pod: Option<PodUid>,
        threshold: Duration,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        let began = self.0.clock.now();
        let sent = Instant::now();
        let mut attempt = (!self.is_empty()).then(|| self.again(&key)).flatten();
        let allowance = self.0.load.expected_delay();
        let has_own_duration = threshold > MAX_LOAD_TIME;
        let load_time = threshold.min(MAX_LOAD_TIME).saturating_add(allowance);
        let counted = self.0.load.count();
        let mut call = std::pin::pin!(run_with_permit(counted, load_time, call));
        let threshold = threshold.saturating_add(allowance);
        let mut first = tokio::time::timeout(threshold, &mut call).await;
        if first.is_err() {
            let more = self.slow_call_time(key.0).saturating_sub(sent.elapsed());
            first = tokio::time::timeout(more, &mut call).await;
        }
        let result = match first {
            Ok(result) => {
                self.answered(&key);
                if !has_own_duration {
                    self.record_slow(key.0, sent.elapsed());
                }
                return result;
            }
            Err(_) => {
                if attempt.is_none() {
                    attempt = Some(self.list(&key, pod, began));
                }
                call.await
            }
        };
        // a client-side deadline is not a response
        if !matches!(&result, Err(error) if error.code == CriCode::DeadlineExceeded) {
            self.answered(&key);
        }
        drop(attempt);
        result
    }

    /// Threshold from recent slow calls of the operation; zero without any.
    fn slow_call_time(&self, operation: &'static str) -> Duration {
        let state = self.0.state.lock();
        let slow = state.slow.get(operation);
        let recent = slow.filter(|(_, ended)| ended.elapsed() < SLOW_CALL_RELEVANCE);
        recent.map_or(Duration::ZERO, |(took, _)| took.saturating_mul(SLOW_FACTOR))
    }

    /// Records a slow call. Not for StopContainer and ExecSync, whose duration the container
    /// determines.
    fn record_slow(&self, operation: &'static str, took: Duration) {
        if took >= SLOW_CALL {
            self.0
                .state
                .lock()
                .slow
                .insert(operation, (took.min(MAX_SLOW_CALL), Instant::now()));
        }
    }

    /// Counts another attempt of a hung call.
    fn again(&self, key: &CallKey) -> Option<Attempt> {
        let mut state = self.0.state.lock();
        let entry = state.calls.get_mut(key)?;
        entry.attempts += 1;
        entry.in_flight += 1;
        let (pod, since) = (entry.pod.clone(), entry.since);
        self.notify_pod(&mut state, pod);
        Some(self.attempt(key, since))
    }

    fn list(&self, key: &CallKey, pod: Option<PodUid>, since: Timestamp) -> Attempt {
        let mut state = self.0.state.lock();
        let pod = match &key.1 {
            CallObject::Runtime => pod,
            CallObject::Pod(uid) | CallObject::NewContainer(uid, _) => Some(uid.clone()),
            CallObject::Sandbox(id) => state.owner(id.as_str()).or(pod),
            CallObject::Container(id) => state.owner(id.as_str()).or(pod),
            CallObject::Image(_) => pod,
        };
        let entry = state.calls.entry(key.clone()).or_insert_with(|| Entry {
            pod: pod.clone(),
            since,
            attempts: 0,
            in_flight: 0,
            last_end: Instant::now(),
            _listed: self.0.operations.begin(operation(key, pod.clone()), since),
        });
        entry.attempts += 1;
        entry.in_flight += 1;
        tracing::warn!(
            operation = key.0,
            object = %key.1,
            pod = pod.as_ref().map(tracing::field::display),
            attempts = entry.attempts,
            "runtime call hung"
        );
        let since = entry.since;
        self.0.listed.store(state.calls.len(), Ordering::Relaxed);
        self.notify_pod(&mut state, pod);
        self.attempt(key, since)
    }

    fn attempt(&self, key: &CallKey, since: Timestamp) -> Attempt {
        Attempt {
            calls: self.clone(),
            key: key.clone(),
            since,
        }
    }

    fn answered(&self, key: &CallKey) {
        if !self.is_empty() {
            self.remove(|listed, _| listed == key);
        }
    }

    /// Removes the calls that match `ended` and reports their pods.
    fn remove(&self, ended: impl Fn(&CallKey, &Entry) -> bool) {
        let mut state = self.0.state.lock();
        let mut pods = Vec::new();
        state.calls.retain(|key, entry| {
            let ended = ended(key, entry);
            if ended {
                tracing::info!(operation = key.0, object = %key.1, "runtime call no longer hung");
                pods.push(entry.pod.take());
            }
            !ended
        });
        self.0.listed.store(state.calls.len(), Ordering::Relaxed);
        for pod in pods {
            self.notify_pod(&mut state, pod);
        }
    }

    fn notify_pod(&self, state: &mut State, pod: Option<PodUid>) {
        if let Some(pod) = pod {
            state.changed_pods.insert(pod);
            self.0.changed_pods.notify_one();
        }
    }

    /// Records a new sandbox or container.
    pub(crate) fn record_created(&self, id: &str, owner: Owner) {
        self.0.state.lock().owners.insert(id.to_owned(), owner);
    }

    /// Pod of a sandbox or container, if known.
    pub(crate) fn owner(&self, id: &str) -> Option<Owner> {
        self.0.state.lock().owners.get(id).cloned()
    }

    /// Records a list of sandboxes: `all` of them, or a part.
    pub(crate) fn record_sandbox_list(&self, rows: &[SandboxSummary], all: bool) {
        let ids = rows.iter().map(|row| (row.id.as_str(), &row.uid, None));
        self.learn(ids);
        if self.is_empty() {
            return;
        }
        let ready = |uid: &PodUid| rows.iter().any(|row| row.ready && row.uid == *uid);
        let row = |id: &SandboxId| rows.iter().find(|row| row.id == *id);
        self.remove(|(operation, object), entry| {
            entry.is_forgotten()
                || match (object, *operation) {
                    (CallObject::Sandbox(id), "StopPodSandbox") => match row(id) {
                        None => all,
                        Some(row) => entry.is_idle() && !row.ready,
                    },
                    (CallObject::Sandbox(id), _) => all && row(id).is_none(),
                    // created without a response
                    (CallObject::Pod(uid), "RunPodSandbox") => entry.is_idle() && ready(uid),
                    _ => false,
                }
        });
    }

    /// Records a list of containers: `all` of them, or a part.
    pub(crate) fn record_container_list(&self, rows: &[ContainerSummary], all: bool) {
        let ids = rows
            .iter()
            .map(|row| (row.id.as_str(), &row.uid, Some(&*row.name)));
        self.learn(ids);
        if all {
            self.forget_owners(rows);
        }
        if self.is_empty() {
            return;
        }
        let row = |id: &ContainerId| rows.iter().find(|row| row.id == *id);
        let runs = |uid: &PodUid, name: &str| {
            let running = |row: &&ContainerSummary| row.state == ContainerState::Running;
            let mut rows = rows.iter().filter(running);
            rows.any(|row| row.uid == *uid && row.name == name)
        };
        self.remove(|(operation, object), entry| {
            entry.is_forgotten()
                || match object {
                    CallObject::Container(id) => match (row(id), *operation) {
                        (None, _) => all,
                        // it, or another attempt, runs without a response
                        (Some(row), "StartContainer") => {
                            let ended = row.state == ContainerState::Exited;
                            entry.is_idle() && (ended || runs(&row.uid, &row.name))
                        }
                        (Some(row), "StopContainer" | "ExecSync") => {
                            entry.is_idle() && row.state == ContainerState::Exited
                        }
                        _ => false,
                    },
                    CallObject::NewContainer(uid, name) => entry.is_idle() && runs(uid, name),
                    _ => false,
                }
        });
    }

    /// Removes the owners that are not listed once there are many of them. The next list of
    /// sandboxes restores those without a container.
    fn forget_owners(&self, rows: &[ContainerSummary]) {
        let mut state = self.0.state.lock();
        if state.owners.len() <= 4 * rows.len() + MIN_STALE_OWNERS {
            return;
        }
        let ids = rows
            .iter()
            .flat_map(|r| [r.id.as_str(), r.sandbox_id.as_str()]);
        let known: BTreeSet<&str> = ids.collect();
        state.owners.retain(|id, _| known.contains(id.as_str()));
    }

    fn learn<'a>(&self, rows: impl Iterator<Item = (&'a str, &'a PodUid, Option<&'a str>)>) {
        let mut state = self.0.state.lock();
        for (id, uid, container) in rows {
            if !state.owners.contains_key(id) && !uid.as_str().is_empty() {
                let owner = Owner::new(uid.clone(), container);
                state.owners.insert(id.to_owned(), owner);
            }
        }
    }
}

impl State {
    fn owner(&self, id: &str) -> Option<PodUid> {
        self.owners.get(id).map(|owner| owner.pod.clone())
    }
}

impl Entry {
    /// True without an attempt in progress.
    fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    fn is_forgotten(&self) -> bool {
        self.is_idle() && self.last_end.elapsed() >= FORGET_AFTER
    }
}

/// Returns a call as an operation of its pod.
fn operation((operation, object): &CallKey, pod: Option<PodUid>) -> Operation {
    let name = match object {
        CallObject::Pod(_) => (*operation).to_owned(),
        object => format!("{operation} on {object}"),
    };
    Operation {
        kind: OperationKind::RuntimeCall,
        pod,
        name,
    }
}

/// Attempt of a hung call in progress; ends when dropped, also by cancellation.
struct Attempt {
    calls: HungCalls,
    key: CallKey,
    since: Timestamp,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.calls.0.state.lock();
        let entry = state.calls.get_mut(&self.key);
        // the entry may belong to a later hang
        if let Some(entry) = entry.filter(|entry| entry.since == self.since) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.last_end = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
