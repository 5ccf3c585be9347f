//! The API server goes away and comes back: what is on the node does not notice.

use std::time::Duration;

use serde_json::json;
use windlass_testing::pod_watch::PodTable;

use crate::control_plane::Kind;
use crate::fixture::{Credentials, Fixture, SOON};
use crate::mirrors;
use crate::objects::{HOLD, main_status, phase, pod, uid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_outage_affects_no_pod() {
    outage_affects_no_pod(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_outage_affects_no_pod() {
    outage_affects_no_pod(Kind::Real).await;
}

async fn outage_affects_no_pod(kind: Kind) {
    let prepared = Fixture::prepare(kind, "k-outages", Credentials::Certificate).await;
    let Some(mut fixture) = prepared else {
        return;
    };
    down_at_start(&mut fixture).await;
    mirrors::follow_their_static_pods(&fixture).await;
    down_while_pods_change(&mut fixture).await;
    fixture.stop().await;
}

/// The static pod runs long before there is an API server.
async fn down_at_start(fixture: &mut Fixture) {
    fixture.cluster.outage(true).await;
    fixture.apply("static.json", &pod("static", HOLD, json!({})));
    fixture.agent.spawn().unwrap();
    let ready = |table: &PodTable| table.pod("static").is_some_and(|pod| pod.ready);
    let waited = fixture
        .watch
        .wait_for("the static pod is ready", SOON, ready);
    waited.await.unwrap();
    fixture.cluster.outage(false).await;
    fixture.node_ready().await;
}

async fn down_while_pods_change(fixture: &mut Fixture) {
    let never = json!({ "restartPolicy": "Never" });
    fixture.create(&pod("steady", HOLD, json!({}))).await;
    fixture.create(&pod("crashes", HOLD, json!({}))).await;
    fixture.create(&pod("ends", HOLD, never)).await;
    let steady = fixture.pod_ready("steady").await;
    let crashes = fixture.pod_ready("crashes").await;
    let ends = fixture.pod_ready("ends").await;

    fixture.cluster.outage(true).await;
    fixture.runtime.crash(uid(&crashes)).await;
    fixture.runtime.crash(uid(&ends)).await;
    let of = |table: &PodTable, uid: &str| table.pods.get(uid).cloned();
    let (crashed, ended) = (uid(&crashes), uid(&ends));
    let changed = |table: &PodTable| {
        let restarted = of(table, crashed).is_some_and(|pod| pod.ready && pod.restarts() == 1);
        restarted && of(table, ended).is_some_and(|pod| pod.phase == "Failed")
    };
    let waited = fixture
        .watch
        .wait_for("the agent sees both changes", SOON, changed);
    waited.await.unwrap();
    // long enough for the requests of that time to be refused more than once
    tokio::time::sleep(Duration::from_secs(3)).await;
    if let Some(api) = fixture.cluster.fake() {
        api.clear_requests();
    }
    fixture.cluster.outage(false).await;

    fixture
        .pod("crashes", "shows its restart", |pod| {
            main_status(pod)["restartCount"] == 1 && phase(pod) == "Running"
        })
        .await;
    let end = fixture
        .pod("ends", "is Failed", |pod| phase(pod) == "Failed")
        .await;
    assert_eq!(
        main_status(&end)["state"]["terminated"]["exitCode"],
        137,
        "{end}"
    );
    let after = fixture.pod_ready("steady").await;
    assert_eq!(
        main_status(&after)["containerID"],
        main_status(&steady)["containerID"]
    );
    if let Some(api) = fixture.cluster.fake() {
        for (name, count) in [("crashes", 1), ("ends", 1), ("steady", 0)] {
            let path = format!("/api/v1/namespaces/default/pods/{name}/status");
            let all = api.requests().into_iter();
            let patches: Vec<_> = all
                .filter(|r| r.path == path && r.method == "PATCH")
                .collect();
            assert_eq!(patches.len(), count, "{name} caught up in: {patches:?}");
        }
    }
    // and the server is heard again
    fixture.create(&pod("afterwards", HOLD, json!({}))).await;
    fixture.pod_ready("afterwards").await;
}
