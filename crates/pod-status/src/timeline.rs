//! What touched one pod and how long it took, in bounded memory. Pure.
//!
//! A timeline has two parts. What happened until the pod was ready, or over, stays: that is the
//! question asked of it most. What came later is a ring. In either part the same touch again is
//! counted on the record that is there, so that a pod that is retried, probed or looked at for hours
//! has as many records as different things happened to it.
//!
//! *bound* `MAX_START` and `MAX_LATER` records of 120 bytes, texts of `START_TEXT` and `LATER_TEXT`
//! bytes, and [`MAX_OPEN`] touches under way: 44 × 120 + 2240 + 8 × 64 = 8032 bytes a pod at the most, 0.8 MiB
//! for 110 pods and 1.9 MiB for 250. A pod that started and runs has about 15 records: 2 KiB.

mod cause;
mod waterfall;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::Timestamp;
use windlass_types::explain::{RecordKind, RecordState, TimelineRecord};

pub use cause::{led_to, start_end};
pub use waterfall::{Bar, Episode, waterfall};

/// Records of a pod's start: a pod of two containers with three volumes has 25.
const MAX_START: usize = 28;
/// Records of what came later.
const MAX_LATER: usize = 16;
/// Touches under way at the same time: a job, its wait or call, and a few steps of volumes.
pub const MAX_OPEN: usize = 8;
/// Bytes of the texts of a pod's start, with what the heap needs for each. What does not fit goes
/// to the ring.
const START_TEXT: usize = 1280;
/// Bytes of the texts of the ring, of its own, so that a long start leaves it room.
const LATER_TEXT: usize = 960;
/// Bytes of one text.
const ONE_TEXT: usize = 160;
/// What the heap needs for a text besides its bytes: two counters.
const TEXT_HEAD: usize = 16;
/// Records are added to the memory of a timeline in such steps, so that none is in vain.
const STEP: usize = 4;

/// What touches a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct What {
    /// What kind of thing.
    pub kind: RecordKind,
    /// What is done, such as `RunPodSandbox`.
    pub name: &'static str,
    /// To which part of the pod.
    pub subject: Option<Arc<str>>,
}

impl What {
    /// Something done to the pod as a whole.
    pub fn new(kind: RecordKind, name: &'static str) -> Self {
        Self {
            kind,
            name,
            subject: None,
        }
    }

    /// Something done to a part of the pod.
    pub fn of(kind: RecordKind, name: &'static str, subject: &str) -> Self {
        Self {
            subject: Some(cut(subject)),
            ..Self::new(kind, name)
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)?;
        match &self.subject {
            Some(subject) => write!(f, " {subject}"),
            None => Ok(()),
        }
    }
}

/// What came of a touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It is done, and this was decided: another decision is another record.
    Decided(Arc<str>),
    /// It failed, and why.
    Failed(Arc<str>),
    /// Whoever was at it gave it up.
    Cancelled,
}

impl Outcome {
    /// Something was decided.
    pub fn decided(line: impl fmt::Display) -> Self {
        Self::Decided(cut(&line.to_string()))
    }

    /// Something failed.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(cut(&why.to_string()))
    }

    /// That of a result.
    pub fn of<T, E: fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(error) => Self::failed(error),
        }
    }

    /// The text, if there is one.
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

    /// A failure stays the same one when it finds other words.
    fn is_repeat_of(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Failed(_), Self::Failed(_)) => true,
            _ => self == before,
        }
    }
}

/// The text, without what is too much of it.
fn cut(text: &str) -> Arc<str> {
    Arc::from(&text[..text.floor_char_boundary(ONE_TEXT)])
}

/// Number of a touch that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchId(pub u64);

#[derive(Clone, Debug)]
struct Open {
    id: TouchId,
    what: What,
    began: Timestamp,
}

#[derive(Clone, Debug)]
struct Record {
    what: What,
    outcome: Outcome,
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

fn view_of(what: &What, first: Timestamp, began: Timestamp) -> TimelineRecord {
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

/// Records with the bytes of their texts.
#[derive(Clone, Debug, Default)]
struct Part {
    records: VecDeque<Record>,
    text: usize,
}

impl Part {
    fn has_room(&self, records: usize, text: usize, record: &Record) -> bool {
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

/// What touched one pod.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    start: Part,
    later: Part,
    open: Vec<Open>,
    started: bool,
    forgotten: u32,
}

impl Timeline {
    /// Something begins. It is known as `id` until [`Self::end`].
    pub fn begin(&mut self, id: TouchId, what: What, now: Timestamp) {
        // what does not fit is recorded when it ends
        if self.open.len() < MAX_OPEN {
            let began = now;
            self.open.push(Open { id, what, began });
        }
    }

    /// What began at `began` ended `took` later.
    pub fn end(
        &mut self,
        id: TouchId,
        what: What,
        outcome: Outcome,
        (began, took): (Timestamp, Duration),
    ) {
        self.open.retain(|open| open.id != id);
        self.record(what, outcome, began, Some(took));
    }

    /// Something happened that takes no time.
    pub fn instant(&mut self, what: What, outcome: Outcome, now: Timestamp) {
        self.record(what, outcome, now, None);
    }

    /// The pod is ready or over: what comes now is not its start.
    pub fn started(&mut self) {
        self.started = true;
    }

    /// True of a touch that began here and has not ended.
    pub fn is_open(&self, id: TouchId) -> bool {
        self.open.iter().any(|open| open.id == id)
    }

    /// Records that had to make room.
    pub fn forgotten(&self) -> u32 {
        self.forgotten
    }

    /// All touches in the order in which they began, with those that are under way.
    pub fn touches(&self, now: Timestamp) -> Vec<TimelineRecord> {
        let records = self.records().map(Record::view);
        let open = self.open.iter().map(|open| {
            let so_far = now.duration_since(open.began).as_secs_f64().max(0.0);
            TimelineRecord {
                duration_seconds: Some(so_far),
                ..view_of(&open.what, open.began, open.began)
            }
        });
        let mut touches: Vec<TimelineRecord> = records.chain(open).collect();
        touches.sort_by_key(|touch| touch.started_at);
        touches
    }

    fn record(&mut self, what: What, outcome: Outcome, began: Timestamp, took: Option<Duration>) {
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
        if !self.started && self.start.has_room(MAX_START, START_TEXT, &record) {
            return self.start.push(record);
        }
        while !self.later.has_room(MAX_LATER, LATER_TEXT, &record) && self.later.take(0).is_some() {
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.later.push(record);
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.start.records.iter().chain(&self.later.records)
    }

    /// Takes out the record of the same touch, if it is not one of a start that is over.
    fn take_repeated(&mut self, what: &What, outcome: &Outcome) -> Option<Record> {
        let repeats =
            |record: &Record| record.what == *what && outcome.is_repeat_of(&record.outcome);
        let of_start = (!self.started).then_some(&mut self.start);
        let mut parts = of_start.into_iter().chain([&mut self.later]);
        parts.find_map(|part| part.take(part.records.iter().rposition(repeats)?))
    }
}

#[cfg(test)]
mod tests;
