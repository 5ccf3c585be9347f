//! `/pods`: the desired pods of this node with their status.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde::Serialize;
use windlass_types::corev1::{Pod, PodStatus};

use crate::NodeApi;
use crate::answer::json;

pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/pods", get(pods))
        .route("/pods/", get(pods))
}

/// A `PodList` with the fields of this endpoint.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodList {
    kind: &'static str,
    api_version: &'static str,
    metadata: NoMetadata,
    items: Vec<Pod>,
}

#[derive(Debug, Serialize)]
struct NoMetadata {}

impl PodList {
    pub(crate) fn new(items: Vec<Pod>) -> Self {
        Self {
            kind: "PodList",
            api_version: "v1",
            metadata: NoMetadata {},
            items,
        }
    }
}

async fn pods(State(api): State<NodeApi>) -> Response {
    let items = api.status_store.snapshot().into_iter().map(|entry| {
        let status = Arc::unwrap_or_clone(entry.status);
        with_status(Arc::unwrap_or_clone(entry.pod), status)
    });
    json(&PodList::new(items.collect()))
}

fn with_status(mut pod: Pod, status: PodStatus) -> Pod {
    pod.status = Some(status);
    pod
}
