//! References of a pod: ConfigMaps, Secrets, Services, tokens and its own fields.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::TokenReview;
use serde_json::{Value, json};
use std::time::Duration;

use windlass_client::{ObjectKey, Patch};
use windlass_types::corev1::{ConfigMap, Secret, Service};

use crate::objects::{HOLD, container_with, main_status, object, pod, uid};
use crate::test_env::{TestEnv, eventually};

const CLUSTER_IP: &str = "10.96.77.7";

/// Environment and volumes have the content of the references.
pub(crate) async fn are_resolved(env: &TestEnv) {
    let config: ConfigMap = object(json!({
        "metadata": { "name": "settings", "namespace": "default" },
        "data": { "COLOR": "blue", "SIZE": "9" },
    }));
    let secret: Secret = object(json!({
        "metadata": { "name": "keys", "namespace": "default" },
        "stringData": { "password": "hunter2" },
        "data": { "password": "aHVudGVyMg==" },
    }));
    let service: Service = object(json!({
        "metadata": { "name": "shop", "namespace": "default" },
        "spec": { "clusterIP": CLUSTER_IP, "ports": [{ "name": "web", "port": 8080 }] },
    }));
    env.create(&config).await;
    env.create(&secret).await;
    env.create(&service).await;
    let refers = env.create(&pod("refers", HOLD, spec())).await;
    env.pod_ready("refers").await;

    let variables = environment(&env.runtime.exec(uid(&refers), "env").await);
    for (name, value) in [
        ("COLOR", "blue"),
        ("WITH_SIZE", "9"),
        ("PASSWORD", "hunter2"),
        ("NODE", "node"),
        ("SHOP_SERVICE_HOST", CLUSTER_IP),
        ("SHOP_SERVICE_PORT_WEB", "8080"),
    ] {
        assert_eq!(
            variables.get(name).map(String::as_str),
            Some(value),
            "{name} in {variables:?}"
        );
    }
    assert!(
        !variables.contains_key("MISSING"),
        "optional key is missing: {variables:?}"
    );

    let read = async |path: &str| {
        let script = format!("cat {path}");
        env.runtime.exec(uid(&refers), &script).await
    };
    assert_eq!(read("/refs/config/COLOR").await, "blue");
    assert_eq!(read("/refs/secret/password").await, "hunter2");
    let root = ObjectKey::namespaced("default", "kube-root-ca.crt");
    let root = env.get::<ConfigMap>(root).await.expect("the root");
    assert_eq!(
        read("/refs/all/ca.crt").await,
        root["data"]["ca.crt"].as_str().unwrap_or("")
    );
    assert_eq!(read("/refs/all/labels").await, "app=\"refers\"");
    assert_eq!(read("/refs/all/namespace").await, "default");
    the_token_is_the_pods(env, &refers, &read("/refs/all/token").await).await;
    a_change_reaches_the_volume(env, &refers).await;
}

/// A pod waits for missing objects, reports them and starts once they exist.
pub(crate) async fn are_waited_for(env: &TestEnv) {
    let from = json!({ "configMapKeyRef": { "name": "later", "key": "k" } });
    let variables = json!({ "env": [{ "name": "K", "valueFrom": from }] });
    let in_env = json!({ "containers": [container_with(HOLD, variables)] });
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let in_volume = json!({
        "containers": [container_with(HOLD, mounts)],
        "volumes": [{ "name": "v", "configMap": { "name": "later" } }],
    });
    let by_env = env.create(&pod("waits-env", HOLD, in_env)).await;
    let by_volume = env.create(&pod("waits-volume", HOLD, in_volume)).await;
    let reason = |pod: &Value| main_status(pod)["state"]["waiting"]["reason"].clone();
    env.pod("waits-env", "waits for its ConfigMap", |pod| {
        reason(pod) == "CreateContainerConfigError"
    })
    .await;
    env.pod("waits-volume", "waits for its ConfigMap", |pod| {
        reason(pod) == "ContainerCreating"
    })
    .await;
    env.events(&by_env, &["Failed"]).await;
    env.events(&by_volume, &["FailedMount"]).await;
    let later: ConfigMap = object(json!({
        "metadata": { "name": "later", "namespace": "default" },
        "data": { "k": "v" },
    }));
    env.create(&later).await;
    tokio::join!(env.pod_ready("waits-env"), env.pod_ready("waits-volume"));
    let said = env.runtime.exec(uid(&by_env), "echo -n $K").await;
    assert_eq!(said, "v");
    let read = env.runtime.exec(uid(&by_volume), "cat /v/k").await;
    assert_eq!(read, "v");
}

fn spec() -> Value {
    let from_config = |key: &str, optional: bool| json!({ "configMapKeyRef": { "name": "settings", "key": key, "optional": optional } });
    let variables = json!([
        { "name": "COLOR", "valueFrom": from_config("COLOR", false) },
        { "name": "MISSING", "valueFrom": from_config("NO_SUCH_KEY", true) },
        { "name": "PASSWORD", "valueFrom": {
            "secretKeyRef": { "name": "keys", "key": "password" } } },
        { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
    ]);
    let all = json!({ "sources": [
        { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } },
        { "configMap": { "name": "kube-root-ca.crt" } },
        { "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } },
        ]}},
    ]});
    json!({
        "containers": [container_with(HOLD, json!({
            "env": variables,
            "envFrom": [
                { "prefix": "WITH_", "configMapRef": { "name": "settings" } },
                { "secretRef": { "name": "no-such-secret", "optional": true } },
            ],
            "volumeMounts": [
                { "name": "config", "mountPath": "/refs/config" },
                { "name": "secret", "mountPath": "/refs/secret" },
                { "name": "all", "mountPath": "/refs/all" },
            ],
        }))],
        "volumes": [
            { "name": "config", "configMap": { "name": "settings" } },
            { "name": "secret", "secret": { "secretName": "keys" } },
            { "name": "all", "projected": all },
        ],
    })
}

fn environment(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The API server accepts the token for this pod and its service account.
async fn the_token_is_the_pods(env: &TestEnv, pod: &Value, token: &str) {
    let review: TokenReview = object(json!({ "spec": { "token": token } }));
    let review = env.create(&review).await;
    let status = &review["status"];
    assert_eq!(status["authenticated"], true, "{status}");
    let user = &status["user"];
    assert_eq!(
        user["username"], "system:serviceaccount:default:default",
        "{user}"
    );
    // the fake returns only the user
    if env.cluster.fake().is_none() {
        let extra = &user["extra"];
        let of_pod = &extra["authentication.kubernetes.io/pod-uid"][0];
        assert_eq!(*of_pod, uid(pod), "{user}");
    }
}

async fn a_change_reaches_the_volume(env: &TestEnv, pod: &Value) {
    let at = ObjectKey::namespaced("default", "settings");
    let patch = Patch::Merge(json!({ "data": { "COLOR": "green" } }));
    env.api.patch::<ConfigMap>(at, None, &patch).await.unwrap();
    let look = async || {
        let now = env.runtime.exec(uid(pod), "cat /refs/config/COLOR").await;
        if now == "green" { Ok(()) } else { Err(now) }
    };
    // volumes are updated on the next sync
    let deadline = Duration::from_secs(30);
    eventually("the changed ConfigMap is in the volume", deadline, look).await;
}
