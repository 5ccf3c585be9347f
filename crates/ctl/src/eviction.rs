//! The eviction part of `status`: each signal with its value, threshold and distance.

use windlass_node_proto::windlass_v1 as proto;
use windlass_types::Timestamp;

use crate::age::age;
use crate::pod;
use crate::table;

const HEADING: [&str; 5] = ["SIGNAL", "AVAILABLE", "THRESHOLD", "DISTANCE", "STATE"];
const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Width of the labels of `status`.
const LABEL: usize = 14;

/// Formats conditions, signals and the last evictions.
pub(crate) fn text(eviction: &proto::Eviction, now: Timestamp) -> String {
    let conditions = match eviction.conditions.as_slice() {
        [] => "none".to_owned(),
        conditions => conditions.join(", "),
    };
    let observed = age(eviction.observed.and_then(pod::time), now);
    let mut text = format!("Pressure:     {conditions} (observed {observed} ago)\n");
    let rows: Vec<Vec<String>> = eviction.signals.iter().flat_map(rows).collect();
    if !rows.is_empty() {
        text.push_str(&table::render(&HEADING, &rows));
    }
    for (index, evicted) in eviction.evicted.iter().rev().take(3).enumerate() {
        let label = if index == 0 { "Evicted:" } else { "" };
        let proto::EvictedPod {
            namespace,
            name,
            explanation,
            ..
        } = evicted;
        let at = age(evicted.at.and_then(pod::time), now);
        text.push_str(&format!(
            "{label:LABEL$}{namespace}/{name} {at} ago: {explanation}\n"
        ));
    }
    text
}

fn rows(signal: &proto::EvictionSignal) -> Vec<Vec<String>> {
    let amount = |amount: Option<i128>| match (amount, signal.bytes) {
        (None, _) => "-".to_owned(),
        (Some(amount), true) => human(amount),
        (Some(amount), false) => amount.to_string(),
    };
    let available = amount(signal.available.map(i128::from));
    let mut notes = Vec::new();
    if let Some(obtainable) = signal.obtainable.filter(|it| Some(*it) > signal.available) {
        notes.push(format!("{} with page cache", human(obtainable.into())));
    }
    notes.extend(
        signal
            .stall
            .as_ref()
            .map(|stall| format!("stalled {stall}")),
    );
    let note = match notes.is_empty() {
        true => String::new(),
        false => format!(" ({})", notes.join(", ")),
    };
    let row = |threshold: String, distance: String, state: &str| {
        vec![
            signal.name.clone(),
            available.clone(),
            threshold,
            distance,
            format!("{state}{note}"),
        ]
    };
    if signal.thresholds.is_empty() {
        return vec![row("-".to_owned(), "-".to_owned(), "no threshold")];
    }
    let thresholds = signal.thresholds.iter().map(|threshold| {
        let quantity = amount(threshold.amount.map(i128::from));
        let value = &threshold.value;
        let shown = match value.contains('%') && threshold.amount.is_some() {
            true => format!("{value} ({quantity})"),
            false => value.clone(),
        };
        let distance = amount(threshold.distance.map(i128::from));
        row(shown, distance, &threshold.state)
    });
    thresholds.collect()
}

/// Formats bytes with at most one decimal place.
fn human(bytes: i128) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let (mut tenths, mut power) = (bytes.unsigned_abs().saturating_mul(10), 0);
    while tenths >= 10_240 && power + 1 < SUFFIXES.len() {
        tenths /= 1024;
        power += 1;
    }
    let (whole, rest, suffix) = (tenths / 10, tenths % 10, SUFFIXES[power]);
    match rest == 0 || whole >= 100 {
        true => format!("{sign}{whole}{suffix}"),
        false => format!("{sign}{whole}.{rest}{suffix}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    fn at(seconds: i64) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    }

    fn threshold(
        value: &str,
        amount: i64,
        available: i64,
        state: &str,
    ) -> proto::EvictionThreshold {
        proto::EvictionThreshold {
            value: value.to_owned(),
            amount: Some(amount),
            distance: Some(available - amount),
            state: state.to_owned(),
        }
    }

    fn check(eviction: &proto::Eviction, expected: &str) {
        let now = Timestamp::from_second(1000).expect("time");
        assert_eq!(text(eviction, now), expected);
    }

    #[test]
    fn signals_show_value_threshold_and_distance() {
        let memory = proto::EvictionSignal {
            name: "memory.available".to_owned(),
            available: Some(90 << 20),
            obtainable: Some(2 << 30),
            stall: Some("some 1.0% full 0.0%".to_owned()),
            thresholds: vec![
                threshold("100Mi", 100 * MIB, 90 * MIB, "page cache only"),
                threshold("1Gi for 1m30s", 1024 * MIB, 90 * MIB, "evicts in 30s"),
            ],
            bytes: true,
        };
        let disk = proto::EvictionSignal {
            name: "nodefs.available".to_owned(),
            available: Some(30 << 30),
            thresholds: vec![threshold("10%", 10_737_418_240, 32_212_254_720, "ok")],
            bytes: true,
            ..proto::EvictionSignal::default()
        };
        let inodes = proto::EvictionSignal {
            name: "imagefs.inodesFree".to_owned(),
            thresholds: vec![proto::EvictionThreshold {
                value: "5%".to_owned(),
                state: "not measured".to_owned(),
                ..proto::EvictionThreshold::default()
            }],
            ..proto::EvictionSignal::default()
        };
        let pids = proto::EvictionSignal {
            name: "pid.available".to_owned(),
            available: Some(32_000),
            ..proto::EvictionSignal::default()
        };
        let evicted = |name: &str| proto::EvictedPod {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            at: at(940),
            explanation: "memory.available was 90Mi".to_owned(),
        };
        let eviction = proto::Eviction {
            observed: at(998),
            conditions: vec!["MemoryPressure".to_owned()],
            signals: vec![memory, disk, inodes, pids],
            evicted: ["oldest", "older", "old", "new"].map(evicted).to_vec(),
        };
        let note = "page cache only (2Gi with page cache, stalled some 1.0% full 0.0%)";
        let soft = note.replace("page cache only", "evicts in 30s");
        check(
            &eviction,
            &format!(
                "Pressure:     MemoryPressure (observed 2s ago)\n\
                 SIGNAL               AVAILABLE   THRESHOLD       DISTANCE   STATE\n\
                 memory.available     90Mi        100Mi           -10Mi      {note}\n\
                 memory.available     90Mi        1Gi for 1m30s   -934Mi     {soft}\n\
                 nodefs.available     30Gi        10% (10Gi)      20Gi       ok\n\
                 imagefs.inodesFree   -           5%              -          not measured\n\
                 pid.available        32000       -               -          no threshold\n\
                 Evicted:      shop/new 60s ago: memory.available was 90Mi\n              \
                 shop/old 60s ago: memory.available was 90Mi\n              \
                 shop/older 60s ago: memory.available was 90Mi\n"
            ),
        );
        check(
            &proto::Eviction {
                observed: at(990),
                ..proto::Eviction::default()
            },
            "Pressure:     none (observed 10s ago)\n",
        );
    }

    #[test]
    fn bytes_have_one_decimal_place() {
        let check = |bytes, expected| assert_eq!(human(bytes), expected);
        check(0, "0");
        check(-1, "-1");
        check(1023, "1023");
        check(1536, "1.5Ki");
        check(-1536, "-1.5Ki");
        check(100 * 1024 + 512, "100Ki");
        check(i128::from(u64::MAX), "15.9Ei");
    }
}
