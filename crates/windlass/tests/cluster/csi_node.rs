//! CSI drivers that register and unregister, checked in the CSINode. No volume is mounted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_client::{ObjectKey, Patch};
use windlass_testing::agent::NODE_NAME;
use windlass_testing::csi_driver::{CsiDriver, DriverOptions, Fault, FaultKind, Method};
use windlass_types::corev1::Node;
use windlass_types::storagev1::{CSIDriver, CSINode};

use crate::control_plane::Kind;
use crate::objects::{object, uid};
use crate::test_env::{Credentials, SOON, TestEnv, eventually};

const ZONE: &str = "topology.disk.csi.test/zone";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_fake_cluster_csi_drivers_register_in_csi_node() {
    csi_drivers_register_in_csi_node(Kind::Fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_real_cluster_csi_drivers_register_in_csi_node() {
    csi_drivers_register_in_csi_node(Kind::Real).await;
}

async fn csi_drivers_register_in_csi_node(kind: Kind) {
    let Some(mut env) = TestEnv::prepare(kind, "k-csinode", Credentials::Certificate).await else {
        return;
    };
    // its socket exists before the agent starts
    let mut disk = start(&env, "disk.csi.test", |options| {
        options.topology = BTreeMap::from([(ZONE.to_owned(), "z1".to_owned())]);
        options.max_volumes = 7;
    });
    env.agent.spawn().unwrap();
    let node = env.node_ready().await;
    the_object_belongs_to_the_node(&env, &node).await;
    assert_eq!(disk.registered(1, SOON).await, Ok(()));
    let disk_entry = json!({ "name": "disk.csi.test", "nodeID": "node-of-the-driver",
        "topologyKeys": [ZONE], "allocatable": { "count": 7 } });
    entries(&env, &json!([disk_entry])).await;
    let node = env
        .get::<Node>(ObjectKey::cluster(NODE_NAME))
        .await
        .unwrap();
    assert_eq!(node["metadata"]["labels"][ZONE], "z1");
    let annotation = |node: &Value| -> Option<String> {
        let ids = &node["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"];
        ids.as_str().map(str::to_owned)
    };
    let expected = r#"{"disk.csi.test":"node-of-the-driver"}"#;
    assert_eq!(annotation(&node).as_deref(), Some(expected));

    wrong_ones_are_refused_and_keep_nobody_waiting(&env, &disk_entry).await;
    a_limit_that_changes_is_told(&env, &disk).await;

    // the restarted agent finds the drivers again
    let told = disk.registrations().len();
    env.agent.kill().unwrap();
    env.respawn().await;
    assert_eq!(disk.registered(told + 1, SOON).await, Ok(()));
    disk.restart().unwrap();
    assert_eq!(disk.registered(told + 2, SOON).await, Ok(()));

    disk.uninstall();
    entries(&env, &json!([])).await;
    eventually("the driver's name of the node is gone", SOON, async || {
        let node = env
            .get::<Node>(ObjectKey::cluster(NODE_NAME))
            .await
            .unwrap();
        annotation(&node).map_or(Ok(()), Err)
    })
    .await;
    env.stop().await;
}

fn start(env: &TestEnv, name: &str, change: impl FnOnce(&mut DriverOptions)) -> CsiDriver {
    let mut options = DriverOptions::new(env.agent.root_dir(), name);
    change(&mut options);
    CsiDriver::start(options).unwrap()
}

async fn the_object_belongs_to_the_node(env: &TestEnv, node: &Value) {
    let object = eventually("the CSINode", SOON, async || {
        let found = env.get::<CSINode>(ObjectKey::cluster(NODE_NAME)).await;
        found.ok_or_else(|| "none".to_owned())
    })
    .await;
    let owner = &object["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"]),
        (&json!("Node"), &json!(uid(node)))
    );
    let migrated =
        &object["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"];
    assert!(migrated.as_str().unwrap().contains("kubernetes.io/aws-ebs"));
}

/// Waits until the CSINode has exactly these entries.
async fn entries(env: &TestEnv, expected: &Value) {
    eventually("entries of the CSINode", SOON, async || {
        let found = env
            .get::<CSINode>(ObjectKey::cluster(NODE_NAME))
            .await
            .unwrap();
        let drivers = match &found["spec"]["drivers"] {
            Value::Null => json!([]),
            drivers => drivers.clone(),
        };
        match drivers == *expected {
            true => Ok(()),
            false => Err(drivers.to_string()),
        }
    })
    .await;
}

/// Hung, invalid and misplaced drivers do not delay a valid one.
async fn wrong_ones_are_refused_and_keep_nobody_waiting(env: &TestEnv, disk: &Value) {
    let silent = start(env, "silent.csi.test", |options| {
        let hang = Fault::before(FaultKind::Hang);
        options.always = BTreeMap::from([(Method::NodeGetInfo, hang)]);
    });
    let liar = start(env, "liar.csi.test", |options| {
        options.registered_name = Some("../liar".to_owned());
    });
    let old = start(env, "old.csi.test", |options| {
        options.versions = vec!["0.3.0".to_owned()];
    });
    let elsewhere = start(env, "elsewhere.csi.test", |options| {
        options.topology = BTreeMap::from([(ZONE.to_owned(), "z2".to_owned())]);
    });
    let mut good = start(env, "good.csi.test", |_| ());
    assert_eq!(good.registered(1, SOON).await, Ok(()));
    for (driver, why) in [
        (&liar, "a CSI driver name must be a DNS subdomain"),
        (
            &old,
            "highest supported version reported is 0.3.0, must be v1.x",
        ),
        (
            &elsewhere,
            "existing label is \"topology.disk.csi.test/zone\":\"z1\"",
        ),
    ] {
        let told = driver.registered(1, SOON).await.unwrap_err();
        assert!(told.ends_with(why), "{told}");
    }
    assert_eq!(silent.registrations(), []);
    let entry = json!({ "name": "good.csi.test", "nodeID": "node-of-the-driver" });
    entries(env, &json!([disk, entry])).await;
    good.uninstall();
    for mut driver in [silent, liar, old, elsewhere] {
        driver.uninstall();
    }
    entries(env, &json!([disk])).await;
}

/// Interval of the CSIDriver; the API requires at least ten seconds.
async fn a_limit_that_changes_is_told(env: &TestEnv, disk: &CsiDriver) {
    let described: CSIDriver = object(json!({
        "metadata": { "name": "disk.csi.test" },
        "spec": { "nodeAllocatableUpdatePeriodSeconds": 10 },
    }));
    env.create(&described).await;
    // the agent polls it once a minute, and on each registration
    disk.set_max_volumes(5);
    let mut other = start(env, "other.csi.test", |_| ());
    assert_eq!(other.registered(1, SOON).await, Ok(()));
    other.uninstall();
    let disk = json!({ "name": "disk.csi.test", "nodeID": "node-of-the-driver",
        "topologyKeys": [ZONE], "allocatable": { "count": 5 } });
    entries(env, &json!([disk])).await;
    let none = Patch::Merge(json!({ "spec": { "nodeAllocatableUpdatePeriodSeconds": null } }));
    let at = ObjectKey::cluster("disk.csi.test");
    env.api.patch::<CSIDriver>(at, None, &none).await.unwrap();
}
