//! Durations in the words that Kubernetes users know from Go.

use std::time::Duration;

/// A duration as Go's `time.Duration.String` prints it: `500ms`, `1m20s`, `5m0s`. To the
/// microsecond below a second, else to the millisecond.
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return match duration.as_micros() {
            0 => "0s".to_owned(),
            micros if micros < 1000 => format!("{micros}µs"),
            micros => format!("{}ms", thousandths(micros as u64)),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = thousandths((seconds % 60) * 1000 + u64::from(duration.subsec_millis()));
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// A thousandth of `value`, without trailing zeros.
fn thousandths(value: u64) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        let check = |millis: u64, expected: &str| {
            assert_eq!(go_duration(Duration::from_millis(millis)), expected);
        };
        check(0, "0s");
        check(7, "7ms");
        check(10_000, "10s");
        check(1_234, "1.234s");
        check(60_000, "1m0s");
        check(80_000, "1m20s");
        check(300_000, "5m0s");
        check(3_661_000, "1h1m1s");
        check(3_661_500, "1h1m1.5s");
        assert_eq!(go_duration(Duration::from_micros(1500)), "1.5ms");
        assert_eq!(go_duration(Duration::from_micros(15)), "15µs");
    }
}
