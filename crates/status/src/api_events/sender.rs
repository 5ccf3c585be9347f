//! Empties the queue into the API server.

use std::time::Duration;

use windlass_client::{ApiClient, ApiError, ApiErrorKind, ApiResult, At, Patch};
use windlass_pod_status::event_series::{Correlated, EventSeries, Reporter};
use windlass_units::hash::fnv1a_64;
use windlass_types::corev1::Event;

use super::queue::EventQueue;

/// How often an event is tried (upstream's number): two minutes in all.
const TRIES: u32 = 12;
/// Time between two tries.
const RETRY_IN: Duration = Duration::from_secs(10);
/// The longest a server may ask to be left alone.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What sends the events of an [`super::ApiEvents`].
#[derive(Debug)]
pub struct EventSender {
    queue: EventQueue,
    series: EventSeries,
}

impl EventSender {
    pub(super) fn new(queue: EventQueue, node_name: &str) -> Self {
        let reporter = Reporter {
            host: node_name.to_owned(),
        };
        Self {
            queue,
            series: EventSeries::new(reporter),
        }
    }

    /// Sends what is recorded, for ever. One request is under way at a time; its deadline and the
    /// rate of events are the client's.
    pub async fn run(mut self, client: ApiClient) {
        loop {
            let occurrence = self.queue.next().await;
            let correlated = self.series.observe(occurrence);
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

/// Tries until the event is stored, is refused, or has been tried often enough.
async fn deliver(client: &ApiClient, event: &Event, patch: Option<serde_json::Value>) {
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let patch = patch.map(Patch::StrategicMerge);
    for tries in 1..=TRIES {
        let error = match store(client, event, patch.as_ref()).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if !is_worth_another_try(&error) {
            // an event that exists is one whose answer was lost
            if error.kind != ApiErrorKind::AlreadyExists {
                tracing::warn!(%error, event = name, "the API server refused an event");
            }
            return;
        }
        if tries == 1 {
            tracing::info!(%error, event = name, "event not sent, trying again");
        }
        tokio::time::sleep(delay(tries, name, error.retry_after)).await;
    }
    tracing::warn!(event = name, tries = TRIES, "event given up");
}

/// Patches the event, or creates it if it is new or no longer there.
async fn store(client: &ApiClient, event: &Event, patch: Option<&Patch>) -> ApiResult<()> {
    let name = event.metadata.name.as_deref().unwrap_or_default();
    let namespace = event.metadata.namespace.as_deref();
    if let Some(patch) = patch {
        let at = At { namespace, name };
        match client.patch::<Event>(at, None, patch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind == ApiErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    client.create(namespace, event).await.map(drop)
}

/// A server that answers with a refusal would give the same answer again: the event is wrong, not
/// allowed, or its namespace is going away. Expired credentials are replaced meanwhile.
fn is_worth_another_try(error: &ApiError) -> bool {
    error.is_unreachable()
        || matches!(
            error.kind,
            ApiErrorKind::Server | ApiErrorKind::TooManyRequests | ApiErrorKind::Unauthorized
        )
}

/// The first wait is a part of the full one, by the event's name: the nodes of a cluster do not
/// come back all at once.
fn delay(tries: u32, name: &str, asked: Option<Duration>) -> Duration {
    let full = RETRY_IN.max(asked.unwrap_or_default().min(LONGEST_WAIT));
    if tries > 1 || asked.is_some() {
        return full;
    }
    let share = fnv1a_64(name.as_bytes()) % 1000;
    full * u32::try_from(share).unwrap_or(0) / 1000
}
