//! The board: one entry for each pod, latest wins, readers are told which entries changed.
//!
//! Invariant: an entry exists from the moment a worker takes the pod until the worker forgets
//! it. Readers hold no lock while they work; a slow reader only misses intermediate states. An entry
//! that is published again without a change wakes no reader, and a change costs a reader time for
//! the pods that changed, not for all.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use windlass_types::corev1::PodStatus;
use windlass_types::view::{Blocker, PodEvent, StartTimings, PodWorkerState};
use windlass_types::{PodExt, PodUid, SharedPod};

/// Everything a user can be told about one pod.
#[derive(Clone, Debug)]
pub struct PodStatusEntry {
    /// The pod as asked.
    pub pod: SharedPod,
    /// Its status in the API's form.
    pub status: Arc<PodStatus>,
    /// How far its worker is.
    pub worker_state: PodWorkerState,
    /// The runtime was asked about the pod. Before that the status says nothing of what runs and
    /// is not to be reported.
    pub looked: bool,
    /// The worker has finished: volumes and directories of the pod are gone too.
    pub released: bool,
    /// What keeps it from what was asked.
    pub blocker: Option<Blocker>,
    /// What happened, oldest first.
    pub events: Vec<PodEvent>,
    /// When its start passed each phase.
    pub timings: StartTimings,
    /// What is not as it should be and keeps it from nothing: volumes that show what they did before.
    pub issues: Vec<String>,
    /// Fields of its spec that this version does not act on.
    pub unsupported_fields: Vec<String>,
}

impl PodStatusEntry {
    /// A pod that its worker has only just taken: it syncs, and nothing is known of it.
    pub fn new(pod: SharedPod) -> Self {
        Self {
            pod,
            status: Arc::default(),
            worker_state: PodWorkerState::SyncPod,
            looked: false,
            released: false,
            blocker: None,
            events: Vec::new(),
            timings: StartTimings::default(),
            issues: Vec::new(),
            unsupported_fields: Vec::new(),
        }
    }

    /// True if nothing differs. The shared parts are rarely compared by value.
    fn is_same(&self, other: &Self) -> bool {
        let Self {
            pod,
            status,
            worker_state,
            looked,
            released,
            blocker,
            events,
            timings,
            issues,
            unsupported_fields,
        } = other;
        (self.worker_state, self.looked, self.released) == (*worker_state, *looked, *released)
            && self.blocker == *blocker
            && self.events == *events
            && self.timings == *timings
            && self.issues == *issues
            && self.unsupported_fields == *unsupported_fields
            && (Arc::ptr_eq(&self.pod, pod) || self.pod == *pod)
            && (Arc::ptr_eq(&self.status, status) || self.status == *status)
    }
}

/// Of pods with one name the one that somebody means who says nothing but that: who is to run
/// before who ends, who is still there before who has finished, and the youngest of equals.
pub fn current_entry(entries: &[PodStatusEntry]) -> Option<&PodStatusEntry> {
    entries.iter().max_by_key(|entry| {
        let runs = entry.worker_state == PodWorkerState::SyncPod;
        let created = entry.pod.metadata.creation_timestamp.as_ref();
        (runs, !entry.released, created)
    })
}

/// What changed since a subscription last looked.
#[derive(Clone, Debug, Default)]
pub struct StatusChange {
    /// New or changed entries.
    pub changed: Vec<PodStatusEntry>,
    /// Pods that left the board.
    pub removed: Vec<PodUid>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, PodStatusEntry>,
    /// Counts changes.
    version: u64,
    /// For each reader, the pods that changed since it last read.
    unread: BTreeMap<u64, BTreeSet<PodUid>>,
    next_reader: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

/// The cloneable handle to the board.
#[derive(Clone, Debug)]
pub struct PodStatusStore(Arc<Shared>);

impl Default for PodStatusStore {
    fn default() -> Self {
        Self::new()
    }
}

impl PodStatusStore {
    /// An empty board.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            version: watch::Sender::new(0),
        }))
    }

    /// Puts an entry on the board or replaces it; its events stay if `view.events` is empty.
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

    /// Changes one entry in place; nothing happens if the pod is not on the board.
    pub fn update(&self, uid: &PodUid, change: impl FnOnce(&mut PodStatusEntry)) {
        self.change(uid, |entries| {
            let entry = entries.get_mut(uid);
            entry.map(change).is_some()
        });
    }

    /// Takes a pod off the board.
    pub fn remove(&self, uid: &PodUid) {
        self.change(uid, |entries| entries.remove(uid).is_some());
    }

    /// All entries, ordered by namespace and name.
    pub fn snapshot(&self) -> Vec<PodStatusEntry> {
        let mut all: Vec<_> = self.with(|state| state.entries.values().cloned().collect());
        all.sort_by_key(|e: &PodStatusEntry| e.pod.full_name());
        all
    }

    /// The entry of one pod.
    pub fn get(&self, uid: &PodUid) -> Option<PodStatusEntry> {
        self.with(|state| state.entries.get(uid).cloned())
    }

    /// What happened to one pod lately, oldest first.
    pub fn events(&self, uid: &PodUid) -> Vec<PodEvent> {
        let events = self.with(|state| state.entries.get(uid).map(|e| e.events.clone()));
        events.unwrap_or_default()
    }

    /// The entries with this namespace and name: two while one replaces the other, of which
    /// [`present`] is the one that counts.
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

    /// Changes whenever the board does; for who needs to look at one entry only.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// A subscription whose first change is the whole board.
    pub fn subscribe(&self) -> StatusSubscription {
        let id = self.with(|state| {
            let id = state.next_reader;
            state.next_reader += 1;
            let all = state.entries.keys().cloned().collect();
            state.unread.insert(id, all);
            id
        });
        StatusSubscription {
            board: self.clone(),
            version: self.0.version.subscribe(),
            id,
            is_first: true,
            known: BTreeSet::new(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
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

/// One reader's position on the board.
#[derive(Debug)]
pub struct StatusSubscription {
    board: PodStatusStore,
    version: watch::Receiver<u64>,
    id: u64,
    is_first: bool,
    /// Pods that the reader was told of.
    known: BTreeSet<PodUid>,
}

impl StatusSubscription {
    /// Waits for something new and returns all of it at once; the first call returns at once
    /// with the whole board. `None` when the board is gone.
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
        self.board.with(|state| {
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
        self.board.with(|state| state.unread.remove(&self.id));
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
            looked: true,
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
    fn of_pods_with_one_name_the_one_that_runs_counts_and_then_the_youngest() {
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
    async fn a_slow_reader_sees_the_latest_state_and_every_removal() {
        let board = PodStatusStore::new();
        board.publish(view("a", PodWorkerState::SyncPod));
        let mut reader = board.subscribe();
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[a=Sync] -[]"
        );
        board.publish(view("b", PodWorkerState::SyncPod));
        board.publish(view("b", PodWorkerState::TerminatingPod));
        board.remove(&"a".into());
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[b=Terminating] -[a]"
        );
    }

    #[tokio::test]
    async fn reader_is_not_woken_by_entry_without_change() {
        let board = PodStatusStore::new();
        board.publish(view("a", PodWorkerState::SyncPod));
        let mut reader = board.subscribe();
        let changes = board.changes();
        reader.next().await.expect("board");
        board.publish(view("a", PodWorkerState::SyncPod));
        assert!(!changes.has_changed().expect("board"));
        board.publish(view("b", PodWorkerState::SyncPod));
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[b=Sync] -[]"
        );
    }

    #[tokio::test]
    async fn dropped_reader_leaves_nothing_on_the_board() {
        let board = PodStatusStore::new();
        let (first, second) = (board.subscribe(), board.subscribe());
        drop(first);
        board.publish(view("a", PodWorkerState::SyncPod));
        assert_eq!(board.with(|state| state.unread.len()), 1);
        drop(second);
        assert_eq!(board.with(|state| state.unread.len()), 0);
    }

    #[tokio::test]
    async fn a_pod_that_came_and_went_between_two_looks_is_not_mentioned() {
        let board = PodStatusStore::new();
        let mut reader = board.subscribe();
        assert_eq!(line(&reader.next().await.expect("board")), "+[] -[]");
        board.publish(view("x", PodWorkerState::SyncPod));
        board.remove(&"x".into());
        board.publish(view("y", PodWorkerState::SyncPod));
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[y=Sync] -[]"
        );
    }
}
