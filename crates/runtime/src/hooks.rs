//! Lifecycle hooks: postStart and preStop.
//!
//! [`windlass_pod_lifecycle::hook`] decides the action of a hook and its failure message;
//! [`crate::kill`] and [`crate::post_start`] decide when it runs and its timeout. A hook runs in the
//! future of its caller and is cancelled with it. Events omit the output of a hook, which may be
//! secret.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use windlass_cri::error::{CriCode, CriError};
use windlass_hung_operations::{Operation, OperationKind};
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::hook::{
    HookAction, HttpHookOutcome, SLEEP_CUT_SHORT, evaluate_exec, evaluate_http, failure,
    fallback_message,
};
use windlass_pod_lifecycle::http_target::HttpTarget;
use windlass_pod_lifecycle::probe::ExecFailure;
use windlass_pod_lifecycle::stop::MIN_STOP_TIMEOUT;
use windlass_runtime_config::container_config::restored_container;
use windlass_types::corev1::{Container, LifecycleHandler};
use windlass_types::view::EventType;
use windlass_types::{ContainerId, ContainerState, Pod, PodExt, PodUid, Reason};

use crate::PodRuntime;
use crate::kill::ContainerKill;

/// Interval at which a sleep checks whether its container has exited.
const SLEEP_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for reading the hook of a container that is not in the spec any more.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);
/// A postStart hook that takes longer is listed as hung: the next container waits for it.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);
/// Timeout of a postStart command, which has none; the CRI requires a value.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Kind of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKind {
    PostStart,
    PreStop,
}

/// A hook of a container.
#[derive(Clone, Copy)]
pub(crate) struct Hook<'a> {
    pub(crate) kind: HookKind,
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) id: &'a ContainerId,
    pub(crate) handler: &'a LifecycleHandler,
    /// Addresses of the pod; empty on the host network.
    pub(crate) ips: &'a [IpAddr],
}

/// Container instances whose hook of one kind is not run again. PreStop: it finished or timed out
/// before its container ended. PostStart: it finished, also in a previous agent run.
#[derive(Debug, Default)]
pub(crate) struct FinishedHooks(Mutex<BTreeMap<PodUid, BTreeSet<ContainerId>>>);

impl FinishedHooks {
    pub(crate) fn mark_finished(&self, uid: &PodUid, id: &ContainerId) {
        let mut all = self.0.lock();
        all.entry(uid.clone()).or_default().insert(id.clone());
    }

    pub(crate) fn forget(&self, uid: &PodUid, id: &ContainerId) {
        let mut all = self.0.lock();
        if let Some(ids) = all.get_mut(uid) {
            ids.remove(id);
            if ids.is_empty() {
                all.remove(uid);
            }
        }
    }

    pub(crate) fn forget_pod(&self, uid: &PodUid) {
        self.0.lock().remove(uid);
    }

    pub(crate) fn contains(&self, uid: &PodUid, id: &ContainerId) -> bool {
        self.0.lock().get(uid).is_some_and(|ids| ids.contains(id))
    }
}

/// A sleep in progress: counts as cut short when dropped.
struct Sleep<'a>(Option<&'a Metrics>);

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(metrics) = self.0 {
            metrics.containers.hook_sleeps_terminated.inc();
        }
    }
}

impl PodRuntime {
    /// Runs a postStart hook to its end.
    ///
    /// # Errors
    /// The hook failed; the text matches upstream. The event is recorded.
    pub(crate) async fn run_post_start(&self, hook: Hook<'_>) -> Result<(), String> {
        let result = self.run_tracked(hook, NO_TIMEOUT, HANG_THRESHOLD).await;
        if let Err(message) = &result {
            self.hook_failed(hook.pod, &hook.container.name, message, hook.kind);
        }
        result
    }

    /// The container with the preStop hook to run; `None` without one.
    ///
    /// The hook of a container that is not in the spec any more is read from its annotations.
    pub(crate) async fn pre_stop(&self, kill: &ContainerKill<'_>) -> Option<Container> {
        if self.finished_hooks().contains(&kill.pod.uid(), kill.id) {
            return None;
        }
        let mut specs = kill
            .pod
            .init_containers()
            .iter()
            .chain(kill.pod.containers());
        let container = match specs.find(|c| c.name == kill.name) {
            Some(container) => container.clone(),
            None => {
                let status = self.deps().runtime.container_status(kill.id);
                let read = tokio::time::timeout(RESTORE_TIMEOUT.min(kill.grace), status).await;
                restored_container(kill.name, &read.ok()?.ok()?.annotations)
            }
        };
        container.lifecycle.as_ref()?.pre_stop.as_ref()?;
        Some(container)
    }

    /// Runs the preStop hook of a container, if it has one. Returns false after a failure, which is
    /// recorded.
    pub(crate) async fn run_pre_stop(
        &self,
        kill: &ContainerKill<'_>,
        container: Option<&Container>,
    ) -> bool {
        let handler = container.and_then(|c| c.lifecycle.as_ref()?.pre_stop.as_ref());
        let (Some(container), Some(handler)) = (container, handler) else {
            return true;
        };
        let hook = Hook {
            kind: HookKind::PreStop,
            pod: kill.pod,
            container,
            id: kill.id,
            handler,
            ips: kill.ips,
        };
        // the container has been killed by then
        let limit = kill.grace + MIN_STOP_TIMEOUT;
        // until then it may drain the container
        match self.run_tracked(hook, limit, kill.grace).await {
            Ok(()) => true,
            Err(message) => {
                self.pre_stop_failed(kill, &message);
                false
            }
        }
    }

    /// Records that a preStop hook failed or outlived its container.
    pub(crate) fn pre_stop_failed(&self, kill: &ContainerKill<'_>, why: &str) {
        self.hook_failed(kill.pod, kill.name, why, HookKind::PreStop);
    }

    fn hook_failed(&self, pod: &Pod, container: &str, why: &str, kind: HookKind) {
        tracing::warn!(pod = %pod.full_name(), container, ?kind, why, "hook failed");
        let reason = match kind {
            HookKind::PostStart => Reason::FailedPostStartHook,
            HookKind::PreStop => Reason::FailedPreStopHook,
        };
        let text = format!("{kind:?}Hook failed");
        let events = &self.deps().events;
        events.record(pod, Some(container), EventType::Warning, reason, &text);
    }

    /// Runs a hook; lists it while it takes longer than `threshold`.
    async fn run_tracked(
        &self,
        hook: Hook<'_>,
        limit: Duration,
        threshold: Duration,
    ) -> Result<(), String> {
        // a sleep takes its time
        let sleep = hook.handler.sleep.as_ref();
        let sleep = sleep.map_or(0, |sleep| sleep.seconds.unsigned_abs());
        let threshold = threshold.saturating_add(Duration::from_secs(sleep));
        let operation = || {
            let kind = match hook.kind {
                HookKind::PostStart => "postStart",
                HookKind::PreStop => "preStop",
            };
            let name = format!("{kind} hook of container {}", hook.container.name);
            Operation::of_pod(OperationKind::Hook, &hook.pod.uid(), name)
        };
        let hung = &self.deps().hung;
        hung.track(threshold, operation, |_| true, self.run_hook(hook, limit))
            .await
    }

    async fn run_hook(&self, hook: Hook<'_>, limit: Duration) -> Result<(), String> {
        let failed = |error: &str, output: &[u8]| {
            failure(hook.handler, hook.pod, hook.container, error, output)
        };
        let node_ips = &self.deps().node.node_ips;
        let ip = match hook.pod.host_network() {
            true => node_ips.first().or(hook.ips.first()),
            false => hook.ips.first(),
        };
        let action = HookAction::new(hook.handler, hook.container, ip.copied())
            .map_err(|error| failed(&error, &[]))?;
        tracing::debug!(
            pod = %hook.pod.full_name(),
            container = %hook.container.name,
            kind = ?hook.kind,
            "running hook"
        );
        match action {
            HookAction::Exec(command) => {
                let runtime = &self.deps().runtime;
                let answer = runtime.exec_sync(hook.id, &command, limit).await;
                let answer = answer.map_err(|error| exec_failure(&error));
                evaluate_exec(&command, &answer).map_err(|error| {
                    let output = answer.unwrap_or_default();
                    failed(&error, &[output.stdout, output.stderr].concat())
                })
            }
            HookAction::Http(target) => {
                let asked = self.ask(hook.pod, target).await;
                asked.map_err(|error| failed(&error, &[]))
            }
            HookAction::Sleep(duration) => {
                let slept = self.sleep(hook, duration).await;
                slept.map_err(|error| failed(error, &[]))
            }
        }
    }

    /// One request, and the same in plain HTTP if the server speaks no TLS.
    async fn ask(&self, pod: &Pod, target: HttpTarget) -> Result<(), String> {
        let deps = self.deps();
        let plain = match evaluate_http(&target, &deps.checks.http(&target, None).await) {
            HttpHookOutcome::Succeeded => return Ok(()),
            HttpHookOutcome::Failed(error) => return Err(error),
            HttpHookOutcome::RetryOverHttp(plain) => plain,
        };
        match evaluate_http(&plain, &deps.checks.http(&plain, None).await) {
            HttpHookOutcome::Succeeded => {
                deps.metrics.containers.hook_http_fallbacks.inc();
                let (kind, reason) = (EventType::Warning, Reason::LifecycleHttpFallback);
                let text = fallback_message(&target);
                deps.events.record(pod, None, kind, reason, &text);
                Ok(())
            }
            HttpHookOutcome::Failed(error) => Err(error),
            HttpHookOutcome::RetryOverHttp(_) => {
                Err("the server answers neither HTTPS nor HTTP".to_owned())
            }
        }
    }

    /// Sleeps; a preStop sleep ends with its container.
    async fn sleep(&self, hook: Hook<'_>, duration: Duration) -> Result<(), &'static str> {
        let mut cut_short = Sleep(Some(&self.deps().metrics));
        tokio::select! {
            biased;
            () = tokio::time::sleep(duration) => {
                cut_short.0 = None;
                Ok(())
            }
            () = self.ended(hook.id), if hook.kind == HookKind::PreStop => Err(SLEEP_CUT_SHORT),
        }
    }

    /// Returns when a container has exited. Errors of the runtime are ignored.
    async fn ended(&self, id: &ContainerId) {
        loop {
            tokio::time::sleep(SLEEP_CHECK_INTERVAL).await;
            match self.deps().runtime.container_status(id).await {
                Ok(detail) if detail.observed.state == ContainerState::Exited => return,
                Err(error) if error.is_not_found() => return,
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn exec_failure(error: &CriError) -> ExecFailure {
    match error.code {
        CriCode::DeadlineExceeded => ExecFailure::TimedOut,
        _ => ExecFailure::Failed(error.message.clone()),
    }
}
