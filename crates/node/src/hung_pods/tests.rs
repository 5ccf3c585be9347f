//! The task on paused time.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;
use windlass_hung_operations::{HungAttempt, Operation};
use windlass_mailboxes::SimClock;
use windlass_status::PodStatusEntry;
use windlass_types::{Pod, Timestamp};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, _: Reason, _: &str) {}

    fn record_node(&self, _: EventType, reason: Reason, message: &str) {
        let mut events = self.0.lock().expect("not poisoned");
        events.push(format!("{reason} {message}"));
    }
}

struct TestEnv {
    hung: HungOperations,
    store: PodStatusStore,
    events: Arc<Events>,
    metrics: Metrics,
    message: watch::Receiver<HungPodsMessage>,
}

impl TestEnv {
    fn start() -> Self {
        let clock = SimClock::starting_at(Timestamp::UNIX_EPOCH);
        let hung = HungOperations::new(Arc::new(clock));
        let (store, events) = (PodStatusStore::new(), Arc::new(Events::default()));
        let metrics = Metrics::new().expect("metrics");
        let (sender, message) = watch::channel(None);
        tokio::spawn(run_hung_pods(HungPodsDeps {
            hung: hung.clone(),
            status_store: store.clone(),
            events: events.clone(),
            metrics: metrics.clone(),
            message: sender,
        }));
        Self {
            hung,
            store,
            events,
            metrics,
            message,
        }
    }

    fn add_pod(&self, name: &str) {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(format!("{name}-uid"));
        pod.metadata.name = Some(name.into());
        pod.metadata.namespace = Some("default".into());
        self.store.publish(PodStatusEntry::new(Arc::new(pod)));
    }

    fn hang(&self, kind: OperationKind, pod: &str, name: &str) -> HungAttempt {
        let uid = PodUid::from(format!("{pod}-uid").as_str());
        self.hung
            .begin(Operation::of_pod(kind, &uid, name), Timestamp::UNIX_EPOCH)
    }

    fn message(&self) -> String {
        let message = self.message.borrow();
        message.as_deref().unwrap_or_default().to_owned()
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.0.lock().expect("not poisoned"))
    }

    fn gauge(&self, kind: &str) -> f64 {
        let gauges = &self.metrics.node.hung_operations;
        gauges.with_label_values(&[kind]).get()
    }
}

#[tokio::test(start_paused = true)]
async fn pod_is_named_with_its_operation_until_it_ends() {
    let env = TestEnv::start();
    env.add_pod("web");
    sleep(SECOND).await;
    assert_eq!(env.message(), "");
    let mount = env.hang(OperationKind::Volume, "web", "mount of volume data");
    sleep(SECOND).await;
    let named = "default/web: mount of volume data hung since 1970-01-01T00:00:00Z";
    assert_eq!(env.message(), format!("pods with hung operations: {named}"));
    assert_eq!(env.events(), [format!("PodOperationHung {named}")]);
    assert_eq!(env.gauge("volume"), 1.0);
    drop(mount);
    sleep(10 * SECOND).await;
    assert_eq!(env.message(), "");
    assert_eq!(env.events(), [""; 0]);
    assert_eq!(env.gauge("volume"), 0.0);
    let total = &env.metrics.node.hung_operations_total;
    assert_eq!(total.with_label_values(&["volume"]).get(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn unknown_pod_is_named_by_uid_and_node_as_node() {
    let env = TestEnv::start();
    let _probe = env.hang(OperationKind::Probe, "gone", "Liveness probe");
    let list = Operation {
        kind: OperationKind::RuntimeCall,
        pod: None,
        name: "ListContainers on the runtime".into(),
    };
    let _list = env.hung.begin(list, Timestamp::UNIX_EPOCH);
    sleep(SECOND).await;
    let message = env.message();
    assert!(message.contains("gone-uid: Liveness probe"), "{message}");
    assert!(message.contains("node: ListContainers"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn operation_of_a_removed_pod_is_not_named_between_retries() {
    let env = TestEnv::start();
    env.add_pod("web");
    let mount = env.hang(OperationKind::Volume, "web", "mount of volume data");
    sleep(SECOND).await;
    mount.keep();
    sleep(20 * SECOND).await;
    assert_ne!(env.message(), "", "it is retried");
    env.store.remove(&"web-uid".into());
    sleep(11 * SECOND).await;
    assert_eq!(env.message(), "");
}

#[tokio::test(start_paused = true)]
async fn operations_of_one_pod_are_one_name_and_one_event() {
    let env = TestEnv::start();
    env.add_pod("web");
    let _first = env.hang(OperationKind::Volume, "web", "mount of volume a");
    let _second = env.hang(OperationKind::Volume, "web", "mount of volume b");
    sleep(SECOND).await;
    assert_eq!(env.events().len(), 1);
    let message = env.message();
    assert!(message.ends_with("and 1 other operation"), "{message}");
}
