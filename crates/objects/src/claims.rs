//! Claims and the PersistentVolumes behind them.
//!
//! A node may read the claims of its pods by name, but watch none of them (the node authorizer's
//! rule), so a claim is read when a pod is synced, and again and again while a pod waits for it.
//! Many pods with one claim share each read. What was read once serves while the API server is
//! away. What is told of their growth is in `claims/growth.rs`.

mod growth;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;
use windlass_actors::ObjectsChanged;
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiObject, ObjectKey};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};
use windlass_types::{PodUid, Retry};
use windlass_volume_plan::volume_source::{ClaimState, Lookup, bound_volume};

use crate::lookup::ANSWER_DEADLINE;
use crate::refusals::Refusals;

/// An answer this young is not asked for again: pods that start together share it.
const FRESH: Duration = Duration::from_secs(1);
/// Pause between two requests while the API server fails.
const REQUEST_RETRY: Duration = Duration::from_secs(1);
/// Shortest and longest pause between two looks for a claim that pods wait for. Between them it is
/// an eighth of the time they have waited: 100 claims that nobody will ever bind cost ten requests
/// a second, a fifth of the client's rate.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Namespace and name.
pub(crate) type ClaimKey = (String, String);

/// The claims that the node's pods use. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Claims(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Option<ApiClient>,
    changed: SlotSender<PodUid, ObjectsChanged>,
    /// Bounded by the claims of the node's pods.
    entries: Mutex<BTreeMap<ClaimKey, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    users: BTreeSet<PodUid>,
    /// Those of them that are told when it becomes something else.
    waiting: BTreeSet<PodUid>,
    known: Option<(Instant, Arc<ClaimState>)>,
    /// Held by the one request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
    refusals: Refusals,
    poll: Option<AbortHandle>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(poll) = &self.poll {
            poll.abort();
        }
    }
}

impl Claims {
    pub(crate) fn new(
        client: Option<ApiClient>,
        changed: SlotSender<PodUid, ObjectsChanged>,
    ) -> Self {
        Self(Arc::new(Shared {
            client,
            changed,
            entries: Mutex::default(),
        }))
    }

    /// The pod uses this claim from now on.
    pub(crate) fn hold(&self, key: &ClaimKey, uid: &PodUid) {
        let mut entries = self.0.lock();
        let entry = entries.entry(key.clone()).or_default();
        entry.users.insert(uid.clone());
    }

    /// The pod does not use this claim any more; what is known of it goes with its last pod.
    pub(crate) fn release(&self, key: &ClaimKey, uid: &PodUid) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.users.remove(uid);
        entry.waiting.remove(uid);
        if entry.users.is_empty() {
            entries.remove(key);
        }
    }

    /// The claim as it is now; as it was last if nothing can be read until the deadline.
    pub(crate) async fn state(&self, key: &ClaimKey, uid: &PodUid) -> Arc<ClaimState> {
        let deadline = Instant::now() + ANSWER_DEADLINE;
        let request = self.0.lock().get_mut(key).map(|entry| {
            // it looks for itself
            entry.waiting.remove(uid);
            Arc::clone(&entry.request)
        });
        // the pod went while it was being resolved
        let Some(request) = request else {
            return Arc::new(unread("the pod is gone"));
        };
        let Ok(_one_at_a_time) = tokio::time::timeout_at(deadline, request.lock()).await else {
            return self.0.last(key);
        };
        if let Some((at, state)) = self.0.known(key)
            && at.elapsed() < FRESH
            && !is_unread(&state)
        {
            return state;
        }
        loop {
            match tokio::time::timeout_at(deadline, self.0.read(key)).await {
                Ok((state, Some(error))) if is_unread(&state) => {
                    let delay = self.0.retry_delay(key, &error);
                    let again = delay.map(|delay| Instant::now() + delay);
                    match again.filter(|again| *again < deadline) {
                        Some(again) => tokio::time::sleep_until(again).await,
                        None => return state,
                    }
                }
                Ok((state, _)) => return state,
                Err(_) => return self.0.last(key),
            }
        }
    }

    /// The pod cannot go on with what it saw of the claim, and is told when that becomes something
    /// else.
    pub(crate) fn wait(&self, key: &ClaimKey, uid: &PodUid, seen: &ClaimState) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        if entry.known.as_ref().is_some_and(|(_, now)| **now != *seen) {
            // it did already
            self.0.changed.put(uid.clone(), ObjectsChanged);
            return;
        }
        entry.waiting.insert(uid.clone());
        if entry.poll.as_ref().is_none_or(AbortHandle::is_finished) {
            let poll = poll(Arc::downgrade(&self.0), key.clone());
            entry.poll = Some(spawn_io("poll-claim", poll).abort_handle());
        }
    }
}

/// Looks at a claim for as long as somebody waits for it.
async fn poll(shared: Weak<Shared>, key: ClaimKey) {
    let began = Instant::now();
    loop {
        let pause = began.elapsed() / 8;
        tokio::time::sleep(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // a state that differs wakes those who wait; one that cannot be had is looked for again
        let _ = tokio::time::timeout(ANSWER_DEADLINE, shared.read(&key)).await;
        let mut entries = shared.lock();
        match entries.get_mut(&key) {
            Some(entry) if entry.waiting.is_empty() => entry.poll = None,
            Some(_) => continue,
            None => {}
        }
        return;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClaimKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, key: &ClaimKey) -> Option<(Instant, Arc<ClaimState>)> {
        self.lock().get(key)?.known.clone()
    }

    fn last(&self, key: &ClaimKey) -> Arc<ClaimState> {
        let known = self.known(key).map(|(_, state)| state);
        known.unwrap_or_else(|| Arc::new(unread("the API server did not answer")))
    }

    /// Delay before the claim is read again; `None` if what was read is to be reported.
    fn retry_delay(&self, key: &ClaimKey, error: &ApiError) -> Option<Duration> {
        if error.retry() == Retry::Soon {
            return Some(REQUEST_RETRY);
        }
        let mut entries = self.lock();
        let refusals = &mut entries.get_mut(key)?.refusals;
        refusals.retry_delay(PodRequest::Object, error)
    }

    /// Reads the claim and what is behind it, and remembers both; with it, why one of them could not
    /// be read.
    async fn read(&self, key: &ClaimKey) -> (Arc<ClaimState>, Option<ApiError>) {
        let (namespace, name) = key;
        let at = ObjectKey::namespaced(namespace, name);
        let (claim, mut error) = self.get::<PersistentVolumeClaim>(at).await;
        let bound_to = match &claim {
            Lookup::Found(claim) => bound_volume(claim),
            _ => None,
        };
        let volume = match bound_to {
            Some(name) => {
                let (volume, unread) = self.get::<PersistentVolume>(ObjectKey::cluster(name)).await;
                error = unread;
                volume
            }
            None => Lookup::Missing,
        };
        (self.put(key, ClaimState { claim, volume }), error)
    }

    async fn get<K: ApiObject>(&self, at: ObjectKey<'_>) -> (Lookup<K>, Option<ApiError>) {
        let Some(client) = &self.client else {
            return (Lookup::Missing, None);
        };
        match client.get::<K>(at).await {
            Ok(mut object) => {
                // who wrote which field is long and of no use here
                object.meta_mut().managed_fields = None;
                (Lookup::Found(Arc::new(object)), None)
            }
            Err(error) if error.kind == ApiErrorKind::NotFound => (Lookup::Missing, None),
            Err(error) => (Lookup::Unread(error.message.clone()), Some(error)),
        }
    }

    /// Remembers a state, tells those who wait if it is a new one, and returns what is known now:
    /// what could not be read is as it was, and what is the same keeps its place in memory.
    fn put(&self, key: &ClaimKey, new: ClaimState) -> Arc<ClaimState> {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key) else {
            return Arc::new(new);
        };
        let state = match &entry.known {
            Some((_, old)) if **old == new || (is_unread(&new) && is_ready(old)) => Arc::clone(old),
            _ => {
                for uid in std::mem::take(&mut entry.waiting) {
                    self.changed.put(uid, ObjectsChanged);
                }
                Arc::new(new)
            }
        };
        if !is_unread(&state) {
            entry.refusals.clear();
        }
        entry.known = Some((Instant::now(), Arc::clone(&state)));
        state
    }
}

fn unread(why: &str) -> ClaimState {
    ClaimState {
        claim: Lookup::Unread(why.to_owned()),
        volume: Lookup::Missing,
    }
}

/// Both objects were read; what is wrong with them is in them.
fn is_ready(state: &ClaimState) -> bool {
    matches!(
        (&state.claim, &state.volume),
        (Lookup::Found(_), Lookup::Found(_))
    )
}

fn is_unread(state: &ClaimState) -> bool {
    matches!(state.claim, Lookup::Unread(_)) || matches!(state.volume, Lookup::Unread(_))
}
