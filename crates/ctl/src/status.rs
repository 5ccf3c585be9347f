//! READY, STATUS and RESTARTS of a pod, computed as in the printer of kubectl.

use windlass_types::corev1::{Container, ContainerState, ContainerStatus, PodStatus};
use windlass_types::pod::is_sidecar;
use windlass_types::{Phase, PodExt, Timestamp};

use crate::age;
use crate::pod::PodView;

/// The three columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// `1/2`.
    pub(crate) ready: String,
    /// `Running`, `Init:0/1`, `CrashLoopBackOff`, …
    pub(crate) status: String,
    /// `3 (12s ago)`.
    pub(crate) restarts: String,
}

/// Restart count and the time of the last termination.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &ContainerStatus) {
        self.count += i64::from(status.restart_count);
        let last = status
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let finished = last
            .and_then(|last| last.finished_at.as_ref())
            .map(|time| time.0);
        self.last = self.last.max(finished);
    }
}

/// Computes the columns.
pub(crate) fn summary(view: &PodView, now: Timestamp) -> Summary {
    let status = view.status();
    let init = init_progress(view.pod.init_containers(), &status);
    let total = view.pod.containers().len()
        + view
            .pod
            .init_containers()
            .iter()
            .filter(|c| is_sidecar(c))
            .count();
    let mut ready = init.ready_sidecars;
    let mut restarts = init.restarts;
    let terminal = Phase::is_terminal_in(&status);
    let of_pod = || {
        let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
        let reason = status.reason.clone().filter(|reason| !reason.is_empty());
        reason.unwrap_or(phase)
    };
    let mut text = init.blocking.clone().unwrap_or_else(of_pod);
    if terminal && never_ran(&status) {
        // rejected pod: its containers never start
        text = of_pod();
    } else if init.blocking.is_none() || has_condition(&status, "Initialized") {
        restarts = init.sidecar_restarts;
        let apps = app_progress(&status, &mut restarts);
        ready += apps.ready;
        text = apps.reason.unwrap_or(text);
        // a completed container does not hide running ones
        if text == "Completed" && apps.any_running {
            let ready = has_condition(&status, "Ready");
            text = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    let terminating =
        view.pod.metadata.deletion_timestamp.is_some() || view.entry.worker_state == "Terminating";
    // before the first observation of this run the agent does not know whether it still runs
    if view.entry.stale_status && text == "Running" {
        text = "Unknown".to_owned();
    }
    if terminating && !terminal {
        text = "Terminating".to_owned();
    }
    Summary {
        ready: format!("{ready}/{total}"),
        status: text,
        restarts: match restarts {
            Restarts {
                count,
                last: Some(last),
            } if count > 0 => {
                format!("{count} ({} ago)", age::age(Some(last), now))
            }
            Restarts { count, .. } => count.to_string(),
        },
    }
}

struct InitProgress {
    /// STATUS while an init container has not completed.
    blocking: Option<String>,
    restarts: Restarts,
    sidecar_restarts: Restarts,
    ready_sidecars: usize,
}

fn init_progress(containers: &[Container], status: &PodStatus) -> InitProgress {
    let mut progress = InitProgress {
        blocking: None,
        restarts: Restarts::default(),
        sidecar_restarts: Restarts::default(),
        ready_sidecars: 0,
    };
    for (index, status) in status.init_container_statuses.iter().flatten().enumerate() {
        progress.restarts.add(status);
        let container = containers.iter().find(|c| c.name == status.name);
        let sidecar = container.is_some_and(is_sidecar);
        if sidecar {
            progress.sidecar_restarts.add(status);
        }
        let state = status.state.as_ref();
        let terminated = state.and_then(|s| s.terminated.as_ref());
        let waiting = state.and_then(|s| s.waiting.as_ref()?.reason.as_deref());
        if terminated.is_some_and(|t| t.exit_code == 0) {
            continue;
        }
        if sidecar && status.started == Some(true) {
            progress.ready_sidecars += usize::from(status.ready);
            continue;
        }
        progress.blocking = Some(match (terminated, waiting) {
            (Some(ended), _) => format!("Init:{}", ended_text(ended)),
            (None, Some(reason)) if !matches!(reason, "" | "PodInitializing") => {
                format!("Init:{reason}")
            }
            _ => format!("Init:{index}/{}", containers.len()),
        });
        break;
    }
    progress
}

struct AppProgress {
    /// Reason of the first container with one.
    reason: Option<String>,
    ready: usize,
    any_running: bool,
}

fn app_progress(status: &PodStatus, restarts: &mut Restarts) -> AppProgress {
    let mut progress = AppProgress {
        reason: None,
        ready: 0,
        any_running: false,
    };
    // reversed, so that the reason of the first container is kept
    for status in status.container_statuses.iter().flatten().rev() {
        restarts.add(status);
        let Some(state) = &status.state else { continue };
        let waiting = state.waiting.as_ref().and_then(|w| w.reason.as_deref());
        if let Some(reason) = waiting.filter(|reason| !reason.is_empty()) {
            progress.reason = Some(reason.to_owned());
        } else if let Some(ended) = &state.terminated {
            progress.reason = Some(ended_text(ended));
        } else if status.ready && state.running.is_some() {
            progress.any_running = true;
            progress.ready += 1;
        }
    }
    progress
}

fn ended_text(ended: &windlass_types::corev1::ContainerStateTerminated) -> String {
    match (ended.reason.as_deref(), ended.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", ended.exit_code),
    }
}

/// Whether no container is or was running.
fn never_ran(status: &PodStatus) -> bool {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let ran = |status: &ContainerStatus| {
        let began = |state: &Option<ContainerState>| {
            let state = state.as_ref();
            state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        };
        began(&status.state) || began(&status.last_state)
    };
    !lists.into_iter().flatten().flatten().any(ran)
}

fn has_condition(status: &PodStatus, name: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == name && condition.status == "True")
}

#[cfg(test)]
mod tests;
