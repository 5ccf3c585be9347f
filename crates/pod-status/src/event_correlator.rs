//! Many occurrences, few events: what is sent to the API server of what happens (upstream's
//! `EventCorrelator`).
//!
//! Three steps, in this order. Similar occurrences (same object, type and reason, other message)
//! become one event "(combined from similar events)" from the tenth message within ten minutes.
//! Equal ones become a patch that counts. An object that is talked about too much is cut off:
//! 25 events at once, then one every five minutes. All memory is bounded: each step knows the
//! 4096 keys that were used last, as hashes.

mod event;
mod lru;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_types::Timestamp;
use windlass_types::corev1::{Event, ObjectReference};
use windlass_types::view::EventType;

use windlass_units::hash::fnv1a_128;

pub use event::{Reporter, node_reference, pod_reference};
use lru::Lru;

/// Keys each step remembers (upstream's number). An entry takes about 100 bytes with its index:
/// 3 × 4096 × 100 B = 1.2 MB at most, plus the names of 4096 events.
const REMEMBERED: usize = 4096;
/// From this many different messages on, occurrences are combined.
const COMBINE_FROM: usize = 10;
/// Messages further apart than this are not combined.
const COMBINE_WITHIN: Duration = Duration::from_secs(600);
const COMBINED_PREFIX: &str = "(combined from similar events): ";
/// Events about one object that may be sent at once.
const BURST: i64 = 25;
/// Time after which one more may be sent.
const REFILL: Duration = Duration::from_secs(300);
/// Bytes of a message that are sent. A runtime's error may be megabytes long.
const MESSAGE_LIMIT: usize = 4096;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// To whom.
    pub object: ObjectReference,
    /// Normal or Warning.
    pub event_type: EventType,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// When. No two occurrences of one reporter have the same time: it is part of the name.
    pub at: Timestamp,
}

impl RecordedEvent {
    /// Shortens the message to what is sent.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = self.message.floor_char_boundary(MESSAGE_LIMIT);
        self.message.truncate(cut);
        self
    }
}

/// What to do with an occurrence.
#[derive(Clone, Debug, PartialEq)]
pub enum Correlated {
    /// Nothing: the object is talked about too much.
    Dropped,
    /// Create this event.
    Create(Box<Event>),
    /// Patch the event of this name; if it is gone, create this one.
    Count {
        /// The whole event as it is after the patch.
        event: Box<Event>,
        /// Strategic merge patch.
        patch: Value,
    },
}

impl fmt::Display for Correlated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, event) = match self {
            Self::Dropped => return f.write_str("drop"),
            Self::Create(event) => ("create", event),
            Self::Count { event, .. } => ("count", event),
        };
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        write!(
            f,
            "{word} {} x{} {}: {}",
            text(&event.metadata.name),
            event.count.unwrap_or(0),
            text(&event.reason),
            text(&event.message)
        )
    }
}

/// Remembers what was sent. See the module page.
#[derive(Debug)]
pub struct EventCorrelator {
    reporter: Reporter,
    similar: Lru<Similar>,
    sent: Lru<Sent>,
    buckets: Lru<RateBucket>,
}

/// Occurrences that differ by their message only.
#[derive(Debug)]
struct Similar {
    messages: BTreeSet<u128>,
    last: Timestamp,
}

/// An event that was sent before.
#[derive(Clone, Debug)]
struct Sent {
    name: String,
    first: Timestamp,
    count: i32,
}

/// A bucket of credit in milliseconds; an event costs [`REFILL`].
#[derive(Debug)]
struct RateBucket {
    credit: i64,
    last: Timestamp,
}

impl EventCorrelator {
    /// Nothing has happened yet.
    pub fn new(reporter: Reporter) -> Self {
        Self {
            reporter,
            similar: Lru::new(REMEMBERED),
            sent: Lru::new(REMEMBERED),
            buckets: Lru::new(REMEMBERED),
        }
    }

    /// Takes in an occurrence; its own time is the present, so that a queue that was held up
    /// decides as it would have then.
    pub fn observe(&mut self, occurrence: RecordedEvent) -> Correlated {
        let occurrence = occurrence.bounded();
        let now = occurrence.at;
        let about = self.about(&occurrence);
        let kind = [occurrence.event_type.as_str(), &occurrence.reason];
        let alike = key(&[&about, &kind]);
        let about = key(&[&about]);
        let (occurrence, sent_key) = self.combine(occurrence, alike);
        let known = self.sent.get(sent_key).cloned();
        let mut event = self.reporter.event(&occurrence);
        let sent = match &known {
            Some(before) => Sent {
                count: before.count.saturating_add(1),
                ..before.clone()
            },
            None => Sent {
                name: event.metadata.name.clone().unwrap_or_default(),
                first: now,
                count: 1,
            },
        };
        // counted even if it is not sent, as upstream does
        self.sent.put(sent_key, sent.clone());
        if !self.afford(about, now) {
            return Correlated::Dropped;
        }
        if known.is_none() {
            return Correlated::Create(Box::new(event));
        }
        event.metadata.name = Some(sent.name);
        event.count = Some(sent.count);
        event.first_timestamp = Some(event::whole_seconds(sent.first));
        Correlated::Count {
            patch: json!({
                "count": sent.count,
                "lastTimestamp": event.last_timestamp,
                "message": event.message,
            }),
            event: Box::new(event),
        }
    }

    /// From the tenth message on an occurrence gets the prefix and shares the event of all that
    /// are like it.
    fn combine(&mut self, mut occurrence: RecordedEvent, alike: u128) -> (RecordedEvent, u128) {
        let now = occurrence.at;
        let field_path = occurrence.object.field_path.as_deref().unwrap_or_default();
        let exact = key(&[&[&alike.to_string(), field_path, &occurrence.message]]);
        let message = fnv1a_128(occurrence.message.as_bytes());
        let mut similar = self.similar.take_or(alike, || Similar {
            messages: BTreeSet::new(),
            last: now,
        });
        if now.duration_since(similar.last).unsigned_abs() > COMBINE_WITHIN {
            similar.messages.clear();
        }
        similar.messages.insert(message);
        similar.last = now;
        let combined = similar.messages.len() >= COMBINE_FROM;
        if combined {
            // the set need not grow beyond the number that matters
            similar.messages.pop_first();
        }
        self.similar.put(alike, similar);
        if !combined {
            return (occurrence, exact);
        }
        occurrence.message.insert_str(0, COMBINED_PREFIX);
        (occurrence, alike)
    }

    /// Takes the price of one event from the object's bucket.
    fn afford(&mut self, about: u128, now: Timestamp) -> bool {
        let price = i64::try_from(REFILL.as_millis()).unwrap_or(i64::MAX);
        let full = BURST * price;
        let mut bucket = self.buckets.take_or(about, || RateBucket {
            credit: full,
            last: now,
        });
        let passed = now.as_millisecond() - bucket.last.as_millisecond();
        bucket.credit = (bucket.credit + passed.clamp(0, full)).min(full);
        bucket.last = now;
        let enough = bucket.credit >= price;
        if enough {
            bucket.credit -= price;
        }
        self.buckets.put(about, bucket);
        enough
    }

    /// What identifies source and object.
    fn about<'a>(&'a self, occurrence: &'a RecordedEvent) -> [&'a str; 6] {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        let object = &occurrence.object;
        [
            &self.reporter.host,
            text(&object.kind),
            text(&object.namespace),
            text(&object.name),
            text(&object.uid),
            text(&object.api_version),
        ]
    }
}

/// One hash over all texts, each closed by a byte that no text has.
fn key(texts: &[&[&str]]) -> u128 {
    let mut bytes = Vec::with_capacity(256);
    for text in texts.iter().copied().flatten() {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0xff);
    }
    fnv1a_128(&bytes)
}
