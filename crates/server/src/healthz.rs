//! `/healthz` on localhost, in the clear, read-only, as the Go kubelet on 10248: nothing else is served.
//!
//! `/healthz` is 200 `ok` while every check passes, else 500 with each check's result;
//! `/healthz/<check>` is one check alone. `?verbose` lists the checks in any case.

use std::fmt::Write;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tower::limit::GlobalConcurrencyLimitLayer;

/// Requests worked on at a time: probes of the node need a handful.
const MAX_REQUESTS: usize = 16;

/// The result of one health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Name, the last part of its path.
    pub name: &'static str,
    /// `Ok` with a remark (may be empty), or why it fails, with the ages that tell.
    pub result: Result<String, String>,
}

/// Where the health of the agent comes from. Must not block.
pub trait HealthSource: Send + Sync + std::fmt::Debug + 'static {
    /// All checks, in the order in which they are shown. The server adds `ping` and `log`.
    fn checks(&self) -> Vec<HealthCheck>;

    /// Brings gauges that are only worth computing when someone looks up to date.
    fn before_scrape(&self) {}
}

/// Opens the port. The caller reports an error with the setting that is at fault.
pub async fn bind_health(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(address, port)).await
}

/// Serves until `shutdown` resolves.
pub async fn serve_health(
    listener: TcpListener,
    health: Arc<dyn HealthSource>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(health))
        .with_graceful_shutdown(shutdown)
        .await
}

fn router(health: Arc<dyn HealthSource>) -> Router {
    Router::new()
        .route("/healthz", get(all))
        .route("/healthz/{check}", get(one))
        .layer(GlobalConcurrencyLimitLayer::new(MAX_REQUESTS))
        .with_state(health)
}

async fn all(State(health): State<Arc<dyn HealthSource>>, RawQuery(query): RawQuery) -> Response {
    health_answer(&*health, None, query.as_deref())
}

async fn one(
    State(health): State<Arc<dyn HealthSource>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    health_answer(&*health, Some(&name), query.as_deref())
}

/// The answer to `/healthz`, or to `/healthz/<name>`: 404 if there is no such check.
pub fn health_answer(
    health: &dyn HealthSource,
    name: Option<&str>,
    query: Option<&str>,
) -> Response {
    let mut checks = all_checks(health);
    if let Some(name) = name {
        checks.retain(|check| check.name == name);
        if checks.is_empty() {
            return (StatusCode::NOT_FOUND, "no such check\n").into_response();
        }
    }
    report(&checks, is_verbose(query), name.unwrap_or("healthz"))
}

/// Rendered metrics as an answer.
pub fn metrics_answer<E: std::fmt::Display>(rendered: Result<impl IntoResponse, E>) -> Response {
    match rendered {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// All checks. Whoever gets an answer knows that the process answers (`ping`) and that its log is
/// written: a line goes out before the thread that says it goes on (`log`).
pub fn all_checks(health: &dyn HealthSource) -> Vec<HealthCheck> {
    let passed = |name| HealthCheck {
        name,
        result: Ok(String::new()),
    };
    ["ping", "log"]
        .map(passed)
        .into_iter()
        .chain(health.checks())
        .collect()
}

fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part == "verbose" || part.starts_with("verbose="))
    })
}

fn report(checks: &[HealthCheck], verbose: bool, what: &str) -> Response {
    let healthy = checks.iter().all(|check| check.result.is_ok());
    if healthy && !verbose {
        return (StatusCode::OK, "ok").into_response();
    }
    let mut text = String::new();
    for HealthCheck { name, result } in checks {
        let _infallible = match result {
            Ok(remark) if remark.is_empty() => writeln!(text, "[+]{name} ok"),
            Ok(remark) => writeln!(text, "[+]{name} ok: {remark}"),
            Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
    }
    let (status, verdict) = match healthy {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    (status, format!("{text}{what} check {verdict}\n")).into_response()
}

#[cfg(test)]
mod tests;
