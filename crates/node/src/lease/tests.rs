//! The actor against an API server in the same process, on paused time.

use tokio::task::LocalSet;
use tokio::time::sleep;
use windlass_fake_api::{FakeApiServer, On};
use windlass_mailboxes::{SimClock, start_actor};
use windlass_types::Timestamp;
use windlass_types::coordinationv1::Lease;
use windlass_types::corev1::Node;

use super::*;

const RENEWAL: Duration = Duration::from_secs(10);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

struct TestEnv {
    server: FakeApiServer,
    seen: watch::Sender<NodeUpdate>,
    clock: SimClock,
    heard: watch::Receiver<Option<HeartbeatStatus>>,
}

impl TestEnv {
    fn begin() -> Self {
        let clock = SimClock::starting_at(Timestamp::from_second(1_700_000_000).expect("time"));
        let server = FakeApiServer::with_clock(Arc::new(clock));
        let (seen, node) = watch::channel(NodeUpdate(None));
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

    /// Creates the node and publishes it to the agent.
    fn register(&self) -> String {
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        self.server.create(&node);
        let node = self.server.get::<Node>(None, "n1").expect("created");
        let uid = node.metadata.uid.clone().expect("a uid");
        self.seen.send_replace(NodeUpdate(Some(Arc::new(node))));
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

    /// Whether the API server is reachable, and for how many seconds.
    fn contact(&self) -> (bool, i64) {
        let contact = self.heard.borrow().clone().expect("contacted");
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

    /// Checks that the lease is never older than `limit` seconds during this time.
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
async fn lease_is_created_with_owner_and_renewed_every_quarter() {
    run(async {
        let env = TestEnv::begin();
        sleep(Duration::from_secs(30)).await;
        assert!(env.lease().is_none(), "no owner yet");
        let uid = env.register();
        sleep(Duration::from_millis(50)).await;
        let lease = env.lease().expect("made at once");
        let spec = lease.spec.expect("a spec");
        assert_eq!(spec.holder_identity.as_deref(), Some("n1"));
        assert_eq!(spec.lease_duration_seconds, Some(40));
        assert_eq!(env.owner(), Some(uid));
        env.never_older(11, RENEWAL * 60).await;
        let updates = env.updates();
        assert!((57..=60).contains(&updates), "{updates}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn existing_lease_is_renewed_before_node_is_known() {
    run(async {
        let first = TestEnv::begin();
        first.register();
        sleep(RENEWAL).await;
        let mut lease = first.lease().expect("a lease");
        lease.metadata.resource_version = None;
        let env = TestEnv::begin();
        env.server.create(&lease);
        sleep(Duration::from_secs(8)).await;
        assert!(env.age() <= 8);
        assert!(env.updates() > 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lease_errors_and_conflicts_are_retried_in_one_renewal() {
    run(async {
        let env = TestEnv::begin();
        env.register();
        sleep(RENEWAL).await;
        let faults = env.server.faults();
        for code in [500, 409, 503] {
            faults.error(On::path(LEASE).method("PUT").times(2), code);
            env.never_older(11, RENEWAL * 2).await;
        }
        let touch = |lease: &mut Lease| {
            lease.metadata.annotations = Some([("a".to_owned(), "b".to_owned())].into());
        };
        env.server.modify::<Lease>(Some(NAMESPACE), "n1", touch);
        env.never_older(11, RENEWAL * 3).await;
        let annotations = env.lease().and_then(|l| l.metadata.annotations);
        assert!(annotations.is_some(), "foreign annotations are kept");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_lease_call_does_not_expire_lease() {
    run(async {
        let env = TestEnv::begin();
        env.register();
        sleep(RENEWAL).await;
        env.server.faults().hang(On::path(LEASE).times(1));
        env.never_older(22, RENEWAL * 4).await;
        env.never_older(11, RENEWAL * 4).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn slow_api_server_does_not_expire_lease() {
    run(async {
        let env = TestEnv::begin();
        env.register();
        sleep(RENEWAL).await;
        let slow = Duration::from_secs(5);
        env.server.faults().slow(On::any(), slow);
        env.never_older(17, RENEWAL * 30).await;
        let updates = env.updates();
        assert!(updates >= 28, "renewal interval: {updates}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_within_one_backoff_after_outage() {
    run(async {
        let env = TestEnv::begin();
        env.register();
        sleep(RENEWAL).await;
        assert_eq!(env.contact(), (true, 10));
        let outage = env.server.faults().down(On::any());
        sleep(RENEWAL * 60).await;
        assert!(env.age() >= 590);
        let (answers, seconds) = env.contact();
        assert!(!answers && (580..=600).contains(&seconds), "{seconds}");
        env.server.faults().lift(outage);
        sleep(Duration::from_secs(8)).await;
        assert!(env.age() <= 8);
        let (answers, seconds) = env.contact();
        assert!(answers && seconds <= 8, "{seconds}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated_with_new_owner() {
    run(async {
        let env = TestEnv::begin();
        let old = env.register();
        sleep(RENEWAL).await;
        env.server.delete::<Node>(None, "n1", None);
        let new = env.register();
        assert_ne!(old, new);
        sleep(RENEWAL * 2).await;
        assert_eq!(env.owner(), Some(new.clone()), "before garbage collection");
        env.server.delete::<Lease>(Some(NAMESPACE), "n1", None);
        sleep(RENEWAL * 2).await;
        assert_eq!(env.owner(), Some(new));
    })
    .await;
}
