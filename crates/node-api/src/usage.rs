//! What is used: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.
//!
//! *bound* see [`turns`].

mod turns;

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::get;
use futures::{StreamExt, stream};
use windlass_server::metrics_response;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, Summary, StatsSelection, cadvisor_metrics, resource_metrics};

use crate::NodeApi;
use crate::answer::{self, json};
pub(crate) use turns::{Turns, in_turn};

/// The group.
pub(crate) fn routes(turns: Turns) -> Router<NodeApi> {
    Router::new()
        .route("/stats/summary", get(summary).post(summary))
        .route("/metrics/resource", get(resource))
        .route("/metrics/cadvisor", get(cadvisor))
        .layer(from_fn_with_state(turns, in_turn))
}

async fn summary(State(api): State<NodeApi>, RawQuery(query): RawQuery) -> Response {
    let wanted = match only_cpu_and_memory(query.as_deref().unwrap_or("")) {
        true => StatsSelection::CPU_AND_MEMORY,
        false => StatsSelection::ALL,
    };
    match measured(&api, wanted).await {
        Ok((node, pods)) => json(&Summary::new(&api.node_name, node, pods)),
        // upstream's `handleError`
        Err(error) => answer::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("Internal Error: {error}"),
        ),
    }
}

/// Node and pods, measured at the same time.
async fn measured(api: &NodeApi, wanted: StatsSelection) -> Result<(NodeUsage, Vec<PodUsage>), StatsError> {
    let measured = tokio::try_join!(api.stats.node(wanted), api.stats.pods(wanted));
    measured.inspect_err(lacking)
}

fn lacking(error: &StatsError) {
    tracing::warn!(%error, "a scrape has no figures");
}

/// `true` and nothing else, said once, as upstream reads it; everything else asks for all.
fn only_cpu_and_memory(query: &str) -> bool {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut said = pairs.filter(|(name, _)| name == "only_cpu_and_memory");
    said.next().is_some_and(|(_, value)| value == "true") && said.next().is_none()
}

async fn resource(State(api): State<NodeApi>) -> Response {
    let measured = api.stats.resource().await;
    in_parts(resource_metrics(measured.inspect_err(lacking).ok()))
}

async fn cadvisor(State(api): State<NodeApi>) -> Response {
    let measured = measured(&api, StatsSelection::ALL).await.ok();
    in_parts(cadvisor_metrics(&api.machine, measured))
}

/// Each part is made when the one before has been passed on.
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
    fn the_query_asks_for_less() {
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
