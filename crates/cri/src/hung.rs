//! Calls to the runtime that have not been answered for too long.
//!
//! *owns* the list of calls that hang, and which pod a sandbox or container belongs to, as lists
//! and creations told · *invariant* a call stays listed, over its deadline and further attempts,
//! until the same call on the same object is answered, the object is gone or settled, or nobody has
//! asked again for [`FORGET_AFTER`] · *bound* one entry per operation and object ·
//! *restart* nothing to restore: what still hangs is found hanging again.
//!
//! A call that is slow because of the agent's own load does not hang: each call that was in flight
//! before it gives it [`CALL_TIME`] more ([`RuntimeLoad`]), and so do calls of its kind that were slow
//! just now ([`SLOW_FACTOR`]).
//!
//! A call that is answered in time costs a few accesses of atomics and no lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_pacing::run_with_permit;
use windlass_types::cri::{ContainerSummary, SandboxSummary};
use windlass_types::{Clock, ContainerId, ContainerState, PodUid, SandboxId, Timestamp, api_time};

use crate::error::{CriCode, CriResult};

/// A call that nobody has repeated for this long is no longer listed: what wanted it is gone, or
/// found another way. The longest pause between two attempts is a start's back-off of five minutes.
const FORGET_AFTER: Duration = Duration::from_secs(330);
/// What a call in flight may cost the next one: a runtime that serves one call at a time and takes
/// this long for each is slow, but does not hang.
const CALL_TIME: Duration = Duration::from_millis(200);
/// A call counts as load for at most this long, plus what the load allows it: then it waits for
/// something of its own, such as the end of a container, or hangs.
const MAX_LOAD_TIME: Duration = Duration::from_secs(4);
/// A call that takes this long is slow.
const SLOW_CALL: Duration = Duration::from_secs(1);
/// A call hangs when it takes so many times as long as the slow calls of its kind.
const SLOW_FACTOR: u32 = 3;
/// Calls that take longer are not taken for an example.
const MAX_SLOW_CALL: Duration = Duration::from_secs(10);
/// A call that was slow longer ago than this says nothing of those of today.
const SLOW_CALL_RELEVANCE: Duration = Duration::from_secs(60);
/// Owners of sandboxes and containers that are gone are swept when there are so many of them.
const MIN_STALE_OWNERS: usize = 1000;

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallObject {
    /// The runtime as a whole.
    Runtime,
    /// A pod that has no sandbox yet, or a list of what it has.
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

/// As much of an ID as `crictl` shows, which takes it as well.
pub(crate) fn short(id: &str) -> &str {
    id.get(..13).unwrap_or(id)
}

/// A call that hangs. Its `Display` is what users are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungCall {
    /// The CRI's name of the call, such as `PodSandboxStatus`.
    pub operation: &'static str,
    /// On what.
    pub object: CallObject,
    /// Whose object it is, if that is known.
    pub pod: Option<PodUid>,
    /// When the first unanswered attempt began.
    pub since: Timestamp,
    /// How often it was asked since then.
    pub attempts: u32,
}

impl HungCall {
    /// The same call, unanswered since the same time.
    pub fn is_same_call(&self, other: &Self) -> bool {
        (self.operation, &self.object, self.since) == (other.operation, &other.object, other.since)
    }
}

impl fmt::Display for HungCall {
    /// The same words at any later time, so that a repeat is seen to be one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = api_time(self.since);
        write!(
            f,
            "{} of {} has not been answered since {since}; the container runtime, not the pod's \
             manifest, is at fault",
            self.operation, self.object
        )
    }
}

/// How many calls the runtime has in flight, and how long the next one may have to wait for them.
/// Clones share the count.
///
/// Calls that hang, image pulls and event streams do not count, nor does the time that a stop waits
/// for its container.
#[derive(Clone, Debug, Default)]
pub struct RuntimeLoad(Arc<AtomicUsize>);

impl RuntimeLoad {
    /// Time that the calls in flight may take if the runtime serves them one after the other:
    /// 200 ms for each.
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

/// The calls that hang. Clones share the list.
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
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<CallKey, Entry>,
    /// By operation: how long the last slow call took that did not hang, and when it ended.
    slow: BTreeMap<&'static str, (Duration, Instant)>,
    /// By the IDs of sandboxes and containers.
    owners: HashMap<String, Owner>,
    /// Pods about which there is changed_pods that nobody has taken yet.
    changed_pods: BTreeSet<PodUid>,
}

/// Whose a sandbox or container is.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) pod: PodUid,
    /// The container's name; `None` for a sandbox.
    pub(crate) container: Option<Arc<str>>,
}

#[derive(Debug)]
struct Entry {
    pod: Option<PodUid>,
    since: Timestamp,
    attempts: u32,
    in_flight: u32,
    last_end: Instant,
}

impl HungCalls {
    /// Nothing hangs.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            clock,
            state: Mutex::default(),
            listed: AtomicUsize::new(0),
            load: RuntimeLoad::default(),
            changed_pods: Notify::new(),
        }))
    }

    /// The calls in flight that do not hang.
    pub fn load(&self) -> RuntimeLoad {
        self.0.load.clone()
    }

    /// What hangs of one pod, the oldest first.
    pub fn for_pod(&self, uid: &PodUid) -> Vec<HungCall> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut calls = self.all();
        calls.retain(|call| call.pod.as_ref() == Some(uid));
        calls
    }

    /// Everything that hangs, the oldest first.
    pub fn all(&self) -> Vec<HungCall> {
        let state = self.lock();
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

    /// A pod is no longer looked after.
    pub fn forget(&self, uid: &PodUid) {
        if !self.is_empty() {
            self.remove(|_, entry| entry.pod.as_ref() == Some(uid));
            self.lock().changed_pods.remove(uid);
        }
    }

    /// Waits until something hangs, is asked again or answered; the pods concerned, each once.
    /// For one reader.
    pub async fn changed(&self) -> BTreeSet<PodUid> {
        loop {
            let told = self.0.changed_pods.notified();
            let changed_pods = std::mem::take(&mut self.lock().changed_pods);
            if !changed_pods.is_empty() {
                return changed_pods;
            }
            told.await;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.listed.load(Ordering::Relaxed) == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call that has to be answered within `threshold` plus the expected delay by the calls
    /// in flight; `pod` is the pod that it is made for, if the caller knows.
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
        // the end of our own threshold is no answer
        if !matches!(&result, Err(error) if error.code == CriCode::DeadlineExceeded) {
            self.answered(&key);
        }
        drop(attempt);
        result
    }

    /// Time that a call may take because those of its kind are slow; zero if they are not.
    fn slow_call_time(&self, operation: &'static str) -> Duration {
        let state = self.lock();
        let slow = state.slow.get(operation);
        let recent = slow.filter(|(_, ended)| ended.elapsed() < SLOW_CALL_RELEVANCE);
        recent.map_or(Duration::ZERO, |(took, _)| took.saturating_mul(SLOW_FACTOR))
    }

    /// Remembers that a call of its kind was slow. Not for calls with a duration of their own (the
    /// grace period of a StopContainer, the command of an ExecSync): that one is not the runtime's.
    fn record_slow(&self, operation: &'static str, took: Duration) {
        if took >= SLOW_CALL {
            self.lock()
                .slow
                .insert(operation, (took.min(MAX_SLOW_CALL), Instant::now()));
        }
    }

    /// One more attempt of a call that hangs.
    fn again(&self, key: &CallKey) -> Option<Attempt> {
        let mut state = self.lock();
        let entry = state.calls.get_mut(key)?;
        entry.attempts += 1;
        entry.in_flight += 1;
        let (pod, since) = (entry.pod.clone(), entry.since);
        self.notify_pod(&mut state, pod);
        Some(self.attempt(key, since))
    }

    fn list(&self, key: &CallKey, pod: Option<PodUid>, since: Timestamp) -> Attempt {
        let mut state = self.lock();
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
        });
        entry.attempts += 1;
        entry.in_flight += 1;
        tracing::warn!(
            operation = key.0,
            object = %key.1,
            pod = pod.as_ref().map(tracing::field::display),
            attempts = entry.attempts,
            "the runtime does not answer a call"
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

    /// Takes off the list whatever `over` says; the pods concerned are told.
    fn remove(&self, over: impl Fn(&CallKey, &Entry) -> bool) {
        let mut state = self.lock();
        let mut pods = Vec::new();
        state.calls.retain(|key, entry| {
            let over = over(key, entry);
            if over {
                tracing::info!(operation = key.0, object = %key.1, "a call no longer hangs");
                pods.push(entry.pod.take());
            }
            !over
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

    /// A sandbox, or a container of this name, was made for a pod.
    pub(crate) fn record_created(&self, id: &str, pod: &PodUid, container: Option<&str>) {
        let (pod, container) = (pod.clone(), container.map(Arc::from));
        let owner = Owner { pod, container };
        self.lock().owners.insert(id.to_owned(), owner);
    }

    /// Whose a sandbox or container is, as far as that was told.
    pub(crate) fn owner(&self, id: &str) -> Option<Owner> {
        self.lock().owners.get(id).cloned()
    }

    /// The runtime listed sandboxes: `all` that there are, or some.
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
                    // made after all, although nobody was told
                    (CallObject::Pod(uid), "RunPodSandbox") => entry.is_idle() && ready(uid),
                    _ => false,
                }
        });
    }

    /// The runtime listed containers: `all` that there are, or some.
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
                        // it, or another attempt, runs although nobody was told
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

    /// Keeps the owners of what is listed once there are many others; the next list of sandboxes
    /// brings back those that have no container.
    fn forget_owners(&self, rows: &[ContainerSummary]) {
        let mut state = self.lock();
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
        let mut state = self.lock();
        for (id, uid, container) in rows {
            if !state.owners.contains_key(id) && !uid.as_str().is_empty() {
                let (pod, container) = (uid.clone(), container.map(Arc::from));
                state.owners.insert(id.to_owned(), Owner { pod, container });
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
    /// Nobody is asking at present.
    fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    fn is_forgotten(&self) -> bool {
        self.is_idle() && self.last_end.elapsed() >= FORGET_AFTER
    }
}

/// An attempt under way of a call that hangs; ends when dropped, as by a caller that gives up.
struct Attempt {
    calls: HungCalls,
    key: CallKey,
    since: Timestamp,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.calls.lock();
        let entry = state.calls.get_mut(&self.key);
        // one of another time is none of ours
        if let Some(entry) = entry.filter(|entry| entry.since == self.since) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.last_end = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
