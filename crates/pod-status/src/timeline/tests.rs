//! Timelines by their lines.

use windlass_types::corev1::{PodCondition, PodStatus};

use super::*;

/// All records of a pod.
const MAX_RECORDS: usize = MAX_START + MAX_LATER;
/// Bytes of all texts of a pod.
const MAX_TEXT: usize = START_TEXT + LATER_TEXT;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_767_225_600_000 + millis).expect("in range")
}

fn call(name: &'static str, subject: &str) -> What {
    What::of(RecordKind::RuntimeCall, name, subject)
}

/// Records something that took 10 ms.
fn did(timeline: &mut Timeline, what: What, outcome: Outcome, millis: i64) {
    let took = Duration::from_millis(10);
    timeline.begin(TouchId(1), what.clone(), at(millis));
    timeline.end(TouchId(1), what, outcome, (at(millis), took));
}

fn check(timeline: &Timeline, now: i64, expected: &[&str]) {
    let touches = timeline.touches(at(now));
    let line = |touch: &TimelineRecord| {
        let after = touch.started_at.duration_since(at(0)).as_millis();
        format!("{after} {touch}")
    };
    let lines: Vec<String> = touches.iter().map(line).collect();
    assert_eq!(lines, expected);
}

#[test]
fn what_touched_a_pod_is_told_in_the_order_in_which_it_began() {
    let mut pod = Timeline::default();
    let seen = What::of(RecordKind::Source, "ADD", "file");
    pod.instant(seen, Outcome::Done, at(0));
    let sync = What::new(RecordKind::Sync, "sync");
    pod.begin(TouchId(1), sync.clone(), at(1));
    let sandbox = What::new(RecordKind::RuntimeCall, "RunPodSandbox");
    pod.begin(TouchId(2), sandbox.clone(), at(2));
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
    let failed = Outcome::failed("no network");
    pod.end(TouchId(2), sandbox, failed, (at(2), took));
    pod.end(TouchId(1), sync, Outcome::Cancelled, (at(1), took));
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
fn the_same_touch_again_is_counted_and_another_end_or_decision_is_not_the_same() {
    let mut pod = Timeline::default();
    let sync = || What::new(RecordKind::Sync, "sync");
    did(&mut pod, sync(), Outcome::decided("start(web#0)"), 0);
    did(&mut pod, call("PullImage", "x"), Outcome::failed("no"), 1);
    did(&mut pod, sync(), Outcome::decided("nothing"), 20);
    did(&mut pod, call("PullImage", "y"), Outcome::Done, 30);
    did(
        &mut pod,
        call("PullImage", "x"),
        Outcome::failed("never"),
        40,
    );
    did(&mut pod, sync(), Outcome::decided("nothing"), 50);
    did(&mut pod, call("PullImage", "x"), Outcome::Done, 60);
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
    let repeated = &pod.touches(at(70))[2];
    assert_eq!(repeated.first_started_at, at(1));
}

#[test]
fn what_comes_after_the_start_leaves_the_start_as_it_was() {
    let mut pod = Timeline::default();
    did(&mut pod, call("StartContainer", "web"), Outcome::Done, 0);
    pod.started();
    for restart in 1..=3 {
        let what = call("StartContainer", "web");
        did(&mut pod, what, Outcome::Done, restart * 1000);
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
fn an_hour_of_the_same_adds_nothing() {
    let mut pod = Timeline::default();
    did(&mut pod, call("StartContainer", "web"), Outcome::Done, 0);
    pod.started();
    for second in 1..=3600 {
        let what = call("ExecSync", "web");
        did(&mut pod, what, Outcome::Done, second * 1000);
    }
    let touches = pod.touches(at(0));
    assert_eq!((touches.len(), touches[1].count), (2, 3600));
    assert_eq!(pod.forgotten(), 0);
}

#[test]
fn what_is_too_much_pushes_out_the_oldest_that_is_not_of_the_start() {
    let mut pod = Timeline::default();
    for number in 0..MAX_START {
        let what = call("ImageStatus", &format!("image-{number}"));
        did(&mut pod, what, Outcome::Done, 0);
    }
    pod.started();
    for number in 0..1000 {
        let what = call("ContainerStatus", &format!("c{number}"));
        did(&mut pod, what, Outcome::Done, 1000 + number);
    }
    let touches = pod.touches(at(5000));
    assert_eq!(touches.len(), MAX_RECORDS);
    assert_eq!(touches[0].to_string(), "runtime ImageStatus image-0 0.010s");
    let newest = touches[MAX_RECORDS - 1].to_string();
    assert_eq!(newest, "runtime ContainerStatus c999 0.010s");
    assert_eq!(pod.forgotten(), 1000 - MAX_LATER as u32);
}

#[test]
fn texts_are_cut_at_a_characters_end_and_bounded_together() {
    let mut pod = Timeline::default();
    let long = "ä".repeat(1000);
    for number in 0..200 {
        let what = call("PullImage", &format!("{number}{long}"));
        did(&mut pod, what, Outcome::failed(&long), number);
    }
    let bytes: usize = pod.records().map(Record::text).sum();
    assert_eq!(bytes, pod.start.text + pod.later.text);
    assert!(bytes <= MAX_TEXT && bytes > MAX_TEXT / 2, "{bytes}");
    let newest = pod.touches(at(300)).pop().expect("one");
    assert!(newest.subject.is_some_and(|text| text.len() <= ONE_TEXT));
}

#[test]
fn a_start_with_long_texts_leaves_room_for_what_comes_later() {
    let mut pod = Timeline::default();
    let long = "x".repeat(1000);
    for number in 0..40 {
        let what = call("PullImage", &number.to_string());
        did(&mut pod, what, Outcome::failed(&long), number);
    }
    pod.started();
    for number in 0..10 {
        let what = call("StartContainer", &format!("c{number}"));
        did(&mut pod, what, Outcome::Done, 1000 + number);
    }
    let touches = pod.touches(at(2000));
    let later = |touch: &&TimelineRecord| touch.name == "StartContainer";
    assert_eq!(touches.iter().filter(later).count(), 10);
    let first = touches[0].subject.as_deref();
    assert_eq!(first, Some("0"), "the start stays");
}

#[test]
fn touches_under_way_are_bounded_and_none_is_lost_when_it_ends() {
    let mut pod = Timeline::default();
    for number in 0..20 {
        let what = call("PodSandboxStatus", &number.to_string());
        pod.begin(TouchId(number), what, at(0));
    }
    assert_eq!(pod.touches(at(0)).len(), MAX_OPEN);
    for number in 0..20 {
        let what = call("PodSandboxStatus", &number.to_string());
        let took = Duration::from_millis(1);
        pod.end(TouchId(number), what, Outcome::Done, (at(0), took));
    }
    assert_eq!(pod.touches(at(0)).len(), 20);
}

/// The arithmetic at the head of the module.
#[test]
fn a_timeline_takes_at_most_eight_kibibytes() {
    assert_eq!((size_of::<Record>(), size_of::<Open>()), (120, 64));
    let mut pod = Timeline::default();
    for number in 0..5000_u64 {
        if number == 1000 {
            pod.started();
        }
        let what = call("ContainerStatus", &number.to_string());
        pod.begin(TouchId(number), what.clone(), at(0));
        if number >= MAX_OPEN as u64 {
            did(&mut pod, what, Outcome::failed(number), 0);
        }
    }
    let records = pod.start.records.capacity() + pod.later.records.capacity();
    assert_eq!(records, MAX_RECORDS);
    let bytes = records * 120 + pod.open.capacity() * 64 + MAX_TEXT + size_of::<Timeline>();
    assert!(bytes <= 8192, "{bytes}");
}

#[test]
fn a_blocker_comes_with_what_failed_or_hangs_and_what_was_decided() {
    let mut pod = Timeline::default();
    let seen = What::of(RecordKind::Source, "ADD", "file");
    pod.instant(seen, Outcome::Done, at(0));
    let admitted = What::new(RecordKind::Admission, "admitted");
    pod.instant(admitted, Outcome::Done, at(0));
    for image in 0..3 {
        let image = format!("i{image}");
        let failed = Outcome::failed("refused");
        did(&mut pod, call("PullImage", &image), failed, 1);
        did(&mut pod, call("ImageStatus", &image), Outcome::Done, 2);
    }
    let sync = What::new(RecordKind::Sync, "sync");
    did(&mut pod, sync, Outcome::decided("start(web#?)"), 3);
    let probe = What::of(RecordKind::Probe, "Readiness", "web");
    pod.instant(probe, Outcome::failed("it does not pass"), at(4));
    pod.begin(TouchId(9), call("StopContainer", "web"), at(5));
    let led = led_to(&pod.touches(at(1005)));
    let led: Vec<String> = led.iter().map(ToString::to_string).collect();
    assert_eq!(
        led,
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
fn a_waterfall_has_a_scale_for_each_episode() {
    let mut pod = Timeline::default();
    let seen = What::of(RecordKind::Source, "ADD", "file");
    pod.instant(seen, Outcome::Done, at(0));
    let long = |what: &What, began: i64, millis: u64| {
        let took = Duration::from_millis(millis);
        (what.clone(), (at(began), took))
    };
    let sync = What::new(RecordKind::Sync, "sync");
    let sandbox = What::new(RecordKind::RuntimeCall, "RunPodSandbox");
    let status = What::new(RecordKind::ApiRequest, "patch");
    for (what, times) in [
        long(&sync, 0, 1000),
        long(&sandbox, 250, 500),
        long(&status, 999, 1),
        long(&sandbox, 60_000, 0),
    ] {
        let outcome = Outcome::decided(times.0.as_millisecond());
        pod.end(TouchId(1), what, outcome, times);
    }
    let touches = pod.touches(at(70_000));
    let episodes = waterfall(&touches, 20);
    let line = |bar: &Bar<'_>| {
        let line = bar.to_string();
        line.split(": ").next().expect("a head").to_owned()
    };
    let lines: Vec<Vec<String>> = episodes
        .iter()
        .map(|episode| episode.bars.iter().map(line).collect())
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
    assert_eq!(episodes[0].length, Duration::from_secs(1));
    assert_eq!(episodes[1].began, at(60_000));
    assert!(waterfall(&[], 20).is_empty());
}

#[test]
fn a_start_is_over_when_the_pod_is_ready_or_has_ended() {
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
        assert_eq!(start_end(&status), expected, "{phase} {ready}");
    };
    check("Pending", "False", None, None);
    check("Running", "False", None, None);
    check("Running", "True", None, Some(Ok(())));
    check("Succeeded", "False", None, Some(Ok(())));
    check("Failed", "False", None, Some(Err("Failed")));
    check("Failed", "False", Some("Evicted"), Some(Err("Evicted")));
}
