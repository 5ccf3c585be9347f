//! A scripted runtime that records its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use windlass_checks::Checks;
use windlass_credentials::credentials::Keyring;
use windlass_cri::error::{CriCode, CriError, CriResult};
use windlass_cri::port::{ImageService, RuntimeEventStream, RuntimeService};
use windlass_manifests::image_name::ImageName;
use windlass_pod_lifecycle::http_target::HttpTarget;
use windlass_pod_lifecycle::probe::{CheckError, GrpcHealth, HttpAnswer};
use windlass_types::cri::{
    ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth, ImageInfo,
    LinuxResources, ListFilter, RuntimeHandler, RuntimeStatus, RuntimeVersion, SandboxConfig,
    SandboxDetail, SandboxSummary,
};
use windlass_types::view::EventType;
use windlass_types::{Clock, ContainerId, EventRecorder, Pod, Reason, SandboxId, Timestamp};

use super::at;
use windlass_runtime_config::port::ImageCredentials;

#[derive(Debug, Default)]
struct Model {
    calls: Vec<String>,
    /// Time of each call.
    times: Vec<Instant>,
    failing: BTreeMap<String, CriError>,
    hanging: BTreeSet<String>,
    taking: BTreeMap<String, Duration>,
    exits: BTreeMap<String, i32>,
    details: BTreeMap<ContainerId, ContainerDetail>,
    images: BTreeMap<String, ImageInfo>,
    containers: Vec<ContainerSummary>,
    sandboxes: Vec<SandboxSummary>,
    configs: Vec<ContainerConfig>,
    network_error: Option<String>,
    version: RuntimeVersion,
    handlers: Vec<RuntimeHandler>,
    keyring: Keyring,
    /// Images for which credentials were requested.
    asked: Vec<String>,
    next: u32,
}

/// The runtime.
#[derive(Debug, Default)]
pub(crate) struct Fake(Mutex<Model>);

impl Fake {
    /// Calls so far, without image look-ups.
    pub(crate) fn calls(&self) -> Vec<String> {
        let model = self.0.lock().expect("lock");
        let shown = model.calls.iter();
        shown
            .filter(|c| !c.starts_with("image-status"))
            .cloned()
            .collect()
    }

    pub(crate) fn all_calls(&self) -> Vec<String> {
        self.0.lock().expect("lock").calls.clone()
    }

    pub(crate) fn forget_calls(&self) {
        let mut model = self.0.lock().expect("lock");
        model.calls.clear();
        model.times.clear();
    }

    /// Calls but lists, with the seconds from the first of them.
    pub(crate) fn timed_calls(&self) -> Vec<String> {
        let model = self.0.lock().expect("lock");
        let calls = model.calls.iter().zip(&model.times);
        let shown: Vec<_> = calls.filter(|(c, _)| !c.starts_with("list")).collect();
        let first = shown.first().map(|(_, at)| **at);
        let since = |at: &Instant| first.map_or(0.0, |first| (*at - first).as_secs_f64());
        shown
            .iter()
            .map(|(call, at)| format!("{:.0}s {call}", since(at)))
            .collect()
    }

    /// Makes a call (`stop c 5s`, or all of its kind: `stop`) take this long.
    pub(crate) fn take(&self, call: &str, time: Duration) {
        let mut model = self.0.lock().expect("lock");
        model.taking.insert(call.to_owned(), time);
    }

    /// Makes a command (`exec c sh -c x`) exit with this result.
    pub(crate) fn exit(&self, call: &str, code: i32) {
        let mut model = self.0.lock().expect("lock");
        model.exits.insert(call.to_owned(), code);
    }

    /// Sets a container's status; without it the container does not exist.
    pub(crate) fn detail(&self, detail: ContainerDetail) {
        let mut model = self.0.lock().expect("lock");
        model.details.insert(detail.observed.id.clone(), detail);
    }

    pub(crate) fn configs(&self) -> Vec<ContainerConfig> {
        self.0.lock().expect("lock").configs.clone()
    }

    pub(crate) fn have_image(&self, name: &str) {
        let info = ImageInfo {
            id: format!("sha256:{name}"),
            size: 1000,
            ..ImageInfo::default()
        };
        self.0
            .lock()
            .expect("lock")
            .images
            .insert(name.to_owned(), info);
    }

    /// Sets the credentials of the provider.
    pub(crate) fn have_credentials(&self, keyring: Keyring) {
        self.0.lock().expect("lock").keyring = keyring;
    }

    /// Images for which credentials were requested.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().expect("lock").asked.clone()
    }

    pub(crate) fn lose_image(&self, name: &str) {
        self.0.lock().expect("lock").images.remove(name);
    }

    /// Makes a call (`start c`, or all of its kind: `start`) fail.
    pub(crate) fn fail(&self, call: &str, code: CriCode, message: &str) {
        let error = CriError::new("test", code, message);
        self.0
            .lock()
            .expect("lock")
            .failing
            .insert(call.to_owned(), error);
    }

    pub(crate) fn heal(&self, call: &str) {
        let mut model = self.0.lock().expect("lock");
        model.failing.remove(call);
        model.hanging.remove(call);
    }

    pub(crate) fn hang(&self, call: &str) {
        self.0.lock().expect("lock").hanging.insert(call.to_owned());
    }

    /// Sets the runtime name and version.
    pub(crate) fn be(&self, name: &str, version: &str) {
        self.0.lock().expect("lock").version = RuntimeVersion {
            name: name.to_owned(),
            version: version.to_owned(),
            ..RuntimeVersion::default()
        };
    }

    /// Sets the features of the default handler.
    pub(crate) fn recursive_read_only(&self, can: bool) {
        self.0.lock().expect("lock").handlers = vec![RuntimeHandler {
            recursive_read_only_mounts: can,
            ..RuntimeHandler::default()
        }];
    }

    pub(crate) fn network_down(&self, why: &str) {
        self.0.lock().expect("lock").network_error = Some(why.to_owned());
    }

    pub(crate) fn add_container(&self, container: ContainerSummary) {
        self.0.lock().expect("lock").containers.push(container);
    }

    pub(crate) fn add_sandbox(&self, sandbox: SandboxSummary) {
        self.0.lock().expect("lock").sandboxes.push(sandbox);
    }

    async fn call(&self, word: &str, subject: impl Display) -> CriResult<()> {
        let line = format!("{word} {subject}");
        let (hangs, takes) = {
            let mut model = self.0.lock().expect("lock");
            let failing = model.failing.get(&line).or_else(|| model.failing.get(word));
            let failure = failing.cloned();
            let hangs = model.hanging.contains(&line) || model.hanging.contains(word);
            let taking = model.taking.get(&line).or_else(|| model.taking.get(word));
            let takes = taking.copied();
            model.calls.push(line);
            model.times.push(Instant::now());
            if let Some(error) = failure {
                return Err(error);
            }
            (hangs, takes)
        };
        // lets other syncs run, as a real call
        tokio::task::yield_now().await;
        if hangs {
            std::future::pending::<()>().await;
        }
        if let Some(time) = takes {
            tokio::time::sleep(time).await;
        }
        Ok(())
    }

    fn number(&self) -> u32 {
        let mut model = self.0.lock().expect("lock");
        model.next += 1;
        model.next
    }
}

#[async_trait]
impl RuntimeService for Fake {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        Ok(self.0.lock().expect("lock").version.clone())
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        let model = self.0.lock().expect("lock");
        Ok(RuntimeStatus {
            runtime_error: None,
            network_error: model.network_error.clone(),
            handlers: model.handlers.clone(),
            ..RuntimeStatus::default()
        })
    }

    async fn update_runtime_config(&self, _: &str) -> CriResult<()> {
        Ok(())
    }

    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId> {
        self.call(
            "sandbox",
            format!("{}#{}{handler}", config.name, config.attempt),
        )
        .await?;
        Ok(SandboxId::from(format!("s{}", self.number())))
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        self.call("stop-sandbox", id).await
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        self.call("remove-sandbox", id).await
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail> {
        self.call("sandbox-status", "").await?;
        Ok(SandboxDetail {
            summary: SandboxSummary {
                id: id.clone(),
                uid: "u1".into(),
                name: "web".into(),
                namespace: "default".into(),
                attempt: 0,
                ready: true,
                created_at: at(0),
            },
            ips: vec!["10.0.0.7".parse().expect("address")],
            host_network: false,
        })
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        _: Option<&LinuxResources>,
        _: &LinuxResources,
    ) -> CriResult<()> {
        self.call("resize-sandbox", id).await
    }

    async fn list_pod_sandboxes(&self, _: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        self.call("list-sandboxes", "").await?;
        Ok(self.0.lock().expect("lock").sandboxes.clone())
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        _: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        self.call("create", format!("{}#{}", config.name, config.attempt))
            .await?;
        let _ = sandbox;
        self.0.lock().expect("lock").configs.push(config.clone());
        Ok(ContainerId::from(config.name.as_str()))
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        self.call("start", id).await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        self.call("stop", format!("{id} {}s", grace.as_secs()))
            .await
    }

    async fn remove_container(&self, id: &ContainerId) -> CriResult<()> {
        self.call("remove", id).await
    }

    async fn list_containers(&self, _: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        self.call("list-containers", "").await?;
        Ok(self.0.lock().expect("lock").containers.clone())
    }

    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail> {
        let model = self.0.lock().expect("lock");
        let detail = model.details.get(id).cloned();
        let (operation, code) = ("container_status", CriCode::NotFound);
        detail.ok_or_else(|| CriError::new(operation, code, id.as_str()))
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        _: &LinuxResources,
    ) -> CriResult<()> {
        self.call("resize", id).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        let subject = format!("{id} {}", command.join(" "));
        let done = tokio::time::timeout(timeout, self.call("exec", &subject)).await;
        match done {
            Ok(called) => called?,
            Err(late) => {
                let code = CriCode::DeadlineExceeded;
                return Err(CriError::new("exec_sync", code, late.to_string()));
            }
        }
        let model = self.0.lock().expect("lock");
        Ok(ExecOutput {
            stdout: b"out".to_vec(),
            stderr: b"err".to_vec(),
            exit_code: model
                .exits
                .get(&format!("exec {subject}"))
                .copied()
                .unwrap_or(0),
        })
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()> {
        self.call("reopen", id).await
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        Err(CriError::new("events", CriCode::Unimplemented, ""))
    }
}

/// Container servers that succeed unless set to fail.
#[async_trait]
impl Checks for Fake {
    async fn http(
        &self,
        target: &HttpTarget,
        _: Option<Duration>,
    ) -> Result<HttpAnswer, CheckError> {
        let called = self.call("get", target.url()).await;
        match called {
            Ok(()) => Ok(HttpAnswer {
                status: 500,
                ..HttpAnswer::default()
            }),
            Err(error) if error.message == "plain" => Err(CheckError::PlainHttp),
            Err(error) => Err(CheckError::Failed(error.message)),
        }
    }

    async fn tcp(&self, _: &str, _: u16, _: Duration) -> Result<(), CheckError> {
        Ok(())
    }

    async fn grpc(&self, _: &str, _: u16, _: &str, _: Duration) -> Result<GrpcHealth, CheckError> {
        Ok(GrpcHealth::Serving)
    }
}

#[async_trait]
impl ImageCredentials for Fake {
    async fn keyring(&self, image: &ImageName, _: &Pod) -> Keyring {
        let mut model = self.0.lock().expect("lock");
        model.asked.push(image.reference.clone());
        model.keyring.clone()
    }
}

#[async_trait]
impl ImageService for Fake {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        Ok(Vec::new())
    }

    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>> {
        self.call("image-status", image).await?;
        let name = image.trim_start_matches("sha256:");
        Ok(self.0.lock().expect("lock").images.get(name).cloned())
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        _: &SandboxConfig,
    ) -> CriResult<String> {
        let user = auth.map_or(String::new(), |auth| format!(" as {}", auth.username));
        self.call("pull", format!("{image}{user}")).await?;
        self.have_image(image);
        Ok(format!("sha256:{image}"))
    }

    async fn remove_image(&self, _: &str) -> CriResult<()> {
        Ok(())
    }
}

/// Events as lines.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("lock"))
    }
}

impl EventRecorder for Recorder {
    fn record_node(&self, _: EventType, _: Reason, _: &str) {}

    fn record(
        &self,
        _: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        let letter = &event_type.as_str()[..1];
        let subject = container.map_or(String::new(), |name| format!(" {name}"));
        let line = format!("{letter} {reason}{subject}: {message}");
        self.0.lock().expect("lock").push(line);
    }
}

/// A clock that does not advance by itself.
#[derive(Debug, Default)]
pub(crate) struct FixedClock(Mutex<i64>);

impl FixedClock {
    pub(crate) fn set(&self, seconds: i64) {
        *self.0.lock().expect("lock") = seconds;
    }

    pub(crate) fn now_(&self) -> Timestamp {
        at(*self.0.lock().expect("lock"))
    }
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.now_()
    }
}
