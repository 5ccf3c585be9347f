//! One pod's way to the API server as a state machine.
//!
//! The machine knows what the node says and what the server has, and derives from the two the
//! one request that is due. It is asked for that request when there is room to send it, so what
//! is sent is always the newest. At most one is in flight.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use windlass_types::corev1::PodStatus;
use windlass_types::view::PodWorkerState;
use windlass_types::{PodExt, PodFullName, PodUid, SharedPod, Timestamp, later};

use super::{LocalStatus, StatusConflict, can_be_deleted, is_terminal, merge_status, status_patch, uid_of};
use crate::mirror::{Cluster, MirrorPlan, mirror_plan, mirrors};
use windlass_units::hash::fnv1a_64;

/// Delay after the first failure; it doubles.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Longest delay after a failure that another try may mend.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Delay before a request that was taken, and yet is due again, is repeated: upstream's period
/// of reconciliation. It doubles, so that a server that keeps nothing is not asked for ever.
const INITIAL_REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Longest delay before the same request is repeated, also after the server called it invalid.
const MAX_REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// How long a mirror whose static pod was never on the board is left alone once every source has
/// spoken: the pod's worker shows it within milliseconds, also when it waits for its turn.
const ORPHAN_DELAY: Duration = Duration::from_secs(5);
/// How long an older state of the object than the server's own answer is not believed. Watches
/// lag by less; a server that was set back from a backup is believed after this.
const STALE_WATCH_WINDOW: Duration = Duration::from_secs(30);

/// Whose object the machine looks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A pod of the API server.
    Pod,
    /// The mirror of a static pod, whichever objects have had its name.
    Mirror,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// What the node agent says of the pod; `None` if it has left the board.
    LocalStatus(Option<LocalStatus>),
    /// The server has this object.
    ApiObject(SharedPod),
    /// The object with this UID is gone.
    ApiObjectDeleted(PodUid),
    /// The cluster as far as mirrors are concerned.
    Cluster(Cluster),
    /// What came of the request in flight.
    RequestCompleted(Result<Answer, Failure>),
    /// The server answers again: who waits because it did not need not wait longer.
    Reachable,
    /// Time has passed.
    Tick,
}

/// A successful answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object as it is now, patched or created.
    Object(SharedPod),
    /// It was deleted.
    Deleted,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it means.
    pub kind: FailureKind,
    /// The server asked to wait this long.
    pub retry_after: Option<Duration>,
}

/// What a failure means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no such object.
    NotFound,
    /// It is another object, or one that changes.
    Conflict,
    /// The same request will never be taken.
    Invalid,
    /// The server did not answer.
    Unreachable,
    /// Another try may succeed.
    Other,
}

/// A request to the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Namespace and name of the object.
    pub name: PodFullName,
    /// Verb and body.
    pub call: Call,
    /// Since when something is due.
    pub since: Timestamp,
}

/// Verb and body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Strategic merge patch of the `status` subresource; it names the UID itself.
    Patch(Value),
    /// Delete the object with this UID, grace period 0.
    Delete(PodUid),
    /// Create this mirror pod.
    Create(SharedPod),
}

/// What goes first when not everything can be sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It frees something in the cluster: a pod's object, or what a scheduler holds for a pod
    /// that has ended. At most two of these in the life of a pod, so they starve nobody.
    FreesResources,
    /// It changes what a pod is good for: its phase, its readiness, its being there.
    ChangesReadiness,
    /// All else.
    Informational,
}

/// What the machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// For something to happen.
    Idle,
    /// For this moment, then a [`Input::Tick`].
    Wait(Timestamp),
    /// For room to send.
    Send(Priority),
}

impl Call {
    /// The verb alone.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Patch(_) => "patch",
            Self::Delete(_) => "delete",
            Self::Create(_) => "create",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "there is no such object",
            Self::Conflict => "conflict",
            Self::Invalid => "the API server will never take it",
            Self::Unreachable => "the API server did not answer",
            Self::Other => "the API server refused it for now",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Patch(patch) => write!(f, "patch({patch})"),
            Self::Delete(uid) => write!(f, "delete({uid})"),
            Self::Create(pod) => write!(f, "create({})", pod.full_name()),
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::Wait(at) => write!(f, "wait@{}", at.as_second()),
            Self::Send(priority) => write!(f, "send({priority:?})"),
        }
    }
}

/// A request that was answered, and when it may be repeated.
#[derive(Clone, Debug)]
struct Sent {
    call: Call,
    at: Timestamp,
    repeat_after: Duration,
}

/// The machine; see the module page.
#[derive(Clone, Debug)]
pub struct StatusSync {
    role: Role,
    /// Makes the delays of two pods differ.
    seed: String,
    local: Option<LocalStatus>,
    /// The pod is no longer on the board.
    left: bool,
    /// Dates what the proposal changes; `None` before the first.
    local_at: Option<Timestamp>,
    object: Option<SharedPod>,
    cluster: Cluster,
    due: Option<(Call, Priority)>,
    due_since: Option<Timestamp>,
    /// Since when a mirror seems to be an orphan although its static pod was never seen.
    orphan_since: Option<Timestamp>,
    refused: Option<StatusConflict>,
    in_flight: Option<Call>,
    failures: u32,
    /// The last failure was that the server did not answer.
    unreachable: bool,
    /// The last failure was that the object is not the one that is known.
    conflict: bool,
    /// Nothing is sent before; with the delay, to notice a clock that was set back.
    not_before: Option<(Timestamp, Duration)>,
    last: Option<Sent>,
    /// Version of the newest answer, until the watch has caught up with it.
    floor: Option<(u64, Timestamp)>,
    /// An object the watch called gone: a late answer does not bring it back.
    gone: Option<PodUid>,
    /// A mirror that was deleted from here: a late event does not bring it back.
    deleted: Option<PodUid>,
}

impl StatusSync {
    /// A machine that knows nothing yet. `seed` is the pod's UID or name.
    pub fn new(role: Role, seed: impl Into<String>) -> Self {
        Self {
            role,
            seed: seed.into(),
            local: None,
            left: true,
            local_at: None,
            object: None,
            cluster: Cluster::default(),
            due: None,
            due_since: None,
            orphan_since: None,
            refused: None,
            in_flight: None,
            failures: 0,
            unreachable: false,
            conflict: false,
            not_before: None,
            last: None,
            floor: None,
            gone: None,
            deleted: None,
        }
    }

    /// Takes one input and says what the machine waits for now.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Next {
        match input {
            Input::LocalStatus(local) => {
                if !self.local_news(local, now) {
                    return self.next(now);
                }
            }
            Input::ApiObject(object) => self.seen(object, now),
            Input::ApiObjectDeleted(uid) => self.lost(uid),
            Input::Cluster(cluster) => {
                if self.cluster == cluster {
                    return self.next(now);
                }
                self.cluster = cluster;
            }
            Input::RequestCompleted(result) => self.answered(result, now),
            Input::Reachable => {
                if std::mem::take(&mut self.unreachable) {
                    self.not_before = None;
                }
            }
            Input::Tick => {}
        }
        self.derive(now);
        self.next(now)
    }

    /// The request to send now, if one is due; from here on it is in flight.
    pub fn start(&mut self, now: Timestamp) -> Option<Request> {
        if !matches!(self.next(now), Next::Send(_)) {
            return None;
        }
        let (call, _) = self.due.clone()?;
        let pod = match &call {
            Call::Create(pod) => pod,
            Call::Patch(_) | Call::Delete(_) => self.object.as_ref()?,
        };
        let request = Request {
            name: pod.full_name(),
            call: call.clone(),
            since: self.due_since.unwrap_or(now),
        };
        self.in_flight = Some(call);
        Some(request)
    }

    /// Why what the node says cannot be sent, if it contradicts what the server was told.
    pub fn refused(&self) -> Option<&StatusConflict> {
        self.refused.as_ref()
    }

    /// The object that the server has.
    pub fn object(&self) -> Option<&SharedPod> {
        self.object.as_ref()
    }

    /// Nothing is known, wanted or under way: the machine may be forgotten.
    pub fn is_empty(&self) -> bool {
        self.object.is_none() && self.in_flight.is_none() && (self.local.is_none() || self.left)
    }

    /// False if nothing changed.
    fn local_news(&mut self, local: Option<LocalStatus>, now: Timestamp) -> bool {
        self.left = local.is_none();
        let local = match (self.local.take(), local) {
            // a worker is forgotten when it has released its pod, which is still to be finished
            // in the API
            (Some(known), None)
                if self.role == Role::Pod && known.worker == PodWorkerState::TerminatedPod =>
            {
                let changed = !known.released;
                self.local = Some(LocalStatus {
                    released: true,
                    ..known
                });
                return changed;
            }
            (Some(known), Some(new)) if known.same(&new) => {
                self.local = Some(known);
                return false;
            }
            (None, None) => return false,
            (_, local) => local,
        };
        self.local = local;
        self.local_at = Some(now);
        true
    }

    fn seen(&mut self, object: SharedPod, now: Timestamp) {
        let uid = uid_of(&object);
        if self.role == Role::Mirror && self.deleted.as_ref() == Some(&uid) {
            return;
        }
        if let (Some((floor, until)), Some(version)) = (self.floor, version(&object))
            && version < floor
            && now < until
            && self.object.as_ref().is_some_and(|o| uid_of(o) == uid)
        {
            return;
        }
        self.floor = None;
        if self.gone.as_ref() == Some(&uid) {
            self.gone = None;
        }
        if self.conflict && self.object.as_ref() != Some(&object) {
            self.conflict = false;
            self.not_before = None;
        }
        self.object = Some(object);
    }

    fn lost(&mut self, uid: PodUid) {
        if self.object.as_ref().is_some_and(|o| uid_of(o) == uid) {
            self.object = None;
        }
        self.gone = Some(uid);
    }

    fn answered(&mut self, result: Result<Answer, Failure>, now: Timestamp) {
        let Some(call) = self.in_flight.take() else {
            return;
        };
        match result {
            Ok(answer) => {
                self.failures = 0;
                self.unreachable = false;
                self.conflict = false;
                self.not_before = None;
                self.due_since = None;
                self.taken(call, INITIAL_REPEAT_INTERVAL, now);
                self.accept(answer, now);
            }
            Err(failure) => self.failed(call, &failure, now),
        }
    }

    fn accept(&mut self, answer: Answer, now: Timestamp) {
        match answer {
            Answer::Object(object) if self.gone.as_ref() != Some(&uid_of(&object)) => {
                // an answer may come after the event of a later change
                let newest = self.object.as_ref().is_none_or(|known| {
                    uid_of(known) != uid_of(&object) || version(known) <= version(&object)
                });
                if newest {
                    self.floor = version(&object).map(|v| (v, later(now, STALE_WATCH_WINDOW)));
                    self.object = Some(object);
                }
            }
            Answer::Object(_) => {}
            Answer::Deleted if self.role == Role::Mirror => {
                self.deleted = self.object.take().map(|o| uid_of(&o));
            }
            // the watch says when it is gone: finalizers of others may hold it
            Answer::Deleted => {}
        }
    }

    fn failed(&mut self, call: Call, failure: &Failure, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let creates = matches!(call, Call::Create(_));
        self.unreachable = failure.kind == FailureKind::Unreachable;
        self.conflict = failure.kind == FailureKind::Conflict && !creates;
        let delay = match failure.kind {
            // the watch says whether there is another
            FailureKind::NotFound if !creates => {
                self.deleted = self.object.take().map(|o| uid_of(&o));
                self.failures = 0;
                self.due_since = None;
                return;
            }
            _ if self.conflict => MAX_BACKOFF,
            FailureKind::Invalid => {
                self.taken(call, MAX_REPEAT_INTERVAL, now);
                self.delay()
            }
            _ => self.delay(),
        };
        let asked = failure.retry_after.unwrap_or_default();
        let delay = delay.max(asked.min(MAX_REPEAT_INTERVAL));
        self.not_before = Some((later(now, delay), delay));
    }

    /// Notes when the same request may be sent again.
    fn taken(&mut self, call: Call, first: Duration, now: Timestamp) {
        let again = self.last.as_ref().filter(|last| last.call == call);
        let repeat_after = again.map_or(first, |last| (last.repeat_after * 2).min(MAX_REPEAT_INTERVAL));
        self.last = Some(Sent {
            call,
            at: now,
            repeat_after,
        });
    }

    /// 1 s doubling to 30 s, less up to a quarter, from the pod's name and the number of
    /// failures: the same in every replay, and different between pods.
    fn delay(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(5);
        let full = (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF);
        let seed = fnv1a_64(format!("{}/{}", self.seed, self.failures).as_bytes());
        full.mul_f64(1.0 - (seed % 256) as f64 / 1024.0)
    }

    /// Works out what is due.
    fn derive(&mut self, now: Timestamp) {
        self.refused = None;
        self.due = match self.role {
            Role::Pod => self.due_for_pod(),
            Role::Mirror => self.due_for_mirror(),
        };
        // a static pod that left the board is gone; one that was never there may be coming
        let stray = self.role == Role::Mirror && self.local.is_none() && self.local_at.is_none();
        self.orphan_since = (stray && self.due.is_some()).then(|| self.orphan_since.unwrap_or(now));
        if self.due.is_none() {
            self.due_since = None;
        } else {
            self.due_since.get_or_insert(now);
        }
    }

    fn due_for_pod(&mut self) -> Option<(Call, Priority)> {
        let (local, object) = (self.local.clone()?, self.object.clone()?);
        if let Some(patch) = self.status(&local, &object) {
            return Some(patch);
        }
        can_be_deleted(&object, &local).then(|| (Call::Delete(uid_of(&object)), Priority::FreesResources))
    }

    fn due_for_mirror(&mut self) -> Option<(Call, Priority)> {
        let mirror = self.object.clone();
        match mirror_plan(self.local.as_ref(), mirror.as_deref(), &self.cluster) {
            MirrorPlan::Create(pod) => Some((Call::Create(SharedPod::from(pod)), Priority::ChangesReadiness)),
            MirrorPlan::Replace | MirrorPlan::Delete => {
                mirror.map(|mirror| (Call::Delete(uid_of(&mirror)), Priority::ChangesReadiness))
            }
            MirrorPlan::Nothing => {
                let (local, mirror) = (self.local.clone()?, mirror?);
                mirrors(&mirror, &local.pod)
                    .then(|| self.status(&local, &mirror))
                    .flatten()
            }
        }
    }

    fn status(&mut self, local: &LocalStatus, object: &SharedPod) -> Option<(Call, Priority)> {
        if !local.looked {
            return None;
        }
        let empty = Default::default();
        let api = object.status.as_ref().unwrap_or(&empty);
        match merge_status(api, local, self.local_at.unwrap_or_default()) {
            Ok(merged) => {
                let patch = status_patch(object, &merged)?;
                Some((Call::Patch(patch), priority(api, &merged)))
            }
            Err(refused) => {
                self.refused = Some(refused);
                None
            }
        }
    }

    fn next(&self, now: Timestamp) -> Next {
        let (Some((call, priority)), None) = (&self.due, &self.in_flight) else {
            return Next::Idle;
        };
        let repeat = self.last.as_ref().filter(|last| last.call == *call);
        let repeat = repeat.map(|last| (later(last.at, last.repeat_after), last.repeat_after));
        let orphan = self
            .orphan_since
            .map(|at| (later(at, ORPHAN_DELAY), ORPHAN_DELAY));
        let waits = [self.not_before, repeat, orphan]
            .into_iter()
            .flatten()
            // a clock that was set back does not make anybody wait longer than the delay
            .filter(|(at, delay)| *at > now && *at <= later(now, *delay))
            .map(|(at, _)| at)
            .max();
        waits.map_or(Next::Send(*priority), Next::Wait)
    }
}

/// How urgent it is to bring one status to the other.
fn priority(api: &PodStatus, merged: &PodStatus) -> Priority {
    let ready = |status: &PodStatus| {
        let mut all = status.conditions.iter().flatten();
        all.any(|c| c.type_ == "Ready" && c.status == "True")
    };
    if is_terminal(merged) && !is_terminal(api) {
        Priority::FreesResources
    } else if api.phase != merged.phase || ready(api) != ready(merged) {
        Priority::ChangesReadiness
    } else {
        Priority::Informational
    }
}

/// Versions of pods are numbers that grow.
fn version(object: &SharedPod) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests;
