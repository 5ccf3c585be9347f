//! What is used: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.
//!
//! *bound* four scrapes of each port are worked on at a time, so that many scrapers cost the memory
//! of four answers; the fifth waits for its turn, which comes: whatever hangs is waited for for some
//! seconds only.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tower::limit::GlobalConcurrencyLimitLayer;
use windlass_server::metrics_answer;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, Summary, Wanted, cadvisor_metrics, resource_metrics};

use crate::NodeApi;
use crate::answer::{self, json};

/// A node has one or two scrapers; an answer for 250 pods takes at most a few megabytes.
const MAX_SCRAPES: usize = 4;

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/stats/summary", get(summary).post(summary))
        .route("/metrics/resource", get(resource))
        .route("/metrics/cadvisor", get(cadvisor))
        .layer(GlobalConcurrencyLimitLayer::new(MAX_SCRAPES))
}

async fn summary(State(api): State<NodeApi>, RawQuery(query): RawQuery) -> Response {
    let wanted = match only_cpu_and_memory(query.as_deref().unwrap_or("")) {
        true => Wanted::CPU_AND_MEMORY,
        false => Wanted::ALL,
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
async fn measured(api: &NodeApi, wanted: Wanted) -> Result<(NodeUsage, Vec<PodUsage>), StatsError> {
    let measured = tokio::try_join!(api.stats.node(wanted), api.stats.pods(wanted));
    measured.inspect_err(|error| tracing::warn!(%error, "a scrape has no figures"))
}

/// `true` and nothing else, said once, as upstream reads it; everything else asks for all.
fn only_cpu_and_memory(query: &str) -> bool {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut said = pairs.filter(|(name, _)| name == "only_cpu_and_memory");
    said.next().is_some_and(|(_, value)| value == "true") && said.next().is_none()
}

async fn resource(State(api): State<NodeApi>) -> Response {
    let measured = measured(&api, Wanted::CPU_AND_MEMORY).await.ok();
    let measured = measured.as_ref().map(|(node, pods)| (node, &pods[..]));
    text(resource_metrics(measured))
}

async fn cadvisor(State(api): State<NodeApi>) -> Response {
    let measured = measured(&api, Wanted::ALL).await.ok();
    let measured = measured.as_ref().map(|(node, pods)| (node, &pods[..]));
    text(cadvisor_metrics(&api.machine, measured))
}

fn text(text: String) -> Response {
    metrics_answer(Ok::<_, std::convert::Infallible>(text))
}

#[cfg(test)]
mod tests {
    use super::only_cpu_and_memory;

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
