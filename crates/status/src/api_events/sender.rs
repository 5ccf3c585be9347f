//! Sends queued events to the API server.

use std::time::Duration;

use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiResult, ObjectKey, Patch};
use windlass_pod_status::event_correlator::{Correlated, EventCorrelator, Reporter};
use windlass_types::corev1::Event;
use windlass_units::hash::fnv1a_64;

use super::queue::EventQueue;

/// Maximum number of attempts per event, as upstream: 2 minutes in total.
const MAX_ATTEMPTS: u32 = 12;
/// Interval between attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Sender of the events of an [`super::ApiEvents`].
#[derive(Debug)]
pub struct EventSender {
    queue: EventQueue,
    series: EventCorrelator,
}

impl EventSender {
    pub(super) fn new(queue: EventQueue, node_name: &str) -> Self {
        let reporter = Reporter {
            host: node_name.to_owned(),
        };
        Self {
            queue,
            series: EventCorrelator::new(reporter),
        }
    }

    /// Sends events one by one, without end. The client enforces deadline and rate limit.
    pub async fn run(mut self, client: ApiClient) {
        loop {
            let occurrence = self.queue.next().await;
            let correlated = self.series.correlate(occurrence);
            tracing::debug!(decision = %correlated, "event");
            match correlated {
                Correlated::Dropped => {}
                Correlated::Create(event) => deliver(&client, &event, None).await,
                Correlated::Count { event, patch } => {
                    deliver(&client, &event, Some(patch)).await;
                }
            }
        }
    }
}

/// Retries until the event is stored or rejected, at most [`MAX_ATTEMPTS`] times.
async fn deliver(client: &ApiClient, event: &Event, patch: Option<serde_json::Value>) {
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let patch = patch.map(Patch::StrategicMerge);
    for attempt in 1..=MAX_ATTEMPTS {
        let error = match store(client, event, patch.as_ref()).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if !is_retryable(&error) {
            // an existing event is one whose response was lost
            if error.kind != ApiErrorKind::AlreadyExists {
                tracing::warn!(%error, event = name, "event rejected by the API server");
            }
            return;
        }
        if attempt == 1 {
            tracing::info!(%error, event = name, "sending event failed, retrying");
        }
        tokio::time::sleep(delay(attempt, name, error.retry_after)).await;
    }
    tracing::warn!(
        event = name,
        attempts = MAX_ATTEMPTS,
        "event dropped after retries"
    );
}

/// Patches the event, or creates it if it is new or has expired.
async fn store(client: &ApiClient, event: &Event, patch: Option<&Patch>) -> ApiResult<()> {
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let namespace = event.metadata.namespace.as_deref();
    if let Some(patch) = patch {
        let at = ObjectKey { namespace, name };
        match client.patch::<Event>(at, None, patch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == ApiErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    client.create(namespace, event).await.map(drop)
}

/// True for transient errors. A rejection is final, except for credentials, which are renewed.
fn is_retryable(error: &ApiError) -> bool {
    error.is_unreachable()
        || matches!(
            error.kind,
            ApiErrorKind::Server | ApiErrorKind::TooManyRequests | ApiErrorKind::Unauthorized
        )
}

/// Returns the delay before the next attempt. The first delay has jitter derived from the event
/// name.
fn delay(attempt: u32, name: &str, retry_after: Option<Duration>) -> Duration {
    let full = RETRY_INTERVAL.max(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER));
    if attempt > 1 || retry_after.is_some() {
        return full;
    }
    let share = fnv1a_64(name.as_bytes()) % 1000;
    full * u32::try_from(share).unwrap_or(0) / 1000
}
