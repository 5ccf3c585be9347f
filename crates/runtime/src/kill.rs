//! Stops a pod: all containers concurrently, with hooks and in termination order, then sandboxes.
//!
//! All preStop hooks start immediately, also those of sidecars that stop later. The time of a hook
//! and of the wait for others reduces the stop timeout ([`windlass_pod_lifecycle::stop`]).
//! Dropping a stop at any await is safe: a repeated stop continues with the running containers and
//! skips finished hooks. A stop that the runtime fails is repeated by the worker; the sandbox waits
//! for it until the grace period is over.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_cri::error::{CriCode, CriError, CriResult};
use windlass_pod_lifecycle::stop::{
    SandboxToStop, StopBudget, may_stop_sandboxes, overdue_threshold,
};
use windlass_pod_lifecycle::termination_order::TerminationOrder;
use windlass_types::cri::ListFilter;
use windlass_types::metav1::ObjectMeta;
use windlass_types::pod::SharedPod;
use windlass_types::view::EventType;
use windlass_types::{
    ContainerId, ContainerProbe, ObservedPod, Pod, PodExt, PodUid, ProbeKind, Reason, names,
};

use crate::PodRuntime;
use crate::request::{KillPodError, KillPodRequest};
use crate::stop_limits::PodStop;

/// A kill uses the last observation if a list takes longer than this.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

/// The stop of one container.
pub(crate) struct ContainerKill<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) name: &'a str,
    pub(crate) id: &'a ContainerId,
    /// Time until SIGKILL, including the hook.
    pub(crate) grace: Duration,
    /// Text of the event; empty means `Stopping container <name>`.
    pub(crate) message: &'a str,
    /// The failed probe, if it is the cause.
    pub(crate) probe: Option<ProbeKind>,
    /// Addresses of the pod, for HTTP hooks.
    pub(crate) ips: &'a [IpAddr],
    /// Cancelled when the containers end that stop before this one.
    pub(crate) after: Vec<CancellationToken>,
    /// The stop of the whole pod, whose limits apply.
    pub(crate) pod_stop: Option<&'a PodStop<'a>>,
}

/// Containers and sandboxes to stop.
#[derive(Clone, Debug, Default, PartialEq)]
struct Targets {
    containers: Vec<(String, ContainerId)>,
    sandboxes: Vec<SandboxToStop>,
}

impl Targets {
    fn observed(observed: &ObservedPod) -> Self {
        let running = observed.running();
        Self {
            containers: running.map(|c| (c.name.clone(), c.id.clone())).collect(),
            sandboxes: observed.sandboxes.iter().map(Into::into).collect(),
        }
    }
}

impl PodRuntime {
    /// Stops all containers of a pod and then its sandboxes. [`PodRuntime::collect_garbage`]
    /// removes them after their status has been read.
    ///
    /// # Errors
    /// Containers or sandboxes that could not be stopped; all others are stopped, except sandboxes within
    /// the grace period of such a container.
    pub async fn kill_pod(&self, req: KillPodRequest) -> Result<(), KillPodError> {
        let pod = req.pod.clone().unwrap_or_else(|| {
            let seen = &req.observed;
            orphan(&seen.uid, &seen.namespace, &seen.name)
        });
        let pod_stop = PodStop::new(self.stop_limits());
        let mut stop = std::pin::pin!(self.stop_all(&pod, &req, &pod_stop));
        let failures = tokio::select! {
            biased;
            failures = &mut stop => failures,
            () = pod_stop.exceeds(overdue_threshold(req.grace)) => {
                self.deps().events.record(
                    &pod,
                    None,
                    EventType::Warning,
                    Reason::ExceededGracePeriod,
                    "Container runtime did not kill the pod within specified grace period.",
                );
                stop.await
            }
        };
        if failures.is_empty() {
            return Ok(());
        }
        let error = KillPodError { failures };
        self.deps().events.record(
            &pod,
            None,
            EventType::Warning,
            Reason::FailedKillPod,
            &format!("error killing pod: {error}"),
        );
        Err(error)
    }

    async fn stop_all(
        &self,
        pod: &SharedPod,
        req: &KillPodRequest,
        pod_stop: &PodStop<'_>,
    ) -> Vec<(String, CriError)> {
        let begun = Instant::now();
        let lists = self.list_alive(&req.observed);
        let targets = pod_stop.list(lists).await;
        let mut failures = self.stop_containers(pod, req, &targets, pod_stop).await;
        let waited = req.waited.saturating_add(begun.elapsed());
        if !may_stop_sandboxes(failures.is_empty(), waited, req.grace) {
            return failures;
        }
        let stops = targets
            .sandboxes
            .iter()
            .map(|sandbox| self.stop_sandbox(pod, sandbox, pod_stop));
        failures.extend(join_all(stops).await.into_iter().flatten());
        failures
    }

    async fn stop_sandbox(
        &self,
        pod: &Pod,
        sandbox: &SandboxToStop,
        pod_stop: &PodStop<'_>,
    ) -> Option<(String, CriError)> {
        let id = &sandbox.id;
        let stop = pod_stop.sandbox(self.deps().runtime.stop_pod_sandbox(id));
        let (what, error) = failed(format!("sandbox {id}"), stop.await)?;
        let rejected = matches!(error.code, CriCode::InvalidArgument | CriCode::Other);
        if !rejected || !sandbox.can_be_left(self.deps().options.booted) {
            return Some((what, error));
        }
        let text = format!("{what} of an earlier boot not stopped, continuing without it: {error}");
        let (kind, reason) = (EventType::Warning, Reason::FailedKillPod);
        self.deps().events.record(pod, None, kind, reason, &text);
        None
    }

    /// Running containers (`container <name>`) and ready sandboxes (`sandbox <id>`) of a pod, from
    /// the runtime's lists.
    ///
    /// # Errors
    /// A list failed.
    pub async fn live_objects(&self, uid: &PodUid) -> Result<Vec<String>, KillPodError> {
        let filter = ListFilter::of_pod(uid);
        let runtime = &self.deps().runtime;
        let failed = |error| KillPodError {
            failures: vec![("the pod".to_owned(), error)],
        };
        let lists = futures::future::try_join(
            runtime.list_containers(&filter),
            runtime.list_pod_sandboxes(&filter),
        );
        let lists = self.stop_limits().list(lists);
        let (containers, sandboxes) = lists.await.map_err(failed)?;
        let running = containers.iter().filter(|c| c.state.may_run());
        let ready = sandboxes.iter().filter(|s| s.ready);
        Ok(running
            .map(|c| format!("container {}", c.name))
            .chain(ready.map(|s| format!("sandbox {}", s.id)))
            .collect())
    }

    /// Another pod with the same namespace and name that is running. Reads the runtime's lists: the
    /// cache may not have it yet.
    pub async fn live_pod_with_same_name(&self, pod: &Pod) -> CriResult<Option<PodUid>> {
        let labels = [
            (names::LABEL_POD_NAME, pod.name()),
            (names::LABEL_POD_NAMESPACE, pod.namespace()),
        ];
        let filter = ListFilter {
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..ListFilter::default()
        };
        let runtime = &self.deps().runtime;
        let sandboxes = runtime.list_pod_sandboxes(&filter).await?;
        let containers = runtime.list_containers(&filter).await?;
        let ready = sandboxes.into_iter().filter(|s| s.ready).map(|s| s.uid);
        let running = containers
            .into_iter()
            .filter(|c| c.state.may_run())
            .map(|c| c.uid);
        let own = pod.uid();
        Ok(ready.chain(running).find(|uid| *uid != own))
    }

    /// Stops one container, after its hook and in termination order, and records the reason.
    pub(crate) async fn kill_container(&self, kill: ContainerKill<'_>) -> CriResult<()> {
        let ContainerKill { pod, name, id, .. } = kill;
        let begun = Instant::now();
        let stopping = format!("Stopping container {name}");
        let text = match kill.message {
            "" => &stopping,
            message => message,
        };
        let events = &self.deps().events;
        let (event_type, reason) = (EventType::Normal, Reason::Killing);
        match kill.probe {
            Some(kind) => {
                let probe = ContainerProbe {
                    container: name,
                    kind,
                };
                events.record_probe(pod, probe, event_type, reason, text);
            }
            None => events.record(pod, Some(name), event_type, reason, text),
        }

        let action = self.pre_stop(&kill).await;
        let plan = StopBudget {
            grace: kill.grace,
            hook: action.is_some(),
            ordered: !kill.after.is_empty(),
        };
        let mut hook = std::pin::pin!(self.run_pre_stop(&kill, action.as_ref()));
        let mut hook_goes_on = false;
        if let Some(within) = plan.pre_stop_timeout(begun.elapsed()) {
            let ended = tokio::time::timeout(within, &mut hook).await;
            hook_goes_on = ended.is_err();
            if ended.unwrap_or(true) {
                self.finished_hooks().mark_finished(&pod.uid(), id);
            }
        }
        if let Some(within) = plan.ordering_timeout(begun.elapsed()) {
            let others = join_all(kill.after.iter().map(CancellationToken::cancelled));
            if tokio::time::timeout(within, others).await.is_err() {
                tracing::info!(pod = %pod.full_name(), container = name, "termination order timed out, stopping container");
            }
        }
        let grace = plan.stop_timeout(begun.elapsed());
        let mut stop = std::pin::pin!(async {
            let stop = self.deps().runtime.stop_container(id, grace);
            match kill.pod_stop {
                Some(pod_stop) => pod_stop.container(stop).await,
                None => stop.await,
            }
        });
        // a hook that timed out continues until its container ends
        let result = tokio::select! {
            biased;
            result = &mut stop => {
                if hook_goes_on {
                    self.pre_stop_failed(&kill, "its container ended before it");
                }
                result
            }
            _ = &mut hook, if hook_goes_on => stop.await,
        };
        let result = ignore_missing(result);
        if result.is_ok() {
            self.finished_hooks().forget(&pod.uid(), id);
            self.post_starts().forget(&pod.uid(), id);
        }
        result
    }

    /// Lists the objects to stop: a container started after the observation would otherwise be
    /// killed with its sandbox, without a grace period.
    async fn list_alive(&self, observed: &ObservedPod) -> Targets {
        let filter = ListFilter::of_pod(&observed.uid);
        let runtime = &self.deps().runtime;
        let lists = futures::future::join(
            runtime.list_containers(&filter),
            runtime.list_pod_sandboxes(&filter),
        );
        let Ok((containers, sandboxes)) = tokio::time::timeout(LIST_TIMEOUT, lists).await else {
            return Targets::observed(observed);
        };
        let containers = match containers {
            Ok(list) => list
                .into_iter()
                .filter(|c| c.state.may_run())
                .map(|c| (c.name, c.id))
                .collect(),
            Err(_) => Targets::observed(observed).containers,
        };
        let sandboxes = match sandboxes {
            Ok(list) => list.into_iter().map(Into::into).collect(),
            Err(_) => Targets::observed(observed).sandboxes,
        };
        Targets {
            containers,
            sandboxes,
        }
    }

    async fn stop_containers(
        &self,
        pod: &SharedPod,
        req: &KillPodRequest,
        targets: &Targets,
        pod_stop: &PodStop<'_>,
    ) -> Vec<(String, CriError)> {
        let containers = &targets.containers;
        let running: Vec<&str> = containers.iter().map(|(name, _)| name.as_str()).collect();
        let order = TerminationOrder::new(pod, &running);
        tracing::debug!(pod = %pod.full_name(), %order, "stopping containers");
        let ended: Vec<(&str, CancellationToken)> = running
            .iter()
            .map(|name| (*name, CancellationToken::new()))
            .collect();
        let stops = containers
            .iter()
            .zip(&ended)
            .map(|((name, id), (_, done))| {
                let before = order.before(name);
                let others = ended.iter().filter(|(o, _)| before.iter().any(|b| b == o));
                let kill = ContainerKill {
                    pod,
                    name,
                    id,
                    grace: req.grace,
                    message: &req.message,
                    probe: None,
                    ips: &req.observed.ips,
                    after: others.map(|(_, token)| token.clone()).collect(),
                    pod_stop: Some(pod_stop),
                };
                async move {
                    let result = self.kill_container(kill).await;
                    // others wait for a failed stop until their timeout
                    if result.is_ok() {
                        done.cancel();
                    }
                    failed(format!("container {name}"), result)
                }
            });
        join_all(stops).await.into_iter().flatten().collect()
    }
}

fn failed(what: String, result: CriResult<()>) -> Option<(String, CriError)> {
    ignore_missing(result).err().map(|error| (what, error))
}

pub(crate) fn ignore_missing(result: CriResult<()>) -> CriResult<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}

/// Minimal pod object of an orphaned pod, for events and paths.
pub(crate) fn orphan(uid: &PodUid, namespace: &str, name: &str) -> SharedPod {
    Arc::new(Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            uid: Some(uid.to_string()),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    })
}
