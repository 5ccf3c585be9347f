//! `/containerLogs/{namespace}/{pod}/{container}`: a container's log, with options.

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_container_logs::{LogError, LogSource};
use windlass_pod_lifecycle::cri_log::LogStream;
use windlass_status::log_target::{LogRequest, LogTargetError, log_target, watch_end};

use super::options::{BadOptions, PodLogOptions};
use crate::NodeApi;
use crate::answer::one_by_one;

/// Streams the log. A followed log ends with its container; every log ends with its client.
pub(crate) async fn read(
    State(api): State<NodeApi>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let request = match PodLogOptions::decode(query.as_deref().unwrap_or_default()) {
        Ok(request) => request,
        Err(error) => return bad_options(&error),
    };
    let mut options = match request.resolve(api.clock.now()) {
        Ok(options) => options,
        Err(error) => return bad_options(&error),
    };
    let log_request = LogRequest {
        namespace: &namespace,
        pod: &pod,
        container: &container,
        previous: request.previous,
    };
    let target = match log_target(&api.status_store.find(&namespace, &pod), &log_request) {
        Ok(target) => target,
        Err(error) => return target_error(&error),
    };
    if let Some(stream) = options.stream
        && !api.settings.log_streams
    {
        return streams_are_off(stream);
    }
    options.follow &= target.running;
    let paths = &api.paths;
    let source = LogSource {
        root: paths.pod_logs_dir.clone(),
        path: paths.container_log(&target.pod, &target.container, target.attempt),
    };
    let follow = options.follow;
    let done = CancellationToken::new();
    let blocks = match api.logs.read(source, options, done.clone()).await {
        Ok(blocks) => blocks,
        Err(error) => return read_error(&error),
    };
    let client = api.shutdown.child_token();
    if follow {
        tokio::spawn(watch_end(
            api.status_store.clone(),
            target,
            done,
            client.clone(),
        ));
    }
    // cancelled with the body, so that everything ends when the client disconnects
    let guard = client.drop_guard();
    let blocks = blocks
        .inspect(move |block| {
            let _held = &guard;
            if let Err(error) = block {
                tracing::warn!(%error, "log reading ended early");
            }
        })
        .take_until(api.shutdown.clone().cancelled_owned());
    (PLAIN, one_by_one(blocks)).into_response()
}

const PLAIN: [(header::HeaderName, &str); 2] = [
    (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Returns upstream's message, without a newline.
fn error_response(status: StatusCode, message: String) -> Response {
    (status, PLAIN, message).into_response()
}

fn bad_options(error: &BadOptions) -> Response {
    let status = match error {
        BadOptions::Undecodable => StatusCode::BAD_REQUEST,
        BadOptions::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
    };
    error_response(status, error.to_string())
}

fn streams_are_off(stream: LogStream) -> Response {
    let name = match stream {
        LogStream::Stdout => "Stdout",
        LogStream::Stderr => "Stderr",
    };
    let message = format!(
        "unable to return the given log stream: {name:?}. \
         Please enable PodLogsQuerySplitStreams feature gate in kubelet"
    );
    error_response(StatusCode::BAD_REQUEST, message)
}

fn target_error(error: &LogTargetError) -> Response {
    let (status, message) = match error {
        LogTargetError::Pod { name, .. } => (
            StatusCode::NOT_FOUND,
            format!("pod {name:?} does not exist"),
        ),
        LogTargetError::Container { pod, container, .. } => (
            StatusCode::NOT_FOUND,
            format!("container {container:?} not found in pod {pod:?}"),
        ),
        other => (StatusCode::BAD_REQUEST, other.to_string()),
    };
    error_response(status, message)
}

/// Returns 400. Upstream has sent status 200 by then and writes the error into the log.
pub(super) fn read_error(error: &LogError) -> Response {
    match error {
        LogError::Open { .. } | LogError::Read { .. } => {
            error_response(StatusCode::BAD_REQUEST, error.to_string())
        }
        LogError::Busy => too_many(error.to_string()),
    }
}

/// Returns 429.
pub(super) fn too_many(message: String) -> Response {
    let mut response = error_response(StatusCode::TOO_MANY_REQUESTS, message);
    let seconds = header::HeaderValue::from_static("10");
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}
