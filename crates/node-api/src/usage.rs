//! Usage: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.
//!
//! *bound* see [`limit`].

mod limit;

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use futures::{StreamExt, stream};
use windlass_health::metrics_response;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, StatsSelection, Summary, cadvisor_metrics, resource_metrics};

use crate::NodeApi;
use crate::answer::{self, json};
pub(crate) use limit::{ScrapeLimiter, limit_scrapes};

pub(crate) fn routes(limiter: ScrapeLimiter) -> Router<NodeApi> {
    Router::new()
        .route("/stats/summary", get(summary).post(summary))
        .route("/metrics/resource", get(resource))
        .route("/metrics/cadvisor", get(cadvisor))
        .layer(from_fn_with_state(limiter, limit_scrapes))
}

async fn summary(State(api): State<NodeApi>, RawQuery(query): RawQuery) -> Response {
    let selection = match only_cpu_and_memory(query.as_deref().unwrap_or("")) {
        true => StatsSelection::CPU_AND_MEMORY,
        false => StatsSelection::ALL,
    };
    match collect(&api, selection).await {
        Ok((node, pods)) => json(&Summary::new(&api.node_name, node, pods)),
        // upstream `handleError`
        Err(error) => answer::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Internal Error: {error}"),
        ),
    }
}

/// Returns the usage of node and pods, collected concurrently.
async fn collect(
    api: &NodeApi,
    selection: StatsSelection,
) -> Result<(NodeUsage, Vec<PodUsage>), StatsError> {
    let measured = tokio::try_join!(api.stats.node(selection), api.stats.pods(selection));
    measured.inspect_err(log_failure)
}

fn log_failure(error: &StatsError) {
    tracing::warn!(%error, "scrape failed: stats unavailable");
}

/// Returns whether the parameter occurs once with the value `true`, as upstream; otherwise
/// everything is collected.
fn only_cpu_and_memory(query: &str) -> bool {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut values = pairs.filter(|(name, _)| name == "only_cpu_and_memory");
    values.next().is_some_and(|(_, value)| value == "true") && values.next().is_none()
}

async fn resource(State(api): State<NodeApi>) -> Response {
    let measured = api.stats.resource().await;
    in_parts(resource_metrics(measured.inspect_err(log_failure).ok()))
}

async fn cadvisor(State(api): State<NodeApi>) -> Response {
    let measured = collect(&api, StatsSelection::ALL).await.ok();
    in_parts(cadvisor_metrics(&api.machine, measured))
}

/// Produces each part after the last one was passed on.
fn in_parts(parts: impl Iterator<Item = String> + Send + 'static) -> Response {
    let parts = stream::iter(parts).then(|part| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(part)
    });
    metrics_response(Ok::<_, Infallible>(Body::from_stream(parts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpu_and_memory_query_is_parsed() {
        #[rustfmt::skip]
        let cases = [
            ("", false), ("only_cpu_and_memory=true", true), ("a=b&only_cpu_and_memory=true", true),
            ("only_cpu_and_memory=1", false), ("only_cpu_and_memory=True", false),
            ("only_cpu_and_memory=true&only_cpu_and_memory=true", false),
            ("only_cpu_and_memory=false", false), ("only_cpu_and_memory", false), ("%ff=%ff", false),
        ];
        for (query, expected) in cases {
            assert_eq!(only_cpu_and_memory(query), expected, "{query}");
        }
    }
}
