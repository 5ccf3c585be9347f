//! What users are shown.

use windlass_types::Timestamp;

use super::{EvictionRecord, EvictionStatus};
use crate::state::EvictionState;
use crate::test_figures::{now, observations, settings};

/// Lines `signal available (obtainable) threshold distance state` after one pass.
fn check(thresholds: &str, observed: &str, expected: &[&str]) {
    let settings = settings(thresholds);
    let observed = observations(observed, 0);
    let mut state = EvictionState::default();
    let pass = state.pass(now(0), &observed, &settings);
    let mut status = EvictionStatus::default();
    status.update(now(0), &state, &pass, &observed, &settings);
    let mut lines = Vec::new();
    for signal in &status.signals {
        let available = signal
            .observed
            .map(|o| signal.signal.quantity(o.available).to_string());
        let mut line = format!("{} {}", signal.signal, available.as_deref().unwrap_or("-"));
        if let Some(obtainable) = signal.obtainable {
            line += &format!(" ({})", signal.signal.quantity(obtainable));
        }
        for threshold in &signal.thresholds {
            let number = |n: Option<i64>| n.map_or("-".to_owned(), |n| n.to_string());
            let quantity = number(threshold.quantity.map(|q| q.value()));
            let distance = number(threshold.distance);
            line += &format!(" {quantity} {distance} {}", threshold.state);
        }
        lines.push(line);
    }
    assert_eq!(lines, expected);
}

#[test]
fn status_shows_value_threshold_and_distance() {
    check(
        "hard memory.available=1Ki; soft memory.available=4Ki; grace memory.available=30s",
        "memory.available=2Ki/1Mi cache=1Ki",
        &["memory.available 2Ki (3Ki) 1024 1024 ok 4096 -2048 evicts in 30s"],
    );
    check(
        "hard pid.available=10%; hard imagefs.available=15%",
        "pid.available=99/1000 nodefs.available=1Ki/2Ki",
        &[
            "nodefs.available 1Ki",
            "imagefs.available - - - not measured",
            "pid.available 99 100 -1 evicting",
        ],
    );
    check(
        "hard memory.available=4Ki",
        "memory.available=2Ki/1Mi cache=1Mi",
        &["memory.available 2Ki (1026Ki) 4096 -2048 page cache only"],
    );
    check(
        "hard memory.available=4Ki",
        "memory.available=8Ki/1Mi cache=1Mi memavail=3Ki",
        &["memory.available 3Ki (3Ki) 4096 -1024 evicting"],
    );
}

#[test]
fn evictions_are_kept_up_to_limit() {
    let mut status = EvictionStatus::default();
    for number in 0..EvictionStatus::MAX_RECORDS + 5 {
        status.record(EvictionRecord {
            uid: format!("u{number}").into(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            explanation: format!("because {number}"),
        });
    }
    assert_eq!(status.evictions.len(), EvictionStatus::MAX_RECORDS);
    assert_eq!(status.eviction(&"u4".into()), None);
    let found = status.eviction(&"u104".into()).expect("kept");
    assert_eq!(found.explanation, "because 104");
}
