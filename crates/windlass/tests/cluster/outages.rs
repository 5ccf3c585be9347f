//! The API server goes away and comes back: what is on the node does not notice.

use std::time::Duration;

use serde_json::json;
use windlass_testing::pod_watch::PodTable;

use crate::bed::{Bed, Credentials, SOON};
use crate::control_plane::Kind;
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
    let prepared = Bed::prepare(kind, "k-outages", Credentials::Certificate).await;
    let Some(mut bed) = prepared else {
        return;
    };
    down_at_start(&mut bed).await;
    mirrors::follow_their_static_pods(&bed).await;
    down_while_pods_change(&mut bed).await;
    bed.stop().await;
}

/// The static pod runs long before there is an API server.
async fn down_at_start(bed: &mut Bed) {
    bed.cluster.outage(true).await;
    bed.apply("static.json", &pod("static", HOLD, json!({})));
    bed.agent.spawn().unwrap();
    let ready = |table: &PodTable| table.pod("static").is_some_and(|pod| pod.ready);
    let waited = bed.watch.wait_for("the static pod is ready", SOON, ready);
    waited.await.unwrap();
    bed.cluster.outage(false).await;
    bed.node_ready().await;
}

async fn down_while_pods_change(bed: &mut Bed) {
    let never = json!({ "restartPolicy": "Never" });
    bed.create(&pod("steady", HOLD, json!({}))).await;
    bed.create(&pod("crashes", HOLD, json!({}))).await;
    bed.create(&pod("ends", HOLD, never)).await;
    let steady = bed.pod_ready("steady").await;
    let crashes = bed.pod_ready("crashes").await;
    let ends = bed.pod_ready("ends").await;

    bed.cluster.outage(true).await;
    bed.runtime.crash(uid(&crashes)).await;
    bed.runtime.crash(uid(&ends)).await;
    let of = |table: &PodTable, uid: &str| table.pods.get(uid).cloned();
    let (crashed, ended) = (uid(&crashes), uid(&ends));
    let changed = |table: &PodTable| {
        let restarted = of(table, crashed).is_some_and(|pod| pod.ready && pod.restarts() == 1);
        restarted && of(table, ended).is_some_and(|pod| pod.phase == "Failed")
    };
    let waited = bed
        .watch
        .wait_for("the agent sees both changes", SOON, changed);
    waited.await.unwrap();
    // long enough for the requests of that time to be refused more than once
    tokio::time::sleep(Duration::from_secs(3)).await;
    if let Some(api) = bed.cluster.fake() {
        api.clear_requests();
    }
    bed.cluster.outage(false).await;

    bed.pod("crashes", "shows its restart", |pod| {
        main_status(pod)["restartCount"] == 1 && phase(pod) == "Running"
    })
    .await;
    let end = bed
        .pod("ends", "is Failed", |pod| phase(pod) == "Failed")
        .await;
    assert_eq!(
        main_status(&end)["state"]["terminated"]["exitCode"],
        137,
        "{end}"
    );
    let after = bed.pod_ready("steady").await;
    assert_eq!(
        main_status(&after)["containerID"],
        main_status(&steady)["containerID"]
    );
    if let Some(api) = bed.cluster.fake() {
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
    bed.create(&pod("afterwards", HOLD, json!({}))).await;
    bed.pod_ready("afterwards").await;
}
