//! Durations in the format of kubectl, and in ms for the phases of a start.

use windlass_types::Timestamp;

/// Formats the time since `then`, for an AGE column.
pub(crate) fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(
        || "<unknown>".to_owned(),
        |then| human(now.as_second() - then.as_second()),
    )
}

/// Formats seconds with at most two units (apimachinery `HumanDuration`).
pub(crate) fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn two(large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    }
}

/// Formats the time between two points, `-` if one is unknown. A negative duration is 0.
pub(crate) fn span(from: Option<Timestamp>, to: Option<Timestamp>) -> String {
    let (Some(from), Some(to)) = (from, to) else {
        return "-".to_owned();
    };
    let millis = to.duration_since(from).as_millis().max(0);
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{:02}s", millis / 1000, millis % 1000 / 10),
        _ => human(i64::try_from(millis / 1000).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::{human, span};

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (135, "2m15s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (28_740, "7h59m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn phases_have_milliseconds() {
        let check = |from: &str, to: &str, expected: &str| {
            let time = |text: &str| format!("2026-01-01T00:{text}Z").parse().ok();
            assert_eq!(span(time(from), time(to)), expected);
        };
        check("00:00", "00:00.007", "7ms");
        check("00:00", "00:01.239", "1.23s");
        check("00:01", "00:00", "0ms");
        check("00:00", "03:01", "3m1s");
        check("00:00", "never", "-");
    }
}
