//! CRI reads: the relist and the inspection of one pod, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{try_join_all, try_join3};
use tokio_util::sync::CancellationToken;
use windlass_actors::RuntimeName;
use windlass_cri::{CriCode, CriError, CriResult, RuntimeLoad, RuntimeService};
use windlass_mailboxes::{CompletionSender, SlotSender};
use windlass_pod_lifecycle::pleg::{RuntimePods, observe};
use windlass_types::cri::{ContainerDetail, ContainerSummary, ListFilter, RuntimeEvent};
use windlass_types::{Clock, ObservedPod, PodUid};

use crate::actor::{Completion, PendingEvent};

/// Timeout of an inspection, besides the expected delay of the calls in flight. It is retried later
/// and does not affect other pods.
const INSPECT_DEADLINE: Duration = Duration::from_secs(10);
/// Timeout of a relist, which reads two lists.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Back-off before the event stream is reopened: 100 ms doubling to 5 s.
const MIN_RECONNECT: Duration = Duration::from_millis(100);
const MAX_RECONNECT: Duration = Duration::from_secs(5);

/// Lists all sandboxes and containers.
pub(crate) async fn list(
    runtime: &dyn RuntimeService,
    name: &RuntimeName,
) -> CriResult<RuntimePods> {
    let all = ListFilter::default();
    let reads = try_join3(
        ensure_name(runtime, name),
        runtime.list_pod_sandboxes(&all),
        runtime.list_containers(&all),
    );
    let ((), sandboxes, containers) = within(LIST_DEADLINE, "list", reads).await?;
    Ok(RuntimePods::new(sandboxes, containers))
}

/// Observed state of one pod.
#[derive(Debug)]
pub struct Inspection {
    /// The pod in detail.
    pub pod: ObservedPod,
    /// Summary for the comparison with the next relist.
    pub summary: RuntimePods,
}

/// Reads one pod in detail.
pub(crate) async fn inspect(
    runtime: &dyn RuntimeService,
    clock: &dyn Clock,
    name: &RuntimeName,
    load: &RuntimeLoad,
    uid: &PodUid,
) -> CriResult<Inspection> {
    // two sequential calls, each behind those in flight
    let deadline = INSPECT_DEADLINE.saturating_add(load.expected_delay().saturating_mul(2));
    let read = read_pod(runtime, clock, name, uid);
    within(deadline, "inspect", read).await
}

/// Reads the runtime's name unless it is known: container statuses contain it.
async fn ensure_name(runtime: &dyn RuntimeService, name: &RuntimeName) -> CriResult<()> {
    if name.get().is_none() {
        name.set(runtime.version().await?.name);
    }
    Ok(())
}

async fn read_pod(
    runtime: &dyn RuntimeService,
    clock: &dyn Clock,
    name: &RuntimeName,
    uid: &PodUid,
) -> CriResult<Inspection> {
    let observed_at = clock.now();
    let of_pod = ListFilter::of_pod(uid);
    let ((), sandboxes, containers) = try_join3(
        ensure_name(runtime, name),
        runtime.list_pod_sandboxes(&of_pod),
        runtime.list_containers(&of_pod),
    )
    .await?;
    let sandbox_details = try_join_all(
        sandboxes
            .iter()
            .map(|s| found(runtime.pod_sandbox_status(&s.id))),
    );
    let container_details = try_join_all(containers.iter().map(|c| container(runtime, c)));
    let (sandbox_details, container_details) =
        futures::future::try_join(sandbox_details, container_details).await?;
    let pod = observe(
        uid,
        sandbox_details.into_iter().flatten().collect(),
        container_details.into_iter().flatten().collect(),
        observed_at,
    );
    Ok(Inspection {
        pod,
        summary: RuntimePods::new(sandboxes, containers),
    })
}

/// One container in detail, with the sandbox ID from the list: the status does not have it.
async fn container(
    runtime: &dyn RuntimeService,
    summary: &ContainerSummary,
) -> CriResult<Option<ContainerDetail>> {
    let detail = found(runtime.container_status(&summary.id)).await?;
    Ok(detail.map(|mut detail| {
        detail.observed.sandbox_id = summary.sandbox_id.clone();
        detail
    }))
}

/// Finds the pod of a container that no relist has shown yet.
pub(crate) async fn owner_of(runtime: &dyn RuntimeService, id: &str) -> CriResult<Option<PodUid>> {
    let filter = ListFilter {
        id: Some(id.to_owned()),
        ..ListFilter::default()
    };
    let containers = within(INSPECT_DEADLINE, "list", runtime.list_containers(&filter)).await?;
    Ok(containers
        .into_iter()
        .map(|c| c.uid)
        .find(|uid| !uid.as_str().is_empty()))
}

/// Returns `None` for an object that was removed after the list.
async fn found<T>(read: impl Future<Output = CriResult<T>>) -> CriResult<Option<T>> {
    match read.await {
        Ok(detail) => Ok(Some(detail)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn within<T>(
    limit: Duration,
    operation: &'static str,
    read: impl Future<Output = CriResult<T>>,
) -> CriResult<T> {
    tokio::time::timeout(limit, read).await.unwrap_or_else(|_| {
        let message = format!("no response within {} s", limit.as_secs());
        Err(CriError::new(operation, CriCode::DeadlineExceeded, message))
    })
}

/// Keeps the runtime's event stream open and forwards its events, until cancelled.
pub(crate) async fn follow_events(
    runtime: Arc<dyn RuntimeService>,
    pending_events: SlotSender<String, PendingEvent>,
    completions: CompletionSender<Completion>,
    cancel: CancellationToken,
) {
    let mut delay = MIN_RECONNECT;
    loop {
        let opened = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            opened = runtime.events() => opened,
        };
        match opened {
            Ok(mut stream) => {
                completions.send(Completion::EventStream { open: true });
                loop {
                    let event = tokio::select! {
                        biased;
                        () = cancel.cancelled() => return,
                        event = stream.next() => event,
                    };
                    match event {
                        Some(Ok(event)) => {
                            delay = MIN_RECONNECT;
                            put_event(&pending_events, event);
                        }
                        Some(Err(error)) => {
                            tracing::info!(%error, "runtime event stream lost");
                            break;
                        }
                        None => break,
                    }
                }
                completions.send(Completion::EventStream { open: false });
            }
            Err(error) if error.code == CriCode::Unimplemented => {
                tracing::info!("runtime has no event stream, relisting every second");
                return;
            }
            Err(error) => tracing::debug!(%error, "runtime event stream not opened"),
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(delay) => {}
        }
        delay = (delay * 2).min(MAX_RECONNECT);
    }
}

fn put_event(pending_events: &SlotSender<String, PendingEvent>, event: RuntimeEvent) {
    pending_events.put(
        event.id,
        PendingEvent {
            kinds: vec![event.kind],
            uid: event.uid,
        },
    );
}
