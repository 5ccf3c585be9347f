//! Scripts of the event correlator.

use super::*;

const START: i64 = 1_800_000_000;

fn correlator() -> EventCorrelator {
    EventCorrelator::new(Reporter { host: "n1".into() })
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).expect("time")
}

fn recorded(pod: &str, reason: &str, message: &str, seconds: i64) -> RecordedEvent {
    let mut object = ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some("ns".into()),
        ..ObjectReference::default()
    };
    object.name = Some(pod.to_owned());
    object.uid = Some(format!("{pod}-uid"));
    RecordedEvent {
        object,
        event_type: EventType::Warning,
        reason: reason.to_owned(),
        message: message.to_owned(),
        annotations: BTreeMap::new(),
        at: at(seconds),
    }
}

fn name(pod: &str, seconds: i64) -> String {
    format!("{pod}.{:x}", at(seconds).as_nanosecond())
}

#[track_caller]
fn check(correlator: &mut EventCorrelator, recorded: RecordedEvent, expected: &str) {
    assert_eq!(correlator.correlate(recorded).to_string(), expected);
}

#[test]
fn equal_events_are_counted() {
    let mut s = correlator();
    let first = name("a", 0);
    check(
        &mut s,
        recorded("a", "R", "m", 0),
        &format!("create {first} x1 R: m"),
    );
    check(
        &mut s,
        recorded("a", "R", "m", 700),
        &format!("count {first} x2 R: m"),
    );
    check(
        &mut s,
        recorded("a", "R", "m", 1400),
        &format!("count {first} x3 R: m"),
    );
    let other = name("b", 1);
    check(
        &mut s,
        recorded("b", "R", "m", 1),
        &format!("create {other} x1 R: m"),
    );
}

#[test]
fn count_patch_keeps_first_timestamp() {
    let mut s = correlator();
    s.correlate(recorded("a", "R", "m", 0));
    let Correlated::Count { event, patch } = s.correlate(recorded("a", "R", "m", 61)) else {
        panic!("no count");
    };
    let last = json!(event.last_timestamp);
    assert_eq!(
        patch,
        json!({"count": 2, "lastTimestamp": last, "message": "m"})
    );
    assert_eq!(event.first_timestamp, Some(event::whole_seconds(at(0))));
    assert_eq!(event.last_timestamp, Some(event::whole_seconds(at(61))));
}

#[test]
fn tenth_message_within_10_min_is_combined() {
    let mut s = correlator();
    for n in 0..9 {
        let line = s
            .correlate(recorded("a", "R", &n.to_string(), n))
            .to_string();
        assert_eq!(line, format!("create {} x1 R: {n}", name("a", n)));
    }
    let tenth = name("a", 9);
    let prefix = "(combined from similar events): ";
    check(
        &mut s,
        recorded("a", "R", "9", 9),
        &format!("create {tenth} x1 R: {prefix}9"),
    );
    check(
        &mut s,
        recorded("a", "R", "10", 10),
        &format!("count {tenth} x2 R: {prefix}10"),
    );
    // another reason is not combined
    let other = name("a", 11);
    check(
        &mut s,
        recorded("a", "S", "x", 11),
        &format!("create {other} x1 S: x"),
    );
    // the window ends after ten minutes
    let later = name("a", 700);
    check(
        &mut s,
        recorded("a", "R", "11", 700),
        &format!("create {later} x1 R: 11"),
    );
}

#[test]
fn object_has_burst_of_25_events_then_one_per_5_min() {
    let mut s = correlator();
    let mut verb_of = |n: i64, seconds| {
        let line = s
            .correlate(recorded("a", &format!("R{n}"), "m", seconds))
            .to_string();
        line.split(' ').next().map(str::to_owned)
    };
    for n in 0..25 {
        assert_eq!(verb_of(n, 0).as_deref(), Some("create"), "{n}");
    }
    assert_eq!(verb_of(25, 0).as_deref(), Some("drop"));
    assert_eq!(verb_of(26, 299).as_deref(), Some("drop"));
    assert_eq!(verb_of(27, 300).as_deref(), Some("create"));
    assert_eq!(verb_of(28, 300).as_deref(), Some("drop"));
    // a clock that was set back does not change the credit
    assert_eq!(verb_of(29, 0).as_deref(), Some("drop"));
    check(
        &mut s,
        recorded("b", "R", "m", 0),
        &format!("create {} x1 R: m", name("b", 0)),
    );
}

#[test]
fn dropped_event_counts_when_sent_later() {
    let mut s = correlator();
    for n in 0..24 {
        s.correlate(recorded("a", &format!("R{n}"), "m", 0));
    }
    s.correlate(recorded("a", "R", "m", 0));
    check(&mut s, recorded("a", "R", "m", 0), "drop");
    check(
        &mut s,
        recorded("a", "R", "m", 600),
        &format!("count {} x3 R: m", name("a", 0)),
    );
}

#[test]
fn least_recently_used_key_is_evicted() {
    let mut s = correlator();
    let count = i64::try_from(MAX_KEYS.get()).expect("small");
    for n in 0..=count {
        s.correlate(recorded(&format!("p{n}"), "R", "m", 0));
    }
    let last = name(&format!("p{count}"), 0);
    check(
        &mut s,
        recorded(&format!("p{count}"), "R", "m", 0),
        &format!("count {last} x2 R: m"),
    );
    let forgotten = name("p0", 1);
    check(
        &mut s,
        recorded("p0", "R", "m", 1),
        &format!("create {forgotten} x1 R: m"),
    );
    let long = "ä".repeat(MAX_MESSAGE_BYTES);
    assert_eq!(
        recorded("a", "R", &long, 0).bounded().message.len(),
        MAX_MESSAGE_BYTES
    );
}

#[test]
fn container_event_has_field_path_and_node_event_namespace() {
    let pod: windlass_types::Pod = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
        "spec": {
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "c"}],
            "ephemeralContainers": [{"name": "e"}],
        },
    }))
    .expect("pod");
    let path = |container| pod_reference(&pod, container).field_path;
    assert_eq!(path(Some("c")).as_deref(), Some("spec.containers{c}"));
    assert_eq!(path(Some("i")).as_deref(), Some("spec.initContainers{i}"));
    assert_eq!(
        path(Some("e")).as_deref(),
        Some("spec.ephemeralContainers{e}")
    );
    assert_eq!(path(None), None);
    let reference = serde_json::to_value(pod_reference(&pod, None)).expect("json");
    assert_eq!(
        reference,
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7"})
    );

    let reporter = Reporter { host: "n1".into() };
    let event = reporter.event(&RecordedEvent {
        object: node_reference("n1"),
        event_type: EventType::Normal,
        reason: "Shutdown".into(),
        message: "m".into(),
        annotations: BTreeMap::from([("starved_resource".to_owned(), "memory".to_owned())]),
        at: Timestamp::from_second(1).expect("time"),
    });
    assert_eq!(
        serde_json::to_value(event).expect("json"),
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "n1.3b9aca00", "namespace": "default",
                "annotations": {"starved_resource": "memory"}},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"},
            "type": "Normal", "reason": "Shutdown", "message": "m", "count": 1,
            "firstTimestamp": "1970-01-01T00:00:01Z", "lastTimestamp": "1970-01-01T00:00:01Z",
            "source": {"component": "kubelet", "host": "n1"},
            "reportingComponent": "kubelet", "reportingInstance": "n1",
        })
    );
    let mut long = recorded(&"x".repeat(250), "R", "m", 0);
    let name = reporter.event(&long).metadata.name.expect("name");
    assert!(
        name.len() < 60
            && name != {
                long.object.name = Some("y".repeat(250));
                reporter.event(&long).metadata.name.expect("name")
            }
    );
}
