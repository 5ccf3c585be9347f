//! What a job changes in the worker.

use windlass_pod_lifecycle::actions::PodActions;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_runtime::{StartFailure, SyncPodOutcome};
use windlass_runtime_config::port::InputsError;
use windlass_testing::fake_runtime::Behavior;
use windlass_types::{Phase, Retry};

use super::super::jobs::JobError;
use super::super::tests::{Node, builder, job, no_inputs, pod, usable};
use super::*;

fn cause(reason: &str) -> PhaseOverride {
    PhaseOverride {
        phase: Phase::Failed,
        reason: reason.to_owned(),
        message: String::new(),
        disruption: None,
    }
}

fn blocker_line(node: &Node) -> String {
    let entry = node.deps.status_store.get(&"web".into());
    let blocker = entry.expect("published").blocker;
    blocker.map_or_else(String::new, |it| format!("{}: {}", it.reason, it.message))
}

#[tokio::test(start_paused = true)]
async fn new_pod_waits_for_a_slot_until_it_is_dispatched() {
    let node = Node::new(3);
    let mut report = Report::new(Some(pod("web")), node.deps.clock.now(), &node.deps.metrics);
    report.publish(State::SyncPod, &usable(), &node.deps);
    assert_eq!(
        blocker_line(&node),
        "WaitingForStartSlot: waiting for a start slot (limit: 3 concurrent pod starts)"
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    report.dispatched(node.deps.clock.now(), &node.deps.metrics);
    report.dispatched(node.deps.clock.now(), &node.deps.metrics);
    report.publish(State::SyncPod, &usable(), &node.deps);
    assert!(!blocker_line(&node).starts_with("WaitingForStartSlot"));
    let waited = &node.deps.metrics.workers.start_duration;
    assert_eq!(
        (waited.get_sample_count(), waited.get_sample_sum()),
        (1, 2.0)
    );
}

#[tokio::test(start_paused = true)]
async fn first_cause_with_a_phase_override_stays() {
    let node = Node::new(1);
    let mut report = Report::new(Some(pod("web")), node.deps.clock.now(), &node.deps.metrics);
    let kills = [
        ("deleted", None, "deleted"),
        ("deleted again", None, "deleted"),
        ("low on memory", Some("Evicted"), "low on memory"),
        ("node shutdown", Some("Terminated"), "low on memory"),
        ("deleted", None, "low on memory"),
    ];
    let state = State::TerminatingPod {
        grace: Duration::from_secs(30),
    };
    for (reason, phase_override, expected) in kills {
        report.decided(reason.to_owned(), phase_override.map(cause));
        report.terminating(Duration::from_secs(30), node.deps.clock.now());
        report.publish(state, &usable(), &node.deps);
        let text = format!("Terminating: {expected}; terminating the pod (grace period 30 s)");
        assert_eq!(blocker_line(&node), text);
    }
    let state = State::TerminatedPod { released: false };
    report.publish(state, &usable(), &node.deps);
    let entry = node.deps.status_store.get(&"web".into()).expect("entry");
    assert_eq!(entry.status.reason.as_deref(), Some("Evicted"));
    assert_eq!(entry.status.phase.as_deref(), Some("Failed"));
    // a terminated pod has been observed
    assert!(entry.observed && !entry.released);
}

#[tokio::test(start_paused = true)]
async fn unreadable_pod_is_retried_and_keeps_its_status() {
    let node = Node::new(1);
    let mut report = Report::new(Some(pod("web")), node.deps.clock.now(), &node.deps.metrics);
    let synced = node.sync(job(&pod("web"))).await;
    report.synced(synced, &node.deps, node.deps.clock.now());
    let before = report.status();
    assert_eq!(before.phase.as_deref(), Some("Running"));
    let unreadable = SyncReport {
        observed: Err(JobError {
            message: "no answer".to_owned(),
            retry: Retry::Soon,
        }),
        outcome: None,
        issues: None,
    };
    let summary = report.synced(unreadable, &node.deps, node.deps.clock.now());
    assert_eq!(summary.retry_at, node.after(1));
    assert!(!summary.terminal);
    assert_eq!(report.status().phase, before.phase);
    report.publish(State::SyncPod, &usable(), &node.deps);
    assert_eq!(blocker_line(&node), "FailedSync: no answer");
}

#[tokio::test(start_paused = true)]
async fn ended_pod_with_a_failure_is_not_terminal() {
    let node = Node::new(1);
    let once = builder("web").restart_policy("Never");
    let once = Arc::new(once.build());
    let exits = Behavior::exits(Duration::ZERO, 0);
    node.cri.set_behavior("app", exits);
    node.sync(job(&once)).await;
    let observed = node.peers.observed(&"web".into()).await.expect("observed");
    let mut report = Report::new(
        Some(Arc::clone(&once)),
        node.deps.clock.now(),
        &node.deps.metrics,
    );
    let mut synced = |error: Option<InputsError>| {
        let failures = error.into_iter().map(|error| StartFailure {
            container: None,
            reason: error.reason,
            message: error.message,
            retry: error.retry,
            retry_at: None,
        });
        let outcome = SyncPodOutcome {
            actions: PodActions::default(),
            failures: failures.collect(),
            backoff: BackoffTable::default(),
            timings: StartTimings::default(),
            resized: None,
            changed: false,
            retry_at: None,
            resync_at: None,
            cancelled: false,
        };
        let sync = SyncReport {
            observed: Ok(Arc::new(observed.clone())),
            outcome: Some(outcome),
            issues: None,
        };
        let summary = report.synced(sync, &node.deps, node.deps.clock.now());
        summary.terminal
    };
    assert!(!synced(Some(no_inputs(Retry::Soon))));
    assert!(synced(None));
}
