//! Decisions as lines.

use super::*;

fn error(kind: ApiErrorKind) -> ApiError {
    ApiError {
        kind,
        verb: "watch",
        path: "/api/v1/pods".to_owned(),
        message: String::new(),
        retry_after: None,
    }
}

/// A set that was read up to version 7.
fn synced() -> Plan {
    let mut plan = Plan::new(1, None);
    assert_eq!(plan.read("7"), None);
    plan
}

fn check(plan: &mut Plan, input: &ReflectInput<'_>, expected: &str) {
    assert_eq!(
        plan.after(input, Instant::now()).to_string(),
        expected,
        "{input:?}"
    );
}

const LONG: Duration = Duration::from_secs(290);
const SHORT: Duration = Duration::from_millis(10);

#[test]
fn server_without_streaming_lists_is_listed_afterwards() {
    use ApiErrorKind::{Invalid, NotFound};
    for kind in [Invalid, NotFound] {
        let mut plan = Plan::new(1, None);
        assert_eq!(plan.step().to_string(), "streaming list");
        check(&mut plan, &ReflectInput::Failed(&error(kind)), "list now");
        assert_eq!(plan.read("7"), None);
        let gone = error(ApiErrorKind::Gone);
        check(&mut plan, &ReflectInput::Failed(&gone), "list now");
    }
    let mut plan = Plan::new(1, None);
    check(&mut plan, &ReflectInput::NoBookmark, "list now");
}

#[test]
fn streaming_list_failure_decides_next_request() {
    use ApiErrorKind::*;
    let all = [
        (NotFound, "list now", "list now"),
        (AlreadyExists, "list now", "list now"),
        (Conflict, "list now", "list now"),
        (Gone, "list now", "list now"),
        (Forbidden, "list now", "list now"),
        (Invalid, "list now", "list now"),
        (Server, "list now", "list now"),
        (Protocol, "list now", "list now"),
        // a list would also fail; 0.5 to 1.5 times 800 ms
        (Unauthorized, "streaming list later", "streaming list later"),
        (
            TooManyRequests,
            "streaming list later",
            "streaming list later",
        ),
        (Timeout, "streaming list later", "streaming list later"),
        (Connection, "streaming list later", "streaming list later"),
    ];
    let line = |decision: Decision| match decision.pause.is_zero() {
        true => format!("{} now", decision.step),
        false => format!("{} later", decision.step),
    };
    for (kind, refused, broke) in all {
        let error = error(kind);
        let decision = Plan::new(1, None).after(&ReflectInput::Failed(&error), Instant::now());
        assert_eq!(line(decision), refused, "{kind:?} refused");
        let input = ReflectInput::Broken {
            age: SHORT,
            error: &error,
        };
        let decision = Plan::new(1, None).after(&input, Instant::now());
        assert_eq!(line(decision), broke, "{kind:?} after the status 200");
    }
}

#[test]
fn streaming_list_broken_three_times_becomes_list() {
    let connection = error(ApiErrorKind::Connection);
    let mut plan = Plan::new(1, None);
    let steps: Vec<Step> = (0..4)
        .map(|_| {
            plan.after(&ReflectInput::Failed(&connection), Instant::now())
                .step
        })
        .collect();
    assert_eq!(steps, [Step::Stream, Step::Stream, Step::List, Step::List]);
    assert_eq!(plan.read("7"), None);
    let gone = error(ApiErrorKind::Gone);
    check(
        &mut plan,
        &ReflectInput::Failed(&gone),
        "streaming list now",
    );
}

#[test]
fn streaming_list_is_tried_again_after_an_hour() {
    let mut plan = Plan::new(1, None);
    let begin = Instant::now();
    plan.after(&ReflectInput::Failed(&error(ApiErrorKind::Server)), begin);
    let gone = error(ApiErrorKind::Gone);
    for (at, step) in [
        (REPROBE_INTERVAL - Duration::from_secs(1), Step::List),
        (REPROBE_INTERVAL, Step::Stream),
    ] {
        assert_eq!(plan.read("7"), None);
        let closed = ReflectInput::Closed { age: LONG };
        plan.after(&closed, begin + at);
        let expired = ReflectInput::Failed(&gone);
        assert_eq!(plan.after(&expired, begin + at).step, step, "{at:?}");
    }
}

#[test]
fn watch_rejected_three_times_reads_the_set_again() {
    for kind in [ApiErrorKind::Server, ApiErrorKind::Forbidden] {
        let mut plan = synced();
        let error = error(kind);
        let mut after = || plan.after(&ReflectInput::Failed(&error), Instant::now());
        let steps: Vec<String> = (0..3).map(|_| after().step.to_string()).collect();
        assert_eq!(steps, ["watch from 7", "watch from 7", "streaming list"]);
        // and before each further watch, with a growing back-off
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert_eq!(plan.read("7"), None);
            plan.opened();
            let broke = ReflectInput::Broken {
                age: SHORT,
                error: &error,
            };
            let decision = plan.after(&broke, Instant::now());
            assert_eq!(decision.step, Step::Stream);
            pauses.push(decision.pause);
        }
        assert!(pauses[5] >= Duration::from_secs(12), "{pauses:?}");
        plan.read("7");
        plan.passed("8");
        let decision = plan.after(&ReflectInput::Failed(&error), Instant::now());
        assert_eq!(decision.step.to_string(), "watch from 8", "it works again");
    }
}

#[test]
fn broken_streaming_list_is_retried() {
    let mut plan = Plan::new(1, None);
    let broken = error(ApiErrorKind::Connection);
    let broke = ReflectInput::Broken {
        age: SHORT,
        error: &broken,
    };
    let first = plan.after(&broke, Instant::now());
    assert_eq!(first.step, Step::Stream);
    assert!(!first.pause.is_zero() && first.reported);
}

#[test]
fn closed_watch_continues_at_once() {
    let mut plan = synced();
    check(
        &mut plan,
        &ReflectInput::Closed { age: LONG },
        "watch from 7 now",
    );
    plan.passed("9");
    plan.passed("8");
    plan.passed("");
    check(
        &mut plan,
        &ReflectInput::Closed { age: LONG },
        "watch from 9 now",
    );
}

#[test]
fn watch_closed_early_repeatedly_backs_off() {
    let mut plan = synced();
    let pauses: Vec<Duration> = (0..8)
        .map(|_| {
            plan.opened();
            let decision = plan.after(&ReflectInput::Closed { age: SHORT }, Instant::now());
            assert!(!decision.reported, "a close is not an error");
            decision.pause
        })
        .collect();
    bounded(&pauses);
    check(
        &mut plan,
        &ReflectInput::Closed { age: LONG },
        "watch from 7 now",
    );
}

/// The nth pause is 800 ms doubled n times, ±50 %, at most 30 s.
fn bounded(pauses: &[Duration]) {
    for (n, pause) in pauses.iter().enumerate() {
        let base = Duration::from_millis(800 * (1 << n)).min(MAX_BACKOFF);
        let range = base / 2..=(base * 3 / 2).min(MAX_BACKOFF);
        assert!(range.contains(pause), "pause {n}: {pause:?} in {range:?}");
    }
}

#[test]
fn failures_keep_the_position_and_back_off_until_one_success() {
    use ApiErrorKind::{Connection, Timeout, TooManyRequests, Unauthorized};
    for kind in [Unauthorized, TooManyRequests, Connection, Timeout] {
        let mut plan = synced();
        let error = error(kind);
        let pauses: Vec<Duration> = (0..10)
            .map(|_| {
                let decision = plan.after(&ReflectInput::Failed(&error), Instant::now());
                assert_eq!(decision.step.to_string(), "watch from 7", "{kind:?}");
                assert!(decision.reported);
                decision.pause
            })
            .collect();
        bounded(&pauses);
        plan.opened();
        let again = plan
            .after(&ReflectInput::Failed(&error), Instant::now())
            .pause;
        assert_eq!(again, pauses[0], "{kind:?}");
    }
}

#[test]
fn different_seeds_have_different_backoff() {
    let pauses: std::collections::BTreeSet<Duration> = (0..50)
        .map(|seed| {
            let mut plan = Plan::new(fnv1a_64(0, format!("set {seed}").as_bytes()), None);
            plan.after(
                &ReflectInput::Failed(&error(ApiErrorKind::Connection)),
                Instant::now(),
            )
            .pause
        })
        .collect();
    assert!(pauses.len() > 30, "{} different pauses", pauses.len());
}

#[test]
fn retry_after_extends_the_backoff_up_to_a_limit() {
    let mut plan = synced();
    let mut busy = error(ApiErrorKind::TooManyRequests);
    busy.retry_after = Some(Duration::from_secs(42));
    check(
        &mut plan,
        &ReflectInput::Failed(&busy),
        "watch from 7 in 42000 ms, reported",
    );
    busy.retry_after = Some(Duration::from_secs(86_400));
    check(
        &mut plan,
        &ReflectInput::Failed(&busy),
        "watch from 7 in 300000 ms, reported",
    );
}

#[test]
fn expired_version_is_read_at_once_but_not_repeatedly() {
    let gone = error(ApiErrorKind::Gone);
    let mut plan = synced();
    let broke = ReflectInput::Broken {
        age: LONG,
        error: &gone,
    };
    check(&mut plan, &broke, "streaming list now");

    let mut plan = synced();
    check(
        &mut plan,
        &ReflectInput::Failed(&gone),
        "streaming list now",
    );
    let mut pauses = Vec::new();
    for _ in 0..6 {
        assert_eq!(plan.read("7"), None);
        pauses.push(
            plan.after(&ReflectInput::Failed(&gone), Instant::now())
                .pause,
        );
    }
    assert!(pauses[0] >= INITIAL_BACKOFF, "{pauses:?}");
    assert!(pauses[5] >= Duration::from_secs(12), "{pauses:?}");
}

#[test]
fn too_large_resource_version_reads_the_set_again() {
    let mut plan = synced();
    let mut ahead = error(ApiErrorKind::Timeout);
    ahead.message = "Too large resource version: 7, current: 3".to_owned();
    let decision = plan.after(&ReflectInput::Failed(&ahead), Instant::now());
    assert_eq!(decision.step, Step::Stream);
    assert!(decision.reported && !decision.pause.is_zero());
}

#[test]
fn outdated_set_is_accepted_after_repeated_reads() {
    let mut plan = synced();
    plan.passed("20");
    plan.after(
        &ReflectInput::Failed(&error(ApiErrorKind::Gone)),
        Instant::now(),
    );
    for _ in 0..MAX_STALE_SETS {
        let decision = plan.read("12").expect("too old");
        assert_eq!(decision.step, Step::Stream);
        assert!(!decision.pause.is_zero());
    }
    assert_eq!(plan.read("12"), None, "a restored backup");
    assert_eq!(plan.step().to_string(), "watch from 12");
}
