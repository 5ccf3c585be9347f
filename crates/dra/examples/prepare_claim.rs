//! Has a DRA driver prepare and unprepare a claim, as a node does for a pod.
//!
//! `cargo run -p windlass-dra --example prepare_claim` starts the driver of `windlass-testbed`.
//!
//! Runs without a container runtime.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windlass_dra::{ClaimOwners, DRA_PLUGIN, DraClaims, DraDeps, DraDrivers, DraRegistration};
use windlass_fake_api::FakeApiServer;
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{ActorKind, SystemClock, slots};
use windlass_metrics::Metrics;
use windlass_plugins::{PluginHandler, PluginRegistry, run_plugin_registry};
use windlass_runtime_config::port::PodClaims;
use windlass_store::Store;
use windlass_testbed::dra_driver::{DraDriver, DraOptions};
use windlass_types::resourcev1::ResourceClaim;
use windlass_types::{Pod, PodExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let metrics = Metrics::new()?;
    let api = FakeApiServer::new();
    let claims = Arc::new(DraClaims::new(DraDeps {
        drivers: DraDrivers::default(),
        client: Some(api.clients().main),
        store: Some(Store::open(directory.path())?),
        changed: slots(ActorKind::new("Example", 16), &metrics.mailboxes).0,
        extended: true,
        owners: ClaimOwners::default(),
        health: true,
        health_messages: true,
        metrics: metrics.clone(),
        hung: HungOperations::new(Arc::new(SystemClock)),
    }));
    let handler: Arc<dyn PluginHandler> = Arc::new(DraRegistration::new(Arc::clone(&claims)));
    tokio::spawn(run_plugin_registry(PluginRegistry {
        directory: directory.path().join("plugins_registry"),
        handlers: BTreeMap::from([(DRA_PLUGIN.to_owned(), handler)]),
        metrics,
    }));
    let driver = DraDriver::start(DraOptions::new(directory.path(), "gpu.example.com"))?;
    driver.registered(1, Duration::from_secs(10)).await?;

    api.create(&serde_json::from_value::<ResourceClaim>(json!({
        "metadata": { "namespace": "default", "name": "gpu" },
        "spec": {},
        "status": {
            "allocation": { "devices": { "results": [{
                "driver": "gpu.example.com", "pool": "pool", "device": "d0", "request": "r",
            }] } },
            "reservedFor": [{ "resource": "pods", "name": "p", "uid": "u" }],
        },
    }))?);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": "p", "uid": "u" },
        "spec": {
            "resourceClaims": [{ "name": "gpu", "resourceClaimName": "gpu" }],
            "containers": [{ "name": "app", "resources": { "claims": [{ "name": "gpu" }] } }],
        },
    }))?;
    let pod = Arc::new(pod);
    claims.prepare(&pod, true).await?;
    for (container, devices) in claims.devices(&pod) {
        println!("container {container}: {}", devices?.join(" "));
    }
    claims.unprepare(&pod.uid()).await?;
    println!("calls: {}", driver.calls().join(", "));
    Ok(())
}
