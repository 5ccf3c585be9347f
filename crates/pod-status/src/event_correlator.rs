//! Aggregation, counting and rate limiting of events (upstream `EventCorrelator`).
//!
//! From the tenth message within ten minutes, events of the same object, type and reason become one
//! event "(combined from similar events)". An equal event increases a count. An object may have a
//! burst of 25 events, then one per five minutes. Each step keeps its 4096 last used keys as
//! hashes.

mod event;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use serde_json::{Value, json};
use windlass_types::Timestamp;
use windlass_types::corev1::{Event, ObjectReference};
use windlass_types::view::EventType;

use windlass_units::hash::fnv1a_128;
use windlass_units::token_bucket::TokenBucket;

pub use event::{Reporter, node_reference, pod_reference};

/// Keys per step (as upstream). An entry takes about 120 bytes with its index: at most 3 × 4096 ×
/// 120 B = 1.5 MB, plus the names of 4096 events.
const MAX_KEYS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4095);
/// Number of different messages from which events are combined.
const COMBINE_THRESHOLD: usize = 10;
/// Maximum time between combined messages.
const COMBINE_WINDOW: Duration = Duration::from_secs(600);
const COMBINED_PREFIX: &str = "(combined from similar events): ";
/// Burst of events of one object.
const BURST: u32 = 25;
/// Time until an object may have one more event.
const REFILL_INTERVAL: Duration = Duration::from_secs(300);
/// Maximum bytes of a message. A runtime error may have megabytes.
const MAX_MESSAGE_BYTES: usize = 4096;

/// An event as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// The object concerned.
    pub object: ObjectReference,
    /// Normal or Warning.
    pub event_type: EventType,
    /// Reason in CamelCase.
    pub reason: String,
    /// Message.
    pub message: String,
    /// Annotations of the Event object.
    pub annotations: BTreeMap<String, String>,
    /// Its time, unique per reporter because it is part of the name.
    pub at: Timestamp,
}

impl RecordedEvent {
    /// Truncates the message to its maximum length.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = self.message.floor_char_boundary(MAX_MESSAGE_BYTES);
        self.message.truncate(cut);
        self
    }
}

/// Result of the correlation.
#[derive(Clone, Debug, PartialEq)]
pub enum Correlated {
    /// Dropped by the rate limit.
    Dropped,
    /// Create this event.
    Create(Box<Event>),
    /// Patch the event of this name; create it if it was deleted.
    Count {
        /// The event after the patch.
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

/// The event correlator.
#[derive(Debug)]
pub struct EventCorrelator {
    reporter: Reporter,
    aggregates: LruCache<u128, AggregateRecord>,
    sent: LruCache<u128, SentEvent>,
    buckets: LruCache<u128, TokenBucket>,
}

/// Events that differ by their message only.
#[derive(Debug)]
struct AggregateRecord {
    messages: BTreeSet<u128>,
    last: Timestamp,
}

#[derive(Clone, Debug)]
struct SentEvent {
    name: String,
    first: Timestamp,
    count: i32,
}

impl EventCorrelator {
    /// Creates a correlator without state.
    pub fn new(reporter: Reporter) -> Self {
        Self {
            reporter,
            aggregates: LruCache::new(MAX_KEYS),
            sent: LruCache::new(MAX_KEYS),
            buckets: LruCache::new(MAX_KEYS),
        }
    }

    /// Correlates an event at its own time, so that a delayed queue gives the same result.
    pub fn correlate(&mut self, recorded: RecordedEvent) -> Correlated {
        let recorded = recorded.bounded();
        let now = recorded.at;
        let about = self.about(&recorded);
        let kind = [recorded.event_type.as_str(), &recorded.reason];
        let alike = key(&[&about, &kind]);
        let about = key(&[&about]);
        let (recorded, sent_key) = self.combine(recorded, alike);
        let known = self.sent.get(&sent_key).cloned();
        let mut event = self.reporter.event(&recorded);
        let sent = match &known {
            Some(before) => SentEvent {
                count: before.count.saturating_add(1),
                ..before.clone()
            },
            None => SentEvent {
                name: event.metadata.name.clone().unwrap_or_default(),
                first: now,
                count: 1,
            },
        };
        // counted even if it is dropped, as upstream
        self.sent.put(sent_key, sent.clone());
        if !self.try_take(about, now) {
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

    /// Combines an event with similar ones from the threshold on; returns it with its key.
    fn combine(&mut self, mut recorded: RecordedEvent, alike: u128) -> (RecordedEvent, u128) {
        let now = recorded.at;
        let field_path = recorded.object.field_path.as_deref().unwrap_or_default();
        let exact = key(&[&[&alike.to_string(), field_path, &recorded.message]]);
        let message = fnv1a_128(recorded.message.as_bytes());
        let aggregate = self
            .aggregates
            .get_or_insert_mut(alike, || AggregateRecord {
                messages: BTreeSet::new(),
                last: now,
            });
        if now.duration_since(aggregate.last).unsigned_abs() > COMBINE_WINDOW {
            aggregate.messages.clear();
        }
        aggregate.messages.insert(message);
        aggregate.last = now;
        let combined = aggregate.messages.len() >= COMBINE_THRESHOLD;
        if combined {
            // the set does not grow beyond the threshold
            aggregate.messages.pop_first();
        }
        if !combined {
            return (recorded, exact);
        }
        recorded.message.insert_str(0, COMBINED_PREFIX);
        (recorded, alike)
    }

    /// Takes a token of an object; false if none is available.
    fn try_take(&mut self, about: u128, now: Timestamp) -> bool {
        let buckets = &mut self.buckets;
        let bucket = buckets.get_or_insert_mut(about, || TokenBucket::new(BURST, REFILL_INTERVAL));
        bucket.try_take(Duration::try_from(now.as_duration()).unwrap_or_default())
    }

    /// Returns the identity of source and object.
    fn about<'a>(&'a self, recorded: &'a RecordedEvent) -> [&'a str; 6] {
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        let object = &recorded.object;
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

/// Hashes texts, each terminated by a byte that no text has.
fn key(texts: &[&[&str]]) -> u128 {
    let mut bytes = Vec::with_capacity(256);
    for text in texts.iter().copied().flatten() {
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0xff);
    }
    fnv1a_128(&bytes)
}
