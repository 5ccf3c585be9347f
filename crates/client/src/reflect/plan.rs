//! Decisions of a reflector: pure, no I/O and no clock.
//!
//! If the server rejects a streaming list, a list follows at once, and lists are used for
//! [`REPROBE_INTERVAL`]. A storage without `RequestWatchProgress`, a disabled feature gate and a
//! proxy that cannot stream all look different, so any error code has this effect. Upstream's
//! `Reflector` falls back alike, but tries a streaming list again before each list. Errors that
//! also affect lists (no connection, 401, 429) are retried as a streaming list first.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{ApiError, ApiErrorKind};

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A watch that starts with the whole set.
    Stream,
    /// A list; a watch follows.
    List,
    /// A watch that continues after this version.
    Watch {
        /// The version.
        from: String,
    },
}

/// The outcome of the last request.
#[derive(Debug)]
pub(super) enum ReflectInput<'a> {
    /// A request failed.
    Failed(&'a ApiError),
    /// A streaming list was closed, or silent for too long, before its final bookmark.
    NoBookmark,
    /// The server closed a watch.
    Closed {
        /// How long it was open.
        age: Duration,
    },
    /// A watch ended with an error.
    Broken {
        /// How long it was open.
        age: Duration,
        /// Why.
        error: &'a ApiError,
    },
}

/// The next request and its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) step: Step,
    /// Delay before it.
    pub(super) pause: Duration,
    /// Whether the failure is reported: not if it is expected.
    pub(super) reported: bool,
    /// The server has no streaming lists: other sets need not try one.
    pub(super) lists_only: bool,
}

/// Progress of a set.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Whether to read the set with a streaming list.
    streaming: bool,
    /// When to try a streaming list again.
    reprobe_at: Option<Instant>,
    /// Failed streaming lists in a row, except failures of the server.
    broken_streams: u32,
    /// Watches in a row with a server error before any event.
    rejected: u32,
    /// Version of the next watch; `None` if the whole set must be read.
    position: Option<String>,
    /// The newest delivered version.
    newest: u64,
    /// Requests that failed in a row.
    failures: u32,
    /// Watches in a row that ended early.
    young: u32,
    /// Outdated sets in a row.
    stale: u32,
    seed: u64,
}

/// Back-off after a failure, doubled by each further one: upstream's values.
const INITIAL_BACKOFF: Duration = Duration::from_millis(800);
/// Maximum back-off without `Retry-After`.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Maximum `Retry-After` that is respected.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// A watch that ends earlier counts as a failure.
pub(super) const MIN_WATCH_AGE: Duration = Duration::from_secs(5);
/// After this many outdated sets in a row the set is accepted: the storage was restored from a
/// backup.
const MAX_STALE_SETS: u32 = 3;
/// How long lists are used instead of streaming lists. A list of one node's objects is cheap, and
/// API server upgrades are rarer.
pub(crate) const REPROBE_INTERVAL: Duration = Duration::from_secs(3600);
/// After this many failed streaming lists in a row the set is read with a list, in case a proxy
/// breaks them.
const MAX_BROKEN_STREAMS: u32 = 3;
/// After this many rejected watches in a row, the set is read before each further one. Pods then
/// still arrive if only watches fail.
const MAX_REJECTED_WATCHES: u32 = 3;

impl Plan {
    /// Starts without a position. `seed` is for jitter; before `reprobe_at` sets are read with
    /// lists.
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

    /// Returns the next request.
    pub(super) fn step(&self) -> Step {
        match &self.position {
            Some(from) => Step::Watch { from: from.clone() },
            None if self.streams() => Step::Stream,
            None => Step::List,
        }
    }

    fn streams(&self) -> bool {
        self.streaming && self.broken_streams < MAX_BROKEN_STREAMS
    }

    /// Records that the set was read, up to `version`. A decision means that the set is outdated
    /// and must be discarded.
    pub(super) fn read(&mut self, version: &str) -> Option<Decision> {
        if number(version).is_some_and(|version| version < self.newest)
            && self.stale < MAX_STALE_SETS
        {
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

    /// Records an open watch.
    pub(super) fn opened(&mut self) {
        self.failures = 0;
    }

    /// Records an event or bookmark. A late one has no effect.
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

    /// Decides after an outcome.
    pub(super) fn after(&mut self, input: &ReflectInput<'_>, now: Instant) -> Decision {
        match input {
            ReflectInput::NoBookmark => self.list_instead(now, true),
            ReflectInput::Failed(error) => self.failed(error, None, now),
            ReflectInput::Broken { age, error } => self.failed(error, Some(*age), now),
            ReflectInput::Closed { age } => {
                self.record_age(*age);
                let pause = match self.young {
                    0 => Duration::ZERO,
                    young => self.back_off(young),
                };
                self.decide(pause, false)
            }
        }
    }

    fn failed(&mut self, error: &ApiError, age: Option<Duration>, now: Instant) -> Decision {
        if self.position.is_none() && self.streams() {
            match stream_failure(error, age.is_some()) {
                StreamFailure::WholeServer => return self.list_instead(now, true),
                StreamFailure::OneSet => return self.list_instead(now, false),
                StreamFailure::AnyRequest => self.broken_streams += 1,
            }
        }
        if self.position.is_some() && loses_position(error) {
            self.lose_position(now);
            self.record_age(age.unwrap_or_default());
            // a single expiry is normal
            let expected = error.kind == ApiErrorKind::Gone && self.young <= 1;
            let pause = match expected {
                true => Duration::ZERO,
                false => self.back_off(self.young),
            };
            return self.decide(pause, !expected);
        }
        match age {
            Some(age) => self.record_age(age),
            None => self.failures = self.failures.saturating_add(1),
        }
        if self.position.is_some() && rejects(error) {
            self.rejected = self.rejected.saturating_add(1);
            if self.rejected >= MAX_REJECTED_WATCHES {
                self.lose_position(now);
            }
        }
        let failures = self.failures.max(self.young).max(self.rejected);
        let pause = self.back_off(failures);
        let retry_after = error.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        self.decide(pause.max(retry_after), true)
    }

    /// A list at once, in place of a failed streaming list.
    fn list_instead(&mut self, now: Instant, lists_only: bool) -> Decision {
        self.streaming = false;
        self.reprobe_at = Some(now + REPROBE_INTERVAL);
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

    fn record_age(&mut self, age: Duration) {
        if age < MIN_WATCH_AGE {
            self.young = self.young.saturating_add(1);
        } else {
            self.young = 0;
            self.rejected = 0;
        }
    }

    /// Returns the back-off after the nth failure in a row: 800 ms doubled each time, ±50 %, at
    /// most 30 s.
    fn back_off(&self, nth: u32) -> Duration {
        let doubled = INITIAL_BACKOFF * (1 << nth.saturating_sub(1).min(6));
        let jitter = fnv1a_64(self.seed, &nth.to_le_bytes()) % 1024;
        let jittered = doubled
            .min(MAX_BACKOFF)
            .mul_f64(0.5 + jitter as f64 / 1024.0);
        jittered.min(MAX_BACKOFF)
    }

    fn decide(&self, pause: Duration, reported: bool) -> Decision {
        Decision {
            step: self.step(),
            pause,
            reported,
            lists_only: false,
        }
    }
}

/// The scope of a streaming list's failure.
enum StreamFailure {
    /// The server has no streaming lists.
    WholeServer,
    /// This set has none.
    OneSet,
    /// A list would also have failed.
    AnyRequest,
}

/// `accepted` is true if the server had accepted the request.
fn stream_failure(error: &ApiError, accepted: bool) -> StreamFailure {
    use ApiErrorKind::{Connection, Invalid, Server, Timeout, TooManyRequests, Unauthorized};
    match error.kind {
        Connection | Timeout | TooManyRequests | Unauthorized => StreamFailure::AnyRequest,
        Invalid => StreamFailure::WholeServer,
        Server if accepted => StreamFailure::WholeServer,
        _ => StreamFailure::OneSet,
    }
}

/// Returns true for a server error that may not affect other sets or times.
fn rejects(error: &ApiError) -> bool {
    matches!(error.kind, ApiErrorKind::Server | ApiErrorKind::Forbidden)
}

/// Returns true if a watch cannot continue from the last position.
fn loses_position(error: &ApiError) -> bool {
    match error.kind {
        ApiErrorKind::Gone | ApiErrorKind::Invalid | ApiErrorKind::NotFound => true,
        // an undecodable event would be repeated
        ApiErrorKind::Protocol => true,
        // after a restore the server does not know the version
        _ => error.message.contains("Too large resource version"),
    }
}

/// Returns a resource version as a number; all of Kubernetes' own are numbers.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// FNV-1a, which is the same in every build.
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
        f.write_str(if self.reported { ", reported" } else { "" })
    }
}

#[cfg(test)]
mod tests;
