//! Removes all containers of a pod, so that they restart in the same sandbox (KEP-5532).
//!
//! It is stateless: the containers whose exit requires the reset are removed last, so an
//! interrupted reset is repeated.

use futures::future::join_all;
use windlass_pod_inputs::paths;
use windlass_pod_lifecycle::actions::ContainerToReset;
use windlass_pod_lifecycle::backoff::restart_key;
use windlass_pod_lifecycle::stop::MIN_STOP_TIMEOUT;
use windlass_types::view::EventType;
use windlass_types::{PodExt, Reason};

use crate::kill::ignore_missing;
use crate::removal::Removal;
use crate::request::StartFailure;
use crate::sync::SyncPass;

impl SyncPass<'_> {
    /// Kills and removes the containers of the plan. After a failure the sync ends, and the next
    /// one retries.
    pub(crate) async fn reset(&mut self) {
        self.changed = true;
        let resets = std::mem::take(&mut self.actions.containers_to_reset);
        self.count(&resets);
        let (sources, targets): (Vec<_>, Vec<_>) = resets.iter().partition(|reset| reset.source);
        let mut gone = true;
        for group in [targets, sources] {
            if !gone {
                break;
            }
            let removals = group.iter().map(|reset| self.remove(reset));
            for failure in join_all(removals).await.into_iter().flatten() {
                gone = false;
                self.fail(failure);
            }
        }
        self.drop_old_logs(&resets).await;
        self.actions.containers_to_reset = resets;
        self.again = gone;
    }

    /// Increases the restart back-off.
    fn count(&mut self, resets: &[ContainerToReset]) {
        let deps = self.runtime.deps();
        let (policy, now) = (deps.options.restart_backoff, deps.clock.now());
        let pod = self.req.pod.clone();
        for reset in resets.iter().filter(|reset| reset.source) {
            let mut specs = pod.init_containers().iter().chain(pod.containers());
            if let Some(spec) = specs.find(|spec| spec.name == reset.name) {
                let ended = self.req.observed.latest(&spec.name);
                let count = ended.map_or(0, |instance| instance.restart_count + 1);
                let key = restart_key(&pod, spec);
                self.req.backoff.next_restart(&key, policy, now, count);
            }
        }
    }

    async fn remove(&self, reset: &ContainerToReset) -> Option<StartFailure> {
        let runtime = &self.runtime.deps().runtime;
        let mut result = Ok(Removal::Done);
        if reset.kill {
            let text = format!("Stopping container {}", reset.name);
            self.event(Some(&reset.name), EventType::Normal, Reason::Killing, &text);
            // no hook and the minimum stop timeout: the pod is not terminating
            let stopped = runtime.stop_container(&reset.id, MIN_STOP_TIMEOUT).await;
            result = ignore_missing(stopped).map(|()| Removal::Done);
        }
        if result.is_ok() {
            result = self.remove_instance(&reset.name, &reset.id).await;
        }
        // one that the runtime does not remove has not run: its replacement is part of the next sync
        let error = result.err()?;
        Some(StartFailure::for_container(
            &reset.name,
            Reason::KillContainerError,
            error.to_string(),
            error.retry(),
        ))
    }

    /// Removes older logs of the removed containers, which nothing else would remove. The newest
    /// one stays: the restart count is recovered from it.
    async fn drop_old_logs(&self, resets: &[ContainerToReset]) {
        let deps = self.runtime.deps();
        let (pod, uid) = (self.pod(), self.pod().uid());
        for reset in resets {
            let mut instances = self.req.observed.instances(&reset.name);
            if let Some(gone) = instances.find(|instance| instance.id == reset.id) {
                let attempt = gone.restart_count;
                let removed = self
                    .runtime
                    .remove_termination_logs(&uid, &reset.name, attempt);
                removed.await;
            }
            let instance = self.req.observed.latest(&reset.name);
            let Some(newest) = instance.filter(|latest| latest.id == reset.id) else {
                continue;
            };
            let dir = deps.node.paths.container_log_dir(pod, &reset.name);
            let names = deps.files.list_log_names(&uid, &dir).await;
            for name in names.unwrap_or_default() {
                let count = name
                    .split_once(".log")
                    .map(|(count, _)| count.parse::<u32>());
                if !matches!(count, Some(Ok(count)) if count < newest.restart_count) {
                    continue;
                }
                let link = paths::log_symlink(pod, &reset.name, &reset.id);
                let log = dir.join(&name);
                let removed = deps.files.remove_container_log(&uid, &link, &log);
                if let Err(error) = removed.await {
                    tracing::warn!(log = %log.display(), %error, "log not removed");
                }
            }
        }
    }
}
