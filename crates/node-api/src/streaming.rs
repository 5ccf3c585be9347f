//! `/exec`, `/attach`, `/portForward`, `/run`, `/checkpoint`.
//!
//! `GET` is there for WebSockets, which begin with one, and executes all the same:
//! `windlass_auth` asks for the verb `create` for it, where upstream is content with `get`.

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

/// Longest time a command of `/run` may take: upstream's has no end but its server's write
/// timeout, which is this.
const RUN: Duration = Duration::from_secs(4 * 3600);

/// The group.
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
    answered(start_exec(&api, &target, request).await)
}

async fn exec_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    answered(start_exec(&api, &target, request).await)
}

async fn attach(State(api): State<NodeApi>, Path(at): ByName, request: Request) -> Response {
    let target = Target::by_name(at);
    answered(start_attach(&api, &target, request).await)
}

async fn attach_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    answered(start_attach(&api, &target, request).await)
}

async fn port_forward(
    State(api): State<NodeApi>,
    Path((namespace, pod)): Path<(String, String)>,
    request: Request,
) -> Response {
    let pod = PodName::new(namespace, pod, None);
    answered(start_port_forward(&api, &pod, request).await)
}

async fn port_forward_of_uid(
    State(api): State<NodeApi>,
    Path((namespace, pod, uid)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let pod = PodName::new(namespace, pod, Some(uid));
    answered(start_port_forward(&api, &pod, request).await)
}

async fn run(State(api): State<NodeApi>, Path(at): ByName, request: Request) -> Response {
    let target = Target::by_name(at);
    answered(run_command(&api, &target, request).await)
}

async fn run_of_uid(State(api): State<NodeApi>, Path(at): ByUid, request: Request) -> Response {
    let target = Target::by_uid(at);
    answered(run_command(&api, &target, request).await)
}

/// An answer that is none of what was asked for.
#[derive(Clone, Debug)]
pub struct Refusal {
    status: StatusCode,
    words: String,
}

impl Refusal {
    fn new(status: StatusCode, words: impl Into<String>) -> Self {
        Self {
            status,
            words: words.into(),
        }
    }
}

impl From<StreamError> for Refusal {
    fn from(error: StreamError) -> Self {
        tracing::debug!(error = &error as &dyn std::error::Error, "no stream");
        Self::new(error.status(), error.to_string())
    }
}

impl From<CriError> for Refusal {
    /// Upstream's codes: what the runtime does not know is 404, all else 500.
    fn from(error: CriError) -> Self {
        let status = match error.code {
            CriCode::NotFound => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.message)
    }
}

fn answered(answer: Result<Response, Refusal>) -> Response {
    let refusal = match answer {
        Ok(answer) => return answer,
        Err(refusal) => refusal,
    };
    let mut answer = text(refusal.status, refusal.words);
    if refusal.status == StatusCode::TOO_MANY_REQUESTS {
        let headers = answer.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

async fn start_exec(api: &NodeApi, target: &Target, request: Request) -> Result<Response, Refusal> {
    let query = Query::of(request.uri())?;
    let streams = query.streams()?;
    let command = query.all("command");
    let pod = target.pod.find(api)?;
    let place = api.sessions.reserve(&request)?;
    let command = &command;
    let ask = |id| async move { api.streams.exec(&id, command, streams).await }.boxed();
    let url = target.stream(api, &pod, ask).await?;
    join_command(api, place, request, (&url, "exec", streams)).await
}

async fn start_attach(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, Refusal> {
    let asked = Query::of(request.uri())?.streams()?;
    let pod = target.pod.find(api)?;
    let place = api.sessions.reserve(&request)?;
    // a process keeps the terminal that it began with, or none
    let Some(tty) = find::tty_of(&pod, &target.container) else {
        target.running(api, &pod).await?;
        return Err(target.not_in_the_pod());
    };
    let streams = StreamSet { tty, ..asked };
    let ask = |id| async move { api.streams.attach(&id, streams).await }.boxed();
    let url = target.stream(api, &pod, ask).await?;
    join_command(api, place, request, (&url, "attach", streams)).await
}

async fn start_port_forward(
    api: &NodeApi,
    name: &PodName,
    request: Request,
) -> Result<Response, Refusal> {
    let is_tunnel = api.settings.websockets && is_tunneled_spdy(request.headers());
    let ports = match query::is_websocket(request.headers()) && !is_tunnel {
        true => Query::of(request.uri())?.ports()?,
        // SPDY names its ports in the stream
        false => Vec::new(),
    };
    let pod = name.find(api)?;
    let place = api.sessions.reserve(&request)?;
    let ports = &ports;
    let ask = |id| async move { api.streams.port_forward(&id, ports).await }.boxed();
    let url = find::sandbox_stream(api, &pod, ask).await?;
    let url = url.ok_or_else(|| {
        let words = format!("pod not found (\"{}\")", pod.full_name());
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, words)
    })?;
    if is_tunnel {
        api.metrics.requests.count_websocket("portforward");
        let client = client(&request);
        return Ok(place.tunnel(request, &url, client).await?);
    }
    join(place, request, &url).await
}

/// Joins a command's streams: those of a WebSocket that the runtime need not know are translated.
async fn join_command(
    api: &NodeApi,
    place: SessionPermit,
    request: Request,
    (url, subresource, streams): (&str, &str, StreamSet),
) -> Result<Response, Refusal> {
    if !api.settings.websockets || !is_remote_command_v5(request.headers()) {
        return join(place, request, url).await;
    }
    api.metrics.requests.count_websocket(subresource);
    let streams = CommandStreams {
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        tty: streams.tty,
    };
    Ok(place.translate(request, url, streams)?)
}

async fn join(place: SessionPermit, request: Request, url: &str) -> Result<Response, Refusal> {
    let client = client(&request);
    Ok(place.proxy(request, url, client).await?)
}

fn client(request: &Request) -> Option<IpAddr> {
    let peer = request.extensions().get::<Peer>()?;
    Some(peer.address().ip())
}

/// Runs a command and answers with all it wrote. `cmd` is split at spaces, no shell is involved.
async fn run_command(
    api: &NodeApi,
    target: &Target,
    request: Request,
) -> Result<Response, Refusal> {
    let query = Query::of(request.uri())?;
    let pod = target.pod.find(api)?;
    // what a command writes is kept until it ends
    let _place = api.sessions.acquire()?;
    let line = query.first("cmd").unwrap_or_default();
    let command: Vec<_> = line.split(' ').map(str::to_owned).collect();
    let id = target.running(api, &pod).await?;
    let ran = api.runtime.exec_sync(&id, &command, RUN).await;
    let failed = |words| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, words);
    let output = ran.map_err(|error| failed(error.message))?;
    if output.exit_code != 0 {
        return Err(failed(format!(
            "command '{line}' exited with {}: {}",
            output.exit_code,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let mut said = output.stdout;
    said.extend_from_slice(&output.stderr);
    // upstream's word for it, whatever the command wrote
    let kind = [(CONTENT_TYPE, "application/json")];
    Ok((kind, said).into_response())
}
