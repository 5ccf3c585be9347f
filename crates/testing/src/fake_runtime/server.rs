//! The fake runtime on a Unix socket, for the real client.
//!
//! It has its own thread and tokio runtime, whose drop cuts all connections like a killed daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use prost::Message;
use prost_types::Any;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};
use windlass_cri::convert::resources_from_pb;
use windlass_cri::{CriCode, CriError, ImageService, RuntimeService};
use windlass_proto::containerd_events as ctd;
use windlass_proto::containerd_events::service::events_server::{Events, EventsServer};
use windlass_proto::containerd_events::service::{Envelope, SubscribeRequest};
use windlass_proto::cri_v1 as pb;
use windlass_proto::cri_v1::image_service_server::{self, ImageServiceServer};
use windlass_proto::cri_v1::runtime_service_server::{self, RuntimeServiceServer};
use windlass_types::cri::{RuntimeEvent, RuntimeEventKind};
use windlass_types::{ContainerId, SandboxId};

use super::events::EventMode;
use super::{FakeRuntime, convert};

/// Limit of containerd.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Server guard; the drop cuts all connections and removes the socket.
#[derive(Debug)]
pub struct ServeGuard {
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for ServeGuard {
    fn drop(&mut self) {
        // fails if the thread has ended
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(super) fn serve(fake: FakeRuntime, path: &Path) -> io::Result<ServeGuard> {
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("fake-runtime".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let server = async move {
                    let incoming = UnixListenerStream::new(UnixListener::from_std(listener)?);
                    let runtime = RuntimeServiceServer::new(fake.clone())
                        .max_decoding_message_size(MAX_MESSAGE_BYTES);
                    tonic::transport::Server::builder()
                        .add_service(runtime)
                        .add_service(ImageServiceServer::new(fake.clone()))
                        .add_service(EventsServer::new(fake))
                        .serve_with_incoming(incoming)
                        .await
                        .map_err(io::Error::other)
                };
                tokio::select! {
                    result = server => drop(result),
                    _ = stopped => {}
                }
            });
            // ends the connection tasks
            runtime.shutdown_background();
        })?;
    Ok(ServeGuard {
        path: path.to_owned(),
        stop: Some(stop),
        thread: Some(thread),
    })
}

fn refuse(error: CriError) -> Status {
    let code = match error.code {
        CriCode::Unavailable => tonic::Code::Unavailable,
        CriCode::DeadlineExceeded => tonic::Code::DeadlineExceeded,
        CriCode::NotFound => tonic::Code::NotFound,
        CriCode::AlreadyExists => tonic::Code::AlreadyExists,
        CriCode::Unimplemented => tonic::Code::Unimplemented,
        CriCode::InvalidArgument => tonic::Code::InvalidArgument,
        CriCode::Cancelled => tonic::Code::Cancelled,
        CriCode::Other => tonic::Code::Unknown,
    };
    Status::new(code, error.message)
}

impl FakeRuntime {
    fn check_streams_lists(&self) -> Result<(), Status> {
        match self.streams_lists() {
            true => Ok(()),
            false => Err(Status::unimplemented("unknown method")),
        }
    }
}

type RpcResult<T> = Result<Response<T>, Status>;
type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl runtime_service_server::RuntimeService for FakeRuntime {
    async fn version(&self, _: Request<pb::VersionRequest>) -> RpcResult<pb::VersionResponse> {
        let version = RuntimeService::version(self).await.map_err(refuse)?;
        Ok(Response::new(pb::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: version.name,
            runtime_version: version.version,
            runtime_api_version: version.api_version,
        }))
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> RpcResult<pb::StatusResponse> {
        let status = RuntimeService::status(self).await.map_err(refuse)?;
        Ok(Response::new(pb::StatusResponse {
            status: Some(convert::runtime_status_to_pb(&status)),
            ..Default::default()
        }))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<pb::RunPodSandboxRequest>,
    ) -> RpcResult<pb::RunPodSandboxResponse> {
        let request = request.into_inner();
        let config = convert::sandbox_config_from_pb(request.config.unwrap_or_default());
        let id = RuntimeService::run_pod_sandbox(self, &config, &request.runtime_handler)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::RunPodSandboxResponse {
            pod_sandbox_id: id.to_string(),
        }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<pb::StopPodSandboxRequest>,
    ) -> RpcResult<pb::StopPodSandboxResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        self.stop_sandbox_raw(&id).await.map_err(refuse)?;
        Ok(Response::new(pb::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<pb::RemovePodSandboxRequest>,
    ) -> RpcResult<pb::RemovePodSandboxResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        self.remove_sandbox_raw(&id).await.map_err(refuse)?;
        Ok(Response::new(pb::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<pb::PodSandboxStatusRequest>,
    ) -> RpcResult<pb::PodSandboxStatusResponse> {
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        let detail = RuntimeService::pod_sandbox_status(self, &id)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::PodSandboxStatusResponse {
            status: Some(convert::sandbox_detail_to_pb(&detail)),
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<pb::ListPodSandboxRequest>,
    ) -> RpcResult<pb::ListPodSandboxResponse> {
        let filter = convert::sandbox_filter_from_pb(request.into_inner().filter);
        let rows = RuntimeService::list_pod_sandboxes(self, &filter)
            .await
            .map_err(refuse)?;
        let items = rows.iter().map(convert::sandbox_summary_to_pb).collect();
        Ok(Response::new(pb::ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<pb::StreamPodSandboxesRequest>,
    ) -> RpcResult<ResponseStream<pb::StreamPodSandboxesResponse>> {
        self.check_streams_lists()?;
        let filter = convert::sandbox_filter_from_pb(request.into_inner().filter);
        let rows = RuntimeService::list_pod_sandboxes(self, &filter).await;
        let parts = rows.map_err(refuse)?.into_iter().map(|row| {
            let pod_sandboxes = vec![convert::sandbox_summary_to_pb(&row)];
            Ok(pb::StreamPodSandboxesResponse { pod_sandboxes })
        });
        Ok(Response::new(futures::stream::iter(parts).boxed()))
    }

    async fn create_container(
        &self,
        request: Request<pb::CreateContainerRequest>,
    ) -> RpcResult<pb::CreateContainerResponse> {
        let request = request.into_inner();
        let sandbox = SandboxId::from(request.pod_sandbox_id);
        let config = convert::container_config_from_pb(request.config.unwrap_or_default());
        let sandbox_config =
            convert::sandbox_config_from_pb(request.sandbox_config.unwrap_or_default());
        let id = RuntimeService::create_container(self, &sandbox, &config, &sandbox_config)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::CreateContainerResponse {
            container_id: id.to_string(),
        }))
    }

    async fn start_container(
        &self,
        request: Request<pb::StartContainerRequest>,
    ) -> RpcResult<pb::StartContainerResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        RuntimeService::start_container(self, &id)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<pb::StopContainerRequest>,
    ) -> RpcResult<pb::StopContainerResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let grace = Duration::from_secs(request.timeout.max(0).unsigned_abs());
        self.stop_container_raw(&id, grace).await.map_err(refuse)?;
        Ok(Response::new(pb::StopContainerResponse {}))
    }

    async fn update_container_resources(
        &self,
        request: Request<pb::UpdateContainerResourcesRequest>,
    ) -> RpcResult<pb::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let resources = resources_from_pb(request.linux.unwrap_or_default());
        let updated = RuntimeService::update_container_resources(self, &id, &resources);
        updated.await.map_err(refuse)?;
        Ok(Response::new(pb::UpdateContainerResourcesResponse {}))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<pb::UpdatePodSandboxResourcesRequest>,
    ) -> RpcResult<pb::UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        let id = SandboxId::from(request.pod_sandbox_id);
        let overhead = request.overhead.map(resources_from_pb);
        let resources = resources_from_pb(request.resources.unwrap_or_default());
        let updated =
            RuntimeService::update_pod_sandbox_resources(self, &id, overhead.as_ref(), &resources);
        updated.await.map_err(refuse)?;
        Ok(Response::new(pb::UpdatePodSandboxResourcesResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<pb::RemoveContainerRequest>,
    ) -> RpcResult<pb::RemoveContainerResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        self.remove_container_raw(&id).await.map_err(refuse)?;
        Ok(Response::new(pb::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<pb::ListContainersRequest>,
    ) -> RpcResult<pb::ListContainersResponse> {
        let filter = convert::container_filter_from_pb(request.into_inner().filter);
        let rows = RuntimeService::list_containers(self, &filter)
            .await
            .map_err(refuse)?;
        let containers = rows.iter().map(convert::container_summary_to_pb).collect();
        Ok(Response::new(pb::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<pb::StreamContainersRequest>,
    ) -> RpcResult<ResponseStream<pb::StreamContainersResponse>> {
        self.check_streams_lists()?;
        let filter = convert::container_filter_from_pb(request.into_inner().filter);
        let rows = RuntimeService::list_containers(self, &filter).await;
        let parts = rows.map_err(refuse)?.into_iter().map(|row| {
            let containers = vec![convert::container_summary_to_pb(&row)];
            Ok(pb::StreamContainersResponse { containers })
        });
        Ok(Response::new(futures::stream::iter(parts).boxed()))
    }

    async fn container_status(
        &self,
        request: Request<pb::ContainerStatusRequest>,
    ) -> RpcResult<pb::ContainerStatusResponse> {
        let id = ContainerId::from(request.into_inner().container_id);
        let detail = RuntimeService::container_status(self, &id)
            .await
            .map_err(refuse)?;
        let attempt = self
            .container_config(&id)
            .map_or(0, |config| config.attempt);
        Ok(Response::new(pb::ContainerStatusResponse {
            status: Some(convert::container_detail_to_pb(&detail, attempt)),
            ..Default::default()
        }))
    }

    async fn exec_sync(
        &self,
        request: Request<pb::ExecSyncRequest>,
    ) -> RpcResult<pb::ExecSyncResponse> {
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        // 0 means no limit
        let timeout = match request.timeout.max(0).unsigned_abs() {
            0 => Duration::MAX,
            seconds => Duration::from_secs(seconds),
        };
        let output = RuntimeService::exec_sync(self, &id, &request.cmd, timeout)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::ExecSyncResponse {
            stdout: output.stdout.into(),
            stderr: output.stderr.into(),
            exit_code: output.exit_code,
        }))
    }

    async fn get_container_events(
        &self,
        _: Request<pb::GetEventsRequest>,
    ) -> RpcResult<ResponseStream<pb::ContainerEventResponse>> {
        if self.event_mode() != EventMode::Cri {
            return Err(Status::unimplemented("unknown method GetContainerEvents"));
        }
        let events = RuntimeService::events(self).await.map_err(refuse)?;
        let stream = events.map(|item| match item {
            Ok(event) => Ok(convert::event_to_pb(&event)),
            Err(error) => Err(refuse(error)),
        });
        Ok(Response::new(stream.boxed()))
    }
}

#[tonic::async_trait]
impl image_service_server::ImageService for FakeRuntime {
    async fn list_images(
        &self,
        _: Request<pb::ListImagesRequest>,
    ) -> RpcResult<pb::ListImagesResponse> {
        let images = ImageService::list_images(self).await.map_err(refuse)?;
        let images = images.iter().map(convert::image_to_pb).collect();
        Ok(Response::new(pb::ListImagesResponse { images }))
    }

    async fn image_status(
        &self,
        request: Request<pb::ImageStatusRequest>,
    ) -> RpcResult<pb::ImageStatusResponse> {
        let image = request.into_inner().image.unwrap_or_default().image;
        let found = ImageService::image_status(self, &image)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::ImageStatusResponse {
            image: found.as_ref().map(convert::image_to_pb),
            ..Default::default()
        }))
    }

    async fn pull_image(
        &self,
        request: Request<pb::PullImageRequest>,
    ) -> RpcResult<pb::PullImageResponse> {
        let request = request.into_inner();
        let image = request.image.unwrap_or_default().image;
        let auth = request.auth.map(convert::auth_from_pb);
        let config = convert::sandbox_config_from_pb(request.sandbox_config.unwrap_or_default());
        let image_ref = ImageService::pull_image(self, &image, auth.as_ref(), &config)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::PullImageResponse { image_ref }))
    }

    async fn remove_image(
        &self,
        request: Request<pb::RemoveImageRequest>,
    ) -> RpcResult<pb::RemoveImageResponse> {
        let image = request.into_inner().image.unwrap_or_default().image;
        ImageService::remove_image(self, &image)
            .await
            .map_err(refuse)?;
        Ok(Response::new(pb::RemoveImageResponse {}))
    }
}

#[tonic::async_trait]
impl Events for FakeRuntime {
    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> RpcResult<ResponseStream<Envelope>> {
        if self.event_mode() != EventMode::Containerd {
            return Err(Status::unimplemented(
                "unknown service containerd.services.events.v1",
            ));
        }
        if request.metadata().get("containerd-namespace").is_none() {
            return Err(Status::failed_precondition("namespace is required"));
        }
        let events = RuntimeService::events(self).await.map_err(refuse)?;
        let stream = events.flat_map(|item| {
            futures::stream::iter(match item {
                Ok(event) => envelopes(&event).into_iter().map(Ok).collect(),
                Err(error) => vec![Err(refuse(error))],
            })
        });
        Ok(Response::new(stream.boxed()))
    }
}

/// Converts to containerd events; a process exit is two events.
fn envelopes(event: &RuntimeEvent) -> Vec<Envelope> {
    let id = event.id.clone();
    match event.kind {
        RuntimeEventKind::Created => {
            let message = ctd::ContainerCreate {
                id,
                ..Default::default()
            };
            vec![envelope("/containers/create", "ContainerCreate", &message)]
        }
        RuntimeEventKind::Started => {
            let message = ctd::TaskStart {
                container_id: id,
                pid: 1,
            };
            vec![envelope("/tasks/start", "TaskStart", &message)]
        }
        RuntimeEventKind::Stopped => {
            let exit = ctd::TaskExit {
                container_id: id.clone(),
                id: id.clone(),
                ..Default::default()
            };
            let delete = ctd::TaskDelete {
                container_id: id,
                ..Default::default()
            };
            vec![
                envelope("/tasks/exit", "TaskExit", &exit),
                envelope("/tasks/delete", "TaskDelete", &delete),
            ]
        }
        RuntimeEventKind::Deleted => {
            let message = ctd::ContainerDelete { id };
            vec![envelope("/containers/delete", "ContainerDelete", &message)]
        }
        RuntimeEventKind::Oom => {
            vec![envelope(
                "/tasks/oom",
                "TaskOOM",
                &ctd::TaskOom { container_id: id },
            )]
        }
    }
}

fn envelope(topic: &str, name: &str, message: &impl Message) -> Envelope {
    Envelope {
        timestamp: None,
        namespace: "k8s.io".to_owned(),
        topic: topic.to_owned(),
        event: Some(Any {
            type_url: format!("containerd.events.{name}"),
            value: message.encode_to_vec(),
        }),
    }
}
