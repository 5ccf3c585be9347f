//! Errors of requests, by kind.

use std::time::Duration;

use windlass_types::Retry;

/// Result of a request.
pub type ApiResult<T> = Result<T, ApiError>;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb} {path}: {message}")]
pub struct ApiError {
    /// The kind.
    pub kind: ApiErrorKind,
    /// HTTP method or `watch`.
    pub verb: &'static str,
    /// Path of the request, without the query.
    pub path: String,
    /// The message of the server or of the connection.
    pub message: String,
    /// `Retry-After` of the server.
    pub retry_after: Option<Duration>,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// 404: no such object (or no such API).
    NotFound,
    /// 409 `AlreadyExists`.
    AlreadyExists,
    /// 409 `Conflict`: the object changed, or a UID precondition does not hold.
    Conflict,
    /// 410, `Expired`: the resource version is no longer known.
    Gone,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 400, 415, 422: the request is wrong, a retry is useless.
    Invalid,
    /// 429.
    TooManyRequests,
    /// 5xx.
    Server,
    /// No response within the timeout.
    Timeout,
    /// No connection, or it failed.
    Connection,
    /// An undecodable response.
    Protocol,
}

/// Maximum size of a message: it is used in logs, events and statuses.
const MAX_MESSAGE_BYTES: usize = 4096;

impl ApiError {
    /// Creates an error without `Retry-After`; a long message is truncated.
    pub(crate) fn new(kind: ApiErrorKind, verb: &'static str, path: &str, message: &str) -> Self {
        let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
        let rest = if end < message.len() { "..." } else { "" };
        Self {
            kind,
            verb,
            path: path.to_owned(),
            message: format!("{}{rest}", &message[..end]),
            retry_after: None,
        }
    }

    /// Returns the retry class.
    pub fn retry(&self) -> Retry {
        match self.kind {
            ApiErrorKind::Invalid | ApiErrorKind::Protocol => Retry::Never,
            ApiErrorKind::NotFound
            | ApiErrorKind::AlreadyExists
            | ApiErrorKind::Forbidden
            | ApiErrorKind::Unauthorized => Retry::Later,
            _ => Retry::Soon,
        }
    }

    /// Returns true if there was no response.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind, ApiErrorKind::Timeout | ApiErrorKind::Connection)
    }
}

impl ApiErrorKind {
    /// Returns the kind of an HTTP status code and the reason of a `Status` object.
    pub fn from_status(code: u16, reason: &str) -> Self {
        match (code, reason) {
            (_, "AlreadyExists") => Self::AlreadyExists,
            (_, "Expired" | "Gone") | (410, _) => Self::Gone,
            (404, _) => Self::NotFound,
            (409, _) => Self::Conflict,
            (401, _) => Self::Unauthorized,
            (403, _) => Self::Forbidden,
            (429, _) => Self::TooManyRequests,
            (408 | 504, _) => Self::Timeout,
            (500.., _) => Self::Server,
            _ => Self::Invalid,
        }
    }
}
