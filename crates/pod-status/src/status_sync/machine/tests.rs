//! Scripts of the state machine.

use std::fmt;
use std::sync::Arc;

use windlass_types::Pod;
use windlass_types::metav1::Time;
use windlass_types::names;
use windlass_types::view::PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};

use super::*;
use crate::mirror::NodeOwner;
use crate::status_sync::tests::RENDERINGS;
use crate::status_sync::tests::{at, proposal, status};
use windlass_pod_text::pod;

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::Wait(at) => write!(f, "wait@{}", at.as_second()),
            Self::Send(priority) => write!(f, "send({priority:?})"),
        }
    }
}

/// A machine and a clock; every step returns one line.
struct Fixture {
    machine: StatusSync,
    now: i64,
}

impl Fixture {
    fn new(role: Role) -> Self {
        Self {
            machine: StatusSync::new(role, "u"),
            now: 100,
        }
    }

    /// Handles an input and starts the request that is due.
    fn step(&mut self, input: Input) -> String {
        let next = self.machine.handle(input, at(self.now));
        match self.machine.start(at(self.now)) {
            Some(request) => call(&request.call),
            None => next.to_string(),
        }
    }

    fn tick_at(&mut self, second: i64) -> String {
        self.now = second;
        self.step(Input::Tick)
    }

    fn fails(&mut self, kind: FailureKind) -> String {
        let failure = RequestFailure {
            kind,
            retry_after: None,
        };
        self.step(Input::RequestCompleted(Err(failure)))
    }
}

/// Formats a request: verb, and the phase or condition types of a patch.
fn call(call: &Call) -> String {
    match call {
        Call::Patch(patch) => {
            let uid = patch["metadata"]["uid"].as_str().unwrap_or_default();
            let status = &patch["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let types: Vec<_> = conditions.filter_map(|c| c["type"].as_str()).collect();
            format!("patch {uid} {} {types:?}", status["phase"])
        }
        other => other.to_string(),
    }
}

fn object(uid: &str, version: u32, local: &str) -> Pod {
    let mut object = pod("Never web");
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object.status = Some(status(local));
    object
}

fn seen(uid: &str, version: u32, local: &str) -> Input {
    Input::ApiObject(Arc::new(object(uid, version, local)))
}

fn answer(uid: &str, version: u32, local: &str) -> Input {
    let object = Arc::new(object(uid, version, local));
    Input::RequestCompleted(Ok(RequestResult::Object(object)))
}

fn says(local: &str, worker: PodWorkerState) -> Input {
    Input::LocalStatus(Some(proposal("Never web", status(local), worker)))
}

const NEW: &str = "Pending | PodScheduled=True@1 |";
const PENDING: &str = "Pending | PodScheduled=True@1 Ready=False@100 | web=w";
const RUNNING: &str = "Running | PodScheduled=True@1 Ready=True@101 | web=r";

#[test]
fn change_is_sent_once() {
    let mut fixture = Fixture::new(Role::Pod);
    assert_eq!(fixture.step(seen("u", 1, NEW)), "idle");
    assert_eq!(
        fixture.step(says(PENDING, SyncPod)),
        r#"patch u null ["Ready"]"#
    );
    assert_eq!(fixture.step(answer("u", 2, PENDING)), "idle");
    assert_eq!(fixture.step(seen("u", 2, PENDING)), "idle");
    assert_eq!(fixture.step(says(PENDING, SyncPod)), "idle");
    assert_eq!(
        fixture.step(says(RUNNING, SyncPod)),
        r#"patch u "Running" ["Ready"]"#
    );
}

#[test]
fn only_newest_state_is_kept_while_request_is_in_flight() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    assert_eq!(
        fixture.step(says(PENDING, SyncPod)),
        r#"patch u null ["Ready"]"#
    );
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "idle");
    let last = "Succeeded | PodScheduled=True@1 Ready=False@100 | web=t0";
    assert_eq!(fixture.step(says(last, TerminatedPod)), "idle");
    assert_eq!(
        fixture.step(answer("u", 2, PENDING)),
        r#"patch u "Succeeded" []"#
    );
}

#[test]
fn freed_resources_precede_readiness_changes() {
    let priority = |local: &str, worker| {
        let mut machine = StatusSync::new(Role::Pod, "u");
        machine.handle(seen("u", 1, "Pending | Ready=False@1 | web=w"), at(1));
        machine.handle(says(local, worker), at(1)).to_string()
    };
    assert_eq!(
        priority("Failed | Ready=False@1 | web=t1", TerminatedPod),
        "send(FreesResources)"
    );
    assert_eq!(
        priority("Running | Ready=False@1 | web=r", SyncPod),
        "send(ChangesReadiness)"
    );
    assert_eq!(
        priority("Pending | Ready=True@2 | web=w", SyncPod),
        "send(ChangesReadiness)"
    );
    assert_eq!(
        priority("Pending | Ready=False@1,Why | web=w", SyncPod),
        "send(Informational)"
    );
}

#[test]
fn failure_is_retried_with_back_off_and_newest_state() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    let mut delays = Vec::new();
    for _ in 0..7 {
        fixture.fails(FailureKind::Other);
        let Next::Wait(until) = fixture
            .machine
            .handle(says(RUNNING, SyncPod), at(fixture.now))
        else {
            panic!("waits");
        };
        delays.push(until.duration_since(at(fixture.now)).as_secs_f64());
        assert_eq!(
            fixture.tick_at(until.as_second()).split('@').next(),
            Some("wait")
        );
        assert_eq!(
            fixture.tick_at(until.as_second() + 1),
            r#"patch u "Running" ["Ready"]"#
        );
    }
    for (delay, full) in delays.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]) {
        assert!((full * 0.75..=full).contains(delay), "{delays:?}");
    }
}

#[test]
fn retry_after_extends_the_backoff_up_to_a_limit() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    let failure = RequestFailure {
        kind: FailureKind::Other,
        retry_after: Some(Duration::from_secs(40)),
    };
    assert_eq!(
        fixture.step(Input::RequestCompleted(Err(failure))),
        "wait@140"
    );
    // neither a local change nor a watch event shortens it
    assert_eq!(fixture.step(seen("u", 2, NEW)), "wait@140");
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "wait@140");
    assert_eq!(fixture.step(Input::Reachable), "wait@140");
}

#[test]
fn back_off_ends_when_server_is_reachable() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    for _ in 0..9 {
        fixture.fails(FailureKind::Unreachable);
        fixture.tick_at(fixture.now + 31);
    }
    assert_eq!(
        fixture.fails(FailureKind::Unreachable).split('@').next(),
        Some("wait")
    );
    assert_eq!(fixture.step(Input::Reachable), r#"patch u null ["Ready"]"#);
}

#[test]
fn clock_set_back_does_not_delay_attempts() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.now = 10_000;
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    assert_eq!(fixture.fails(FailureKind::Other), "wait@10000");
    assert_eq!(fixture.tick_at(6400), r#"patch u null ["Ready"]"#);
}

#[test]
fn deleted_object_needs_no_request() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    assert_eq!(fixture.fails(FailureKind::NotFound), "idle");
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "idle");
    assert_eq!(fixture.tick_at(100_000), "idle");
    assert_eq!(
        fixture.step(seen("u", 3, NEW)),
        r#"patch u "Running" ["Ready"]"#
    );
}

#[test]
fn after_conflict_next_watch_event_decides() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    assert_eq!(fixture.fails(FailureKind::Conflict), "wait@130");
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "wait@130");
    // changed by another client, but the same pod
    assert_eq!(
        fixture.step(seen("u", 2, NEW)),
        r#"patch u "Running" ["Ready"]"#
    );
    assert_eq!(fixture.fails(FailureKind::Conflict), "wait@130");
    // another pod with the same name
    assert_eq!(fixture.step(Input::ApiObjectDeleted("u".into())), "idle");
}

#[test]
fn invalid_status_waits_for_change() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    assert_eq!(fixture.fails(FailureKind::Invalid), "wait@400");
    assert_eq!(fixture.tick_at(110), "wait@400");
    assert_eq!(
        fixture.step(says(RUNNING, SyncPod)),
        r#"patch u "Running" ["Ready"]"#
    );
}

#[test]
fn repeated_request_interval_doubles() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    assert_eq!(
        fixture.step(says(PENDING, SyncPod)),
        r#"patch u null ["Ready"]"#
    );
    assert_eq!(fixture.step(answer("u", 2, NEW)), "wait@110");
    assert_eq!(fixture.tick_at(110), r#"patch u null ["Ready"]"#);
    assert_eq!(fixture.step(answer("u", 3, NEW)), "wait@130");
}

#[test]
fn watch_event_older_than_response_is_ignored() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    fixture.step(answer("u", 5, PENDING));
    assert_eq!(fixture.step(seen("u", 4, NEW)), "idle");
    assert_eq!(fixture.step(seen("u", 5, PENDING)), "idle");
    // after the window an older object is accepted
    fixture.now += 31;
    assert_eq!(fixture.step(seen("u", 3, NEW)), r#"patch u null ["Ready"]"#);
}

#[test]
fn late_response_does_not_restore_deleted_pod() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    assert_eq!(fixture.step(Input::ApiObjectDeleted("u".into())), "idle");
    assert_eq!(fixture.step(answer("u", 2, PENDING)), "idle");
    assert_eq!(fixture.step(Input::LocalStatus(None)), "idle");
    assert!(fixture.machine.is_empty());
}

#[test]
fn deleted_pod_gets_terminal_status_then_deletion() {
    let mut fixture = Fixture::new(Role::Pod);
    let deleted = |version, local: &str| {
        let mut object = object("u", version, local);
        object.metadata.deletion_timestamp = Some(Time(at(100)));
        Arc::new(object)
    };
    fixture.step(seen("u", 1, RUNNING));
    assert_eq!(fixture.step(Input::ApiObject(deleted(2, RUNNING))), "idle");
    // a withheld change needs no request
    let end = "Failed | PodScheduled=True@1 Ready=True@101 | web=r";
    assert_eq!(fixture.step(says(end, TerminatingPod)), "idle");
    let end = "Failed | PodScheduled=True@1 Ready=False@105 | web=t1";
    assert_eq!(
        fixture.step(says(end, TerminatedPod)),
        r#"patch u "Failed" ["Ready"]"#
    );
    let answered = RequestResult::Object(deleted(3, end));
    assert_eq!(fixture.step(Input::RequestCompleted(Ok(answered))), "idle");
    let released = LocalStatus {
        released: true,
        ..proposal("Never web", status(end), TerminatedPod)
    };
    assert_eq!(
        fixture.step(Input::LocalStatus(Some(released))),
        "delete(u)"
    );
    // the worker may be removed before the object
    assert_eq!(fixture.step(Input::LocalStatus(None)), "idle");
    assert_eq!(fixture.fails(FailureKind::Unreachable), "wait@100");
    assert_eq!(fixture.tick_at(102), "delete(u)");
    assert_eq!(
        fixture.step(Input::RequestCompleted(Ok(RequestResult::Deleted))),
        "wait@112"
    );
    assert!(!fixture.machine.is_empty());
    assert_eq!(fixture.step(Input::ApiObjectDeleted("u".into())), "idle");
    assert!(fixture.machine.is_empty());
}

#[test]
fn status_of_unobserved_pod_is_not_sent() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, RUNNING));
    let mut adopted = proposal("Never web", status(PENDING), SyncPod);
    adopted.observed = false;
    assert_eq!(
        fixture.step(Input::LocalStatus(Some(adopted.clone()))),
        "idle"
    );
    adopted.observed = true;
    assert_eq!(
        fixture.step(Input::LocalStatus(Some(adopted))),
        r#"patch u "Pending" ["Ready"]"#
    );
}

#[test]
fn conflicting_status_is_not_sent_and_is_reported() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, "Running | Ready=False@1 | web=t1"));
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "idle");
    let conflict = fixture.machine.status_conflict().expect("conflict");
    assert_eq!(conflict.container, "web");
    fixture.step(says("Failed | Ready=False@1 | web=t1", TerminatedPod));
    assert_eq!(fixture.machine.status_conflict(), None);
}

#[test]
fn status_is_not_rendered_while_request_is_in_flight() {
    let rendered = || RENDERINGS.get();
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, NEW));
    fixture.step(says(PENDING, SyncPod));
    let before = rendered();
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "idle");
    assert_eq!(fixture.step(seen("u", 2, PENDING)), "idle");
    assert_eq!(rendered(), before);
    let patch = r#"patch u "Running" ["Ready"]"#;
    assert_eq!(fixture.step(answer("u", 2, PENDING)), patch);
    // both sides
    assert_eq!(rendered(), before + 2);
    assert_eq!(fixture.step(answer("u", 3, RUNNING)), "idle");
    assert_eq!(fixture.step(seen("u", 3, RUNNING)), "idle");
    assert_eq!(rendered(), before + 2);
}

const RESIZED: &str =
    "Running | PodScheduled=True@1 Ready=True@101 PodResizeInProgress=True@102 | web=r";

#[test]
fn begin_and_end_of_resize_are_reported() {
    let mut fixture = Fixture::new(Role::Pod);
    fixture.step(seen("u", 1, RUNNING));
    fixture.step(says(RUNNING, SyncPod));
    // the begin, or the end
    let changes = r#"patch u null ["PodResizeInProgress"]"#;
    assert_eq!(fixture.step(says(RESIZED, SyncPod)), changes);
    // it ends while the request is in flight
    assert_eq!(fixture.step(says(RUNNING, SyncPod)), "idle");
    assert_eq!(fixture.step(answer("u", 2, RESIZED)), changes);
    assert_eq!(fixture.step(answer("u", 3, RUNNING)), "idle");
    let failed = RESIZED.replace("@102", "@102,Error");
    assert_eq!(fixture.step(says(&failed, SyncPod)), changes);
}

/// A static pod `p` with this hash.
fn static_pod(hash: &str, local: &str, worker: PodWorkerState) -> LocalStatus {
    let mut proposal = proposal("Always web", status(local), worker);
    let pod = Arc::make_mut(&mut proposal.pod);
    let hash = (names::ANN_CONFIG_HASH.to_owned(), hash.to_owned());
    pod.metadata.annotations = Some([hash].into());
    proposal
}

fn mirror(uid: &str, version: u32, hash: &str, local: &str) -> SharedPod {
    let mut object = object(uid, version, local);
    let hash = (names::ANN_CONFIG_MIRROR.to_owned(), hash.to_owned());
    object.metadata.annotations = Some([hash].into());
    Arc::new(object)
}

fn cluster(sources_ready: bool) -> Input {
    Input::Cluster(Cluster {
        node: Some(NodeOwner {
            name: "n1".into(),
            uid: "node-uid".into(),
            deleting: false,
        }),
        sources_ready,
    })
}

#[test]
fn static_pod_status_goes_to_mirror_pod() {
    let mut fixture = Fixture::new(Role::Mirror);
    let runs = static_pod("h1", "Running | Ready=True@9 | web=r", SyncPod);
    assert_eq!(fixture.step(Input::LocalStatus(Some(runs))), "idle");
    assert_eq!(fixture.step(cluster(false)), "create(p_ns)");
    let created = RequestResult::Object(mirror("m1", 1, "h1", NEW));
    assert_eq!(
        fixture.step(Input::RequestCompleted(Ok(created))),
        r#"patch m1 "Running" ["Ready"]"#
    );
}

#[test]
fn outdated_mirror_pod_is_replaced_despite_late_events() {
    let mut fixture = Fixture::new(Role::Mirror);
    let successor = static_pod("h2", "Pending | Ready=False@9 | web=w", SyncPod);
    fixture.step(cluster(true));
    fixture.step(Input::ApiObject(mirror("m1", 1, "h1", NEW)));
    assert_eq!(
        fixture.step(Input::LocalStatus(Some(successor))),
        "delete(m1)"
    );
    assert_eq!(
        fixture.step(Input::RequestCompleted(Ok(RequestResult::Deleted))),
        "create(p_ns)"
    );
    assert_eq!(
        fixture.step(Input::ApiObject(mirror("m1", 2, "h1", NEW))),
        "idle"
    );
    let created = RequestResult::Object(mirror("m2", 5, "h2", NEW));
    assert_eq!(
        fixture.step(Input::RequestCompleted(Ok(created))),
        r#"patch m2 null ["Ready"]"#
    );
    assert_eq!(fixture.step(Input::ApiObjectDeleted("m1".into())), "idle");
    assert_eq!(
        fixture.machine.object().map(uid_of_shared),
        Some("m2".into())
    );
}

fn uid_of_shared(object: &SharedPod) -> String {
    object.uid().to_string()
}

#[test]
fn mirror_pod_is_orphaned_once_all_sources_are_ready() {
    let mut fixture = Fixture::new(Role::Mirror);
    fixture.step(cluster(false));
    assert_eq!(
        fixture.step(Input::ApiObject(mirror("m1", 1, "h1", NEW))),
        "idle"
    );
    // the static pod may still appear
    assert_eq!(fixture.step(cluster(true)), "wait@105");
    assert_eq!(fixture.tick_at(104), "wait@105");
    assert_eq!(fixture.tick_at(105), "delete(m1)");

    // a removed static pod is gone
    let mut fixture = Fixture::new(Role::Mirror);
    let local = "Running | PodScheduled=True@1 Ready=True@9 | web=r";
    fixture.step(Input::ApiObject(mirror("m1", 1, "h1", local)));
    fixture.step(Input::LocalStatus(Some(static_pod(
        "h1",
        local,
        TerminatingPod,
    ))));
    assert_eq!(fixture.step(Input::LocalStatus(None)), "idle");
    assert_eq!(fixture.step(cluster(true)), "delete(m1)");
}

#[test]
fn deleted_mirror_pod_is_recreated() {
    let mut fixture = Fixture::new(Role::Mirror);
    let local = "Running | PodScheduled=True@1 Ready=True@9 | web=r";
    fixture.step(cluster(true));
    fixture.step(Input::LocalStatus(Some(static_pod("h1", local, SyncPod))));
    fixture.step(Input::RequestCompleted(Ok(RequestResult::Object(mirror(
        "m1", 1, "h1", local,
    )))));
    let mut deleted = Arc::unwrap_or_clone(mirror("m1", 2, "h1", local));
    deleted.metadata.deletion_timestamp = Some(Time(at(100)));
    assert_eq!(
        fixture.step(Input::ApiObject(Arc::new(deleted))),
        "delete(m1)"
    );
    assert_eq!(
        fixture.step(Input::RequestCompleted(Ok(RequestResult::Deleted))),
        "create(p_ns)"
    );
    // or the object is removed at once
    fixture.step(Input::RequestCompleted(Ok(RequestResult::Object(mirror(
        "m2", 4, "h1", local,
    )))));
    fixture.now += 60;
    assert_eq!(
        fixture.step(Input::ApiObjectDeleted("m2".into())),
        "create(p_ns)"
    );
}
