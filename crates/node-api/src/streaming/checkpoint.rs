//! `/checkpoint`: writes a container's state to a file on the node.

use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use windlass_cri::CriCode;
use windlass_types::{PodExt, api_time};

use super::find::{Target, container_tty, running};
use super::query::Query;
use super::{StreamRejection, into_response};
use crate::NodeApi;
use crate::answer::json;

/// Directory below `--root-dir`.
const CHECKPOINTS: &str = "checkpoints";

pub(super) async fn checkpoint(
    State(api): State<NodeApi>,
    Path(at): Path<(String, String, String)>,
    request: Request,
) -> Response {
    if !api.settings.checkpoint {
        return super::text(StatusCode::NOT_FOUND, "404 page not found");
    }
    let target = Target::by_name(at);
    into_response(write(&api, &target, request).await)
}

async fn write(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, StreamRejection> {
    let query = Query::new(request.uri())?;
    let pod = target.pod.find(api)?;
    let name = &target.container;
    if container_tty(&pod, name).is_none() {
        let message = format!("container {name} does not exist");
        return Err(StreamRejection::new(StatusCode::NOT_FOUND, message));
    }
    let seconds = match query.all("timeout").last() {
        None => 0,
        Some(value) => value.parse::<i64>().map_err(|_| {
            let message = "cannot parse value of timeout parameter";
            StreamRejection::new(StatusCode::NOT_FOUND, message)
        })?,
    };
    let timeout = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let failed = |status, reason: &str| {
        let (namespace, pod) = (pod.namespace(), pod.name());
        let message = format!("checkpointing of {namespace}/{pod}/{name} failed ({reason})");
        StreamRejection::new(status, message)
    };
    let internal = StatusCode::INTERNAL_SERVER_ERROR;
    let found = running(api, &pod.uid(), name).await;
    let found = found.map_err(|error| failed(internal, &error.message))?;
    let Some(id) = found else {
        return Err(failed(internal, &format!("container {name} not found")));
    };
    let dir = api.paths.root_dir.join(CHECKPOINTS);
    let made = tokio::fs::create_dir_all(&dir).await;
    made.map_err(|error| failed(internal, &error.to_string()))?;
    let now = api_time(api.clock.now());
    let file = dir.join(format!("checkpoint-{}-{name}-{now}.tar", pod.full_name()));
    let written = api.streams.checkpoint_container(&id, &file, timeout).await;
    written.map_err(|error| {
        let status = match error.code {
            // as if the endpoint did not exist
            CriCode::Unimplemented => StatusCode::NOT_FOUND,
            _ => internal,
        };
        failed(status, &error.message)
    })?;
    Ok(json(&json!({"items": [file]})))
}
