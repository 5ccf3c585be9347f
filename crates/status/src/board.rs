//! The board: one entry for each pod, latest wins, readers are told which entries changed.
//!
//! Invariant: an entry exists from the moment a worker takes the pod until the worker forgets
//! it. Readers hold no lock while they work; a slow reader only misses intermediate states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use windlass_types::corev1::PodStatus;
use windlass_types::view::{Blocker, PodEvent, StartTimings, WorkerPhase};
use windlass_types::{PodExt, PodUid, SharedPod};

/// Everything a user can be told about one pod.
#[derive(Clone, Debug)]
pub struct PodEntryView {
    /// The pod as asked.
    pub pod: SharedPod,
    /// Its status in the API's form.
    pub status: Arc<PodStatus>,
    /// How far its worker is.
    pub worker_phase: WorkerPhase,
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
    pub notes: Vec<String>,
    /// Fields of its spec that this version does not act on.
    pub warnings: Vec<String>,
}

impl PodEntryView {
    /// A pod that its worker has only just taken: it syncs, and nothing is known of it.
    pub fn new(pod: SharedPod) -> Self {
        Self {
            pod,
            status: Arc::default(),
            worker_phase: WorkerPhase::Syncing,
            looked: false,
            released: false,
            blocker: None,
            events: Vec::new(),
            timings: StartTimings::default(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// Of pods with one name the one that somebody means who says nothing but that: who is to run
/// before who ends, who is still there before who has finished, and the youngest of equals.
pub fn present(entries: &[PodEntryView]) -> Option<&PodEntryView> {
    entries.iter().max_by_key(|entry| {
        let runs = entry.worker_phase == WorkerPhase::Syncing;
        let created = entry.pod.metadata.creation_timestamp.as_ref();
        (runs, !entry.released, created)
    })
}

/// What changed since a subscription last looked.
#[derive(Clone, Debug, Default)]
pub struct BoardChange {
    /// New or changed entries.
    pub changed: Vec<PodEntryView>,
    /// Pods that left the board.
    pub removed: Vec<PodUid>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, (u64, PodEntryView)>,
    /// Counts changes; each entry carries the version of its last one.
    version: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

/// The cloneable handle to the board.
#[derive(Clone, Debug)]
pub struct PodBoard(Arc<Shared>);

impl Default for PodBoard {
    fn default() -> Self {
        Self::new()
    }
}

impl PodBoard {
    /// An empty board.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            version: watch::Sender::new(0),
        }))
    }

    /// Puts an entry on the board or replaces it; its events stay if `view.events` is empty.
    pub fn publish(&self, mut view: PodEntryView) {
        let uid = view.pod.uid();
        self.change(|state| {
            if let Some((_, old)) = state.entries.get_mut(&uid)
                && view.events.is_empty()
            {
                view.events = std::mem::take(&mut old.events);
            }
            state.entries.insert(uid, (state.version, view));
            true
        });
    }

    /// Changes one entry in place; nothing happens if the pod is not on the board.
    pub fn update(&self, uid: &PodUid, change: impl FnOnce(&mut PodEntryView)) {
        self.change(|state| {
            let version = state.version;
            match state.entries.get_mut(uid) {
                Some((at, entry)) => {
                    change(entry);
                    *at = version;
                    true
                }
                None => false,
            }
        });
    }

    /// Takes a pod off the board.
    pub fn remove(&self, uid: &PodUid) {
        self.change(|state| state.entries.remove(uid).is_some());
    }

    /// All entries, ordered by namespace and name.
    pub fn snapshot(&self) -> Vec<PodEntryView> {
        let mut all: Vec<_> =
            self.with(|state| state.entries.values().map(|(_, e)| e.clone()).collect());
        all.sort_by_key(|e: &PodEntryView| e.pod.full_name());
        all
    }

    /// The entry of one pod.
    pub fn get(&self, uid: &PodUid) -> Option<PodEntryView> {
        self.with(|state| state.entries.get(uid).map(|(_, e)| e.clone()))
    }

    /// What happened to one pod lately, oldest first.
    pub fn events(&self, uid: &PodUid) -> Vec<PodEvent> {
        let events = self.with(|state| state.entries.get(uid).map(|(_, e)| e.events.clone()));
        events.unwrap_or_default()
    }

    /// The entries with this namespace and name: two while one replaces the other, of which
    /// [`present`] is the one that counts.
    pub fn find(&self, namespace: &str, name: &str) -> Vec<PodEntryView> {
        self.with(|state| {
            state
                .entries
                .values()
                .filter(|(_, e)| e.pod.namespace() == namespace && e.pod.name() == name)
                .map(|(_, e)| e.clone())
                .collect()
        })
    }

    /// Changes whenever the board does; for who needs to look at one entry only.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// A subscription whose first change is the whole board.
    pub fn subscribe(&self) -> BoardSubscription {
        BoardSubscription {
            board: self.clone(),
            version: self.0.version.subscribe(),
            seen: None,
            known: BTreeSet::new(),
        }
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, f: impl FnOnce(&mut State) -> bool) {
        let version = self.with(|state| {
            state.version += 1;
            f(state).then_some(state.version)
        });
        if let Some(version) = version {
            self.0.version.send_replace(version);
        }
    }
}

/// One reader's position on the board.
#[derive(Debug)]
pub struct BoardSubscription {
    board: PodBoard,
    version: watch::Receiver<u64>,
    seen: Option<u64>,
    known: BTreeSet<PodUid>,
}

impl BoardSubscription {
    /// Waits for something new and returns all of it at once; the first call returns at once
    /// with the whole board. `None` when the board is gone.
    pub async fn next(&mut self) -> Option<BoardChange> {
        loop {
            if self.seen.is_some() {
                self.version.changed().await.ok()?;
            }
            self.version.borrow_and_update();
            let seen = self.seen;
            let (change, now_known, version) = self.board.with(|state| {
                let changed = state
                    .entries
                    .values()
                    .filter(|(at, _)| seen.is_none_or(|seen| *at > seen))
                    .map(|(_, e)| e.clone())
                    .collect();
                let now_known: BTreeSet<_> = state.entries.keys().cloned().collect();
                let removed = self.known.difference(&now_known).cloned().collect();
                (BoardChange { changed, removed }, now_known, state.version)
            });
            let first = self.seen.is_none();
            self.seen = Some(version);
            self.known = now_known;
            if first || !change.changed.is_empty() || !change.removed.is_empty() {
                return Some(change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::Pod;

    use super::*;

    fn view(name: &str, phase: WorkerPhase) -> PodEntryView {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(name.into());
        pod.metadata.name = Some(name.into());
        PodEntryView {
            worker_phase: phase,
            looked: true,
            ..PodEntryView::new(Arc::new(pod))
        }
    }

    fn line(change: &BoardChange) -> String {
        let changed: Vec<_> = change
            .changed
            .iter()
            .map(|e| format!("{}={}", e.pod.name(), e.worker_phase))
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
            PodEntryView { released, ..view }
        };
        let check = |entries: &[PodEntryView], expected: Option<&str>| {
            assert_eq!(present(entries).map(|it| it.pod.name()), expected);
        };
        let ends = of("ends", WorkerPhase::Terminating, false, 2);
        let done = of("done", WorkerPhase::Terminated, true, 3);
        let runs = of("runs", WorkerPhase::Syncing, false, 1);
        let later = of("later", WorkerPhase::Syncing, false, 4);
        check(&[], None);
        check(std::slice::from_ref(&done), Some("done"));
        check(&[ends.clone(), done.clone()], Some("ends"));
        check(&[runs.clone(), ends, done], Some("runs"));
        check(&[later, runs], Some("later"));
    }

    #[tokio::test]
    async fn a_slow_reader_sees_the_latest_state_and_every_removal() {
        let board = PodBoard::new();
        board.publish(view("a", WorkerPhase::Syncing));
        let mut reader = board.subscribe();
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[a=Syncing] -[]"
        );
        board.publish(view("b", WorkerPhase::Syncing));
        board.publish(view("b", WorkerPhase::Terminating));
        board.remove(&"a".into());
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[b=Terminating] -[a]"
        );
    }

    #[tokio::test]
    async fn a_pod_that_came_and_went_between_two_looks_is_not_mentioned() {
        let board = PodBoard::new();
        let mut reader = board.subscribe();
        assert_eq!(line(&reader.next().await.expect("board")), "+[] -[]");
        board.publish(view("x", WorkerPhase::Syncing));
        board.remove(&"x".into());
        board.publish(view("y", WorkerPhase::Syncing));
        assert_eq!(
            line(&reader.next().await.expect("board")),
            "+[y=Syncing] -[]"
        );
    }
}
