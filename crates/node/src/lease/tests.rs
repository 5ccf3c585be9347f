//! The actor against an API server in the same process, on paused time.

use tokio::task::LocalSet;
use tokio::time::sleep;
use windlass_actors::{SimClock, start_actor};
use windlass_fake_api::{FakeApiServer, On};
use windlass_types::Timestamp;
use windlass_types::coordinationv1::Lease;
use windlass_types::corev1::Node;

use super::*;

const RENEWAL: Duration = Duration::from_secs(10);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

struct World {
    server: FakeApiServer,
    seen: watch::Sender<NodeSeen>,
    clock: SimClock,
    heard: watch::Receiver<Option<HeartbeatStatus>>,
}

impl World {
    fn begin() -> Self {
        let clock = SimClock::starting_at(Timestamp::from_second(1_700_000_000).expect("time"));
        let server = FakeApiServer::with_clock(Arc::new(clock));
        let (seen, node) = watch::channel(NodeSeen(None));
        let (contact, heard) = watch::channel(None);
        start_actor(NodeLease::new(NodeLeaseDeps {
            node_name: "n1".into(),
            duration_seconds: 40,
            client: server.clients_of_node("n1").heartbeat,
            node,
            clock: Arc::new(clock),
            contact,
        }));
        Self {
            server,
            seen,
            clock,
            heard,
        }
    }

    /// The API server has a node, and the agent has seen it.
    fn register(&self) -> String {
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        self.server.create(&node);
        let node = self.server.get::<Node>(None, "n1").expect("created");
        let uid = node.metadata.uid.clone().expect("a uid");
        self.seen.send_replace(NodeSeen(Some(Arc::new(node))));
        uid
    }

    fn lease(&self) -> Option<Lease> {
        self.server.get::<Lease>(Some(NAMESPACE), "n1")
    }

    /// Seconds since the lease was renewed.
    fn age(&self) -> i64 {
        let renewed = self.lease().and_then(|l| l.spec?.renew_time);
        let renewed = renewed.expect("a lease").0;
        self.clock.now().as_second() - renewed.as_second()
    }

    /// Whether the API server answers, and for how many seconds that is so.
    fn contact(&self) -> (bool, i64) {
        let contact = self.heard.borrow().clone().expect("asked");
        let since = self.clock.now().as_second() - contact.since.as_second();
        (contact.error.is_none(), since)
    }

    fn owner(&self) -> Option<String> {
        let owners = self.lease()?.metadata.owner_references?;
        owners.first().map(|owner| owner.uid.clone())
    }

    fn updates(&self) -> usize {
        let all = self.server.requests();
        let update = |r: &&windlass_fake_api::RequestRecord| r.method == "PUT" && r.status == 200;
        all.iter().filter(update).count()
    }

    /// For this long, the lease is never older than `limit` seconds.
    async fn never_older(&self, limit: i64, during: Duration) {
        for _ in 0..during.as_secs() {
            sleep(Duration::from_secs(1)).await;
            assert!(self.age() <= limit, "{} s old", self.age());
        }
    }
}

async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_made_when_its_owner_is_known_and_renewed_four_times_a_life() {
    run(async {
        let world = World::begin();
        sleep(Duration::from_secs(30)).await;
        assert!(world.lease().is_none(), "no owner yet");
        let uid = world.register();
        sleep(Duration::from_millis(50)).await;
        let lease = world.lease().expect("made at once");
        let spec = lease.spec.expect("a spec");
        assert_eq!(spec.holder_identity.as_deref(), Some("n1"));
        assert_eq!(spec.lease_duration_seconds, Some(40));
        assert_eq!(world.owner(), Some(uid));
        world.never_older(11, RENEWAL * 60).await;
        let updates = world.updates();
        assert!((57..=60).contains(&updates), "{updates}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_exists_is_renewed_at_once_even_before_the_node_is_known() {
    run(async {
        let first = World::begin();
        first.register();
        sleep(RENEWAL).await;
        let mut lease = first.lease().expect("a lease");
        lease.metadata.resource_version = None;
        let world = World::begin();
        world.server.create(&lease);
        sleep(Duration::from_secs(8)).await;
        assert!(world.age() <= 8);
        assert!(world.updates() > 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn errors_and_conflicts_cost_tries_not_renewals() {
    run(async {
        let world = World::begin();
        world.register();
        sleep(RENEWAL).await;
        let faults = world.server.faults();
        for code in [500, 409, 503] {
            faults.error(On::path(LEASE).method("PUT").times(2), code);
            world.never_older(11, RENEWAL * 2).await;
        }
        let touch = |lease: &mut Lease| {
            lease.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        };
        world.server.modify::<Lease>(Some(NAMESPACE), "n1", touch);
        world.never_older(11, RENEWAL * 3).await;
        let annotations = world.lease().and_then(|l| l.metadata.annotations);
        assert!(annotations.is_some(), "foreign annotations are kept");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_costs_its_deadline_and_never_the_lease() {
    run(async {
        let world = World::begin();
        world.register();
        sleep(RENEWAL).await;
        world.server.faults().hang(On::path(LEASE).times(1));
        world.never_older(22, RENEWAL * 4).await;
        world.never_older(11, RENEWAL * 4).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_five_seconds_for_each_call_keeps_the_lease_alive() {
    run(async {
        let world = World::begin();
        world.register();
        sleep(RENEWAL).await;
        let slow = Duration::from_secs(5);
        world.server.faults().slow(On::any(), slow);
        world.never_older(17, RENEWAL * 30).await;
        let updates = world.updates();
        assert!(updates >= 28, "the pace is kept: {updates}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_lease_is_renewed_within_one_back_off() {
    run(async {
        let world = World::begin();
        world.register();
        sleep(RENEWAL).await;
        assert_eq!(world.contact(), (true, 10));
        let outage = world.server.faults().down(On::any());
        sleep(RENEWAL * 60).await;
        assert!(world.age() >= 590);
        let (answers, seconds) = world.contact();
        assert!(!answers && (580..=600).contains(&seconds), "{seconds}");
        world.server.faults().lift(outage);
        sleep(Duration::from_secs(8)).await;
        assert!(world.age() <= 8);
        let (answers, seconds) = world.contact();
        assert!(answers && seconds <= 8, "{seconds}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_with_its_node_gets_the_new_owner() {
    run(async {
        let world = World::begin();
        let old = world.register();
        sleep(RENEWAL).await;
        world.server.delete::<Node>(None, "n1", None);
        let new = world.register();
        assert_ne!(old, new);
        sleep(RENEWAL * 2).await;
        assert_eq!(
            world.owner(),
            Some(new.clone()),
            "before anyone collects it"
        );
        world.server.delete::<Lease>(Some(NAMESPACE), "n1", None);
        sleep(RENEWAL * 2).await;
        assert_eq!(world.owner(), Some(new));
    })
    .await;
}
