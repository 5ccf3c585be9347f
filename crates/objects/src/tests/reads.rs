//! The strategies `Cache` and `Get`: when objects are read, and by how many requests.

use windlass_fake_api::On;
use windlass_types::corev1::Node;

use super::*;

const PATH: &str = "/api/v1/namespaces/default/configmaps/conf";

/// Requests for the ConfigMap since the last call, each as `newest` or `cached`.
fn reads(world: &World) -> Vec<&'static str> {
    let requests = world.server.requests();
    world.server.clear_requests();
    let reads = requests.iter().filter(|r| r.path == PATH);
    let kind = |query: &str| match query.contains("resourceVersion=0") {
        true => "cached",
        false => "newest",
    };
    reads.map(|r| kind(&r.query)).collect()
}

fn change(world: &World, text: &str) {
    let data = [("key".to_owned(), text.to_owned())].into();
    world
        .server
        .modify::<ConfigMap>(Some("default"), "conf", |c| c.data = Some(data));
}

async fn sees(world: &World, uid: &str) -> String {
    let inputs = world.inputs(&volume_pod(uid, "conf")).await;
    shown(&inputs.expect("inputs")).to_owned()
}

#[tokio::test(start_paused = true)]
async fn get_asks_with_each_sync_and_watches_nothing() {
    let mut world = World::reading("Get");
    world.server.create(&config_map("conf", "1"));
    assert_eq!(sees(&world, "a").await, "1");
    assert_eq!(reads(&world), ["newest"]);
    change(&world, "2");
    assert_eq!(world.told().await, [""; 0], "the next sync sees it");
    assert_eq!(sees(&world, "a").await, "2");
    assert_eq!(reads(&world), ["newest"]);
    assert_eq!(world.watches("/namespaces/default/configmaps"), 0);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(reads(&world), [""; 0], "no pod was synced");
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_synced_together_share_two_reads() {
    for strategy in ["Get", "Cache"] {
        let world = World::reading(strategy);
        world.server.create(&config_map("conf", "1"));
        let pods: Vec<_> = (0..110)
            .map(|n| volume_pod(&n.to_string(), "conf"))
            .collect();
        for pod in &pods {
            world.cache.register(pod);
        }
        world
            .server
            .faults()
            .slow(On::path(PATH), Duration::from_secs(1));
        // the first request started before the other pods were synced
        let inputs = pods.iter().map(|pod| world.inputs(pod));
        for inputs in futures::future::join_all(inputs).await {
            assert_eq!(shown(&inputs.expect("inputs")), "1");
        }
        let reads = reads(&world);
        assert!(reads.len() <= 2, "{strategy}: {reads:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_sees_nothing_older_than_his_question() {
    let world = World::reading("Get");
    world.server.create(&config_map("conf", "1"));
    world.cache.register(&volume_pod("b", "conf"));
    let slow = world
        .server
        .faults()
        .slow(On::path(PATH), Duration::from_secs(2));
    let cache = Arc::clone(&world.cache);
    let first = tokio::spawn(async move { cache.inputs(&volume_pod("a", "conf")).await });
    settle().await;
    // its response may be from before the change
    change(&world, "2");
    let second = sees(&world, "b");
    assert_eq!(second.await, "2");
    first.await.expect("ended").expect("inputs");
    world.server.faults().lift(slow);
    assert_eq!(reads(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cache_asks_again_when_its_time_is_over_and_for_a_new_pod() {
    let world = World::reading("Cache");
    world.server.create(&config_map("conf", "1"));
    assert_eq!(sees(&world, "a").await, "1");
    assert_eq!(reads(&world), ["newest"]);
    change(&world, "2");
    tokio::time::sleep(Duration::from_secs(58)).await;
    assert_eq!(sees(&world, "a").await, "1", "cached for a minute");
    assert_eq!(reads(&world), [""; 0]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(sees(&world, "a").await, "2");
    assert_eq!(reads(&world), ["cached"]);
    change(&world, "3");
    assert_eq!(sees(&world, "b").await, "3", "a new pod gets the current object");
    assert_eq!(reads(&world), ["newest"]);
    assert_eq!(sees(&world, "a").await, "3");
    assert_eq!(reads(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_nodes_annotation_says_how_long_cache_remembers() {
    let world = World::reading("Cache");
    world.server.create(&config_map("conf", "1"));
    let ttl = |seconds: &str| {
        let node: Node = object(json!({"metadata": {
            "name": "n1", "annotations": {"node.alpha.kubernetes.io/ttl": seconds},
        }}));
        world.node.send_replace(NodeUpdate(Some(Arc::new(node))));
    };
    ttl("0");
    sees(&world, "a").await;
    sees(&world, "a").await;
    assert_eq!(reads(&world), ["newest", "cached"]);
    ttl("300");
    tokio::time::sleep(Duration::from_secs(299)).await;
    sees(&world, "a").await;
    assert_eq!(reads(&world), [""; 0]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    sees(&world, "a").await;
    assert_eq!(reads(&world), ["cached"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_asked_for_each_time() {
    for strategy in ["Get", "Cache"] {
        let world = World::reading(strategy);
        for _ in 0..2 {
            let refused = world.inputs(&volume_pod("a", "conf")).await;
            assert_eq!(
                refused.expect_err("missing"),
                "volume v: configmap \"conf\" not found"
            );
        }
        assert_eq!(reads(&world), ["newest", "newest"]);
        world.server.create(&config_map("conf", "1"));
        assert_eq!(sees(&world, "a").await, "1");
        world
            .server
            .delete::<ConfigMap>(Some("default"), "conf", None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let refused = world.inputs(&volume_pod("a", "conf")).await;
        assert!(refused.is_err(), "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_costs_cache_nothing_that_it_remembers() {
    let world = World::reading("Cache");
    world.server.create(&config_map("conf", "1"));
    sees(&world, "a").await;
    assert_eq!(reads(&world), ["newest"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let broken = world.server.faults().error(On::path(PATH), 500);
    assert_eq!(sees(&world, "a").await, "1");
    assert_eq!(sees(&world, "a").await, "1");
    assert_eq!(reads(&world), ["cached"; 2], "age is unchanged");
    // a cached object does not serve a new pod
    let refused = world.inputs(&volume_pod("b", "conf")).await;
    let refused = refused.expect_err("nothing is known");
    assert!(
        refused.starts_with("volume v: failed to read configmap \"conf\": "),
        "{refused}"
    );
    world.server.faults().lift(broken);
    assert_eq!(sees(&world, "b").await, "1");
}

#[tokio::test(start_paused = true)]
async fn get_remembers_nothing() {
    let world = World::reading("Get");
    world.server.create(&config_map("conf", "1"));
    sees(&world, "a").await;
    world.server.faults().hang(On::path(PATH));
    let began = tokio::time::Instant::now();
    let refused = world.inputs(&volume_pod("a", "conf")).await;
    assert_eq!(
        refused.expect_err("no answer"),
        "volume v: failed to read configmap \"conf\": the API server did not respond"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
    let inputs = world.inputs(&env_pod("b", "conf")).await;
    let refused = inputs.expect_err("no answer");
    assert!(
        refused.starts_with("CreateContainerConfigError soon: failed to read configmap"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_objects_that_no_pod_refers_to() {
    let world = World::reading("Cache");
    world.server.create(&config_map("conf", "1"));
    sees(&world, "a").await;
    world.cache.unregister(&"a".into());
    sees(&world, "a").await;
    assert_eq!(reads(&world), ["newest", "newest"]);
}

#[tokio::test(start_paused = true)]
async fn object_refused_by_lagging_informers_is_read_soon() {
    for strategy in ["Watch", "Cache", "Get"] {
        let detection = ChangeDetection::parse(strategy).expect("a strategy");
        let node = |server: &FakeApiServer| server.clients_of_node("n1");
        let world = World::detecting(detection, CredentialDirs::default(), node);
        world.server.create(&config_map("settings", "blue"));
        let lag = Duration::from_millis(100);
        world.server.faults().informer_lag(lag);
        let mut pod = Pod::clone(&volume_pod("a", "settings"));
        pod.spec.as_mut().expect("spec").node_name = Some("n1".to_owned());
        let pod = SharedPod::new(world.server.create(&pod));
        let began = tokio::time::Instant::now();
        let inputs = world.inputs(&pod).await.expect(strategy);
        assert_eq!(shown(&inputs), "blue");
        // after 10, 20, 40 and 80 ms
        assert_eq!(began.elapsed().as_millis(), 150, "{strategy}");
        assert_eq!(world.events(), [""; 0]);
    }
}
