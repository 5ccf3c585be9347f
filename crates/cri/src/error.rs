//! Errors of CRI calls and their retry classes.

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
    /// Message of the runtime.
    pub message: String,
    /// The gRPC status code under its Go name; `None` for `Unknown` and for an error without a
    /// status.
    pub status: Option<&'static str>,
}

/// Classes of failure, from the gRPC status code or the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CriCode {
    /// No connection to the runtime.
    Unavailable,
    /// The deadline passed.
    DeadlineExceeded,
    /// The object does not exist.
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The runtime does not implement the call.
    Unimplemented,
    /// The runtime rejects the request.
    InvalidArgument,
    /// The call was cancelled.
    Cancelled,
    /// Everything else.
    Other,
}

/// Causes of a failed pull that CRI defines; runtimes put them in front of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageErrorCause {
    /// `RegistryUnavailable`.
    RegistryUnavailable,
    /// `SignatureValidationFailed`.
    SignatureValidationFailed,
}

/// Error texts for an object that does not exist; the last one is from CRI-O.
const NOT_FOUND_TEXTS: [&str; 3] = ["not found", "does not exist", "no such id"];

/// Error text of containerd for a second removal of a container.
const REMOVAL_IN_PROGRESS_TEXT: &str = "already in removing state";

impl CriError {
    /// A new error.
    pub fn new(operation: &'static str, code: CriCode, message: impl Into<String>) -> Self {
        Self {
            operation,
            code,
            message: message.into(),
            status: None,
        }
    }

    /// The message as Go's gRPC prints it, with the status code unless that is `Unknown`, as
    /// upstream shows the error of a pull.
    pub fn go_text(&self) -> String {
        match self.status {
            Some(code) => format!("rpc error: code = {code} desc = {}", self.message),
            None => self.message.clone(),
        }
    }

    /// The cause of a failed pull and the rest of the message; `None` for any other cause.
    pub fn image_error_cause(&self) -> Option<(ImageErrorCause, &str)> {
        use ImageErrorCause::{RegistryUnavailable, SignatureValidationFailed};
        let causes = [
            ("RegistryUnavailable", RegistryUnavailable),
            ("SignatureValidationFailed", SignatureValidationFailed),
        ];
        let mut causes = causes.into_iter();
        causes.find_map(|(head, cause)| Some((cause, self.message.strip_prefix(head)?)))
    }

    /// Converts a gRPC status. A status created by the local transport means that the runtime is
    /// unreachable, whatever its code.
    pub(crate) fn from_status(operation: &'static str, status: &tonic::Status) -> Self {
        let mut message = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        let from_transport = source.is_some() || status.code() == tonic::Code::Unavailable;
        while let Some(error) = source {
            let text = error.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = error.source();
        }
        let code = match status.code() {
            tonic::Code::DeadlineExceeded => CriCode::DeadlineExceeded,
            _ if from_transport => CriCode::Unavailable,
            tonic::Code::NotFound => CriCode::NotFound,
            tonic::Code::AlreadyExists => CriCode::AlreadyExists,
            tonic::Code::Unimplemented => CriCode::Unimplemented,
            tonic::Code::InvalidArgument | tonic::Code::FailedPrecondition => {
                CriCode::InvalidArgument
            }
            tonic::Code::Cancelled => CriCode::Cancelled,
            _ => CriCode::Other,
        };
        Self {
            operation,
            code,
            message,
            status: go_name(status.code()),
        }
    }

    /// True if the object does not exist, by code or, for an inner error without its code, by text.
    /// Only for calls that name one object: StartContainer fails with "not found" for a missing
    /// binary.
    pub(crate) fn is_object_not_found(&self) -> bool {
        let lost_code = || {
            NOT_FOUND_TEXTS
                .iter()
                .any(|text| self.message.contains(text))
        };
        self.is_not_found() || (self.code == CriCode::Other && lost_code())
    }

    /// True if a message was larger than one side of the socket allows.
    pub(crate) fn is_message_too_large(&self) -> bool {
        let codes = [tonic::Code::ResourceExhausted, tonic::Code::OutOfRange];
        codes.map(go_name).contains(&self.status)
            && ["larger than max", "message length too large"]
                .iter()
                .any(|text| self.message.contains(text))
    }

    /// Retry class.
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

    /// True if the container is being removed by another call (containerd; CRI-O lets the second call
    /// wait).
    pub fn is_removal_in_progress(&self) -> bool {
        self.code == CriCode::Other && self.message.contains(REMOVAL_IN_PROGRESS_TEXT)
    }

    /// True if the object does not exist: for stop and remove that is success.
    pub fn is_not_found(&self) -> bool {
        self.code == CriCode::NotFound
    }
}

/// The name of a gRPC code in Go; `None` for `Unknown`.
fn go_name(code: tonic::Code) -> Option<&'static str> {
    Some(match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "Canceled",
        tonic::Code::Unknown => return None,
        tonic::Code::InvalidArgument => "InvalidArgument",
        tonic::Code::DeadlineExceeded => "DeadlineExceeded",
        tonic::Code::NotFound => "NotFound",
        tonic::Code::AlreadyExists => "AlreadyExists",
        tonic::Code::PermissionDenied => "PermissionDenied",
        tonic::Code::ResourceExhausted => "ResourceExhausted",
        tonic::Code::FailedPrecondition => "FailedPrecondition",
        tonic::Code::Aborted => "Aborted",
        tonic::Code::OutOfRange => "OutOfRange",
        tonic::Code::Unimplemented => "Unimplemented",
        tonic::Code::Internal => "Internal",
        tonic::Code::Unavailable => "Unavailable",
        tonic::Code::DataLoss => "DataLoss",
        tonic::Code::Unauthenticated => "Unauthenticated",
    })
}

#[cfg(test)]
mod tests {
    use super::{CriError, ImageErrorCause};

    #[test]
    fn go_text_has_the_code_unless_it_is_unknown() {
        let check = |status: tonic::Status, expected: &str| {
            assert_eq!(
                CriError::from_status("pull_image", &status).go_text(),
                expected
            );
        };
        check(
            tonic::Status::not_found("web:1: not found"),
            "rpc error: code = NotFound desc = web:1: not found",
        );
        check(
            tonic::Status::permission_denied("no"),
            "rpc error: code = PermissionDenied desc = no",
        );
        check(tonic::Status::unknown("failed to pull"), "failed to pull");
    }

    #[test]
    fn image_error_cause_is_the_head_of_the_message() {
        use ImageErrorCause::{RegistryUnavailable, SignatureValidationFailed};
        let check = |message: &str, expected: Option<(ImageErrorCause, &str)>| {
            let error = CriError::from_status("pull_image", &tonic::Status::unknown(message));
            assert_eq!(error.image_error_cause(), expected, "{message}");
        };
        let unavailable = Some((RegistryUnavailable, ": dial tcp"));
        check("RegistryUnavailable: dial tcp", unavailable);
        let unsigned = Some((SignatureValidationFailed, ": no key"));
        check("SignatureValidationFailed: no key", unsigned);
        check("RegistryUnavailable", Some((RegistryUnavailable, "")));
        check("pull: RegistryUnavailable", None);
        check("", None);
    }

    #[test]
    fn missing_object_is_detected_by_code_or_text() {
        let check = |status: tonic::Status, expected: bool| {
            let error = CriError::from_status("stop_container", &status);
            assert_eq!(error.is_object_not_found(), expected, "{error}");
        };
        check(tonic::Status::not_found("c1"), true);
        check(tonic::Status::unknown("container c1 does not exist"), true);
        // CRI-O
        check(tonic::Status::unknown("no such id: \"c1\""), true);
        check(tonic::Status::unknown("device busy"), false);
        check(tonic::Status::invalid_argument("no such id"), false);
    }
}
