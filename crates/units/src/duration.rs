//! Durations in Go's text form (`1m30s`, `100ms`): parsed, printed and serialized as Go does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000 * MICROSECOND;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A signed duration in nanoseconds, upstream `metav1.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

impl GoDuration {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// Whole milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(MILLISECOND))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Converts to a standard duration; a negative duration becomes zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

/// The text is not a Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write a number with a unit, for example 10s, 1m30s or 500ms")]
pub struct GoDurationError(String);

/// Formats a duration as Go's `time.Duration.String`: `500ms`, `1m20s`, `5m0s`. Truncates to
/// microseconds below a second, else to milliseconds.
pub fn go_duration(duration: Duration) -> String {
    let unit = match duration.as_secs() {
        0 => MICROSECOND,
        _ => MILLISECOND,
    };
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    GoDuration(nanos - nanos % unit).to_string()
}

impl FromStr for GoDuration {
    type Err = GoDurationError;

    fn from_str(text: &str) -> Result<Self, GoDurationError> {
        parse(text)
            .map(Self)
            .ok_or_else(|| GoDurationError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_len = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_len);
        let unit_len = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_len);
        total = total.checked_add(nanos(number, unit_nanos(unit)?)?)?;
        rest = next;
    }
    let total = i64::try_from(total).ok()?;
    Some(if negative { -total } else { total })
}

fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        // micro sign and Greek mu look the same and are both in use
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// Converts a decimal number of units to nanoseconds; truncates.
fn nanos(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut result = whole.checked_mul(i128::from(unit))?;
    let mut scale = i128::from(unit);
    for digit in fraction.bytes() {
        // each digit is a tenth of the one before
        result += i128::from(digit - b'0') * scale / 10;
        scale /= 10;
    }
    Some(result)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        let [micro, milli, second, minute, hour] =
            [MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR].map(i64::unsigned_abs);
        if nanos < micro {
            return write!(f, "{nanos}ns");
        }
        if nanos < milli {
            return write_decimal(f, nanos, micro, "\u{b5}s");
        }
        if nanos < second {
            return write_decimal(f, nanos, milli, "ms");
        }
        if nanos >= hour {
            write!(f, "{}h", nanos / hour)?;
        }
        if nanos >= minute {
            write!(f, "{}m", nanos % hour / minute)?;
        }
        write_decimal(f, nanos % minute, second, "s")
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    let (whole, rest) = (nanos / unit, nanos % unit);
    if rest == 0 {
        return write!(f, "{whole}{name}");
    }
    let digits = unit.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    write!(f, "{whole}.{}{name}", fraction.trim_end_matches('0'))
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{GoDuration, go_duration};

    fn check(text: &str, expected: &str) {
        let line = match text.parse::<GoDuration>() {
            Ok(duration) => duration.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert!(
            line.starts_with(expected),
            "{text}: {line}, expected {expected}"
        );
    }

    #[test]
    fn text_is_read_and_printed_as_go_does() {
        check("0", "0s");
        check("4m", "4m0s");
        check("90s", "1m30s");
        check("1h", "1h0m0s");
        check("1.5h", "1h30m0s");
        check("100ms", "100ms");
        check("1500ms", "1.5s");
        check("2h0m0.25s", "2h0m0.25s");
        check("1.5\u{b5}s", "1.5\u{b5}s");
        check("7ns", "7ns");
        check("-10s", "-10s");
        check("+.5s", "500ms");
        check("2562047h47m16s", "2562047h47m16s");
    }

    #[test]
    fn standard_durations_are_truncated_and_printed_as_go_does() {
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
        assert_eq!(go_duration(Duration::from_micros(15)), "15\u{b5}s");
        assert_eq!(go_duration(Duration::from_nanos(1_234_567_890)), "1.234s");
        assert_eq!(go_duration(Duration::from_nanos(1_999)), "1\u{b5}s");
    }

    #[test]
    fn text_that_go_rejects_is_rejected() {
        for bad in ["", "10", "s", "1x", "1m 2s", ".s", "1..2s", "-", "9999999h"] {
            check(bad, "error: ");
        }
    }
}
