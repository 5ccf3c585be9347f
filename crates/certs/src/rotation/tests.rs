//! Decisions of the rotation; tests of the loops are in `tests/`.

use std::time::Duration;

use windlass_types::Timestamp;

use super::plan::{RotationState, Validity, backoff, newest, step};

fn at(hour: i64) -> Timestamp {
    Timestamp::from_second(hour * 3600).expect("in range")
}

fn validity(from: i64, to: i64) -> Validity {
    Validity {
        not_before: at(from),
        not_after: at(to),
    }
}

fn state(validity: Option<Validity>, (rotate, bootstrap): (bool, bool)) -> RotationState<'static> {
    RotationState {
        node: "n1",
        validity,
        rejected_for: None,
        replaced: 0,
        rotate,
        bootstrap,
    }
}

#[test]
fn certificate_is_renewed_in_time_or_replaced_by_bootstrap() {
    let check = |validity, able, hour, expected: &str| {
        let decided = step(&state(validity, able), at(hour));
        assert_eq!(decided.to_string(), expected);
    };
    let long = Some(validity(0, 1000));
    check(long, (true, true), 1, "wait(60s)");
    check(long, (true, false), 699, "wait(60s)");
    check(long, (true, false), 901, "renew");
    check(long, (false, false), 901, "wait(60s)");
    check(long, (true, true), 1000, "bootstrap");
    check(long, (true, false), 1001, "no credentials");
    check(long, (false, true), 1001, "bootstrap");
    check(None, (true, true), 0, "bootstrap");
    check(None, (true, false), 0, "no credentials");
    // the clock was set back before the validity
    check(Some(validity(5, 1000)), (true, true), 1, "bootstrap");
}

#[test]
fn rejected_certificate_is_replaced_by_bootstrap() {
    let check = |minutes: u64, replaced, bootstrap, expected: &str| {
        let rejected = RotationState {
            rejected_for: Some(Duration::from_secs(minutes * 60)),
            replaced,
            ..state(Some(validity(0, 1000)), (true, bootstrap))
        };
        assert_eq!(step(&rejected, at(1)).to_string(), expected);
    };
    check(4, 0, true, "wait(60s)");
    check(5, 0, true, "bootstrap");
    check(500, 0, false, "wait(60s)");
    // the new one was rejected as well: less often
    check(9, 1, true, "wait(60s)");
    check(10, 1, true, "bootstrap");
    check(79, 9, true, "wait(60s)");
    check(80, 9, true, "bootstrap");
}

#[test]
fn newest_valid_certificate_is_used() {
    let (old, new, gone) = (validity(0, 100), validity(50, 100), validity(60, 70));
    let check = |candidates: &[Option<Validity>], expected| {
        assert_eq!(newest(candidates, at(80)), expected);
    };
    check(&[None, None], None);
    check(&[None, Some(gone)], Some(1));
    check(&[Some(old), Some(gone), Some(new)], Some(2));
    check(&[Some(old), Some(gone)], Some(0));
    check(&[Some(new), Some(new)], Some(0));
}

#[test]
fn renewal_time_is_between_70_and_90_percent_with_jitter() {
    let validity = validity(0, 1000);
    let times: Vec<i64> = (0..50)
        .map(|n| validity.rotate_at(&format!("n{n}")).as_second() / 3600)
        .collect();
    assert!(
        times.iter().all(|hour| (700..=900).contains(hour)),
        "{times:?}"
    );
    assert!(times.iter().any(|hour| *hour < 750) && times.iter().any(|hour| *hour > 850));
    assert_eq!(validity.rotate_at("n1"), validity.rotate_at("n1"));
}

#[test]
fn backoff_doubles_to_32_seconds_with_jitter() {
    for (failures, seconds) in [(0, 2), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (99, 32)] {
        let backoff = backoff(failures, "n1");
        let min = Duration::from_secs(seconds);
        assert!(backoff >= min && backoff < min.mul_f64(1.1), "{backoff:?}");
    }
    assert_ne!(backoff(5, "n1"), backoff(5, "n2"));
}
