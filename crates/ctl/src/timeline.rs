//! `timeline pod`: the timeline records of a pod as a waterfall.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use windlass_pod_status::timeline::{Bar, TimelineSegment, waterfall};
use windlass_types::Timestamp;
use windlass_types::explain::{PodTimeline, RecordState, TimelineRecord};

use crate::age::{age, human};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::error::Error;
use crate::{pod, table};

/// Cells of the longest bar.
const BAR_WIDTH: usize = 40;
/// Maximum length of a message; the JSON output is not truncated.
const MAX_MESSAGE_CHARS: usize = 100;

pub(crate) async fn run(mut client: Client, args: &ExplainArgs) -> Result<(), Error> {
    let (namespace, name) = (&args.pod.namespace, &args.pod.name);
    let json = match client.timeline(namespace, name).await {
        Err(Error::Rpc(status)) if status.code() == tonic::Code::NotFound => {
            // its error suggests existing pods
            pod::find(&mut client, namespace, name).await?;
            return Err(Error::Rpc(status));
        }
        response => response?,
    };
    let timeline: PodTimeline =
        serde_json::from_slice(&json).map_err(|error| Error::InvalidResponse(error.to_string()))?;
    let text = match args.output {
        None => text(&timeline),
        Some(_json) => crate::pretty(&timeline)?,
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

pub(crate) fn text(timeline: &PodTimeline) -> String {
    let mut text = format!("pod {}/{}", timeline.namespace, timeline.pod);
    if let Some(removed) = timeline.removed_at {
        let _infallible = write!(
            text,
            ", removed {} ago",
            age(Some(removed), timeline.generated_at)
        );
    }
    text.push('\n');
    for segment in waterfall(&timeline.records, BAR_WIDTH) {
        text.push_str(&segment_text(&segment, timeline.generated_at));
    }
    if timeline.dropped_records > 0 {
        let count = timeline.dropped_records;
        let _infallible = writeln!(text, "\n{count} older records dropped.");
    }
    text
}

fn segment_text(segment: &TimelineSegment<'_>, now: Timestamp) -> String {
    let rows: Vec<Vec<String>> = segment.bars.iter().map(row).collect();
    format!(
        "\n{} ({} ago), total {}\n{}",
        windlass_types::api_time(segment.began),
        age(Some(segment.began), now),
        short(segment.length),
        table::render(&["OFFSET", "OPERATION", "DURATION", &scale(), ""], &rows)
    )
}

/// Returns the heading of the bars.
fn scale() -> String {
    format!("|{}|", "-".repeat(BAR_WIDTH - 2))
}

fn row(bar: &Bar<'_>) -> Vec<String> {
    let record = bar.record;
    let took = record.duration_seconds.map(Duration::try_from_secs_f64);
    vec![
        short(bar.after),
        name(record),
        took.map_or_else(|| "-".to_owned(), |took| short(took.unwrap_or_default())),
        cells(bar),
        details(record),
    ]
}

fn name(record: &TimelineRecord) -> String {
    let subject = record.subject.as_ref();
    let subject = subject.map_or_else(String::new, |subject| format!(" {subject}"));
    format!("{} {}{subject}", record.kind, record.name)
}

/// Draws a bar; the help of the command has the legend.
fn cells(bar: &Bar<'_>) -> String {
    let (mark, last) = match bar.record.state {
        RecordState::Succeeded => ("=", "="),
        RecordState::Failed => ("!", "!"),
        RecordState::Cancelled => ("~", "~"),
        RecordState::Running => ("=", ">"),
    };
    let drawn = match bar.cells {
        0 if bar.record.state == RecordState::Failed => "!".to_owned(),
        0 => "|".to_owned(),
        cells => mark.repeat(cells - 1) + last,
    };
    format!("{:1$}{drawn}", "", bar.from)
}

fn details(record: &TimelineRecord) -> String {
    let mut words = Vec::new();
    if record.count > 1 {
        words.push(format!("x{}", record.count));
    }
    if record.state != RecordState::Succeeded {
        words.push(record.state.as_str().to_owned());
    }
    if let Some(message) = &record.message {
        words.push(truncate(message));
    }
    words.join(" ")
}

/// Joins the lines of a message and truncates it.
fn truncate(message: &str) -> String {
    let line: String = message.lines().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_MESSAGE_CHARS) {
        None => line,
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

/// `0.4ms`, `12ms`, `1.23s`, `2m5s`.
pub(crate) fn short(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0 => "0ms".to_owned(),
        1..10_000 => format!("{}.{}ms", micros / 1000, micros % 1000 / 100),
        10_000..1_000_000 => format!("{}ms", micros / 1000),
        1_000_000..60_000_000 => format!("{}.{:02}s", time.as_secs(), time.subsec_millis() / 10),
        _ => human(i64::try_from(time.as_secs()).unwrap_or(i64::MAX)),
    }
}

/// Formats a record as one line, for `explain`.
pub(crate) fn line(record: &TimelineRecord, now: Timestamp) -> String {
    let took = record.duration_seconds.map(Duration::try_from_secs_f64);
    let took = took.map_or_else(String::new, |took| {
        format!(", took {}", short(took.unwrap_or_default()))
    });
    let details = details(record);
    let details = match details.is_empty() {
        true => details,
        false => format!(": {details}"),
    };
    let ago = age(Some(record.started_at), now);
    format!("{ago} ago  {}{took}{details}", name(record))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timeline(value: serde_json::Value) -> PodTimeline {
        serde_json::from_value(value).expect("a timeline")
    }

    #[test]
    fn each_timeline_segment_has_its_own_scale() {
        let at = |text: &str| format!("2026-11-21T{text}Z");
        let record = |kind: &str, name: &str, end: &str, began: &str, seconds: Option<f64>| {
            let mut record = json!({"kind": kind, "name": name, "state": end, "count": 1,
                "firstStartedAt": at(began), "startedAt": at(began)});
            if let Some(seconds) = seconds {
                record["durationSeconds"] = seconds.into();
            }
            record
        };
        let mut pull = record("runtime", "PullImage", "failed", "04:00:00.5", Some(0.25));
        pull["subject"] = "busybox:1".into();
        pull["message"] = "no such\nimage".into();
        pull["count"] = 3.into();
        let timeline = timeline(json!({
            "namespace": "default", "pod": "web", "uid": "u", "droppedRecords": 2,
            "generatedAt": at("06:00:05"), "removedAt": at("06:00:00"),
            "records": [
                record("source", "ADD", "succeeded", "04:00:00", None),
                record("sync", "syncPod", "succeeded", "04:00:00", Some(1.0)),
                pull,
                record("sync", "syncTerminatingPod", "running", "06:00:00", Some(5.0)),
            ],
        }));
        let expected = "\
pod default/web, removed 5s ago

2026-11-21T04:00:00Z (120m ago), total 1.00s
OFFSET   OPERATION                     DURATION   |--------------------------------------|
0ms      source ADD                    -          |
0ms      sync syncPod                  1.00s      ========================================
500ms    runtime PullImage busybox:1   250ms                          !!!!!!!!!!             x3 failed no such image

2026-11-21T06:00:00Z (5s ago), total 5.00s
OFFSET   OPERATION                 DURATION   |--------------------------------------|
0ms      sync syncTerminatingPod   5.00s      =======================================>   running

2 older records dropped.
";
        assert_eq!(text(&timeline), expected);
    }

    #[test]
    fn short_durations_have_more_precision() {
        for (micros, expected) in [
            (0, "0ms"),
            (420, "0.4ms"),
            (9_999, "9.9ms"),
            (12_345, "12ms"),
            (1_239_000, "1.23s"),
            (125_000_000, "2m5s"),
        ] {
            assert_eq!(short(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn long_message_is_one_truncated_line() {
        assert_eq!(
            truncate(&"ä".repeat(300)).chars().count(),
            MAX_MESSAGE_CHARS + 1
        );
        assert_eq!(truncate("a\nb"), "a b");
    }
}
