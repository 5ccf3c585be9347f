//! The pod status store: the latest status of each pod, with change notifications.
//!
//! Invariant: an entry exists as long as the worker of the pod. A slow reader misses only
//! intermediate states. An unchanged entry wakes no reader, and a reader receives only changed
//! pods.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use windlass_types::corev1::PodStatus;
use windlass_types::view::{Blocker, PodEvent, PodWorkerState, StartTimings};
use windlass_types::{AllocatedResources, PodExt, PodUid, SharedPod, Timestamp};

/// User-visible state of one pod.
#[derive(Clone, Debug)]
pub struct PodStatusEntry {
    /// The desired pod.
    pub pod: SharedPod,
    /// Its API status.
    pub status: Arc<PodStatus>,
    /// A worker published it. Other entries are of pods that wait for one.
    pub has_worker: bool,
    /// State of its worker.
    pub worker_state: PodWorkerState,
    /// The pod was inspected. Before that the status is not reported.
    pub observed: bool,
    /// The worker has finished, including the cleanup of volumes and directories.
    pub released: bool,
    /// What blocks it.
    pub blocker: Option<Blocker>,
    /// Its events, oldest first.
    pub events: Vec<PodEvent>,
    /// When its start reached each phase.
    pub timings: StartTimings,
    /// Problems that block nothing, such as volumes with an older payload.
    pub issues: Vec<String>,
    /// Spec fields that this version does not support.
    pub unsupported_fields: Vec<String>,
}

impl PodStatusEntry {
    /// Creates the entry of a new pod, without observations.
    pub fn new(pod: SharedPod) -> Self {
        Self {
            pod,
            status: Arc::default(),
            has_worker: false,
            worker_state: PodWorkerState::SyncPod,
            observed: false,
            released: false,
            blocker: None,
            events: Vec::new(),
            timings: StartTimings::default(),
            issues: Vec::new(),
            unsupported_fields: Vec::new(),
        }
    }

    /// True if a worker has the pod and has not terminated it: its containers may run.
    pub fn is_active(&self) -> bool {
        self.has_worker && self.worker_state != PodWorkerState::TerminatedPod
    }

    /// True if the status is that of the checkpoint: the worker has not observed the pod since the
    /// agent started.
    pub fn has_stale_status(&self) -> bool {
        self.has_worker && !self.observed
    }

    /// True if nothing differs; shared parts are first compared by pointer.
    fn is_same(&self, other: &Self) -> bool {
        let Self {
            pod,
            status,
            has_worker,
            worker_state,
            observed,
            released,
            blocker,
            events,
            timings,
            issues,
            unsupported_fields,
        } = other;
        (self.worker_state, self.observed, self.released) == (*worker_state, *observed, *released)
            && self.has_worker == *has_worker
            && self.blocker == *blocker
            && self.events == *events
            && self.timings == *timings
            && self.issues == *issues
            && self.unsupported_fields == *unsupported_fields
            && (Arc::ptr_eq(&self.pod, pod) || self.pod == *pod)
            && (Arc::ptr_eq(&self.status, status) || self.status == *status)
    }
}

/// Returns the current one of several pods with the same full name: syncing before terminating,
/// before finished; then the youngest.
pub fn current_entry(entries: &[PodStatusEntry]) -> Option<&PodStatusEntry> {
    entries.iter().max_by_key(|entry| {
        let runs = entry.worker_state == PodWorkerState::SyncPod;
        let created = entry.pod.metadata.creation_timestamp.as_ref();
        (runs, !entry.released, created)
    })
}

/// Sizes that a pod requests and the node has not allocated.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedSizes {
    /// Resources of the spec.
    pub resources: AllocatedResources,
    /// Time of the next periodic retry; `None` without one.
    pub next_retry: Option<Timestamp>,
}

/// Changes since the last read of a subscription.
#[derive(Clone, Debug, Default)]
pub struct StatusChange {
    /// New or changed entries.
    pub changed: Vec<PodStatusEntry>,
    /// Removed pods.
    pub removed: Vec<PodUid>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, PodStatusEntry>,
    requested: BTreeMap<PodUid, RequestedSizes>,
    /// Number of changes.
    version: u64,
    /// Changed pods since the last read, by reader.
    unread: BTreeMap<u64, BTreeSet<PodUid>>,
    next_reader: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    version: watch::Sender<u64>,
    /// Pods of the API server that do not have a terminal phase there.
    unfinished: watch::Sender<BTreeSet<PodUid>>,
}

/// Cloneable handle to the pod status store.
#[derive(Clone, Debug)]
pub struct PodStatusStore(Arc<Shared>);

impl Default for PodStatusStore {
    fn default() -> Self {
        Self::new()
    }
}

impl PodStatusStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            version: watch::Sender::new(0),
            unfinished: watch::Sender::default(),
        }))
    }

    /// Sets the pods that do not have a terminal phase at the API server. Only the StatusManager
    /// calls it; without an API server the set stays empty.
    pub fn set_unfinished(&self, pods: &BTreeSet<PodUid>) {
        self.0.unfinished.send_if_modified(|known| {
            let changed = known != pods;
            if changed {
                known.clone_from(pods);
            }
            changed
        });
    }

    /// Waits until each of the pods has a terminal phase at the API server, or has no object there.
    pub async fn reported_as_finished(&self, pods: &[PodUid]) {
        let mut unfinished = self.0.unfinished.subscribe();
        let all = |known: &BTreeSet<PodUid>| !pods.iter().any(|uid| known.contains(uid));
        // the sender lives as long as this store
        let _ = unfinished.wait_for(all).await;
    }

    /// Adds or replaces an entry; keeps the events if `view.events` is empty.
    pub fn publish(&self, mut view: PodStatusEntry) {
        let uid = view.pod.uid();
        self.change(&uid, |entries| {
            if let Some(old) = entries.get_mut(&uid) {
                if view.events.is_empty() {
                    view.events.clone_from(&old.events);
                }
                if old.is_same(&view) {
                    return false;
                }
            }
            entries.insert(uid.clone(), view);
            true
        });
    }

    /// Changes an entry in place, if it exists.
    pub fn update(&self, uid: &PodUid, change: impl FnOnce(&mut PodStatusEntry)) {
        self.change(uid, |entries| {
            let entry = entries.get_mut(uid);
            entry.map(change).is_some()
        });
    }

    /// Removes a pod.
    pub fn remove(&self, uid: &PodUid) {
        self.change(uid, |entries| entries.remove(uid).is_some());
    }

    /// Replaces the sizes that are not allocated. The status of their pods says so too.
    pub fn publish_requested(&self, requested: BTreeMap<PodUid, RequestedSizes>) {
        self.with(|state| state.requested = requested);
    }

    /// Returns the sizes that a pod requests and the node has not allocated.
    pub fn requested(&self, uid: &PodUid) -> Option<RequestedSizes> {
        self.with(|state| state.requested.get(uid).cloned())
    }

    /// Returns all entries, ordered by namespace and name.
    pub fn snapshot(&self) -> Vec<PodStatusEntry> {
        let mut all: Vec<_> = self.with(|state| state.entries.values().cloned().collect());
        all.sort_by_key(|e: &PodStatusEntry| e.pod.full_name());
        all
    }

    /// Returns the entry of one pod.
    pub fn get(&self, uid: &PodUid) -> Option<PodStatusEntry> {
        self.with(|state| state.entries.get(uid).cloned())
    }

    /// Returns the events of one pod, oldest first.
    pub fn events(&self, uid: &PodUid) -> Vec<PodEvent> {
        let events = self.with(|state| state.entries.get(uid).map(|e| e.events.clone()));
        events.unwrap_or_default()
    }

    /// Returns the entries with this namespace and name: two while one replaces the other, see
    /// [`current_entry`].
    pub fn find(&self, namespace: &str, name: &str) -> Vec<PodStatusEntry> {
        self.with(|state| {
            state
                .entries
                .values()
                .filter(|e| e.pod.namespace() == namespace && e.pod.name() == name)
                .cloned()
                .collect()
        })
    }

    /// Returns a version that changes with the store, for readers of single entries.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// Creates a subscription whose first change is the whole store.
    pub fn subscribe(&self) -> StatusSubscription {
        let id = self.with(|state| {
            let id = state.next_reader;
            state.next_reader += 1;
            let all = state.entries.keys().cloned().collect();
            state.unread.insert(id, all);
            id
        });
        StatusSubscription {
            store: self.clone(),
            version: self.0.version.subscribe(),
            id,
            is_first: true,
            known: BTreeSet::new(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.state.lock())
    }

    /// Applies `f`, which returns true if the entry of the pod changed.
    fn change(&self, uid: &PodUid, f: impl FnOnce(&mut BTreeMap<PodUid, PodStatusEntry>) -> bool) {
        let version = self.with(|state| {
            if !f(&mut state.entries) {
                return None;
            }
            for unread in state.unread.values_mut() {
                unread.insert(uid.clone());
            }
            state.version += 1;
            Some(state.version)
        });
        if let Some(version) = version {
            self.0.version.send_replace(version);
        }
    }
}

/// Read position of one reader.
#[derive(Debug)]
pub struct StatusSubscription {
    store: PodStatusStore,
    version: watch::Receiver<u64>,
    id: u64,
    is_first: bool,
    /// Pods that the reader knows.
    known: BTreeSet<PodUid>,
}

impl StatusSubscription {
    /// Waits for changes and returns all of them; the first call returns the whole store
    /// immediately. `None` when the store was dropped.
    pub async fn next(&mut self) -> Option<StatusChange> {
        loop {
            let is_first = mem::take(&mut self.is_first);
            if !is_first {
                self.version.changed().await.ok()?;
            }
            self.version.borrow_and_update();
            let change = self.take_unread();
            if is_first || !change.changed.is_empty() || !change.removed.is_empty() {
                return Some(change);
            }
        }
    }

    fn take_unread(&mut self) -> StatusChange {
        let known = &mut self.known;
        self.store.with(|state| {
            let unread = state.unread.get_mut(&self.id).map(mem::take);
            let mut change = StatusChange::default();
            for uid in unread.unwrap_or_default() {
                if let Some(entry) = state.entries.get(&uid) {
                    change.changed.push(entry.clone());
                    known.insert(uid);
                } else if known.remove(&uid) {
                    change.removed.push(uid);
                }
            }
            change
        })
    }
}

impl Drop for StatusSubscription {
    fn drop(&mut self) {
        self.store.with(|state| state.unread.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::Pod;

    use super::*;

    fn view(name: &str, phase: PodWorkerState) -> PodStatusEntry {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(name.into());
        pod.metadata.name = Some(name.into());
        PodStatusEntry {
            worker_state: phase,
            observed: true,
            ..PodStatusEntry::new(Arc::new(pod))
        }
    }

    fn line(change: &StatusChange) -> String {
        let changed: Vec<_> = change
            .changed
            .iter()
            .map(|e| format!("{}={}", e.pod.name(), e.worker_state))
            .collect();
        let removed: Vec<_> = change.removed.iter().map(PodUid::as_str).collect();
        format!("+[{}] -[{}]", changed.join(" "), removed.join(" "))
    }

    #[test]
    fn current_entry_prefers_running_then_youngest() {
        let of = |name: &str, phase, released, second: i64| {
            let mut view = view(name, phase);
            let created = windlass_types::Timestamp::from_second(second).expect("a time");
            let pod = Arc::make_mut(&mut view.pod);
            pod.metadata.creation_timestamp = Some(windlass_types::metav1::Time(created));
            PodStatusEntry { released, ..view }
        };
        let check = |entries: &[PodStatusEntry], expected: Option<&str>| {
            assert_eq!(current_entry(entries).map(|it| it.pod.name()), expected);
        };
        let ends = of("ends", PodWorkerState::TerminatingPod, false, 2);
        let done = of("done", PodWorkerState::TerminatedPod, true, 3);
        let runs = of("runs", PodWorkerState::SyncPod, false, 1);
        let later = of("later", PodWorkerState::SyncPod, false, 4);
        check(&[], None);
        check(std::slice::from_ref(&done), Some("done"));
        check(&[ends.clone(), done.clone()], Some("ends"));
        check(&[runs.clone(), ends, done], Some("runs"));
        check(&[later, runs], Some("later"));
    }

    #[tokio::test]
    async fn slow_reader_gets_latest_state_and_removals() {
        let store = PodStatusStore::new();
        store.publish(view("a", PodWorkerState::SyncPod));
        let mut reader = store.subscribe();
        assert_eq!(line(&reader.next().await.expect("store")), "+[a=Sync] -[]");
        store.publish(view("b", PodWorkerState::SyncPod));
        store.publish(view("b", PodWorkerState::TerminatingPod));
        store.remove(&"a".into());
        assert_eq!(
            line(&reader.next().await.expect("store")),
            "+[b=Terminating] -[a]"
        );
    }

    #[tokio::test]
    async fn reader_is_not_woken_by_entry_without_change() {
        let store = PodStatusStore::new();
        store.publish(view("a", PodWorkerState::SyncPod));
        let mut reader = store.subscribe();
        let changes = store.changes();
        reader.next().await.expect("store");
        store.publish(view("a", PodWorkerState::SyncPod));
        assert!(!changes.has_changed().expect("store"));
        store.publish(view("b", PodWorkerState::SyncPod));
        assert_eq!(line(&reader.next().await.expect("store")), "+[b=Sync] -[]");
    }

    #[tokio::test]
    async fn dropped_reader_leaves_nothing_in_store() {
        let store = PodStatusStore::new();
        let (first, second) = (store.subscribe(), store.subscribe());
        drop(first);
        store.publish(view("a", PodWorkerState::SyncPod));
        assert_eq!(store.with(|state| state.unread.len()), 1);
        drop(second);
        assert_eq!(store.with(|state| state.unread.len()), 0);
    }

    #[tokio::test]
    async fn pod_added_and_removed_between_reads_is_not_reported() {
        let store = PodStatusStore::new();
        let mut reader = store.subscribe();
        assert_eq!(line(&reader.next().await.expect("store")), "+[] -[]");
        store.publish(view("x", PodWorkerState::SyncPod));
        store.remove(&"x".into());
        store.publish(view("y", PodWorkerState::SyncPod));
        assert_eq!(line(&reader.next().await.expect("store")), "+[y=Sync] -[]");
    }
}
