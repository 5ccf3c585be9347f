//! The state machines of all pods, and the queue of their requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_actors::ApiPodUpdate;
use windlass_pod_status::mirror::{Cluster, is_mirror, mirrored};
use windlass_pod_status::status_sync::{
    FailureKind, Input, LocalStatus, Next, Priority, Request, RequestFailure, RequestResult, Role,
    StatusConflict, StatusSync,
};
use windlass_types::{Phase, PodExt, PodFullName, PodUid, Timestamp};

use crate::status_store::{PodStatusEntry, StatusChange};

/// Maximum number of requests in flight. At 10 ms per request this is 1600 per second, far above
/// the client rate limit; at 5 s it is 3 per second, or 35 s for 110 pods.
const MAX_IN_FLIGHT: usize = 16;

/// Owner of a state machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A pod of the API server.
    Pod(PodUid),
    /// All static pods with one full name, and their mirror pod.
    Mirror(PodFullName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(uid) => uid.fmt(f),
            Self::Mirror(name) => name.fmt(f),
        }
    }
}

#[derive(Debug)]
struct PodMachine {
    sync: StatusSync,
    queued: Option<(Priority, u64)>,
    wake: Option<Timestamp>,
    refused: Option<StatusConflict>,
}

/// All state machines, and the queue of due requests.
#[derive(Debug, Default)]
pub(super) struct PodMachines {
    machines: BTreeMap<Key, PodMachine>,
    statics: BTreeMap<PodFullName, BTreeMap<PodUid, LocalStatus>>,
    /// Names of static pods by UID.
    static_names: BTreeMap<PodUid, PodFullName>,
    /// Names of mirror pods by API UID.
    mirror_names: BTreeMap<PodUid, PodFullName>,
    cluster: Cluster,
    /// Ordered by priority, then by arrival.
    queue: BTreeSet<(Priority, u64, Key)>,
    next_sequence: u64,
    in_flight: usize,
    /// Pods whose object has no terminal phase.
    unfinished: BTreeSet<PodUid>,
    /// The last request found the API server unreachable.
    unreachable: bool,
    /// Time of the last input.
    last_input: Timestamp,
}

impl PodMachines {
    /// Records the time of an input. If the clock was set back, all waits are decided again: their
    /// ends may be far ahead now, and a timer is armed for the next one only.
    pub(super) fn observe_clock(&mut self, now: Timestamp) {
        if now < std::mem::replace(&mut self.last_input, now) {
            for key in self.keys(|machine| machine.wake.is_some()) {
                self.handle(key, Input::Tick, now);
            }
        }
    }

    /// Handles changes of the pod status store.
    pub(super) fn store_changed(&mut self, change: StatusChange, now: Timestamp) {
        for entry in change.changed {
            self.entry(entry, now);
        }
        for uid in change.removed {
            match self.static_names.remove(&uid) {
                Some(name) => {
                    if let Some(pods) = self.statics.get_mut(&name) {
                        pods.remove(&uid);
                    }
                    self.static_changed(name, now);
                }
                None => self.handle(Key::Pod(uid), Input::LocalStatus(None), now),
            }
        }
    }

    fn entry(&mut self, entry: PodStatusEntry, now: Timestamp) {
        let uid = entry.pod.uid();
        let proposal = LocalStatus {
            pod: entry.pod,
            status: entry.status,
            worker: entry.worker_state,
            observed: entry.observed,
            released: entry.released,
        };
        if !proposal.pod.is_static() {
            return self.handle(Key::Pod(uid), Input::LocalStatus(Some(proposal)), now);
        }
        let name = proposal.pod.full_name();
        self.static_names.insert(uid.clone(), name.clone());
        self.statics
            .entry(name.clone())
            .or_default()
            .insert(uid, proposal);
        self.static_changed(name, now);
    }

    fn static_changed(&mut self, name: PodFullName, now: Timestamp) {
        let pods = self.statics.get(&name);
        let shown = pods.and_then(|pods| mirrored(pods.values())).cloned();
        if shown.is_none() {
            self.statics.remove(&name);
        }
        self.handle(Key::Mirror(name), Input::LocalStatus(shown), now);
    }

    /// Handles a change of an API object.
    pub(super) fn api_changed(&mut self, uid: PodUid, seen: ApiPodUpdate, now: Timestamp) {
        match seen {
            ApiPodUpdate::Applied(pod) if is_mirror(&pod) => {
                let name = pod.full_name();
                self.mirror_names.insert(uid, name.clone());
                self.handle(Key::Mirror(name), Input::ApiObject(pod), now);
            }
            ApiPodUpdate::Applied(pod) => self.handle(Key::Pod(uid), Input::ApiObject(pod), now),
            ApiPodUpdate::Deleted => {
                if let Some(name) = self.mirror_names.remove(&uid) {
                    return self.handle(Key::Mirror(name), Input::ApiObjectDeleted(uid), now);
                }
                // a mirror pod may be deleted before the response to its creation
                for key in self.mirrors() {
                    self.handle(key, Input::ApiObjectDeleted(uid.clone()), now);
                }
                self.handle(Key::Pod(uid.clone()), Input::ApiObjectDeleted(uid), now);
            }
        }
    }

    /// Handles a change of the state that mirror pods depend on.
    pub(super) fn cluster_changed(&mut self, change: impl FnOnce(&mut Cluster), now: Timestamp) {
        change(&mut self.cluster);
        for key in self.mirrors() {
            self.handle(key, Input::Cluster(self.cluster.clone()), now);
        }
    }

    /// Handles the result of a request.
    pub(super) fn completed(
        &mut self,
        key: Key,
        result: Result<RequestResult, RequestFailure>,
        now: Timestamp,
    ) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let unreachable =
            matches!(&result, Err(failure) if failure.kind == FailureKind::Unreachable);
        self.handle(key.clone(), Input::RequestCompleted(result), now);
        self.note_mirror(key);
        if std::mem::replace(&mut self.unreachable, unreachable) && !unreachable {
            for key in self.keys(|machine| machine.wake.is_some()) {
                self.handle(key, Input::Reachable, now);
            }
        }
    }

    /// Records the UID of a created mirror pod, unless it was deleted since.
    fn note_mirror(&mut self, key: Key) {
        let object = self.machines.get(&key).and_then(|m| m.sync.object());
        if let (Key::Mirror(name), Some(mirror)) = (&key, object) {
            self.mirror_names.insert(mirror.uid(), name.clone());
        }
    }

    /// Handles the timer.
    pub(super) fn tick(&mut self, now: Timestamp) {
        for key in self.keys(|machine| machine.wake.is_some_and(|at| at <= now)) {
            self.handle(key, Input::Tick, now);
        }
    }

    /// Returns the time of the next [`Self::tick`].
    pub(super) fn next_wake_up(&self) -> Option<Timestamp> {
        self.machines
            .values()
            .filter_map(|machine| machine.wake)
            .min()
    }

    /// Returns the next request, below the limit of requests in flight.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<(Key, Request)> {
        while self.in_flight < MAX_IN_FLIGHT {
            let (_, _, key) = self.queue.pop_first()?;
            let Some(machine) = self.machines.get_mut(&key) else {
                continue;
            };
            machine.queued = None;
            if let Some(request) = machine.sync.start(now) {
                self.in_flight += 1;
                return Some((key, request));
            }
        }
        None
    }

    /// Returns the pod of a key.
    pub(super) fn pod(&self, key: &Key) -> Option<PodUid> {
        match key {
            Key::Pod(uid) => Some(uid.clone()),
            Key::Mirror(name) => {
                let shown = mirrored(self.statics.get(name)?.values())?;
                Some(shown.pod.uid())
            }
        }
    }

    /// Returns the pods whose object in the API has no terminal phase.
    pub(super) fn unfinished(&self) -> &BTreeSet<PodUid> {
        &self.unfinished
    }

    /// Returns the number of mirror pods in the API.
    pub(super) fn mirror_count(&self) -> usize {
        let there = |(key, machine): &(&Key, &PodMachine)| {
            matches!(key, Key::Mirror(_)) && machine.sync.object().is_some()
        };
        self.machines.iter().filter(there).count()
    }

    fn keys(&self, chosen: impl Fn(&PodMachine) -> bool) -> Vec<Key> {
        let chosen = self.machines.iter().filter(|(_, machine)| chosen(machine));
        chosen.map(|(key, _)| key.clone()).collect()
    }

    fn mirrors(&self) -> Vec<Key> {
        let keys = self.machines.keys();
        keys.filter(|key| matches!(key, Key::Mirror(_)))
            .cloned()
            .collect()
    }

    fn handle(&mut self, key: Key, input: Input, now: Timestamp) {
        let begins = matches!(&input, Input::LocalStatus(Some(_)) | Input::ApiObject(_));
        if !self.machines.contains_key(&key) {
            if !begins {
                return;
            }
            self.machines
                .insert(key.clone(), self.new_machine(&key, now));
        }
        let Some(machine) = self.machines.get_mut(&key) else {
            return;
        };
        let next = machine.sync.handle(input, now);
        let priority = match next {
            Next::Send(priority) => Some(priority),
            Next::Idle | Next::Wait(_) => None,
        };
        machine.wake = match next {
            Next::Wait(at) => Some(at),
            Next::Idle | Next::Send(_) => None,
        };
        // a queued request keeps its position unless its priority changes
        if machine.queued.map(|(priority, _)| priority) != priority {
            if let Some((priority, sequence)) = machine.queued.take() {
                self.queue.remove(&(priority, sequence, key.clone()));
            }
            if let Some(priority) = priority {
                self.next_sequence += 1;
                machine.queued = Some((priority, self.next_sequence));
                self.queue
                    .insert((priority, self.next_sequence, key.clone()));
            }
        }
        if machine.sync.status_conflict() != machine.refused.as_ref() {
            machine.refused = machine.sync.status_conflict().cloned();
            if let Some(refused) = &machine.refused {
                tracing::warn!(pod = %key, %refused, "status update rejected");
            }
        }
        if let Key::Pod(uid) = &key {
            let object = machine.sync.object().map(|object| object.status.as_ref());
            let is_finished = object.is_none_or(|it| it.is_some_and(Phase::is_terminal_in));
            match is_finished {
                true => self.unfinished.remove(uid),
                false => self.unfinished.insert(uid.clone()),
            };
        }
        if machine.sync.is_empty() {
            self.machines.remove(&key);
        }
    }

    fn new_machine(&self, key: &Key, now: Timestamp) -> PodMachine {
        let role = match key {
            Key::Pod(_) => Role::Pod,
            Key::Mirror(_) => Role::Mirror,
        };
        let mut sync = StatusSync::new(role, key.to_string());
        sync.handle(Input::Cluster(self.cluster.clone()), now);
        PodMachine {
            sync,
            queued: None,
            wake: None,
            refused: None,
        }
    }
}
