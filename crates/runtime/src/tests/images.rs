//! Pull policies, back-off, limits and shared pulls.

use std::sync::Arc;
use std::time::Duration;

use windlass_cri::error::CriCode;
use windlass_types::Pod;

use super::{TestEnv, at, container, line, nothing, observed, pod, pod_of};
use crate::{PullOptions, RuntimeOptions};

fn pod_with(image: &str, policy: Option<&str>) -> Pod {
    let mut spec = container("a");
    spec.image = Some(image.into());
    spec.image_pull_policy = policy.map(Into::into);
    pod_of(Vec::new(), vec![spec])
}

fn pulls(env: &TestEnv) -> Vec<String> {
    let calls = env.fake.calls();
    calls
        .into_iter()
        .filter(|c| c.starts_with("pull"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn pull_policy_decides_whether_an_image_is_pulled() {
    async fn check(image: &str, policy: Option<&str>, present: bool, expected: &str) {
        let env = TestEnv::new();
        if present {
            env.fake.have_image(image);
        } else {
            env.fake.lose_image(image);
        }
        let outcome = env.sync(&pod_with(image, policy), nothing()).await;
        let seen = format!("{:?} {}", pulls(&env), line(&env, &outcome));
        assert_eq!(seen, expected, "{image} {policy:?} present={present}");
    }
    check("web:1", Some("Always"), true, "[\"pull web:1\"] ok").await;
    check("web:1", Some("Always"), false, "[\"pull web:1\"] ok").await;
    check("web:1", Some("IfNotPresent"), true, "[] ok").await;
    check("web:1", Some("IfNotPresent"), false, "[\"pull web:1\"] ok").await;
    check("web:1", Some("Never"), true, "[] ok").await;
    check(
        "web:1",
        Some("Never"),
        false,
        "[] ErrImageNeverPull container=a retry=later: Container image \"web:1\" is not present \
         with pull policy of Never | again in 10s",
    )
    .await;
    check("web", None, false, "[\"pull web:latest\"] ok").await;
}

#[tokio::test(start_paused = true)]
async fn pull_events_match_upstream() {
    let env = TestEnv::new();
    env.fake.lose_image("web:1");
    env.sync(&pod(&["a"]), nothing()).await;
    assert_eq!(
        env.events.take()[..2],
        [
            "N Pulling a: Pulling image \"web:1\"",
            "N Pulled a: Successfully pulled image \"web:1\" in 0s (0s including waiting). Image size: 1000 bytes.",
        ]
    );
}

#[tokio::test]
async fn invalid_name_and_failed_inspection_have_own_reasons() {
    let env = TestEnv::new();
    let outcome = env.sync(&pod_with("Web:1", None), nothing()).await;
    assert!(
        line(&env, &outcome).starts_with(
            "InvalidImageName container=a retry=never: Failed to apply default image tag \"Web:1\""
        ),
        "{}",
        line(&env, &outcome)
    );
    assert_eq!(outcome.retry_at, None);
    env.fake.fail("image-status", CriCode::Unavailable, "gone");
    let outcome = env.sync(&pod(&["a"]), nothing()).await;
    assert_eq!(
        line(&env, &outcome),
        "ImageInspectError container=a retry=soon: Failed to inspect image \"web:1\": gone | again in 1s"
    );
}

#[tokio::test]
async fn failed_pull_backs_off_until_it_succeeds() {
    let env = TestEnv::new();
    env.fake.lose_image("web:1");
    env.fake.fail("pull", CriCode::Other, "not found");
    let spec = pod(&["a"]);
    let ready = || observed(Vec::new());
    let outcome = env.sync(&spec, ready()).await;
    assert_eq!(
        line(&env, &outcome),
        "ErrImagePull container=a retry=later: not found | again in 10s"
    );
    assert_eq!(outcome.resync_at, Some(at(1)), "the back-off is shown");
    assert_eq!(
        env.events.take(),
        [
            "N Pulling a: Pulling image \"web:1\"",
            "W Failed a: Failed to pull image \"web:1\": not found",
            "W Failed a: Error: ErrImagePull",
        ]
    );
    env.clock.set(4);
    let outcome = env.sync_with(&spec, ready(), outcome.backoff).await;
    assert_eq!(
        line(&env, &outcome),
        "ImagePullBackOff container=a retry=later: Back-off pulling image \"web:1\": \
         ErrImagePull: not found | again in 6s"
    );
    assert_eq!(
        env.events.take(),
        [
            "N BackOff a: Back-off pulling image \"web:1\"",
            "W Failed a: Error: ImagePullBackOff",
        ]
    );
    assert_eq!(pulls(&env).len(), 1);
    env.clock.set(10);
    let outcome = env.sync_with(&spec, ready(), outcome.backoff).await;
    assert_eq!(
        line(&env, &outcome),
        "ErrImagePull container=a retry=later: not found | again in 20s"
    );
    env.clock.set(30);
    env.fake.heal("pull");
    let outcome = env.sync_with(&spec, ready(), outcome.backoff).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(pulls(&env).len(), 3);
}

#[tokio::test]
async fn registry_and_signature_errors_become_reasons() {
    for (message, reason) in [
        ("RegistryUnavailable: dial tcp", "RegistryUnavailable"),
        (
            "SignatureValidationFailed: no key",
            "SignatureValidationFailed",
        ),
    ] {
        let env = TestEnv::new();
        env.fake.lose_image("web:1");
        env.fake.fail("pull", CriCode::Other, message);
        let outcome = env.sync(&pod(&["a"]), nothing()).await;
        assert_eq!(outcome.failures[0].reason.as_str(), reason);
        let text = &outcome.failures[0].message;
        let rest = message.split_once(": ").expect("a cause").1;
        assert!(
            text.ends_with(&format!(": {rest}")) && !text.contains(reason),
            "{text}"
        );
    }
}

#[tokio::test]
async fn missing_image_does_not_block_the_sibling_container() {
    let env = TestEnv::new();
    env.fake.fail("pull", CriCode::Other, "denied");
    let mut bad = container("a");
    bad.image = Some("missing:1".into());
    let outcome = env
        .sync(&pod_of(Vec::new(), vec![bad, container("b")]), nothing())
        .await;
    assert_eq!(outcome.failures.len(), 1);
    assert_eq!(env.fake.calls().last().map(String::as_str), Some("start b"));
}

#[tokio::test(start_paused = true)]
async fn hung_pull_does_not_block_pod_with_present_image() {
    let env = TestEnv::new();
    env.fake.hang("pull");
    let stuck_pod = pod_with("slow:1", None);
    let stuck = env.sync(&stuck_pod, nothing());
    tokio::pin!(stuck);
    let free_pod = pod(&["a"]);
    tokio::select! {
        biased;
        _ = &mut stuck => panic!("cannot end"),
        outcome = env.sync(&free_pod, nothing()) => {
            assert_eq!(line(&env, &outcome), "ok");
        }
    }
}

#[tokio::test]
async fn pods_that_want_the_same_image_share_one_pull() {
    let env = TestEnv::new();
    env.fake.lose_image("web:1");
    let mut other = pod(&["a"]);
    other.metadata.uid = Some("u2".into());
    let first = pod(&["a"]);
    let (one, two) = futures::join!(env.sync(&first, nothing()), env.sync(&other, nothing()));
    assert_eq!(line(&env, &one), "ok");
    assert_eq!(line(&env, &two), "ok");
    assert_eq!(pulls(&env).len(), 1);
}

#[tokio::test]
async fn shared_pull_continues_when_its_first_pod_is_cancelled() {
    let env = Arc::new(TestEnv::new());
    env.fake.lose_image("web:1");
    env.fake.hang("pull");
    let first = tokio::spawn({
        let env = env.clone();
        async move { env.sync(&pod(&["a"]), nothing()).await }
    });
    super::until("the pull", || pulls(&env).len() == 1).await;
    let second = tokio::spawn({
        let env = env.clone();
        async move {
            let mut other = pod(&["a"]);
            other.metadata.uid = Some("u2".into());
            env.sync(&other, nothing()).await
        }
    });
    let joined = || {
        let calls = env.fake.all_calls();
        calls
            .iter()
            .filter(|c| c.starts_with("image-status"))
            .count()
            == 2
    };
    super::until("the second pod", joined).await;
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.is_err_and(|e| e.is_cancelled()));
    tokio::task::yield_now().await;
    assert!(!second.is_finished());
    assert_eq!(pulls(&env).len(), 1, "the second pod did not begin its own");
    second.abort();
    let _ = second.await;
    // without a waiting pod the pull ended: the next pod begins a new one
    env.fake.heal("pull");
    let outcome = env.sync(&pod(&["a"]), nothing()).await;
    assert_eq!(line(&env, &outcome), "ok");
    assert_eq!(pulls(&env).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pulls_over_the_rate_limit_are_delayed() {
    let env = TestEnv::with(RuntimeOptions {
        pull: PullOptions {
            serialize: false,
            max_parallel: None,
            qps: 2.0,
            burst: 3,
        },
        ..RuntimeOptions::default()
    });
    let begun = tokio::time::Instant::now();
    let pods: Vec<_> = (0..7).map(|i| pod_with(&format!("i{i}:1"), None)).collect();
    let syncs = pods.iter().map(|pod| env.sync(pod, nothing()));
    let outcomes = futures::future::join_all(syncs).await;
    assert!(outcomes.iter().all(|o| o.failures.is_empty()));
    // three together, then one per 0.5 s
    let took = begun.elapsed();
    assert!(
        (Duration::from_millis(1990)..Duration::from_millis(2100)).contains(&took),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn serialized_pulls_run_in_request_order() {
    let env = TestEnv::new();
    env.fake.hang("pull i0:1");
    let pods: Vec<_> = (0..3).map(|i| pod_with(&format!("i{i}:1"), None)).collect();
    let syncs = futures::future::join_all(pods.iter().map(|pod| env.sync(pod, nothing())));
    let ended = tokio::time::timeout(Duration::from_secs(60), syncs).await;
    assert!(ended.is_err());
    assert_eq!(pulls(&env), ["pull i0:1"]);

    let env = TestEnv::new();
    let syncs = futures::future::join_all(pods.iter().map(|pod| env.sync(pod, nothing())));
    syncs.await;
    assert_eq!(pulls(&env), ["pull i0:1", "pull i1:1", "pull i2:1"]);
}

#[tokio::test(start_paused = true)]
async fn hung_pull_delays_other_pulls_only_briefly() {
    let env = TestEnv::new();
    env.fake.hang("pull i0:1");
    let pods: Vec<_> = (0..3).map(|i| pod_with(&format!("i{i}:1"), None)).collect();
    let hanging = env.sync(&pods[0], nothing());
    let begun = tokio::time::Instant::now();
    let others = futures::future::join_all(pods[1..].iter().map(|pod| env.sync(pod, nothing())));
    let ended = futures::future::select(Box::pin(hanging), Box::pin(others)).await;
    let futures::future::Either::Right((outcomes, _)) = ended else {
        panic!("a hanging pull ended");
    };
    assert!(outcomes.iter().all(|o| o.failures.is_empty()));
    assert_eq!(begun.elapsed().as_secs(), 120, "serial until then");
    assert_eq!(pulls(&env), ["pull i0:1", "pull i1:1", "pull i2:1"]);
}
