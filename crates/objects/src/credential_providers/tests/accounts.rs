//! Plugins with `tokenAttributes` against an API server in the same process.

use serde_json::{Value, json};
use windlass_credentials::credentials::{CredentialSource, TrackedAuth};
use windlass_fake_api::{FakeApiServer, On};
use windlass_mailboxes::SystemClock;
use windlass_types::corev1::ServiceAccount;

use super::*;

const IMAGE: &str = "r.io/web:1";

/// Echoes the token as the password.
const ECHO: &str = r#"
token=$(echo "$request" | sed -n 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/p')
"#;

fn attributes(cache: &str, required: bool, keys: &str) -> String {
    format!(
        ", tokenAttributes: {{serviceAccountTokenAudience: r.io, cacheType: {cache}, \
         requireServiceAccount: {required}{keys}}}"
    )
}

/// A script that returns the token as the password.
fn echo() -> String {
    let answer = answer("u", "\"cacheKeyType\": \"Image\",");
    let answer = answer.replace("\"password\": \"p\"", "\"password\": \"'$token'\"");
    format!("{ECHO}{answer}")
}

fn fixed() -> String {
    answer("u", "\"cacheKeyType\": \"Image\",")
}

fn server() -> FakeApiServer {
    let server = FakeApiServer::with_clock(Arc::new(SystemClock));
    let account: ServiceAccount = object(json!({"metadata": {
        "namespace": "team", "name": "robot", "annotations": {"r.io/role": "pull", "x": "y"},
    }}));
    server.create(&account);
    server
}

fn object<T: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// A pod of the node in the API server.
fn pod(server: &FakeApiServer, name: &str) -> Pod {
    let pod: Pod = object(json!({
        "metadata": {"namespace": "team", "name": name},
        "spec": {"nodeName": "n1", "serviceAccountName": "robot", "containers": [{"name": "c"}]},
    }));
    server.create(&pod)
}

impl TestEnv {
    fn load_with_api(&self, server: &FakeApiServer) -> CredentialProviders {
        let clients = server.clients_of_node("n1");
        let loaded = self.load().expect("loaded");
        loaded.with_api(&clients, Arc::new(SystemClock))
    }

    /// Returns the requests that plugins received.
    fn requests(&self) -> Vec<Value> {
        let lines = self.request_lines().into_iter();
        let requests = lines.map(|line| {
            let json = line.splitn(3, ' ').nth(2).expect("a request");
            serde_json::from_str(json).expect("JSON")
        });
        requests.collect()
    }
}

async fn found(providers: &CredentialProviders, pod: &Pod) -> Vec<TrackedAuth> {
    let name = ImageName::parse(IMAGE).expect("an image");
    providers.keyring(&name, pod).await.lookup_tracked(IMAGE)
}

#[tokio::test]
async fn plugin_receives_token_and_annotations_of_the_pods_account() {
    let server = server();
    let keys = ", requiredServiceAccountAnnotationKeys: [r.io/role]";
    let env = TestEnv::with_settings(&[("one", &echo())], &attributes("Token", true, keys));
    let providers = env.load_with_api(&server);
    let pod = pod(&server, "a");
    let found = found(&providers, &pod).await;
    let requests = env.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        requests[0]["serviceAccountAnnotations"],
        json!({"r.io/role": "pull"})
    );
    let token = requests[0]["serviceAccountToken"].as_str().expect("token");
    assert_eq!((found.len(), found[0].auth.password.as_str()), (1, token));
    let Some(CredentialSource::ServiceAccount(account)) = &found[0].source else {
        panic!("{:?}", found[0].source);
    };
    assert_eq!(
        (account.namespace.as_str(), account.name.as_str()),
        ("team", "robot")
    );
    let all = server.requests();
    let asked = all
        .iter()
        .find(|r| r.path.ends_with("/token"))
        .expect("a request");
    assert_eq!(
        asked.path,
        "/api/v1/namespaces/team/serviceaccounts/robot/token"
    );
    assert_eq!(asked.body["metadata"], json!({"uid": account.uid}));
    assert_eq!(asked.body["spec"]["audiences"], json!(["r.io"]));
    assert_eq!(
        asked.body["spec"]["boundObjectRef"],
        json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod.metadata.uid})
    );
}

#[tokio::test]
async fn pods_share_credentials_by_cache_type() {
    for (cache, runs) in [("ServiceAccount", 1), ("Token", 2)] {
        let server = server();
        let env = TestEnv::with_settings(&[("one", &fixed())], &attributes(cache, true, ""));
        let providers = env.load_with_api(&server);
        let (a, b) = (pod(&server, "a"), pod(&server, "b"));
        for pod in [&a, &b, &a] {
            assert_eq!(found(&providers, pod).await.len(), 1, "{cache}");
        }
        assert_eq!(env.requests().len(), runs, "{cache}");
    }
}

#[tokio::test]
async fn echoed_token_is_rejected_unless_cached_by_token() {
    let server = server();
    let env = TestEnv::with_settings(&[("one", &echo())], &attributes("ServiceAccount", true, ""));
    let providers = env.load_with_api(&server);
    assert!(found(&providers, &pod(&server, "a")).await.is_empty());
    assert_eq!(env.requests().len(), 1);
}

#[tokio::test]
async fn pod_without_account_skips_plugin_that_requires_one() {
    for (required, runs) in [(true, 0), (false, 1)] {
        let server = server();
        let env = TestEnv::with_settings(&[("one", &fixed())], &attributes("Token", required, ""));
        let providers = env.load_with_api(&server);
        let credentials = found(&providers, &Pod::default()).await;
        let sources: Vec<_> = credentials.iter().map(|found| &found.source).collect();
        assert_eq!(sources, vec![&None; runs], "{required}");
        let requests = env.requests();
        assert_eq!(requests.len(), runs, "{required}");
        assert!(
            requests
                .iter()
                .all(|r| r.get("serviceAccountToken").is_none())
        );
    }
}

#[tokio::test]
async fn account_without_required_annotation_skips_plugin() {
    let server = server();
    let keys = ", requiredServiceAccountAnnotationKeys: [r.io/other]";
    let env = TestEnv::with_settings(&[("one", &fixed())], &attributes("Token", true, keys));
    let providers = env.load_with_api(&server);
    assert!(found(&providers, &pod(&server, "a")).await.is_empty());
    assert!(env.requests().is_empty());
    assert!(!server.requests().iter().any(|r| r.path.ends_with("/token")));
}

#[tokio::test]
async fn rejected_token_request_skips_only_plugins_with_tokens() {
    let server = server();
    let env = TestEnv::with_settings(&[("one", &fixed())], &attributes("Token", true, ""));
    let config = env.dir.path().join("config.yaml");
    let mut text = fs::read_to_string(&config).expect("read");
    fs::copy(env.dir.path().join("one"), env.dir.path().join("plain")).expect("copied");
    text += &format!(
        "- {{name: plain, matchImages: [r.io], defaultCacheDuration: 1h, apiVersion: {VERSION}}}\n"
    );
    fs::write(&config, text).expect("written");
    let providers = env.load_with_api(&server);
    let pod = pod(&server, "a");
    for path in ["*/serviceaccounts/robot", "*/token"] {
        let error = server.faults().error(On::path(path), 422);
        let credentials = found(&providers, &pod).await;
        let sources: Vec<_> = credentials.iter().map(|found| &found.source).collect();
        assert_eq!(sources, [&None], "{path}");
        server.faults().lift(error);
    }
    assert_eq!(found(&providers, &pod).await.len(), 2);
}

#[tokio::test]
async fn standalone_agent_executes_plugins_only_without_token() {
    let env = TestEnv::with_settings(&[("one", &fixed())], &attributes("Token", false, ""));
    let providers = env.load().expect("loaded");
    let pod = pod(&server(), "a");
    assert!(found(&providers, &pod).await.is_empty());
    assert_eq!(found(&providers, &Pod::default()).await.len(), 1);
}
