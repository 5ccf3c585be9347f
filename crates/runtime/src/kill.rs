//! Stops a pod: main containers at once, sidecars after them in reverse order, then sandboxes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use windlass_core::actions::is_sidecar;
use windlass_cri::error::{CriError, CriResult};
use windlass_types::cri::ListFilter;
use windlass_types::metav1::ObjectMeta;
use windlass_types::pod::SharedPod;
use windlass_types::view::EventType;
use windlass_types::{
    ContainerId, ContainerState, ObservedPod, Pod, PodExt, PodUid, Reason, SandboxId, names,
};

use crate::PodRuntime;
use crate::request::{KillPodError, KillPodRequest};

/// Every container gets this long to end, whatever is left of its grace period.
pub(crate) const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// A kill does not wait longer than this for a fresh list; the observation then has to do.
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// Sandboxes that are stopped at a time. The runtime takes down a network for each, a few at a
/// time at best; asked for a hundred at once it ends them all near the end, and then everything
/// that follows a pod's end comes at once too, beyond the rate of the API client.
const SANDBOX_STOPS: usize = 8;
/// A stop takes 0.1 s and about 0.5 s in company. One that takes longer than this goes on
/// without its place: sick pods do not stop the healthy ones.
const STOP_LEASE: Duration = Duration::from_secs(2);

/// Places for the stops of sandboxes, given out in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct SandboxStops(Semaphore);

impl Default for SandboxStops {
    fn default() -> Self {
        Self(Semaphore::new(SANDBOX_STOPS))
    }
}

impl SandboxStops {
    /// Runs `stop` when it is its turn.
    async fn pace<T>(&self, stop: impl Future<Output = T>) -> T {
        // never closed
        let place = self.0.acquire().await;
        let mut stop = std::pin::pin!(stop);
        match tokio::time::timeout(STOP_LEASE, &mut stop).await {
            Ok(result) => result,
            Err(_) => {
                drop(place);
                stop.await
            }
        }
    }
}

/// What of a pod is to be stopped.
#[derive(Clone, Debug, Default, PartialEq)]
struct Targets {
    containers: Vec<(String, ContainerId)>,
    sandboxes: Vec<SandboxId>,
}

impl Targets {
    fn observed(observed: &ObservedPod) -> Self {
        let running = observed.running();
        Self {
            containers: running.map(|c| (c.name.clone(), c.id.clone())).collect(),
            sandboxes: observed.sandboxes.iter().map(|s| s.id.clone()).collect(),
        }
    }
}

impl PodRuntime {
    /// Stops all containers of a pod and then its sandboxes. Nothing is removed: that is
    /// [`PodRuntime::collect_garbage`]'s part, after the status has been read.
    ///
    /// # Errors
    /// What could not be stopped; everything else is stopped nevertheless.
    pub async fn kill_pod(&self, req: KillPodRequest) -> Result<(), KillPodError> {
        let pod = req.pod.clone().unwrap_or_else(|| {
            let seen = &req.observed;
            orphan(&seen.uid, &seen.namespace, &seen.name)
        });
        let targets = self.targets(&req.observed).await;
        let mut failures = self.stop_containers(&pod, &req, targets.containers).await;
        let stops = targets.sandboxes.iter().map(|id| async move {
            let stop = self.deps().runtime.stop_pod_sandbox(id);
            failed(
                format!("sandbox {id}"),
                self.sandbox_stops().pace(stop).await,
            )
        });
        failures.extend(join_all(stops).await.into_iter().flatten());
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

    /// What of a pod is alive, as the runtime lists it: `container <name>` for each that runs,
    /// `sandbox <id>` for each that is ready.
    ///
    /// # Errors
    /// The runtime does not answer.
    pub async fn alive(&self, uid: &PodUid) -> Result<Vec<String>, KillPodError> {
        let filter = ListFilter::of_pod(uid);
        let runtime = &self.deps().runtime;
        let failed = |error| KillPodError {
            failures: vec![("the pod".to_owned(), error)],
        };
        let containers = runtime.list_containers(&filter).await.map_err(failed)?;
        let sandboxes = runtime.list_pod_sandboxes(&filter).await.map_err(failed)?;
        let runs = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
        let running = containers.iter().filter(|c| runs(c.state));
        let ready = sandboxes.iter().filter(|s| s.ready);
        Ok(running
            .map(|c| format!("container {}", c.name))
            .chain(ready.map(|s| format!("sandbox {}", s.id)))
            .collect())
    }

    /// A pod of the same namespace and name but another UID that has something alive. Asks the
    /// runtime itself: what was listed before may not show it yet.
    pub async fn namesake(&self, pod: &Pod) -> CriResult<Option<PodUid>> {
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
        let runs = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
        let ready = sandboxes.into_iter().filter(|s| s.ready).map(|s| s.uid);
        let running = containers
            .into_iter()
            .filter(|c| runs(c.state))
            .map(|c| c.uid);
        let own = pod.uid();
        Ok(ready.chain(running).find(|uid| *uid != own))
    }

    /// Stops one container and records why.
    pub(crate) async fn kill_container(
        &self,
        pod: &Pod,
        name: &str,
        id: &ContainerId,
        grace: Duration,
        message: &str,
    ) -> CriResult<()> {
        let stopping = format!("Stopping container {name}");
        let text = if message.is_empty() {
            &stopping
        } else {
            message
        };
        let events = &self.deps().events;
        events.record(pod, Some(name), EventType::Normal, Reason::Killing, text);
        let result = self
            .deps()
            .runtime
            .stop_container(id, grace.max(MINIMUM_GRACE))
            .await;
        ignore_missing(result)
    }

    /// Asks the runtime once more, because a container that the last pass started after the
    /// observation would otherwise die with its sandbox, without its grace period.
    async fn targets(&self, observed: &ObservedPod) -> Targets {
        let filter = ListFilter::of_pod(&observed.uid);
        let runtime = &self.deps().runtime;
        let lists = futures::future::join(
            runtime.list_containers(&filter),
            runtime.list_pod_sandboxes(&filter),
        );
        let Ok((containers, sandboxes)) = tokio::time::timeout(LIST_PATIENCE, lists).await else {
            return Targets::observed(observed);
        };
        let containers = match containers {
            Ok(list) => list
                .into_iter()
                .filter(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
                .map(|c| (c.name, c.id))
                .collect(),
            Err(_) => Targets::observed(observed).containers,
        };
        let sandboxes = match sandboxes {
            Ok(list) => list.into_iter().map(|s| s.id).collect(),
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
        containers: Vec<(String, ContainerId)>,
    ) -> Vec<(String, CriError)> {
        let order = sidecars_last_first(pod);
        let names: BTreeSet<&str> = order.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let mains = containers
            .iter()
            .filter(|(name, _)| !names.contains(name.as_str()))
            .map(|(name, id)| async move {
                let result = self
                    .kill_container(pod, name, id, req.grace, &req.message)
                    .await;
                failed(format!("container {name}"), result)
            });
        let mut failures: Vec<_> = join_all(mains).await.into_iter().flatten().collect();
        for sidecar in &order {
            for (name, id) in containers.iter().filter(|(name, _)| name == sidecar) {
                let left = req.grace.saturating_sub(begun.elapsed());
                let result = self.kill_container(pod, name, id, left, &req.message).await;
                failures.extend(failed(format!("container {name}"), result));
            }
        }
        failures
    }
}

/// Names of the sidecars in the order they are stopped.
fn sidecars_last_first(pod: &Pod) -> Vec<String> {
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    sidecars.rev().map(|c| c.name.clone()).collect()
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

/// Just enough of a pod for events and paths of one that nobody asks for any more.
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
