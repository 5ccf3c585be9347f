//! Decides which file a request for a log means.

use windlass_proto::windlass_v1::ReadLogRequest;
use windlass_status::PodEntryView;
use windlass_types::corev1::ContainerStatus;
use windlass_types::view::WorkerPhase;
use windlass_types::{PodExt, SharedPod};

/// One instance of one container.
#[derive(Clone, Debug)]
pub struct LogTarget {
    /// The pod.
    pub pod: SharedPod,
    /// The container's name.
    pub container: String,
    /// The instance: its restart count.
    pub attempt: u32,
    /// It runs, so more lines may come.
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
pub enum NoLog {
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
        /// Their names.
        containers: String,
    },
    /// No such container.
    #[error("pod {pod} has no container {container}, it has: {containers}")]
    Container {
        /// Pod.
        pod: String,
        /// The name asked for.
        container: String,
        /// The names there are.
        containers: String,
    },
    /// The container never started.
    #[error("container {container} of pod {pod} is waiting to start: {reason}")]
    Waiting {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
        /// Why it waits.
        reason: String,
    },
    /// It was never restarted.
    #[error("container {container} of pod {pod} has no previous instance")]
    NoPrevious {
        /// Pod.
        pod: String,
        /// Container.
        container: String,
    },
}

/// The instance that `request` means. `entries` are all pods of that name: two while one
/// replaces the other.
pub fn log_target(entries: &[PodEntryView], request: &ReadLogRequest) -> Result<LogTarget, NoLog> {
    let entry = entries
        .iter()
        .min_by_key(|entry| entry.worker_phase != WorkerPhase::Syncing)
        .ok_or_else(|| NoLog::Pod {
            namespace: request.namespace.clone(),
            name: request.pod.clone(),
        })?;
    let container = container(entry, &request.container)?;
    let status = statuses(entry).find(|status| status.name == container);
    instance(entry, &container, status, request.previous)
}

/// Whether a target's instance still runs, by a later look at its pod.
pub fn still_runs(entry: &PodEntryView, target: &LogTarget) -> bool {
    statuses(entry)
        .find(|status| status.name == target.container)
        .is_some_and(|status| {
            is_running(status) && u32::try_from(status.restart_count) == Ok(target.attempt)
        })
}

fn container(entry: &PodEntryView, asked: &str) -> Result<String, NoLog> {
    let pod = &entry.pod;
    let names: Vec<&str> = pod
        .containers()
        .iter()
        .chain(pod.init_containers())
        .map(|container| container.name.as_str())
        .collect();
    if asked.is_empty() {
        let default = pod.annotation("kubectl.kubernetes.io/default-container");
        return match (default, pod.containers()) {
            (Some(name), _) if names.contains(&name) => Ok(name.to_owned()),
            (_, [only]) => Ok(only.name.clone()),
            _ => Err(NoLog::Ambiguous {
                pod: pod.name().to_owned(),
                containers: names.join(", "),
            }),
        };
    }
    if names.contains(&asked) {
        return Ok(asked.to_owned());
    }
    Err(NoLog::Container {
        pod: pod.name().to_owned(),
        container: asked.to_owned(),
        containers: names.join(", "),
    })
}

fn statuses(entry: &PodEntryView) -> impl Iterator<Item = &ContainerStatus> {
    let apps = entry.status.container_statuses.iter().flatten();
    apps.chain(entry.status.init_container_statuses.iter().flatten())
}

fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

/// A waiting container's newest instance is the one that ended last, which is why its log is
/// both the present and the previous one, as upstream has it.
fn instance(
    entry: &PodEntryView,
    container: &str,
    status: Option<&ContainerStatus>,
    previous: bool,
) -> Result<LogTarget, NoLog> {
    let (pod, name) = (entry.pod.name().to_owned(), container.to_owned());
    let waiting = |reason: &str| NoLog::Waiting {
        pod: pod.clone(),
        container: name.clone(),
        reason: reason.to_owned(),
    };
    let Some(status) = status else {
        return Err(waiting("the pod was not synced yet"));
    };
    let newest = u32::try_from(status.restart_count).unwrap_or(0);
    let ended_before = status
        .last_state
        .as_ref()
        .is_some_and(|last| last.terminated.is_some());
    let state = status.state.as_ref();
    let started = state.is_some_and(|s| s.running.is_some() || s.terminated.is_some());
    let attempt = match (started, previous) {
        (true, false) => newest,
        (true, true) if ended_before && newest > 0 => newest - 1,
        (true, true) => {
            return Err(NoLog::NoPrevious {
                pod,
                container: name,
            });
        }
        (false, _) if ended_before => newest,
        (false, _) => {
            let reason = state.and_then(|s| s.waiting.as_ref()?.reason.as_deref());
            return Err(waiting(reason.unwrap_or("no reason known")));
        }
    };
    Ok(LogTarget {
        pod: entry.pod.clone(),
        container: name,
        attempt,
        running: is_running(status) && !previous,
    })
}

#[cfg(test)]
mod tests;
