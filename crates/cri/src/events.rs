//! Hints from the runtime that a container or sandbox changed.
//!
//! CRI's own stream comes first. A runtime that lacks it (containerd before 1.7) may be
//! containerd, whose event service answers on the same socket; its events carry no pod UID.
//! Servers written in Go send no headers before the first event, so an open stream cannot be told
//! from one being opened: after [`SETTLE`] it counts as open, and a refusal becomes its first item.

use std::time::Duration;

use futures::{StreamExt, TryFutureExt};
use prost::Message;
use tokio::time::Instant;
use tonic::metadata::MetadataValue;
use windlass_proto::containerd_events::service::events_client::EventsClient;
use windlass_proto::containerd_events::service::{Envelope, SubscribeRequest};
use windlass_proto::{containerd_events as ctd, cri_v1 as pb};
use windlass_types::cri::{RuntimeEvent, RuntimeEventKind};

use crate::client::CriClient;
use crate::convert;
use crate::error::{CriCode, CriError, CriResult};
use crate::port::RuntimeEventStream;

const OPERATION: &str = "get_container_events";
/// containerd namespace of everything that its CRI plugin runs.
const NAMESPACE: &str = "k8s.io";
/// A server that refuses does so at once; one that is silent this long has accepted.
const SETTLE: Duration = Duration::from_millis(500);
/// Both filters also keep the events of exec probes and of other containerd clients away.
const FILTERS: [&str; 2] = [
    r#"namespace==k8s.io,topic~="^/tasks/(start|exit|oom|delete)$""#,
    r#"namespace==k8s.io,topic~="^/containers/(create|delete)$""#,
];

/// Opens the stream; see [`crate::RuntimeService::events`].
pub(crate) async fn subscribe(client: &CriClient) -> CriResult<RuntimeEventStream> {
    let started = Instant::now();
    let mut opening = Box::pin(open(client.clone()));
    let result = match tokio::time::timeout(SETTLE, &mut opening).await {
        Ok(result) => result,
        Err(_) => Ok(opening.try_flatten_stream().boxed()),
    };
    client.observe(OPERATION, started, result.is_err());
    result
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
    Ok(stream
        .filter_map(|item| async {
            match item {
                Ok(envelope) => event_from_envelope(&envelope).map(Ok),
                Err(status) => Some(Err(CriError::from_status(OPERATION, &status))),
            }
        })
        .boxed())
}

/// One containerd event as a hint; `None` for what says nothing about a container's life.
///
/// An exit is told twice, when the process ends and when containerd has cleaned up after it:
/// the CRI plugin updates its own state between the two or shortly after, so that a reader woken
/// by the first alone could still see the container running.
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
        "containerd.events.TaskExit" => {
            let exit = decode::<ctd::TaskExit>(name, bytes)?;
            own_process(exit.container_id, &exit.id)?
        }
        "containerd.events.TaskDelete" => {
            let delete = decode::<ctd::TaskDelete>(name, bytes)?;
            own_process(delete.container_id, &delete.id)?
        }
        _ => return None,
    };
    Some(RuntimeEvent {
        kind,
        id,
        uid: None,
    })
}

/// The end of a container's own process; the end of an exec in it is nobody's business here.
fn own_process(container: String, process: &str) -> Option<(RuntimeEventKind, String)> {
    (process.is_empty() || process == container).then_some((RuntimeEventKind::Stopped, container))
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

    use super::event_from_envelope;

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
        let exit = |id: &str| ctd::TaskExit {
            container_id: "c".into(),
            id: id.into(),
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
        check(
            "k8s.io",
            "containerd.events.TaskExit",
            &exit("c"),
            "Stopped c None",
        );
        check(
            "k8s.io",
            "containerd.events.TaskExit",
            &exit("exec-1"),
            "nothing",
        );
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
        check(
            "k8s.io",
            "containerd.events.TaskStart",
            &"not that message".to_owned(),
            "nothing",
        );
    }
}
