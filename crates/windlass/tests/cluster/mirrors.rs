//! Static pods and their mirror pods.

use serde_json::{Value, json};
use windlass_client::ObjectKey;
use windlass_testing::agent::NODE_NAME;
use windlass_types::corev1::Node;

use crate::objects::{HOLD, is_ready, main_status, pod, uid};
use crate::test_env::TestEnv;

const NAME: &str = "static-node";
const HASH: &str = "kubernetes.io/config.hash";

/// A mirror pod follows its static pod, not the other way.
pub(crate) async fn follow_their_static_pods(env: &TestEnv) {
    let mirror = env.pod(NAME, "is a ready mirror pod", is_ready).await;
    stands_for_the_static_pod(env, &mirror).await;

    // deleted manually: recreated without an effect on containers
    let id = main_status(&mirror)["containerID"].clone();
    env.delete_pod(NAME, None).await;
    let next = env
        .pod(NAME, "has a new mirror pod", |pod| {
            uid(pod) != uid(&mirror) && is_ready(pod)
        })
        .await;
    assert_eq!(main_status(&next)["containerID"], id, "{next}");

    // another manifest is another pod with another mirror pod
    let hash = hash(&next).to_owned();
    let more = json!({ "terminationGracePeriodSeconds": 1 });
    env.apply("static.json", &pod("static", HOLD, more));
    let changed = env
        .pod(NAME, "has a mirror pod of the new manifest", |pod| {
            self::hash(pod) != hash && is_ready(pod)
        })
        .await;
    assert_ne!(uid(&changed), uid(&next));
    assert_ne!(main_status(&changed)["containerID"], id, "{changed}");

    env.remove("static.json");
    env.pod_gone(&changed).await;
    let static_uid = self::hash(&changed);
    let what = "the static pod is gone from the runtime";
    crate::test_env::eventually(what, crate::test_env::SOON, async || {
        let left = env.runtime.containers(static_uid).await;
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}

fn hash(mirror: &Value) -> &str {
    mirror["metadata"]["annotations"][HASH]
        .as_str()
        .unwrap_or_default()
}

async fn stands_for_the_static_pod(env: &TestEnv, mirror: &Value) {
    let annotations = &mirror["metadata"]["annotations"];
    assert!(!hash(mirror).is_empty(), "{annotations}");
    assert_eq!(
        annotations["kubernetes.io/config.mirror"],
        annotations[HASH]
    );
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    let node = env
        .get::<Node>(ObjectKey::cluster(NODE_NAME))
        .await
        .expect("a node");
    let owners = mirror["metadata"]["ownerReferences"]
        .as_array()
        .expect("owners");
    assert_eq!(owners.len(), 1, "{owners:?}");
    assert_eq!(owners[0]["kind"], "Node");
    assert_eq!(owners[0]["name"], NODE_NAME);
    assert_eq!(owners[0]["uid"], uid(&node));
    assert_eq!(owners[0]["controller"], true);
    assert_eq!(mirror["spec"]["nodeName"], NODE_NAME);
    // the runtime knows it by the UID of the static pod
    let running = env.runtime.running(hash(mirror)).await;
    assert_eq!(
        running.len(),
        1,
        "containers of the static pod: {running:?}"
    );
    let id = format!("containerd://{}", running[0].id);
    assert_eq!(main_status(mirror)["containerID"], id);
}
