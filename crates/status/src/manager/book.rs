//! Which pod's machine hears what, and whose request goes next.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_actors::ApiPodUpdate;
use windlass_pod_status::mirror::{Cluster, is_mirror, mirrored};
use windlass_pod_status::status_sync::{
    Answer, Failure, FailureKind, Input, Next, Proposal, Refused, Request, Role, StatusSync,
    Urgency,
};
use windlass_types::{PodExt, PodFullName, PodUid, Timestamp};

use crate::status_store::{StatusChange, PodStatusEntry};

/// Requests in flight. At 10 ms for each they are 1600 a second, many times the client's rate;
/// at 5 s they are 3 a second, so that 110 pods are through in 35 s and none waits for another's
/// deadline more than a few times.
const MOST_IN_FLIGHT: usize = 16;

/// What has a machine of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A pod of the API server.
    Pod(PodUid),
    /// All static pods of one name, and their mirror.
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
struct Member {
    sync: StatusSync,
    queued: Option<(Urgency, u64)>,
    wake: Option<Timestamp>,
    refused: Option<Refused>,
}

/// All machines, and the queue of those that have something to send.
#[derive(Debug, Default)]
pub(super) struct Book {
    members: BTreeMap<Key, Member>,
    statics: BTreeMap<PodFullName, BTreeMap<PodUid, Proposal>>,
    /// Names of the static pods on the board, by their own UID.
    static_names: BTreeMap<PodUid, PodFullName>,
    /// Names of the mirrors in the API, by the UID the server gave them.
    mirror_names: BTreeMap<PodUid, PodFullName>,
    cluster: Cluster,
    /// By urgency, then by arrival.
    queue: BTreeSet<(Urgency, u64, Key)>,
    next_turn: u64,
    in_flight: usize,
    /// The last answer was none.
    unreachable: bool,
}

impl Book {
    /// What changed on the board.
    pub(super) fn board(&mut self, change: StatusChange, now: Timestamp) {
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
                None => self.tell(Key::Pod(uid), Input::Local(None), now),
            }
        }
    }

    fn entry(&mut self, entry: PodStatusEntry, now: Timestamp) {
        let uid = entry.pod.uid();
        let proposal = Proposal {
            pod: entry.pod,
            status: entry.status,
            worker: entry.worker_state,
            looked: entry.looked,
            released: entry.released,
        };
        if !proposal.pod.is_static() {
            return self.tell(Key::Pod(uid), Input::Local(Some(proposal)), now);
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
        self.tell(Key::Mirror(name), Input::Local(shown), now);
    }

    /// What the watch says of one object.
    pub(super) fn api(&mut self, uid: PodUid, seen: ApiPodUpdate, now: Timestamp) {
        match seen {
            ApiPodUpdate::Applied(pod) if is_mirror(&pod) => {
                let name = pod.full_name();
                self.mirror_names.insert(uid, name.clone());
                self.tell(Key::Mirror(name), Input::Seen(pod), now);
            }
            ApiPodUpdate::Applied(pod) => self.tell(Key::Pod(uid), Input::Seen(pod), now),
            ApiPodUpdate::Deleted => {
                if let Some(name) = self.mirror_names.remove(&uid) {
                    return self.tell(Key::Mirror(name), Input::Gone(uid), now);
                }
                // a mirror may come and go before its creation is answered
                for key in self.mirrors() {
                    self.tell(key, Input::Gone(uid.clone()), now);
                }
                self.tell(Key::Pod(uid.clone()), Input::Gone(uid), now);
            }
        }
    }

    /// The cluster changed, as far as mirrors are concerned.
    pub(super) fn cluster(&mut self, change: impl FnOnce(&mut Cluster), now: Timestamp) {
        change(&mut self.cluster);
        for key in self.mirrors() {
            self.tell(key, Input::Cluster(self.cluster.clone()), now);
        }
    }

    /// What came of a request.
    pub(super) fn answered(&mut self, key: Key, result: Result<Answer, Failure>, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let unreachable =
            matches!(&result, Err(failure) if failure.kind == FailureKind::Unreachable);
        self.tell(key.clone(), Input::Answered(result), now);
        self.note_mirror(key);
        if std::mem::replace(&mut self.unreachable, unreachable) && !unreachable {
            for key in self.keys(|member| member.wake.is_some()) {
                self.tell(key, Input::Reachable, now);
            }
        }
    }

    /// Remembers the UID of a mirror that was created, unless the watch has called it gone since.
    fn note_mirror(&mut self, key: Key) {
        let object = self.members.get(&key).and_then(|m| m.sync.object());
        if let (Key::Mirror(name), Some(mirror)) = (&key, object) {
            self.mirror_names.insert(mirror.uid(), name.clone());
        }
    }

    /// The timer fired.
    pub(super) fn tick(&mut self, now: Timestamp) {
        let mut chosen = self.keys(|member| member.wake.is_some_and(|at| at <= now));
        if chosen.is_empty() {
            // the clock was set back while the timer ran
            chosen = self.keys(|member| member.wake.is_some());
        }
        for key in chosen {
            self.tell(key, Input::Tick, now);
        }
    }

    /// When to call [`Self::tick`].
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.members.values().filter_map(|member| member.wake).min()
    }

    /// The next request to send, if there is room for one.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<(Key, Request)> {
        while self.in_flight < MOST_IN_FLIGHT {
            let (_, _, key) = self.queue.pop_first()?;
            let Some(member) = self.members.get_mut(&key) else {
                continue;
            };
            member.queued = None;
            if let Some(request) = member.sync.start(now) {
                self.in_flight += 1;
                return Some((key, request));
            }
        }
        None
    }

    /// The pod that a request of this key is about.
    pub(super) fn pod(&self, key: &Key) -> Option<PodUid> {
        match key {
            Key::Pod(uid) => Some(uid.clone()),
            Key::Mirror(name) => {
                let shown = mirrored(self.statics.get(name)?.values())?;
                Some(shown.pod.uid())
            }
        }
    }

    /// Mirror pods that the API server has of this node.
    pub(super) fn mirror_count(&self) -> usize {
        let there = |(key, member): &(&Key, &Member)| {
            matches!(key, Key::Mirror(_)) && member.sync.object().is_some()
        };
        self.members.iter().filter(there).count()
    }

    fn keys(&self, chosen: impl Fn(&Member) -> bool) -> Vec<Key> {
        let chosen = self.members.iter().filter(|(_, member)| chosen(member));
        chosen.map(|(key, _)| key.clone()).collect()
    }

    fn mirrors(&self) -> Vec<Key> {
        let keys = self.members.keys();
        keys.filter(|key| matches!(key, Key::Mirror(_)))
            .cloned()
            .collect()
    }

    fn tell(&mut self, key: Key, input: Input, now: Timestamp) {
        let begins = matches!(&input, Input::Local(Some(_)) | Input::Seen(_));
        if !self.members.contains_key(&key) {
            if !begins {
                return;
            }
            self.members.insert(key.clone(), self.new_member(&key, now));
        }
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let next = member.sync.handle(input, now);
        let urgency = match next {
            Next::Send(urgency) => Some(urgency),
            Next::Idle | Next::Wait(_) => None,
        };
        member.wake = match next {
            Next::Wait(at) => Some(at),
            Next::Idle | Next::Send(_) => None,
        };
        // who is in the queue keeps its place as long as it is as urgent
        if member.queued.map(|(urgency, _)| urgency) != urgency {
            if let Some((urgency, turn)) = member.queued.take() {
                self.queue.remove(&(urgency, turn, key.clone()));
            }
            if let Some(urgency) = urgency {
                self.next_turn += 1;
                member.queued = Some((urgency, self.next_turn));
                self.queue.insert((urgency, self.next_turn, key.clone()));
            }
        }
        if member.sync.refused() != member.refused.as_ref() {
            member.refused = member.sync.refused().cloned();
            if let Some(refused) = &member.refused {
                tracing::warn!(pod = %key, %refused, "status not sent");
            }
        }
        if member.sync.is_empty() {
            self.members.remove(&key);
        }
    }

    fn new_member(&self, key: &Key, now: Timestamp) -> Member {
        let role = match key {
            Key::Pod(_) => Role::Pod,
            Key::Mirror(_) => Role::Mirror,
        };
        let mut sync = StatusSync::new(role, key.to_string());
        sync.handle(Input::Cluster(self.cluster.clone()), now);
        Member {
            sync,
            queued: None,
            wake: None,
            refused: None,
        }
    }
}
