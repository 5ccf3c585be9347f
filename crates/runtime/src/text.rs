//! Words that Kubernetes users know from the Go kubelet.

use std::time::Duration;

use windlass_types::{Pod, PodExt};

/// A duration as Go prints it: `500ms`, `1m20s`, `5m0s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return match duration.as_micros() {
            0 => "0s".to_owned(),
            micros if micros < 1000 => format!("{micros}µs"),
            micros => format!("{}ms", decimal(micros as u64, 1000)),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = decimal(
        (seconds % 60) * 1000 + u64::from(duration.subsec_millis()),
        1000,
    );
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// `value / scale` without trailing zeros.
fn decimal(value: u64, scale: u64) -> String {
    let text = format!("{}.{:03}", value / scale, value % scale);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Upstream's `format.Pod`: `name_namespace(uid)`.
pub(crate) fn pod_text(pod: &Pod) -> String {
    format!("{}({})", pod.full_name(), pod.uid())
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
        check(80_000, "1m20s");
        check(300_000, "5m0s");
        check(3_661_500, "1h1m1.5s");
        assert_eq!(go_duration(Duration::from_micros(1500)), "1.5ms");
        assert_eq!(go_duration(Duration::from_micros(15)), "15µs");
    }
}
