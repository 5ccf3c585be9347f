//! What can go wrong, each in one line with its remedy.

use std::io;
use std::path::PathBuf;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is no such socket.
    #[error(
        "no socket at {}: is windlass running with --root-dir {}? Name another socket with --socket",
        .0.display(), .0.parent().unwrap_or(.0).display()
    )]
    NoSocket(PathBuf),
    /// Nobody listens on it.
    #[error("nobody answers at {}: windlass is not running, start it", .0.display())]
    NotRunning(PathBuf),
    /// The socket belongs to another user.
    #[error("no right to use {}: run this as root or as the user that windlass runs as", .0.display())]
    Forbidden(PathBuf),
    /// Another fault of the socket.
    #[error("cannot connect to {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What listens does not speak the protocol.
    #[error("{} does not answer as windlass does: {detail}", path.display())]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// No such pod.
    #[error("pod {name} not found in namespace {namespace}{hint}")]
    NoPod {
        /// Name.
        name: String,
        /// Namespace.
        namespace: String,
        /// What there is instead; begins with a colon, or empty.
        hint: String,
    },
    /// The agent refused, or went away.
    #[error("{}", .0.message())]
    Refused(#[from] Box<tonic::Status>),
    /// The agent does not know what it is asked.
    #[error(
        "{agent} does not know this command of windlassctl {}: update the agent, or use the \
         windlassctl that came with it", env!("CARGO_PKG_VERSION")
    )]
    OldAgent {
        /// `windlass` and its version, as far as it is told.
        agent: String,
    },
    /// The agent sent what this version cannot read.
    #[error("the agent's answer cannot be read, is it of another version? {0}")]
    Answer(String),
    /// Standard output does not take any more.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// True if the agent has no such request.
    pub(crate) fn is_unknown_to_the_agent(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code() == tonic::Code::Unimplemented)
    }

    /// `version` is the agent's; older ones tell none.
    pub(crate) fn old_agent(version: Option<&str>) -> Self {
        let agent = match version.filter(|version| !version.is_empty()) {
            Some(version) => format!("windlass {version}"),
            None => {
                "the running windlass is of an older version (`windlass --version`) and".to_owned()
            }
        };
        Self::OldAgent { agent }
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        match status.code() {
            // the connection is gone, and tonic's words for it tell a user nothing
            tonic::Code::Unavailable | tonic::Code::Unknown => {
                Self::Refused(Box::new(tonic::Status::unavailable(
                    "windlass went away while it was asked; is it restarting?",
                )))
            }
            _ => Self::Refused(Box::new(status)),
        }
    }
}
