//! The task against an API server in the same process, on paused time.

use std::path::Path;
use std::sync::Arc;

use windlass_csi::CsiClient;
use windlass_fake_api::{FakeApiServer, Fault, On};
use windlass_metrics::Metrics;

use super::*;

const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes*";

struct TestEnv {
    server: FakeApiServer,
    seen: watch::Sender<NodeUpdate>,
    drivers: CsiDrivers,
    announcements: Announcements,
    status: watch::Receiver<CsiNodeStatus>,
}

impl TestEnv {
    fn begin() -> Self {
        let server = FakeApiServer::new();
        let (seen, node) = watch::channel(NodeUpdate(None));
        let (sender, status) = watch::channel(CsiNodeStatus::Unknown);
        let (drivers, announcements) = (CsiDrivers::default(), Announcements::default());
        tokio::spawn(run_csi_node_sync(CsiNodeDeps {
            node_name: "n1".into(),
            client: server.clients_of_node("n1").main,
            node,
            drivers: drivers.clone(),
            announcements: announcements.clone(),
            status: sender,
        }));
        Self {
            server,
            seen,
            drivers,
            announcements,
            status,
        }
    }

    /// Creates the node and publishes it to the agent.
    fn node(&self) -> String {
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        node.metadata.labels = Some(map("zone", "z1"));
        let node = self.server.create(&node);
        let uid = node.metadata.uid.clone().expect("a uid");
        self.seen.send_replace(NodeUpdate(Some(Arc::new(node))));
        uid
    }

    fn driver(&self, name: &str, info: NodeInfo) {
        let metrics = Metrics::new().expect("made");
        let node = Arc::new(CsiClient::new(name, Path::new("/nowhere"), metrics));
        self.drivers.add(name, RegisteredDriver { node, info });
    }

    /// Waits for and returns the announced result.
    async fn report(&self, name: &str, info: &NodeInfo) -> Result<(), String> {
        let reported = self.announcements.wait_for(name, info);
        let reported = tokio::time::timeout(Duration::from_secs(600), reported).await;
        reported.expect("in time")
    }

    fn csi_node(&self) -> Option<CSINode> {
        self.server.get(None, "n1")
    }

    fn entries(&self) -> Vec<String> {
        let entries = self.csi_node().into_iter().flat_map(|it| it.spec.drivers);
        entries
            .map(|it| format!("{}={}", it.name, it.node_id))
            .collect()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..6000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{what}: there is {:?}", self.csi_node());
    }
}

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

fn info(node_id: &str) -> NodeInfo {
    NodeInfo {
        node_id: node_id.to_owned(),
        ..NodeInfo::default()
    }
}

#[tokio::test(start_paused = true)]
async fn csi_node_is_created_with_node_and_follows_drivers() {
    let mut env = TestEnv::begin();
    let uid = env.node();
    let initialized = |it: &CsiNodeStatus| *it == CsiNodeStatus::Initialized;
    let status = env.status.wait_for(initialized);
    tokio::time::timeout(Duration::from_secs(60), status)
        .await
        .expect("in time")
        .expect("kept");
    let object = env.csi_node().expect("made");
    let owners = object.metadata.owner_references.expect("an owner");
    assert_eq!((owners[0].kind.as_str(), &owners[0].uid), ("Node", &uid));

    let zoned = NodeInfo {
        topology: map("zone", "z1"),
        max_volumes: Some(5),
        ..info("i-1")
    };
    env.driver("a", zoned.clone());
    env.driver("b", info("i-2"));
    assert_eq!(env.report("a", &zoned).await, Ok(()));
    assert_eq!(env.report("b", &info("i-2")).await, Ok(()));
    assert_eq!(env.entries(), ["a=i-1", "b=i-2"]);
    let entry = env.csi_node().expect("there").spec.drivers.remove(0);
    assert_eq!(entry.topology_keys, Some(vec!["zone".to_owned()]));
    assert_eq!(entry.allocatable.and_then(|it| it.count), Some(5));
    let node: Node = env.server.get(None, "n1").expect("there");
    let annotations = node.metadata.annotations.expect("annotations");
    let ids = &annotations["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(ids, r#"{"a":"i-1","b":"i-2"}"#);

    env.drivers.remove("a");
    env.until("a left", |it| it.entries() == ["b=i-2"]).await;
    // no further update
    env.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(env.server.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn csi_node_skips_driver_removed_during_api_outage() {
    let env = TestEnv::begin();
    env.node();
    let outage = env.server.faults().outage();
    env.driver("a", info("i-1"));
    env.driver("b", info("i-2"));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(matches!(*env.status.borrow(), CsiNodeStatus::Failed(_)));
    env.drivers.remove("b");
    env.server.faults().lift(outage);
    assert_eq!(env.report("a", &info("i-1")).await, Ok(()));
    assert_eq!(env.entries(), ["a=i-1"]);
    assert_eq!(*env.status.borrow(), CsiNodeStatus::Initialized);
}

#[tokio::test(start_paused = true)]
async fn permanent_csi_driver_error_does_not_affect_other_drivers() {
    let env = TestEnv::begin();
    env.node();
    let elsewhere = NodeInfo {
        topology: map("zone", "z2"),
        ..info("i-1")
    };
    env.driver("a", elsewhere.clone());
    env.driver("b", info("i-2"));
    let reported = env.report("a", &elsewhere).await;
    let why = "error updating Node object with CSI driver node info: detected topology value \
               collision: driver reported \"zone\":\"z2\" but existing label is \"zone\":\"z1\"";
    assert_eq!(reported, Err(why.to_owned()));
    assert_eq!(env.report("b", &info("i-2")).await, Ok(()));
    assert_eq!(env.entries(), ["b=i-2"]);
}

#[tokio::test(start_paused = true)]
async fn csi_node_update_is_retried_after_conflict_and_lost_reply() {
    let env = TestEnv::begin();
    env.node();
    let faults = env.server.faults();
    let conflict = Fault::Error {
        code: 409,
        retry_after: None,
    };
    faults.add(On::path(CSI_NODE).method("PUT").times(2), conflict);
    faults.add(On::path(CSI_NODE).method("POST").times(1), Fault::DropReply);
    faults.add(On::path(CSI_NODE).method("PUT").times(1), Fault::DropReply);
    env.driver("a", info("i-1"));
    assert_eq!(env.report("a", &info("i-1")).await, Ok(()));
    assert_eq!(env.entries(), ["a=i-1"]);
}

#[tokio::test(start_paused = true)]
async fn recreated_node_gets_new_csi_node() {
    let env = TestEnv::begin();
    let first = env.node();
    env.driver("a", info("i-1"));
    assert_eq!(env.report("a", &info("i-1")).await, Ok(()));
    env.server.delete::<Node>(None, "n1", None);
    env.seen.send_replace(NodeUpdate(None));
    let second = env.node();
    assert_ne!(first, second);
    env.until("owned by the new node", |env| {
        let owners = env.csi_node().and_then(|it| it.metadata.owner_references);
        owners.is_some_and(|owners| owners[0].uid == second) && env.entries() == ["a=i-1"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn csi_drivers_of_previous_run_stay_until_unregistered() {
    let env = TestEnv::begin();
    env.node();
    env.driver("a", info("i-1"));
    env.driver("b", info("i-2"));
    assert_eq!(env.report("a", &info("i-1")).await, Ok(()));
    assert_eq!(env.report("b", &info("i-2")).await, Ok(()));

    // an agent restart against the same API server
    let next = TestEnv {
        server: env.server.clone(),
        ..TestEnv::begin()
    };
    let (seen, node) = watch::channel(NodeUpdate(env.server.get(None, "n1").map(Arc::new)));
    tokio::spawn(run_csi_node_sync(CsiNodeDeps {
        node_name: "n1".into(),
        client: env.server.clients_of_node("n1").main,
        node,
        drivers: next.drivers.clone(),
        announcements: next.announcements.clone(),
        status: watch::channel(CsiNodeStatus::Unknown).0,
    }));
    next.driver("a", info("i-9"));
    assert_eq!(next.report("a", &info("i-9")).await, Ok(()));
    assert_eq!(next.entries(), ["b=i-2", "a=i-9"]);
    drop(seen);
}
