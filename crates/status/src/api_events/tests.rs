//! Events against the in-memory API server, under paused time.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_fake_api::{FakeApiServer, On};
use windlass_mailboxes::SimClock;
use windlass_types::corev1::Event;
use windlass_types::{PodExt, Timestamp};

use super::queue::QUEUE_BOUND;
use super::*;
use crate::{PodStatusEntry, PodStatusStore};

const EVENTS: &str = "/api/v1/namespaces/*/events*";

struct Fixture {
    server: FakeApiServer,
    status_store: PodStatusStore,
    events: ApiEvents,
    metrics: Metrics,
}

/// A recorder whose sender runs.
fn fixture() -> Fixture {
    let (fixture, sender) = fixture_with_sender();
    tokio::spawn(sender.run(fixture.server.clients().events));
    fixture
}

fn fixture_with_sender() -> (Fixture, EventSender) {
    let base = Timestamp::from_second(1_800_000_000).expect("time");
    let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(base));
    let metrics = Metrics::new().expect("families");
    let status_store = PodStatusStore::new();
    let log = EventLog::new(status_store.clone(), Arc::clone(&clock));
    let (events, sender) = ApiEvents::new(log, Arc::clone(&clock), "n1", &metrics);
    let server = FakeApiServer::with_clock(clock);
    let fixture = Fixture {
        server,
        status_store,
        events,
        metrics,
    };
    (fixture, sender)
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"containers": [{"name": "c"}]},
    }))
    .expect("pod")
}

impl Fixture {
    fn record(&self, name: &str, message: &str) {
        let warning = EventType::Warning;
        self.events
            .record(&pod(name), Some("c"), warning, Reason::BackOff, message);
    }

    /// `2x a: message` for each stored event, by the object's name and the message.
    fn stored(&self) -> Vec<String> {
        let line = |e: &Event| {
            let of = e.involved_object.name.as_deref().unwrap_or_default();
            let message = e.message.as_deref().unwrap_or_default();
            format!("{}x {of}: {message}", e.count.unwrap_or(0))
        };
        let mut lines: Vec<String> = self.server.list::<Event>().iter().map(line).collect();
        lines.sort_unstable();
        lines
    }

    async fn until(&self, expected: &[&str]) {
        let done = self.server.wait_for(|_| self.stored() == expected);
        if tokio::time::timeout(Duration::from_secs(600), done)
            .await
            .is_err()
        {
            panic!("expected {expected:?}, stored {:?}", self.stored());
        }
    }

    fn calls(&self, method: &str) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|r| r.method == method).count()
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_event_is_created_once_then_counted() {
    let fixture = fixture();
    fixture.record("a", "x");
    fixture.record("a", "x");
    fixture.record("b", "x");
    fixture
        .events
        .record_node(EventType::Normal, Reason::Shutdown, "gone");
    fixture.until(&["1x b: x", "1x n1: gone", "2x a: x"]).await;
    assert_eq!((fixture.calls("POST"), fixture.calls("PATCH")), (3, 1));
    let event = fixture
        .server
        .list::<Event>()
        .into_iter()
        .next()
        .expect("one");
    let event: Value = serde_json::to_value(event).expect("json");
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{c}");
    assert_eq!(
        event["source"],
        json!({"component": "kubelet", "host": "n1"})
    );
}

#[tokio::test(start_paused = true)]
async fn events_with_equal_time_have_different_names() {
    let fixture = fixture();
    for message in ["x", "y", "z"] {
        fixture.record("a", message);
    }
    fixture.until(&["1x a: x", "1x a: y", "1x a: z"]).await;
}

#[tokio::test(start_paused = true)]
async fn events_are_queued_during_outage() {
    let fixture = fixture();
    let down = fixture.server.faults().down(On::any());
    fixture.record("a", "x");
    tokio::time::sleep(Duration::from_secs(60)).await;
    fixture.record("a", "x");
    fixture.record("b", "x");
    fixture.server.faults().lift(down);
    fixture.until(&["1x b: x", "2x a: x"]).await;
    let first = fixture
        .server
        .list::<Event>()
        .into_iter()
        .find(|e| e.count == Some(2));
    let first = first.expect("counted");
    let span = |t: Option<windlass_types::metav1::Time>| t.map(|t| t.0.as_second());
    // the second occurrence keeps the time at which it happened
    assert_eq!(
        (span(first.first_timestamp), span(first.last_timestamp)),
        (Some(1_800_000_000), Some(1_800_000_060))
    );
}

#[tokio::test(start_paused = true)]
async fn event_is_dropped_after_12_attempts() {
    let fixture = fixture();
    fixture
        .server
        .faults()
        .error(On::path(EVENTS).times(12), 503);
    fixture.record("a", "x");
    fixture.record("b", "x");
    fixture.until(&["1x b: x"]).await;
    assert_eq!(fixture.calls("POST"), 13);
}

#[tokio::test(start_paused = true)]
async fn rejected_event_is_not_retried() {
    for code in [403, 422, 409] {
        let fixture = fixture();
        fixture
            .server
            .faults()
            .error(On::path(EVENTS).times(1), code);
        fixture.record("a", "x");
        fixture.record("b", "x");
        fixture.until(&["1x b: x"]).await;
        assert_eq!(fixture.calls("POST"), 2, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn event_with_lost_response_is_stored_once() {
    let fixture = fixture();
    fixture
        .server
        .faults()
        .drop_reply(On::path(EVENTS).times(1));
    fixture.record("a", "x");
    fixture.record("b", "x");
    fixture.until(&["1x a: x", "1x b: x"]).await;
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_recreated_with_count() {
    let fixture = fixture();
    fixture.record("a", "x");
    fixture.until(&["1x a: x"]).await;
    let event = fixture.server.list::<Event>().remove(0);
    let name = event.metadata.name.expect("name");
    fixture.server.delete::<Event>(Some("default"), &name, None);
    fixture.record("a", "x");
    fixture.until(&["2x a: x"]).await;
}

#[tokio::test(start_paused = true)]
async fn full_queue_drops_and_counts_oldest() {
    let (fixture, sender) = fixture_with_sender();
    // more objects than the queue has room for, so that the spam filter has no part in this
    for n in 0..QUEUE_BOUND + 2 {
        fixture.record(&format!("p{n:04}"), "x");
    }
    assert_eq!(fixture.metrics.pod_status.events_dropped.get(), 2.0);
    tokio::spawn(sender.run(fixture.server.clients().events));
    let all = fixture
        .server
        .wait_for(|_| fixture.stored().len() == QUEUE_BOUND);
    tokio::time::timeout(Duration::from_secs(3600), all)
        .await
        .expect("all sent");
    assert_eq!(fixture.stored()[0], "1x p0002: x");
}

#[tokio::test(start_paused = true)]
async fn recorded_event_is_in_store_without_server() {
    let fixture = fixture();
    fixture.server.faults().hang(On::any());
    let pod = Arc::new(pod("a"));
    fixture
        .status_store
        .publish(PodStatusEntry::new(Arc::clone(&pod)));
    fixture.record("a", "x");
    let events = fixture.status_store.get(&pod.uid()).expect("entry").events;
    assert_eq!(events[0].message, "x");
}
