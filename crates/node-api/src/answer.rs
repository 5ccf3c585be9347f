//! Shapes of answers.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// `value` as JSON; 500 if it cannot be written.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("the answer cannot be written as JSON: {error}"),
            )
        }
    }
}

/// Plain text that no browser takes for anything else, with a line's end, as upstream's errors.
pub(crate) fn text(status: StatusCode, message: impl AsRef<str>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, format!("{}\n", message.as_ref())).into_response()
}
