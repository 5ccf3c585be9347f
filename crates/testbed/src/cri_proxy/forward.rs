//! Forwards requests and responses.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tonic::{Code, Status};

use super::{Action, Rules, TracedCall};

type Body = BoxBody<Bytes, hyper::Error>;

/// Serves connections until dropped.
pub(super) async fn accept(listener: UnixListener, runtime: PathBuf, rules: Arc<Rules>) {
    let mut connections = JoinSet::new();
    while let Ok((front, _)) = listener.accept().await {
        // remove ended connections
        while connections.try_join_next().is_some() {}
        let (runtime, rules) = (runtime.clone(), Arc::clone(&rules));
        connections.spawn(async move {
            // without a runtime, the connection ends immediately
            let _ = serve(front, &runtime, rules).await;
        });
    }
}

async fn serve(front: UnixStream, runtime: &Path, rules: Arc<Rules>) -> anyhow::Result<()> {
    let back = UnixStream::connect(runtime).await?;
    let (sender, client) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .handshake::<_, Body>(TokioIo::new(back))
        .await?;
    let service = service_fn(move |request| {
        let (sender, rules) = (sender.clone(), Arc::clone(&rules));
        async move { Ok::<_, Infallible>(answer(request, sender, &rules).await) }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(None)
        .serve_connection(TokioIo::new(front), service);
    tokio::select! {
        biased;
        result = client => result?,
        result = server => result?,
    }
    Ok(())
}

async fn answer(
    request: Request<Incoming>,
    sender: SendRequest<Body>,
    rules: &Rules,
) -> Response<Body> {
    let path = request.uri().path();
    let method = path.rsplit('/').next().unwrap_or_default().to_owned();
    let header = request.headers().get("traceparent");
    if let Some(traceparent) = header.and_then(|it| it.to_str().ok()) {
        rules.traced().push(TracedCall {
            method: method.clone(),
            traceparent: traceparent.to_owned(),
        });
    }
    if !rules.concern(&method) {
        return forward(request.map(BodyExt::boxed), sender).await;
    }
    // rules apply to unary calls only, whose request ends
    let (head, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refusal(Code::Unavailable, &error.to_string()),
    };
    let rule = rules.find(&method, &body);
    let whole = Full::new(body).map_err(|never| match never {}).boxed();
    let request = Request::from_parts(head, whole);
    let Some(rule) = rule else {
        return forward(request, sender).await;
    };
    match &rule.rule.action {
        Action::Hang => {
            rule.released().await;
            forward(request, sender).await
        }
        Action::Delay(delay) => {
            tokio::time::sleep(*delay).await;
            forward(request, sender).await
        }
        Action::Fail(code, message) => refusal(*code, message),
        Action::LoseReply => {
            let reply = carried_out(request, sender).await;
            rule.released().await;
            reply
        }
        Action::DenyReply(code, message) => {
            carried_out(request, sender).await;
            refusal(*code, message)
        }
    }
}

/// Returns the complete response of a call, even if its caller cancels.
async fn carried_out(request: Request<Body>, sender: SendRequest<Body>) -> Response<Body> {
    let call = tokio::spawn(async move {
        let (head, body) = forward(request, sender).await.into_parts();
        let collected = body.collect().await?;
        Ok::<_, hyper::Error>(Response::from_parts(head, collected.map_err(never).boxed()))
    });
    match call.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => refusal(Code::Unavailable, &error.to_string()),
        Err(error) => refusal(Code::Internal, &error.to_string()),
    }
}

fn never<T>(never: Infallible) -> T {
    match never {}
}

async fn forward(request: Request<Body>, mut sender: SendRequest<Body>) -> Response<Body> {
    match sender.send_request(request).await {
        Ok(response) => response.map(BodyExt::boxed),
        Err(error) => refusal(Code::Unavailable, &error.to_string()),
    }
}

/// Returns a trailers-only response, as gRPC servers do for errors.
fn refusal(code: Code, message: &str) -> Response<Body> {
    let body = Empty::new().map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static("application/grpc");
    headers.insert(http::header::CONTENT_TYPE, content_type);
    // a message that is not a valid header value is omitted
    let _ = Status::new(code, message).add_header(headers);
    response
}
