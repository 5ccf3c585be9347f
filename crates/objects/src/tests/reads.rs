//! The strategies `Cache` and `Get`: when objects are read, and by how many requests.

use windlass_fake_api::On;
use windlass_types::corev1::Node;

use super::*;

const PATH: &str = "/api/v1/namespaces/default/configmaps/conf";

/// Requests for the ConfigMap since the last call, each as `newest` or `cached`.
fn reads(env: &TestEnv) -> Vec<&'static str> {
    let requests = env.server.requests();
    env.server.clear_requests();
    let reads = requests.iter().filter(|r| r.path == PATH);
    let kind = |query: &str| match query.contains("resourceVersion=0") {
        true => "cached",
        false => "newest",
    };
    reads.map(|r| kind(&r.query)).collect()
}

fn change(env: &TestEnv, text: &str) {
    let data = [("key".to_owned(), text.to_owned())].into();
    env.server
        .modify::<ConfigMap>(Some("default"), "conf", |c| c.data = Some(data));
}

async fn sync(env: &TestEnv, uid: &str) -> String {
    let inputs = env.inputs(&volume_pod(uid, "conf")).await;
    content(&inputs.expect("inputs")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn get_strategy_reads_with_each_sync_without_watch() {
    let mut env = TestEnv::with_strategy("Get");
    env.server.create(&config_map("conf", "1"));
    assert_eq!(sync(&env, "a").await, "1");
    assert_eq!(reads(&env), ["newest"]);
    change(&env, "2");
    assert_eq!(env.requeued().await, [""; 0], "the next sync sees it");
    assert_eq!(sync(&env, "a").await, "2");
    assert_eq!(reads(&env), ["newest"]);
    assert_eq!(env.watches("/namespaces/default/configmaps"), 0);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(reads(&env), [""; 0], "no pod was synced");
}

#[tokio::test(start_paused = true)]
async fn pods_synced_together_share_two_reads() {
    for strategy in ["Get", "Cache"] {
        let env = TestEnv::with_strategy(strategy);
        env.server.create(&config_map("conf", "1"));
        let pods: Vec<_> = (0..110)
            .map(|n| volume_pod(&n.to_string(), "conf"))
            .collect();
        for pod in &pods {
            env.cache.register(pod);
        }
        env.server
            .faults()
            .slow(On::path(PATH), Duration::from_secs(1));
        // the first request started before the other pods were synced
        let inputs = pods.iter().map(|pod| env.inputs(pod));
        for inputs in futures::future::join_all(inputs).await {
            assert_eq!(content(&inputs.expect("inputs")), "1");
        }
        let reads = reads(&env);
        assert!(reads.len() <= 2, "{strategy}: {reads:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_returns_nothing_older_than_its_call() {
    let env = TestEnv::with_strategy("Get");
    env.server.create(&config_map("conf", "1"));
    env.cache.register(&volume_pod("b", "conf"));
    let slow = env
        .server
        .faults()
        .slow(On::path(PATH), Duration::from_secs(2));
    let cache = Arc::clone(&env.cache);
    let first = tokio::spawn(async move { cache.inputs(&volume_pod("a", "conf")).await });
    settle().await;
    // its response may be from before the change
    change(&env, "2");
    let second = sync(&env, "b");
    assert_eq!(second.await, "2");
    first.await.expect("ended").expect("inputs");
    env.server.faults().lift(slow);
    assert_eq!(reads(&env).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cache_strategy_reads_after_ttl_and_for_new_pod() {
    let env = TestEnv::with_strategy("Cache");
    env.server.create(&config_map("conf", "1"));
    assert_eq!(sync(&env, "a").await, "1");
    assert_eq!(reads(&env), ["newest"]);
    change(&env, "2");
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(sync(&env, "a").await, "1", "cached for a minute");
    assert_eq!(reads(&env), [""; 0]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sync(&env, "a").await, "2");
    assert_eq!(reads(&env), ["cached"]);
    change(&env, "3");
    assert_eq!(
        sync(&env, "b").await,
        "3",
        "a new pod gets the current object"
    );
    assert_eq!(reads(&env), ["newest"]);
    assert_eq!(sync(&env, "a").await, "3");
    assert_eq!(reads(&env), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn cache_ttl_comes_from_node_annotation() {
    let env = TestEnv::with_strategy("Cache");
    env.server.create(&config_map("conf", "1"));
    let ttl = |seconds: &str| {
        let node: Node = object(json!({"metadata": {
            "name": "n1", "annotations": {"node.alpha.kubernetes.io/ttl": seconds},
        }}));
        env.node.send_replace(NodeUpdate(Some(Arc::new(node))));
    };
    ttl("0");
    sync(&env, "a").await;
    sync(&env, "a").await;
    assert_eq!(reads(&env), ["newest", "cached"]);
    ttl("300");
    tokio::time::sleep(Duration::from_secs(299)).await;
    sync(&env, "a").await;
    assert_eq!(reads(&env), [""; 0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    sync(&env, "a").await;
    assert_eq!(reads(&env), ["cached"]);
}

#[tokio::test(start_paused = true)]
async fn missing_object_is_read_each_time() {
    for strategy in ["Get", "Cache"] {
        let env = TestEnv::with_strategy(strategy);
        for _ in 0..2 {
            let error = env.inputs(&volume_pod("a", "conf")).await;
            assert_eq!(
                error.expect_err("missing"),
                "volume v: configmap \"conf\" not found"
            );
        }
        assert_eq!(reads(&env), ["newest", "newest"]);
        env.server.create(&config_map("conf", "1"));
        assert_eq!(sync(&env, "a").await, "1");
        env.server
            .delete::<ConfigMap>(Some("default"), "conf", None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let error = env.inputs(&volume_pod("a", "conf")).await;
        assert!(error.is_err(), "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn cached_object_survives_api_server_errors() {
    let env = TestEnv::with_strategy("Cache");
    env.server.create(&config_map("conf", "1"));
    sync(&env, "a").await;
    assert_eq!(reads(&env), ["newest"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let broken = env.server.faults().error(On::path(PATH), 500);
    assert_eq!(sync(&env, "a").await, "1");
    assert_eq!(sync(&env, "a").await, "1");
    assert_eq!(reads(&env), ["cached"; 2], "age is unchanged");
    // a cached object does not serve a new pod
    let error = env.inputs(&volume_pod("b", "conf")).await;
    let error = error.expect_err("nothing is known");
    assert!(
        error.starts_with("volume v: failed to read configmap \"conf\": "),
        "{error}"
    );
    env.server.faults().lift(broken);
    assert_eq!(sync(&env, "b").await, "1");
}

#[tokio::test(start_paused = true)]
async fn get_strategy_caches_nothing() {
    let env = TestEnv::with_strategy("Get");
    env.server.create(&config_map("conf", "1"));
    sync(&env, "a").await;
    env.server.faults().hang(On::path(PATH));
    let began = tokio::time::Instant::now();
    let error = env.inputs(&volume_pod("a", "conf")).await;
    assert_eq!(
        error.expect_err("no answer"),
        "volume v: failed to read configmap \"conf\": the API server did not respond"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
    let inputs = env.inputs(&env_pod("b", "conf")).await;
    let error = inputs.expect_err("no answer");
    assert!(
        error.starts_with("CreateContainerConfigError soon: failed to read configmap"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn unreferenced_objects_are_dropped() {
    let env = TestEnv::with_strategy("Cache");
    env.server.create(&config_map("conf", "1"));
    sync(&env, "a").await;
    env.cache.unregister(&"a".into());
    sync(&env, "a").await;
    assert_eq!(reads(&env), ["newest", "newest"]);
}

#[tokio::test(start_paused = true)]
async fn object_forbidden_by_lagging_informers_is_read_soon() {
    for strategy in ["Watch", "Cache", "Get"] {
        let detection = ChangeDetection::parse(strategy).expect("a strategy");
        let node = |server: &FakeApiServer| server.clients_of_node("n1");
        let env = TestEnv::with_detection(detection, CredentialDirs::default(), node);
        env.server.create(&config_map("settings", "blue"));
        let lag = Duration::from_millis(100);
        env.server.faults().informer_lag(lag);
        let mut pod = Pod::clone(&volume_pod("a", "settings"));
        pod.spec.as_mut().expect("spec").node_name = Some("n1".to_owned());
        let pod = SharedPod::new(env.server.create(&pod));
        let began = tokio::time::Instant::now();
        let inputs = env.inputs(&pod).await.expect(strategy);
        assert_eq!(content(&inputs), "blue");
        // after 10, 20, 40 and 80 ms
        assert_eq!(began.elapsed().as_millis(), 150, "{strategy}");
        assert_eq!(env.events(), [""; 0]);
    }
}
