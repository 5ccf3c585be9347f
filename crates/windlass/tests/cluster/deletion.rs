//! Deleted pods.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::objects::{HOLD, STUBBORN, main_status, pod, uid};
use crate::test_env::TestEnv;

/// Containers that handle SIGTERM end at once, others after the grace period.
pub(crate) async fn gives_the_grace_period(env: &TestEnv) {
    let grace = |seconds: u64| json!({ "terminationGracePeriodSeconds": seconds });
    env.create(&pod("obedient", HOLD, grace(30))).await;
    env.create(&pod("stubborn", STUBBORN, grace(4))).await;
    let obedient = env.pod_ready("obedient").await;
    let stubborn = env.pod_ready("stubborn").await;

    let asked = Instant::now();
    env.delete_pod("obedient", None).await;
    env.delete_pod("stubborn", None).await;
    env.pod_gone(&obedient).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(20), "obedient took {took:?}");
    env.pod_gone(&stubborn).await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(4), "stubborn had only {took:?}");
    assert!(took < Duration::from_secs(25), "stubborn took {took:?}");
    // its trap exits with the code of the interrupted `wait`
    assert_eq!(last_exit_code(env, &obedient), 143);
    assert_eq!(last_exit_code(env, &stubborn), 137);
    tokio::join!(
        env.runtime_stopped(&obedient),
        env.runtime_stopped(&stubborn)
    );
}

/// Exit code in the last version of a deleted pod: the deletion is finished only when
/// the exit of the containers is reported.
fn last_exit_code(env: &TestEnv, pod: &Value) -> i64 {
    let seen = env.history.now();
    let last = seen.versions_of(uid(pod)).last().expect("versions");
    let main = main_status(last);
    let code = main["state"]["terminated"]["exitCode"].as_i64();
    code.unwrap_or_else(|| panic!("its last status is {}", last["status"]))
}

/// With a grace period of 0 the object is removed before the containers.
pub(crate) async fn by_force_is_at_once(env: &TestEnv) {
    let patient = json!({ "terminationGracePeriodSeconds": 600 });
    env.create(&pod("forced", STUBBORN, patient.clone())).await;
    env.create(&pod("hurried", STUBBORN, patient)).await;
    let forced = env.pod_ready("forced").await;
    let hurried = env.pod_ready("hurried").await;
    env.delete_pod("forced", Some(0)).await;
    tokio::join!(env.pod_gone(&forced), env.runtime_stopped(&forced));
    // a second deletion shortens a running grace period
    env.delete_pod("hurried", None).await;
    env.pod("hurried", "is being deleted", |pod| {
        pod["metadata"]["deletionGracePeriodSeconds"] == 600
    })
    .await;
    env.delete_pod("hurried", Some(1)).await;
    tokio::join!(env.pod_gone(&hurried), env.runtime_stopped(&hurried));
}

/// A deletion at any moment of a start leaves nothing behind.
pub(crate) async fn while_starting(env: &TestEnv) {
    let deletions = (0..8).map(|n| async move {
        let name = format!("fleeting-{n}");
        let created = env.create(&pod(&name, HOLD, json!({}))).await;
        // from creation until it runs
        tokio::time::sleep(Duration::from_millis(n * 60)).await;
        let grace = if n % 3 == 2 { Some(0) } else { None };
        env.delete_pod(&name, grace).await;
        tokio::join!(env.pod_gone(&created), env.runtime_stopped(&created));
    });
    futures::future::join_all(deletions).await;
}
