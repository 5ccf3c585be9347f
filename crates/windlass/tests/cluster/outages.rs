//! API server outages do not affect pods.

use std::time::Duration;

use serde_json::json;
use windlass_testing::pod_watch::PodTable;

use crate::control_plane::Kind;
use crate::mirrors;
use crate::objects::{HOLD, main_status, phase, pod, uid};
use crate::test_env::{Credentials, SOON, TestEnv};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_outage_affects_no_pod() {
    outage_affects_no_pod(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_outage_affects_no_pod() {
    outage_affects_no_pod(Kind::Real).await;
}

async fn outage_affects_no_pod(kind: Kind) {
    let prepared = TestEnv::prepare(kind, "k-outages", Credentials::Certificate).await;
    let Some(mut env) = prepared else {
        return;
    };
    down_at_start(&mut env).await;
    mirrors::follow_their_static_pods(&env).await;
    down_while_pods_change(&mut env).await;
    env.stop().await;
}

/// The static pod runs long before there is an API server.
async fn down_at_start(env: &mut TestEnv) {
    env.cluster.outage(true).await;
    env.apply("static.json", &pod("static", HOLD, json!({})));
    env.agent.spawn().unwrap();
    let ready = |table: &PodTable| table.pod("static").is_some_and(|pod| pod.ready);
    let waited = env.watch.wait_for("the static pod is ready", SOON, ready);
    waited.await.unwrap();
    env.cluster.outage(false).await;
    env.node_ready().await;
}

async fn down_while_pods_change(env: &mut TestEnv) {
    let never = json!({ "restartPolicy": "Never" });
    env.create(&pod("steady", HOLD, json!({}))).await;
    env.create(&pod("crashes", HOLD, json!({}))).await;
    env.create(&pod("ends", HOLD, never)).await;
    let steady = env.pod_ready("steady").await;
    let crashes = env.pod_ready("crashes").await;
    let ends = env.pod_ready("ends").await;

    env.cluster.outage(true).await;
    env.runtime.crash(uid(&crashes)).await;
    env.runtime.crash(uid(&ends)).await;
    let of = |table: &PodTable, uid: &str| table.pods.get(uid).cloned();
    let (crashed, ended) = (uid(&crashes), uid(&ends));
    let changed = |table: &PodTable| {
        let restarted = of(table, crashed).is_some_and(|pod| pod.ready && pod.restarts() == 1);
        restarted && of(table, ended).is_some_and(|pod| pod.phase == "Failed")
    };
    let waited = env
        .watch
        .wait_for("the agent sees both changes", SOON, changed);
    waited.await.unwrap();
    // long enough for several failed requests
    tokio::time::sleep(Duration::from_secs(3)).await;
    if let Some(api) = env.cluster.fake() {
        api.clear_requests();
    }
    env.cluster.outage(false).await;

    env.pod("crashes", "shows its restart", |pod| {
        main_status(pod)["restartCount"] == 1 && phase(pod) == "Running"
    })
    .await;
    let end = env
        .pod("ends", "is Failed", |pod| phase(pod) == "Failed")
        .await;
    assert_eq!(
        main_status(&end)["state"]["terminated"]["exitCode"],
        137,
        "{end}"
    );
    let after = env.pod_ready("steady").await;
    assert_eq!(
        main_status(&after)["containerID"],
        main_status(&steady)["containerID"]
    );
    // the API server is reachable again
    env.create(&pod("afterwards", HOLD, json!({}))).await;
    env.pod_ready("afterwards").await;
    // it records a request after its response, so these are complete only now
    if let Some(api) = env.cluster.fake() {
        for (name, count) in [("crashes", 1), ("ends", 1), ("steady", 0)] {
            let path = format!("/api/v1/namespaces/default/pods/{name}/status");
            let all = api.requests().into_iter();
            let patches: Vec<_> = all
                .filter(|r| r.path == path && r.method == "PATCH")
                .collect();
            assert_eq!(patches.len(), count, "{name} caught up in: {patches:?}");
        }
    }
}
