//! What is used: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.
//!
//! *bound* four scrapes of each port are worked on and sent at a time, so that many scrapers cost the
//! memory of four answers; the fifth waits for its turn, which comes: whatever hangs is waited for for
//! some seconds only, and who does not take an answer holds his place for [`MOST_SENDING`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use futures::{StreamExt, stream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use windlass_server::metrics_answer;
use windlass_stats::usage::{NodeUsage, PodUsage};
use windlass_stats::{StatsError, Summary, Wanted, cadvisor_metrics, resource_metrics};

use crate::NodeApi;
use crate::answer::{self, json};

/// A node has one or two scrapers; an answer for 250 pods takes at most a few megabytes.
const MAX_SCRAPES: usize = 4;
/// Scrapers give up after ten seconds or thirty; one that is stopped in the middle of an answer shall
/// not keep others from theirs for good.
const MOST_SENDING: Duration = Duration::from_secs(60);

/// The group.
pub(crate) fn routes() -> Router<NodeApi> {
    Router::new()
        .route("/stats/summary", get(summary).post(summary))
        .route("/metrics/resource", get(resource))
        .route("/metrics/cadvisor", get(cadvisor))
        .layer(from_fn_with_state(
            Arc::new(Semaphore::new(MAX_SCRAPES)),
            in_turn,
        ))
}

/// Has a scrape wait for its place, which it keeps until the last byte of its answer is written.
async fn in_turn(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let place = places.acquire_owned().await;
    let response = next.run(request).await;
    let (sending, sent) = oneshot::channel::<Infallible>();
    tokio::spawn(async move {
        drop(timeout(MOST_SENDING, sent).await);
        drop(place);
    });
    let sending = Arc::new(sending);
    response.map(|body| {
        let parts = body.into_data_stream().map(move |part| {
            part.map(|bytes| {
                Bytes::from_owner(Part {
                    bytes,
                    _sending: Arc::clone(&sending),
                })
            })
        });
        Body::from_stream(parts)
    })
}

/// A part of an answer: it is dropped when it is written, not when the connection has taken it.
struct Part {
    bytes: Bytes,
    _sending: Arc<oneshot::Sender<Infallible>>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
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
    let measured = measured.inspect_err(lacking).ok();
    // each family is made when the one before has been passed on
    let families = stream::iter(resource_metrics(measured)).then(|family| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(family)
    });
    metrics_answer(Ok::<_, Infallible>(Body::from_stream(families)))
}

async fn cadvisor(State(api): State<NodeApi>) -> Response {
    let measured = measured(&api, Wanted::ALL).await.ok();
    let measured = measured.as_ref().map(|(node, pods)| (node, &pods[..]));
    let text = cadvisor_metrics(&api.machine, measured);
    metrics_answer(Ok::<_, Infallible>(text))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scrape_keeps_its_place_until_its_answer_is_written_or_a_minute_has_passed() {
        let places = Arc::new(Semaphore::new(1));
        let routes = Router::new()
            .route("/", get(|| async { "figures" }))
            .layer(from_fn_with_state(places, in_turn));
        let ask = || routes.clone().oneshot(Request::new(Body::empty()));
        let mut parts = ask().await.expect("answer").into_body().into_data_stream();
        let part = parts.next().await.expect("a part").expect("bytes");
        assert_eq!(part, "figures");
        assert!(parts.next().await.is_none());
        drop(parts);
        // the connection has it, the client does not
        let half = Duration::from_secs(30);
        assert!(timeout(half, ask()).await.is_err());
        drop(part);
        let held = timeout(half, ask()).await.expect("the place is free");
        let begin = Instant::now();
        ask().await.expect("answer");
        assert_eq!(begin.elapsed(), MOST_SENDING);
        drop(held);
    }

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
