//! Query options of container logs: upstream `PodLogOptions`.

use std::time::Duration;

use windlass_container_logs::LogOptions;
use windlass_pod_lifecycle::cri_log::LogStream;
use windlass_types::Timestamp;

/// An invalid query; messages and codes are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadOptions {
    /// 400.
    #[error(r#"{{"message": "Unable to decode query."}}"#)]
    Undecodable,
    /// 422.
    #[error(r#"{{"message": "Invalid request."}}"#)]
    Invalid,
}

/// The query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLogOptions {
    follow: bool,
    /// Read the previous instance.
    pub(crate) previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
    stream: Option<String>,
}

impl PodLogOptions {
    /// Parses any query. As in Go, the first of several values counts, unknown names are ignored,
    /// and every text but `false` and `0` is true.
    ///
    /// # Errors
    /// `Undecodable`: a number or time cannot be parsed.
    pub fn decode(query: &str) -> Result<Self, BadOptions> {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        let first = |name: &str| {
            let mut found = pairs.iter().filter(|(key, _)| key == name);
            found.next().map(|(_, value)| &**value)
        };
        let flag = |name| first(name).is_some_and(is_true);
        let tail_lines = match first("tail").filter(|tail| !tail.is_empty()) {
            // the default
            Some("all") => None,
            Some(tail) => Some(tail),
            None => first("tailLines"),
        };
        Ok(Self {
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            since_seconds: first("sinceSeconds").map(number).transpose()?,
            since_time: first("sinceTime").map(time).transpose()?,
            tail_lines: tail_lines.map(number).transpose()?,
            limit_bytes: first("limitBytes").map(number).transpose()?,
            stream: first("stream").map(str::to_owned),
        })
    }

    /// Returns the options for the log reader.
    ///
    /// # Errors
    /// `Invalid`: options conflict or are out of range.
    pub fn resolve(&self, now: Timestamp) -> Result<LogOptions, BadOptions> {
        let stream = match self.stream.as_deref() {
            None | Some("All") => None,
            Some("Stdout") => Some(LogStream::Stdout),
            Some("Stderr") => Some(LogStream::Stderr),
            Some(_) => return Err(BadOptions::Invalid),
        };
        if stream.is_some() && self.tail_lines.is_some() {
            return Err(BadOptions::Invalid);
        }
        if self.since_seconds.is_some() && self.since_time.is_some() {
            return Err(BadOptions::Invalid);
        }
        let since = match at_least(1, self.since_seconds)? {
            // an unrepresentable time includes all lines
            Some(seconds) => now.checked_sub(Duration::from_secs(seconds)).ok(),
            None => self.since_time,
        };
        Ok(LogOptions {
            follow: self.follow,
            tail: at_least(0, self.tail_lines)?,
            since,
            limit_bytes: at_least(1, self.limit_bytes)?,
            timestamps: self.timestamps,
            stream,
        })
    }
}

fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

fn number(value: &str) -> Result<i64, BadOptions> {
    value.parse().map_err(|_| BadOptions::Undecodable)
}

/// Parses an RFC 3339 time; an empty one is the minimum, as upstream's zero time.
fn time(value: &str) -> Result<Timestamp, BadOptions> {
    match value {
        "" | "null" => Ok(Timestamp::MIN),
        value => value.parse().map_err(|_| BadOptions::Undecodable),
    }
}

fn at_least(min: i64, value: Option<i64>) -> Result<Option<u64>, BadOptions> {
    let Some(value) = value else {
        return Ok(None);
    };
    match u64::try_from(value) {
        Ok(number) if value >= min => Ok(Some(number)),
        _ => Err(BadOptions::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::PodLogOptions;

    fn check(query: &str, expected: &str) {
        let now = "2026-11-22T04:00:00Z".parse().expect("time");
        let options = PodLogOptions::decode(query);
        let line = match options.and_then(|it| it.resolve(now)) {
            Ok(it) => format!(
                "follow={} tail={:?} since={:?} limit={:?} timestamps={} stream={:?}",
                it.follow, it.tail, it.since, it.limit_bytes, it.timestamps, it.stream
            ),
            Err(error) => format!("{error:?}"),
        };
        let line = line.replace("None", "-").replace("Some", "");
        assert_eq!(line, expected, "{query}");
    }

    #[test]
    fn pod_log_query_becomes_options() {
        let none = "follow=false tail=- since=- limit=- timestamps=false stream=-";
        #[rustfmt::skip]
        let cases = [
            ("", none),
            ("unknown=1&tail=all&stream=All", none),
            ("tail=all&tailLines=5", none),
            ("follow=false&timestamps=0", none),
            ("%ff%fe=%ff&%zz&=&&follow=FALSE", none),
            ("follow=&timestamps=true&limitBytes=7",
                "follow=true tail=- since=- limit=(7) timestamps=true stream=-"),
            ("follow=%ff", "follow=true tail=- since=- limit=- timestamps=false stream=-"),
            ("tail=3&tailLines=5", "follow=false tail=(3) since=- limit=- timestamps=false stream=-"),
            ("tailLines=0", "follow=false tail=(0) since=- limit=- timestamps=false stream=-"),
            ("sinceSeconds=60",
                "follow=false tail=- since=(2026-11-22T03:59:00Z) limit=- timestamps=false stream=-"),
            ("sinceSeconds=9223372036854775807", none),
            ("sinceTime=2026-11-22T05:00:00%2B01:00",
                "follow=false tail=- since=(2026-11-22T04:00:00Z) limit=- timestamps=false stream=-"),
            ("tailLines=", "Undecodable"),
            ("tailLines=many", "Undecodable"),
            ("tailLines=9223372036854775808", "Undecodable"),
            ("tail=%ff", "Undecodable"),
            ("sinceTime=yesterday", "Undecodable"),
            ("sinceSeconds=1.5", "Undecodable"),
            ("tailLines=-1", "Invalid"),
            ("limitBytes=0", "Invalid"),
            ("sinceSeconds=0", "Invalid"),
            ("sinceSeconds=1&sinceTime=2026-11-22T04:00:00Z", "Invalid"),
            ("stream=stdout", "Invalid"),
            ("stream=Stdout&tailLines=1", "Invalid"),
            ("stream=Stderr", "follow=false tail=- since=- limit=- timestamps=false stream=(Stderr)"),
        ];
        for (query, expected) in cases {
            check(query, expected);
        }
    }
}
