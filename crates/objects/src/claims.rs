//! PVCs and their PersistentVolumes.
//!
//! The node authorizer allows only reads of the PVCs of the node's pods, not watches. A PVC is read
//! when a pod is synced, and polled while a pod waits for it. Pods with the same PVC share each
//! read. The last state serves while the API server is unreachable. For expansion see
//! `claims/expansion.rs`.

mod expansion;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use windlass_actors::ObjectsChanged;
use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiObject, ObjectKey};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};
use windlass_types::{PodUid, Retry};
use windlass_volume_plan::volume_source::{Lookup, PvcState, bound_volume};

use crate::lookup::RESOLVE_TIMEOUT;
use crate::rejections::Rejections;

/// Age up to which a read is reused: pods that start together share it.
const MAX_READ_AGE: Duration = Duration::from_secs(1);
/// Interval between two requests while the API server fails.
const REQUEST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Poll interval of a PVC that pods wait for: an eighth of the waiting time, within these limits.
/// 100 PVCs that are never bound cost ten requests per second, a fifth of the client's rate limit.
const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Namespace and name.
pub(crate) type ClaimKey = (String, String);

/// The PVCs of the node's pods. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Claims(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Option<ApiClient>,
    changed: SlotSender<PodUid, ObjectsChanged>,
    /// Bounded by the PVCs of the node's pods.
    entries: Mutex<BTreeMap<ClaimKey, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    users: BTreeSet<PodUid>,
    /// Users that are requeued when the PVC changes.
    waiting: BTreeSet<PodUid>,
    known: Option<(Instant, Arc<PvcState>)>,
    /// Locked by the request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
    rejections: Rejections,
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

    /// Adds a user of this PVC.
    pub(crate) fn acquire(&self, key: &ClaimKey, uid: &PodUid) {
        let mut entries = self.0.entries.lock();
        let entry = entries.entry(key.clone()).or_default();
        entry.users.insert(uid.clone());
    }

    /// Removes a user of this PVC; its state is dropped with the last one.
    pub(crate) fn release(&self, key: &ClaimKey, uid: &PodUid) {
        let mut entries = self.0.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.users.remove(uid);
        entry.waiting.remove(uid);
        if entry.users.is_empty() {
            entries.remove(key);
        }
    }

    /// Returns the current state, or the last one if the read does not finish within the timeout.
    pub(crate) async fn state(&self, key: &ClaimKey, uid: &PodUid) -> Arc<PvcState> {
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let request = self.0.entries.lock().get_mut(key).map(|entry| {
            // it reads now
            entry.waiting.remove(uid);
            Arc::clone(&entry.request)
        });
        // the pod was unregistered meanwhile
        let Some(request) = request else {
            return Arc::new(unread("the pod was deleted"));
        };
        let Ok(_request_lock) = tokio::time::timeout_at(deadline, request.lock()).await else {
            return self.0.last(key);
        };
        if let Some((at, state)) = self.0.known(key)
            && at.elapsed() < MAX_READ_AGE
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

    /// Returns the last state, without a request.
    pub(crate) fn known(&self, key: &ClaimKey) -> Option<Arc<PvcState>> {
        self.0.known(key).map(|(_, state)| state)
    }

    /// Requeues the pod when the state differs from `seen`.
    pub(crate) fn wait(&self, key: &ClaimKey, uid: &PodUid, seen: &PvcState) {
        let mut entries = self.0.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        if entry.known.as_ref().is_some_and(|(_, now)| **now != *seen) {
            // already changed
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

/// Polls a PVC while pods wait for it.
async fn poll(shared: Weak<Shared>, key: ClaimKey) {
    let started_at = Instant::now();
    loop {
        let interval = started_at.elapsed() / 8;
        tokio::time::sleep(interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // `read` requeues the waiting pods on a change; failures are retried
        let _ = tokio::time::timeout(RESOLVE_TIMEOUT, shared.read(&key)).await;
        let mut entries = shared.entries.lock();
        match entries.get_mut(&key) {
            Some(entry) if entry.waiting.is_empty() => entry.poll = None,
            Some(_) => continue,
            None => {}
        }
        return;
    }
}

impl Shared {
    fn known(&self, key: &ClaimKey) -> Option<(Instant, Arc<PvcState>)> {
        self.entries.lock().get(key)?.known.clone()
    }

    fn last(&self, key: &ClaimKey) -> Arc<PvcState> {
        let known = self.known(key).map(|(_, state)| state);
        known.unwrap_or_else(|| Arc::new(unread("the API server did not respond")))
    }

    /// Returns the delay before the PVC is read again; `None` to report the result.
    fn retry_delay(&self, key: &ClaimKey, error: &ApiError) -> Option<Duration> {
        if error.retry() == Retry::Soon {
            return Some(REQUEST_RETRY_INTERVAL);
        }
        let mut entries = self.entries.lock();
        let rejections = &mut entries.get_mut(key)?.rejections;
        rejections.retry_delay(PodRequest::Object, error)
    }

    /// Reads the PVC and its PersistentVolume and caches both. Returns the error if one was not
    /// read.
    async fn read(&self, key: &ClaimKey) -> (Arc<PvcState>, Option<ApiError>) {
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
        (self.put(key, PvcState { pvc: claim, volume }), error)
    }

    async fn get<K: ApiObject>(&self, at: ObjectKey<'_>) -> (Lookup<K>, Option<ApiError>) {
        let Some(client) = &self.client else {
            return (Lookup::Missing, None);
        };
        match client.get::<K>(at).await {
            Ok(mut object) => {
                // managed fields are large and not needed
                object.meta_mut().managed_fields = None;
                (Lookup::Found(Arc::new(object)), None)
            }
            Err(error) if error.kind == ApiErrorKind::NotFound => (Lookup::Missing, None),
            Err(error) => (Lookup::Unread(error.message.clone()), Some(error)),
        }
    }

    /// Caches a state, requeues the waiting pods if it is new, and returns the current one: an
    /// unread object keeps its last state, and an equal one its allocation.
    fn put(&self, key: &ClaimKey, new: PvcState) -> Arc<PvcState> {
        let mut entries = self.entries.lock();
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
            entry.rejections.clear();
        }
        entry.known = Some((Instant::now(), Arc::clone(&state)));
        state
    }
}

fn unread(error: &str) -> PvcState {
    PvcState {
        pvc: Lookup::Unread(error.to_owned()),
        volume: Lookup::Missing,
    }
}

/// Returns whether both objects were read. Their contents may still be invalid.
fn is_ready(state: &PvcState) -> bool {
    matches!(
        (&state.pvc, &state.volume),
        (Lookup::Found(_), Lookup::Found(_))
    )
}

fn is_unread(state: &PvcState) -> bool {
    matches!(state.pvc, Lookup::Unread(_)) || matches!(state.volume, Lookup::Unread(_))
}
