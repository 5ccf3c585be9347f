//! One row for each sequence of published statuses.

use super::*;

/// `web=r a#0 …` is a ready pod `web` whose container has ID `a` and restart count 0; `n` is not
/// ready, `f` failed, `s` not ready and stale. `kill` is a kill by the run, `new` another pod of that name.
fn check(promise: Promise, statuses: &str, expected: &[Loss]) {
    let mut ledger = Ledger::default();
    ledger.add("web", promise);
    let mut losses = Vec::new();
    let mut uid = 0;
    for word in statuses.split_ascii_whitespace() {
        match word {
            "kill" => ledger.excuse("web"),
            "new" => uid += 1,
            _ => {
                let (state, container) = word.split_once(':').expect("state:container");
                let (id, restarts) = container.split_once('#').expect("id#restarts");
                let pod = PodView {
                    name: "web-node".to_owned(),
                    uid: uid.to_string(),
                    ready: state == "r",
                    stale: state == "s",
                    phase: if state == "f" { "Failed" } else { "Running" }.to_owned(),
                    containers: vec![ContainerView {
                        name: "main".to_owned(),
                        id: id.to_owned(),
                        restarts: restarts.parse().expect("a number"),
                        ..ContainerView::default()
                    }],
                    ..PodView::default()
                };
                let table = PodTable {
                    connected: true,
                    pods: [(pod.uid.clone(), pod)].into(),
                    ..PodTable::default()
                };
                losses.extend(ledger.observe(&table).into_iter().map(|(loss, _)| loss));
            }
        }
    }
    assert_eq!(losses, expected, "{statuses}");
}

#[test]
fn steady_pod_keeps_its_container_and_readiness() {
    use Loss::{CountWentBack, Failed, ReadyFlip, Restart};
    let steady = Promise::Steady;
    check(steady, "n:a#0 r:a#0 r:a#0", &[]);
    // a container that never ran is replaced while the pod starts
    check(steady, "n:a#0 n:b#0 r:b#0", &[]);
    check(steady, "n:a#0 n:b#1 r:b#1", &[Restart]);
    check(steady, "r:a#0 n:a#0 r:a#0", &[ReadyFlip]);
    check(steady, "r:a#0 n:b#1 r:b#1", &[Restart, ReadyFlip]);
    check(steady, "r:a#1", &[Restart]);
    check(steady, "r:a#0 kill n:b#1 r:b#1 r:b#0", &[CountWentBack]);
    check(steady, "f:a#0", &[Failed]);
    check(steady, "r:a#0 new n:b#0 r:b#0", &[]);
}

#[test]
fn pod_shown_before_it_is_observed_is_no_flip() {
    use Loss::{NotObserved, ReadyFlip, Restart};
    let steady = Promise::Steady;
    check(
        steady,
        "s:#0 n:a#0 r:a#0 s:#0 r:a#0",
        &[NotObserved, NotObserved],
    );
    check(steady, "r:a#0 s:#0 r:b#1", &[NotObserved, Restart]);
    check(
        steady,
        "r:a#0 s:b#0 s:a#0 n:a#0",
        &[NotObserved, NotObserved, ReadyFlip],
    );
    check(Promise::CrashLoop, "n:a#3 s:#0 n:a#3", &[NotObserved]);
}

#[test]
fn kill_by_the_run_is_excused_once() {
    use Loss::{ReadyFlip, Restart};
    let steady = Promise::Steady;
    // the agent has not noticed it yet
    check(steady, "r:a#0 kill r:a#0 n:a#0 n:b#1 r:b#1", &[]);
    check(steady, "r:a#0 kill n:b#1 r:b#1 n:b#1", &[ReadyFlip]);
    check(steady, "r:a#0 kill n:b#1 r:b#1 r:c#2", &[Restart]);
}

#[test]
fn crash_loop_and_task_have_promises_of_their_own() {
    use Loss::{CountWentBack, Failed, Restart};
    check(Promise::CrashLoop, "n:a#0 n:b#1 r:c#2 n:d#3", &[]);
    check(Promise::CrashLoop, "n:a#2 n:b#1", &[CountWentBack]);
    check(Promise::Task, "r:a#0 n:a#0", &[]);
    check(Promise::Task, "r:a#0 n:b#1", &[Restart]);
    check(Promise::Task, "r:a#0 f:a#0", &[Failed]);
    check(Promise::None, "r:a#0 f:b#1", &[]);
}

#[test]
fn all_steady_pods_are_in_service_only_if_ready() {
    let mut ledger = Ledger::default();
    ledger.add("web", Promise::Steady);
    ledger.add("loop", Promise::CrashLoop);
    let table = |ready: bool, connected: bool| PodTable {
        connected,
        pods: [(
            "u".to_owned(),
            PodView {
                name: "web-node".to_owned(),
                ready,
                ..PodView::default()
            },
        )]
        .into(),
        ..PodTable::default()
    };
    assert!(ledger.in_service(&table(true, true)));
    assert!(!ledger.in_service(&table(false, true)));
    assert!(!ledger.in_service(&table(true, false)));
    assert!(!ledger.in_service(&PodTable::default()));
}
