//! The state machine that brings a pod's status to the API server.
//!
//! Derives the one request that is due from the local status and the API object. The caller fetches
//! the request when it can send it, so that it is always the newest. At most one is in flight.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use windlass_types::corev1::PodStatus;
use windlass_types::view::PodWorkerState;
use windlass_types::{Phase, PodExt, PodFullName, PodUid, SharedPod, Timestamp, later};

use super::{LocalStatus, StatusConflict, can_be_deleted, merge_status, status_patch, uid_of};
use crate::mirror::{Cluster, MirrorPlan, mirror_plan, mirrors};
use windlass_units::hash::fnv1a_64;

/// Back-off after the first failure; it doubles.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum back-off after a failure.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Interval before an accepted request is repeated because it is due again (upstream's
/// reconciliation period). It doubles.
const INITIAL_REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum interval before the same request is repeated, also after the response `Invalid`.
const MAX_REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// Time after all sources are ready until a mirror pod without a static pod is orphaned. The status
/// of a static pod appears within milliseconds.
const ORPHAN_DELAY: Duration = Duration::from_secs(5);
/// Time during which the watch may report an older object than the last response. Later the API
/// server may have been restored from a backup.
const STALE_WATCH_WINDOW: Duration = Duration::from_secs(30);

/// Kind of the API object of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A pod of the API server.
    Pod,
    /// The mirror pod of a static pod, for all objects of its name.
    Mirror,
}

/// Input of the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The local status of the pod; `None` if it left the pod status store.
    LocalStatus(Option<LocalStatus>),
    /// The object in the API.
    ApiObject(SharedPod),
    /// The object with this UID was deleted.
    ApiObjectDeleted(PodUid),
    /// Cluster state for mirror pods.
    Cluster(Cluster),
    /// The request in flight completed.
    RequestCompleted(Result<RequestResult, RequestFailure>),
    /// The API server is reachable again; back-offs for it end.
    Reachable,
    /// A wait ended.
    Tick,
}

/// Result of a successful request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestResult {
    /// The patched or created object.
    Object(SharedPod),
    /// The object was deleted.
    Deleted,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// Its kind.
    pub kind: FailureKind,
    /// Delay requested by the API server.
    pub retry_after: Option<Duration>,
}

windlass_types::text_enum! {
    /// Kind of a failure, which determines the retry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FailureKind {
        /// The object does not exist.
        NotFound = "object not found",
        /// The object has another UID, or changed.
        Conflict = "conflict",
        /// The API server rejects the request permanently.
        Invalid = "rejected permanently by the API server",
        /// The API server is unreachable.
        Unreachable = "API server unreachable",
        /// A retry may succeed.
        Other = "rejected by the API server",
    }
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Namespace and name of the object.
    pub name: PodFullName,
    /// Verb and body.
    pub call: Call,
    /// When a request became due.
    pub since: Timestamp,
}

/// Verb and body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// Strategic merge patch of the `status` subresource, with the UID.
    Patch(Value),
    /// Deletion of the object with this UID, grace period 0.
    Delete(PodUid),
    /// Creation of this mirror pod.
    Create(SharedPod),
}

/// Priority of a request; the first is the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Deletes a pod object or publishes a terminal phase; at most two per pod.
    FreesResources,
    /// Changes the phase, the readiness or the existence of a pod.
    ChangesReadiness,
    /// Any other change.
    Informational,
}

/// Next step of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for an input.
    Idle,
    /// Wait until this time, then handle [`Input::Tick`].
    Wait(Timestamp),
    /// Send a request.
    Send(Priority),
}

impl Call {
    /// Returns the verb.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Patch(_) => "patch",
            Self::Delete(_) => "delete",
            Self::Create(_) => "create",
        }
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

/// The last completed request, and its repeat interval.
#[derive(Clone, Debug)]
struct LastRequest {
    call: Call,
    at: Timestamp,
    repeat_after: Duration,
}

/// The state machine of one object.
#[derive(Clone, Debug)]
pub struct StatusSync {
    role: Role,
    /// Seed of the jitter.
    seed: String,
    local: Option<LocalStatus>,
    /// The pod left the pod status store.
    left: bool,
    /// Time of the last local change; `None` before the first.
    local_at: Option<Timestamp>,
    object: Option<SharedPod>,
    cluster: Cluster,
    due: Option<(Call, Priority)>,
    due_since: Option<Timestamp>,
    /// When a mirror pod appeared without a static pod.
    orphan_since: Option<Timestamp>,
    status_conflict: Option<StatusConflict>,
    in_flight: Option<Call>,
    failures: u32,
    /// The last failure was `Unreachable`.
    unreachable: bool,
    /// The last failure was `Conflict`.
    conflict: bool,
    /// End and duration of the back-off.
    not_before: Option<(Timestamp, Duration)>,
    last: Option<LastRequest>,
    /// Version of the last response, until the watch has caught up.
    floor: Option<(u64, Timestamp)>,
    /// The last object deleted according to the watch; late responses for it are ignored.
    gone: Option<PodUid>,
    /// The mirror pod that the agent deleted; late events of it are ignored.
    deleted: Option<PodUid>,
}

impl StatusSync {
    /// Creates a machine without state. `seed` is the UID or name of the pod.
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
            status_conflict: None,
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

    /// Handles an input and returns the next step.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Next {
        match input {
            Input::LocalStatus(local) => {
                if !self.set_local(local, now) {
                    return self.next(now);
                }
            }
            Input::ApiObject(object) => self.set_object(object, now),
            Input::ApiObjectDeleted(uid) => self.remove_object(uid),
            Input::Cluster(cluster) => {
                if self.cluster == cluster {
                    return self.next(now);
                }
                self.cluster = cluster;
            }
            Input::RequestCompleted(result) => self.completed(result, now),
            Input::Reachable => {
                if std::mem::take(&mut self.unreachable) {
                    self.not_before = None;
                }
            }
            Input::Tick => {}
        }
        // the next request is derived from the result of the one in flight
        if self.in_flight.is_some() && self.role == Role::Pod {
            return Next::Idle;
        }
        self.derive(now);
        self.next(now)
    }

    /// Returns the request that is due, which is in flight from now on.
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

    /// Returns the conflict of the local status with the API status.
    pub fn status_conflict(&self) -> Option<&StatusConflict> {
        self.status_conflict.as_ref()
    }

    /// Returns the object in the API.
    pub fn object(&self) -> Option<&SharedPod> {
        self.object.as_ref()
    }

    /// True without state and requests: the machine can be removed.
    pub fn is_empty(&self) -> bool {
        self.object.is_none() && self.in_flight.is_none() && (self.local.is_none() || self.left)
    }

    /// Updates the local status; false without a change.
    fn set_local(&mut self, local: Option<LocalStatus>, now: Timestamp) -> bool {
        self.left = local.is_none();
        let local = match (self.local.take(), local) {
            // a removed worker has released its pod, whose object may still exist
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
            (Some(known), Some(new)) if known.is_same(&new) => {
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

    fn set_object(&mut self, object: SharedPod, now: Timestamp) {
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

    fn remove_object(&mut self, uid: PodUid) {
        if self.object.as_ref().is_some_and(|o| uid_of(o) == uid) {
            self.object = None;
        }
        self.gone = Some(uid);
    }

    fn completed(&mut self, result: Result<RequestResult, RequestFailure>, now: Timestamp) {
        let Some(call) = self.in_flight.take() else {
            return;
        };
        match result {
            Ok(result) => {
                self.failures = 0;
                self.unreachable = false;
                self.conflict = false;
                self.not_before = None;
                self.due_since = None;
                self.set_repeat(call, INITIAL_REPEAT_INTERVAL, now);
                self.accept(result, now);
            }
            Err(failure) => self.failed(call, &failure, now),
        }
    }

    fn accept(&mut self, result: RequestResult, now: Timestamp) {
        match result {
            RequestResult::Object(object) if self.gone.as_ref() != Some(&uid_of(&object)) => {
                // the watch may already have a newer object
                let newest = self.object.as_ref().is_none_or(|known| {
                    uid_of(known) != uid_of(&object) || version(known) <= version(&object)
                });
                if newest {
                    self.floor = version(&object).map(|v| (v, later(now, STALE_WATCH_WINDOW)));
                    self.object = Some(object);
                }
            }
            RequestResult::Object(_) => {}
            RequestResult::Deleted if self.role == Role::Mirror => {
                self.deleted = self.object.take().map(|o| uid_of(&o));
            }
            // the watch reports the removal: finalizers may delay it
            RequestResult::Deleted => {}
        }
    }

    fn failed(&mut self, call: Call, failure: &RequestFailure, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        let creates = matches!(call, Call::Create(_));
        self.unreachable = failure.kind == FailureKind::Unreachable;
        self.conflict = failure.kind == FailureKind::Conflict && !creates;
        let delay = match failure.kind {
            // the watch reports another object, if any
            FailureKind::NotFound if !creates => {
                self.deleted = self.object.take().map(|o| uid_of(&o));
                self.failures = 0;
                self.due_since = None;
                return;
            }
            _ if self.conflict => MAX_BACKOFF,
            FailureKind::Invalid => {
                self.set_repeat(call, MAX_REPEAT_INTERVAL, now);
                self.delay()
            }
            _ => self.delay(),
        };
        let requested = failure.retry_after.unwrap_or_default();
        let delay = delay.max(requested.min(MAX_REPEAT_INTERVAL));
        self.not_before = Some((later(now, delay), delay));
    }

    /// Records when the same request may be repeated.
    fn set_repeat(&mut self, call: Call, first: Duration, now: Timestamp) {
        let again = self.last.as_ref().filter(|last| last.call == call);
        let repeat_after = again.map_or(first, |last| {
            (last.repeat_after * 2).min(MAX_REPEAT_INTERVAL)
        });
        self.last = Some(LastRequest {
            call,
            at: now,
            repeat_after,
        });
    }

    /// Returns the back-off: 1 s doubling to 30 s, less up to a quarter of deterministic jitter.
    fn delay(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(5);
        let full = (INITIAL_BACKOFF * 2_u32.pow(doublings)).min(MAX_BACKOFF);
        let seed = fnv1a_64(format!("{}/{}", self.seed, self.failures).as_bytes());
        full.mul_f64(1.0 - (seed % 256) as f64 / 1024.0)
    }

    /// Derives the request that is due.
    fn derive(&mut self, now: Timestamp) {
        self.status_conflict = None;
        self.due = match self.role {
            Role::Pod => self.due_for_pod(),
            Role::Mirror => self.due_for_mirror(),
        };
        // a static pod that was never in the store may still appear
        let orphan = self.role == Role::Mirror && self.local.is_none() && self.local_at.is_none();
        self.orphan_since =
            (orphan && self.due.is_some()).then(|| self.orphan_since.unwrap_or(now));
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
        can_be_deleted(&object, &local)
            .then(|| (Call::Delete(uid_of(&object)), Priority::FreesResources))
    }

    fn due_for_mirror(&mut self) -> Option<(Call, Priority)> {
        let mirror = self.object.clone();
        match mirror_plan(self.local.as_ref(), mirror.as_deref(), &self.cluster) {
            MirrorPlan::Create(pod) => Some((
                Call::Create(SharedPod::from(pod)),
                Priority::ChangesReadiness,
            )),
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
        if !local.observed {
            return None;
        }
        let empty = Default::default();
        let api = object.status.as_ref().unwrap_or(&empty);
        match merge_status(api, local, self.local_at.unwrap_or_default()) {
            Ok(merged) => {
                let patch = status_patch(object, &merged)?;
                Some((Call::Patch(patch), priority(api, &merged)))
            }
            Err(conflict) => {
                self.status_conflict = Some(conflict);
                None
            }
        }
    }

    fn next(&self, now: Timestamp) -> Next {
        if self.in_flight.is_some() {
            return Next::Idle;
        }
        let Some((call, priority)) = &self.due else {
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
            .filter(|(at, delay)| is_ahead(*at, *delay, now))
            .map(|(at, _)| at)
            .max();
        waits.map_or(Next::Send(*priority), Next::Wait)
    }
}

/// True before the end of a wait. A clock that was set back does not extend it.
fn is_ahead(at: Timestamp, delay: Duration, now: Timestamp) -> bool {
    at > now && at <= later(now, delay)
}

fn priority(api: &PodStatus, merged: &PodStatus) -> Priority {
    let ready = |status: &PodStatus| {
        let mut all = status.conditions.iter().flatten();
        all.any(|c| c.type_ == "Ready" && c.status == "True")
    };
    if Phase::is_terminal_in(merged) && !Phase::is_terminal_in(api) {
        Priority::FreesResources
    } else if api.phase != merged.phase || ready(api) != ready(merged) {
        Priority::ChangesReadiness
    } else {
        Priority::Informational
    }
}

/// Parses the resourceVersion.
fn version(object: &SharedPod) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests;
