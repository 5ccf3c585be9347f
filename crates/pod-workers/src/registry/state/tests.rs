//! Cases of the registry: updates and the effects that they cause.

use std::sync::Arc;

use windlass_actors::UpdateKind;
use windlass_types::{Pod, names};

use super::*;

fn pod(uid: &str, name: &str) -> SharedPod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.into());
    pod.metadata.name = Some(name.into());
    pod.metadata.namespace = Some("default".into());
    pod.metadata.annotations =
        Some([(names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned())].into());
    Arc::new(pod)
}

fn run(uid: &str, name: &str) -> UpdatePod {
    UpdatePod::new(UpdateKind::Run(pod(uid, name)))
}

fn kill(removed: bool) -> UpdatePod {
    let kill = KillPod {
        grace: None,
        reason: "test".into(),
        removed,
        orphan: None,
        phase_override: None,
    };
    UpdatePod::new(UpdateKind::Kill(kill))
}

fn run_and_kill(uid: &str, name: &str, removed: bool) -> UpdatePod {
    let mut update = run(uid, name);
    windlass_mailboxes::Merge::merge(&mut update, kill(removed));
    update
}

const FINISHED: WorkerStateChanged = WorkerStateChanged {
    state: PodWorkerState::TerminatedPod,
    finished: true,
};

enum Step {
    Update(&'static str, UpdatePod),
    Finished(&'static str),
    ContainersRemoved(&'static str),
}
use Step::{ContainersRemoved, Finished, Update};

fn check(script: Vec<(Step, &str)>) {
    let mut registry = Registry::default();
    for (i, (step, expected)) in script.into_iter().enumerate() {
        let effects = match step {
            Update(uid, update) => registry.update(&uid.into(), update),
            Finished(uid) => registry.state_changed(&uid.into(), FINISHED),
            ContainersRemoved(uid) => registry.containers_removed(&uid.into()),
        };
        let line: Vec<_> = effects.iter().map(RegistryEffect::to_string).collect();
        assert_eq!(line.join(" "), expected, "step {i}");
    }
}

#[test]
fn edited_static_pods_wait_in_order_for_termination() {
    check(vec![
        (Update("1", run("1", "web")), "start(1)"),
        (Update("2", run("2", "web")), "queue(2 behind 1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Update("3", run("3", "web")), "queue(3 behind 1)"),
        (Update("2", kill(true)), "remove(2)"),
        (Finished("1"), "remove-containers(1) start(3)"),
        (ContainersRemoved("1"), "remove(1)"),
    ]);
}

#[test]
fn pod_first_seen_with_a_kill_gets_a_terminating_worker() {
    check(vec![
        (
            Update("1", run_and_kill("1", "web", false)),
            "start-terminating(1)",
        ),
        (Update("2", run("2", "web")), "start(2)"),
        (Finished("1"), ""),
        (Update("1", kill(true)), "remove-containers(1)"),
        (ContainersRemoved("1"), "remove(1)"),
        (Update("3", run_and_kill("3", "web", true)), "remove(3)"),
    ]);
}

#[test]
fn pod_desired_again_while_terminating_restarts() {
    check(vec![
        (Update("1", run("1", "web")), "start(1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Update("1", run("1", "web")), "forward(1)"),
        (Finished("1"), "remove(1) start(1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Update("1", run("1", "web")), "forward(1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Finished("1"), "remove-containers(1)"),
        (ContainersRemoved("1"), "remove(1)"),
    ]);
}

#[test]
fn coalesced_updates_equal_separate_ones() {
    use windlass_mailboxes::Merge;
    let mut removed_and_back = kill(true);
    removed_and_back.merge(run("1", "web"));
    let mut added_and_removed = run("2", "job");
    added_and_removed.merge(kill(true));
    check(vec![
        (Update("1", run("1", "web")), "start(1)"),
        (Update("1", removed_and_back), "forward(1 kill)"),
        (Finished("1"), "remove(1) start(1)"),
        (Update("2", added_and_removed), "remove(2)"),
    ]);
}

#[test]
fn completed_pod_keeps_its_worker_until_removed() {
    check(vec![
        (Update("1", run("1", "job")), "start(1)"),
        (Finished("1"), ""),
        (Update("1", run("1", "job")), ""),
        (Update("2", run("2", "job")), "start(2)"),
        (Update("1", kill(true)), "remove-containers(1)"),
        (Update("1", kill(true)), ""),
        (ContainersRemoved("1"), "remove(1)"),
        (Update("1", kill(true)), ""),
    ]);
}

#[test]
fn pod_starts_again_without_its_old_containers() {
    check(vec![
        (Update("1", run("1", "job")), "start(1)"),
        (Finished("1"), ""),
        (Update("1", kill(true)), "remove-containers(1)"),
        // each of them waits for the removal
        (Update("1", run("1", "job")), ""),
        (Update("1", kill(true)), ""),
        (Update("1", run("1", "job")), ""),
        (Update("2", run("2", "job")), "start(2)"),
        (ContainersRemoved("1"), "remove(1) queue(1 behind 2)"),
        (ContainersRemoved("1"), ""),
    ]);
}

#[test]
fn containers_of_api_pods_are_left_to_housekeeping() {
    let mut of_api = Pod::clone(&pod("1", "web"));
    of_api.metadata.annotations = None;
    let run = UpdatePod::new(UpdateKind::Run(Arc::new(of_api)));
    check(vec![
        (Update("1", run), "start(1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Finished("1"), "remove(1)"),
    ]);
}

#[test]
fn orphaned_pod_is_stopped_and_removed() {
    let mut orphan = kill(true);
    orphan.kill.as_mut().expect("kill").orphan = Some(Arc::default());
    check(vec![
        (Update("1", orphan), "start-orphan(1)"),
        (Update("1", run("1", "web")), "forward(1)"),
        (Finished("1"), "remove(1) start(1)"),
    ]);
}

#[test]
fn rejected_pod_does_not_run_after_an_update() {
    use windlass_mailboxes::Merge;
    // rejected, then updated by a controller, in one message
    let mut rejected_and_updated = run_and_kill("1", "web", false);
    rejected_and_updated.merge(run("1", "web"));
    check(vec![
        (Update("1", rejected_and_updated), "start-terminating(1)"),
        (Finished("1"), ""),
        (Update("1", run("1", "web")), ""),
    ]);
}

#[test]
fn pod_deleted_before_its_restart_does_not_restart() {
    check(vec![
        (Update("1", run("1", "web")), "start(1)"),
        (Update("1", kill(true)), "forward(1 kill)"),
        (Update("1", run("1", "web")), "forward(1)"),
        (
            Update("1", run_and_kill("1", "web", false)),
            "forward(1 kill)",
        ),
        (Finished("1"), "remove-containers(1)"),
        (ContainersRemoved("1"), "remove(1)"),
    ]);
}

#[test]
fn statuses_follow_the_messages_of_workers() {
    let mut orphan = kill(true);
    orphan.kill.as_mut().expect("kill").orphan = Some(Arc::default());
    let mut registry = Registry::default();
    registry.update(&"1".into(), run("1", "web"));
    registry.update(&"2".into(), run("2", "web"));
    registry.update(&"3".into(), run_and_kill("3", "rejected", false));
    registry.update(&"4".into(), orphan);
    let check = |registry: &Registry, expected: &str| {
        let statuses = registry.statuses();
        let words = statuses.iter().map(|(uid, status)| {
            let is_static = status.is_static.map_or("?", |it| if it { "s" } else { "" });
            format!("{uid}{is_static}:{:?}", status.state)
        });
        assert_eq!(words.collect::<Vec<_>>().join(" "), expected);
    };
    check(
        &registry,
        "1s:SyncPod 2s:SyncPod 3s:TerminatingPod 4?:TerminatingPod",
    );
    let changed = |state| WorkerStateChanged {
        state,
        finished: false,
    };
    let effects = registry.state_changed(&"1".into(), changed(PodWorkerState::TerminatingPod));
    assert!(effects.is_empty(), "{effects:?}");
    registry.state_changed(&"3".into(), changed(PodWorkerState::TerminatedPod));
    check(
        &registry,
        "1s:TerminatingPod 2s:SyncPod 3s:TerminatedPod 4?:TerminatingPod",
    );
    // a completed pod keeps its worker, an orphaned one until its containers are removed; an unknown
    // worker is ignored
    for uid in ["1", "4", "unknown"] {
        registry.state_changed(&uid.into(), FINISHED);
    }
    registry.containers_removed(&"4".into());
    check(&registry, "1s:TerminatedPod 2s:SyncPod 3s:TerminatedPod");
}
