//! The task against an API server in the same process, on paused time.

use std::path::Path;
use std::sync::Arc;

use windlass_csi::CsiClient;
use windlass_fake_api::{FakeApiServer, Fault, On};
use windlass_metrics::Metrics;

use super::*;

const CSI_NODE: &str = "/apis/storage.k8s.io/v1/csinodes*";

struct World {
    server: FakeApiServer,
    seen: watch::Sender<NodeSeen>,
    drivers: CsiDrivers,
    announcements: Announcements,
    standing: watch::Receiver<CsiNodeStanding>,
}

impl World {
    fn begin() -> Self {
        let server = FakeApiServer::new();
        let (seen, node) = watch::channel(NodeSeen(None));
        let (sender, standing) = watch::channel(CsiNodeStanding::Unknown);
        let (drivers, announcements) = (CsiDrivers::default(), Announcements::default());
        tokio::spawn(keep_csi_node(CsiNodeDeps {
            node_name: "n1".into(),
            client: server.clients_of_node("n1").main,
            node,
            drivers: drivers.clone(),
            announcements: announcements.clone(),
            standing: sender,
        }));
        Self {
            server,
            seen,
            drivers,
            announcements,
            standing,
        }
    }

    /// The API server has a node, and the agent has seen it.
    fn node(&self) -> String {
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        node.metadata.labels = Some(map("zone", "z1"));
        let node = self.server.create(&node);
        let uid = node.metadata.uid.clone().expect("a uid");
        self.seen.send_replace(NodeSeen(Some(Arc::new(node))));
        uid
    }

    fn driver(&self, name: &str, info: NodeInfo) {
        let metrics = Metrics::new().expect("made");
        let node = Arc::new(CsiClient::new(name, Path::new("/nowhere"), metrics));
        self.drivers.add(name, RegisteredDriver { node, info });
    }

    /// Waits until the cluster knows, and says what it was told.
    async fn told(&self, name: &str, info: &NodeInfo) -> Result<(), String> {
        let told = self.announcements.of(name, info);
        let told = tokio::time::timeout(Duration::from_secs(600), told).await;
        told.expect("told in time")
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
async fn the_object_is_made_with_the_node_and_follows_the_drivers() {
    let mut world = World::begin();
    let uid = world.node();
    let initialized = |it: &CsiNodeStanding| *it == CsiNodeStanding::Initialized;
    let standing = world.standing.wait_for(initialized);
    tokio::time::timeout(Duration::from_secs(60), standing)
        .await
        .expect("in time")
        .expect("kept");
    let object = world.csi_node().expect("made");
    let owners = object.metadata.owner_references.expect("an owner");
    assert_eq!((owners[0].kind.as_str(), &owners[0].uid), ("Node", &uid));

    let zoned = NodeInfo {
        topology: map("zone", "z1"),
        max_volumes: Some(5),
        ..info("i-1")
    };
    world.driver("a", zoned.clone());
    world.driver("b", info("i-2"));
    assert_eq!(world.told("a", &zoned).await, Ok(()));
    assert_eq!(world.told("b", &info("i-2")).await, Ok(()));
    assert_eq!(world.entries(), ["a=i-1", "b=i-2"]);
    let entry = world.csi_node().expect("there").spec.drivers.remove(0);
    assert_eq!(entry.topology_keys, Some(vec!["zone".to_owned()]));
    assert_eq!(entry.allocatable.and_then(|it| it.count), Some(5));
    let node: Node = world.server.get(None, "n1").expect("there");
    let annotations = node.metadata.annotations.expect("annotations");
    let ids = &annotations["csi.volume.kubernetes.io/nodeid"];
    assert_eq!(ids, r#"{"a":"i-1","b":"i-2"}"#);

    world.drivers.remove("a");
    world.until("a left", |it| it.entries() == ["b=i-2"]).await;
    // nothing more to say
    world.server.clear_requests();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_is_told_later_and_a_driver_that_left_meanwhile_never() {
    let world = World::begin();
    world.node();
    let outage = world.server.faults().outage();
    world.driver("a", info("i-1"));
    world.driver("b", info("i-2"));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(matches!(
        *world.standing.borrow(),
        CsiNodeStanding::Failed(_)
    ));
    world.drivers.remove("b");
    world.server.faults().lift(outage);
    assert_eq!(world.told("a", &info("i-1")).await, Ok(()));
    assert_eq!(world.entries(), ["a=i-1"]);
    assert_eq!(*world.standing.borrow(), CsiNodeStanding::Initialized);
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_refuses_for_good_is_one_drivers_affair() {
    let world = World::begin();
    world.node();
    let elsewhere = NodeInfo {
        topology: map("zone", "z2"),
        ..info("i-1")
    };
    world.driver("a", elsewhere.clone());
    world.driver("b", info("i-2"));
    let told = world.told("a", &elsewhere).await;
    let why = "error updating Node object with CSI driver node info: detected topology value \
               collision: driver reported \"zone\":\"z2\" but existing label is \"zone\":\"z1\"";
    assert_eq!(told, Err(why.to_owned()));
    assert_eq!(world.told("b", &info("i-2")).await, Ok(()));
    assert_eq!(world.entries(), ["b=i-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_and_a_lost_answer_are_tried_again() {
    let world = World::begin();
    world.node();
    let faults = world.server.faults();
    let conflict = Fault::Error {
        code: 409,
        retry_after: None,
    };
    faults.add(On::path(CSI_NODE).method("PUT").times(2), conflict);
    faults.add(On::path(CSI_NODE).method("POST").times(1), Fault::DropReply);
    faults.add(On::path(CSI_NODE).method("PUT").times(1), Fault::DropReply);
    world.driver("a", info("i-1"));
    assert_eq!(world.told("a", &info("i-1")).await, Ok(()));
    assert_eq!(world.entries(), ["a=i-1"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_made_anew_gets_an_object_of_its_own() {
    let world = World::begin();
    let first = world.node();
    world.driver("a", info("i-1"));
    assert_eq!(world.told("a", &info("i-1")).await, Ok(()));
    world.server.delete::<Node>(None, "n1", None);
    world.seen.send_replace(NodeSeen(None));
    let second = world.node();
    assert_ne!(first, second);
    world
        .until("owned by the new node", |world| {
            let owners = world.csi_node().and_then(|it| it.metadata.owner_references);
            owners.is_some_and(|owners| owners[0].uid == second) && world.entries() == ["a=i-1"]
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn drivers_of_an_earlier_life_stay_until_they_are_seen_to_leave() {
    let world = World::begin();
    world.node();
    world.driver("a", info("i-1"));
    world.driver("b", info("i-2"));
    assert_eq!(world.told("a", &info("i-1")).await, Ok(()));
    assert_eq!(world.told("b", &info("i-2")).await, Ok(()));

    // another life on the same API server
    let next = World {
        server: world.server.clone(),
        ..World::begin()
    };
    let (seen, node) = watch::channel(NodeSeen(world.server.get(None, "n1").map(Arc::new)));
    tokio::spawn(keep_csi_node(CsiNodeDeps {
        node_name: "n1".into(),
        client: world.server.clients_of_node("n1").main,
        node,
        drivers: next.drivers.clone(),
        announcements: next.announcements.clone(),
        standing: watch::channel(CsiNodeStanding::Unknown).0,
    }));
    next.driver("a", info("i-9"));
    assert_eq!(next.told("a", &info("i-9")).await, Ok(()));
    assert_eq!(next.entries(), ["b=i-2", "a=i-9"]);
    drop(seen);
}
