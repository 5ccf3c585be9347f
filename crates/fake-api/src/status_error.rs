//! Errors of the server: `Status` objects.

use serde_json::{Value, json};

use crate::store::Key;

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusError {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// `Retry-After` in seconds.
    pub(crate) retry_after: Option<u64>,
}

impl StatusError {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            retry_after: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized".to_owned())
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, "Forbidden", message.into())
    }

    pub(crate) fn no_such_api() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message.to_owned())
    }

    pub(crate) fn not_found(key: &Key) -> Self {
        let message = format!("{} \"{}\" not found", key.qualified(), key.name);
        Self::new(404, "NotFound", message)
    }

    /// Not found in an informer; listers use the singular.
    pub(crate) fn not_found_by_lister(kind: &str, name: &str) -> Self {
        let message = format!("{kind} \"{name}\" not found");
        Self::new(404, "NotFound", message)
    }

    /// An admission plugin failed without a status.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(500, "", message.into())
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message.to_owned())
    }

    pub(crate) fn already_exists(key: &Key) -> Self {
        let message = format!("{} \"{}\" already exists", key.qualified(), key.name);
        Self::new(409, "AlreadyExists", message)
    }

    pub(crate) fn conflict(key: &Key, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{}\": {why}",
            key.qualified(),
            key.name
        );
        Self::new(409, "Conflict", message)
    }

    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {asked} ({oldest})");
        Self::new(410, "Expired", message)
    }

    pub(crate) fn unsupported_patch(content_type: &str) -> Self {
        let message = format!("the body of the request was in an unknown format: {content_type}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message.into())
    }

    /// The watch cache cannot determine the end of a streaming list.
    pub(crate) fn no_watch_progress() -> Self {
        let message = "a watch stream was requested by the client but the required storage feature \
                       RequestWatchProgress is disabled";
        Self::new(500, "InternalError", message.to_owned())
    }

    /// The server cannot create the events of a watch.
    pub(crate) fn failing_watch() -> Self {
        let message = "Internal error occurred: a fault was injected";
        Self::new(500, "InternalError", message.to_owned())
    }

    /// The version is not reached yet: the server waits a little and then fails.
    pub(crate) fn too_new(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Self {
            retry_after: Some(1),
            ..Self::new(504, "Timeout", message)
        }
    }

    /// An injected fault.
    pub(crate) fn injected(code: u16, retry_after: Option<u64>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self {
            retry_after,
            ..Self::new(code, reason, "a fault was injected".to_owned())
        }
    }

    /// Returns the `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message,
            "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({ "retryAfterSeconds": seconds });
        }
        status
    }
}
