//! Why a pod is as it is, beyond upstream: `/windlass/v1/pods/<namespace>/<pod>/timeline` and
//! `…/explain`, what `windlassctl` prints with `-o json`.
//!
//! *bound* a timeline is 8 KiB at the most, some 20 KiB as JSON.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;

use crate::NodeApi;
use crate::answer::{json, text};

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route(
            "/windlass/v1/pods/{namespace}/{pod}/timeline",
            get(timeline),
        )
        .route("/windlass/v1/pods/{namespace}/{pod}/explain", get(explain))
}

type Asked = Path<(String, String)>;

async fn timeline(State(api): State<NodeApi>, Path((namespace, pod)): Asked) -> Response {
    answer(&pod, api.why.timeline(&namespace, &pod))
}

async fn explain(State(api): State<NodeApi>, Path((namespace, pod)): Asked) -> Response {
    answer(&pod, api.why.explanation(&namespace, &pod))
}

fn answer(pod: &str, found: Option<impl Serialize>) -> Response {
    match found {
        Some(found) => json(&found),
        None => text(StatusCode::NOT_FOUND, format!("pod \"{pod}\" not found")),
    }
}
