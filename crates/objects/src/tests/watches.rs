//! Watches: objects, lifetime, and requeued pods.

use windlass_fake_api::On;
use windlass_types::nodev1::RuntimeClass;

use super::*;

const CONFIG_MAPS: &str = "/namespaces/default/configmaps";
const SERVICES: &str = "/services";
const CLASSES: &str = "/runtimeclasses";

#[tokio::test(start_paused = true)]
async fn many_pods_share_one_watch_which_ends_with_the_last() {
    let world = World::new();
    world.server.create(&config_map("shared", "1"));
    let pods: Vec<_> = (0..110)
        .map(|n| volume_pod(&n.to_string(), "shared"))
        .collect();
    for pod in &pods {
        let inputs = world.inputs(pod).await.expect("inputs");
        assert_eq!(shown(&inputs), "1");
    }
    assert_eq!(world.watches(CONFIG_MAPS), 1);
    let request = world.server.requests();
    let watch = request
        .iter()
        .find(|r| r.path.ends_with(CONFIG_MAPS))
        .expect("watch");
    assert!(
        watch.query.contains("fieldSelector=metadata.name%3Dshared"),
        "{watch:?}"
    );
    for pod in &pods[1..] {
        world
            .cache
            .unregister(&windlass_types::PodExt::uid(pod.as_ref()));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.is_watched(CONFIG_MAPS).await);
    world.cache.unregister(&"0".into());
    assert!(
        world.is_watched(CONFIG_MAPS).await,
        "it goes on for a while"
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!world.is_watched(CONFIG_MAPS).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_within_the_grace_period_finds_the_watch_going_on() {
    let world = World::new();
    world.server.create(&config_map("shared", "1"));
    for uid in ["a", "b", "c"] {
        world
            .inputs(&volume_pod(uid, "shared"))
            .await
            .expect("inputs");
        world.cache.unregister(&uid.into());
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(world.watches(CONFIG_MAPS), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_watched_for_pods_that_refer_to_nothing() {
    let world = World::new();
    world.inputs(&pod("a", json!({}))).await.expect("inputs");
    let paths: Vec<_> = world
        .server
        .requests()
        .into_iter()
        .map(|r| r.path)
        .collect();
    assert_eq!(paths, ["/api/v1/services"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_once_to_each_pod_that_shows_it_in_a_volume() {
    let mut world = World::new();
    world.server.create(&config_map("conf", "1"));
    for pod in [
        volume_pod("a", "conf"),
        volume_pod("b", "conf"),
        env_pod("c", "conf"),
    ] {
        world.inputs(&pod).await.expect("inputs");
    }
    assert_eq!(world.told().await, [""; 0], "the first state is no change");
    let change = |text: &str| {
        let data = [("key".to_owned(), text.to_owned())].into();
        world
            .server
            .modify::<ConfigMap>(Some("default"), "conf", |c| c.data = Some(data));
    };
    change("2");
    assert_eq!(world.told().await, ["a", "b"]);
    let inputs = world
        .inputs(&volume_pod("a", "conf"))
        .await
        .expect("inputs");
    assert_eq!(shown(&inputs), "2");
    world
        .server
        .modify::<ConfigMap>(Some("default"), "conf", |c| {
            c.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        });
    assert_eq!(world.told().await, [""; 0], "its content is the same");
    world.server.faults().expire_versions();
    world.server.faults().close_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.told().await, [""; 0], "a new list is no change");
}

#[tokio::test(start_paused = true)]
async fn pods_that_need_one_object_share_its_one_copy() {
    let world = World::new();
    world
        .server
        .create(&secret("big", "Opaque", "key", &"x".repeat(1 << 20)));
    let from = json!([{"secretRef": {"name": "big"}}]);
    let spec = json!({
        "volumes": [{"name": "v", "secret": {"secretName": "big"}}],
        "containers": [{"name": "c", "image": "i", "envFrom": from}],
    });
    let mut copies = std::collections::BTreeSet::new();
    for number in 0..10 {
        let inputs = world.inputs(&pod(&number.to_string(), spec.clone())).await;
        let inputs = inputs.expect("inputs");
        copies.insert(files(&inputs)["key"].data.as_ptr());
        copies.insert(inputs.env.secrets["big"].data["key"].as_ptr());
    }
    assert_eq!(copies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_an_object_and_is_told_when_it_is_made() {
    let mut world = World::new();
    let pods = [volume_pod("a", "late"), env_pod("b", "late")];
    let refused = world.inputs(&pods[0]).await.expect_err("missing");
    assert_eq!(refused, "volume v: configmap \"late\" not found");
    // the container reports it, not the pod
    let inputs = world.inputs(&pods[1]).await.expect("inputs");
    assert!(inputs.env.config_maps.is_empty());
    world.server.create(&config_map("late", "1"));
    assert_eq!(world.told().await, ["a", "b"]);
    assert_eq!(shown(&world.inputs(&pods[0]).await.expect("inputs")), "1");
    let inputs = world.inputs(&pods[1]).await.expect("inputs");
    assert_eq!(&*inputs.env.config_maps["late"].data["key"], "1");
    world
        .server
        .delete::<ConfigMap>(Some("default"), "late", None);
    // the volume keeps its content, and the pod is requeued; variables stay
    assert_eq!(world.told().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn an_optional_object_may_be_missing() {
    let mut world = World::new();
    let source = json!({"name": "maybe", "optional": true});
    let pod = pod(
        "a",
        json!({"volumes": [{"name": "v", "configMap": source}]}),
    );
    let inputs = world.inputs(&pod).await.expect("inputs");
    assert!(files(&inputs).is_empty());
    world.server.create(&config_map("maybe", "1"));
    assert_eq!(world.told().await, ["a"]);
    assert_eq!(shown(&world.inputs(&pod).await.expect("inputs")), "1");
}

#[tokio::test(start_paused = true)]
async fn what_a_changed_pod_does_not_refer_to_any_more_is_let_go() {
    let world = World::new();
    world.server.create(&config_map("old", "1"));
    world.server.create(&config_map("new", "2"));
    world.inputs(&volume_pod("a", "old")).await.expect("inputs");
    let inputs = world.inputs(&volume_pod("a", "new")).await.expect("inputs");
    assert_eq!(shown(&inputs), "2");
    tokio::time::sleep(Duration::from_secs(31)).await;
    world.server.clear_requests();
    assert!(world.is_watched(CONFIG_MAPS).await);
    let queries: Vec<_> = world
        .server
        .requests()
        .into_iter()
        .map(|r| r.query)
        .collect();
    assert!(queries.iter().all(|q| !q.contains("%3Dold")), "{queries:?}");
}

#[tokio::test(start_paused = true)]
async fn an_immutable_object_is_not_watched_once_it_was_read() {
    let mut world = World::new();
    let mut fixed = config_map("fixed", "1");
    fixed.immutable = Some(true);
    world.server.create(&fixed);
    world
        .inputs(&volume_pod("a", "fixed"))
        .await
        .expect("inputs");
    assert!(!world.is_watched(CONFIG_MAPS).await);
    let inputs = world
        .inputs(&volume_pod("b", "fixed"))
        .await
        .expect("inputs");
    assert_eq!(shown(&inputs), "1");
    assert_eq!(world.told().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_delays_new_pods_and_serves_known_ones() {
    let mut world = World::new();
    world.server.create(&config_map("conf", "1"));
    world
        .inputs(&volume_pod("a", "conf"))
        .await
        .expect("inputs");
    let down = world.server.faults().down(On::any());
    world.server.faults().close_watches();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let inputs = world
        .inputs(&volume_pod("b", "conf"))
        .await
        .expect("inputs");
    assert_eq!(shown(&inputs), "1");
    let began = tokio::time::Instant::now();
    let refused = world
        .inputs(&volume_pod("c", "other"))
        .await
        .expect_err("unknown");
    assert!(
        refused.starts_with("volume v: failed to read configmap \"other\": "),
        "{refused}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(world.told().await, [""; 0]);
    world.server.faults().lift(down);
    world.server.create(&config_map("other", "2"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.told().await, ["c"], "it had stopped waiting");
    let inputs = world
        .inputs(&volume_pod("c", "other"))
        .await
        .expect("inputs");
    assert_eq!(shown(&inputs), "2");
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_are_outlasted_within_the_deadline() {
    let world = World::new();
    world.server.create(&config_map("conf", "1"));
    let faults = world.server.faults();
    faults.error(On::path("*/configmaps").times(2), 500);
    let inputs = world
        .inputs(&volume_pod("a", "conf"))
        .await
        .expect("inputs");
    assert_eq!(shown(&inputs), "1");
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_the_services_but_static_pods_do_not() {
    let world = World::new();
    let service = |namespace: &str, name: &str, ip: &str| -> Service {
        object(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": [{"port": 443}]},
        }))
    };
    world.server.create(&service("default", "web", "10.0.0.2"));
    let hang = world.server.faults().hang(On::path("*/services"));
    let inputs = world
        .inputs(&static_pod("s", json!({})))
        .await
        .expect("inputs");
    assert!(inputs.env.services.is_empty());
    assert_eq!(world.watches(SERVICES), 0, "a static pod begins no watch");
    let refused = world.inputs(&pod("a", json!({}))).await.expect_err("gate");
    assert_eq!(
        refused,
        "CreateContainerConfigError soon: services have not yet been read at least once, \
         cannot construct envvars: the API server did not respond"
    );
    world.server.faults().lift(hang);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let host = |inputs: PodInputs| inputs.env.services.get("WEB_SERVICE_HOST").cloned();
    let inputs = world.inputs(&pod("a", json!({}))).await.expect("inputs");
    assert_eq!(host(inputs).as_deref(), Some("10.0.0.2"));
    let inputs = world
        .inputs(&static_pod("s", json!({})))
        .await
        .expect("inputs");
    assert_eq!(host(inputs).as_deref(), Some("10.0.0.2"));
    let quiet = pod("b", json!({"enableServiceLinks": false}));
    assert_eq!(host(world.inputs(&quiet).await.expect("inputs")), None);
    let queries = world.server.requests();
    let query = &queries
        .iter()
        .find(|r| r.path.ends_with(SERVICES))
        .expect("watch")
        .query;
    assert!(
        query.contains("labelSelector=%21service.kubernetes.io%2Fheadless"),
        "{query}"
    );
}

#[tokio::test(start_paused = true)]
async fn runtime_classes_are_watched_while_a_pod_names_one() {
    let mut world = World::new();
    let named = pod("a", json!({"runtimeClassName": "kata"}));
    let refused = world.inputs(&named).await.expect_err("missing");
    assert_eq!(
        refused,
        "FailedCreatePodSandBox later: \
         Failed to create pod sandbox: RuntimeClass \"kata\" not found"
    );
    let class = |name: &str| -> RuntimeClass {
        object(json!({"metadata": {"name": name}, "handler": format!("{name}-handler")}))
    };
    world.server.create(&class("other"));
    assert_eq!(world.told().await, [""; 0]);
    world.server.create(&class("kata"));
    assert_eq!(world.told().await, ["a"]);
    let inputs = world.inputs(&named).await.expect("inputs");
    assert_eq!(inputs.runtime_handler.as_deref(), Some("kata-handler"));
    let inputs = world.inputs(&pod("b", json!({}))).await.expect("inputs");
    assert_eq!(inputs.runtime_handler.as_deref(), Some(""));
    world.cache.unregister(&"a".into());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!world.is_watched(CLASSES).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_may_read_what_is_asked_for() {
    let world = World::of_node();
    let account: ServiceAccount =
        object(json!({"metadata": {"namespace": "default", "name": "robot"}}));
    world.server.create(&account);
    world.server.create(&config_map("conf", "1"));
    world.server.create(&secret("cred", "Opaque", "pw", "2"));
    let bound = pod(
        "a",
        json!({
            "nodeName": "n1",
            "serviceAccountName": "robot",
            "volumes": [{"name": "v", "projected": {"sources": [
                {"configMap": {"name": "conf"}},
                {"secret": {"name": "cred"}},
                {"serviceAccountToken": {"path": "token"}},
            ]}}],
        }),
    );
    let bound = SharedPod::new(world.server.create(bound.as_ref()));
    let inputs = world.inputs(&bound).await.expect("inputs");
    let files: Vec<_> = files(&inputs).keys().collect();
    assert_eq!(files, ["key", "pw", "token"]);
}

#[tokio::test(start_paused = true)]
async fn without_an_api_server_pods_have_their_own_fields_and_nothing_else() {
    let metrics = Metrics::new().expect("metrics");
    let (changed, _receiver) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let cache = ObjectCache::new(ObjectCacheDeps {
        clients: None,
        clock: Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH)),
        events: Arc::new(Events::default()),
        changed,
        node: Arc::new(NodeFacts::default()),
        node_seen: watch::channel(NodeUpdate::default()).1,
        metrics: metrics.volumes.clone(),
        change_detection: ChangeDetection::Watch,
        csi: None,
        credential_dirs: None,
    });
    let items = json!([{"path": "key", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let pod = static_pod(
        "s",
        json!({"volumes": [{"name": "v", "downwardAPI": {"items": items}}]}),
    );
    let inputs = cache.inputs(&pod).await.expect("inputs");
    assert_eq!(shown(&inputs), "pod-s");
    let named = static_pod("t", json!({"runtimeClassName": "kata"}));
    let inputs = cache.inputs(&named).await.expect("its volumes are known");
    let missing = inputs.missing.expect("no classes");
    assert_eq!(missing.reason, Reason::FailedCreatePodSandBox);
}
