//! The control API over the Unix socket: pods, changes of pods, logs.
//!
//! Read-only. A watch has no queue: when its client is ready, it gets the difference from the last
//! sent state. A slow client misses intermediate states and uses no memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use windlass_container_logs::{LogError, LogOptions, LogReader, LogSource};
use windlass_grpc_sockets::incoming;
use windlass_health::HealthSource;
use windlass_metrics::Metrics;
use windlass_node_proto::windlass_v1 as proto;
use windlass_node_proto::windlass_v1::windlass_server::{Windlass, WindlassServer};
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::{StatsSelection, StatsSource};
use windlass_status::log_target::{LogRequest, LogTargetError, log_target, watch_end};
use windlass_status::{PodExplainer, PodStatusEntry, PodStatusStore, StatusSubscription};
use windlass_types::view::{NodeSummary, RejectedManifest};
use windlass_types::{AllocatedResources, Clock, PodExt, PodUid};

use crate::convert;

/// Maximum concurrent requests of one connection; the CLI makes one.
const REQUESTS_PER_CONNECTION: usize = 16;

/// Source of the node summary. Must not block.
pub trait NodeSource: Send + Sync + std::fmt::Debug + 'static {
    /// Returns the current summary.
    fn summary(&self) -> NodeSummary;
}

/// Dependencies of the control API.
#[derive(Clone, Debug)]
pub struct ControlService {
    /// Statuses of the pods.
    pub status_store: PodStatusStore,
    /// Explains why a pod is not in its desired state.
    pub explainer: PodExplainer,
    /// Source of usage statistics.
    pub stats: Arc<dyn StatsSource>,
    /// Metrics of the agent.
    pub metrics: Metrics,
    /// Refreshes metrics before a scrape.
    pub health: Arc<dyn HealthSource>,
    /// Currently rejected manifests.
    pub rejected: watch::Receiver<Vec<RejectedManifest>>,
    /// Source of the node summary.
    pub node: Arc<dyn NodeSource>,
    /// Paths of the log files.
    pub paths: NodePaths,
    /// Reads log files.
    pub logs: LogReader,
    /// Current time, for `since_seconds`.
    pub clock: Arc<dyn Clock>,
    /// Ends open streams.
    pub shutdown: CancellationToken,
}

/// Serves until the service's `shutdown` is cancelled.
pub async fn serve_control(
    listener: UnixListener,
    service: ControlService,
) -> Result<(), tonic::transport::Error> {
    let shutdown = service.shutdown.clone();
    tonic::transport::Server::builder()
        .concurrency_limit_per_connection(REQUESTS_PER_CONNECTION)
        .add_service(WindlassServer::new(service))
        .serve_with_incoming_shutdown(incoming(listener), async move {
            shutdown.cancelled().await;
        })
        .await
}

#[async_trait]
impl Windlass for ControlService {
    async fn list_pods(
        &self,
        request: Request<proto::ListPodsRequest>,
    ) -> Result<Response<proto::ListPodsResponse>, Status> {
        let filter = request.into_inner();
        let pods = self
            .status_store
            .snapshot()
            .iter()
            .filter(|view| matches(view, &filter))
            .map(|view| {
                let requested = self.status_store.requested(&view.pod.uid());
                encode(
                    view,
                    requested.as_ref().map(|requested| &requested.resources),
                )
            })
            .collect::<Result<_, _>>()?;
        Ok(Response::new(proto::ListPodsResponse { pods }))
    }

    async fn list_rejected_manifests(
        &self,
        _: Request<proto::ListRejectedManifestsRequest>,
    ) -> Result<Response<proto::ListRejectedManifestsResponse>, Status> {
        let rejected = self.rejected.borrow();
        let manifests = rejected.iter().map(|manifest| proto::RejectedManifest {
            origin: manifest.origin.clone(),
            error: manifest.error.clone(),
        });
        Ok(Response::new(proto::ListRejectedManifestsResponse {
            rejected: manifests.collect(),
        }))
    }

    async fn get_node(
        &self,
        _: Request<proto::GetNodeRequest>,
    ) -> Result<Response<proto::GetNodeResponse>, Status> {
        let eviction = self.explainer.eviction.borrow();
        Ok(Response::new(convert::node(self.node.summary(), &eviction)))
    }

    async fn get_timeline(
        &self,
        request: Request<proto::GetPodRequest>,
    ) -> Result<Response<proto::GetPodResponse>, Status> {
        let request = request.into_inner();
        pod_response(
            &request,
            self.explainer.timeline(&request.namespace, &request.name),
        )
    }

    async fn explain_pod(
        &self,
        request: Request<proto::GetPodRequest>,
    ) -> Result<Response<proto::GetPodResponse>, Status> {
        let request = request.into_inner();
        pod_response(
            &request,
            self.explainer
                .explanation(&request.namespace, &request.name),
        )
    }

    async fn get_usage(
        &self,
        _: Request<proto::GetUsageRequest>,
    ) -> Result<Response<proto::GetUsageResponse>, Status> {
        let wanted = StatsSelection::CPU_AND_MEMORY;
        let measured = tokio::try_join!(self.stats.node(wanted), self.stats.pods(wanted));
        let (node, pods) = measured.map_err(|error| Status::unavailable(error.to_string()))?;
        let name = self.explainer.node_name.clone();
        Ok(Response::new(convert::usage(name, &node, &pods)))
    }

    async fn get_metrics(
        &self,
        request: Request<proto::GetMetricsRequest>,
    ) -> Result<Response<proto::GetMetricsResponse>, Status> {
        let text = if request.into_inner().probes {
            self.metrics.probes.render()
        } else {
            self.health.before_scrape();
            self.metrics.render()
        };
        let text = text.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(proto::GetMetricsResponse { text }))
    }

    async fn watch_pods(
        &self,
        request: Request<proto::ListPodsRequest>,
    ) -> Result<Response<BoxStream<proto::WatchPodsResponse>>, Status> {
        let watch = PodWatch {
            status_store: self.status_store.subscribe(),
            filter: request.into_inner(),
            sent: BTreeSet::new(),
            first: true,
        };
        let updates = stream::unfold(watch, |mut watch| async move {
            let message = watch.next().await?;
            Some((message, watch))
        });
        let updates = updates.take_until(self.shutdown.clone().cancelled_owned());
        Ok(Response::new(Box::pin(updates)))
    }

    async fn read_log(
        &self,
        request: Request<proto::ReadLogRequest>,
    ) -> Result<Response<BoxStream<proto::ReadLogResponse>>, Status> {
        let request = request.into_inner();
        let entries = self.status_store.find(&request.namespace, &request.pod);
        let log_request = LogRequest {
            namespace: &request.namespace,
            pod: &request.pod,
            container: &request.container,
            previous: request.previous,
        };
        let target = log_target(&entries, &log_request).map_err(|error| log_status(&error))?;
        let source = LogSource {
            root: self.paths.pod_logs_dir.clone(),
            path: self
                .paths
                .container_log(&target.pod, &target.container, target.attempt),
        };
        let options = LogOptions {
            follow: request.follow && target.running,
            tail: count("tail_lines", request.tail_lines)?,
            since: match count("since_seconds", request.since_seconds)? {
                Some(seconds) => {
                    let ago = Duration::from_secs(seconds);
                    // an unrepresentable time includes all lines
                    self.clock.now().checked_sub(ago).ok()
                }
                None => None,
            },
            limit_bytes: count("limit_bytes", request.limit_bytes)?,
            timestamps: request.timestamps,
            stream: None,
        };
        let done = CancellationToken::new();
        // cancelled with the stream, so that following ends when the client disconnects
        let client = self.shutdown.child_token();
        if options.follow {
            let status_store = self.status_store.clone();
            tokio::spawn(watch_end(
                status_store,
                target,
                done.clone(),
                client.clone(),
            ));
        }
        let guard = client.drop_guard();
        let blocks = self.logs.read(source, options, done).await;
        let blocks = blocks
            .map_err(|error| read_status(&error))?
            .map(move |block| {
                let _held = &guard;
                message(block)
            })
            .take_until(self.shutdown.clone().cancelled_owned());
        Ok(Response::new(Box::pin(blocks)))
    }
}

fn pod_response(
    request: &proto::GetPodRequest,
    found: Option<impl Serialize>,
) -> Result<Response<proto::GetPodResponse>, Status> {
    let found = found.ok_or_else(|| {
        let proto::GetPodRequest { namespace, name } = request;
        Status::not_found(format!("no pod {name} in namespace {namespace}"))
    })?;
    let json = serde_json::to_vec(&found).map_err(|error| Status::internal(error.to_string()))?;
    let json = Bytes::from(json);
    Ok(Response::new(proto::GetPodResponse { json }))
}

/// A block has about 128 KiB, plus at most 1 MiB for a long line, so it fits into a message.
fn message(block: Result<Bytes, LogError>) -> Result<proto::ReadLogResponse, Status> {
    let data = block.map_err(|error| read_status(&error))?;
    Ok(proto::ReadLogResponse { data })
}

fn read_status(error: &LogError) -> Status {
    match error {
        LogError::Open { .. } => Status::not_found(error.to_string()),
        LogError::Read { .. } => Status::data_loss(error.to_string()),
        LogError::Busy => Status::resource_exhausted(error.to_string()),
    }
}

struct PodWatch {
    status_store: StatusSubscription,
    filter: proto::ListPodsRequest,
    /// Pods that were sent to the client.
    sent: BTreeSet<PodUid>,
    first: bool,
}

impl PodWatch {
    /// Waits for a change that matches the filter.
    async fn next(&mut self) -> Option<Result<proto::WatchPodsResponse, Status>> {
        loop {
            let change = self.status_store.next().await?;
            let changed = change
                .changed
                .iter()
                .filter(|view| matches(view, &self.filter));
            let changed: Vec<_> = changed.collect();
            self.sent.extend(changed.iter().map(|view| view.pod.uid()));
            let pods: Result<Vec<_>, Status> =
                changed.into_iter().map(|view| encode(view, None)).collect();
            let pods = match pods {
                Ok(pods) => pods,
                Err(status) => return Some(Err(status)),
            };
            let removed: Vec<_> = change
                .removed
                .into_iter()
                .filter(|uid| self.sent.remove(uid))
                .map(|uid| uid.to_string())
                .collect();
            let snapshot = std::mem::take(&mut self.first);
            if snapshot || !pods.is_empty() || !removed.is_empty() {
                return Some(Ok(proto::WatchPodsResponse {
                    snapshot,
                    pods,
                    removed,
                }));
            }
        }
    }
}

fn matches(view: &PodStatusEntry, filter: &proto::ListPodsRequest) -> bool {
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|a| a == value);
    is(&filter.namespace, view.pod.namespace()) && is(&filter.name, view.pod.name())
}

fn encode(
    view: &PodStatusEntry,
    requested: Option<&AllocatedResources>,
) -> Result<proto::PodEntry, Status> {
    convert::entry(view, requested).map_err(|error| Status::internal(error.to_string()))
}

fn count(field: &str, value: Option<i64>) -> Result<Option<u64>, Status> {
    value
        .map(u64::try_from)
        .transpose()
        .map_err(|_| Status::invalid_argument(format!("{field} must not be negative")))
}

fn log_status(error: &LogTargetError) -> Status {
    let message = error.to_string();
    match error {
        LogTargetError::Pod { .. } | LogTargetError::NoPrevious { .. } => {
            Status::not_found(message)
        }
        LogTargetError::Ambiguous { .. } | LogTargetError::Container { .. } => {
            Status::invalid_argument(message)
        }
        LogTargetError::Waiting { .. }
        | LogTargetError::Terminated { .. }
        | LogTargetError::Unknown { .. } => Status::failed_precondition(message),
    }
}

#[cfg(test)]
mod tests;
