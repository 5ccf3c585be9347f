//! The encrypted copy: written while the API server is reachable, used only before it is reached.

use std::path::Path;

use tokio_util::sync::CancellationToken;
use windlass_csi::CsiObjects;
use windlass_store::Store;
use windlass_types::{PodExt, names};
use windlass_volume_plan::volume_source::SecretRef;

use super::*;
use crate::{KeptObjects, keep_objects};

/// An agent run with a copy in a directory.
struct AgentRun {
    env: TestEnv,
    kept: KeptObjects,
    csi: Arc<dyn CsiObjects>,
    shutdown: CancellationToken,
}

impl AgentRun {
    /// The API server continues, the agent starts.
    fn start(dir: &Path, server: Option<&FakeApiServer>) -> Self {
        let store = Store::open(dir).expect("a directory");
        let kept = KeptObjects::open(store, "n1", None).expect("opened");
        let mut env = TestEnv::new();
        if let Some(server) = server {
            env.server = server.clone();
        }
        let (sender, changed) = slots(ActorKind::new("SyncLoop", 50), &env.metrics.mailboxes);
        let clients = env.server.clients();
        let api = Arc::new(ApiCsiObjects::new(&clients, env.clock.clone()));
        let csi = kept.csi_objects(api, env.clock.clone());
        let (node, node_seen) = watch::channel(NodeUpdate::default());
        env.cache = Arc::new(ObjectCache::new(ObjectCacheDeps {
            clients: Some(clients.clone()),
            clock: env.clock.clone(),
            events: env.events.clone(),
            changed: sender,
            node: Arc::new(NodeFacts {
                node_name: "n1".to_owned(),
                trust_bundles: true,
                ..NodeFacts::default()
            }),
            node_seen,
            metrics: env.metrics.volumes.clone(),
            change_detection: ChangeDetection::Watch,
            csi: Some(Arc::clone(&csi)),
            credential_dirs: None,
            kept: Some(kept.clone()),
        }));
        env.node = node;
        env.changed = changed;
        let shutdown = CancellationToken::new();
        keep_objects(Arc::clone(&env.cache), clients.heartbeat, shutdown.clone());
        Self {
            env,
            kept,
            csi,
            shutdown,
        }
    }

    /// Ends the run and starts the next one; the API server is the same.
    async fn restart(self, dir: &Path) -> Self {
        self.shutdown.cancel();
        settle().await;
        let server = self.env.server.clone();
        drop(self);
        Self::start(dir, Some(&server))
    }
}

fn pass(seconds: u64) -> impl Future<Output = ()> {
    tokio::time::sleep(Duration::from_secs(seconds))
}

/// The pod as the checkpoint delivers it.
fn restored(pod: &SharedPod) -> SharedPod {
    let mut pod = Pod::clone(pod);
    let mark = (names::ANN_RESTORED.to_owned(), "true".to_owned());
    pod.metadata
        .annotations
        .get_or_insert_default()
        .extend([mark]);
    SharedPod::new(pod)
}

/// A pod with variables of a ConfigMap, and a volume with a Secret and a token.
fn web() -> SharedPod {
    let sources = json!([
        {"secret": {"name": "cred"}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
    ]);
    pod(
        "web",
        json!({
            "containers": [{
                "name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}],
            }],
            "volumes": [{"name": "v", "projected": {"sources": sources}}],
        }),
    )
}

/// Creates the objects of [`web`] and lets a run read and keep them.
async fn kept_web(dir: &Path) -> (AgentRun, SharedPod) {
    let run = AgentRun::start(dir, None);
    let server = &run.env.server;
    server.create(&config_map("settings", "blue"));
    server.create(&secret("cred", "Opaque", "key", "swordfish"));
    let account = json!({"metadata": {"namespace": "default", "name": "default"}});
    server.create::<ServiceAccount>(&object(account));
    // the API server binds tokens to the UID that it gives
    let pod = SharedPod::new(server.create(web().as_ref()));
    run.env.inputs(&pod).await.expect("resolved");
    pass(25).await;
    (run, pod)
}

fn bytes(dir: &Path, name: &str) -> Option<Vec<u8>> {
    std::fs::read(dir.join(name)).ok()
}

fn color(inputs: &PodInputs) -> &str {
    &inputs.env.config_maps["settings"].data["key"]
}

#[tokio::test(start_paused = true)]
async fn copy_serves_until_the_api_server_responds() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    let outage = run.env.server.faults().outage();
    let mut run = run.restart(dir.path()).await;
    let pod = restored(&web);
    run.env.cache.register(&pod);
    // the network may be starting
    pass(20).await;
    assert_eq!(run.env.cache.kept_since(&web.uid()), None);
    pass(15).await;
    assert_eq!(run.env.requeued().await, [web.uid().to_string()]);
    assert!(run.env.cache.kept_since(&web.uid()).is_some());
    assert!(run.env.cache.kept_since(&"other".into()).is_none());
    let before = tokio::time::Instant::now();
    let inputs = run.env.inputs(&pod).await.expect("kept");
    assert_eq!(before.elapsed(), Duration::ZERO, "nothing is waited for");
    assert_eq!((color(&inputs), content(&inputs)), ("blue", "swordfish"));
    assert!(files(&inputs).contains_key("token"));

    // a change and a deletion meanwhile
    run.env
        .server
        .modify(Some("default"), "settings", |map: &mut ConfigMap| {
            map.data = Some([("key".to_owned(), "red".to_owned())].into());
        });
    run.env
        .server
        .delete::<Secret>(Some("default"), "cred", None);
    run.env.server.faults().lift(outage);
    pass(6).await;
    assert_eq!(run.env.requeued().await, [web.uid().to_string()]);
    assert_eq!(run.env.cache.kept_since(&web.uid()), None);
    let error = run.env.inputs(&pod).await.expect_err("the Secret is gone");
    assert!(error.contains("secret \"cred\" not found"), "{error}");

    // a running agent does not use the copy in an outage
    pass(20).await;
    run.env.server.faults().outage();
    pass(120).await;
    assert_eq!(run.env.cache.kept_since(&web.uid()), None);

    // the next run has the newer objects
    let run = run.restart(dir.path()).await;
    run.env.cache.register(&pod);
    pass(40).await;
    let error = run.env.inputs(&pod).await.expect_err("the Secret is gone");
    assert!(error.contains("secret \"cred\" not found"), "{error}");
    let inputs = run.env.cache.inputs(&pod).await.expect("resolved");
    assert_eq!(color(&inputs), "red");
}

#[tokio::test(start_paused = true)]
async fn pod_of_the_api_server_ends_the_use_of_the_copy() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    run.env.server.faults().outage();
    let mut run = run.restart(dir.path()).await;
    run.env.cache.register(&restored(&web));
    pass(35).await;
    assert!(run.env.cache.kept_since(&web.uid()).is_some());
    run.env.requeued().await;
    run.env.cache.register(&web);
    assert_eq!(run.env.cache.kept_since(&web.uid()), None);
    assert_eq!(run.env.requeued().await, [web.uid().to_string()]);
}

#[tokio::test(start_paused = true)]
async fn static_pod_does_not_use_the_copy() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    let fixed = static_pod("fixed", json!({}));
    run.env.inputs(&fixed).await.expect("resolved");
    pass(15).await;
    run.env.server.faults().outage();
    let run = run.restart(dir.path()).await;
    run.env.cache.register(&fixed);
    pass(40).await;
    assert!(run.env.cache.kept_since(&web.uid()).is_some());
    assert_eq!(run.env.cache.kept_since(&"fixed".into()), None);
    let inputs = run.env.inputs(&fixed).await.expect("it needs no objects");
    assert!(inputs.env.services.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rejected_node_does_not_use_the_copy() {
    for code in [401, 403, 404] {
        let dir = tempfile::tempdir().expect("temp dir");
        let (run, web) = kept_web(dir.path()).await;
        run.env
            .server
            .faults()
            .error(windlass_fake_api::On::any(), code);
        let run = run.restart(dir.path()).await;
        run.env.cache.register(&restored(&web));
        pass(120).await;
        assert_eq!(run.env.cache.kept_since(&web.uid()), None, "{code}");
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    run.env
        .server
        .faults()
        .error(windlass_fake_api::On::any(), 503);
    let run = run.restart(dir.path()).await;
    run.env.cache.register(&restored(&web));
    pass(120).await;
    assert!(run.env.cache.kept_since(&web.uid()).is_some(), "503");
}

#[tokio::test(start_paused = true)]
async fn expired_token_is_refused_with_its_expiry() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    run.env.server.faults().outage();
    let run = run.restart(dir.path()).await;
    let pod = restored(&web);
    run.env.cache.register(&pod);
    pass(60).await;
    run.env.inputs(&pod).await.expect("still valid");
    pass(3600).await;
    let error = run.env.inputs(&pod).await.expect_err("expired");
    assert!(
        error.contains("failed to fetch token: the kept token expired at 2026-11-21T01:00:"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn copy_has_only_objects_of_registered_pods() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    let size = |dir: &Path| bytes(dir, "kept_objects").expect("a file").len();
    let before = bytes(dir.path(), "kept_objects").expect("a file");
    for part in [&b"swordfish"[..], b"c3dvcmRmaXNo", b"settings", b"blue"] {
        let found = before.windows(part.len()).any(|window| window == part);
        assert!(!found, "{}", String::from_utf8_lossy(part));
    }
    // unchanged objects are not written again
    pass(600).await;
    assert_eq!(bytes(dir.path(), "kept_objects"), Some(before));
    // a change is written, but not at once
    let secret_of = |text: &str| {
        run.env
            .server
            .modify(Some("default"), "cred", |secret: &mut Secret| {
                let data = ByteString(text.as_bytes().to_vec());
                secret.data = Some([("key".to_owned(), data)].into());
            });
    };
    let before = bytes(dir.path(), "kept_objects");
    for i in 0..100 {
        secret_of(&"x".repeat(1000 + i));
    }
    pass(11).await;
    let after = bytes(dir.path(), "kept_objects");
    assert_ne!(after, before);
    let large = size(dir.path());
    // the pod is removed
    run.env.cache.unregister(&web.uid());
    pass(11).await;
    assert!(size(dir.path()) + 1300 < large);
    let next = run.restart(dir.path()).await;
    assert_eq!(next.kept.serving().map(|copy| copy.table.pods.len()), None);
}

#[tokio::test(start_paused = true)]
async fn unusable_copy_means_none() {
    for name in ["kept_objects", "kept_objects.key"] {
        let dir = tempfile::tempdir().expect("temp dir");
        let (run, web) = kept_web(dir.path()).await;
        run.env.server.faults().outage();
        run.shutdown.cancel();
        settle().await;
        let torn = bytes(dir.path(), name).expect("a file");
        std::fs::write(dir.path().join(name), &torn[..torn.len() / 2]).expect("written");
        let run = run.restart(dir.path()).await;
        run.env.cache.register(&restored(&web));
        pass(120).await;
        assert_eq!(run.env.cache.kept_since(&web.uid()), None);
        assert!(dir.path().join("kept_objects.corrupt-1").exists());
    }
}

#[tokio::test(start_paused = true)]
async fn clock_behind_at_boot_does_not_extend_tokens() {
    let dir = tempfile::tempdir().expect("temp dir");
    let (run, web) = kept_web(dir.path()).await;
    // the file is written again every hour
    pass(3 * 3600).await;
    run.env.server.faults().outage();
    let run = run.restart(dir.path()).await;
    let pod = restored(&web);
    run.env.cache.register(&pod);
    pass(40).await;
    // the clock of the new run begins three hours before the file was written
    let copy = run.kept.serving().expect("it serves");
    let begin: Timestamp = "2026-11-21T00:00:40Z".parse().expect("time");
    assert!(
        copy.now(begin)
            > begin
                .checked_add(Duration::from_secs(2 * 3600))
                .expect("time")
    );
    let error = run.env.inputs(&pod).await.expect_err("expired");
    assert!(error.contains("the kept token expired at"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn csi_objects_are_kept_except_attachments() {
    let dir = tempfile::tempdir().expect("temp dir");
    let run = AgentRun::start(dir.path(), None);
    let server = &run.env.server;
    let driver = json!({
        "metadata": {"name": "d"}, "spec": {"attachRequired": false, "podInfoOnMount": true},
    });
    server.create::<windlass_types::storagev1::CSIDriver>(&object(driver));
    server.create(&secret("publish", "Opaque", "key", "swordfish"));
    let inline = json!({"volumes": [{"name": "v", "csi": {
        "driver": "d", "nodePublishSecretRef": {"name": "publish"},
    }}]});
    let pod = pod("web", inline);
    let secret = SecretRef {
        namespace: "default".to_owned(),
        name: "publish".to_owned(),
    };
    run.env.inputs(&pod).await.expect("resolved");
    run.csi.driver("d").await.expect("read");
    run.csi.driver("unused").await.expect("read");
    run.csi.secret(&secret).await.expect("read");
    pass(25).await;
    run.env.server.faults().outage();
    let run = run.restart(dir.path()).await;
    run.env.cache.register(&restored(&pod));
    pass(40).await;
    let driver = run.csi.driver("d").await.expect("kept").expect("a driver");
    assert!(driver.pod_info_on_mount && !driver.attach_required);
    let data = run.csi.secret(&secret).await.expect("kept");
    assert_eq!(data["key"], b"swordfish");
    let not_kept = "it is not kept on this node, and the API server is unreachable";
    let error = run.csi.driver("unused").await.expect_err("not kept");
    assert_eq!(
        error.message,
        format!("failed to read CSIDriver \"unused\": {not_kept}")
    );
    let error = run.csi.attachment("csi-1").await.expect_err("not kept");
    assert_eq!(
        error.message,
        format!("failed to read VolumeAttachment \"csi-1\": {not_kept}")
    );
}
