//! Time until the next pass, by distance and rate.

use crate::state::EvictionState;
use crate::test_figures::{now, observations, settings};

/// Milliseconds until the next pass after observations at the given seconds.
fn check(thresholds: &str, passes: &[(u64, &str)], expected: u128) {
    let settings = settings(thresholds);
    let mut state = EvictionState::default();
    let mut next = None;
    for (second, observed) in passes {
        let pass = state.pass(now(*second), &observations(observed, *second), &settings);
        next = Some(pass.next.as_millis());
    }
    assert_eq!(next, Some(expected), "{passes:?}");
}

#[test]
fn interval_follows_distance_to_threshold() {
    let disk = "hard nodefs.available=1G";
    check(disk, &[(0, "nodefs.available=100G/200G")], 10_000);
    check(disk, &[(0, "nodefs.available=21G/200G")], 10_000);
    check(disk, &[(0, "nodefs.available=11G/200G")], 5_000);
    check(disk, &[(0, "nodefs.available=3G/200G")], 1_000);
    check(disk, &[(0, "nodefs.available=2G/200G")], 500);
    check(disk, &[(0, "nodefs.available=1001M/200G")], 50);
    check(disk, &[(0, "nodefs.available=1G/200G")], 1_000);
    check(disk, &[(0, "nodefs.available=0/200G")], 1_000);
    check(
        "hard nodefs.inodesFree=1k",
        &[(0, "nodefs.inodesFree=801k/10M")],
        4_000,
    );
    check(
        "hard pid.available=1k",
        &[(0, "pid.available=31k/32k")],
        1_500,
    );
    check(
        "hard pid.available=1k",
        &[(0, "pid.available=2k/32k")],
        1_000,
    );
    check("", &[(0, "nodefs.available=1/200G")], 10_000);
    check(disk, &[(0, "")], 10_000);
}

#[test]
fn interval_follows_rate_of_filling() {
    let disk = "hard nodefs.available=1G";
    // 3 GB/s: 30 s to the threshold, then 20 s, then 10 s
    let filling = [
        (0, "nodefs.available=121G/200G"),
        (10, "nodefs.available=91G/200G"),
        (20, "nodefs.available=61G/200G"),
        (30, "nodefs.available=31G/200G"),
    ];
    check(disk, &filling[..2], 10_000);
    check(disk, &filling[..3], 10_000);
    check(disk, &filling[..4], 5_000);
    // it is emptied
    check(
        disk,
        &[
            (0, "nodefs.available=31G/200G"),
            (10, "nodefs.available=41G/200G"),
        ],
        10_000,
    );
    // two passes at the same instant
    check(
        disk,
        &[
            (0, "nodefs.available=90G/200G"),
            (0, "nodefs.available=89G/200G"),
        ],
        4_400,
    );
}

#[test]
fn interval_ends_with_grace_period() {
    let soft = "soft pid.available=1k; grace pid.available=5s";
    check(soft, &[(0, "pid.available=1/32k")], 1_000);
    // a threshold that only a rise can resolve is observed every second
    check(
        soft,
        &[(0, "pid.available=1/32k"), (4, "pid.available=1/32k")],
        1_000,
    );
}
