//! The CRI client: both ports over one gRPC channel to a Unix socket.
//!
//! Every call has a deadline, except image pulls and event streams, and is counted under
//! upstream's operation name. The channel dials with the first call and again after each loss.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use tonic::transport::Channel;
use windlass_metrics::RuntimeCallMetrics;
use windlass_proto::cri_v1::image_service_client::ImageServiceClient;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_proto::cri_v1::{self as pb};
use windlass_timelines::traceparent;
use windlass_types::cri::{
    CgroupDriver, ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth,
    ImageInfo, LinuxResources, ListFilter, RuntimeStatus, RuntimeVersion, SandboxConfig,
    SandboxDetail, SandboxSummary,
};
use windlass_types::{ContainerId, SandboxId};

use crate::convert;
use crate::endpoint::{EndpointError, socket_path};
use crate::error::{CriCode, CriError, CriResult};
use crate::lists::ListStreaming;
use crate::port::{ImageService, RuntimeEventStream, RuntimeService};
use crate::transport::{self, Redial};

/// Max size of one message: upstream's gRPC limit, about 11,000 containers in one list.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// API version in the Version request; the runtime returns the version it supports.
const KUBE_API_VERSION: &str = "0.1.0";
/// Maximum timeout in a request. Pods may specify 2^63 seconds, which neither the gRPC header nor
/// 64-bit nanoseconds can represent.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Options of a client.
#[derive(Clone, Debug)]
pub struct CriOptions {
    /// `runtimeRequestTimeout`: timeout of a call. Twice as long for RunPodSandbox; StopContainer
    /// adds the stop timeout.
    pub timeout: Duration,
    /// Timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// Back-off after a failed connection; doubles up to `backoff_max`.
    pub backoff_base: Duration,
    /// Maximum back-off between two connection attempts.
    pub backoff_max: Duration,
    /// Feature gate `CRIListStreaming`: read lists as streams; without it only after a list that
    /// was too large for one message.
    pub stream_lists: bool,
    /// Where finished calls are counted.
    pub metrics: RuntimeCallMetrics,
}

impl CriOptions {
    /// Upstream's values: 2 min, 5 s, 100 ms, 3 s.
    pub fn new(metrics: RuntimeCallMetrics) -> Self {
        Self {
            timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(5),
            backoff_base: Duration::from_millis(100),
            backoff_max: Duration::from_secs(3),
            stream_lists: false,
            metrics,
        }
    }
}

/// A client of one runtime. Clones share the connection.
#[derive(Clone, Debug)]
pub struct CriClient {
    channel: Channel,
    socket: PathBuf,
    timeout: Duration,
    list_streaming: ListStreaming,
    metrics: RuntimeCallMetrics,
}

impl CriClient {
    /// A client for `unix:///path` or a bare absolute path. Nothing is dialled before the first
    /// call. Must be called inside a tokio runtime, which then drives the connection.
    pub fn connect(endpoint: &str, options: CriOptions) -> Result<Self, EndpointError> {
        let socket = socket_path(endpoint)?;
        let redial = Redial {
            connect_timeout: options.connect_timeout,
            backoff_base: options.backoff_base,
            backoff_max: options.backoff_max,
        };
        Ok(Self {
            channel: transport::channel(socket.clone(), redial),
            socket,
            timeout: options.timeout,
            list_streaming: ListStreaming::new(options.stream_lists),
            metrics: options.metrics,
        })
    }

    /// The runtime's socket.
    pub fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn list_streaming(&self) -> &ListStreaming {
        &self.list_streaming
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Runs one call with its deadline, if any, and counts it.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        deadline: Option<Duration>,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> CriResult<T> {
        let started = Instant::now();
        let result = match deadline {
            None => call.await,
            Some(deadline) => tokio::time::timeout(deadline, call)
                .await
                .unwrap_or_else(|_| Err(tonic::Status::deadline_exceeded("no answer in time"))),
        };
        let result = result.map_err(|status| {
            let error = CriError::from_status(operation, &status);
            // the transport and some servers report an expired deadline as a cancellation
            match deadline.is_some_and(|deadline| started.elapsed() >= deadline) {
                true => CriError {
                    code: CriCode::DeadlineExceeded,
                    ..error
                },
                false => error,
            }
        });
        self.observe(operation, started, result.is_err());
        result.map(tonic::Response::into_inner)
    }

    pub(crate) fn observe(&self, operation: &str, started: Instant, failed: bool) {
        let seconds = started.elapsed().as_secs_f64();
        self.metrics.observe(operation, seconds, failed);
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        Some(self.timeout)
    }
}

/// Creates a request with the deadline and the trace parent in its headers.
pub(crate) fn request<T>(message: T, deadline: Option<Duration>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    if let Some(deadline) = deadline {
        request.set_timeout(deadline.min(MAX_TIMEOUT));
    }
    let parent = traceparent().and_then(|parent| parent.to_string().parse().ok());
    if let Some(parent) = parent {
        request.metadata_mut().insert("traceparent", parent);
    }
    request
}

/// Treats a missing object as success, for stop and remove. Runtimes report it as NotFound or, if
/// an inner error lost its code, as Unknown with a text.
fn missing_is_ok(result: CriResult<()>) -> CriResult<()> {
    match result {
        Err(error) if error.is_object_not_found() => Ok(()),
        other => other,
    }
}

/// Restores the NotFound code where the runtime lost it; callers check for NotFound.
pub(crate) fn missing_is_not_found<T>(result: CriResult<T>) -> CriResult<T> {
    result.map_err(|error| match error.is_object_not_found() {
        true => CriError {
            code: CriCode::NotFound,
            ..error
        },
        false => error,
    })
}

fn incomplete(operation: &'static str, what: &str) -> CriError {
    CriError::new(
        operation,
        CriCode::Other,
        format!("the runtime answered without a {what}"),
    )
}

#[async_trait]
impl RuntimeService for CriClient {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        let deadline = self.deadline();
        let message = pb::VersionRequest {
            version: KUBE_API_VERSION.to_owned(),
        };
        let mut client = self.runtime();
        let answer = self
            .call(
                "version",
                deadline,
                client.version(request(message, deadline)),
            )
            .await?;
        Ok(RuntimeVersion {
            name: answer.runtime_name,
            version: answer.runtime_version,
            api_version: answer.runtime_api_version,
        })
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        let deadline = self.deadline();
        let message = pb::StatusRequest { verbose: false };
        let mut client = self.runtime();
        let answer = self
            .call(
                "status",
                deadline,
                client.status(request(message, deadline)),
            )
            .await?;
        let status = answer
            .status
            .ok_or_else(|| incomplete("status", "status"))?;
        Ok(RuntimeStatus {
            handlers: convert::runtime_handlers_from_pb(answer.runtime_handlers),
            supplemental_groups_policy: answer.features.map(|f| f.supplemental_groups_policy),
            ..convert::runtime_status_from_pb(status)
        })
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()> {
        let deadline = self.deadline();
        let network_config = pb::NetworkConfig {
            pod_cidr: pod_cidr.to_owned(),
        };
        let message = pb::UpdateRuntimeConfigRequest {
            runtime_config: Some(pb::RuntimeConfig {
                network_config: Some(network_config),
            }),
        };
        let mut client = self.runtime();
        let call = client.update_runtime_config(request(message, deadline));
        self.call("update_runtime_config", deadline, call)
            .await
            .map(drop)
    }

    async fn cgroup_driver(&self) -> CriResult<Option<CgroupDriver>> {
        let deadline = self.deadline();
        let mut client = self.runtime();
        let call = client.runtime_config(request(pb::RuntimeConfigRequest {}, deadline));
        let answer = match self.call("runtime_config", deadline, call).await {
            // older than Kubernetes 1.28
            Err(error) if error.code == CriCode::Unimplemented => return Ok(None),
            answer => answer?,
        };
        Ok(answer.linux.map(|linux| match linux.cgroup_driver() {
            pb::CgroupDriver::Systemd => CgroupDriver::Systemd,
            pb::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
        }))
    }

    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId> {
        const OPERATION: &str = "run_podsandbox";
        // includes network setup: upstream doubles the timeout
        let deadline = Some(self.timeout * 2);
        let message = pb::RunPodSandboxRequest {
            config: Some(convert::sandbox_config_to_pb(config)),
            runtime_handler: handler.to_owned(),
        };
        let started = Instant::now();
        let mut client = self.runtime();
        let result = self
            .call(
                OPERATION,
                deadline,
                Box::pin(client.run_pod_sandbox(request(message, deadline))),
            )
            .await
            .and_then(|answer| match answer.pod_sandbox_id.is_empty() {
                true => Err(incomplete(OPERATION, "sandbox ID")),
                false => Ok(SandboxId::from(answer.pod_sandbox_id)),
            });
        self.metrics
            .run_sandbox_duration
            .with_label_values(&[handler])
            .observe(started.elapsed().as_secs_f64());
        if result.is_err() {
            self.metrics
                .run_sandbox_errors
                .with_label_values(&[handler])
                .inc();
        }
        result
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::StopPodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.runtime();
        let call = client.stop_pod_sandbox(request(message, deadline));
        missing_is_ok(self.call("stop_podsandbox", deadline, call).await.map(drop))
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_string(),
        };
        let mut client = self.runtime();
        let call = client.remove_pod_sandbox(request(message, deadline));
        missing_is_ok(
            self.call("remove_podsandbox", deadline, call)
                .await
                .map(drop),
        )
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail> {
        const OPERATION: &str = "podsandbox_status";
        let deadline = self.deadline();
        let message = pb::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: false,
        };
        let mut client = self.runtime();
        let call = client.pod_sandbox_status(request(message, deadline));
        let answer = missing_is_not_found(self.call(OPERATION, deadline, call).await)?;
        let status = answer
            .status
            .ok_or_else(|| incomplete(OPERATION, "status"))?;
        Ok(convert::sandbox_detail_from_pb(status))
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.to_string(),
            overhead: overhead.map(convert::resources_to_pb),
            resources: Some(convert::resources_to_pb(resources)),
        };
        let mut client = self.runtime();
        let call = client.update_pod_sandbox_resources(request(message, deadline));
        let answer = self.call("update_podsandbox_resources", deadline, call);
        missing_is_not_found(answer.await.map(drop))
    }

    async fn list_pod_sandboxes(&self, filter: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        let items = self.sandbox_list(convert::sandbox_filter_to_pb(filter));
        let items = items.await?.into_iter();
        Ok(items.map(convert::sandbox_summary_from_pb).collect())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        const OPERATION: &str = "create_container";
        let deadline = self.deadline();
        let message = pb::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: Some(convert::container_config_to_pb(config)),
            sandbox_config: Some(convert::sandbox_config_to_pb(sandbox_config)),
        };
        let mut client = self.runtime();
        // boxed: the large message would be part of every caller's future
        let call = Box::pin(client.create_container(request(message, deadline)));
        let answer = self.call(OPERATION, deadline, call).await?;
        match answer.container_id.is_empty() {
            true => Err(incomplete(OPERATION, "container ID")),
            false => Ok(ContainerId::from(answer.container_id)),
        }
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::StartContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime();
        let call = client.start_container(request(message, deadline));
        self.call("start_container", deadline, call).await.map(drop)
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        let grace = grace.min(MAX_TIMEOUT);
        let deadline = Some(self.timeout + grace);
        let message = pb::StopContainerRequest {
            container_id: id.to_string(),
            timeout: whole_seconds(grace),
        };
        let mut client = self.runtime();
        let call = client.stop_container(request(message, deadline));
        missing_is_ok(self.call("stop_container", deadline, call).await.map(drop))
    }

    async fn remove_container(&self, id: &ContainerId) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime();
        let call = client.remove_container(request(message, deadline));
        missing_is_ok(
            self.call("remove_container", deadline, call)
                .await
                .map(drop),
        )
    }

    async fn list_containers(&self, filter: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        let containers = self.container_list(convert::container_filter_to_pb(filter));
        let containers = containers.await?.into_iter();
        Ok(containers.map(convert::container_summary_from_pb).collect())
    }

    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail> {
        const OPERATION: &str = "container_status";
        let deadline = self.deadline();
        let message = pb::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        let mut client = self.runtime();
        let call = client.container_status(request(message, deadline));
        let answer = missing_is_not_found(self.call(OPERATION, deadline, call).await)?;
        let status = answer
            .status
            .ok_or_else(|| incomplete(OPERATION, "status"))?;
        Ok(convert::container_detail_from_pb(status))
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(convert::resources_to_pb(resources)),
            ..Default::default()
        };
        let mut client = self.runtime();
        let call = client.update_container_resources(request(message, deadline));
        missing_is_not_found(
            self.call("update_container", deadline, call)
                .await
                .map(drop),
        )
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        let timeout = timeout.min(MAX_TIMEOUT);
        let seconds = timeout.as_secs_f64().ceil().max(1.0);
        let deadline = Some(self.timeout + timeout);
        let message = pb::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            timeout: seconds as i64,
        };
        let mut client = self.runtime();
        let call = client.exec_sync(request(message, deadline));
        let answer = missing_is_not_found(self.call("exec_sync", deadline, call).await)?;
        Ok(ExecOutput {
            stdout: answer.stdout.into(),
            stderr: answer.stderr.into(),
            exit_code: answer.exit_code,
        })
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::ReopenContainerLogRequest {
            container_id: id.to_string(),
        };
        let mut client = self.runtime();
        let call = client.reopen_container_log(request(message, deadline));
        let answer = self.call("reopen_container_log", deadline, call).await;
        missing_is_not_found(answer.map(drop))
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        crate::events::subscribe(self).await
    }
}

#[async_trait]
impl ImageService for CriClient {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        let deadline = self.deadline();
        let message = pb::ListImagesRequest { filter: None };
        let mut client = self.images();
        let call = client.list_images(request(message, deadline));
        let answer = self.call("list_images", deadline, call).await?;
        Ok(answer
            .images
            .into_iter()
            .map(convert::image_from_pb)
            .collect())
    }

    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>> {
        let deadline = self.deadline();
        let message = pb::ImageStatusRequest {
            image: Some(image_spec(image)),
            verbose: false,
        };
        let mut client = self.images();
        let call = client.image_status(request(message, deadline));
        match self.call("image_status", deadline, call).await {
            Ok(answer) => Ok(answer.image.map(convert::image_from_pb)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<String> {
        const OPERATION: &str = "pull_image";
        let message = pb::PullImageRequest {
            image: Some(pb::ImageSpec {
                // The pod's annotations, as upstream sends them.
                annotations: sandbox_config.annotations.clone(),
                ..image_spec(image)
            }),
            auth: auth.map(convert::auth_to_pb),
            sandbox_config: Some(convert::sandbox_config_to_pb(sandbox_config)),
        };
        let mut client = self.images();
        let call = Box::pin(client.pull_image(request(message, None)));
        let answer = self.call(OPERATION, None, call).await?;
        match answer.image_ref.is_empty() {
            true => Err(incomplete(OPERATION, "image reference")),
            false => Ok(answer.image_ref),
        }
    }

    async fn remove_image(&self, image: &str) -> CriResult<()> {
        let deadline = self.deadline();
        let message = pb::RemoveImageRequest {
            image: Some(image_spec(image)),
        };
        let mut client = self.images();
        let call = client.remove_image(request(message, deadline));
        missing_is_ok(self.call("remove_image", deadline, call).await.map(drop))
    }
}

fn image_spec(image: &str) -> pb::ImageSpec {
    pb::ImageSpec {
        image: image.to_owned(),
        ..Default::default()
    }
}

/// The CRI's stop timeout is in whole seconds; a fraction is rounded up.
fn whole_seconds(grace: Duration) -> i64 {
    let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_timelines::within;
    use windlass_types::{SpanId, TraceId, TraceParent};

    use super::request;

    #[tokio::test]
    async fn traced_call_sends_traceparent_and_others_do_not() {
        let span = TraceParent {
            trace: TraceId(1),
            span: SpanId(2),
        };
        let call = || async { request((), Some(Duration::from_secs(1))) };
        let traced = within(span, call()).await;
        let header = traced.metadata().get("traceparent");
        let expected = "00-00000000000000000000000000000001-0000000000000002-01";
        assert_eq!(header.and_then(|it| it.to_str().ok()), Some(expected));
        assert!(call().await.metadata().get("traceparent").is_none());
    }
}
