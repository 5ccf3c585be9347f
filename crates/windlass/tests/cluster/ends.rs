//! Pods that terminate on their own.

use serde_json::json;

use crate::objects::{main_status, phase, pod, uid};
use crate::test_env::TestEnv;

/// Pods that do not restart end as Succeeded or Failed, with their termination messages.
pub(crate) async fn follow_the_restart_policy(env: &TestEnv) {
    let policy = |policy: &str| json!({ "restartPolicy": policy });
    let scratch = json!({
        "restartPolicy": "OnFailure",
        "containers": [crate::objects::container_with(
            "test -e /v/again && exit 0; touch /v/again; exit 4",
            json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }),
        )],
        "volumes": [{ "name": "v", "emptyDir": {} }],
    });
    let pods = [
        (
            pod("never-well", "exit 0", policy("Never")),
            "Succeeded",
            0,
            "Completed",
            0,
        ),
        (
            pod("never-badly", "exit 3", policy("Never")),
            "Failed",
            3,
            "Error",
            0,
        ),
        (
            pod("once-more", "", scratch),
            "Succeeded",
            0,
            "Completed",
            1,
        ),
    ];
    for (pod, ..) in &pods {
        env.create(pod).await;
    }
    for (pod, end, code, reason, restarts) in &pods {
        let name = pod.metadata.name.as_deref().expect("a name");
        let ended = env.pod(name, "has ended", |pod| phase(pod) == *end).await;
        let main = main_status(&ended);
        let terminated = &main["state"]["terminated"];
        assert_eq!(terminated["exitCode"], *code, "{name}: {main}");
        assert_eq!(terminated["reason"], *reason, "{name}: {main}");
        assert_eq!(main["restartCount"], *restarts, "{name}: {main}");
        assert_eq!(main["ready"], false, "{name}: {main}");
        for time in ["startedAt", "finishedAt"] {
            assert!(terminated[time].is_string(), "{name}: {main}");
        }
        // a phase is terminal only when no container runs
        let running = env.runtime.running(uid(&ended)).await;
        assert!(running.is_empty(), "{name} ended with {running:?}");
    }
}
