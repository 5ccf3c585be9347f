//! Errors of a command: one line with the remedy.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The socket does not exist.
    #[error(
        "no socket at {}; check that windlass is running with --root-dir {}, or set --socket",
        .0.display(), .0.parent().unwrap_or(.0).display()
    )]
    NoSocket(PathBuf),
    /// No process listens on the socket.
    #[error("cannot connect to {}: connection refused; start windlass", .0.display())]
    NotRunning(PathBuf),
    /// The socket belongs to another user.
    #[error("permission denied: {}; run as root or as the user of the windlass process", .0.display())]
    PermissionDenied(PathBuf),
    /// Another connection error.
    #[error("cannot connect to {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The server does not speak the protocol.
    #[error("unexpected response from {}: {detail}; check --socket", path.display())]
    UnexpectedResponse {
        /// The socket.
        path: PathBuf,
        /// Cause.
        detail: String,
    },
    /// The pod does not exist.
    #[error("pod {name} not found in namespace {namespace}{hint}")]
    NoPod {
        /// Name.
        name: String,
        /// Namespace.
        namespace: String,
        /// Suggestion that begins with a semicolon, or empty.
        hint: String,
    },
    /// The agent rejected the request, or the connection was lost.
    #[error("{}", .0.message())]
    Rpc(#[from] Box<tonic::Status>),
    /// The agent does not support the request.
    #[error(
        "{agent} does not support this command of windlassctl {}; update the agent or use the \
         windlassctl of the same version", env!("CARGO_PKG_VERSION")
    )]
    OldAgent {
        /// `windlass` and its version, if known.
        agent: String,
    },
    /// The response cannot be decoded.
    #[error("cannot decode the response: {0}; use the windlassctl of the agent's version")]
    InvalidResponse(String),
    /// Standard output is closed or full.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Whether the agent does not support the request.
    pub(crate) fn is_unsupported_by_agent(&self) -> bool {
        matches!(self, Self::Rpc(status) if status.code() == tonic::Code::Unimplemented)
    }

    /// Creates [`Error::OldAgent`]; old agents do not report a `version`.
    pub(crate) fn old_agent(version: Option<&str>) -> Self {
        let agent = match version.filter(|version| !version.is_empty()) {
            Some(version) => format!("windlass {version}"),
            None => "the running (older) windlass".to_owned(),
        };
        Self::OldAgent { agent }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        match status.code() {
            // tonic's messages for a lost connection are not helpful
            tonic::Code::Unavailable | tonic::Code::Unknown => {
                Self::Rpc(Box::new(tonic::Status::unavailable(
                    "lost connection to windlass; it may be restarting, try again",
                )))
            }
            _ => Self::Rpc(Box::new(status)),
        }
    }
}
