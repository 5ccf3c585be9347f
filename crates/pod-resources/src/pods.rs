//! The Pods API: the node's pods with the statuses of this agent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use windlass_node_proto::pods_v1alpha1::pods_server::Pods as PodsService;
use windlass_node_proto::pods_v1alpha1::{
    EventType, GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, WatchPodsEvent,
    WatchPodsRequest,
};
use windlass_status::{PodStatusEntry, PodStatusStore, StatusSubscription};
use windlass_types::corev1::{Pod, PodStatus};
use windlass_types::{PodExt, PodUid, SharedPod};

use crate::pod_bytes::pod_bytes;
use crate::service::RequestLimiter;

/// The Pods service.
#[derive(Clone, Debug)]
pub struct Pods {
    status_store: PodStatusStore,
    limiter: Arc<RequestLimiter>,
    shutdown: CancellationToken,
}

impl Pods {
    /// Serves the pods of `status_store`; `shutdown` ends the watches.
    pub fn new(status_store: PodStatusStore, shutdown: CancellationToken) -> Self {
        Self {
            status_store,
            limiter: Arc::default(),
            shutdown,
        }
    }
}

#[async_trait]
impl PodsService for Pods {
    async fn list_pods(
        &self,
        _: Request<ListPodsRequest>,
    ) -> Result<Response<ListPodsResponse>, Status> {
        self.limiter.check()?;
        let mut entries = self.status_store.snapshot();
        entries.sort_by_key(|entry| entry.pod.uid());
        let pods = entries
            .into_iter()
            .map(|entry| SentState::new(entry).encode());
        Ok(Response::new(ListPodsResponse {
            pods: pods.collect::<Result<_, _>>()?,
        }))
    }

    async fn get_pod(
        &self,
        request: Request<GetPodRequest>,
    ) -> Result<Response<GetPodResponse>, Status> {
        self.limiter.check()?;
        let uid = request.into_inner().pod_uid;
        let entry = self.status_store.get(&PodUid::from(uid.as_str()));
        let entry =
            entry.ok_or_else(|| Status::not_found(format!("pod with UID {uid} not found")))?;
        Ok(Response::new(GetPodResponse {
            pod: SentState::new(entry).encode()?,
        }))
    }

    async fn watch_pods(
        &self,
        _: Request<WatchPodsRequest>,
    ) -> Result<Response<BoxStream<WatchPodsEvent>>, Status> {
        let watch = Watch {
            status_store: self.status_store.subscribe(),
            sent: BTreeMap::new(),
            waiting: VecDeque::new(),
            synced: false,
        };
        let events = stream::unfold(watch, |mut watch| async move {
            let event = watch.next().await?;
            Some((event, watch))
        });
        let events = events.take_until(self.shutdown.clone().cancelled_owned());
        Ok(Response::new(Box::pin(events)))
    }
}

/// State of a pod as sent to a client.
#[derive(Clone, PartialEq)]
struct SentState {
    pod: SharedPod,
    /// Status of this agent; `None` before the first inspection, when the pod's own status is sent.
    status: Option<Arc<PodStatus>>,
}

impl SentState {
    fn new(entry: PodStatusEntry) -> Self {
        Self {
            status: entry.observed.then_some(entry.status),
            pod: entry.pod,
        }
    }

    fn encode(&self) -> Result<Bytes, Status> {
        let Some(status) = &self.status else {
            return bytes_of(&self.pod);
        };
        let mut pod = Pod::clone(&self.pod);
        pod.status = Some(PodStatus::clone(status));
        bytes_of(&pod)
    }
}

fn bytes_of(pod: &Pod) -> Result<Bytes, Status> {
    match pod_bytes(pod) {
        Ok(bytes) => Ok(bytes.into()),
        Err(error) => Err(Status::internal(format!("failed to marshal pod: {error}"))),
    }
}

/// A client's watch.
struct Watch {
    status_store: StatusSubscription,
    sent: BTreeMap<PodUid, SentState>,
    /// Events to send: at most one per pod, encoded when it is sent.
    waiting: VecDeque<Event>,
    /// The initial pods were sent.
    synced: bool,
}

enum Event {
    Of(EventType, SentState),
    Removed(SentState),
    Synced,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<WatchPodsEvent, Status>> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(message(&event));
            }
            let mut change = self.status_store.next().await?;
            change.changed.sort_by_key(|entry| entry.pod.uid());
            for entry in change.changed {
                self.changed(SentState::new(entry));
            }
            let gone = change.removed.iter();
            let gone = gone.filter_map(|uid| self.sent.remove(uid));
            self.waiting.extend(gone.map(Event::Removed));
            if !std::mem::replace(&mut self.synced, true) {
                self.waiting.push_back(Event::Synced);
            }
        }
    }

    /// Queues an event if the visible state changed. A new pod is sent when its status is known.
    fn changed(&mut self, now: SentState) {
        let uid = now.pod.uid();
        let kind = match self.sent.get(&uid) {
            Some(sent) if *sent == now => return,
            Some(_) => EventType::Modified,
            None if self.synced && now.status.is_none() => return,
            None => EventType::Added,
        };
        self.sent.insert(uid, now.clone());
        self.waiting.push_back(Event::Of(kind, now));
    }
}

fn message(event: &Event) -> Result<WatchPodsEvent, Status> {
    let (kind, pod) = match event {
        Event::Of(kind, sent) => (*kind, sent.encode()?),
        Event::Removed(sent) => {
            let mut gone = Pod::default();
            gone.metadata.name = Some(sent.pod.name().to_owned());
            gone.metadata.namespace = Some(sent.pod.namespace().to_owned());
            gone.metadata.uid = Some(sent.pod.uid().to_string());
            (EventType::Deleted, bytes_of(&gone)?)
        }
        Event::Synced => (EventType::InitialSyncComplete, Bytes::new()),
    };
    Ok(WatchPodsEvent {
        r#type: kind.into(),
        pod,
    })
}
