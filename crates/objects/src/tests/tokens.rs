//! Tokens: requested once, renewed in time, never served expired if a fresh one is available.

use windlass_fake_api::On;

use super::*;

const TOKEN: &str = "*/token";
const LIFE: u64 = 3600;

fn account() -> ServiceAccount {
    object(json!({"metadata": {"namespace": "default", "name": "robot"}}))
}

fn token_pod(env: &TestEnv, uid: &str) -> SharedPod {
    let source = json!({"serviceAccountToken": {
        "path": "key", "expirationSeconds": LIFE, "audience": "vault",
    }});
    let pod = pod(
        uid,
        json!({
            "nodeName": "n1",
            "serviceAccountName": "robot",
            "volumes": [{"name": "v", "projected": {"sources": [source]}}],
        }),
    );
    // a token can only be bound to an existing pod
    SharedPod::new(env.server.create(pod.as_ref()))
}

impl TestEnv {
    fn requests_for_tokens(&self) -> usize {
        let requests = self.server.requests();
        requests
            .iter()
            .filter(|r| r.path.ends_with("/token"))
            .count()
    }

    async fn token(&self, pod: &SharedPod) -> Result<String, String> {
        self.inputs(pod)
            .await
            .map(|inputs| content(&inputs).to_owned())
    }
}

fn seconds(n: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_secs(n))
}

fn uid(pod: &SharedPod) -> PodUid {
    windlass_types::PodExt::uid(pod.as_ref())
}

#[tokio::test(start_paused = true)]
async fn token_is_bound_to_pod_and_requested_once() {
    let env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let calls = (0..10).map(|_| env.token(&pod));
    let tokens = futures::future::join_all(calls).await;
    let first = tokens[0].clone().expect("token");
    assert!(
        tokens.iter().all(|t| t.as_ref() == Ok(&first)),
        "{tokens:?}"
    );
    let requests = env.server.requests();
    let token_requests: Vec<_> = requests
        .iter()
        .filter(|r| r.path.ends_with("/token"))
        .collect();
    assert_eq!(token_requests.len(), 1);
    assert_eq!(
        token_requests[0].path,
        "/api/v1/namespaces/default/serviceaccounts/robot/token"
    );
    let spec = &token_requests[0].body["spec"];
    assert_eq!(
        *spec,
        json!({
            "audiences": ["vault"],
            "expirationSeconds": 3600,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": "pod-a", "uid": uid(&pod).as_str(),
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn token_is_renewed_at_80_percent_and_requeues_pod() {
    let mut env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let first = env.token(&pod).await.expect("token");
    seconds(LIFE * 3 / 4).await;
    assert_eq!(env.requeued().await, [""; 0]);
    assert_eq!(env.token(&pod).await.as_ref(), Ok(&first));
    seconds(LIFE / 20 + 60).await;
    assert_eq!(env.requeued().await, [uid(&pod).to_string()]);
    let second = env.token(&pod).await.expect("token");
    assert_ne!(first, second);
    seconds(120).await;
    assert_eq!(env.requeued().await, [""; 0]);
    assert_eq!(env.requests_for_tokens(), 2);
}

#[tokio::test(start_paused = true)]
async fn old_token_serves_during_outage_until_expiry() {
    let env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let first = env.token(&pod).await.expect("token");
    let down = env.server.faults().error(On::path(TOKEN), 503);
    seconds(LIFE * 9 / 10).await;
    assert_eq!(env.token(&pod).await.as_ref(), Ok(&first));
    let token_requests = env.requests_for_tokens();
    // not requested again immediately
    assert_eq!(env.token(&pod).await.as_ref(), Ok(&first));
    assert_eq!(env.requests_for_tokens(), token_requests);
    seconds(LIFE / 10).await;
    let error = env.token(&pod).await.expect_err("expired");
    assert!(
        error.starts_with(
            "volume v: failed to fetch token: the last one expired and the refresh failed: POST "
        ),
        "{error}"
    );
    env.server.faults().lift(down);
    let second = env.token(&pod).await.expect("token");
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn hung_token_request_ends_at_deadline() {
    let env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    env.server.faults().hang(On::path(TOKEN));
    let began = tokio::time::Instant::now();
    let error = env.token(&pod).await.expect_err("no answer");
    assert!(
        error.contains("the API server did not respond in time"),
        "{error}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn cancelled_token_caller_leaves_result_to_next() {
    let env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let delay = Duration::from_secs(5);
    env.server.faults().slow(On::path(TOKEN), delay);
    let early = tokio::time::timeout(Duration::from_secs(2), env.token(&pod)).await;
    assert!(early.is_err());
    seconds(4).await;
    let began = tokio::time::Instant::now();
    env.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_eq!(env.requests_for_tokens(), 1);
}

#[tokio::test(start_paused = true)]
async fn first_token_request_is_retried_after_transient_error() {
    let env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let faults = env.server.faults();
    faults.error_retry_after(On::path(TOKEN).times(1), 429, 3);
    faults.error(On::path(TOKEN).times(1), 500);
    let began = tokio::time::Instant::now();
    env.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn token_is_dropped_with_pod() {
    let mut env = TestEnv::new();
    env.server.create(&account());
    let pod = token_pod(&env, "a");
    let first = env.token(&pod).await.expect("token");
    env.cache.unregister(&uid(&pod));
    seconds(LIFE).await;
    assert_eq!(env.requeued().await, [""; 0]);
    assert_ne!(env.token(&pod).await.expect("token"), first);
}

#[tokio::test(start_paused = true)]
async fn missing_service_account_is_named() {
    let env = TestEnv::new();
    let pod = token_pod(&env, "a");
    let error = env.token(&pod).await.expect_err("no account");
    assert!(error.contains("robot"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn sandbox_inputs_need_all_but_tokens() {
    let env = TestEnv::new();
    env.server.create(&account());
    let spec = |sources: Value| {
        json!({
            "serviceAccountName": "robot",
            "volumes": [{ "name": "v", "projected": { "sources": sources } }],
        })
    };
    let token = json!({ "serviceAccountToken": { "path": "key", "expirationSeconds": LIFE } });
    let settings = json!({ "configMap": { "name": "settings" } });
    let no_token = pod("a", spec(json!([settings])));
    let create = |name: &str, sources: Value| {
        SharedPod::new(env.server.create(pod(name, spec(sources)).as_ref()))
    };
    let with_token = create("b", json!([token, settings]));
    for pod in [&no_token, &with_token] {
        env.cache.register(pod);
    }
    settle().await;
    // the ConfigMap does not exist
    assert_eq!(env.cache.sandbox_inputs(&with_token), None);
    env.server.create(&config_map("settings", "blue"));
    settle().await;
    assert!(env.cache.sandbox_inputs(&with_token).is_some());
    assert_eq!(env.cache.sandbox_inputs(&no_token), None);
    // the last token was slow, the next one is not
    let slow = env
        .server
        .faults()
        .slow(On::path(TOKEN), Duration::from_millis(600));
    env.inputs(&with_token).await.expect("inputs");
    assert_eq!(env.cache.sandbox_inputs(&with_token), None);
    env.server.faults().lift(slow);
    let next = create("c", json!([token, settings]));
    env.inputs(&next).await.expect("inputs");
    assert!(env.cache.sandbox_inputs(&next).is_some());
}

/// A server whose node authorizer learns of pods with this delay.
fn lagging(milliseconds: u64) -> TestEnv {
    let env = TestEnv::with_node_clients();
    env.server.create(&account());
    let lag = Duration::from_millis(milliseconds);
    env.server.faults().informer_lag(lag);
    env
}

#[tokio::test(start_paused = true)]
async fn token_forbidden_by_lagging_informers_is_retried_soon() {
    let env = lagging(100);
    let pod = token_pod(&env, "a");
    let began = tokio::time::Instant::now();
    env.token(&pod).await.expect("token");
    // after 10, 20, 40 and 80 ms
    assert_eq!(began.elapsed().as_millis(), 150);
    assert_eq!(env.requests_for_tokens(), 5);
}

#[tokio::test(start_paused = true)]
async fn token_rejected_for_two_seconds_is_reported() {
    let env = lagging(5000);
    let pod = token_pod(&env, "a");
    let began = tokio::time::Instant::now();
    let error = env.token(&pod).await.expect_err("refused");
    assert!(
        error.ends_with("no relationship found between node 'n1' and this object"),
        "{error}"
    );
    assert_eq!(began.elapsed().as_secs(), 2);
    // a retry of the caller is rejected immediately
    env.token(&pod).await.expect_err("refused");
    assert_eq!(began.elapsed().as_secs(), 2);
    seconds(3).await;
    env.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 5);
}
