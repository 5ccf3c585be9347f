//! Resolves a log request to a container instance, for `windlassctl` and the node API.

use std::time::Duration;

use crate::{PodStatusEntry, PodStatusStore, current_entry};
use tokio_util::sync::CancellationToken;
use windlass_types::corev1::{ContainerState, ContainerStateTerminated, ContainerStatus};
use windlass_types::{PodExt, SharedPod};

/// Minimum interval between checks of the pod while a log is followed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A request for a log.
#[derive(Clone, Copy, Debug)]
pub struct LogRequest<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container; empty for the default or only one.
    pub container: &'a str,
    /// Use the previous instance.
    pub previous: bool,
}

/// One instance of a container.
#[derive(Clone, Debug)]
pub struct LogTarget {
    /// The pod.
    pub pod: SharedPod,
    /// The container's name.
    pub container: String,
    /// Restart count of the instance.
    pub attempt: u32,
    /// The container is running, so more lines may follow.
    pub running: bool,
}

impl std::fmt::Display for LogTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (pod, container, attempt) = (self.pod.full_name(), &self.container, self.attempt);
        write!(
            f,
            "{pod} {container}/{attempt}.log running={}",
            self.running
        )
    }
}

/// Why there is no such log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogTargetError {
    /// No such pod.
    #[error("pod {namespace}/{name} not found")]
    Pod {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// The pod has several containers and none was named.
    #[error("pod {pod} has several containers, name one of them: {containers}")]
    Ambiguous {
        /// Pod.
        pod: String,
        /// Names of its containers.
        containers: String,
    },
    /// No such container.
    #[error("pod {pod} has no container {container}, it has: {containers}")]
    Container {
        /// Pod.
        pod: String,
        /// Requested name.
        container: String,
        /// Names of its containers.
        containers: String,
    },
    /// The container was not inspected yet.
    #[error("container {container:?} in pod {pod:?} is not available")]
    Unknown {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The container never started.
    #[error("container {container:?} in pod {pod:?} is waiting to start: {reason}")]
    Waiting {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
        /// Reason of the waiting state.
        reason: String,
    },
    /// The container terminated without an observed container ID.
    #[error("container {container:?} in pod {pod:?} is terminated")]
    Terminated {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
    /// The container was never restarted.
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
}

/// Returns the requested instance. `entries` are all pods of that name: two while one replaces the
/// other.
///
/// # Errors
/// No such pod, container or instance; the messages for the last are upstream's.
pub fn log_target(
    entries: &[PodStatusEntry],
    request: &LogRequest<'_>,
) -> Result<LogTarget, LogTargetError> {
    let entry = current_entry(entries).ok_or_else(|| LogTargetError::Pod {
        namespace: request.namespace.to_owned(),
        name: request.pod.to_owned(),
    })?;
    let container = container(entry, request.container)?;
    let status = statuses(entry).find(|status| status.name == container);
    instance(entry, &container, status, request.previous)
}

/// Returns whether the target's instance is running, by a later status of its pod.
pub(crate) fn still_runs(entry: &PodStatusEntry, target: &LogTarget) -> bool {
    statuses(entry)
        .find(|status| status.name == target.container)
        .is_some_and(|status| {
            is_running(status) && u32::try_from(status.restart_count) == Ok(target.attempt)
        })
}

/// Waits until the target's instance has terminated.
async fn ended(status_store: &PodStatusStore, target: &LogTarget) {
    let (uid, mut version) = (target.pod.uid(), status_store.changes());
    loop {
        version.borrow_and_update();
        let runs = status_store
            .get(&uid)
            .is_some_and(|now| still_runs(&now, target));
        if !runs || version.changed().await.is_err() {
            return;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Cancels `done` when the target's instance has terminated; ends when `gone` is cancelled.
pub async fn watch_end(
    status_store: PodStatusStore,
    target: LogTarget,
    done: CancellationToken,
    gone: CancellationToken,
) {
    tokio::select! {
        biased;
        () = gone.cancelled() => {}
        () = ended(&status_store, &target) => done.cancel(),
    }
}

fn container(entry: &PodStatusEntry, requested: &str) -> Result<String, LogTargetError> {
    let pod = &entry.pod;
    let names: Vec<&str> = pod
        .containers()
        .iter()
        .chain(pod.init_containers())
        .map(|container| container.name.as_str())
        .chain(ephemeral(entry))
        .collect();
    if requested.is_empty() {
        let default = pod.annotation("kubectl.kubernetes.io/default-container");
        return match (default, pod.containers()) {
            (Some(name), _) if names.contains(&name) => Ok(name.to_owned()),
            (_, [only]) => Ok(only.name.clone()),
            _ => Err(LogTargetError::Ambiguous {
                pod: pod.name().to_owned(),
                containers: names.join(", "),
            }),
        };
    }
    if names.contains(&requested) {
        return Ok(requested.to_owned());
    }
    Err(LogTargetError::Container {
        pod: pod.name().to_owned(),
        container: requested.to_owned(),
        containers: names.join(", "),
    })
}

fn ephemeral(entry: &PodStatusEntry) -> impl Iterator<Item = &str> {
    let spec = entry.pod.spec.iter();
    let containers = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    containers.map(|container| container.name.as_str())
}

fn statuses(entry: &PodStatusEntry) -> impl Iterator<Item = &ContainerStatus> {
    let status = &entry.status;
    let apps = status.container_statuses.iter().flatten();
    apps.chain(status.init_container_statuses.iter().flatten())
        .chain(status.ephemeral_container_statuses.iter().flatten())
}

fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

fn ended_as(state: &Option<ContainerState>) -> Option<&ContainerStateTerminated> {
    state.as_ref()?.terminated.as_ref()
}

/// Returns whether the runtime reported the end. Without an ID the instance was lost or never
/// created.
fn has_container_id(ended: Option<&ContainerStateTerminated>) -> bool {
    let id = ended.and_then(|ended| ended.container_id.as_deref());
    id.is_some_and(|id| !id.is_empty())
}

/// The newest instance of a waiting container is the last terminated one. Its log is both the
/// current and the previous one, as upstream.
fn instance(
    entry: &PodStatusEntry,
    container: &str,
    status: Option<&ContainerStatus>,
    previous: bool,
) -> Result<LogTarget, LogTargetError> {
    let (pod, name) = (entry.pod.name().to_owned(), container.to_owned());
    let Some(status) = status else {
        return Err(LogTargetError::Unknown {
            pod,
            container: name,
        });
    };
    let newest = u32::try_from(status.restart_count).unwrap_or(0);
    let (now, before) = (ended_as(&status.state), ended_as(&status.last_state));
    let running = is_running(status);
    let attempt = if previous {
        // while the next instance waits, the newest is the last terminated one
        let newer = u32::from(running || now.is_some());
        let earlier = newest
            .checked_sub(newer)
            .filter(|_| has_container_id(before));
        earlier.ok_or_else(|| LogTargetError::NoPrevious {
            pod,
            container: name.clone(),
        })?
    } else if running || has_container_id(now) {
        newest
    } else if has_container_id(before) {
        newest.saturating_sub(u32::from(now.is_some()))
    } else if now.or(before).is_some() {
        return Err(LogTargetError::Terminated {
            pod,
            container: name,
        });
    } else {
        let waiting = status.state.as_ref().and_then(|s| s.waiting.as_ref());
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        return Err(LogTargetError::Waiting {
            pod,
            container: name,
            reason: why_waiting(reason.unwrap_or("no logs yet")).to_owned(),
        });
    };
    Ok(LogTarget {
        pod: entry.pod.clone(),
        container: name,
        attempt,
        running: running && !previous,
    })
}

/// Returns upstream's text for the most common reasons.
fn why_waiting(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    }
}

#[cfg(test)]
mod tests;
