//! A timeline as bars on the scale of their segment.

use std::time::Duration;

use windlass_types::Timestamp;
use windlass_types::explain::TimelineRecord;

/// Interval without operations after which a new segment starts.
const SEGMENT_GAP: Duration = Duration::from_secs(5);

/// Consecutive records on one scale.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineSegment<'a> {
    /// Start of its first record.
    pub began: Timestamp,
    /// Duration until the end of its last record.
    pub length: Duration,
    /// Its records ordered by their start.
    pub bars: Vec<Bar<'a>>,
}

/// A record on the scale of its segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar<'a> {
    /// The record.
    pub record: &'a TimelineRecord,
    /// Time from the start of the segment to the start of the record.
    pub after: Duration,
    /// Its first cell.
    pub from: usize,
    /// Number of its cells; 0 for a record without a duration.
    pub cells: usize,
}

/// Arranges `records`, ordered by their start, on lines of `width` cells.
pub fn waterfall(records: &[TimelineRecord], width: usize) -> Vec<TimelineSegment<'_>> {
    let mut rest = records;
    let mut segments = Vec::new();
    while let Some(first) = rest.first() {
        let mut end = first.started_at;
        let is_gap = |record: &TimelineRecord| {
            let gap = since(end, record.started_at) > SEGMENT_GAP;
            end = end.max(end_of(record));
            gap
        };
        let count = rest.iter().position(is_gap).unwrap_or(rest.len());
        let (these, later) = rest.split_at(count);
        segments.push(segment(first.started_at, these, width));
        rest = later;
    }
    segments
}

fn segment(began: Timestamp, records: &[TimelineRecord], width: usize) -> TimelineSegment<'_> {
    let end = records.iter().map(end_of).max().unwrap_or(began);
    let length = since(began, end);
    let cell = |time: Duration| {
        let cells = time.as_nanos() * width as u128 / length.as_nanos().max(1);
        usize::try_from(cells).unwrap_or(width).min(width)
    };
    let bars = records.iter().map(|record| {
        let after = since(began, record.started_at);
        let from = cell(after).min(width.saturating_sub(1));
        let to = cell(since(began, end_of(record)));
        Bar {
            record,
            after,
            from,
            // a record with a duration has at least one cell
            cells: record
                .duration_seconds
                .map_or(0, |_| (to - from.min(to)).max(1)),
        }
    });
    TimelineSegment {
        began,
        length,
        bars: bars.collect(),
    }
}

fn end_of(record: &TimelineRecord) -> Timestamp {
    let took = record.duration_seconds.unwrap_or_default();
    let took = Duration::try_from_secs_f64(took).unwrap_or_default();
    windlass_types::later(record.started_at, took)
}

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
