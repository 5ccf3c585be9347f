//! Container probes: specification, schedule, outcomes and results.
//!
//! A pod's probe becomes a [`ProbeSpec`]; [`schedule`] returns the times of its attempts. The
//! `evaluate_*` functions turn a response into a [`ProbeOutcome`]; [`ProbeState`] applies the
//! thresholds. Messages match upstream `prober` and `pkg/probe`.

use std::fmt;
use std::time::Duration;

use windlass_types::ProbeKind;

use crate::http_target::HttpTarget;

mod answer;
mod evaluate;
pub mod schedule;
mod spec;
mod state;

pub use answer::{CheckError, ExecFailure, GrpcHealth, HttpAnswer};

pub use evaluate::{evaluate_exec, evaluate_grpc, evaluate_http, evaluate_tcp, http_error};
pub(crate) use spec::probe_grace_period;
pub(crate) use spec::{probe_of, probe_spec};
pub use state::ProbeState;

/// Attempts per probe when an attempt itself fails (upstream `maxProbeRetries`), without delay.
pub const MAX_ATTEMPTS: u32 = 3;

/// Maximum bytes kept of an output or body.
pub const MAX_OUTPUT_BYTES: usize = 10 << 10;

/// Handler of a probe, with resolved names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
    /// A command in the container; exit code 0 is success.
    Exec(Vec<String>),
    /// An HTTP request; 200 to 399 is success.
    Http(HttpTarget),
    /// A TCP connection.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A request to the gRPC health service; SERVING is success.
    Grpc {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// `grpc.service`, empty for the server as a whole.
        service: String,
    },
}

/// A probe with defaults applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Its handler.
    pub handler: ProbeHandler,
    /// Time from the container start to the first attempt.
    pub initial_delay: Duration,
    /// Time between attempts.
    pub period: Duration,
    /// Timeout of an attempt.
    pub timeout: Duration,
    /// Consecutive successes for the result success.
    pub success_threshold: u32,
    /// Consecutive failures for the result failure.
    pub failure_threshold: u32,
}

/// Outcome of a probe attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// Success.
    Success,
    /// Success with a warning.
    Warning(String),
    /// Failure.
    Failure(String),
    /// The attempt could not be made; it does not count.
    Error(String),
}

impl ProbeOutcome {
    /// Returns whether it counts as success; `None` if it does not count.
    pub fn counts(&self) -> Option<bool> {
        match self {
            Self::Success | Self::Warning(_) => Some(true),
            Self::Failure(_) => Some(false),
            Self::Error(_) => None,
        }
    }

    /// Returns the event message; the reason is `ProbeWarning` for a warning, else `Unhealthy`.
    pub fn event_message(&self, kind: ProbeKind) -> Option<String> {
        match self {
            Self::Success => None,
            Self::Warning(text) => Some(format!("{kind} probe warning: {text}")),
            Self::Failure(text) => Some(format!("{kind} {FAILED}{text}")),
            Self::Error(text) => Some(format!(
                "{kind} probe errored and resulted in unknown state: {text}"
            )),
        }
    }
}

/// Prefix of a failure in an event message, after the kind of the probe.
const FAILED: &str = "probe failed: ";

/// Returns the text after the prefix of an [event message](ProbeOutcome::event_message).
pub fn event_detail(kind: ProbeKind, message: &str) -> &str {
    let text = message.strip_prefix(kind.as_str()).unwrap_or(message);
    let text = text.trim_start();
    let detail = text.strip_prefix(FAILED);
    let detail = detail.or_else(|| text.strip_prefix("probe "));
    detail.unwrap_or(text).trim()
}

impl fmt::Display for ProbeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Warning(text) => write!(f, "warning: {text}"),
            Self::Failure(text) => write!(f, "failure: {text}"),
            Self::Error(text) => write!(f, "error: {text}"),
        }
    }
}

#[cfg(test)]
mod tests;
