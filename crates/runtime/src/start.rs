//! Starts one container: image, configuration, create, start, log link.

use std::time::Duration;

use windlass_cri::error::CriError;
use windlass_hung_operations::{Operation, OperationKind};
use windlass_manifests::image_name::PullPolicy;
use windlass_pod_inputs::paths;
use windlass_pod_lifecycle::actions::{
    ContainerKind, ContainerToStart, ephemeral_containers, find_container,
};
use windlass_pod_lifecycle::backoff::restart_key;
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_runtime_config::image_volumes::MountedImages;
use windlass_types::corev1::Container;
use windlass_types::cri::ContainerConfig;
use windlass_types::view::EventType;
use windlass_types::{ContainerId, PodExt, Reason, Retry};

use crate::config::ContainerFacts;
use crate::files::FilesError;
use crate::images::{PresentImage, WantedImage};
use crate::post_start::Instance;
use crate::request::StartFailure;
use crate::sync::{Sandbox, SyncPass};
use crate::termination::termination_log_path;

/// `PreStartContainer` of a device plugin that takes longer is listed as hung.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);

impl SyncPass<'_> {
    /// Starts one container and counts the attempt.
    pub(crate) async fn start_container(
        &mut self,
        sandbox: &Sandbox,
        start: &ContainerToStart,
    ) -> Result<(), StartFailure> {
        let pod = self.req.pod.clone();
        let Some(container) = &find_container(&pod, start.kind, start.index) else {
            return Ok(());
        };
        let kind = start.kind.as_str();
        let metrics = self.runtime.deps().metrics.clone();
        metrics
            .containers
            .started_containers
            .with_label_values(&[kind])
            .inc();
        let uncounted = start.restart.then(|| self.req.backoff.clone());
        // counted before the attempt: a hung or cancelled start counts
        if start.restart {
            let key = restart_key(&pod, container);
            let deps = self.runtime.deps();
            let (policy, now) = (deps.options.restart_backoff, deps.clock.now());
            let count = start.restart_count.unwrap_or_default();
            self.req.backoff.next_restart(&key, policy, now, count);
        }
        // boxed: the call stack below is deep
        let result = Box::pin(self.try_start(sandbox, start, container)).await;
        if let Err(failure) = &result {
            let labels = [kind, failure.reason.as_str()];
            let errors = &metrics.containers.started_containers_errors;
            errors.with_label_values(&labels).inc();
            // of a previous agent run: the next sync observes and replaces it
            if is_name_reserved(failure)
                && let Some(uncounted) = uncounted
            {
                self.req.backoff = uncounted;
            }
        }
        result
    }

    async fn try_start(
        &mut self,
        sandbox: &Sandbox,
        start: &ContainerToStart,
        container: &Container,
    ) -> Result<(), StartFailure> {
        let pod = self.req.pod.clone();
        let runtime = self.runtime;
        let mounted = self.ensure_image_volumes(sandbox, container).await?;
        let wanted = WantedImage {
            pod: &pod,
            container,
            image: container.image.as_deref().unwrap_or_default(),
            policy: PullPolicy::for_container(container),
            keyring: &self.req.inputs.keyring,
            sandbox_config: &sandbox.config,
        };
        let image = runtime
            .ensure_image(wanted, &mut self.req.backoff, &mut self.images)
            .await?;
        self.timings.images_ready = Some(runtime.deps().clock.now());
        let restart_count = match start.restart_count {
            Some(count) => count,
            None => {
                let recovered = self.recovered_restart_count(&container.name).await;
                recovered.map_err(|error| {
                    self.config_failure(container, error.to_string(), error.retry())
                })?
            }
        };
        let mut config = self
            .configure(sandbox, container, &image, &mounted, restart_count)
            .await?;
        config.security.pid_target = self.pid_target(start, container)?;
        let id = self.create(sandbox, container, &config).await?;
        self.expect_post_start(container, restart_count).await?;
        self.started(container, &id).await?;
        self.link_log(sandbox, container, &config, &id).await;
        let instance = Instance {
            container,
            id: &id,
            restart_count,
        };
        self.post_start(instance, &sandbox.ips).await
    }

    /// The container whose PID namespace an ephemeral container joins (`targetContainerName`).
    fn pid_target(
        &self,
        start: &ContainerToStart,
        container: &Container,
    ) -> Result<Option<ContainerId>, StartFailure> {
        if start.kind != ContainerKind::Ephemeral {
            return Ok(None);
        }
        let ephemeral = ephemeral_containers(self.pod()).get(start.index);
        let target = ephemeral.and_then(|e| e.target_container_name.as_deref());
        let Some(target) = target.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        match self.req.observed.latest(target) {
            Some(instance) => Ok(Some(instance.id.clone())),
            None => {
                let message = format!("unable to find target container {target}");
                Err(self.config_failure(container, message, Retry::Later))
            }
        }
    }

    /// Restart count from remaining logs: it never decreases, even after the runtime lost its
    /// state.
    pub(crate) async fn recovered_restart_count(&self, name: &str) -> Result<u32, FilesError> {
        let deps = self.runtime.deps();
        let dir = deps.node.paths.container_log_dir(self.pod(), name);
        let names = deps.files.list_log_names(&self.pod().uid(), &dir).await?;
        let names = names.iter().map(String::as_str);
        Ok(paths::restart_count_from_logs(names))
    }

    async fn configure(
        &self,
        sandbox: &Sandbox,
        container: &Container,
        image: &PresentImage,
        mounted: &MountedImages,
        restart_count: u32,
    ) -> Result<ContainerConfig, StartFailure> {
        let deps = self.runtime.deps();
        let uid = self.pod().uid();
        let log = termination_log_path(&deps.node.paths, &uid, &container.name, restart_count);
        let assignment = &self.assignment(container).await?;
        let facts = ContainerFacts {
            container,
            image,
            mounted,
            sandbox,
            restart_count,
            env_files: &self.read_env_files(container).await,
            recursive_read_only: self.recursive_read_only(container).await?,
            assignment,
        };
        let (config, parts) = self
            .make_container_config(facts)
            .map_err(|error| self.config_failure(container, error.to_string(), error.retry()))?;
        for part in &parts {
            self.prepare_sub_path(container, part).await?;
        }
        deps.files
            .create_termination_log(&uid, &log)
            .await
            .map_err(|error| self.config_failure(container, error.to_string(), error.retry()))?;
        self.write_hosts(sandbox, container).await?;
        Ok(config)
    }

    /// Prepares the devices of a container and returns what is assigned to it.
    async fn assignment(&self, container: &Container) -> Result<ContainerAssignment, StartFailure> {
        let failed = |error| self.config_failure(container, error, Retry::Later);
        let mut assignment = match &self.runtime.deps().assigned {
            Some(assigned) => {
                let operation = || {
                    let name = format!("devices of container {}", container.name);
                    let uid = self.pod().uid();
                    Operation::of_pod(OperationKind::DevicePlugin, &uid, name)
                };
                let prepared = assigned.prepare(self.pod(), container);
                let hung = &self.runtime.deps().hung;
                let prepared = hung.track(HANG_THRESHOLD, operation, Result::is_ok, prepared);
                prepared.await.map_err(failed)?
            }
            None => ContainerAssignment::default(),
        };
        if let Some(devices) = self.req.inputs.claim_devices.get(&container.name) {
            let devices = devices.clone().map_err(failed)?;
            assignment.cdi_devices.extend(devices);
        }
        Ok(assignment)
    }

    async fn create(
        &mut self,
        sandbox: &Sandbox,
        container: &Container,
        config: &ContainerConfig,
    ) -> Result<ContainerId, StartFailure> {
        self.changed = true;
        let created = self
            .runtime
            .deps()
            .runtime
            .create_container(&sandbox.id, config, &sandbox.config)
            .await;
        self.count_image_volumes(config, created.is_ok());
        let id = created
            .map_err(|error| self.failure(container, Reason::CreateContainerError, &error))?;
        self.accept(&id, Some(&config.resources));
        self.normal(container, Reason::Created, "Container created");
        Ok(id)
    }

    async fn started(
        &mut self,
        container: &Container,
        id: &ContainerId,
    ) -> Result<(), StartFailure> {
        let runtime = &self.runtime.deps().runtime;
        // a failed start is left to the next sync: an exited container (bad command) is a crash
        // with back-off, a created one is removed, and one that runs after a late response is kept
        let starting = self.starting.lock().await;
        let answer = runtime.start_container(id).await;
        drop(starting);
        if let Err(error) = answer {
            return Err(self.failure(container, Reason::RunContainerError, &error));
        }
        self.normal(container, Reason::Started, "Container started");
        tracing::info!(
            pod = %self.pod().full_name(),
            container = %container.name,
            id = %id,
            "container started"
        );
        Ok(())
    }

    /// Creates the link for log shippers. A failure does not fail the pod, as upstream.
    async fn link_log(
        &self,
        sandbox: &Sandbox,
        container: &Container,
        config: &ContainerConfig,
        id: &ContainerId,
    ) {
        let link = paths::log_symlink(self.pod(), &container.name, id);
        let log = std::path::Path::new(&sandbox.config.log_directory).join(&config.log_path);
        let files = &self.runtime.deps().files;
        let uid = self.pod().uid();
        if let Err(error) = files.link_container_log(&uid, &link, &log).await {
            tracing::warn!(link = %link.display(), %error, "log not linked");
        }
    }

    fn normal(&self, container: &Container, reason: Reason, message: &str) {
        self.event(Some(&container.name), EventType::Normal, reason, message);
    }

    fn failure(&self, container: &Container, reason: Reason, error: &CriError) -> StartFailure {
        let text = format!("Error: {}", error.message);
        self.event(
            Some(&container.name),
            EventType::Warning,
            Reason::Failed,
            &text,
        );
        StartFailure::for_container(
            &container.name,
            reason,
            error.message.clone(),
            error.retry(),
        )
    }

    pub(crate) fn config_failure(
        &self,
        container: &Container,
        message: String,
        retry: Retry,
    ) -> StartFailure {
        let text = format!("Error: {message}");
        self.event(
            Some(&container.name),
            EventType::Warning,
            Reason::Failed,
            &text,
        );
        let reason = Reason::CreateContainerConfigError;
        StartFailure::for_container(&container.name, reason, message, retry)
    }
}

/// True if CreateContainer failed because the name of the instance is in use: a killed agent had
/// requested it, and the runtime completed it after this agent had observed the pod.
fn is_name_reserved(failure: &StartFailure) -> bool {
    failure.reason == Reason::CreateContainerError
        && failure.message.contains("name")
        && failure.message.contains("is reserved for")
}
