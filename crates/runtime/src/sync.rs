//! One sync of a pod: plan, stop, prepare, create the sandbox, start containers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use windlass_cri::for_pod;
use windlass_pod_inputs::paths;
use windlass_pod_lifecycle::actions::{
    ActionsInput, ContainerToKill, ContainerToStart, PodActions, compute_pod_actions,
};
use windlass_pod_lifecycle::backoff::pull_resync_at;
use windlass_pod_lifecycle::stop::effective_grace_period;
use windlass_runtime_config::sandbox_config::wants_user_namespace;
use windlass_types::cri::SandboxConfig;
use windlass_types::pod::is_sidecar;
use windlass_types::view::{EventType, StartTimings};
use windlass_types::{ContainerState, Pod, PodExt, Reason, Retry, SandboxId, Timestamp};
use windlass_units::duration::go_duration;

use crate::PodRuntime;
use crate::files::FilesError;
use crate::images::{SyncImages, is_failed_pull};
use crate::kill::ContainerKill;
use crate::removal::Removal;
use crate::request::{
    ContainerInputs, KillPodRequest, StartFailure, SyncPodOutcome, SyncPodRequest, retry_time,
};
use crate::text::pod_text;

/// Maximum wait of a cancelled sync for a container start in progress. A cancelled StartContainer
/// call would end the container with exit code 128 and "context canceled".
const START_TIMEOUT: Duration = Duration::from_secs(10);

impl PodRuntime {
    /// Runs one sync: computes the plan and executes it. Failures are in the outcome. Cancellation
    /// takes effect at the next await, after a container start in progress.
    pub async fn sync_pod(&self, req: SyncPodRequest, cancel: CancellationToken) -> SyncPodOutcome {
        self.sync_new_pod(req, None, cancel).await
    }

    /// Like [`Self::sync_pod`], but creates the sandbox while the inputs of the containers are
    /// being prepared.
    pub async fn sync_new_pod(
        &self,
        req: SyncPodRequest,
        containers: Option<ContainerInputs<'_>>,
        cancel: CancellationToken,
    ) -> SyncPodOutcome {
        let deps = self.deps();
        let _active = self.active().enter(req.pod.uid());
        let now = deps.clock.now();
        let actions = compute_pod_actions(ActionsInput {
            pod: &req.pod,
            observed: &req.observed,
            backoff: &req.backoff,
            probe_results: &req.probe_results,
            policy: deps.options.restart_backoff,
            now,
        });
        let mut pass = SyncPass::new(self, req, actions);
        tracing::debug!(pod = %pass.req.pod.full_name(), actions = %pass.actions, "sync planned");
        pass.report_back_off();
        pass.outside = pass.has_lost_cgroup();
        let resizes = pass.may_resize();
        if !resizes && pass.actions.sandbox_id.is_some() {
            pass.resized = Some(Ok(()));
        }
        let hooks = pass.has_unknown_post_start();
        if !pass.actions.is_empty() || pass.outside || resizes || hooks {
            let starting = Arc::clone(&pass.starting);
            let given_up = async {
                cancel.cancelled().await;
                // a hung start is abandoned
                let _ = timeout(START_TIMEOUT, starting.lock()).await;
            };
            let work = for_pod(pass.req.pod.uid(), Box::pin(pass.run(containers)));
            let done = tokio::select! {
                biased;
                () = given_up => false,
                () = work => true,
            };
            pass.cancelled = !done;
        }
        pass.into_outcome()
    }
}

/// A sync in progress and its results so far.
pub(crate) struct SyncPass<'a> {
    pub(crate) runtime: &'a PodRuntime,
    pub(crate) req: SyncPodRequest,
    pub(crate) actions: PodActions,
    pub(crate) failures: Vec<StartFailure>,
    pub(crate) timings: StartTimings,
    pub(crate) changed: bool,
    pub(crate) images: SyncImages,
    /// Another sync is due immediately, from a new observation.
    pub(crate) again: bool,
    /// Held while the runtime starts a container.
    pub(crate) starting: Arc<Mutex<()>>,
    /// Result of the resize; `None` if none was possible.
    pub(crate) resized: Option<Result<(), String>>,
    pub(crate) resize_retry_at: Option<Timestamp>,
    cancelled: bool,
    /// A new sandbox with a user namespace was attempted.
    starts_user_namespace: bool,
    /// The pod's cgroup was removed.
    outside: bool,
}

/// The sandbox that containers are started in.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) config: SandboxConfig,
    pub(crate) ips: Vec<IpAddr>,
}

impl<'a> SyncPass<'a> {
    fn new(runtime: &'a PodRuntime, req: SyncPodRequest, actions: PodActions) -> Self {
        Self {
            runtime,
            req,
            actions,
            failures: Vec::new(),
            timings: StartTimings::default(),
            changed: false,
            images: SyncImages::default(),
            again: false,
            starting: Arc::default(),
            resized: None,
            resize_retry_at: None,
            outside: false,
            starts_user_namespace: false,
            cancelled: false,
        }
    }

    pub(crate) fn pod(&self) -> &Pod {
        &self.req.pod
    }

    async fn run(&mut self, container_inputs: Option<ContainerInputs<'_>>) {
        if self.outside {
            // its limits have no effect; the next sync starts it in a new cgroup
            tracing::warn!(pod = %self.pod().full_name(), "pod cgroup missing, restarting pod");
            self.actions.kill_pod = true;
            self.actions.create_sandbox = false;
        }
        if !self.actions.containers_to_reset.is_empty() {
            return self.reset().await;
        }
        if !self.stop_planned().await {
            return;
        }
        self.resize().await;
        self.resume_post_starts().await;
        if !self.actions.starts_something() {
            return;
        }
        let ready = match container_inputs {
            None => self.make_ready().await,
            Some(inputs) => self.make_ready_with(inputs).await,
        };
        match ready {
            Ok(sandbox) => self.start_all(&sandbox).await,
            Err(failure) => self.fail(failure),
        }
    }

    /// Creates the sandbox while the inputs of the containers are being prepared.
    async fn make_ready_with(
        &mut self,
        inputs: ContainerInputs<'_>,
    ) -> Result<Sandbox, StartFailure> {
        // a failure of the inputs does not cancel the sandbox creation
        let (sandbox, prepared) = match select(Box::pin(self.make_ready()), inputs).await {
            Either::Left((made, inputs)) => (made?, inputs.await),
            Either::Right((prepared, making)) => (making.await?, prepared),
        };
        (self.req.inputs, self.req.volumes) = prepared?;
        Ok(sandbox)
    }

    /// Stops the pod or single containers; returns false if the sync ends here.
    async fn stop_planned(&mut self) -> bool {
        let actions = &self.actions;
        if actions.create_sandbox && self.req.observed.newest_sandbox().is_some() {
            self.event(
                None,
                EventType::Normal,
                Reason::SandboxChanged,
                "Pod sandbox changed, it will be killed and re-created.",
            );
        }
        if actions.kill_pod {
            self.changed = true;
            let killed = self
                .runtime
                .kill_pod(KillPodRequest {
                    pod: Some(self.req.pod.clone()),
                    observed: self.req.observed.clone(),
                    grace: effective_grace_period(&self.req.pod, None),
                    // the sandbox is replaced whatever its containers do
                    waited: Duration::MAX,
                    message: String::new(),
                })
                .await;
            if let Err(error) = killed {
                let (text, retry) = (error.to_string(), error.retry());
                self.fail(StartFailure::for_pod(
                    Reason::KillContainerError,
                    text,
                    retry,
                ));
                return false;
            }
            return self.actions.create_sandbox;
        }
        self.stop_containers().await;
        true
    }

    /// Stops single containers concurrently. One that could not be stopped is not started in this
    /// sync.
    async fn stop_containers(&mut self) {
        if self.actions.containers_to_kill.is_empty() {
            return;
        }
        self.changed = true;
        let kills = self.actions.containers_to_kill.iter();
        let results = join_all(kills.map(|kill| self.stop_one(kill))).await;
        for result in results {
            match result {
                Ok(None) => {}
                Ok(Some((name, count))) => {
                    for start in self.actions.starts_mut().filter(|start| start.name == name) {
                        start.restart_count = start.restart_count.max(Some(count));
                    }
                }
                Err(failure) => {
                    let stuck = failure.container.clone().unwrap_or_default();
                    self.actions.retain_starts(|start| start.name != stuck);
                    self.fail(failure);
                }
            }
        }
    }

    /// Returns the name and the minimum restart count of the next instance, if the runtime does not
    /// remove this one.
    async fn stop_one(
        &self,
        kill: &ContainerToKill,
    ) -> Result<Option<(String, u32)>, StartFailure> {
        let result = if kill.remove {
            self.remove_unused_log(kill).await;
            self.remove_instance(&kill.name, &kill.id).await
        } else {
            let stop = ContainerKill {
                pod: self.pod(),
                name: &kill.name,
                id: &kill.id,
                grace: effective_grace_period(self.pod(), kill.grace),
                message: &kill.message,
                probe: kill.cause.probe(),
                ips: &self.req.observed.ips,
                after: Vec::new(),
                pod_stop: None,
            };
            let killed = self.runtime.kill_container(stop).await;
            killed.map(|()| Removal::Done)
        };
        let failed = |message: String, retry| {
            StartFailure::for_container(&kill.name, Reason::KillContainerError, message, retry)
        };
        match result {
            Ok(Removal::Done) => Ok(None),
            Ok(Removal::Refused { restart_count }) => {
                // a later instance may be gone
                let recovered = self.recovered_restart_count(&kill.name).await;
                let recovered =
                    recovered.map_err(|error| failed(error.to_string(), error.retry()))?;
                Ok(Some((kill.name.clone(), recovered.max(restart_count + 1))))
            }
            Err(error) => Err(failed(error.to_string(), error.retry())),
        }
    }

    /// Removes the log of an instance that never ran. Before the instance: an agent run that finds
    /// only the log takes its number for a previous instance. Log rotation reopens the log if the
    /// instance runs after all.
    async fn remove_unused_log(&self, kill: &ContainerToKill) {
        let Some(unused) = self.instance(&kill.id) else {
            return;
        };
        let deps = self.runtime.deps();
        let (pod, uid, count) = (self.pod(), self.pod().uid(), unused.restart_count);
        let log = deps.node.paths.container_log(pod, &kill.name, count);
        let dir = deps.node.paths.container_log_dir(pod, &kill.name);
        let link = paths::log_symlink(pod, &kill.name, &kill.id);
        let removed = async {
            let names = deps.files.list_log_names(&uid, &dir).await?;
            let names = names.iter().map(String::as_str);
            // a count that is too high is better than one that goes back
            if !paths::is_recoverable_without_log(names, count) {
                return Ok(());
            }
            deps.files.remove_container_log(&uid, &link, &log).await
        };
        // a restart too many in the status is better than a container that does not start
        if let Err(error) = removed.await {
            tracing::warn!(log = %log.display(), %error, "log not removed");
        }
    }

    /// Prepares directories and the sandbox.
    async fn make_ready(&mut self) -> Result<Sandbox, StartFailure> {
        if self.actions.create_sandbox && !self.req.network_ready && !self.pod().host_network() {
            return Err(self.network_not_ready().await);
        }
        let deps = self.runtime.deps();
        let prepared = deps.files.prepare_pod(&self.req.pod).await;
        if let Err(error) = prepared {
            return Err(self.no_directories(&error));
        }
        match self.actions.sandbox_id.clone() {
            Some(id) => Ok(Sandbox {
                id,
                config: self.sandbox_config().await?,
                ips: self.req.observed.ips.clone(),
            }),
            None => self.create_sandbox().await,
        }
    }

    fn has_lost_cgroup(&self) -> bool {
        let mut containers = self.req.observed.containers.iter();
        containers.any(|c| c.state == ContainerState::Running)
            && self.runtime.is_cgroup_removed(&self.pod().uid())
    }

    async fn network_not_ready(&self) -> StartFailure {
        let status = self.runtime.deps().runtime.status().await;
        let why = status.ok().and_then(|status| status.network_error);
        let message = match why {
            Some(why) => format!("network is not ready: {why}"),
            None => "network is not ready".to_owned(),
        };
        self.event(None, EventType::Warning, Reason::NetworkNotReady, &message);
        StartFailure::for_pod(Reason::NetworkNotReady, message, Retry::Soon)
    }

    fn no_directories(&self, error: &FilesError) -> StartFailure {
        let message = format!("error making pod data directories: {error}");
        self.event(None, EventType::Warning, Reason::Failed, &message);
        StartFailure::for_pod(Reason::Failed, message, error.retry())
    }

    async fn sandbox_config(&self) -> Result<SandboxConfig, StartFailure> {
        let (attempt, new) = (self.actions.attempt, self.actions.sandbox_id.is_none());
        let (runtime, inputs) = (self.runtime, &self.req.inputs);
        let parent = self.cgroup_parent().await?;
        let made = runtime.make_sandbox_config(self.pod(), inputs, attempt, &parent, new);
        made.await.inspect_err(|failure| {
            let text = format!("Failed to create pod sandbox: {}", failure.message);
            self.event(
                None,
                EventType::Warning,
                Reason::FailedCreatePodSandBox,
                &text,
            );
        })
    }

    async fn cgroup_parent(&self) -> Result<String, StartFailure> {
        let keep = !self.actions.create_sandbox;
        let ensured = self.runtime.ensure_cgroup(self.pod(), keep).await;
        ensured.map_err(|error| {
            let message = format!("unable to ensure pod container exists: {error}");
            let reason = Reason::FailedCreatePodContainer;
            self.event(None, EventType::Warning, reason, &message);
            StartFailure::for_pod(reason, message, error.retry())
        })
    }

    async fn create_sandbox(&mut self) -> Result<Sandbox, StartFailure> {
        let deps = self.runtime.deps();
        let metrics = &deps.metrics.containers;
        metrics.started_pods.inc();
        if wants_user_namespace(self.pod()) {
            metrics.started_user_namespaced_pods.inc();
            self.starts_user_namespace = true;
        }
        let created = self.run_sandbox().await;
        let (id, config) = created.inspect_err(|_| metrics.started_pods_errors.inc())?;
        tracing::info!(pod = %self.pod().full_name(), sandbox = %id, "sandbox created");
        let ips = self.sandbox_ips(&id).await?;
        self.timings.sandbox_ready = Some(deps.clock.now());
        Ok(Sandbox { id, config, ips })
    }

    async fn run_sandbox(&mut self) -> Result<(SandboxId, SandboxConfig), StartFailure> {
        let config = self.sandbox_config().await?;
        self.changed = true;
        let runtime = &self.runtime.deps().runtime;
        let handler = self.runtime.handler(&self.req.inputs);
        let created = runtime.run_pod_sandbox(&config, handler).await;
        let id = created.map_err(|error| {
            let message = format!("Failed to create pod sandbox: {}", error.message);
            self.event(
                None,
                EventType::Warning,
                Reason::FailedCreatePodSandBox,
                &message,
            );
            StartFailure::for_pod(Reason::CreatePodSandboxError, message, error.retry())
        })?;
        Ok((id, config))
    }

    async fn sandbox_ips(&self, id: &SandboxId) -> Result<Vec<IpAddr>, StartFailure> {
        let status = self.runtime.deps().runtime.pod_sandbox_status(id).await;
        status.map(|status| status.ips).map_err(|error| {
            let message = format!("Unable to get pod sandbox status: {}", error.message);
            let reason = Reason::FailedPodSandBoxStatus;
            self.event(None, EventType::Warning, reason, &message);
            StartFailure::for_pod(reason, message, Retry::Soon)
        })
    }

    async fn start_all(&mut self, sandbox: &Sandbox) {
        let ephemeral = std::mem::take(&mut self.actions.ephemeral_to_start);
        for start in &ephemeral {
            // a failed ephemeral container does not block others
            if let Err(failure) = self.start_container(sandbox, start).await {
                self.fail(failure);
            }
        }
        self.actions.ephemeral_to_start = ephemeral;
        let init = std::mem::take(&mut self.actions.init_to_start);
        let apps = std::mem::take(&mut self.actions.containers_to_start);
        self.start_in_order(sandbox, &init, &apps).await;
        self.actions.init_to_start = init;
        self.actions.containers_to_start = apps;
    }

    async fn start_in_order(
        &mut self,
        sandbox: &Sandbox,
        init: &[ContainerToStart],
        apps: &[ContainerToStart],
    ) {
        for start in init {
            let sidecar = self
                .pod()
                .init_containers()
                .get(start.index)
                .is_some_and(is_sidecar);
            // a failed init container blocks the next ones, a failed sidecar does not
            if let Err(failure) = self.start_container(sandbox, start).await {
                self.fail(failure);
                if !sidecar {
                    return;
                }
            }
        }
        if apps.is_empty() {
            return;
        }
        self.timings.init_done = self.init_done();
        let mut all = true;
        for start in apps {
            if let Err(failure) = self.start_container(sandbox, start).await {
                self.fail(failure);
                all = false;
            }
        }
        if all {
            self.timings.containers_started = Some(self.runtime.deps().clock.now());
        }
    }

    /// End of the last init container that is not a sidecar.
    fn init_done(&self) -> Option<windlass_types::Timestamp> {
        let ending = self
            .pod()
            .init_containers()
            .iter()
            .filter(|c| !is_sidecar(c));
        ending
            .filter_map(|c| self.req.observed.latest(&c.name)?.finished_at)
            .max()
    }

    fn report_back_off(&mut self) {
        let pod = self.req.pod.clone();
        for waiting in std::mem::take(&mut self.actions.backing_off) {
            let text = format!(
                "Back-off restarting failed container {} in pod {}",
                waiting.name,
                pod_text(&pod)
            );
            self.event(
                Some(&waiting.name),
                EventType::Warning,
                Reason::BackOff,
                &text,
            );
            let message = format!(
                "back-off {} restarting failed container={} pod={}",
                go_duration(waiting.delay),
                waiting.name,
                pod_text(&pod)
            );
            self.fail(StartFailure {
                retry_at: Some(waiting.until),
                ..StartFailure::for_container(&waiting.name, waiting.reason, message, Retry::Later)
            });
            self.actions.backing_off.push(waiting);
        }
    }

    pub(crate) fn event(
        &self,
        container: Option<&str>,
        event_type: EventType,
        reason: Reason,
        message: &str,
    ) {
        let events = &self.runtime.deps().events;
        events.record(self.pod(), container, event_type, reason, message);
    }

    pub(crate) fn fail(&mut self, mut failure: StartFailure) {
        if failure.retry_at.is_none() {
            failure.retry_at = retry_time(failure.retry, self.runtime.deps().clock.now());
        }
        tracing::info!(pod = %self.pod().full_name(), failure = %failure, "sync step failed");
        self.failures.push(failure);
    }

    fn into_outcome(self) -> SyncPodOutcome {
        let deps = self.runtime.deps();
        let now = deps.clock.now();
        if self.starts_user_namespace && !self.failures.is_empty() {
            let metrics = &deps.metrics.containers;
            metrics.started_user_namespaced_pods_errors.inc();
        }
        let again = self.again.then_some(now);
        let policy = deps.options.pull_backoff;
        let failed_pulls = self.failures.iter().filter(|f| is_failed_pull(f.reason));
        let resyncs = failed_pulls.filter_map(|f| pull_resync_at(now, f.retry_at?, policy));
        let retries = self.failures.iter().filter_map(|f| f.retry_at);
        SyncPodOutcome {
            retry_at: retries.chain(again).chain(self.resize_retry_at).min(),
            resized: self.resized.map(|result| (self.req.pod, result)),
            resync_at: resyncs.min(),
            actions: self.actions,
            failures: self.failures,
            backoff: self.req.backoff,
            timings: StartTimings {
                pulling: self.images.pulling,
                ..self.timings
            },
            changed: self.changed,
            cancelled: self.cancelled,
        }
    }
}
