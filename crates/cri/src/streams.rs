//! `exec`, `attach`, `port-forward` and container checkpoints.
//!
//! A separate port, used only by the node API. The runtime returns the URL of a stream on its own
//! streaming server, valid for one connection.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_proto::cri_v1::{self as pb};
use windlass_types::{ContainerId, SandboxId};

use crate::client::{CriClient, missing_is_not_found, request};
use crate::error::CriResult;
use crate::hung::{CallObject, HungCalls};

/// A call that takes longer has hung: it only returns a URL and starts nothing.
const READ_HANG_THRESHOLD: Duration = Duration::from_secs(3);

/// Requested streams of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSet {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; a terminal has none.
    pub stderr: bool,
    /// Whether a terminal is allocated.
    pub tty: bool,
}

/// Streaming calls of the CRI.
#[async_trait]
pub trait RuntimeStreams: Send + Sync + Debug + 'static {
    /// URL at which `command` can be run in a container.
    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamSet,
    ) -> CriResult<String>;
    /// URL of the streams of a container's main process.
    async fn attach(&self, id: &ContainerId, streams: StreamSet) -> CriResult<String>;
    /// URL at which ports of a sandbox can be reached.
    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> CriResult<String>;
    /// Writes a checkpoint of a container into the file `location`. The timeout is `timeout`, but
    /// at least that of other calls; zero or less selects the default.
    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &Path,
        timeout: Duration,
    ) -> CriResult<()>;
}

#[async_trait]
impl RuntimeStreams for CriClient {
    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamSet,
    ) -> CriResult<String> {
        let deadline = self.deadline();
        let message = pb::ExecRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut client = self.runtime();
        let call = client.exec(request(message, deadline));
        let answer = missing_is_not_found(self.call("exec", deadline, call).await)?;
        Ok(answer.url)
    }

    async fn attach(&self, id: &ContainerId, streams: StreamSet) -> CriResult<String> {
        let deadline = self.deadline();
        let message = pb::AttachRequest {
            container_id: id.to_string(),
            stdin: streams.stdin,
            tty: streams.tty,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let mut client = self.runtime();
        let call = client.attach(request(message, deadline));
        let answer = missing_is_not_found(self.call("attach", deadline, call).await)?;
        Ok(answer.url)
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> CriResult<String> {
        let deadline = self.deadline();
        let message = pb::PortForwardRequest {
            pod_sandbox_id: id.to_string(),
            port: ports.iter().map(|port| i32::from(*port)).collect(),
        };
        let mut client = self.runtime();
        let call = client.port_forward(request(message, deadline));
        let answer = missing_is_not_found(self.call("port_forward", deadline, call).await)?;
        Ok(answer.url)
    }

    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &Path,
        timeout: Duration,
    ) -> CriResult<()> {
        let deadline = self.deadline().map(|deadline| deadline.max(timeout));
        let seconds = deadline.unwrap_or_default().as_secs();
        let message = pb::CheckpointContainerRequest {
            container_id: id.to_string(),
            location: location.to_string_lossy().into_owned(),
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        let mut client = self.runtime();
        let call = client.checkpoint_container(request(message, deadline));
        self.call("checkpoint_container", deadline, call)
            .await
            .map(drop)
    }
}

/// Streaming calls with call tracking.
#[derive(Clone, Debug)]
pub struct TrackedStreams {
    inner: Arc<dyn RuntimeStreams>,
    calls: HungCalls,
}

impl TrackedStreams {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn RuntimeStreams>, calls: HungCalls) -> Self {
        Self { inner, calls }
    }

    async fn track<T>(
        &self,
        operation: &'static str,
        object: CallObject,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        let key = (operation, object);
        self.calls.track(key, None, READ_HANG_THRESHOLD, call).await
    }
}

#[async_trait]
impl RuntimeStreams for TrackedStreams {
    async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamSet,
    ) -> CriResult<String> {
        let call = self.inner.exec(id, command, streams);
        let object = CallObject::Container(id.clone());
        self.track("Exec", object, call).await
    }

    async fn attach(&self, id: &ContainerId, streams: StreamSet) -> CriResult<String> {
        let call = self.inner.attach(id, streams);
        let object = CallObject::Container(id.clone());
        self.track("Attach", object, call).await
    }

    async fn port_forward(&self, id: &SandboxId, ports: &[u16]) -> CriResult<String> {
        let call = self.inner.port_forward(id, ports);
        let object = CallObject::Sandbox(id.clone());
        self.track("PortForward", object, call).await
    }

    /// Not tracked: the duration depends on the container's memory.
    async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &Path,
        timeout: Duration,
    ) -> CriResult<()> {
        self.inner.checkpoint_container(id, location, timeout).await
    }
}
