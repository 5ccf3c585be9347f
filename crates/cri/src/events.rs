//! Hints from the runtime that a container or sandbox changed.
//!
//! CRI's own stream comes first. A runtime that lacks it (containerd before 1.7) may be
//! containerd, whose event service answers on the same socket; its events carry no pod UID.
//! Servers written in Go send no headers before the first event, so an open stream cannot be told
//! from one being opened: after [`SETTLE_TIME`] it counts as open, and a refusal becomes its first item.
//!
//! containerd tells of an event before its CRI plugin has taken note of it: for an exit that is
//! measured at 30 to 200 ms, in which the container is still reported as running. A hint that is
//! answered too early would be lost until the next relist, so that of an end waits until the plugin's
//! own list agrees with it (see [`confirm`]).

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
/// containerd namespace of everything that its CRI plugin runs.
const NAMESPACE: &str = "k8s.io";
/// A server that refuses does so at once; one that is silent this long has accepted.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Both filters also keep the events of exec probes and of other containerd clients away.
const FILTERS: [&str; 2] = [
    r#"namespace==k8s.io,topic~="^/tasks/(start|oom|delete)$""#,
    r#"namespace==k8s.io,topic~="^/containers/(create|delete)$""#,
];

/// Hints that wait for the CRI plugin at once. More wait on the connection, not in memory: the
/// bound is above what one node stops or starts within the second that a hint may wait.
const MAX_CONCURRENT_CONFIRMATIONS: usize = 64;
/// Looks at the plugin's list per hint; the waits between them double from 1 ms, 1 s in all.
const CONFIRM_ATTEMPTS: u32 = 10;
/// The longest that a hint waits, whatever the lists do.
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

/// The first error is the end: what a broken transport says after it means nothing.
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

/// Holds the hint of an end back until the CRI plugin agrees with it, or until it has had its
/// time. A start is not worth the calls: whoever starts a container looks at it afterwards.
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
                // Whoever takes the hint meets an error where it can be handled.
                Ok(_) | Err(_) => return,
            }
        }
    };
    // A list that hangs must not hold back the hints of other containers.
    let _ = tokio::time::timeout(CONFIRM_TIMEOUT, agreed).await;
    Ok(event)
}

/// What the CRI plugin says of a container or sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CriState {
    Absent,
    Created,
    Live,
    Ended,
}

/// Asks the lists rather than for a status: an ID that is not there is then no error.
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

/// One containerd event as a hint; `None` for what says nothing about a container's life.
///
/// The end of a container is `TaskDelete`, when containerd has cleaned up after the process:
/// the CRI plugin takes note only after that, so that `TaskExit` would wait for nothing.
fn event_from_envelope(envelope: &Envelope) -> Option<RuntimeEvent> {
    if envelope.namespace != NAMESPACE {
        return None;
    }
    let any = envelope.event.as_ref()?;
    // Written bare by containerd; a prefix such as type.googleapis.com/ is legal too.
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
            // An exec in the container has an ID of its own.
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
    fn containerd_events_become_hints_and_execs_become_nothing() {
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
    fn a_hint_waits_for_the_plugin_to_agree() {
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
