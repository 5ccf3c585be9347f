//! Pods that are deleted.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fixture::Fixture;
use crate::objects::{HOLD, STUBBORN, main_status, pod, uid};

/// What ends when it is told to goes at once; what does not has its grace period.
pub(crate) async fn gives_the_grace_period(fixture: &Fixture) {
    let grace = |seconds: u64| json!({ "terminationGracePeriodSeconds": seconds });
    fixture.create(&pod("obedient", HOLD, grace(30))).await;
    fixture.create(&pod("stubborn", STUBBORN, grace(4))).await;
    let obedient = fixture.pod_ready("obedient").await;
    let stubborn = fixture.pod_ready("stubborn").await;

    let asked = Instant::now();
    fixture.delete_pod("obedient", None).await;
    fixture.delete_pod("stubborn", None).await;
    fixture.pod_gone(&obedient).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(20), "obedient took {took:?}");
    fixture.pod_gone(&stubborn).await;
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(4), "stubborn had only {took:?}");
    assert!(took < Duration::from_secs(25), "stubborn took {took:?}");
    // its trap ends it with the code of the `wait` that the signal broke off
    assert_eq!(last_exit_code(fixture, &obedient), 143);
    assert_eq!(last_exit_code(fixture, &stubborn), 137);
    tokio::join!(
        fixture.runtime_stopped(&obedient),
        fixture.runtime_stopped(&stubborn)
    );
}

/// The exit code in the last version of a pod that is gone: the deletion is finished only when
/// the containers' end has been reported.
fn last_exit_code(fixture: &Fixture, pod: &Value) -> i64 {
    let seen = fixture.history.now();
    let last = seen.versions_of(uid(pod)).last().expect("versions");
    let main = main_status(last);
    let code = main["state"]["terminated"]["exitCode"].as_i64();
    code.unwrap_or_else(|| panic!("its last status is {}", last["status"]))
}

/// With a grace period of 0 the object is gone before the containers, which follow.
pub(crate) async fn by_force_is_at_once(fixture: &Fixture) {
    let patient = json!({ "terminationGracePeriodSeconds": 600 });
    fixture
        .create(&pod("forced", STUBBORN, patient.clone()))
        .await;
    fixture.create(&pod("hurried", STUBBORN, patient)).await;
    let forced = fixture.pod_ready("forced").await;
    let hurried = fixture.pod_ready("hurried").await;
    fixture.delete_pod("forced", Some(0)).await;
    tokio::join!(fixture.pod_gone(&forced), fixture.runtime_stopped(&forced));
    // a grace period that runs is cut short by a second deletion
    fixture.delete_pod("hurried", None).await;
    fixture
        .pod("hurried", "is being deleted", |pod| {
            pod["metadata"]["deletionGracePeriodSeconds"] == 600
        })
        .await;
    fixture.delete_pod("hurried", Some(1)).await;
    tokio::join!(
        fixture.pod_gone(&hurried),
        fixture.runtime_stopped(&hurried)
    );
}

/// A deletion at any moment of a start leaves nothing behind.
pub(crate) async fn while_starting(fixture: &Fixture) {
    let deletions = (0..8).map(|n| async move {
        let name = format!("fleeting-{n}");
        let created = fixture.create(&pod(&name, HOLD, json!({}))).await;
        // from before the agent knows it until it runs
        tokio::time::sleep(Duration::from_millis(n * 60)).await;
        let grace = if n % 3 == 2 { Some(0) } else { None };
        fixture.delete_pod(&name, grace).await;
        tokio::join!(
            fixture.pod_gone(&created),
            fixture.runtime_stopped(&created)
        );
    });
    futures::future::join_all(deletions).await;
}
