//! `/healthz` on localhost over plain HTTP, like port 10248 of the Go kubelet.
//!
//! `/healthz` is 200 `ok` while every check passes, else 500 with the result of each check.
//! `/healthz/<check>` is a single check. `?verbose` always lists the checks.

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

/// Maximum concurrent requests; the node's probes need only a few.
const MAX_REQUESTS: usize = 16;

/// The result of one health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Name, the last segment of its path.
    pub name: &'static str,
    /// `Ok` with details (may be empty), or why it fails.
    pub result: Result<String, String>,
}

/// Source of the health checks. Must not block.
pub trait HealthSource: Send + Sync + std::fmt::Debug + 'static {
    /// Returns all checks, in display order. The server adds `ping` and `log`.
    fn checks(&self) -> Vec<HealthCheck>;

    /// Updates gauges that are computed only before a scrape.
    fn before_scrape(&self) {}
}

/// Opens the port. The caller adds the responsible setting to the error.
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
    health_response(&*health, None, query.as_deref())
}

async fn one(
    State(health): State<Arc<dyn HealthSource>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    health_response(&*health, Some(&name), query.as_deref())
}

/// Returns the response to `/healthz` or `/healthz/<name>`: 404 if there is no such check.
pub fn health_response(
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

/// Returns rendered metrics as a response.
pub fn metrics_response<E: std::fmt::Display>(rendered: Result<impl IntoResponse, E>) -> Response {
    match rendered {
        Ok(text) => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "rendering metrics failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Returns all checks. Any response implies `ping`, and `log`, as log lines are written
/// synchronously.
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
            Ok(detail) if detail.is_empty() => writeln!(text, "[+]{name} ok"),
            Ok(detail) => writeln!(text, "[+]{name} ok: {detail}"),
            Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
    }
    let (status, outcome) = match healthy {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
    };
    (status, format!("{text}{what} check {outcome}\n")).into_response()
}

#[cfg(test)]
mod tests;
