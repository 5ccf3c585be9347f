//! Events against the in-memory API server, under paused time.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_actors::SimClock;
use windlass_fake_api::{FakeApiServer, On};
use windlass_types::corev1::Event;
use windlass_types::{PodExt, Timestamp};

use super::queue::QUEUE_BOUND;
use super::*;
use crate::{PodStatusStore, PodStatusEntry};

const EVENTS: &str = "/api/v1/namespaces/*/events*";

struct Bed {
    server: FakeApiServer,
    board: PodStatusStore,
    events: ApiEvents,
    metrics: Metrics,
}

/// A recorder whose sender runs.
fn bed() -> Bed {
    let (bed, sender) = quiet_bed();
    tokio::spawn(sender.run(bed.server.clients().events));
    bed
}

fn quiet_bed() -> (Bed, EventSender) {
    let base = Timestamp::from_second(1_800_000_000).expect("time");
    let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(base));
    let metrics = Metrics::new().expect("families");
    let board = PodStatusStore::new();
    let log = EventLog::new(board.clone(), Arc::clone(&clock));
    let (events, sender) = ApiEvents::new(log, Arc::clone(&clock), "n1", &metrics);
    let server = FakeApiServer::with_clock(clock);
    let bed = Bed {
        server,
        board,
        events,
        metrics,
    };
    (bed, sender)
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"containers": [{"name": "c"}]},
    }))
    .expect("pod")
}

impl Bed {
    fn say(&self, name: &str, message: &str) {
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
async fn equal_events_are_created_once_and_then_counted() {
    let bed = bed();
    bed.say("a", "x");
    bed.say("a", "x");
    bed.say("b", "x");
    bed.events
        .record_node(EventType::Normal, Reason::Shutdown, "gone");
    bed.until(&["1x b: x", "1x n1: gone", "2x a: x"]).await;
    assert_eq!((bed.calls("POST"), bed.calls("PATCH")), (3, 1));
    let event = bed.server.list::<Event>().into_iter().next().expect("one");
    let event: Value = serde_json::to_value(event).expect("json");
    assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{c}");
    assert_eq!(
        event["source"],
        json!({"component": "kubelet", "host": "n1"})
    );
}

#[tokio::test(start_paused = true)]
async fn events_of_one_moment_have_names_of_their_own() {
    let bed = bed();
    for message in ["x", "y", "z"] {
        bed.say("a", message);
    }
    bed.until(&["1x a: x", "1x a: y", "1x a: z"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_costs_queue_space_and_gets_everything_later() {
    let bed = bed();
    let down = bed.server.faults().down(On::any());
    bed.say("a", "x");
    tokio::time::sleep(Duration::from_secs(60)).await;
    bed.say("a", "x");
    bed.say("b", "x");
    bed.server.faults().lift(down);
    bed.until(&["1x b: x", "2x a: x"]).await;
    let first = bed
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
async fn an_event_is_given_up_after_twelve_tries_and_the_next_one_is_sent() {
    let bed = bed();
    bed.server.faults().error(On::path(EVENTS).times(12), 503);
    bed.say("a", "x");
    bed.say("b", "x");
    bed.until(&["1x b: x"]).await;
    assert_eq!(bed.calls("POST"), 13);
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_is_not_sent_again() {
    for code in [403, 422, 409] {
        let bed = bed();
        bed.server.faults().error(On::path(EVENTS).times(1), code);
        bed.say("a", "x");
        bed.say("b", "x");
        bed.until(&["1x b: x"]).await;
        assert_eq!(bed.calls("POST"), 2, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_answer_was_lost_is_stored_once() {
    let bed = bed();
    bed.server.faults().drop_reply(On::path(EVENTS).times(1));
    bed.say("a", "x");
    bed.say("b", "x");
    bed.until(&["1x a: x", "1x b: x"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_on_the_server_is_created_again_with_its_count() {
    let bed = bed();
    bed.say("a", "x");
    bed.until(&["1x a: x"]).await;
    let event = bed.server.list::<Event>().remove(0);
    let name = event.metadata.name.expect("name");
    bed.server.delete::<Event>(Some("default"), &name, None);
    bed.say("a", "x");
    bed.until(&["2x a: x"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_loses_its_oldest_and_counts_them() {
    let (bed, sender) = quiet_bed();
    // more objects than the queue has room for, so that the spam filter has no part in this
    for n in 0..QUEUE_BOUND + 2 {
        bed.say(&format!("p{n:04}"), "x");
    }
    assert_eq!(bed.metrics.events_dropped.get(), 2.0);
    tokio::spawn(sender.run(bed.server.clients().events));
    let all = bed.server.wait_for(|_| bed.stored().len() == QUEUE_BOUND);
    tokio::time::timeout(Duration::from_secs(3600), all)
        .await
        .expect("all sent");
    assert_eq!(bed.stored()[0], "1x p0002: x");
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_is_on_the_board_whatever_the_server_does() {
    let bed = bed();
    bed.server.faults().hang(On::any());
    let pod = Arc::new(pod("a"));
    bed.board.publish(PodStatusEntry::new(Arc::clone(&pod)));
    bed.say("a", "x");
    let events = bed.board.get(&pod.uid()).expect("entry").events;
    assert_eq!(events[0].message, "x");
}
