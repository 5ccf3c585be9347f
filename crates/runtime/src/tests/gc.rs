//! Garbage collection.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_cri::error::CriCode;
use windlass_types::ContainerState;
use windlass_types::cri::{ContainerSummary, SandboxSummary};

use crate::KnownPods;

use super::{TestEnv, at, nothing, observed, pod, seen, until};

fn add(env: &TestEnv, id: &str, state: ContainerState, attempt: u32) {
    env.fake.add_container(ContainerSummary {
        id: id.into(),
        sandbox_id: "s0".into(),
        uid: "u1".into(),
        name: "a".into(),
        attempt,
        state,
        created_at: at(i64::from(attempt)),
        image_id: String::new(),
    });
}

fn add_sandbox(env: &TestEnv, id: &str, ready: bool, attempt: u32) {
    env.fake.add_sandbox(SandboxSummary {
        id: id.into(),
        uid: "u1".into(),
        name: "web".into(),
        namespace: "default".into(),
        attempt,
        ready,
        created_at: at(i64::from(attempt)),
    });
}

fn removals(env: &TestEnv) -> Vec<String> {
    let calls = env.fake.calls();
    calls
        .into_iter()
        .filter(|c| !c.starts_with("list"))
        .collect()
}

fn known() -> KnownPods {
    KnownPods {
        known: BTreeSet::from(["u1".into()]),
        finished: BTreeSet::new(),
        sources_ready: true,
    }
}

fn unknown() -> KnownPods {
    KnownPods {
        sources_ready: true,
        ..KnownPods::default()
    }
}

#[tokio::test]
async fn running_pod_keeps_newest_dead_instance_and_its_log() {
    let env = TestEnv::new();
    let pods = observed(vec![
        seen("a", "a2", ContainerState::Running, 2),
        seen("a", "a1", ContainerState::Exited, 1),
        seen("a", "a0", ContainerState::Exited, 0),
    ]);
    let mut pods = pods;
    pods.containers[2].created_at = at(-90);
    env.files.put("/var/log/pods/default_web_u1/a/0.log", "x");
    env.files.put("/var/log/pods/default_web_u1/a/1.log", "x");
    let report = env.runtime.remove_older_dead_containers(&pods).await;
    assert_eq!(report.containers, 1);
    assert_eq!(removals(&env), ["remove a0"]);
    let log = |n| {
        env.files
            .get(format!("/var/log/pods/default_web_u1/a/{n}.log").as_ref())
    };
    assert!(log(0).is_none() && log(1).is_some());
}

#[tokio::test]
async fn removal_in_progress_is_not_reported_as_failure() {
    let env = TestEnv::new();
    let mut pods = observed(vec![
        seen("a", "a2", ContainerState::Running, 2),
        seen("a", "a1", ContainerState::Exited, 1),
        seen("a", "a0", ContainerState::Exited, 0),
    ]);
    pods.containers[2].created_at = at(-90);
    let removing = "failed to set removing state for container \"a0\": \
        container is already in removing state";
    for (code, message, failures) in [
        (CriCode::Other, removing, 0),
        (CriCode::NotFound, "an error occurred", 0),
        (CriCode::Other, "device or resource busy", 1),
    ] {
        env.fake.fail("remove a0", code, message);
        let report = env.runtime.remove_older_dead_containers(&pods).await;
        assert_eq!(report.failures.len(), failures, "{message}");
    }
}

#[tokio::test]
async fn removed_pod_keeps_no_dead_container_or_log() {
    let env = TestEnv::new();
    env.sync(&pod(&["a"]), nothing()).await;
    env.fake.forget_calls();
    add(&env, "a0", ContainerState::Exited, 0);
    add_sandbox(&env, "s0", false, 0);
    env.fake.fail("remove a0", CriCode::Other, "busy");
    let report = env.runtime.remove_remains(&"u1".into()).await;
    let report = report.expect_err("its container is left");
    assert_eq!(report.failures.len(), 1, "{report}");
    env.fake.heal("remove a0");
    let report = env.runtime.remove_remains(&"u1".into()).await;
    assert_eq!(
        report.expect("nothing is left").to_string(),
        "containers=1 sandboxes=1 log-dirs=1 links=0 failures=0"
    );
}

#[tokio::test]
async fn unknown_pod_is_removed_once_all_sources_are_ready() {
    let env = TestEnv::new();
    env.sync(&pod(&["a"]), nothing()).await;
    env.fake.forget_calls();
    add(&env, "a0", ContainerState::Exited, 0);
    add_sandbox(&env, "s0", false, 0);
    let report = env.runtime.collect_garbage(&KnownPods::default()).await;
    assert_eq!(
        report.to_string(),
        "containers=0 sandboxes=0 log-dirs=0 links=0 failures=0"
    );
    let report = env.runtime.collect_garbage(&known()).await;
    assert_eq!(
        report.to_string(),
        "containers=0 sandboxes=0 log-dirs=0 links=0 failures=0"
    );
    let report = env.runtime.collect_garbage(&unknown()).await;
    assert_eq!(
        report.to_string(),
        "containers=1 sandboxes=1 log-dirs=1 links=1 failures=0"
    );
    assert_eq!(
        removals(&env),
        ["remove a0", "stop-sandbox s0", "remove-sandbox s0"]
    );
    // the link of the unlisted instance `a` was removed with its log directory
    assert!(env.files.links().is_empty());
}

#[tokio::test]
async fn finished_pod_keeps_only_its_log_directory() {
    let env = TestEnv::new();
    env.sync(&pod(&["a"]), nothing()).await;
    env.fake.forget_calls();
    add(&env, "a0", ContainerState::Exited, 0);
    add_sandbox(&env, "s0", false, 0);
    let pods = KnownPods {
        finished: known().known,
        ..known()
    };
    let report = env.runtime.collect_garbage(&pods).await;
    assert_eq!(
        report.to_string(),
        "containers=1 sandboxes=1 log-dirs=0 links=1 failures=0"
    );
}

#[tokio::test]
async fn one_unstoppable_container_does_not_block_the_others() {
    let env = TestEnv::new();
    for attempt in 0..4 {
        add(
            &env,
            &format!("a{attempt}"),
            ContainerState::Exited,
            attempt,
        );
    }
    env.fake.fail("remove a1", CriCode::Other, "busy");
    env.fake.fail("remove a2", CriCode::NotFound, "gone");
    let report = env.runtime.collect_garbage(&known()).await;
    assert_eq!(report.containers, 2);
    assert_eq!(report.failures, ["container a1: test: busy"]);
}

#[tokio::test]
async fn runtime_list_failure_skips_garbage_collection() {
    let env = TestEnv::new();
    add(&env, "a0", ContainerState::Exited, 0);
    env.fake
        .fail("list-sandboxes", CriCode::Unavailable, "gone");
    let report = env.runtime.collect_garbage(&unknown()).await;
    assert_eq!(report.failures.len(), 1);
    assert!(removals(&env).is_empty());
}

#[tokio::test]
async fn pod_in_a_sync_is_never_garbage_collected() {
    let env = Arc::new(TestEnv::new());
    env.fake.hang("start");
    let task = tokio::spawn({
        let env = env.clone();
        async move { env.sync(&pod(&["a"]), nothing()).await }
    });
    until("the start", || {
        env.fake.calls().contains(&"start a".to_owned())
    })
    .await;
    add(&env, "a", ContainerState::Created, 0);
    let report = env.runtime.collect_garbage(&unknown()).await;
    assert_eq!(
        report.to_string(),
        "containers=0 sandboxes=0 log-dirs=0 links=0 failures=0"
    );
    task.abort();
    assert!(task.await.is_err());
    let report = env.runtime.collect_garbage(&unknown()).await;
    assert_eq!(report.containers, 1);
}

#[tokio::test]
async fn cleanup_removes_the_pod_directory_and_is_repeatable() {
    let env = TestEnv::new();
    env.sync(&pod(&["a"]), nothing()).await;
    assert_eq!(
        env.runtime.list_pod_dirs().await.expect("list"),
        known().known
    );
    for _ in 0..2 {
        env.runtime
            .cleanup_pod(&"u1".into())
            .await
            .expect("cleanup");
    }
    assert!(env.runtime.list_pod_dirs().await.expect("list").is_empty());
}
