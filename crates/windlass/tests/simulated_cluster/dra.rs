//! Pods with resource claims: preparation, sharing, failures of drivers, health and clean-up.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use windlass_dra::{ClaimDevice, ClaimDriver, ClaimRef, ClaimResult};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::PodUid;
use windlass_types::resourcev1::{ResourceClaim, ResourceSlice};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const DRIVER: &str = "gpu.example.com";
const ENDPOINT: &str = "/plugins/gpu/dra.sock";

/// A driver that prepares one device for each claim.
#[derive(Debug, Default)]
pub(crate) struct Driver(Mutex<DriverState>);

#[derive(Debug, Default)]
struct DriverState {
    calls: Vec<String>,
    /// Error of each claim.
    error: Option<String>,
    hangs: bool,
}

impl Driver {
    fn with<T>(&self, change: impl FnOnce(&mut DriverState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls hang from now on, or no longer.
    pub(crate) fn hang(&self, hangs: bool) {
        self.with(|state| state.hangs = hangs);
    }

    fn calls(&self) -> Vec<String> {
        self.with(|state| state.calls.clone())
    }

    async fn results<T>(
        &self,
        method: &str,
        claims: &[ClaimRef],
        of: impl Fn(&ClaimRef) -> T,
    ) -> BTreeMap<String, ClaimResult<T>> {
        let names: Vec<_> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let (hangs, error) = self.with(|state| {
            state.calls.push(format!("{method} {}", names.join(",")));
            (state.hangs, state.error.clone())
        });
        if hangs {
            while self.with(|state| state.hangs) {
                tokio::time::sleep(SECOND).await;
            }
        }
        let result = |claim: &ClaimRef| match &error {
            Some(error) => Err(error.clone()),
            None => Ok(of(claim)),
        };
        claims
            .iter()
            .map(|it| (it.uid.clone(), result(it)))
            .collect()
    }
}

#[async_trait]
impl ClaimDriver for Driver {
    async fn prepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<Vec<ClaimDevice>>>, String> {
        let device = |claim: &ClaimRef| {
            vec![ClaimDevice {
                pool: "pool".to_owned(),
                device: claim.name.clone(),
                cdi_devices: vec![format!("{DRIVER}/claim={}", claim.name)],
                ..ClaimDevice::default()
            }]
        };
        Ok(self.results("prepare", claims, device).await)
    }

    async fn unprepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<()>>, String> {
        Ok(self.results("unprepare", claims, |_| ()).await)
    }
}

pub(crate) fn driver(sim: &NodeSim) -> Arc<Driver> {
    let driver = Arc::new(Driver::default());
    let endpoint = Path::new(ENDPOINT);
    sim.dra_drivers
        .add(DRIVER, endpoint, driver.clone())
        .expect("free");
    sim.dra_drivers.set_connected(DRIVER, endpoint, true);
    driver
}

/// A claim that is allocated for pods.
pub(crate) fn claim(sim: &NodeSim, name: &str, reserved_for: &[&PodUid]) {
    let reserved = reserved_for.iter();
    let reserved: Vec<Value> = reserved
        .map(|uid| json!({ "resource": "pods", "name": "p", "uid": uid.as_str() }))
        .collect();
    let result = json!({ "driver": DRIVER, "pool": "pool", "device": name, "request": "r" });
    let claim = json!({
        "metadata": { "namespace": "default", "name": name },
        "spec": {},
        "status": {
            "allocation": { "devices": { "results": [result] } },
            "reservedFor": reserved,
        },
    });
    let claim: ResourceClaim = serde_json::from_value(claim).expect("claim");
    sim.api.create(&claim);
}

pub(crate) fn with_claim(name: &str, claim: &str) -> PodBuilder {
    pod(name).with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        let claims = json!([{ "name": "gpu", "resourceClaimName": claim }]);
        spec.resource_claims = serde_json::from_value(claims).expect("claims");
        let resources = json!({ "claims": [{ "name": "gpu" }] });
        spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
    })
}

/// CDI devices of the running container.
fn devices(sim: &NodeSim, uid: &PodUid) -> Vec<String> {
    let running = sim.runtime.running(uid, "app");
    let config = running.and_then(|it| sim.runtime.container_config(&it.id));
    config.map(|it| it.cdi_devices).unwrap_or_default()
}

fn blocker(sim: &NodeSim, name: &str) -> String {
    let view = sim.view(name);
    let blocker = view.and_then(|view| view.blocker);
    blocker.map(|it| it.to_string()).unwrap_or_default()
}

#[test]
fn shared_claim_is_prepared_once_and_unprepared_last() {
    on_a_ready_node(2101, async |sim| {
        let driver = driver(sim);
        let a = create(sim, with_claim("a", "shared"));
        let b = create(sim, with_claim("b", "shared"));
        claim(sim, "shared", &[&a, &b]);
        sim.until("both run", MINUTE, |sim| ready(sim, "a") && ready(sim, "b"))
            .await;
        assert_eq!(driver.calls(), ["prepare shared"]);
        assert_eq!(devices(sim, &a), [format!("{DRIVER}/claim=shared")]);
        assert_eq!(devices(sim, &b), devices(sim, &a));
        delete(sim, "a", None);
        sim.until("a is gone", MINUTE, |sim| get(sim, "a").is_none())
            .await;
        assert_eq!(driver.calls().len(), 1, "b uses the claim");
        driver.with(|state| state.error = Some("busy".to_owned()));
        delete(sim, "b", None);
        sim.pass(MINUTE).await;
        assert_eq!(
            phase(sim, "b"),
            "Running",
            "not terminal before the claim is unprepared"
        );
        assert!(!runs(sim, &b));
        driver.with(|state| state.error = None);
        sim.until("b is gone", MINUTE, |sim| get(sim, "b").is_none())
            .await;
        assert_eq!(driver.calls().last().expect("calls"), "unprepare shared");
    });
}

#[test]
fn invalid_claims_block_their_pods_with_reason() {
    on_a_ready_node(2102, async |sim| {
        let driver = driver(sim);
        let prefix = "Failed to prepare dynamic resources: prepare dynamic resources:";
        let reserved = create(sim, with_claim("reserved", "other"));
        claim(sim, "other", &[&PodUid::from("someone")]);
        create(sim, with_claim("missing", "nowhere"));
        create(
            sim,
            with_claim("generated", "x").with(|pod| {
                let claims = json!([{ "name": "gpu", "resourceClaimTemplateName": "t" }]);
                let spec = pod.spec.as_mut().expect("spec");
                spec.resource_claims = serde_json::from_value(claims).expect("claims");
            }),
        );
        let expected = [
            (
                "reserved",
                format!("{prefix} pod reserved ({reserved}) is not allowed to use"),
            ),
            ("missing", format!("{prefix} fetch ResourceClaim nowhere:")),
            (
                "generated",
                format!("{prefix} pod \"default/generated\": ResourceClaim not created"),
            ),
        ];
        sim.until("they say why", MINUTE, |sim| {
            let mut all = expected.iter();
            all.all(|(name, text)| blocker(sim, name).contains(text.as_str()))
        })
        .await;
        assert!(driver.calls().is_empty());
        assert!(sim.runtime.sandboxes().is_empty());
        // the controller generates the claim
        let uid = get(sim, "generated")
            .and_then(|pod| pod.metadata.uid)
            .expect("a UID");
        let owner = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "generated", "uid": uid, "controller": true,
        }]);
        claim(sim, "generated-gpu", &[&PodUid::from(uid.as_str())]);
        sim.api
            .modify::<ResourceClaim>(Some("default"), "generated-gpu", |claim| {
                claim.metadata.owner_references = serde_json::from_value(owner).expect("owner");
            });
        sim.api
            .modify::<windlass_types::Pod>(Some("default"), "generated", |pod| {
                let status = pod.status.get_or_insert_default();
                let names = json!([{ "name": "gpu", "resourceClaimName": "generated-gpu" }]);
                status.resource_claim_statuses = serde_json::from_value(names).expect("names");
            });
        sim.until("it runs", MINUTE, |sim| ready(sim, "generated"))
            .await;
        assert_eq!(driver.calls(), ["prepare generated-gpu"]);
        // pods that never got a claim end without a call
        delete(sim, "reserved", None);
        sim.until("it is gone", MINUTE, |sim| get(sim, "reserved").is_none())
            .await;
        assert_eq!(driver.calls().len(), 1);
    });
}

#[test]
fn pod_starts_when_its_driver_registers() {
    on_a_ready_node(2103, async |sim| {
        let uid = create(sim, with_claim("p", "c"));
        claim(sim, "c", &[&uid]);
        let text = "DRA driver gpu.example.com is not registered";
        sim.until("it waits", MINUTE, |sim| blocker(sim, "p").contains(text))
            .await;
        assert_eq!(sim.blocker("p"), "FailedPrepareDynamicResources");
        driver(sim);
        sim.until("it runs at once", 2 * SECOND, |sim| ready(sim, "p"))
            .await;
    });
}

#[test]
fn hung_driver_delays_only_its_own_pods() {
    on_a_ready_node(2104, async |sim| {
        let driver = driver(sim);
        driver.with(|state| state.hangs = true);
        let hung = create(sim, with_claim("hung", "c"));
        claim(sim, "c", &[&hung]);
        create(sim, pod("free"));
        sim.until("the other runs", 2 * SECOND, |sim| ready(sim, "free"))
            .await;
        sim.pass(10 * SECOND).await;
        assert!(!runs(sim, &hung));
        // a waiting pod can be deleted: the sync is cancelled
        driver.with(|state| state.hangs = false);
        delete(sim, "hung", None);
        sim.until("it is gone", MINUTE, |sim| get(sim, "hung").is_none())
            .await;
        assert_eq!(driver.calls(), ["prepare c", "unprepare c"]);
    });
}

#[test]
fn claims_survive_a_kill_of_the_agent() {
    let dir = tempfile::tempdir().expect("a directory");
    on_a_ready_node(2105, async |sim| {
        sim.kill_agent().await;
        sim.claims_dir = Some(dir.path().to_owned());
        sim.start_agent().await;
        let driver = driver(sim);
        let (kept, gone) = (
            create(sim, with_claim("kept", "a")),
            create(sim, with_claim("gone", "b")),
        );
        claim(sim, "a", &[&kept]);
        claim(sim, "b", &[&gone]);
        sim.until("they run", MINUTE, |sim| {
            ready(sim, "kept") && ready(sim, "gone")
        })
        .await;
        sim.kill_agent().await;
        // meanwhile the pod and its containers go
        delete(sim, "gone", Some(0));
        sim.runtime.reboot();
        sim.start_agent().await;
        sim.until("the claim of the lost pod is unprepared", MINUTE, |_| {
            driver.calls().contains(&"unprepare b".to_owned())
        })
        .await;
        sim.until("the other runs again", MINUTE, |sim| runs(sim, &kept))
            .await;
        assert_eq!(devices(sim, &kept), [format!("{DRIVER}/claim=a")]);
        assert!(!driver.calls().contains(&"unprepare a".to_owned()));
    });
}

#[test]
fn extended_resources_come_from_their_claim() {
    on_a_ready_node(2107, async |sim| {
        let driver = driver(sim);
        let resource = "deviceclass.resource.kubernetes.io/gpu";
        let pod = static_pod("p").with(|pod| {
            let spec = pod.spec.as_mut().expect("spec");
            let resources = json!({ "requests": { resource: "1" }, "limits": { resource: "1" } });
            spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
        });
        let uid = create(sim, pod);
        // the scheduler makes the claim, then binds the pod
        sim.api
            .modify::<windlass_types::Pod>(Some("default"), "p", |pod| {
                let claim = json!({
                    "resourceClaimName": "p-extended",
                    "requestMappings": [
                        { "containerName": "app", "resourceName": resource, "requestName": "r" },
                    ],
                });
                let status = pod.status.get_or_insert_default();
                status.extended_resource_claim_status =
                    serde_json::from_value(claim).expect("claim");
                let spec = pod.spec.as_mut().expect("spec");
                spec.node_name = Some(NODE.to_owned());
            });
        claim(sim, "p-extended", &[&uid]);
        sim.until("it runs", MINUTE, |sim| ready(sim, "p")).await;
        assert_eq!(devices(sim, &uid), [format!("{DRIVER}/claim=p-extended")]);
        delete(sim, "p", None);
        sim.until("it is gone", MINUTE, |sim| get(sim, "p").is_none())
            .await;
        assert_eq!(
            driver.calls(),
            ["prepare p-extended", "unprepare p-extended"]
        );
    });
}

#[test]
fn slices_go_at_startup_and_30_seconds_after_a_driver() {
    fn slice(sim: &NodeSim, name: &str, node: &str) {
        let slice = json!({
            "metadata": { "name": name },
            "spec": {
                "driver": DRIVER, "nodeName": node, "pool": {
                    "name": "pool", "generation": 1, "resourceSliceCount": 1,
                },
            },
        });
        let slice: ResourceSlice = serde_json::from_value(slice).expect("slice");
        sim.api.create(&slice);
    }
    fn left(sim: &NodeSim) -> usize {
        sim.api.list::<ResourceSlice>().len()
    }
    on_a_ready_node(2106, async |sim| {
        sim.kill_agent().await;
        slice(sim, "old", NODE);
        slice(sim, "other", "another-node");
        sim.start_agent().await;
        sim.until("the old one goes", 5 * SECOND, |sim| left(sim) == 1)
            .await;
        let driver = driver(sim);
        slice(sim, "new", NODE);
        let connected = |sim: &NodeSim, connected| {
            sim.dra_drivers
                .set_connected(DRIVER, ENDPOINT.as_ref(), connected);
        };
        connected(sim, false);
        sim.pass(Duration::from_secs(25)).await;
        connected(sim, true);
        sim.pass(MINUTE).await;
        assert_eq!(left(sim), 2, "it came back in time");
        sim.dra_drivers.remove(DRIVER, ENDPOINT.as_ref());
        sim.pass(Duration::from_secs(29)).await;
        assert_eq!(left(sim), 2);
        sim.pass(Duration::from_secs(2)).await;
        assert_eq!(left(sim), 1, "that of the other node");
        drop(driver);
    });
}
