//! What a probe asks, when, and what its answers come to.
//!
//! In reading order: a pod's probe becomes a [`ProbeSpec`], [`schedule`] says when it is due, the
//! answer is judged, and [`ProbeState`] counts what was judged until it is a verdict. Mirrors
//! upstream's `prober` and `pkg/probe`, with their words in everything a user reads.

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

pub use evaluate::{http_error, evaluate_exec, evaluate_grpc, evaluate_http, evaluate_tcp};
pub use spec::probe_grace;
pub(crate) use spec::probe_spec;
pub use state::ProbeState;

/// How often a question is put if it cannot be put (upstream `maxProbeRetries`). The tries follow
/// one another at once; after the last one the outcome counts for nothing.
pub const MAX_TRIES: u32 = 3;

/// Longest output or body that is kept, in bytes.
pub const MAX_OUTPUT: usize = 10 << 10;

/// What a probe does (one of the probe's handlers, names resolved).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeHandler {
    /// Runs a command in the container; 0 is success.
    Exec(Vec<String>),
    /// Asks over HTTP; 200 to 399 is success.
    Http(HttpTarget),
    /// Opens a connection.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// Asks the gRPC health service; SERVING is success.
    Grpc {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// `grpc.service`, empty for the server as a whole.
        service: String,
    },
}

/// A probe with its defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// What it does.
    pub handler: ProbeHandler,
    /// Nothing is asked before the container has run this long.
    pub initial_delay: Duration,
    /// Time between two questions.
    pub period: Duration,
    /// An answer that takes longer is a failure.
    pub timeout: Duration,
    /// Successes in a row that make a success.
    pub success_threshold: u32,
    /// Failures in a row that make a failure.
    pub failure_threshold: u32,
}

/// What one question came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// As wanted.
    Success,
    /// As wanted, with a remark for the user.
    Warning(String),
    /// Not as wanted.
    Failure(String),
    /// The question could not be put: it counts for nothing.
    Error(String),
}

impl ProbeOutcome {
    /// Whether it counts for or against; `None` if it counts for nothing.
    pub fn counts(&self) -> Option<bool> {
        match self {
            Self::Success | Self::Warning(_) => Some(true),
            Self::Failure(_) => Some(false),
            Self::Error(_) => None,
        }
    }

    /// What the user is told in an event: `ProbeWarning` for a warning, else `Unhealthy`.
    /// `None` if nothing is to be told.
    pub fn event_message(&self, kind: ProbeKind) -> Option<String> {
        match self {
            Self::Success => None,
            Self::Warning(text) => Some(format!("{kind} probe warning: {text}")),
            Self::Failure(text) => Some(format!("{kind} probe failed: {text}")),
            Self::Error(text) => Some(format!(
                "{kind} probe errored and resulted in unknown state: {text}"
            )),
        }
    }
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
