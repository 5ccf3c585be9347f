//! Serves an HTTP request: body, user, faults, log.

use std::sync::Arc;

use ::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Body, Frame};
use serde_json::Value;
use tower::BoxError;

use crate::faults::Fault;
use crate::identity::User;
use crate::peers::RawResponse;
use crate::query::Query;
use crate::request::{self, ApiRequest, Reply};
use crate::server::{Observed, RequestRecord, Shared, report_changes};
use crate::status_error::StatusError;

/// A response body.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// Maximum body size, as in the real server.
const LARGEST_BODY: usize = 3 << 20;

/// A fault broke the connection.
#[derive(Debug)]
struct ConnectionLost(&'static str);

impl std::fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConnectionLost {}

/// Serves one request of `user`, or of the user of a token in it. `None` is a client with an
/// invalid certificate.
pub(crate) async fn handle<B>(
    shared: Arc<Shared>,
    user: Option<User>,
    request: Request<B>,
) -> Result<Response<ApiBody>, BoxError>
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await?.to_bytes();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let query = parts.uri.query().unwrap_or_default();
    let mut request = ApiRequest {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: Query::parse(query),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: Value::Null,
        user: user.clone().unwrap_or_else(User::anonymous),
    };
    let readable = read_body(&mut request, &body);
    let token = parts.headers.get(header::AUTHORIZATION);
    let token = token
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let now = shared.clock.now();
    let known = match (token, &user) {
        (None, None) => Err(StatusError::unauthorized()),
        _ => shared.lock().user_of(now, token, &mut request.user),
    };

    let fault = shared.lock().faults.take(request.verb(), &request.path);
    match &fault {
        Some(Fault::Down) => {
            record(&shared, &request, query, 0);
            return Err(ConnectionLost("connection refused").into());
        }
        Some(Fault::Hang) => {
            record(&shared, &request, query, 0);
            return std::future::pending().await;
        }
        Some(Fault::Response(answer)) => {
            record(&shared, &request, query, answer.status);
            return raw(answer);
        }
        Some(Fault::Slow(delay)) => tokio::time::sleep(*delay).await,
        Some(Fault::Error { .. } | Fault::DropReply) | None => {}
    }
    let injected = match &fault {
        Some(Fault::Error { code, retry_after }) => Err(StatusError::injected(*code, *retry_after)),
        _ => Ok(()),
    };
    let answer = injected
        .and(known)
        .and(readable)
        .and_then(|()| serve(&shared, &request));
    let code = match &answer {
        Ok(Reply::Object(code, _)) => *code,
        Ok(Reply::Events(_)) => 200,
        Err(error) => error.code,
    };
    record(&shared, &request, query, code);
    if fault == Some(Fault::DropReply) {
        return Err(ConnectionLost("connection closed before the answer").into());
    }
    respond(answer)
}

fn serve(shared: &Arc<Shared>, request: &ApiRequest) -> Result<Reply, StatusError> {
    let now = shared.clock.now();
    let mut state = shared.lock();
    let before = state.store.version();
    let answer = request::serve(shared, &mut state, now, request);
    let changed = state.store.version() != before;
    state.record_version(now);
    let observed = match changed {
        true => state.observed_since(before),
        false => None,
    };
    drop(state);
    report_changes(observed);
    if changed {
        shared.changed.notify_waiters();
    }
    answer
}

fn read_body(request: &mut ApiRequest, body: &[u8]) -> Result<(), StatusError> {
    if body.is_empty() {
        return Ok(());
    }
    request.body = serde_json::from_slice(body).map_err(|error| {
        StatusError::bad_request(format!("the body of the request is not JSON: {error}"))
    })?;
    Ok(())
}

/// A call with the code 0 had no response.
fn record(shared: &Arc<Shared>, request: &ApiRequest, query: &str, status: u16) {
    let record = RequestRecord {
        at: shared.clock.now(),
        method: request.method.as_str().to_owned(),
        path: request.path.clone(),
        query: query.to_owned(),
        user: request.user.name.clone(),
        body: request.body.clone(),
        status,
    };
    let observer = shared.lock().observer.clone();
    if let Some(observer) = observer {
        observer(Observed::Served(&record));
    }
    shared.lock().record(record);
    shared.changed.notify_waiters();
}

fn respond(answer: Result<Reply, StatusError>) -> Result<Response<ApiBody>, BoxError> {
    let mut response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    let body = match answer {
        Ok(Reply::Object(code, object)) => {
            response = response.status(StatusCode::from_u16(code)?);
            whole(&object)
        }
        Ok(Reply::Events(watching)) => {
            let frames = watching.into_stream().map(|line| Ok(Frame::data(line)));
            StreamBody::new(frames).boxed_unsync()
        }
        Err(error) => {
            response = response.status(StatusCode::from_u16(error.code)?);
            if let Some(seconds) = error.retry_after {
                response = response.header(header::RETRY_AFTER, seconds.to_string());
            }
            whole(&error.status())
        }
    };
    Ok(response.body(body)?)
}

fn raw(answer: &RawResponse) -> Result<Response<ApiBody>, BoxError> {
    let mut response = Response::builder().status(StatusCode::from_u16(answer.status)?);
    for (name, value) in &answer.headers {
        response = response.header(*name, *value);
    }
    let body = Full::new(Bytes::from_static(answer.body.as_bytes()));
    Ok(response.body(body.map_err(|never| match never {}).boxed_unsync())?)
}

fn whole(value: &Value) -> ApiBody {
    Full::new(Bytes::from(value.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync()
}
