//! The effects of each verb, by HTTP status, events and state.

use crate::call::{Caller, Events};
use serde_json::{Value, json};
use windlass_fake_api::{FakeApiServer, User};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "nodeName": "n1", "containers": [{ "name": "a", "image": "busybox:1" }] },
    })
}

fn setup() -> (FakeApiServer, Caller) {
    let server = FakeApiServer::new();
    let caller = Caller::new(&server, User::admin());
    (server, caller)
}

#[tokio::test(start_paused = true)]
async fn new_object_gets_server_fields() {
    let (_server, api) = setup();
    let (code, made) = api.post(PODS, pod("a")).await;
    assert_eq!(code, 201);
    assert_eq!(made["apiVersion"], "v1");
    assert_eq!(made["kind"], "Pod");
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["generation"], 1);
    for given in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata[given].is_string(), "{given}");
    }
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(
        made["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    assert_eq!(
        made["status"],
        json!({ "phase": "Pending", "qosClass": "BestEffort" })
    );

    let (code, status) = api.post(PODS, pod("a")).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));
    let generated = json!({ "metadata": { "generateName": "g-" } });
    let (_, one) = api.post(MAPS, generated.clone()).await;
    let (_, two) = api.post(MAPS, generated).await;
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
    assert_eq!(one["metadata"]["generation"], Value::Null);
    let (code, _) = api.post(MAPS, json!({ "metadata": {} })).await;
    assert_eq!(code, 422);
    let (code, _) = api.get("/api/v1/namespaces/kube-node-lease").await;
    assert_eq!(code, 200);
}

#[tokio::test(start_paused = true)]
async fn update_keeps_server_fields_and_needs_the_newest_version() {
    let (_server, api) = setup();
    let (_, made) = api.post(PODS, pod("a")).await;
    let path = format!("{PODS}/a");
    let mut new = made.clone();
    new["spec"]["priority"] = json!(5);
    new["status"]["phase"] = json!("Running");
    new["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    let (code, updated) = api.put(&path, new.clone()).await;
    assert_eq!(code, 200);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated["status"]["phase"], "Pending");
    assert_eq!(
        updated["metadata"]["creationTimestamp"],
        made["metadata"]["creationTimestamp"]
    );

    // the same body has an outdated version now
    let (code, status) = api.put(&path, new).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));

    let mut status = updated.clone();
    status["status"]["phase"] = json!("Running");
    status["spec"]["priority"] = json!(9);
    status["metadata"]["labels"] = json!({ "a": "b" });
    let (_, updated) = api.put(&format!("{path}/status"), status).await;
    assert_eq!(updated["status"]["phase"], "Running");
    assert_eq!(updated["spec"]["priority"], 5);
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(updated["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn lease_update_needs_a_version_and_may_create_it() {
    let (_server, api) = setup();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let lease = json!({ "metadata": { "name": "n1", "namespace": "kube-node-lease" }, "spec": {} });
    let (code, _) = api.put(path, lease.clone()).await;
    assert_eq!(code, 201);
    let (code, _) = api.put(path, lease).await;
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn patches_check_uid_and_version_and_skip_no_change() {
    let (server, api) = setup();
    let (_, made) = api.post(PODS, pod("a")).await;
    let path = format!("{PODS}/a/status");
    let strategic = "application/strategic-merge-patch+json";
    for (wrong, code) in [
        (json!({ "metadata": { "uid": "other" } }), 409),
        (json!({ "metadata": { "resourceVersion": "1" } }), 409),
    ] {
        assert_eq!(api.patch(&path, strategic, wrong).await.0, code);
    }
    let version = server.version();
    let same = json!({
        "metadata": { "uid": made["metadata"]["uid"], "labels": {} },
        "status": { "phase": "Pending", "conditions": [], "message": null },
    });
    let (code, patched) = api.patch(&path, strategic, same).await;
    assert_eq!(code, 200);
    assert_eq!(
        patched["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    assert_eq!(server.version(), version);

    let merge = json!({ "metadata": { "annotations": { "x": "y" } } });
    let (_, patched) = api
        .patch(&format!("{PODS}/a"), "application/merge-patch+json", merge)
        .await;
    assert_eq!(patched["metadata"]["annotations"]["x"], "y");
    let ops = json!([
        { "op": "test", "path": "/metadata/annotations/x", "value": "y" },
        { "op": "add", "path": "/spec/containers/-", "value": { "name": "b" } },
        { "op": "remove", "path": "/metadata/annotations/x" },
    ]);
    let (_, patched) = api
        .patch(&format!("{PODS}/a"), "application/json-patch+json", ops)
        .await;
    assert_eq!(patched["spec"]["containers"][1]["name"], "b");
    assert_eq!(patched["metadata"]["annotations"], Value::Null);
    assert_eq!(api.patch(&path, "text/plain", json!({})).await.0, 415);
    assert_eq!(
        api.patch(&format!("{PODS}/b"), strategic, json!({}))
            .await
            .0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_grace_period_depends_on_the_pod_phase() {
    // changes to the pod, requested grace period, resulting grace period (none: deleted)
    for (change, asked, expected) in [
        (json!({}), None, Some(30)),
        (
            json!({ "spec": { "terminationGracePeriodSeconds": 7 } }),
            None,
            Some(7),
        ),
        (json!({}), Some(3), Some(3)),
        (json!({}), Some(-1), Some(1)),
        (json!({}), Some(0), None),
        (json!({ "spec": { "nodeName": "" } }), Some(10), None),
        (json!({ "status": { "phase": "Succeeded" } }), None, None),
        (json!({ "status": { "phase": "Failed" } }), Some(10), None),
    ] {
        let (server, api) = setup();
        let mut body = pod("a");
        if let Value::Object(spec) = &change["spec"] {
            for (key, value) in spec {
                body["spec"][key] = value.clone();
            }
        }
        api.post(PODS, body).await;
        let merge = "application/merge-patch+json";
        api.patch(
            &format!("{PODS}/a/status"),
            merge,
            json!({ "status": change["status"] }),
        )
        .await;
        let options = json!({ "gracePeriodSeconds": asked });
        let (code, _) = api.delete(&format!("{PODS}/a"), options).await;
        assert_eq!(code, 200, "{change} {asked:?}");
        let (_, left) = api.get(&format!("{PODS}/a")).await;
        let grace = left["metadata"]["deletionGracePeriodSeconds"].as_i64();
        assert_eq!(grace, expected, "{change} {asked:?}");
        drop(server);
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_in_progress_can_only_be_shortened() {
    let (_server, api) = setup();
    api.post(PODS, pod("a")).await;
    let path = format!("{PODS}/a");
    let mut events = Events::begin(&api, &format!("{PODS}?watch=1&resourceVersion=0")).await;
    assert_eq!(events.next_line().await, "ADDED a");
    let (_, first) = api.delete(&path, json!({ "gracePeriodSeconds": 20 })).await;
    assert_eq!(first["metadata"]["generation"], 2);
    let (_, longer) = api.delete(&path, json!({ "gracePeriodSeconds": 40 })).await;
    assert_eq!(longer, first);
    let (_, again) = api.delete(&path, json!({})).await;
    assert_eq!(again, first);
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    let (_, shorter) = api.delete(&path, json!({ "gracePeriodSeconds": 5 })).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let at = |pod: &Value| -> windlass_types::Timestamp {
        pod["metadata"]["deletionTimestamp"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    };
    assert_eq!((at(&first) - at(&shorter)).get_seconds(), 15);
    api.delete(&path, json!({ "gracePeriodSeconds": 0 })).await;
    for expected in ["MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(events.next_line().await, expected);
    }
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn preconditions_and_finalizers_block_a_deletion() {
    let (_server, api) = setup();
    let map = json!({ "metadata": { "name": "c", "finalizers": ["x/y"] } });
    let (_, made) = api.post(MAPS, map).await;
    let path = format!("{MAPS}/c");
    for wrong in [json!({ "uid": "other" }), json!({ "resourceVersion": "1" })] {
        let (code, _) = api.delete(&path, json!({ "preconditions": wrong })).await;
        assert_eq!(code, 409);
    }
    let uid = &made["metadata"]["uid"];
    let (code, _) = api
        .delete(&path, json!({ "preconditions": { "uid": uid } }))
        .await;
    assert_eq!(code, 200);
    let (_, left) = api.get(&path).await;
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    let done = json!({ "metadata": { "finalizers": null } });
    api.patch(&path, "application/merge-patch+json", done).await;
    assert_eq!(api.get(&path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn lists_have_the_requested_version() {
    let (server, api) = setup();
    api.post(PODS, pod("a")).await;
    let version = server.version();
    for (query, code) in [
        ("", 200),
        ("?resourceVersion=0", 200),
        (
            &format!("?resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
            200,
        ),
        (&format!("?resourceVersion={}", version + 5), 504),
        ("?resourceVersion=x", 400),
        ("?fieldSelector=spec.nodeName%3Dn2", 200),
        ("?fieldSelector=spec.nothing%3Dn2", 400),
    ] {
        let (got, list) = api.get(&format!("{PODS}{query}")).await;
        assert_eq!(got, code, "{query}");
        if code == 200 {
            let others = query.contains("n2");
            assert_eq!(list["kind"], "PodList");
            assert_eq!(
                list["items"].as_array().unwrap().len(),
                usize::from(!others)
            );
            assert_eq!(list["metadata"]["resourceVersion"], version.to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_and_methods_are_rejected() {
    let (_server, api) = setup();
    assert_eq!(api.get("/nothing").await.0, 404);
    assert_eq!(api.get(&format!("{PODS}/a")).await.0, 404);
    assert_eq!(api.put(PODS, json!({})).await.0, 405);
    assert_eq!(api.get("/readyz").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn status_with_a_restarted_terminated_container_is_rejected() {
    let (_server, api) = setup();
    let rule = |action: &str| {
        json!({
            "restartPolicy": "Never",
            "restartPolicyRules": [
                { "action": action, "exitCodes": { "operator": "In", "values": [42] } },
            ],
        })
    };
    let none = json!({});
    for (at, (policy, list, own, exit, code)) in [
        ("Never", "containers", &none, 1, 422),
        ("OnFailure", "containers", &none, 0, 422),
        ("OnFailure", "containers", &none, 1, 200),
        ("Always", "containers", &none, 0, 200),
        ("OnFailure", "initContainers", &none, 0, 422),
        (
            "Never",
            "initContainers",
            &json!({ "restartPolicy": "Always" }),
            0,
            200,
        ),
        ("Never", "ephemeralContainers", &none, 0, 422),
        ("Never", "containers", &rule("Restart"), 42, 200),
        ("Never", "containers", &rule("Restart"), 7, 422),
        ("Never", "containers", &rule("RestartAllContainers"), 7, 200),
    ]
    .into_iter()
    .enumerate()
    {
        let mut pod = pod(&format!("p{at}"));
        let mut container = json!({ "name": "b", "image": "busybox:1" });
        for (key, value) in own.as_object().unwrap() {
            container[key] = value.clone();
        }
        pod["spec"]["restartPolicy"] = json!(policy);
        pod["spec"][list] = json!([container]);
        if list != "containers" {
            pod["spec"]["containers"] = json!([{ "name": "a", "image": "busybox:1" }]);
        }
        assert_eq!(api.post(PODS, pod).await.0, 201);
        let path = format!("{PODS}/p{at}/status");
        let statuses = format!("{}Statuses", list.trim_end_matches('s'));
        let status =
            |state: Value| json!({ "status": { &statuses: [{ "name": "b", "state": state }] } });
        let merge = "application/merge-patch+json";
        let ended = status(json!({ "terminated": { "exitCode": exit } }));
        assert_eq!(api.patch(&path, merge, ended).await.0, 200);
        let back = status(json!({ "running": {} }));
        let (answer, _) = api.patch(&path, merge, back).await;
        assert_eq!(answer, code, "{policy} {list} {own} {exit}");
    }
}
