//! Runtime events: a container or sandbox changed.
//!
//! The CRI event stream is tried first. A runtime without it (containerd before 1.7) may have
//! containerd's event service on the same socket; its events carry no pod UID.
//! Go servers send no headers before the first event, so an open stream looks like a pending one:
//! it counts as open after [`SETTLE_TIME`], and an error becomes its first item.
//!
//! containerd sends an exit event 30 to 200 ms (measured) before its CRI plugin reports the exit.
//! An inspection in that time would miss the exit until the next relist, so an exit event waits
//! until the plugin's list shows it (see [`confirm`]).

use std::time::Duration;

use futures::{Stream, StreamExt, TryFutureExt};
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use windlass_proto::containerd_events::service::events_client::EventsClient;
use windlass_proto::containerd_events::service::{Envelope, SubscribeRequest};
use windlass_proto::{containerd_events as ctd, cri_v1 as pb};
use windlass_types::ContainerState;
use windlass_types::cri::{ListFilter, RuntimeEvent, RuntimeEventKind};

use crate::client::CriClient;
use crate::convert;
use crate::error::{CriCode, CriError, CriResult};
use crate::port::{RuntimeEventStream, RuntimeService};

const OPERATION: &str = "get_container_events";
/// containerd namespace of the CRI plugin's containers.
const NAMESPACE: &str = "k8s.io";
/// A server that rejects the request answers faster; after this time the stream counts as open.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Both filters exclude exec probes and other containerd clients.
const FILTERS: [&str; 2] = [
    r#"namespace==k8s.io,topic~="^/tasks/(start|oom|delete)$""#,
    r#"namespace==k8s.io,topic~="^/containers/(create|delete)$""#,
];

/// Maximum number of events that wait for the CRI plugin; further ones wait on the connection, not
/// in memory. More than one node stops or starts within a second.
const MAX_CONCURRENT_CONFIRMATIONS: usize = 64;
/// Reads of the plugin's list per event; the delays between them double from 1 ms, 1 s in all.
const CONFIRM_ATTEMPTS: u32 = 10;
/// Maximum time that an event waits.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(1500);

/// Opens the stream; see [`crate::RuntimeService::events`].
pub(crate) async fn subscribe(client: &CriClient) -> CriResult<RuntimeEventStream> {
    let started = Instant::now();
    let mut opening = Box::pin(open(client.clone()));
    let result = match tokio::time::timeout(SETTLE_TIME, &mut opening).await {
        Ok(result) => result,
        Err(_) => Ok(opening.try_flatten_stream().boxed()),
    };
    client.observe(OPERATION, started, result.is_err());
    result.map(|stream| until_error(stream).boxed())
}

/// Ends the stream with its first error: later items of a broken transport are meaningless.
fn until_error(stream: RuntimeEventStream) -> impl Stream<Item = CriResult<RuntimeEvent>> {
    stream.scan(false, |failed, item| {
        let item = (!*failed).then_some(item);
        *failed |= matches!(item, Some(Err(_)));
        std::future::ready(item)
    })
}

async fn open(client: CriClient) -> CriResult<RuntimeEventStream> {
    match open_cri(&client).await {
        Err(error) if error.code == CriCode::Unimplemented => {
            tracing::info!(reason = %error.message, "no CRI event stream, trying containerd's");
        }
        result => return result,
    }
    open_containerd(&client).await
}

async fn open_cri(client: &CriClient) -> CriResult<RuntimeEventStream> {
    let stream = client
        .runtime()
        .get_container_events(pb::GetEventsRequest {})
        .await
        .map_err(|status| CriError::from_status(OPERATION, &status))?
        .into_inner();
    Ok(stream
        .map(|item| match item {
            Ok(event) => Ok(convert::event_from_pb(event)),
            Err(status) => Err(CriError::from_status(OPERATION, &status)),
        })
        .boxed())
}

async fn open_containerd(client: &CriClient) -> CriResult<RuntimeEventStream> {
    let mut request = tonic::Request::new(SubscribeRequest {
        filters: FILTERS.map(str::to_owned).to_vec(),
    });
    request.metadata_mut().insert(
        "containerd-namespace",
        MetadataValue::from_static(NAMESPACE),
    );
    let stream = EventsClient::new(client.channel())
        .subscribe(request)
        .await
        .map_err(|status| CriError::from_status(OPERATION, &status))?
        .into_inner();
    let client = client.clone();
    Ok(stream
        .filter_map(|item| async {
            match item {
                Ok(envelope) => event_from_envelope(&envelope).map(Ok),
                Err(status) => Some(Err(CriError::from_status(OPERATION, &status))),
            }
        })
        .map(move |item| confirm(client.clone(), item))
        .buffer_unordered(MAX_CONCURRENT_CONFIRMATIONS)
        .boxed())
}

/// Delays the event of an exit until the CRI plugin shows the exit, or until the timeout. Start
/// events are not confirmed: the agent inspects a pod after it started a container.
async fn confirm(client: CriClient, item: CriResult<RuntimeEvent>) -> CriResult<RuntimeEvent> {
    let event = item?;
    if !matches!(
        event.kind,
        RuntimeEventKind::Stopped | RuntimeEventKind::Deleted
    ) {
        return Ok(event);
    }
    let agreed = async {
        for attempt in 0..CONFIRM_ATTEMPTS {
            match cri_state(&client, &event.id).await {
                Ok(state) if !agrees(event.kind, state) => {
                    tokio::time::sleep(Duration::from_millis(1 << attempt)).await;
                }
                // the inspection meets the same error and can handle it
                Ok(_) | Err(_) => return,
            }
        }
    };
    // a hung list must not delay the events of other containers
    let _ = tokio::time::timeout(CONFIRM_TIMEOUT, agreed).await;
    Ok(event)
}

/// State of a container or sandbox in the CRI plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CriState {
    Absent,
    Created,
    Live,
    Ended,
}

/// Reads the state from lists: an unknown ID is not an error there.
async fn cri_state(client: &CriClient, id: &str) -> CriResult<CriState> {
    let filter = ListFilter {
        id: Some(id.to_owned()),
        ..ListFilter::default()
    };
    if let Some(container) = client.list_containers(&filter).await?.first() {
        return Ok(match container.state {
            ContainerState::Created => CriState::Created,
            ContainerState::Running | ContainerState::Unknown => CriState::Live,
            ContainerState::Exited => CriState::Ended,
        });
    }
    Ok(match client.list_pod_sandboxes(&filter).await?.first() {
        Some(sandbox) if sandbox.ready => CriState::Live,
        Some(_) => CriState::Ended,
        None => CriState::Absent,
    })
}

fn agrees(kind: RuntimeEventKind, state: CriState) -> bool {
    match kind {
        RuntimeEventKind::Created | RuntimeEventKind::Started | RuntimeEventKind::Oom => true,
        RuntimeEventKind::Stopped => matches!(state, CriState::Ended | CriState::Absent),
        RuntimeEventKind::Deleted => state == CriState::Absent,
    }
}

/// Converts a containerd event; `None` for events that are unrelated to the state of a container.
///
/// The end of a container is `TaskDelete`, sent after containerd has cleaned up the process; the
/// CRI plugin shows the exit only after that, not after `TaskExit`.
fn event_from_envelope(envelope: &Envelope) -> Option<RuntimeEvent> {
    if envelope.namespace != NAMESPACE {
        return None;
    }
    let any = envelope.event.as_ref()?;
    // containerd sends no prefix; type.googleapis.com/ is legal too
    let name = any.type_url.rsplit('/').next()?;
    let bytes = any.value.as_slice();
    let (kind, id) = match name {
        "containerd.events.ContainerCreate" => (
            RuntimeEventKind::Created,
            decode::<ctd::ContainerCreate>(name, bytes)?.id,
        ),
        "containerd.events.ContainerDelete" => (
            RuntimeEventKind::Deleted,
            decode::<ctd::ContainerDelete>(name, bytes)?.id,
        ),
        "containerd.events.TaskStart" => (
            RuntimeEventKind::Started,
            decode::<ctd::TaskStart>(name, bytes)?.container_id,
        ),
        "containerd.events.TaskOOM" => (
            RuntimeEventKind::Oom,
            decode::<ctd::TaskOom>(name, bytes)?.container_id,
        ),
        "containerd.events.TaskDelete" => {
            let delete = decode::<ctd::TaskDelete>(name, bytes)?;
            // an exec in the container has its own ID
            if !delete.id.is_empty() && delete.id != delete.container_id {
                return None;
            }
            (RuntimeEventKind::Stopped, delete.container_id)
        }
        _ => return None,
    };
    Some(RuntimeEvent {
        kind,
        id,
        uid: None,
    })
}

fn decode<M: Message + Default>(name: &str, bytes: &[u8]) -> Option<M> {
    M::decode(bytes)
        .inspect_err(|error| tracing::warn!(event = name, %error, "undecodable containerd event"))
        .ok()
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::Any;
    use windlass_proto::containerd_events as ctd;
    use windlass_proto::containerd_events::service::Envelope;

    use windlass_types::cri::RuntimeEventKind;

    use super::{CriState, agrees, event_from_envelope};

    #[track_caller]
    fn check(namespace: &str, type_url: &str, message: &impl Message, expected: &str) {
        let envelope = Envelope {
            timestamp: None,
            namespace: namespace.into(),
            topic: String::new(),
            event: Some(Any {
                type_url: type_url.into(),
                value: message.encode_to_vec(),
            }),
        };
        let line = match event_from_envelope(&envelope) {
            Some(event) => format!("{:?} {} {:?}", event.kind, event.id, event.uid),
            None => "nothing".to_owned(),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn containerd_events_are_converted_and_exec_events_dropped() {
        let create = ctd::ContainerCreate {
            id: "c".into(),
            image: "i".into(),
        };
        let delete = ctd::ContainerDelete { id: "c".into() };
        let start = ctd::TaskStart {
            container_id: "c".into(),
            pid: 1,
        };
        let oom = ctd::TaskOom {
            container_id: "c".into(),
        };
        let exit = ctd::TaskExit {
            container_id: "c".into(),
            id: "c".into(),
            ..Default::default()
        };
        let task_delete = |id: &str| ctd::TaskDelete {
            container_id: "c".into(),
            id: id.into(),
            ..Default::default()
        };
        check(
            "k8s.io",
            "containerd.events.ContainerCreate",
            &create,
            "Created c None",
        );
        check(
            "k8s.io",
            "containerd.events.ContainerDelete",
            &delete,
            "Deleted c None",
        );
        check(
            "k8s.io",
            "containerd.events.TaskStart",
            &start,
            "Started c None",
        );
        check(
            "k8s.io",
            "type.googleapis.com/containerd.events.TaskOOM",
            &oom,
            "Oom c None",
        );
        check("k8s.io", "containerd.events.TaskExit", &exit, "nothing");
        check(
            "k8s.io",
            "containerd.events.TaskDelete",
            &task_delete(""),
            "Stopped c None",
        );
        check(
            "k8s.io",
            "containerd.events.TaskDelete",
            &task_delete("exec-1"),
            "nothing",
        );
        check("k8s.io", "containerd.events.TaskPaused", &start, "nothing");
        check("moby", "containerd.events.TaskStart", &start, "nothing");
        check("k8s.io", "containerd.events.TaskStart", &7_u64, "nothing");
    }

    #[test]
    fn event_waits_for_the_cri_plugin_to_agree() {
        use RuntimeEventKind::{Created, Deleted, Oom, Started, Stopped};
        // what agrees with everything is passed on without asking
        let all = [
            CriState::Absent,
            CriState::Created,
            CriState::Live,
            CriState::Ended,
        ];
        for (kind, expected) in [
            (Created, "Absent Created Live Ended"),
            (Oom, "Absent Created Live Ended"),
            (Started, "Absent Created Live Ended"),
            (Stopped, "Absent Ended"),
            (Deleted, "Absent"),
        ] {
            let agreed = all.into_iter().filter(|state| agrees(kind, *state));
            let line = agreed
                .map(|state| format!("{state:?}"))
                .collect::<Vec<_>>()
                .join(" ");
            assert_eq!(line, expected, "{kind:?}");
        }
    }
}
