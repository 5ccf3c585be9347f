//! Wrappers of both ports that detect hung calls ([`HungCalls`]) and record the calls of a pod in
//! its timeline.
//!
//! Image pulls and the event stream have no deadline and are not tracked. For StopContainer and
//! ExecSync the requested timeout is added to the threshold, for the start of a sandbox or container
//! the time that a low CPU limit adds to it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_timelines::{RecordGuard, RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::cri::{
    CgroupDriver, ContainerConfig, ContainerDetail, ContainerSummary, ExecOutput, ImageAuth,
    ImageInfo, LinuxResources, ListFilter, RuntimeStatus, RuntimeVersion, SandboxConfig,
    SandboxDetail, SandboxSummary,
};
use windlass_types::{ContainerId, PodUid, SandboxId, names};

use crate::error::CriResult;
use crate::hung::{CallObject, HungCalls, Owner, short};
use crate::port::{ImageService, RuntimeEventStream, RuntimeService};

/// A read that takes longer has hung: containerd answers in milliseconds, on a busy node in a few
/// hundred.
const READ_HANG_THRESHOLD: Duration = Duration::from_secs(3);
/// Threshold of calls that change something: they wait for disks, networks and processes.
const CHANGE_HANG_THRESHOLD: Duration = Duration::from_secs(4);
/// Threshold of RemoveImage, in which the runtime deletes the files of all layers: 30,000 of them
/// exceeded four seconds. It is below the timeout of 30 s after which image garbage collection ends
/// the call, so that a hung one is listed.
const REMOVE_IMAGE_HANG_THRESHOLD: Duration = Duration::from_secs(20);
/// CPU time that the OCI runtime uses within the limit of what it starts. With a limit of 10m a
/// sandbox took 7 s on containerd 2.3, so about 70 ms; twice as much for a slower processor.
const START_CPU_TIME: Duration = Duration::from_millis(140);
/// Shorter delays by a CPU limit are within the threshold.
const MIN_START_DELAY: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Pod of the current task's calls.
    static FOR_POD: PodUid;
}

/// Runs work for a pod: calls in it that name no object of the pod (an image, a list by name) are
/// attributed to the pod.
pub fn for_pod<T>(uid: PodUid, work: impl Future<Output = T>) -> impl Future<Output = T> {
    FOR_POD.scope(uid, work)
}

/// Tracks hung calls and records timelines.
#[derive(Clone, Debug)]
struct CallTracker {
    calls: HungCalls,
    timelines: Timelines,
}

impl CallTracker {
    /// Runs a call that counts as hung after `threshold`.
    async fn track<T>(
        &self,
        operation: &'static str,
        object: CallObject,
        threshold: Duration,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        let pod = FOR_POD.try_with(Clone::clone).ok();
        let record = self.begin(operation, &object, pod.as_ref());
        let call = self.calls.track((operation, object), pod, threshold, call);
        self.run_recorded(record, call).await
    }

    /// Runs a call within its timeline record, if it has one.
    async fn run_recorded<T>(
        &self,
        record: Option<RecordGuard>,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        let Some(record) = record else {
            return call.await;
        };
        let result = record.within(call).await;
        record.end(RecordOutcome::from_result(
            &result.as_ref().map_err(|error| &error.message),
        ));
        result
    }

    fn begin(
        &self,
        operation: &'static str,
        object: &CallObject,
        for_pod: Option<&PodUid>,
    ) -> Option<RecordGuard> {
        // probe attempts are frequent; the prober records probe results itself
        if operation == "ExecSync" && for_pod.is_none() {
            return None;
        }
        let kind = RecordKind::RuntimeCall;
        let of = |id: &str| self.calls.owner(id);
        let (pod, what) = match object {
            CallObject::Runtime => (None, RecordKey::new(kind, operation)),
            CallObject::Pod(uid) => (Some(uid.clone()), RecordKey::new(kind, operation)),
            CallObject::NewContainer(uid, name) => (
                Some(uid.clone()),
                RecordKey::with_subject(kind, operation, name),
            ),
            CallObject::Sandbox(id) => {
                let owner = of(id.as_str()).map(|owner| owner.pod);
                (owner, RecordKey::new(kind, operation))
            }
            CallObject::Container(id) => match of(id.as_str()) {
                Some(Owner { pod, container, .. }) => {
                    let subject = container;
                    let what = RecordKey::new(kind, operation);
                    (Some(pod), RecordKey { subject, ..what })
                }
                None => (
                    None,
                    RecordKey::with_subject(kind, operation, short(id.as_str())),
                ),
            },
            CallObject::Image(name) => (None, RecordKey::with_subject(kind, operation, name)),
        };
        let pod = pod.as_ref().or(for_pod)?;
        Some(self.timelines.begin(pod, what))
    }
}

/// Runtime service with call tracking.
#[derive(Clone, Debug)]
pub struct TrackedRuntime {
    inner: Arc<dyn RuntimeService>,
    tracker: CallTracker,
}

impl TrackedRuntime {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn RuntimeService>, calls: HungCalls, timelines: Timelines) -> Self {
        let tracker = CallTracker { calls, timelines };
        Self { inner, tracker }
    }

    async fn read<T>(
        &self,
        operation: &'static str,
        object: CallObject,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        self.tracker
            .track(operation, object, READ_HANG_THRESHOLD, call)
            .await
    }

    async fn change<T>(
        &self,
        operation: &'static str,
        object: CallObject,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        self.change_within(operation, object, Duration::ZERO, call)
            .await
    }

    /// Runs a change that may take `extra` longer than others.
    async fn change_within<T>(
        &self,
        operation: &'static str,
        object: CallObject,
        extra: Duration,
        call: impl Future<Output = CriResult<T>>,
    ) -> CriResult<T> {
        let threshold = CHANGE_HANG_THRESHOLD.saturating_add(extra);
        self.tracker.track(operation, object, threshold, call).await
    }
}

/// Object that a list is filtered by.
fn list_object(filter: &ListFilter) -> CallObject {
    if let Some(uid) = filter.labels.get(names::LABEL_POD_UID) {
        return CallObject::Pod(PodUid::from(uid.as_str()));
    }
    match (&filter.sandbox, &filter.id) {
        (Some(id), _) => CallObject::Sandbox(id.clone()),
        (None, Some(id)) => CallObject::Container(ContainerId::from(id.as_str())),
        (None, None) => CallObject::Runtime,
    }
}

/// Time that the CPU limit adds to a start. It exists because the OCI runtime starts a sandbox or
/// container as a process in the limited cgroup.
fn start_delay(resources: &LinuxResources) -> Duration {
    let limit = u32::try_from(resources.cpu_quota).unwrap_or_default();
    let period = u32::try_from(resources.cpu_period).unwrap_or_default();
    let delay = START_CPU_TIME.saturating_mul(period).checked_div(limit);
    delay
        .filter(|delay| *delay >= MIN_START_DELAY)
        .unwrap_or_default()
}

#[async_trait]
impl RuntimeService for TrackedRuntime {
    async fn version(&self) -> CriResult<RuntimeVersion> {
        let call = self.inner.version();
        self.read("Version", CallObject::Runtime, call).await
    }

    async fn status(&self) -> CriResult<RuntimeStatus> {
        let call = self.inner.status();
        self.read("Status", CallObject::Runtime, call).await
    }

    async fn update_runtime_config(&self, pod_cidr: &str) -> CriResult<()> {
        let call = self.inner.update_runtime_config(pod_cidr);
        let object = CallObject::Runtime;
        self.change("UpdateRuntimeConfig", object, call).await
    }

    async fn cgroup_driver(&self) -> CriResult<Option<CgroupDriver>> {
        let call = self.inner.cgroup_driver();
        self.read("RuntimeConfig", CallObject::Runtime, call).await
    }

    async fn run_pod_sandbox(&self, config: &SandboxConfig, handler: &str) -> CriResult<SandboxId> {
        let call = self.inner.run_pod_sandbox(config, handler);
        let object = CallObject::Pod(config.uid.clone());
        let delay = config.resources.as_ref().map(start_delay);
        let id = self
            .change_within("RunPodSandbox", object, delay.unwrap_or_default(), call)
            .await?;
        let owner = Owner::new(config.uid.clone(), None);
        self.tracker.calls.record_created(id.as_str(), owner);
        Ok(id)
    }

    async fn stop_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        let call = self.inner.stop_pod_sandbox(id);
        let object = CallObject::Sandbox(id.clone());
        self.change("StopPodSandbox", object, call).await
    }

    async fn remove_pod_sandbox(&self, id: &SandboxId) -> CriResult<()> {
        let call = self.inner.remove_pod_sandbox(id);
        let object = CallObject::Sandbox(id.clone());
        self.change("RemovePodSandbox", object, call).await
    }

    async fn pod_sandbox_status(&self, id: &SandboxId) -> CriResult<SandboxDetail> {
        let call = self.inner.pod_sandbox_status(id);
        let object = CallObject::Sandbox(id.clone());
        self.read("PodSandboxStatus", object, call).await
    }

    async fn update_pod_sandbox_resources(
        &self,
        id: &SandboxId,
        overhead: Option<&LinuxResources>,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let inner = &self.inner;
        let call = inner.update_pod_sandbox_resources(id, overhead, resources);
        let object = CallObject::Sandbox(id.clone());
        self.change("UpdatePodSandboxResources", object, call).await
    }

    async fn list_pod_sandboxes(&self, filter: &ListFilter) -> CriResult<Vec<SandboxSummary>> {
        let call = self.inner.list_pod_sandboxes(filter);
        let rows = self
            .read("ListPodSandbox", list_object(filter), call)
            .await?;
        let all = *filter == ListFilter::default();
        self.tracker.calls.record_sandbox_list(&rows, all);
        Ok(rows)
    }

    async fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &ContainerConfig,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<ContainerId> {
        let uid = &sandbox_config.uid;
        let call = self.inner.create_container(sandbox, config, sandbox_config);
        let object = CallObject::NewContainer(uid.clone(), config.name.clone());
        let id = self.change("CreateContainer", object, call).await?;
        let of_the_pod = sandbox_config.resources.as_ref().map(start_delay);
        let owner = Owner {
            start_delay: start_delay(&config.resources).max(of_the_pod.unwrap_or_default()),
            ..Owner::new(uid.clone(), Some(&config.name))
        };
        self.tracker.calls.record_created(id.as_str(), owner);
        Ok(id)
    }

    async fn start_container(&self, id: &ContainerId) -> CriResult<()> {
        let call = self.inner.start_container(id);
        let object = CallObject::Container(id.clone());
        let owner = self.tracker.calls.owner(id.as_str());
        let delay = owner.map(|owner| owner.start_delay).unwrap_or_default();
        self.change_within("StartContainer", object, delay, call)
            .await
    }

    async fn stop_container(&self, id: &ContainerId, grace: Duration) -> CriResult<()> {
        let call = self.inner.stop_container(id, grace);
        let object = CallObject::Container(id.clone());
        self.change_within("StopContainer", object, grace, call)
            .await
    }

    async fn remove_container(&self, id: &ContainerId) -> CriResult<()> {
        let call = self.inner.remove_container(id);
        let object = CallObject::Container(id.clone());
        self.change("RemoveContainer", object, call).await
    }

    async fn list_containers(&self, filter: &ListFilter) -> CriResult<Vec<ContainerSummary>> {
        let call = self.inner.list_containers(filter);
        let rows = self
            .read("ListContainers", list_object(filter), call)
            .await?;
        let all = *filter == ListFilter::default();
        self.tracker.calls.record_container_list(&rows, all);
        Ok(rows)
    }

    async fn container_status(&self, id: &ContainerId) -> CriResult<ContainerDetail> {
        let call = self.inner.container_status(id);
        let object = CallObject::Container(id.clone());
        self.read("ContainerStatus", object, call).await
    }

    async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> CriResult<()> {
        let call = self.inner.update_container_resources(id, resources);
        let object = CallObject::Container(id.clone());
        self.change("UpdateContainerResources", object, call).await
    }

    async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
    ) -> CriResult<ExecOutput> {
        let call = self.inner.exec_sync(id, command, timeout);
        let object = CallObject::Container(id.clone());
        self.change_within("ExecSync", object, timeout, call).await
    }

    async fn reopen_container_log(&self, id: &ContainerId) -> CriResult<()> {
        let call = self.inner.reopen_container_log(id);
        let object = CallObject::Container(id.clone());
        self.change("ReopenContainerLog", object, call).await
    }

    async fn events(&self) -> CriResult<RuntimeEventStream> {
        self.inner.events().await
    }
}

/// Image service with call tracking.
#[derive(Clone, Debug)]
pub struct TrackedImages {
    inner: Arc<dyn ImageService>,
    tracker: CallTracker,
}

impl TrackedImages {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ImageService>, calls: HungCalls, timelines: Timelines) -> Self {
        let tracker = CallTracker { calls, timelines };
        Self { inner, tracker }
    }
}

#[async_trait]
impl ImageService for TrackedImages {
    async fn list_images(&self) -> CriResult<Vec<ImageInfo>> {
        let call = self.inner.list_images();
        let object = CallObject::Runtime;
        let tracker = &self.tracker;
        tracker
            .track("ListImages", object, READ_HANG_THRESHOLD, call)
            .await
    }

    async fn image_status(&self, image: &str) -> CriResult<Option<ImageInfo>> {
        let call = self.inner.image_status(image);
        let object = CallObject::Image(image.to_owned());
        let tracker = &self.tracker;
        tracker
            .track("ImageStatus", object, READ_HANG_THRESHOLD, call)
            .await
    }

    async fn pull_image(
        &self,
        image: &str,
        auth: Option<&ImageAuth>,
        sandbox_config: &SandboxConfig,
    ) -> CriResult<String> {
        let call = self.inner.pull_image(image, auth, sandbox_config);
        let object = CallObject::Image(image.to_owned());
        let for_pod = Some(&sandbox_config.uid);
        let record = self.tracker.begin("PullImage", &object, for_pod);
        self.tracker.run_recorded(record, call).await
    }

    async fn remove_image(&self, image: &str) -> CriResult<()> {
        let call = self.inner.remove_image(image);
        let object = CallObject::Image(image.to_owned());
        let (tracker, threshold) = (&self.tracker, REMOVE_IMAGE_HANG_THRESHOLD);
        tracker.track("RemoveImage", object, threshold, call).await
    }
}
