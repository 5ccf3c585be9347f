//! Lists of sandboxes and containers, also those that do not fit into one gRPC message.
//!
//! A list is one message, by default, of at most 16 MiB on both sides of the socket. Annotations of
//! pods are part of the list, so a hundred pods can exceed that. After a list that was too large,
//! and with the feature gate `CRIListStreaming` from the start, lists are read as streams of
//! messages, which runtimes have since CRI 1.36.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, TryStreamExt};
use windlass_proto::cri_v1 as pb;

use crate::client::{CriClient, request};
use crate::error::{CriCode, CriError, CriResult};

/// Maximum items of a streamed list; a stream without an end must not fill the memory.
const MAX_ITEMS: usize = 100_000;

/// Whether lists are read as streams. Clones share the value.
#[derive(Clone, Debug)]
pub(crate) struct ListStreaming(Arc<AtomicBool>);

impl ListStreaming {
    pub(crate) fn new(enabled: bool) -> Self {
        Self(Arc::new(AtomicBool::new(enabled)))
    }

    /// Runs one of two calls for the same list.
    async fn list<T>(
        &self,
        in_one_message: impl Future<Output = CriResult<Vec<T>>>,
        streamed: impl Future<Output = CriResult<Vec<T>>>,
    ) -> CriResult<Vec<T>> {
        if self.0.load(Ordering::Relaxed) {
            return match streamed.await {
                Err(error) if error.code == CriCode::Unimplemented => {
                    self.0.store(false, Ordering::Relaxed);
                    in_one_message.await
                }
                result => result,
            };
        }
        match in_one_message.await {
            Err(too_large) if too_large.is_message_too_large() => {
                let text = too_large.to_string();
                let list = streamed.await.map_err(|error| match error.code {
                    CriCode::Unimplemented => CriError {
                        message: format!(
                            "{}; the container runtime cannot stream lists: upgrade it or use fewer \
                             and smaller pod annotations",
                            too_large.message
                        ),
                        ..too_large
                    },
                    _ => error,
                })?;
                self.0.store(true, Ordering::Relaxed);
                tracing::info!(error = text, "list too large, streaming lists from now on");
                Ok(list)
            }
            result => result,
        }
    }
}

impl CriClient {
    /// Sandboxes that match a filter.
    pub(crate) async fn sandbox_list(
        &self,
        filter: Option<pb::PodSandboxFilter>,
    ) -> CriResult<Vec<pb::PodSandbox>> {
        const OPERATION: &str = "list_podsandbox";
        let deadline = self.deadline();
        let in_one_message = async {
            let filter = filter.clone();
            let message = pb::ListPodSandboxRequest { filter };
            let mut client = self.runtime();
            let call = client.list_pod_sandbox(request(message, deadline));
            Ok(self.call(OPERATION, deadline, call).await?.items)
        };
        let streamed = async {
            let filter = filter.clone();
            let message = pb::StreamPodSandboxesRequest { filter };
            let call = async {
                let mut client = self.runtime();
                let call = client.stream_pod_sandboxes(request(message, deadline));
                let parts = call.await?.into_inner();
                all(parts.map_ok(|part| part.pod_sandboxes)).await
            };
            self.call(OPERATION, deadline, call).await
        };
        let streamed = Box::pin(streamed);
        self.list_streaming().list(in_one_message, streamed).await
    }

    /// Containers that match a filter.
    pub(crate) async fn container_list(
        &self,
        filter: Option<pb::ContainerFilter>,
    ) -> CriResult<Vec<pb::Container>> {
        const OPERATION: &str = "list_containers";
        let deadline = self.deadline();
        let in_one_message = async {
            let filter = filter.clone();
            let message = pb::ListContainersRequest { filter };
            let mut client = self.runtime();
            let call = client.list_containers(request(message, deadline));
            Ok(self.call(OPERATION, deadline, call).await?.containers)
        };
        let streamed = async {
            let filter = filter.clone();
            let message = pb::StreamContainersRequest { filter };
            let call = async {
                let mut client = self.runtime();
                let call = client.stream_containers(request(message, deadline));
                let parts = call.await?.into_inner();
                all(parts.map_ok(|part| part.containers)).await
            };
            self.call(OPERATION, deadline, call).await
        };
        let streamed = Box::pin(streamed);
        self.list_streaming().list(in_one_message, streamed).await
    }
}

/// Items of all messages of a stream.
async fn all<T>(
    parts: impl Stream<Item = Result<Vec<T>, tonic::Status>>,
) -> Result<tonic::Response<Vec<T>>, tonic::Status> {
    let mut parts = std::pin::pin!(parts);
    let mut items = Vec::new();
    while let Some(part) = parts.try_next().await? {
        items.extend(part);
        if items.len() > MAX_ITEMS {
            let message = format!("the list has more than {MAX_ITEMS} items");
            return Err(tonic::Status::out_of_range(message));
        }
    }
    Ok(tonic::Response::new(items))
}
