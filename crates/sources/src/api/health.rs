//! Status of the pod watch and the schedule of its failure reports. Pure.
//!
//! The first failure is logged, then those after 1, 2, 4, … minutes, at least one per hour. From
//! the second report on, a Warning event of the node is recorded, unless the API server is
//! unreachable.

use std::fmt;
use std::time::Duration;

use windlass_client::ApiError;
use windlass_types::Timestamp;
use windlass_types::view::PodWatch;

/// Interval between the first two reports of a failure, doubled by each further one.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum interval between two reports of a failure.
const MAX_REPORT_INTERVAL: Duration = Duration::from_secs(3600);

/// Status of the watch and its reports.
#[derive(Debug, Default)]
pub(super) struct WatchHealth {
    /// `None` before the first response.
    pod_watch: Option<PodWatch>,
    report_interval: Duration,
    next_report: Timestamp,
    event_recorded: bool,
}

/// Report to log or record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Nothing,
    /// The watch fails.
    Failing {
        /// Duration of the failure so far.
        failing_for: Duration,
        /// Message of a Warning event of the node.
        event: Option<String>,
    },
    /// The watch works again.
    Recovered {
        /// Duration of the failure.
        failed_for: Duration,
        /// Message of a Normal event of the node.
        event: Option<&'static str>,
    },
}

impl WatchHealth {
    pub(super) fn pod_watch(&self) -> Option<&PodWatch> {
        self.pod_watch.as_ref()
    }

    /// Handles a failed request.
    pub(super) fn failed(&mut self, error: &ApiError, now: Timestamp) -> Report {
        let known = self.pod_watch.as_ref();
        let failing_since = known.filter(|it| it.error.is_some()).map(|it| it.since);
        let since = failing_since.unwrap_or(now);
        self.pod_watch = Some(PodWatch {
            error: Some(error.to_string()),
            since,
        });
        if failing_since.is_none() {
            self.report_interval = MIN_REPORT_INTERVAL;
        } else if now < self.next_report {
            return Report::Nothing;
        } else {
            self.report_interval = (self.report_interval * 2).min(MAX_REPORT_INTERVAL);
        }
        self.next_report = now + self.report_interval;
        let event = (failing_since.is_some() && !error.is_unreachable())
            .then(|| format!("Cannot watch the pods of this node: {error}"));
        self.event_recorded |= event.is_some();
        Report::Failing {
            failing_for: elapsed(since, now),
            event,
        }
    }

    /// Handles a successful list. It does not end a failure: lists may succeed while watches fail.
    pub(super) fn list_succeeded(&mut self, now: Timestamp) -> Report {
        let known = self.pod_watch.as_ref();
        match known.is_some_and(|it| it.error.is_some()) {
            true => Report::Nothing,
            false => self.succeeded(now),
        }
    }

    /// Handles an event of the watch, or an open watch.
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

/// Returns the elapsed time; zero if the wall clock was set back.
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
