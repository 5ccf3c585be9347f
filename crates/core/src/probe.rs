//! What a probe asks, and what its answers come to.

use std::time::Duration;

use crate::http_target::HttpTarget;

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
