//! Whether the pods of this node can be watched, and when a failure is reported: pure.
//!
//! The first failure is logged, and then the ones after 1, 2, 4, … minutes, at least one each
//! hour. From the second report on the node gets a Warning event as well, unless the API server
//! did not answer: then the heartbeat fails too, and the event could not be sent.

use std::fmt;
use std::time::Duration;

use windlass_client::ApiError;
use windlass_types::Timestamp;
use windlass_types::view::PodWatch;

/// Pause between the first two reports of a failure, doubled by each further one.
const FIRST_REPORT_PAUSE: Duration = Duration::from_secs(60);
/// Maximum pause between two reports of a failure.
const MAX_REPORT_PAUSE: Duration = Duration::from_secs(3600);

/// What the newest answers say of the watch.
#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    /// `None` before the first answer.
    pod_watch: Option<PodWatch>,
    report_pause: Duration,
    next_report: Timestamp,
    event_recorded: bool,
}

/// What is to be logged or recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// Nothing.
    Nothing,
    /// A warning in the log: the watch fails.
    Failing {
        /// For how long.
        failing_for: Duration,
        /// Message of a Warning event of the node.
        event: Option<String>,
    },
    /// The watch works again.
    Recovered {
        /// How long it failed.
        failed_for: Duration,
        /// Message of a Normal event of the node.
        event: Option<&'static str>,
    },
}

impl WatchHealth {
    /// The state for users.
    pub(super) fn pod_watch(&self) -> Option<&PodWatch> {
        self.pod_watch.as_ref()
    }

    /// Takes in that a request failed.
    pub(super) fn failed(&mut self, error: &ApiError, now: Timestamp) -> Report {
        let known = self.pod_watch.as_ref();
        let failing_since = known.filter(|it| it.error.is_some()).map(|it| it.since);
        let since = failing_since.unwrap_or(now);
        self.pod_watch = Some(PodWatch {
            error: Some(error.to_string()),
            since,
        });
        if failing_since.is_none() {
            self.report_pause = FIRST_REPORT_PAUSE;
        } else if now < self.next_report {
            return Report::Nothing;
        } else {
            self.report_pause = (self.report_pause * 2).min(MAX_REPORT_PAUSE);
        }
        self.next_report = now + self.report_pause;
        let event = (failing_since.is_some() && !error.is_unreachable())
            .then(|| format!("Cannot watch the pods of this node: {error}"));
        self.event_recorded |= event.is_some();
        Report::Failing {
            failing_for: elapsed(since, now),
            event,
        }
    }

    /// Takes in that the pods were read. After a failure that is not enough: where every watch
    /// fails, lists may still succeed.
    pub(super) fn listed(&mut self, now: Timestamp) -> Report {
        let known = self.pod_watch.as_ref();
        match known.is_some_and(|it| it.error.is_some()) {
            true => Report::Nothing,
            false => self.succeeded(now),
        }
    }

    /// Takes in that the watch delivers, or stays open.
    pub(super) fn succeeded(&mut self, now: Timestamp) -> Report {
        let known = self.pod_watch.as_ref();
        if known.is_some_and(|it| it.error.is_none()) {
            return Report::Nothing;
        }
        let failed_since = known.map(|it| it.since);
        self.pod_watch = Some(PodWatch {
            error: None,
            since: now,
        });
        let event = std::mem::take(&mut self.event_recorded);
        match failed_since {
            None => Report::Nothing,
            Some(since) => Report::Recovered {
                failed_for: elapsed(since, now),
                event: event.then_some("The pods of this node are watched again"),
            },
        }
    }
}

/// Zero if the wall clock was set back.
fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Failing { failing_for, event } => {
                write!(f, "failing for {} s", failing_for.as_secs())?;
                event.iter().try_for_each(|text| write!(f, ", {text}"))
            }
            Self::Recovered { failed_for, event } => {
                write!(f, "recovered after {} s", failed_for.as_secs())?;
                event.iter().try_for_each(|text| write!(f, ", {text}"))
            }
        }
    }
}
