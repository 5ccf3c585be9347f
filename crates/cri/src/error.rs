//! What a CRI call can fail with, and what trying again would bring.

use windlass_types::Retry;

/// Result of a CRI call.
pub type CriResult<T> = Result<T, CriError>;

/// A failed CRI call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct CriError {
    /// Upstream's snake-case operation name, as in `kubelet_runtime_operations_total`.
    pub operation: &'static str,
    /// Class of the failure.
    pub code: CriCode,
    /// The runtime's own words.
    pub message: String,
}

/// Classes of failure, from the gRPC status code or the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriCode {
    /// No connection to the runtime.
    Unavailable,
    /// The deadline passed.
    DeadlineExceeded,
    /// No such object.
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The runtime does not implement the call.
    Unimplemented,
    /// The runtime refuses the request as it stands.
    InvalidArgument,
    /// The call was cancelled.
    Cancelled,
    /// Everything else.
    Other,
}

impl CriError {
    /// A new error.
    pub fn new(operation: &'static str, code: CriCode, message: impl Into<String>) -> Self {
        Self { operation, code, message: message.into() }
    }

    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self.code {
            CriCode::Unavailable | CriCode::Cancelled => Retry::Soon,
            CriCode::Unimplemented => Retry::Never,
            CriCode::DeadlineExceeded
            | CriCode::NotFound
            | CriCode::AlreadyExists
            | CriCode::InvalidArgument
            | CriCode::Other => Retry::Later,
        }
    }

    /// True if the object does not exist: for stop and remove that is success.
    pub fn is_not_found(&self) -> bool {
        self.code == CriCode::NotFound
    }
}
