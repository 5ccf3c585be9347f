//! The timeline of one pod, in bounded memory. Pure.
//!
//! Records of the start stay; later records are in a ring buffer. A repeated operation increases
//! the count of its record, so a pod has as many records as different operations.
//!
//! *bound* `MAX_START` and `MAX_LATER` records of 120 bytes, texts of `START_TEXT` and `LATER_TEXT`
//! bytes, and [`MAX_OPEN`] open records: 44 × 120 + 2240 + 8 × 64 = 8032 bytes a pod at the most,
//! 0.8 MiB for 110 pods and 1.9 MiB for 250. A pod that started and runs has about 15 records: 2
//! KiB.

mod cause;
mod waterfall;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::Timestamp;
use windlass_types::explain::{RecordKind, RecordState, TimelineRecord};

pub use cause::{relevant_records, start_outcome};
pub use waterfall::{Bar, TimelineSegment, waterfall};

/// Records of a pod's start: a pod of two containers with three volumes has 25.
const MAX_START: usize = 28;
/// Records after the start.
const MAX_LATER: usize = 16;
/// Open records: a sync, its wait or runtime call, and a few volume operations.
pub const MAX_OPEN: usize = 8;
/// Bytes of the texts of a start, including heap overhead. Records over it go to the ring buffer.
const START_TEXT: usize = 1280;
/// Bytes of the texts of the ring buffer.
const LATER_TEXT: usize = 960;
/// Maximum bytes of one text.
const ONE_TEXT: usize = 160;
/// Heap overhead of a text: two counters.
const TEXT_HEAD: usize = 16;
/// Number of records by which the capacity grows.
const STEP: usize = 4;

/// Operation that a record describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    /// Kind of the operation.
    pub kind: RecordKind,
    /// Name of the operation, such as `RunPodSandbox`.
    pub name: &'static str,
    /// The container, volume or image concerned.
    pub subject: Option<Arc<str>>,
}

impl RecordKey {
    /// Creates the key of an operation on the pod.
    pub fn new(kind: RecordKind, name: &'static str) -> Self {
        Self {
            kind,
            name,
            subject: None,
        }
    }

    /// Creates the key of an operation on a part of the pod.
    pub fn with_subject(kind: RecordKind, name: &'static str, subject: &str) -> Self {
        Self {
            subject: Some(cut(subject)),
            ..Self::new(kind, name)
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        match &self.subject {
            Some(subject) => write!(f, " {subject}"),
            None => Ok(()),
        }
    }
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Succeeded.
    Done,
    /// Succeeded with a decision; another decision is another record.
    Decided(Arc<str>),
    /// Failed with this error.
    Failed(Arc<str>),
    /// Abandoned by its caller.
    Cancelled,
}

impl RecordOutcome {
    /// Returns success with a decision.
    pub fn decided(line: impl fmt::Display) -> Self {
        Self::Decided(cut(&line.to_string()))
    }

    /// Returns a failure.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(cut(&why.to_string()))
    }

    /// Returns the outcome of a result.
    pub fn from_result<T, E: fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::failed(error),
        }
    }

    /// Returns the decision or error.
    pub fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Decided(text) | Self::Failed(text) => Some(text),
            Self::Done | Self::Cancelled => None,
        }
    }

    fn end(&self) -> RecordState {
        match self {
            Self::Done | Self::Decided(_) => RecordState::Succeeded,
            Self::Failed(_) => RecordState::Failed,
            Self::Cancelled => RecordState::Cancelled,
        }
    }

    /// True for the same outcome; failures with different errors are the same.
    fn is_repeat_of(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Failed(_), Self::Failed(_)) => true,
            _ => self == before,
        }
    }
}

/// Truncates a text.
fn cut(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(ONE_TEXT)])
}

/// ID of an open record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId(pub u64);

#[derive(Clone, Debug)]
struct OpenRecord {
    id: RecordId,
    what: RecordKey,
    began: Timestamp,
}

#[derive(Clone, Debug)]
struct Record {
    what: RecordKey,
    outcome: RecordOutcome,
    count: u32,
    first: Timestamp,
    began: Timestamp,
    took: Option<Duration>,
}

impl Record {
    /// Bytes of its texts.
    fn text(&self) -> usize {
        let texts = [self.what.subject.as_ref(), self.outcome.text()];
        let texts = texts.into_iter().flatten();
        texts.map(|text| TEXT_HEAD + text.len()).sum()
    }

    fn view(&self) -> TimelineRecord {
        TimelineRecord {
            state: self.outcome.end(),
            message: self.outcome.text().map(|text| text.to_string()),
            count: self.count,
            duration_seconds: self.took.map(|took| took.as_secs_f64()),
            ..view_of(&self.what, self.first, self.began)
        }
    }
}

fn view_of(what: &RecordKey, first: Timestamp, began: Timestamp) -> TimelineRecord {
    TimelineRecord {
        kind: what.kind,
        name: what.name.to_owned(),
        subject: what.subject.as_ref().map(|subject| subject.to_string()),
        state: RecordState::Running,
        message: None,
        count: 1,
        first_started_at: first,
        started_at: began,
        duration_seconds: None,
    }
}

/// Records and the total bytes of their texts.
#[derive(Clone, Debug, Default)]
struct RecordBuffer {
    records: VecDeque<Record>,
    text: usize,
}

impl RecordBuffer {
    fn fits(&self, records: usize, text: usize, record: &Record) -> bool {
        self.records.len() < records && self.text + record.text() <= text
    }

    fn push(&mut self, record: Record) {
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(STEP);
        }
        self.text += record.text();
        self.records.push_back(record);
    }

    fn take(&mut self, index: usize) -> Option<Record> {
        let record = self.records.remove(index)?;
        self.text -= record.text();
        Some(record)
    }
}

/// The timeline of one pod.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    start: RecordBuffer,
    later: RecordBuffer,
    open: Vec<OpenRecord>,
    started: bool,
    dropped: u32,
}

impl Timeline {
    /// Opens a record.
    pub fn begin(&mut self, id: RecordId, what: RecordKey, now: Timestamp) {
        // over the limit an operation is recorded only at its end
        if self.open.len() < MAX_OPEN {
            let began = now;
            self.open.push(OpenRecord { id, what, began });
        }
    }

    /// Closes a record.
    pub fn end(
        &mut self,
        id: RecordId,
        what: RecordKey,
        outcome: RecordOutcome,
        (began, took): (Timestamp, Duration),
    ) {
        self.open.retain(|open| open.id != id);
        self.record(what, outcome, began, Some(took));
    }

    /// Adds a record without a duration.
    pub fn record_instant(&mut self, what: RecordKey, outcome: RecordOutcome, now: Timestamp) {
        self.record(what, outcome, now, None);
    }

    /// Ends the start: the pod is ready or in a terminal phase.
    pub fn started(&mut self) {
        self.started = true;
    }

    /// True for an open record.
    pub fn is_open(&self, id: RecordId) -> bool {
        self.open.iter().any(|open| open.id == id)
    }

    /// Returns the number of dropped records.
    pub fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Returns all records ordered by their start, including open ones.
    pub fn records(&self, now: Timestamp) -> Vec<TimelineRecord> {
        let records = self.closed().map(Record::view);
        let open = self.open.iter().map(|open| {
            let so_far = now.duration_since(open.began).as_secs_f64().max(0.0);
            TimelineRecord {
                duration_seconds: Some(so_far),
                ..view_of(&open.what, open.began, open.began)
            }
        });
        let mut all: Vec<TimelineRecord> = records.chain(open).collect();
        all.sort_by_key(|record| record.started_at);
        all
    }

    fn record(
        &mut self,
        what: RecordKey,
        outcome: RecordOutcome,
        began: Timestamp,
        took: Option<Duration>,
    ) {
        let repeated = self.take_repeated(&what, &outcome);
        let (first, count) = repeated.map_or((began, 0), |record| (record.first, record.count));
        let record = Record {
            what,
            outcome,
            count: count.saturating_add(1),
            first,
            began,
            took,
        };
        if !self.started && self.start.fits(MAX_START, START_TEXT, &record) {
            return self.start.push(record);
        }
        while !self.later.fits(MAX_LATER, LATER_TEXT, &record) && self.later.take(0).is_some() {
            self.dropped = self.dropped.saturating_add(1);
        }
        self.later.push(record);
    }

    fn closed(&self) -> impl Iterator<Item = &Record> {
        self.start.records.iter().chain(&self.later.records)
    }

    /// Removes and returns the record of the same operation, except one of a finished start.
    fn take_repeated(&mut self, what: &RecordKey, outcome: &RecordOutcome) -> Option<Record> {
        let repeats =
            |record: &Record| record.what == *what && outcome.is_repeat_of(&record.outcome);
        let of_start = (!self.started).then_some(&mut self.start);
        let mut parts = of_start.into_iter().chain([&mut self.later]);
        parts.find_map(|part| part.take(part.records.iter().rposition(repeats)?))
    }
}

#[cfg(test)]
mod tests;
