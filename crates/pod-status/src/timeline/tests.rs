//! Timelines by their lines.

use std::fmt;

use windlass_types::corev1::{PodCondition, PodStatus};

use super::*;

impl fmt::Display for Bar<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3}s ", self.after.as_secs_f64())?;
        write!(f, "[{}+{}] {}", self.from, self.cells, self.record)
    }
}

/// All records of a pod.
const MAX_RECORDS: usize = MAX_START + MAX_LATER;
/// Bytes of all texts of a pod.
const MAX_TEXT: usize = START_TEXT + LATER_TEXT;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + millis).expect("in range")
}

fn call(name: &'static str, subject: &str) -> RecordKey {
    RecordKey::with_subject(RecordKind::RuntimeCall, name, subject)
}

/// Records something that took 10 ms.
fn did(timeline: &mut Timeline, what: RecordKey, outcome: RecordOutcome, millis: i64) {
    let took = Duration::from_millis(10);
    timeline.begin(RecordId(1), what.clone(), at(millis));
    timeline.end(RecordId(1), what, outcome, (at(millis), took));
}

fn check(timeline: &Timeline, now: i64, expected: &[&str]) {
    let records = timeline.records(at(now));
    let line = |record: &TimelineRecord| {
        let after = record.started_at.duration_since(at(0)).as_millis();
        format!("{after} {record}")
    };
    let lines: Vec<String> = records.iter().map(line).collect();
    assert_eq!(lines, expected);
}

#[test]
fn records_are_ordered_by_start() {
    let mut pod = Timeline::default();
    let seen = RecordKey::with_subject(RecordKind::Source, "ADD", "file");
    pod.record_instant(seen, RecordOutcome::Done, at(0));
    let sync = RecordKey::new(RecordKind::Sync, "sync");
    pod.begin(RecordId(1), sync.clone(), at(1));
    let sandbox = RecordKey::new(RecordKind::RuntimeCall, "RunPodSandbox");
    pod.begin(RecordId(2), sandbox.clone(), at(2));
    check(
        &pod,
        402,
        &[
            "0 source ADD file",
            "1 sync sync 0.401s running",
            "2 runtime RunPodSandbox 0.400s running",
        ],
    );
    let took = Duration::from_millis(500);
    let failed = RecordOutcome::failed("no network");
    pod.end(RecordId(2), sandbox, failed, (at(2), took));
    pod.end(RecordId(1), sync, RecordOutcome::Cancelled, (at(1), took));
    check(
        &pod,
        9000,
        &[
            "0 source ADD file",
            "1 sync sync 0.500s cancelled",
            "2 runtime RunPodSandbox 0.500s failed: no network",
        ],
    );
}

#[test]
fn repeat_is_counted_and_other_outcome_is_new_record() {
    let mut pod = Timeline::default();
    let sync = || RecordKey::new(RecordKind::Sync, "sync");
    did(&mut pod, sync(), RecordOutcome::decided("start(web#0)"), 0);
    did(
        &mut pod,
        call("PullImage", "x"),
        RecordOutcome::failed("no"),
        1,
    );
    did(&mut pod, sync(), RecordOutcome::decided("nothing"), 20);
    did(&mut pod, call("PullImage", "y"), RecordOutcome::Done, 30);
    did(
        &mut pod,
        call("PullImage", "x"),
        RecordOutcome::failed("never"),
        40,
    );
    did(&mut pod, sync(), RecordOutcome::decided("nothing"), 50);
    did(&mut pod, call("PullImage", "x"), RecordOutcome::Done, 60);
    check(
        &pod,
        70,
        &[
            "0 sync sync 0.010s: start(web#0)",
            "30 runtime PullImage y 0.010s",
            "40 runtime PullImage x x2 0.010s failed: never",
            "50 sync sync x2 0.010s: nothing",
            "60 runtime PullImage x 0.010s",
        ],
    );
    let repeated = &pod.records(at(70))[2];
    assert_eq!(repeated.first_started_at, at(1));
}

#[test]
fn later_records_do_not_change_start() {
    let mut pod = Timeline::default();
    did(
        &mut pod,
        call("StartContainer", "web"),
        RecordOutcome::Done,
        0,
    );
    pod.started();
    for restart in 1..=3 {
        let what = call("StartContainer", "web");
        did(&mut pod, what, RecordOutcome::Done, restart * 1000);
    }
    check(
        &pod,
        9000,
        &[
            "0 runtime StartContainer web 0.010s",
            "3000 runtime StartContainer web x3 0.010s",
        ],
    );
}

#[test]
fn repeats_for_an_hour_add_no_record() {
    let mut pod = Timeline::default();
    did(
        &mut pod,
        call("StartContainer", "web"),
        RecordOutcome::Done,
        0,
    );
    pod.started();
    for second in 1..=3600 {
        let what = call("ExecSync", "web");
        did(&mut pod, what, RecordOutcome::Done, second * 1000);
    }
    let records = pod.records(at(0));
    assert_eq!((records.len(), records[1].count), (2, 3600));
    assert_eq!(pod.dropped(), 0);
}

#[test]
fn overflow_drops_oldest_later_record() {
    let mut pod = Timeline::default();
    for number in 0..MAX_START {
        let what = call("ImageStatus", &format!("image-{number}"));
        did(&mut pod, what, RecordOutcome::Done, 0);
    }
    pod.started();
    for number in 0..1000 {
        let what = call("ContainerStatus", &format!("c{number}"));
        did(&mut pod, what, RecordOutcome::Done, 1000 + number);
    }
    let records = pod.records(at(5000));
    assert_eq!(records.len(), MAX_RECORDS);
    assert_eq!(records[0].to_string(), "runtime ImageStatus image-0 0.010s");
    let newest = records[MAX_RECORDS - 1].to_string();
    assert_eq!(newest, "runtime ContainerStatus c999 0.010s");
    assert_eq!(pod.dropped(), 1000 - MAX_LATER as u32);
}

#[test]
fn texts_are_truncated_and_bounded() {
    let mut pod = Timeline::default();
    let long = "ä".repeat(1000);
    for number in 0..200 {
        let what = call("PullImage", &format!("{number}{long}"));
        did(&mut pod, what, RecordOutcome::failed(&long), number);
    }
    let bytes: usize = pod.closed().map(Record::text).sum();
    assert_eq!(bytes, pod.start.text + pod.later.text);
    assert!(bytes <= MAX_TEXT && bytes > MAX_TEXT / 2, "{bytes}");
    let newest = pod.records(at(300)).pop().expect("one");
    assert!(newest.subject.is_some_and(|text| text.len() <= ONE_TEXT));
}

#[test]
fn start_with_long_texts_keeps_capacity_for_later_records() {
    let mut pod = Timeline::default();
    let long = "x".repeat(1000);
    for number in 0..40 {
        let what = call("PullImage", &number.to_string());
        did(&mut pod, what, RecordOutcome::failed(&long), number);
    }
    pod.started();
    for number in 0..10 {
        let what = call("StartContainer", &format!("c{number}"));
        did(&mut pod, what, RecordOutcome::Done, 1000 + number);
    }
    let records = pod.records(at(2000));
    let later = |record: &&TimelineRecord| record.name == "StartContainer";
    assert_eq!(records.iter().filter(later).count(), 10);
    let first = records[0].subject.as_deref();
    assert_eq!(first, Some("0"), "the start stays");
}

#[test]
fn open_records_are_bounded_and_none_is_lost() {
    let mut pod = Timeline::default();
    for number in 0..20 {
        let what = call("PodSandboxStatus", &number.to_string());
        pod.begin(RecordId(number), what, at(0));
    }
    assert_eq!(pod.records(at(0)).len(), MAX_OPEN);
    for number in 0..20 {
        let what = call("PodSandboxStatus", &number.to_string());
        let took = Duration::from_millis(1);
        pod.end(RecordId(number), what, RecordOutcome::Done, (at(0), took));
    }
    assert_eq!(pod.records(at(0)).len(), 20);
}

/// The arithmetic at the head of the module.
#[test]
fn timeline_takes_at_most_8_kib() {
    assert_eq!((size_of::<Record>(), size_of::<OpenRecord>()), (120, 64));
    let mut pod = Timeline::default();
    for number in 0..5000_u64 {
        if number == 1000 {
            pod.started();
        }
        let what = call("ContainerStatus", &number.to_string());
        pod.begin(RecordId(number), what.clone(), at(0));
        if number >= MAX_OPEN as u64 {
            did(&mut pod, what, RecordOutcome::failed(number), 0);
        }
    }
    let records = pod.start.records.capacity() + pod.later.records.capacity();
    assert_eq!(records, MAX_RECORDS);
    let bytes = records * 120 + pod.open.capacity() * 64 + MAX_TEXT + size_of::<Timeline>();
    assert!(bytes <= 8192, "{bytes}");
}

#[test]
fn relevant_records_are_failed_running_and_decided() {
    let mut pod = Timeline::default();
    let seen = RecordKey::with_subject(RecordKind::Source, "ADD", "file");
    pod.record_instant(seen, RecordOutcome::Done, at(0));
    let admitted = RecordKey::new(RecordKind::Admission, "admitted");
    pod.record_instant(admitted, RecordOutcome::Done, at(0));
    for image in 0..3 {
        let image = format!("i{image}");
        let failed = RecordOutcome::failed("refused");
        did(&mut pod, call("PullImage", &image), failed, 1);
        did(
            &mut pod,
            call("ImageStatus", &image),
            RecordOutcome::Done,
            2,
        );
    }
    let sync = RecordKey::new(RecordKind::Sync, "sync");
    did(&mut pod, sync, RecordOutcome::decided("start(web#?)"), 3);
    let probe = RecordKey::with_subject(RecordKind::Probe, "Readiness", "web");
    pod.record_instant(probe, RecordOutcome::failed("it does not pass"), at(4));
    pod.begin(RecordId(9), call("StopContainer", "web"), at(5));
    let relevant = relevant_records(&pod.records(at(1005)));
    let relevant: Vec<String> = relevant.iter().map(ToString::to_string).collect();
    assert_eq!(
        relevant,
        [
            "runtime PullImage i0 0.010s failed: refused",
            "runtime PullImage i1 0.010s failed: refused",
            "runtime PullImage i2 0.010s failed: refused",
            "sync sync 0.010s: start(web#?)",
            "probe Readiness web failed: it does not pass",
            "runtime StopContainer web 1.000s running",
        ]
    );
}

#[test]
fn waterfall_has_one_scale_per_segment() {
    let mut pod = Timeline::default();
    let seen = RecordKey::with_subject(RecordKind::Source, "ADD", "file");
    pod.record_instant(seen, RecordOutcome::Done, at(0));
    let long = |what: &RecordKey, began: i64, millis: u64| {
        let took = Duration::from_millis(millis);
        (what.clone(), (at(began), took))
    };
    let sync = RecordKey::new(RecordKind::Sync, "sync");
    let sandbox = RecordKey::new(RecordKind::RuntimeCall, "RunPodSandbox");
    let status = RecordKey::new(RecordKind::ApiRequest, "patch");
    for (what, times) in [
        long(&sync, 0, 1000),
        long(&sandbox, 250, 500),
        long(&status, 999, 1),
        long(&sandbox, 60_000, 0),
    ] {
        let outcome = RecordOutcome::decided(times.0.as_millisecond());
        pod.end(RecordId(1), what, outcome, times);
    }
    let records = pod.records(at(70_000));
    let segments = waterfall(&records, 20);
    let line = |bar: &Bar<'_>| {
        let line = bar.to_string();
        line.split(": ").next().expect("a head").to_owned()
    };
    let lines: Vec<Vec<String>> = segments
        .iter()
        .map(|segment| segment.bars.iter().map(line).collect())
        .collect();
    assert_eq!(
        lines,
        [
            vec![
                "+0.000s [0+0] source ADD file",
                "+0.000s [0+20] sync sync 1.000s",
                "+0.250s [5+10] runtime RunPodSandbox 0.500s",
                "+0.999s [19+1] api patch 0.001s",
            ],
            vec!["+0.000s [0+1] runtime RunPodSandbox 0.000s"],
        ]
    );
    assert_eq!(segments[0].length, Duration::from_secs(1));
    assert_eq!(segments[1].began, at(60_000));
    assert!(waterfall(&[], 20).is_empty());
}

#[test]
fn start_ends_with_readiness_or_terminal_phase() {
    let check = |phase: &str, ready: &str, reason: Option<&str>, expected| {
        let status = PodStatus {
            phase: Some(phase.to_owned()),
            reason: reason.map(str::to_owned),
            conditions: Some(vec![PodCondition {
                type_: "Ready".to_owned(),
                status: ready.to_owned(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        };
        assert_eq!(start_outcome(&status), expected, "{phase} {ready}");
    };
    check("Pending", "False", None, None);
    check("Running", "False", None, None);
    check("Running", "True", None, Some(Ok(())));
    check("Succeeded", "False", None, Some(Ok(())));
    check("Failed", "False", None, Some(Err("Failed")));
    check("Failed", "False", Some("Evicted"), Some(Err("Evicted")));
}
