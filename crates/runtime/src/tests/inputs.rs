//! References of a pod: variables, credentials, the RuntimeClass.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_credentials::credentials::{DockerConfigFormat, Keyring};
use windlass_cri::error::CriCode;
use windlass_pod_inputs::projection::{ConfigMapContent, SecretContent};
use windlass_types::Pod;

use super::{TestEnv, line, nothing, request, until};
use crate::SyncPodRequest;
use windlass_runtime_config::port::PodInputs;

fn pod_from(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": spec,
    }))
    .expect("pod")
}

fn data(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = list.iter();
    pairs
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn config_map(key: &str, value: &str) -> Arc<ConfigMapContent> {
    Arc::new(ConfigMapContent {
        data: [(key.to_owned(), value.into())].into(),
        ..ConfigMapContent::default()
    })
}

fn secret(key: &str, value: &str) -> Arc<SecretContent> {
    Arc::new(SecretContent {
        data: [(key.to_owned(), value.as_bytes().into())].into(),
        ..SecretContent::default()
    })
}

/// Inputs with a docker config: users by registry pattern.
fn with_users(users: &[(&str, &str)]) -> PodInputs {
    let entry = |(pattern, user): &(&str, &str)| {
        let auth = json!({"username": user, "password": "hunter2"});
        ((*pattern).to_owned(), auth)
    };
    let auths: serde_json::Map<String, Value> = users.iter().map(entry).collect();
    let text = json!({"auths": auths}).to_string();
    let read = Keyring::from_file(DockerConfigFormat::ConfigJson, text.as_bytes(), "test");
    assert!(read.errors.is_empty(), "{:?}", read.errors);
    PodInputs {
        keyring: read.keyring,
        ..PodInputs::default()
    }
}

fn pulls(env: &TestEnv) -> Vec<String> {
    let mut calls = env.fake.calls();
    calls.retain(|call| call.starts_with("pull"));
    calls
}

#[tokio::test]
async fn env_from_objects_reports_missing_ones_like_upstream() {
    let pod = pod_from(json!({"containers": [{
        "name": "a", "image": "web:1",
        "envFrom": [{"configMapRef": {"name": "conf"}, "prefix": "C_"}],
        "env": [{"name": "PW", "valueFrom": {"secretKeyRef": {"name": "pw", "key": "k"}}}],
    }]}));
    let env = TestEnv::new();
    let mut inputs = PodInputs::default();
    let outcome = env.sync_inputs(&pod, nothing(), inputs.clone()).await;
    assert_eq!(
        line(&env, &outcome),
        "CreateContainerConfigError container=a retry=later: configmap \"conf\" not found | again in 10s"
    );
    let events = env.events.take();
    let expected = "W Failed a: Error: configmap \"conf\" not found".to_owned();
    assert!(events.contains(&expected), "{events:?}");

    inputs
        .env
        .config_maps
        .insert("conf".into(), config_map("a.b", "1"));
    inputs.env.secrets.insert("pw".into(), Arc::default());
    let outcome = env.sync_inputs(&pod, nothing(), inputs.clone()).await;
    assert_eq!(
        line(&env, &outcome),
        "CreateContainerConfigError container=a retry=later: couldn't find key k in Secret default/pw | again in 10s"
    );
    inputs
        .env
        .secrets
        .insert("pw".into(), secret("k", "s3cret"));
    inputs.env.services = data(&[("KUBERNETES_SERVICE_HOST", "10.96.0.1")]);
    let outcome = env.sync_inputs(&pod, nothing(), inputs.clone()).await;
    assert_eq!(line(&env, &outcome), "ok");
    let configs = env.fake.configs();
    let expected = [
        ("C_a.b", "1"),
        ("PW", "s3cret"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ];
    assert_eq!(
        configs[0].envs,
        expected.map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    let request = SyncPodRequest {
        inputs: Arc::new(inputs),
        ..request(&pod, nothing())
    };
    let shown = format!("{request:?} {:?}", configs[0]);
    assert!(!shown.contains("s3cret"), "{shown}");
    assert!(shown.contains("PW") && shown.contains("conf"), "{shown}");
}

#[tokio::test]
async fn handler_is_from_runtime_class_which_must_be_resolved() {
    let classy = pod_from(json!({
        "runtimeClassName": "sandboxed",
        "overhead": {"memory": "64Mi"},
        "containers": [{"name": "a", "image": "web:1"}],
    }));
    let sandboxes = async |handler: Option<&str>| {
        let env = TestEnv::new();
        let inputs = PodInputs {
            runtime_handler: handler.map(str::to_owned),
            ..PodInputs::default()
        };
        let outcome = env.sync_inputs(&classy, nothing(), inputs).await;
        let mut calls = env.fake.calls();
        calls.retain(|call| call.starts_with("sandbox "));
        format!("{} {}", calls.join(","), line(&env, &outcome))
    };
    assert_eq!(sandboxes(Some("kata")).await, "sandbox web#0kata ok");
    assert_eq!(sandboxes(Some("")).await, "sandbox web#0 ok");
    assert_eq!(
        sandboxes(None).await,
        " CreatePodSandboxError retry=never: runtimeClassName: RuntimeClass \"sandboxed\" is an \
         object of the API server, which this agent is not connected to"
    );
}

#[tokio::test(start_paused = true)]
async fn credentials_are_tried_best_match_first_until_one_works() {
    let image = "registry.example/team/app:1";
    let pod = pod_from(json!({"containers": [{"name": "a", "image": image}]}));
    let users = [
        ("registry.example", "host"),
        ("registry.example/team", "team"),
        ("other.example", "other"),
    ];
    let denied = |env: &TestEnv, user: &str| {
        let call = format!("pull {image} as {user}");
        let text = format!("{user} is denied");
        env.fake.fail(&call, CriCode::Other, &text);
    };
    let env = TestEnv::new();
    denied(&env, "team");
    let outcome = env.sync_inputs(&pod, nothing(), with_users(&users)).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(
        pulls(&env),
        [
            format!("pull {image} as team"),
            format!("pull {image} as host")
        ]
    );

    let env = TestEnv::new();
    denied(&env, "team");
    denied(&env, "host");
    let outcome = env.sync_inputs(&pod, nothing(), with_users(&users)).await;
    assert_eq!(
        line(&env, &outcome),
        "ErrImagePull container=a retry=later: [team is denied, host is denied] | again in 10s"
    );
    assert_eq!(pulls(&env).len(), 2, "never anonymously: {:?}", pulls(&env));

    let env = TestEnv::new();
    env.sync_inputs(&pod, nothing(), with_users(&users[2..]))
        .await;
    assert_eq!(pulls(&env), [format!("pull {image}")]);
}

#[tokio::test]
async fn provider_credentials_are_tried_after_the_pod_secrets() {
    let pod = pod_from(json!({"containers": [{
        "name": "a", "image": "registry.example/web:1", "imagePullPolicy": "IfNotPresent",
    }]}));
    let env = TestEnv::new();
    let users = with_users(&[("registry.example", "bob")]);
    env.fake.have_credentials(users.keyring);
    let call = "pull registry.example/web:1 as ann";
    env.fake.fail(call, CriCode::Other, "denied");
    let ann = with_users(&[("registry.example", "ann")]);
    env.sync_inputs(&pod, nothing(), ann.clone()).await;
    let image = "pull registry.example/web:1";
    assert_eq!(
        pulls(&env),
        [format!("{image} as ann"), format!("{image} as bob")]
    );
    assert_eq!(env.fake.asked(), ["registry.example/web:1"]);

    let env = TestEnv::new();
    env.fake.have_image("registry.example/web:1");
    let outcome = env.sync_inputs(&pod, nothing(), ann).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert!(env.fake.asked().is_empty(), "nothing is pulled");
}

#[tokio::test]
async fn only_pods_with_the_same_credentials_share_a_pull() {
    let env = TestEnv::new();
    let image = "registry.example/app:1";
    env.fake.hang("pull");
    let start = |uid: &str, inputs: PodInputs| {
        let mut pod = pod_from(json!({"containers": [{"name": "a", "image": image}]}));
        pod.metadata.uid = Some(uid.into());
        let request = SyncPodRequest {
            inputs: Arc::new(inputs),
            ..request(&pod, nothing())
        };
        let runtime = env.runtime.clone();
        tokio::spawn(async move { runtime.sync_pod(request, CancellationToken::new()).await })
    };
    let ann = || with_users(&[("registry.example", "ann")]);
    let tasks = [start("p1", ann()), start("p2", ann())];
    until("the shared pull", || pulls(&env).len() == 1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(pulls(&env), [format!("pull {image} as ann")]);
    tasks.iter().for_each(|task| task.abort());
}
