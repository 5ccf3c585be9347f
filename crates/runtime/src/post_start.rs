//! postStart hooks: at least once for each container instance, also if the agent is killed.
//!
//! A file beside the termination log is created before the container starts and removed after its
//! hook has ended. An instance that runs with such a file has a hook that a previous sync or agent run
//! did not finish; the next sync runs it again.

use std::net::IpAddr;
use std::path::PathBuf;

use windlass_pod_lifecycle::stop::effective_grace_period;
use windlass_types::corev1::{Container, LifecycleHandler};
use windlass_types::{ContainerId, ContainerState, PodExt, Reason, Retry};

use crate::hooks::{Hook, HookKind};
use crate::kill::ContainerKill;
use crate::request::StartFailure;
use crate::sync::SyncPass;
use crate::termination::termination_log_path;

/// Extension of the file of an unfinished hook.
const EXTENSION: &str = "post-start";

/// A started container instance.
#[derive(Clone, Copy)]
pub(crate) struct Instance<'a> {
    pub(crate) container: &'a Container,
    pub(crate) id: &'a ContainerId,
    pub(crate) restart_count: u32,
}

impl SyncPass<'_> {
    /// Records that the hook of an instance is to be run.
    pub(crate) async fn expect_post_start(
        &self,
        container: &Container,
        restart_count: u32,
    ) -> Result<(), StartFailure> {
        if handler(container).is_none() {
            return Ok(());
        }
        let marker = self.post_start_marker(container, restart_count);
        let files = &self.runtime.deps().files;
        let created = files.create_marker(&self.pod().uid(), &marker).await;
        created.map_err(|error| self.config_failure(container, error.to_string(), error.retry()))
    }

    /// Runs the postStart hook before the next container starts. After a failure the container is
    /// killed, and restarted with back-off.
    pub(crate) async fn post_start(
        &self,
        instance: Instance<'_>,
        ips: &[IpAddr],
    ) -> Result<(), StartFailure> {
        let Instance { container, id, .. } = instance;
        let Some(handler) = handler(container) else {
            return Ok(());
        };
        let pod = self.pod();
        let hook = Hook {
            kind: HookKind::PostStart,
            pod,
            container,
            id,
            handler,
            ips,
        };
        let result = self.runtime.run_post_start(hook).await;
        if result.is_err() {
            let kill = ContainerKill {
                pod,
                name: &container.name,
                id,
                grace: effective_grace_period(pod, None),
                message: Reason::FailedPostStartHook.as_str(),
                probe: None,
                ips,
                after: Vec::new(),
                pod_stop: None,
            };
            if let Err(error) = self.runtime.kill_container(kill).await {
                tracing::warn!(pod = %pod.full_name(), container = %container.name, %error, "killing container failed");
            }
        }
        self.finish_post_start(instance).await;
        result.map_err(|message| {
            let reason = Reason::PostStartHookError;
            StartFailure::for_container(&container.name, reason, message, Retry::Soon)
        })
    }

    /// Whether a hook may be unfinished: an instance runs of which this agent run does not know it.
    pub(crate) fn has_unknown_post_start(&self) -> bool {
        !self.unknown_post_starts().is_empty()
    }

    /// Runs the hooks that a previous sync or agent run did not finish.
    pub(crate) async fn resume_post_starts(&mut self) {
        let ips = self.req.observed.ips.clone();
        for (container, id, restart_count) in self.unknown_post_starts() {
            let instance = Instance {
                container: &container,
                id: &id,
                restart_count,
            };
            let marker = self.post_start_marker(&container, restart_count);
            let files = &self.runtime.deps().files;
            match files.has_marker(&self.pod().uid(), &marker).await {
                Ok(true) => {}
                Ok(false) => {
                    self.runtime
                        .post_starts()
                        .mark_finished(&self.pod().uid(), &id);
                    continue;
                }
                // the next sync reads it again
                Err(error) => {
                    tracing::warn!(pod = %self.pod().full_name(), container = %container.name, %error, "state of postStart hook unknown");
                    continue;
                }
            }
            tracing::info!(pod = %self.pod().full_name(), container = %container.name, "running interrupted postStart hook again");
            self.changed = true;
            if let Err(failure) = self.post_start(instance, &ips).await {
                self.fail(failure);
            }
        }
    }

    async fn finish_post_start(&self, instance: Instance<'_>) {
        let uid = self.pod().uid();
        self.runtime.post_starts().mark_finished(&uid, instance.id);
        let marker = self.post_start_marker(instance.container, instance.restart_count);
        if let Err(error) = self.runtime.deps().files.remove_marker(&uid, &marker).await {
            tracing::warn!(pod = %self.pod().full_name(), container = %instance.container.name, %error, "postStart hook may run again after an agent restart");
        }
    }

    /// Running instances with a hook that are not stopped in this sync.
    fn unknown_post_starts(&self) -> Vec<(Container, ContainerId, u32)> {
        let pod = self.pod();
        let (uid, observed) = (pod.uid(), &self.req.observed);
        let specs = pod.init_containers().iter().chain(pod.containers());
        let with_hook = specs.filter(|container| handler(container).is_some());
        let running = with_hook.filter_map(|container| {
            let instance = observed.latest(&container.name)?;
            let stopped = self.actions.containers_to_kill.iter();
            let unknown = instance.state == ContainerState::Running
                && !self.runtime.post_starts().contains(&uid, &instance.id)
                && !stopped.clone().any(|kill| kill.id == instance.id);
            unknown.then(|| {
                (
                    container.clone(),
                    instance.id.clone(),
                    instance.restart_count,
                )
            })
        });
        running.collect()
    }

    fn post_start_marker(&self, container: &Container, restart_count: u32) -> PathBuf {
        let paths = &self.runtime.deps().node.paths;
        let (uid, name) = (self.pod().uid(), &container.name);
        termination_log_path(paths, &uid, name, restart_count).with_extension(EXTENSION)
    }
}

fn handler(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.post_start.as_ref()
}
