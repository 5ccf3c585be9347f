//! What a reflected set does next: pure, no I/O and no clock.
//!
//! A streaming list that the server answers with an error, whatever its code, is followed by a
//! list at once, and lists are used for [`REPROBE`]: a storage without `RequestWatchProgress`, a
//! disabled feature gate and a proxy that cannot stream all look different. Upstream's
//! `Reflector` falls back alike, but tries a streaming list again before each list. Errors that
//! a list would meet as well (no connection, 401, 429) are retried as a streaming list first.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{ApiError, ApiErrorKind};

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A watch that begins with the whole set.
    Stream,
    /// A list; a watch follows.
    List,
    /// A watch that goes on after this version.
    Watch {
        /// The version.
        from: String,
    },
}

/// What happened to the last request.
#[derive(Debug)]
pub(super) enum ReflectInput<'a> {
    /// The server refused a request, or did not answer it.
    Refused(&'a ApiError),
    /// A streaming list was closed, or fell silent, before the bookmark that ends it.
    NoBookmark,
    /// A watch was closed by the server.
    Closed {
        /// How long it was open.
        lived: Duration,
    },
    /// A watch ended with an error.
    Broken {
        /// How long it was open.
        lived: Duration,
        /// Why.
        error: &'a ApiError,
    },
}

/// The next request and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The request.
    pub(super) step: Step,
    /// How long to wait before it.
    pub(super) pause: Duration,
    /// Whether the consumer is told of the failure: not of what is part of normal life.
    pub(super) told: bool,
    /// The server as a whole has no streaming lists: other sets need not try one.
    pub(super) lists_only: bool,
}

/// What is known of the set's progress.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whether a full read is a streaming list.
    streaming: bool,
    /// A full read that begins after this time tries a streaming list again.
    reprobe_at: Option<Instant>,
    /// Streaming lists in a row that failed for a reason that is not the server's.
    broken_streams: u32,
    /// Watches in a row that the server answered with an error, before any event.
    rejected: u32,
    /// Where a watch goes on; `None` if the whole set must be read.
    position: Option<String>,
    /// The newest version ever delivered.
    newest: u64,
    /// Requests that failed in a row.
    failures: u32,
    /// Watches that ended young, in a row.
    young: u32,
    /// Sets in a row that were older than what was delivered.
    stale: u32,
    seed: u64,
}

/// First pause after a failure, doubled by each further one: upstream's values.
const INITIAL_BACKOFF: Duration = Duration::from_millis(800);
/// Longest pause that is not the server's wish.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A server may ask for more patience than that, but not for more than this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// A watch that ends sooner counts as a failure, whatever ended it.
pub(super) const YOUNG: Duration = Duration::from_secs(5);
/// After so many sets that are too old in a row the server is believed: its storage was
/// restored from a backup.
const STALE_SETS: u32 = 3;
/// How long lists are used instead of streaming lists. A list of one node's objects costs little,
/// and an API server or its etcd is upgraded more rarely than this.
pub(crate) const REPROBE: Duration = Duration::from_secs(3600);
/// A full read is a list after so many broken streaming lists in a row, in case that something
/// between agent and server breaks them.
const BROKEN_STREAMS: u32 = 3;
/// The whole set is read again after so many rejected watches in a row, and then before each
/// further one: where only watches fail, pods still arrive.
const REJECTED_WATCHES: u32 = 3;

impl Plan {
    /// Nothing is known yet. `seed` makes the pauses of different sets differ; before
    /// `reprobe_at` full reads are lists.
    pub(super) fn new(seed: u64, reprobe_at: Option<Instant>) -> Self {
        Self {
            streaming: reprobe_at.is_none(),
            reprobe_at,
            broken_streams: 0,
            rejected: 0,
            position: None,
            newest: 0,
            failures: 0,
            young: 0,
            stale: 0,
            seed,
        }
    }

    /// The request to make.
    pub(super) fn step(&self) -> Step {
        match &self.position {
            Some(from) => Step::Watch { from: from.clone() },
            None if self.streams() => Step::Stream,
            None => Step::List,
        }
    }

    fn streams(&self) -> bool {
        self.streaming && self.broken_streams < BROKEN_STREAMS
    }

    /// The whole set was read, up to `version`. A decision means that it is older than what was
    /// delivered before: it is thrown away.
    pub(super) fn read(&mut self, version: &str) -> Option<Decision> {
        if number(version).is_some_and(|version| version < self.newest) && self.stale < STALE_SETS {
            self.stale += 1;
            self.failures += 1;
            return Some(self.decide(self.back_off(self.failures), false));
        }
        self.stale = 0;
        self.failures = 0;
        self.broken_streams = 0;
        self.newest = number(version).unwrap_or(0);
        self.position = Some(version.to_owned());
        None
    }

    /// A watch is open.
    pub(super) fn opened(&mut self) {
        self.failures = 0;
    }

    /// An event or bookmark of the watch was dealt with. A late one does not move back.
    pub(super) fn passed(&mut self, version: &str) {
        self.rejected = 0;
        if version.is_empty() {
            return;
        }
        match number(version) {
            Some(version) if version < self.newest => return,
            Some(version) => self.newest = version,
            None => {}
        }
        self.position = Some(version.to_owned());
    }

    /// What follows.
    pub(super) fn after(&mut self, input: &ReflectInput<'_>, now: Instant) -> Decision {
        match input {
            ReflectInput::NoBookmark => self.list_instead(now, true),
            ReflectInput::Refused(error) => self.failed(error, None, now),
            ReflectInput::Broken { lived, error } => self.failed(error, Some(*lived), now),
            ReflectInput::Closed { lived } => {
                self.aged(*lived);
                let pause = match self.young {
                    0 => Duration::ZERO,
                    young => self.back_off(young),
                };
                self.decide(pause, false)
            }
        }
    }

    fn failed(&mut self, error: &ApiError, lived: Option<Duration>, now: Instant) -> Decision {
        if self.position.is_none() && self.streams() {
            match stream_failure(error, lived.is_some()) {
                StreamFailure::WholeServer => return self.list_instead(now, true),
                StreamFailure::OneSet => return self.list_instead(now, false),
                StreamFailure::AnyRequest => self.broken_streams += 1,
            }
        }
        if self.position.is_some() && loses_position(error) {
            self.lose_position(now);
            self.aged(lived.unwrap_or_default());
            // expiry is part of a watch's life, unless it happens again and again
            let expected = error.kind == ApiErrorKind::Gone && self.young <= 1;
            let pause = match expected {
                true => Duration::ZERO,
                false => self.back_off(self.young),
            };
            return self.decide(pause, !expected);
        }
        match lived {
            Some(lived) => self.aged(lived),
            None => self.failures = self.failures.saturating_add(1),
        }
        if self.position.is_some() && rejects(error) {
            self.rejected = self.rejected.saturating_add(1);
            if self.rejected >= REJECTED_WATCHES {
                self.lose_position(now);
            }
        }
        let failures = self.failures.max(self.young).max(self.rejected);
        let pause = self.back_off(failures);
        let wish = error.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        self.decide(pause.max(wish), true)
    }

    /// A list at once, in place of a streaming list that failed.
    fn list_instead(&mut self, now: Instant, lists_only: bool) -> Decision {
        self.streaming = false;
        self.reprobe_at = Some(now + REPROBE);
        Decision {
            lists_only,
            ..self.decide(Duration::ZERO, false)
        }
    }

    /// The whole set must be read.
    fn lose_position(&mut self, now: Instant) {
        self.position = None;
        if self.reprobe_at.is_some_and(|at| at <= now) {
            self.streaming = true;
            self.reprobe_at = None;
        }
    }

    fn aged(&mut self, lived: Duration) {
        if lived < YOUNG {
            self.young = self.young.saturating_add(1);
        } else {
            self.young = 0;
            self.rejected = 0;
        }
    }

    /// The pause after the nth failure in a row: 800 ms doubled each time, ±50 %, at most 30 s.
    fn back_off(&self, nth: u32) -> Duration {
        let doubled = INITIAL_BACKOFF * (1 << nth.saturating_sub(1).min(6));
        let spread = fnv1a_64(self.seed, &nth.to_le_bytes()) % 1024;
        let jittered = doubled
            .min(MAX_BACKOFF)
            .mul_f64(0.5 + spread as f64 / 1024.0);
        jittered.min(MAX_BACKOFF)
    }

    fn decide(&self, pause: Duration, told: bool) -> Decision {
        Decision {
            step: self.step(),
            pause,
            told,
            lists_only: false,
        }
    }
}

/// What the failure of a streaming list says.
enum StreamFailure {
    /// The server has no streaming lists, of whatever set.
    WholeServer,
    /// This set has none, as far as is known.
    OneSet,
    /// A list would have failed alike.
    AnyRequest,
}

/// `began` is true if the error came after the server had accepted the request.
fn stream_failure(error: &ApiError, began: bool) -> StreamFailure {
    use ApiErrorKind::{Connection, Invalid, Server, Timeout, TooManyRequests, Unauthorized};
    match error.kind {
        Connection | Timeout | TooManyRequests | Unauthorized => StreamFailure::AnyRequest,
        Invalid => StreamFailure::WholeServer,
        Server if began => StreamFailure::WholeServer,
        _ => StreamFailure::OneSet,
    }
}

/// True if the server answered a watch with an error that another set or time may not have.
fn rejects(error: &ApiError) -> bool {
    matches!(error.kind, ApiErrorKind::Server | ApiErrorKind::Forbidden)
}

/// True if a watch cannot go on where the last one ended.
fn loses_position(error: &ApiError) -> bool {
    match error.kind {
        ApiErrorKind::Gone | ApiErrorKind::Invalid | ApiErrorKind::NotFound => true,
        // an event that cannot be read would come again
        ApiErrorKind::Protocol => true,
        // after a restore the server has never heard of the version
        _ => error.message.contains("Too large resource version"),
    }
}

/// A resource version as a number; all of Kubernetes' own are.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// FNV-1a, the same in every build.
pub(crate) fn fnv1a_64(seed: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    bytes.iter().fold(start, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream => f.write_str("streaming list"),
            Self::List => f.write_str("list"),
            Self::Watch { from } => write!(f, "watch from {from}"),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.step)?;
        match self.pause.is_zero() {
            true => f.write_str("now")?,
            false => write!(f, "in {} ms", self.pause.as_millis())?,
        }
        f.write_str(if self.told { ", told" } else { "" })
    }
}

#[cfg(test)]
mod tests;
