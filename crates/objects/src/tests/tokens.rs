//! Tokens: requested once, renewed in time, never served expired if a fresh one is available.

use windlass_fake_api::On;

use super::*;

const TOKEN: &str = "*/token";
const LIFE: u64 = 3600;

fn account() -> ServiceAccount {
    object(json!({"metadata": {"namespace": "default", "name": "robot"}}))
}

fn token_pod(world: &World, uid: &str) -> SharedPod {
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
    SharedPod::new(world.server.create(pod.as_ref()))
}

impl World {
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
            .map(|inputs| shown(&inputs).to_owned())
    }
}

fn seconds(n: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_secs(n))
}

fn uid(pod: &SharedPod) -> PodUid {
    windlass_types::PodExt::uid(pod.as_ref())
}

#[tokio::test(start_paused = true)]
async fn a_token_is_bound_to_its_pod_and_asked_for_once() {
    let world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let calls = (0..10).map(|_| world.token(&pod));
    let tokens = futures::future::join_all(calls).await;
    let first = tokens[0].clone().expect("token");
    assert!(
        tokens.iter().all(|t| t.as_ref() == Ok(&first)),
        "{tokens:?}"
    );
    let requests = world.server.requests();
    let asked: Vec<_> = requests
        .iter()
        .filter(|r| r.path.ends_with("/token"))
        .collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        asked[0].path,
        "/api/v1/namespaces/default/serviceaccounts/robot/token"
    );
    let spec = &asked[0].body["spec"];
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
async fn a_token_is_renewed_at_80_percent_of_its_life_and_its_pod_is_told() {
    let mut world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let first = world.token(&pod).await.expect("token");
    seconds(LIFE * 3 / 4).await;
    assert_eq!(world.told().await, [""; 0]);
    assert_eq!(world.token(&pod).await.as_ref(), Ok(&first));
    seconds(LIFE / 20 + 60).await;
    assert_eq!(world.told().await, [uid(&pod).to_string()]);
    let second = world.token(&pod).await.expect("token");
    assert_ne!(first, second);
    seconds(120).await;
    assert_eq!(world.told().await, [""; 0]);
    assert_eq!(world.requests_for_tokens(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_old_token_serves_while_the_server_is_away_but_not_beyond_its_life() {
    let world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let first = world.token(&pod).await.expect("token");
    let down = world.server.faults().error(On::path(TOKEN), 503);
    seconds(LIFE * 9 / 10).await;
    assert_eq!(world.token(&pod).await.as_ref(), Ok(&first));
    let asked = world.requests_for_tokens();
    // not requested again immediately
    assert_eq!(world.token(&pod).await.as_ref(), Ok(&first));
    assert_eq!(world.requests_for_tokens(), asked);
    seconds(LIFE / 10).await;
    let refused = world.token(&pod).await.expect_err("expired");
    assert!(
        refused.starts_with(
            "volume v: failed to fetch token: the last one expired and the refresh failed: POST "
        ),
        "{refused}"
    );
    world.server.faults().lift(down);
    let second = world.token(&pod).await.expect("token");
    assert_ne!(first, second);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_delays_a_first_token_by_the_deadline_only() {
    let world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    world.server.faults().hang(On::path(TOKEN));
    let began = tokio::time::Instant::now();
    let refused = world.token(&pod).await.expect_err("no answer");
    assert!(
        refused.contains("the API server did not respond in time"),
        "{refused}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_the_answer_to_the_next() {
    let world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let delay = Duration::from_secs(5);
    world.server.faults().slow(On::path(TOKEN), delay);
    let early = tokio::time::timeout(Duration::from_secs(2), world.token(&pod)).await;
    assert!(early.is_err());
    seconds(4).await;
    let began = tokio::time::Instant::now();
    world.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_eq!(world.requests_for_tokens(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_first_token_is_asked_for_again_after_a_passing_error() {
    let world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let faults = world.server.faults();
    faults.error_retry_after(On::path(TOKEN).times(1), 429, 3);
    faults.error(On::path(TOKEN).times(1), 500);
    let began = tokio::time::Instant::now();
    world.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_token_goes_with_its_pod() {
    let mut world = World::new();
    world.server.create(&account());
    let pod = token_pod(&world, "a");
    let first = world.token(&pod).await.expect("token");
    world.cache.unregister(&uid(&pod));
    seconds(LIFE).await;
    assert_eq!(world.told().await, [""; 0]);
    assert_ne!(world.token(&pod).await.expect("token"), first);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_missing_is_named() {
    let world = World::new();
    let pod = token_pod(&world, "a");
    let refused = world.token(&pod).await.expect_err("no account");
    assert!(refused.contains("robot"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn sandbox_inputs_need_all_but_tokens() {
    let world = World::new();
    world.server.create(&account());
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
        SharedPod::new(world.server.create(pod(name, spec(sources)).as_ref()))
    };
    let with_token = create("b", json!([token, settings]));
    for pod in [&no_token, &with_token] {
        world.cache.register(pod);
    }
    settle().await;
    // the ConfigMap does not exist
    assert_eq!(world.cache.sandbox_inputs(&with_token), None);
    world.server.create(&config_map("settings", "blue"));
    settle().await;
    assert!(world.cache.sandbox_inputs(&with_token).is_some());
    assert_eq!(world.cache.sandbox_inputs(&no_token), None);
    // the last token was slow, the next one is not
    let slow = world
        .server
        .faults()
        .slow(On::path(TOKEN), Duration::from_millis(600));
    world.inputs(&with_token).await.expect("inputs");
    assert_eq!(world.cache.sandbox_inputs(&with_token), None);
    world.server.faults().lift(slow);
    let next = create("c", json!([token, settings]));
    world.inputs(&next).await.expect("inputs");
    assert!(world.cache.sandbox_inputs(&next).is_some());
}

/// A server whose node authorizer learns of pods with this delay.
fn lagging(milliseconds: u64) -> World {
    let world = World::of_node();
    world.server.create(&account());
    let lag = Duration::from_millis(milliseconds);
    world.server.faults().informer_lag(lag);
    world
}

#[tokio::test(start_paused = true)]
async fn token_refused_by_lagging_informers_is_retried_soon() {
    let world = lagging(100);
    let pod = token_pod(&world, "a");
    let began = tokio::time::Instant::now();
    world.token(&pod).await.expect("token");
    // after 10, 20, 40 and 80 ms
    assert_eq!(began.elapsed().as_millis(), 150);
    assert_eq!(world.requests_for_tokens(), 5);
}

#[tokio::test(start_paused = true)]
async fn token_refused_for_two_seconds_is_reported() {
    let world = lagging(5000);
    let pod = token_pod(&world, "a");
    let began = tokio::time::Instant::now();
    let refused = world.token(&pod).await.expect_err("refused");
    assert!(
        refused.ends_with("no relationship found between node 'n1' and this object"),
        "{refused}"
    );
    assert_eq!(began.elapsed().as_secs(), 2);
    // a retry of the caller is rejected immediately
    world.token(&pod).await.expect_err("refused");
    assert_eq!(began.elapsed().as_secs(), 2);
    seconds(3).await;
    world.token(&pod).await.expect("token");
    assert_eq!(began.elapsed().as_secs(), 5);
}
