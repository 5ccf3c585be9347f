//! `/exec`, `/attach`, `/portForward`, `/run`, `/checkpoint`.
//!
//! `GET` exists for WebSockets, whose handshake uses it, and executes all the same: `windlass_auth`
//! requires the verb `create` for it; upstream requires only `get`.

mod checkpoint;
mod find;
mod query;

#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::FutureExt;
use windlass_cri::{CriCode, CriError, StreamSet};
use windlass_https::Peer;
use windlass_streams::{CommandStreams, SessionPermit, StreamError};
use windlass_streams::{is_remote_command_v5, is_tunneled_spdy};
use windlass_types::PodExt;

use crate::NodeApi;
use crate::answer::text;
use find::{PodName, Target};
pub use query::Query;

/// Timeout of a command of `/run`: upstream's only limit is its server's write timeout, which is
/// this.
const RUN_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/exec/{namespace}/{pod}/{container}", get(exec).post(exec))
        .route(
            "/exec/{namespace}/{pod}/{uid}/{container}",
            get(exec_of_uid).post(exec_of_uid),
        )
        .route(
            "/attach/{namespace}/{pod}/{container}",
            get(attach).post(attach),
        )
        .route(
            "/attach/{namespace}/{pod}/{uid}/{container}",
            get(attach_of_uid).post(attach_of_uid),
        )
        .route(
            "/portForward/{namespace}/{pod}",
            get(port_forward).post(port_forward),
        )
        .route(
            "/portForward/{namespace}/{pod}/{uid}",
            get(port_forward_of_uid).post(port_forward_of_uid),
        )
        .route("/run/{namespace}/{pod}/{container}", post(run))
        .route("/run/{namespace}/{pod}/{uid}/{container}", post(run_of_uid))
        .route(
            "/checkpoint/{namespace}/{pod}/{container}",
            post(checkpoint::checkpoint),
        )
}

type ByName = Path<(String, String, String)>;
type ByUid = Path<(String, String, String, String)>;

async fn exec(State(api): State<NodeApi>, Path(at): ByName, request: Request) -> Response {
    let target = Target::by_name(at);
    into_response(start_exec(&api, &target, request).await)
}

async fn exec_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    into_response(start_exec(&api, &target, request).await)
}

async fn attach(State(api): State<NodeApi>, Path(at): ByName, request: Request) -> Response {
    let target = Target::by_name(at);
    into_response(start_attach(&api, &target, request).await)
}

async fn attach_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    into_response(start_attach(&api, &target, request).await)
}

async fn port_forward(
    State(api): State<NodeApi>,
    Path((namespace, pod)): Path<(String, String)>,
    request: Request,
) -> Response {
    let pod = PodName::new(namespace, pod, None);
    into_response(start_port_forward(&api, &pod, request).await)
}

async fn port_forward_of_uid(
    State(api): State<NodeApi>,
    Path((namespace, pod, uid)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let pod = PodName::new(namespace, pod, Some(uid));
    into_response(start_port_forward(&api, &pod, request).await)
}

async fn run(State(api): State<NodeApi>, Path(at): ByName, request: Request) -> Response {
    let target = Target::by_name(at);
    into_response(run_command(&api, &target, request).await)
}

async fn run_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    into_response(run_command(&api, &target, request).await)
}

/// An error response to a stream request.
#[derive(Clone, Debug)]
pub struct StreamRejection {
    status: StatusCode,
    message: String,
}

impl StreamRejection {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }
}

impl From<StreamError> for StreamRejection {
    fn from(error: StreamError) -> Self {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "stream request rejected"
        );
        Self::new(error.status(), error.to_string())
    }
}

impl From<CriError> for StreamRejection {
    /// Upstream's codes: 404 if the runtime does not know the object, else 500.
    fn from(error: CriError) -> Self {
        let status = match error.code {
            CriCode::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.message)
    }
}

fn into_response(result: Result<Response, StreamRejection>) -> Response {
    let rejection = match result {
        Ok(response) => return response,
        Err(rejection) => rejection,
    };
    let mut response = text(rejection.status, rejection.message);
    if rejection.status == StatusCode::TOO_MANY_REQUESTS {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

async fn start_exec(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, StreamRejection> {
    let query = Query::new(request.uri())?;
    let streams = query.streams()?;
    let command = query.all("command");
    let pod = target.pod.find(api)?;
    let permit = api.sessions.reserve(&request)?;
    let command = &command;
    let request_url = |id| async move { api.streams.exec(&id, command, streams).await }.boxed();
    let url = target.stream(api, &pod, request_url).await?;
    proxy_command(api, permit, request, (&url, "exec", streams)).await
}

async fn start_attach(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, StreamRejection> {
    let requested = Query::new(request.uri())?.streams()?;
    let pod = target.pod.find(api)?;
    let permit = api.sessions.reserve(&request)?;
    // a process keeps the terminal that it started with, or none
    let Some(tty) = find::container_tty(&pod, &target.container) else {
        target.running(api, &pod).await?;
        return Err(target.not_in_pod());
    };
    let streams = StreamSet { tty, ..requested };
    let request_url = |id| async move { api.streams.attach(&id, streams).await }.boxed();
    let url = target.stream(api, &pod, request_url).await?;
    proxy_command(api, permit, request, (&url, "attach", streams)).await
}

async fn start_port_forward(
    api: &NodeApi,
    name: &PodName,
    request: Request,
) -> Result<Response, StreamRejection> {
    let is_tunnel = api.settings.websockets && is_tunneled_spdy(request.headers());
    let ports = match query::is_websocket(request.headers()) && !is_tunnel {
        true => Query::new(request.uri())?.ports()?,
        // SPDY has its ports in the stream
        false => Vec::new(),
    };
    let pod = name.find(api)?;
    let permit = api.sessions.reserve(&request)?;
    let ports = &ports;
    let request_url = |id| async move { api.streams.port_forward(&id, ports).await }.boxed();
    let url = find::sandbox_stream(api, &pod, request_url).await?;
    let url = url.ok_or_else(|| {
        let message = format!("pod not found (\"{}\")", pod.full_name());
        StreamRejection::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    })?;
    if is_tunnel {
        api.metrics.requests.count_websocket("portforward");
        let client = client(&request);
        return Ok(permit.tunnel(request, &url, client).await?);
    }
    proxy(permit, request, &url).await
}

/// Proxies a command's streams; a v5 WebSocket is translated for the runtime.
async fn proxy_command(
    api: &NodeApi,
    permit: SessionPermit,
    request: Request,
    (url, subresource, streams): (&str, &str, StreamSet),
) -> Result<Response, StreamRejection> {
    if !api.settings.websockets || !is_remote_command_v5(request.headers()) {
        return proxy(permit, request, url).await;
    }
    api.metrics.requests.count_websocket(subresource);
    let streams = CommandStreams {
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        tty: streams.tty,
    };
    Ok(permit.translate(request, url, streams)?)
}

async fn proxy(
    permit: SessionPermit,
    request: Request,
    url: &str,
) -> Result<Response, StreamRejection> {
    let client = client(&request);
    Ok(permit.proxy(request, url, client).await?)
}

fn client(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<Peer>()?;
    Some(peer.address().ip())
}

/// Runs a command and returns its output. `cmd` is split at spaces; no shell is involved.
async fn run_command(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, StreamRejection> {
    let query = Query::new(request.uri())?;
    let pod = target.pod.find(api)?;
    // the output is kept in memory until the command ends
    let _permit = api.sessions.acquire()?;
    let line = query.first("cmd").unwrap_or_default();
    let command: Vec<_> = line.split(' ').map(str::to_owned).collect();
    let id = target.running(api, &pod).await?;
    let result = api.runtime.exec_sync(&id, &command, RUN_TIMEOUT).await;
    let failed = |message| StreamRejection::new(StatusCode::INTERNAL_SERVER_ERROR, message);
    let output = result.map_err(|error| failed(error.message))?;
    if output.exit_code != 0 {
        return Err(failed(format!(
            "command '{line}' exited with {}: {}",
            output.exit_code,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let mut all = output.stdout;
    all.extend_from_slice(&output.stderr);
    // upstream's content type, independent of the output
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((kind, all).into_response())
}
