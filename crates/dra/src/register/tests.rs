//! Drivers over real sockets: registration, versions, faults, health, rolling updates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass_actors::ObjectsChanged;
use windlass_fake_api::FakeApiServer;
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{ActorKind, SlotReceiver, SystemClock, slots};
use windlass_metrics::Metrics;
use windlass_plugin_proto::drahealth_v1alpha1::HealthStatus;
use windlass_plugins::{PluginHandler, PluginRegistry, run_plugin_registry};
use windlass_runtime_config::port::PodClaims;
use windlass_store::Store;
use windlass_testbed::dra_driver::{DraDriver, DraFault, DraOptions};
use windlass_types::corev1::{ContainerStatus, PodStatus};
use windlass_types::resourcev1::ResourceClaim;
use windlass_types::{Pod, PodExt, PodUid, SharedPod};

use super::{DRA_PLUGIN, DraRegistration};
use crate::drivers::DraDrivers;
use crate::manager::{DraClaims, DraDeps};
use crate::pod_claims::ClaimOwners;

/// Timeout for a busy host.
const SOON: Duration = Duration::from_secs(30);
const PEER: ActorKind = ActorKind::new("Peer", 16);
const DRIVER: &str = "gpu.example.com";

/// A node with an API server and a plugin registry.
struct TestEnv {
    directory: tempfile::TempDir,
    api: FakeApiServer,
    claims: Arc<DraClaims>,
    metrics: Metrics,
    requeued: SlotReceiver<PodUid, ObjectsChanged>,
    registry: JoinHandle<()>,
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        self.registry.abort();
    }
}

impl TestEnv {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let metrics = Metrics::new().expect("unique names");
        let api = FakeApiServer::new();
        let (changed, requeued) = slots(PEER, &metrics.mailboxes);
        let claims = Arc::new(DraClaims::new(DraDeps {
            drivers: DraDrivers::default(),
            client: Some(api.clients().main),
            store: Some(Store::open(directory.path()).expect("a store")),
            changed,
            extended: true,
            owners: ClaimOwners::default(),
            health: true,
            health_messages: true,
            metrics: metrics.clone(),
            hung: HungOperations::new(Arc::new(SystemClock)),
        }));
        let handler: Arc<dyn PluginHandler> = Arc::new(DraRegistration::new(Arc::clone(&claims)));
        let registry = tokio::spawn(run_plugin_registry(PluginRegistry {
            directory: directory.path().join("plugins_registry"),
            handlers: BTreeMap::from([(DRA_PLUGIN.to_owned(), handler)]),
            metrics: metrics.clone(),
        }));
        Self {
            directory,
            api,
            claims,
            metrics,
            requeued,
            registry,
        }
    }

    fn options(&self) -> DraOptions {
        DraOptions::new(self.directory.path(), DRIVER)
    }

    /// Starts a driver that registers and is connected.
    async fn driver(&self, options: DraOptions) -> DraDriver {
        let driver = DraDriver::start(options).expect("sockets");
        driver.registered(1, SOON).await.expect("registered");
        self.connected(true).await;
        driver
    }

    async fn connected(&self, connected: bool) {
        let mut changes = self.claims.drivers().subscribe();
        let waits = async {
            while self.claims.drivers().usable().get(DRIVER) != Some(&connected) {
                changes.changed().await.expect("the sender is here");
            }
        };
        tokio::time::timeout(SOON, waits).await.expect("in time");
    }

    /// A claim and a pod whose container uses it.
    fn pod(&self, name: &str) -> SharedPod {
        let uid = format!("{name}-uid");
        let result = json!({ "driver": DRIVER, "pool": "pool", "device": "d", "request": "r" });
        let claim: Value = json!({
            "metadata": { "namespace": "default", "name": name },
            "spec": {},
            "status": {
                "allocation": { "devices": { "results": [result] } },
                "reservedFor": [{ "resource": "pods", "name": name, "uid": uid }],
            },
        });
        let claim: ResourceClaim = serde_json::from_value(claim).expect("claim");
        self.api.create(&claim);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "namespace": "default", "name": name, "uid": uid },
            "spec": {
                "resourceClaims": [{ "name": "gpu", "resourceClaimName": name }],
                "containers": [{
                    "name": "app", "resources": { "claims": [{ "name": "gpu" }] },
                }],
            },
        }))
        .expect("pod");
        Arc::new(pod)
    }

    async fn prepare(&self, pod: &SharedPod) -> String {
        match self.claims.prepare(pod, true).await {
            Ok(()) => format!("{:?}", self.claims.devices(pod)["app"]),
            Err(error) => error.message,
        }
    }

    async fn unprepare(&self, pod: &SharedPod) -> String {
        let unprepared = self.claims.unprepare(&pod.uid()).await;
        unprepared.map_or_else(|error| error.message, |()| "ok".to_owned())
    }
}

#[tokio::test]
async fn newest_offered_version_is_called_in_batches() {
    let env = TestEnv::new();
    let pod = env.pod("a");
    for (services, version) in [
        (&["v1beta1.DRAPlugin"][..], "v1beta1"),
        (&["v1.DRAPlugin", "v1beta1.DRAPlugin"][..], "v1"),
    ] {
        let options = DraOptions {
            services: services.iter().map(|it| (*it).to_owned()).collect(),
            ..env.options()
        };
        let driver = env.driver(options).await;
        assert_eq!(env.prepare(&pod).await, "Ok([\"gpu.example.com/claim=a\"])");
        assert_eq!(env.unprepare(&pod).await, "ok");
        let expected = [
            format!("{version} prepare a"),
            format!("{version} unprepare a"),
        ];
        assert_eq!(driver.calls(), expected);
        assert_eq!(driver.connections(), 1, "all calls share it");
        drop(driver);
        env.gone().await;
    }
    let metrics = env.metrics.render().expect("text");
    for line in [
        "dra_grpc_operations_duration_seconds_count{driver_name=\"gpu.example.com\",\
         grpc_status_code=\"OK\",\
         method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 1",
        "dra_operations_duration_seconds_count{is_error=\"false\",\
         operation_name=\"PrepareResources\"} 2",
        "dra_resource_claims_in_use{driver_name=\"<any>\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

impl TestEnv {
    /// Waits until no plugin of the driver is registered.
    async fn gone(&self) {
        let mut changes = self.claims.drivers().subscribe();
        let waits = async {
            while self.claims.drivers().usable().contains_key(DRIVER) {
                changes.changed().await.expect("the sender is here");
            }
        };
        tokio::time::timeout(SOON, waits).await.expect("in time");
    }
}

#[tokio::test]
async fn unusable_plugins_are_rejected_with_upstream_texts() {
    let env = TestEnv::new();
    let check = async |options: DraOptions, expected: &str| {
        let driver = DraDriver::start(options).expect("sockets");
        let error = driver.registered(1, SOON).await.expect_err("rejected");
        assert!(error.contains(expected), "{error}");
        assert!(env.claims.drivers().usable().is_empty());
    };
    let services = |list: &[&str]| DraOptions {
        services: list.iter().map(|it| (*it).to_owned()).collect(),
        ..env.options()
    };
    check(services(&[]), "empty list of supported gRPC services").await;
    let none = "none of services supported by the plugin ([\"v9.DRAPlugin\"]) are supported by the \
                kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])";
    check(services(&["v9.DRAPlugin"]), none).await;
    let relative = DraOptions {
        endpoint: Some("../../etc/dra.sock".to_owned()),
        ..env.options()
    };
    check(relative, "is not an absolute path").await;
}

#[tokio::test]
async fn second_plugin_cannot_take_the_endpoint_of_the_first() {
    let env = TestEnv::new();
    let first = env.driver(env.options()).await;
    let thief = DraDriver::start(DraOptions {
        instance: "thief".to_owned(),
        endpoint: Some(env.options().socket().display().to_string()),
        ..env.options()
    });
    let thief = thief.expect("sockets");
    let error = thief.registered(1, SOON).await.expect_err("rejected");
    assert!(
        error.contains("already registered for DRA driver plugin"),
        "{error}"
    );
    drop(thief);
    let pod = env.pod("a");
    assert!(
        env.prepare(&pod).await.starts_with("Ok"),
        "the first still serves"
    );
    assert_eq!(first.calls(), ["v1 prepare a"]);
}

#[tokio::test]
async fn faults_of_a_driver_are_errors_and_a_retry_succeeds() {
    let env = TestEnv::new();
    let mut driver = env.driver(env.options()).await;
    let pod = env.pod("a");
    let prefix = "prepare dynamic resources:";
    let faults = [
        (
            DraFault::Fail("no".to_owned()),
            format!("{prefix} NodePrepareResources: rpc error: code = Internal desc = no"),
        ),
        (
            DraFault::FailClaims("hot".to_owned()),
            format!("{prefix} NodePrepareResources failed for ResourceClaim a: hot"),
        ),
        (
            DraFault::Skip,
            format!("{prefix} NodePrepareResources skipped 1 ResourceClaims"),
        ),
        (
            DraFault::Foreign,
            format!("{prefix} NodePrepareResources returned result for unknown claim UID foreign"),
        ),
    ];
    for (fault, expected) in faults {
        driver.fault(fault);
        assert_eq!(env.prepare(&pod).await, expected);
    }
    driver.fault(DraFault::Exit);
    let died = env.prepare(&pod).await;
    assert!(
        died.contains("NodePrepareResources: rpc error: code = "),
        "{died}"
    );
    env.connected(false).await;
    driver.restart().expect("sockets");
    driver.registered(2, SOON).await.expect("registered again");
    env.connected(true).await;
    assert!(env.prepare(&pod).await.starts_with("Ok"));
    driver.fault(DraFault::Skip);
    let skipped = "unprepare dynamic resources: NodeUnprepareResources skipped 1 ResourceClaims";
    assert_eq!(env.unprepare(&pod).await, skipped);
    assert_eq!(env.unprepare(&pod).await, "ok");
    assert_eq!(env.unprepare(&pod).await, "ok", "without a call");
    assert_eq!(driver.calls().len(), 8);
}

#[tokio::test]
async fn hung_call_ends_after_45_seconds() {
    let env = TestEnv::new();
    let driver = env.driver(env.options()).await;
    driver.fault(DraFault::Hang);
    let pod = env.pod("a");
    let (claims, hung) = (Arc::clone(&env.claims), Arc::clone(&pod));
    let call = tokio::spawn(async move { claims.prepare(&hung, true).await });
    driver.called(1, SOON).await.expect("called");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(44)).await;
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    tokio::time::advance(Duration::from_secs(2)).await;
    let error = call.await.expect("no panic").expect_err("late").message;
    let expected = "prepare dynamic resources: NodePrepareResources: rpc error: \
                    code = DeadlineExceeded desc = context deadline exceeded";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn newer_plugin_takes_over_in_a_rolling_update() {
    let env = TestEnv::new();
    let old = env.driver(env.options()).await;
    let new = DraOptions {
        instance: "new".to_owned(),
        ..env.options()
    };
    let mut new = env.driver(new).await;
    let pod = env.pod("a");
    // both are registered; wait for the connection of the new one
    let connected = async {
        while new.calls().is_empty() {
            assert!(env.prepare(&pod).await.starts_with("Ok"));
            assert_eq!(env.unprepare(&pod).await, "ok");
        }
    };
    tokio::time::timeout(SOON, connected)
        .await
        .expect("in time");
    old.deregister();
    assert!(env.prepare(&pod).await.starts_with("Ok"));
    // the newest one dies: its claims are unprepared when it is back
    new.kill();
    env.connected(false).await;
    assert!(env.unprepare(&pod).await.contains("code = Unavailable"));
    new.restart().expect("sockets");
    env.connected(true).await;
    assert_eq!(env.unprepare(&pod).await, "ok");
}

#[tokio::test]
async fn health_of_devices_is_in_the_status_of_containers() {
    let mut env = TestEnv::new();
    let mut driver = env.driver(env.options()).await;
    let pod = env.pod("a");
    assert!(env.prepare(&pod).await.starts_with("Ok"));
    let shown = |env: &TestEnv| {
        let mut status = PodStatus {
            container_statuses: Some(vec![ContainerStatus {
                name: "app".to_owned(),
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        };
        env.claims.add_health(&pod, &mut status);
        let container = &status.container_statuses.expect("one")[0];
        let resource = &container.allocated_resources_status.as_ref().expect("one")[0];
        let health = &resource.resources.as_ref().expect("one")[0];
        let message = health.message.clone().unwrap_or_default();
        let health = health.health.clone().unwrap_or_default();
        format!("{} {health} {message}", resource.name)
    };
    assert_eq!(shown(&env), "claim:gpu Unknown ");
    driver.report("device-a", HealthStatus::Unhealthy, "too hot");
    let (uid, _) = tokio::time::timeout(SOON, env.requeued.next())
        .await
        .expect("in time")
        .expect("open");
    assert_eq!(uid, pod.uid());
    assert_eq!(shown(&env), "claim:gpu Unhealthy too hot");
    driver.kill();
    env.requeued.next().await.expect("open");
    assert_eq!(shown(&env), "claim:gpu Unknown ");
}

#[tokio::test]
async fn checkpoint_restores_claims_for_the_next_run() {
    let env = TestEnv::new();
    let driver = env.driver(env.options()).await;
    let pod = env.pod("a");
    let prepared = env.prepare(&pod).await;
    let deps = || DraDeps {
        drivers: env.claims.drivers().clone(),
        client: None,
        store: Some(Store::open(env.directory.path()).expect("a store")),
        changed: slots(PEER, &env.metrics.mailboxes).0,
        extended: true,
        owners: ClaimOwners::default(),
        health: false,
        health_messages: false,
        metrics: env.metrics.clone(),
        hung: HungOperations::new(Arc::new(SystemClock)),
    };
    let next = DraClaims::new(deps());
    next.prepare(&pod, false).await.expect("known");
    assert_eq!(format!("{:?}", next.devices(&pod)["app"]), prepared);
    next.unprepare(&pod.uid()).await.expect("unprepared");
    assert_eq!(driver.calls(), ["v1 prepare a", "v1 unprepare a"]);
    let path = env.directory.path().join("dra_manager_state");
    std::fs::write(&path, "torn").expect("written");
    assert!(DraClaims::new(deps()).pods().is_empty());
    assert!(path.with_extension("corrupt-1").exists(), "set aside");
}
