//! Watches: objects, lifetime, and requeued pods.

use windlass_fake_api::On;
use windlass_types::nodev1::RuntimeClass;

use super::*;

const CONFIG_MAPS: &str = "/namespaces/default/configmaps";
const SERVICES: &str = "/services";
const CLASSES: &str = "/runtimeclasses";

#[tokio::test(start_paused = true)]
async fn pods_share_one_watch_until_last_is_gone() {
    let env = TestEnv::new();
    env.server.create(&config_map("shared", "1"));
    let pods: Vec<_> = (0..110)
        .map(|n| volume_pod(&n.to_string(), "shared"))
        .collect();
    for pod in &pods {
        let inputs = env.inputs(pod).await.expect("inputs");
        assert_eq!(content(&inputs), "1");
    }
    assert_eq!(env.watches(CONFIG_MAPS), 1);
    let request = env.server.requests();
    let watch = request
        .iter()
        .find(|r| r.path.ends_with(CONFIG_MAPS))
        .expect("watch");
    assert!(
        watch.query.contains("fieldSelector=metadata.name%3Dshared"),
        "{watch:?}"
    );
    for pod in &pods[1..] {
        env.cache
            .unregister(&windlass_types::PodExt::uid(pod.as_ref()));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(env.is_watched(CONFIG_MAPS).await);
    env.cache.unregister(&"0".into());
    assert!(
        env.is_watched(CONFIG_MAPS).await,
        "the grace period has not elapsed"
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!env.is_watched(CONFIG_MAPS).await);
}

#[tokio::test(start_paused = true)]
async fn watch_continues_for_pod_within_grace_period() {
    let env = TestEnv::new();
    env.server.create(&config_map("shared", "1"));
    for uid in ["a", "b", "c"] {
        env.inputs(&volume_pod(uid, "shared"))
            .await
            .expect("inputs");
        env.cache.unregister(&uid.into());
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(env.watches(CONFIG_MAPS), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_without_references_start_no_watch() {
    let env = TestEnv::new();
    env.inputs(&pod("a", json!({}))).await.expect("inputs");
    let paths: Vec<_> = env.server.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(paths, ["/api/v1/services"]);
}

#[tokio::test(start_paused = true)]
async fn change_requeues_each_pod_with_volume_once() {
    let mut env = TestEnv::new();
    env.server.create(&config_map("conf", "1"));
    for pod in [
        volume_pod("a", "conf"),
        volume_pod("b", "conf"),
        env_pod("c", "conf"),
    ] {
        env.inputs(&pod).await.expect("inputs");
    }
    assert_eq!(
        env.requeued().await,
        [""; 0],
        "the first state is not a change"
    );
    let change = |text: &str| {
        let data = [("key".to_owned(), text.to_owned())].into();
        env.server
            .modify::<ConfigMap>(Some("default"), "conf", |c| c.data = Some(data));
    };
    change("2");
    assert_eq!(env.requeued().await, ["a", "b"]);
    let inputs = env.inputs(&volume_pod("a", "conf")).await.expect("inputs");
    assert_eq!(content(&inputs), "2");
    env.server
        .modify::<ConfigMap>(Some("default"), "conf", |c| {
            c.metadata.labels = Some([("x".to_owned(), "y".to_owned())].into());
        });
    assert_eq!(env.requeued().await, [""; 0], "its content is the same");
    env.server.faults().expire_versions();
    env.server.faults().close_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(env.requeued().await, [""; 0], "a new list is not a change");
}

#[tokio::test(start_paused = true)]
async fn pods_share_one_copy_of_an_object() {
    let env = TestEnv::new();
    env.server
        .create(&secret("big", "Opaque", "key", &"x".repeat(1 << 20)));
    let from = json!([{"secretRef": {"name": "big"}}]);
    let spec = json!({
        "volumes": [{"name": "v", "secret": {"secretName": "big"}}],
        "containers": [{"name": "c", "image": "i", "envFrom": from}],
    });
    let mut copies = std::collections::BTreeSet::new();
    for number in 0..10 {
        let inputs = env.inputs(&pod(&number.to_string(), spec.clone())).await;
        let inputs = inputs.expect("inputs");
        copies.insert(files(&inputs)["key"].data.as_ptr());
        copies.insert(inputs.env.secrets["big"].data["key"].as_ptr());
    }
    assert_eq!(copies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn created_object_requeues_waiting_pod() {
    let mut env = TestEnv::new();
    let pods = [volume_pod("a", "late"), env_pod("b", "late")];
    let error = env.inputs(&pods[0]).await.expect_err("missing");
    assert_eq!(error, "volume v: configmap \"late\" not found");
    // the container reports it, not the pod
    let inputs = env.inputs(&pods[1]).await.expect("inputs");
    assert!(inputs.env.config_maps.is_empty());
    env.server.create(&config_map("late", "1"));
    assert_eq!(env.requeued().await, ["a", "b"]);
    assert_eq!(content(&env.inputs(&pods[0]).await.expect("inputs")), "1");
    let inputs = env.inputs(&pods[1]).await.expect("inputs");
    assert_eq!(&*inputs.env.config_maps["late"].data["key"], "1");
    env.server
        .delete::<ConfigMap>(Some("default"), "late", None);
    // the volume keeps its content, and the pod is requeued; variables stay
    assert_eq!(env.requeued().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn optional_object_may_be_missing() {
    let mut env = TestEnv::new();
    let source = json!({"name": "maybe", "optional": true});
    let pod = pod(
        "a",
        json!({"volumes": [{"name": "v", "configMap": source}]}),
    );
    let inputs = env.inputs(&pod).await.expect("inputs");
    assert!(files(&inputs).is_empty());
    env.server.create(&config_map("maybe", "1"));
    assert_eq!(env.requeued().await, ["a"]);
    assert_eq!(content(&env.inputs(&pod).await.expect("inputs")), "1");
}

#[tokio::test(start_paused = true)]
async fn removed_references_of_updated_pod_are_released() {
    let env = TestEnv::new();
    env.server.create(&config_map("old", "1"));
    env.server.create(&config_map("new", "2"));
    env.inputs(&volume_pod("a", "old")).await.expect("inputs");
    let inputs = env.inputs(&volume_pod("a", "new")).await.expect("inputs");
    assert_eq!(content(&inputs), "2");
    tokio::time::sleep(Duration::from_secs(31)).await;
    env.server.clear_requests();
    assert!(env.is_watched(CONFIG_MAPS).await);
    let queries: Vec<_> = env.server.requests().into_iter().map(|r| r.query).collect();
    assert!(queries.iter().all(|q| !q.contains("%3Dold")), "{queries:?}");
}

#[tokio::test(start_paused = true)]
async fn immutable_object_is_not_watched_after_read() {
    let mut env = TestEnv::new();
    let mut fixed = config_map("fixed", "1");
    fixed.immutable = Some(true);
    env.server.create(&fixed);
    env.inputs(&volume_pod("a", "fixed")).await.expect("inputs");
    assert!(!env.is_watched(CONFIG_MAPS).await);
    let inputs = env.inputs(&volume_pod("b", "fixed")).await.expect("inputs");
    assert_eq!(content(&inputs), "1");
    assert_eq!(env.requeued().await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn outage_delays_new_pods_and_serves_known_ones() {
    let mut env = TestEnv::new();
    env.server.create(&config_map("conf", "1"));
    env.inputs(&volume_pod("a", "conf")).await.expect("inputs");
    let down = env.server.faults().down(On::any());
    env.server.faults().close_watches();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let inputs = env.inputs(&volume_pod("b", "conf")).await.expect("inputs");
    assert_eq!(content(&inputs), "1");
    let began = tokio::time::Instant::now();
    let error = env
        .inputs(&volume_pod("c", "other"))
        .await
        .expect_err("unknown");
    assert!(
        error.starts_with("volume v: failed to read configmap \"other\": "),
        "{error}"
    );
    assert_eq!(began.elapsed().as_secs(), 10);
    assert_eq!(env.requeued().await, [""; 0]);
    env.server.faults().lift(down);
    env.server.create(&config_map("other", "2"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(env.requeued().await, ["c"], "it had stopped waiting");
    let inputs = env.inputs(&volume_pod("c", "other")).await.expect("inputs");
    assert_eq!(content(&inputs), "2");
}

#[tokio::test(start_paused = true)]
async fn transient_server_errors_are_retried_within_deadline() {
    let env = TestEnv::new();
    env.server.create(&config_map("conf", "1"));
    let faults = env.server.faults();
    faults.error(On::path("*/configmaps").times(2), 500);
    let inputs = env.inputs(&volume_pod("a", "conf")).await.expect("inputs");
    assert_eq!(content(&inputs), "1");
}

#[tokio::test(start_paused = true)]
async fn only_api_pods_wait_for_services() {
    let env = TestEnv::new();
    let service = |namespace: &str, name: &str, ip: &str| -> Service {
        object(json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": ip, "ports": [{"port": 443}]},
        }))
    };
    env.server.create(&service("default", "web", "10.0.0.2"));
    let hang = env.server.faults().hang(On::path("*/services"));
    let inputs = env
        .inputs(&static_pod("s", json!({})))
        .await
        .expect("inputs");
    assert!(inputs.env.services.is_empty());
    assert_eq!(env.watches(SERVICES), 0, "a static pod starts no watch");
    let error = env.inputs(&pod("a", json!({}))).await.expect_err("gate");
    assert_eq!(
        error,
        "CreateContainerConfigError soon: services have not yet been read at least once, \
         cannot construct envvars: the API server did not respond"
    );
    env.server.faults().lift(hang);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let host = |inputs: PodInputs| inputs.env.services.get("WEB_SERVICE_HOST").cloned();
    let inputs = env.inputs(&pod("a", json!({}))).await.expect("inputs");
    assert_eq!(host(inputs).as_deref(), Some("10.0.0.2"));
    let inputs = env
        .inputs(&static_pod("s", json!({})))
        .await
        .expect("inputs");
    assert_eq!(host(inputs).as_deref(), Some("10.0.0.2"));
    let quiet = pod("b", json!({"enableServiceLinks": false}));
    assert_eq!(host(env.inputs(&quiet).await.expect("inputs")), None);
    let queries = env.server.requests();
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
async fn runtime_classes_are_watched_while_referenced() {
    let mut env = TestEnv::new();
    let named = pod("a", json!({"runtimeClassName": "kata"}));
    let error = env.inputs(&named).await.expect_err("missing");
    assert_eq!(
        error,
        "FailedCreatePodSandBox later: \
         Failed to create pod sandbox: RuntimeClass \"kata\" not found"
    );
    let class = |name: &str| -> RuntimeClass {
        object(json!({"metadata": {"name": name}, "handler": format!("{name}-handler")}))
    };
    env.server.create(&class("other"));
    assert_eq!(env.requeued().await, [""; 0]);
    env.server.create(&class("kata"));
    assert_eq!(env.requeued().await, ["a"]);
    let inputs = env.inputs(&named).await.expect("inputs");
    assert_eq!(inputs.runtime_handler.as_deref(), Some("kata-handler"));
    let inputs = env.inputs(&pod("b", json!({}))).await.expect("inputs");
    assert_eq!(inputs.runtime_handler.as_deref(), Some(""));
    env.cache.unregister(&"a".into());
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!env.is_watched(CLASSES).await);
}

#[tokio::test(start_paused = true)]
async fn node_authorizer_allows_all_reads_of_cache() {
    let env = TestEnv::with_node_clients();
    let account: ServiceAccount =
        object(json!({"metadata": {"namespace": "default", "name": "robot"}}));
    env.server.create(&account);
    env.server.create(&config_map("conf", "1"));
    env.server.create(&secret("cred", "Opaque", "pw", "2"));
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
    let bound = SharedPod::new(env.server.create(bound.as_ref()));
    let inputs = env.inputs(&bound).await.expect("inputs");
    let files: Vec<_> = files(&inputs).keys().collect();
    assert_eq!(files, ["key", "pw", "token"]);
}

#[tokio::test(start_paused = true)]
async fn standalone_pods_have_only_their_own_fields() {
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
        kept: None,
    });
    let items = json!([{"path": "key", "fieldRef": {"fieldPath": "metadata.name"}}]);
    let pod = static_pod(
        "s",
        json!({"volumes": [{"name": "v", "downwardAPI": {"items": items}}]}),
    );
    let inputs = cache.inputs(&pod).await.expect("inputs");
    assert_eq!(content(&inputs), "pod-s");
    let named = static_pod("t", json!({"runtimeClassName": "kata"}));
    let inputs = cache.inputs(&named).await.expect("its volumes are known");
    let missing = inputs.missing.expect("no classes");
    assert_eq!(missing.reason, Reason::FailedCreatePodSandBox);
}
