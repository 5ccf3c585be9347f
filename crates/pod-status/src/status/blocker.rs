//! The blocker of a pod: the earliest cause that keeps it from its desired state.
//!
//! Order: termination · failed pod · error of the pod (runtime, sandbox, volumes) · image ·
//! container creation · container start · crash loop · init container · next container start ·
//! exited container · readiness.

use std::time::Duration;

use windlass_types::corev1::{ContainerStateTerminated, ContainerStatus, PodStatus};
use windlass_types::view::{Blocker, PodEvent};
use windlass_types::{Pod, PodExt, ProbeKind, Reason, Timestamp};

use super::Failures;
use windlass_pod_lifecycle::actions::{DelayedRestart, restarts_after_exit};
use windlass_pod_lifecycle::probe::event_detail;
use windlass_types::Phase;
use windlass_types::pod::is_sidecar;
use windlass_units::duration::go_duration;

/// Input of [`blocker`].
#[derive(Clone, Copy, Debug)]
pub struct BlockerInput<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// Its status from [`super::generate_status`].
    pub status: &'a PodStatus,
    /// Errors of the last sync.
    pub failures: &'a Failures,
    /// Restarts in back-off.
    pub backing_off: &'a [DelayedRestart],
    /// Recent events of the pod, oldest first; they carry the probes that killed containers.
    pub events: &'a [PodEvent],
    /// Time of the next scheduled sync.
    pub next_sync: Option<Timestamp>,
    /// The previously reported blocker.
    pub previous: Option<&'a Blocker>,
    /// The current time.
    pub now: Timestamp,
}

/// A blocker without its time.
struct Cause {
    reason: Reason,
    container: Option<String>,
    message: String,
    probe: Option<ProbeKind>,
    next_retry: Option<Timestamp>,
}

impl Cause {
    fn for_pod(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            container: None,
            message: message.into(),
            probe: None,
            next_retry: None,
        }
    }

    fn for_container(container: &str, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            container: Some(container.to_owned()),
            ..Self::for_pod(reason, message)
        }
    }

    /// Returns the cause of a container whose probe has not succeeded.
    fn for_probe(container: &str, reason: Reason, probe: ProbeKind) -> Self {
        let message = match probe {
            ProbeKind::Readiness => "its readiness probe does not pass",
            ProbeKind::Startup => "its startup probe has not passed yet",
            ProbeKind::Liveness => "its liveness probe fails",
        };
        Self {
            probe: Some(probe),
            ..Self::for_container(container, reason, message)
        }
    }

    fn retried_at(self, next_retry: Option<Timestamp>) -> Self {
        Self { next_retry, ..self }
    }
}

/// Returns the current blocker of a pod; `None` in its desired state.
pub fn blocker(input: BlockerInput<'_>) -> Option<Blocker> {
    let cause = cause(&input)?;
    let since = input
        .previous
        .filter(|p| p.reason == cause.reason && p.container == cause.container)
        .map_or(input.now, |p| p.since);
    Some(Blocker {
        reason: cause.reason,
        container: cause.container,
        message: cause.message,
        probe: cause.probe,
        since,
        next_retry: cause.next_retry,
    })
}

/// Returns the party that must act on a blocker. [`Blocker::next_retry`] is the time of an
/// automatic retry.
pub fn waiting_for(blocker: &Blocker) -> &'static str {
    match blocker.reason {
        Reason::RuntimeCallHung => "container runtime; the agent keeps retrying",
        _ if blocker.next_retry.is_some() => "agent (automatic retry)",
        Reason::Terminating => "agent, after the containers have stopped",
        Reason::WaitingForStartSlot => "agent, after other pods have started",
        Reason::WaitingForPodTermination => {
            "agent, after the pod with the same name has terminated"
        }
        Reason::WaitingForApiServer => "agent, when the API server is reachable",
        Reason::ContainerCreating => "agent (sync in progress)",
        Reason::PodInitializing => "init container, until it completes or starts",
        Reason::ContainersNotReady => match &blocker.container {
            Some(_) => "container, until its probe succeeds",
            None => "controller of the readiness gates",
        },
        _ => "user: fix the pod spec or manifest (no automatic retry)",
    }
}

/// Returns the last failure of the blocking probe on the current instance of its container. It is
/// looked up on display because failures do not change the blocker.
pub fn last_probe_failure<'a>(
    blocker: &Blocker,
    status: &PodStatus,
    events: &'a [PodEvent],
) -> Option<&'a str> {
    let kind = blocker.probe?;
    let name = blocker.container.as_deref()?;
    let running = find(status, name)?.state.as_ref()?.running.as_ref();
    let since = running?.started_at.as_ref().map(|t| t.0);
    let failure = events.iter().rev().find(|event| {
        event.reason == Reason::Unhealthy
            && event.probe == Some(kind)
            && event.container.as_deref() == Some(name)
            && since.is_none_or(|since| since <= event.last)
    })?;
    Some(event_detail(kind, &failure.message)).filter(|text| !text.is_empty())
}

fn cause(input: &BlockerInput<'_>) -> Option<Cause> {
    let phase = Phase::from_status(input.status);
    if phase == Some(Phase::Succeeded) {
        return None;
    }
    if input.pod.metadata.deletion_timestamp.is_some() {
        return Some(terminating(input));
    }
    if phase == Some(Phase::Failed) {
        return Some(failed(input));
    }
    failure(input)
        .or_else(|| crash_loop(input))
        .or_else(|| initializing(input))
        .or_else(|| starting(input))
        .or_else(|| ended(input))
        .or_else(|| unready(input))
}

fn terminating(input: &BlockerInput<'_>) -> Cause {
    let stuck = input
        .failures
        .iter()
        .find(|(_, (reason, _))| matches!(reason, Reason::KillContainerError));
    match stuck {
        Some((name, (reason, message))) => Cause {
            container: (!name.is_empty()).then(|| name.clone()),
            ..Cause::for_pod(*reason, message.clone()).retried_at(input.next_sync)
        },
        None => Cause::for_pod(Reason::Terminating, "the pod is being stopped"),
    }
}

/// Returns the cause of a failed pod: its reason, else its failed container.
fn failed(input: &BlockerInput<'_>) -> Cause {
    if let Some(text) = &input.status.reason {
        let reason = terminated_reason(Some(text));
        let message = match input.status.message.as_deref() {
            Some("") | None => text.clone(),
            Some(message) if reason.as_str() == text => message.to_owned(),
            Some(message) => format!("{text}: {message}"),
        };
        return Cause::for_pod(reason, message);
    }
    let mut ends = statuses(input.status).filter_map(|s| Some((s, last_end(s)?)));
    match ends.find(|(_, end)| end.exit_code != 0) {
        Some((status, end)) => Cause::for_container(
            &status.name,
            terminated_reason(end.reason.as_ref()),
            format!("the pod failed: {}", end_text(input, &status.name, end)),
        ),
        None => Cause::for_pod(Reason::Error, "the pod was stopped before it completed"),
    }
}

/// Returns the error of the earliest step of the last sync.
fn failure(input: &BlockerInput<'_>) -> Option<Cause> {
    let delayed = |name: &str| input.backing_off.iter().any(|b| b.name == name);
    let position = |name: &str| {
        let inits = input.pod.init_containers().iter();
        let mut all = inits.chain(input.pod.containers());
        all.position(|c| c.name == name).unwrap_or(usize::MAX)
    };
    let (name, (reason, message)) = input
        .failures
        .iter()
        .filter(|(name, (reason, _))| {
            *reason != Reason::CrashLoopBackOff && !delayed(name) && !is_running(input, name)
        })
        .min_by_key(|(name, (reason, _))| (!name.is_empty(), step(*reason), position(name)))?;
    let cause = if name.is_empty() {
        Cause::for_pod(*reason, message.clone())
    } else {
        Cause::for_container(name, *reason, message.clone())
    };
    Some(cause.retried_at(input.next_sync))
}

/// Returns the step of a container start for a reason.
fn step(reason: Reason) -> u8 {
    match reason {
        Reason::InvalidImageName
        | Reason::ErrImageNeverPull
        | Reason::ImageInspectError
        | Reason::ErrImagePull
        | Reason::ImagePullBackOff
        | Reason::RegistryUnavailable
        | Reason::SignatureValidationFailed => 0,
        Reason::CreateContainerConfigError | Reason::CreateContainerError => 1,
        Reason::RunContainerError => 2,
        _ => 3,
    }
}

fn crash_loop(input: &BlockerInput<'_>) -> Option<Cause> {
    let inits = input.pod.init_containers().iter();
    let mut in_order = inits.chain(input.pod.containers());
    let wait = in_order.find_map(|c| input.backing_off.iter().find(|b| b.name == c.name))?;
    let end = find(input.status, &wait.name).and_then(last_end);
    let last = end.map(|end| end_text(input, &wait.name, end));
    let last = last.map_or_else(String::new, |text| format!(": {text}"));
    let delay = go_duration(wait.delay);
    Some(
        Cause::for_container(
            &wait.name,
            wait.reason,
            format!("restarts are {delay} apart{last}"),
        )
        .retried_at(Some(wait.until)),
    )
}

/// Returns the init container or sidecar that the other containers wait for.
fn initializing(input: &BlockerInput<'_>) -> Option<Cause> {
    let inits = input.pod.init_containers();
    let total = inits.len();
    let mut running = inits
        .iter()
        .enumerate()
        .filter(|(_, c)| is_running(input, &c.name));
    running.find_map(|(i, c)| {
        if !is_sidecar(c) {
            let text = format!("init container {} of {total} is running", i + 1);
            return Some(Cause::for_container(&c.name, Reason::PodInitializing, text));
        }
        let status = find(input.status, &c.name)?;
        let waits = status.started != Some(true) && some_wait(input);
        waits.then(|| Cause::for_probe(&c.name, Reason::PodInitializing, ProbeKind::Startup))
    })
}

/// True if an app container has never run.
fn some_wait(input: &BlockerInput<'_>) -> bool {
    let apps = input.status.container_statuses.iter().flatten();
    apps.into_iter().any(|s| {
        let waits = s.state.as_ref().is_none_or(|s| s.waiting.is_some());
        waits && last_end(s).is_none()
    })
}

fn starting(input: &BlockerInput<'_>) -> Option<Cause> {
    let inits = input.pod.init_containers().iter();
    let mut in_order = inits.chain(input.pod.containers());
    let status = in_order.find_map(|c| {
        find(input.status, &c.name).filter(|s| s.state.as_ref().is_none_or(|s| s.waiting.is_some()))
    })?;
    let name = &status.name;
    let Some(end) = last_end(status) else {
        let cause = Cause::for_container(name, Reason::ContainerCreating, "about to be created");
        return Some(cause.retried_at(input.next_sync));
    };
    Some(restarting(input, name, &end_text(input, name, end)))
}

/// Returns the cause of a container that restarts next.
fn restarting(input: &BlockerInput<'_>, name: &str, end: &str) -> Cause {
    let text = format!("about to start again: {end}");
    Cause::for_container(name, Reason::ContainerCreating, text).retried_at(input.next_sync)
}

/// Returns the app container or sidecar that failed while others run.
fn ended(input: &BlockerInput<'_>) -> Option<Cause> {
    let inits = input.pod.init_containers().iter();
    let mut in_order = inits.chain(input.pod.containers());
    in_order.find_map(|c| {
        let end = current_end(find(input.status, &c.name)?)?;
        (end.exit_code != 0).then(|| {
            let text = end_text(input, &c.name, end);
            if restarts_after_exit(input.pod, c, end.exit_code) {
                return restarting(input, &c.name, &text);
            }
            let reason = terminated_reason(end.reason.as_ref());
            Cause::for_container(&c.name, reason, text)
        })
    })
}

fn unready(input: &BlockerInput<'_>) -> Option<Cause> {
    let conditions = input.status.conditions.iter().flatten();
    let ready = conditions.into_iter().find(|c| c.type_ == "Ready")?;
    if ready.status == "True" {
        return None;
    }
    let sidecars = input.pod.init_containers().iter().filter(|c| is_sidecar(c));
    let mut required = sidecars.chain(input.pod.containers());
    let unready = required
        .find_map(|c| find(input.status, &c.name).filter(|s| !s.ready && current_end(s).is_none()));
    match unready {
        Some(status) => {
            let probe = match status.started {
                Some(true) => ProbeKind::Readiness,
                _ => ProbeKind::Startup,
            };
            Some(Cause::for_probe(
                &status.name,
                Reason::ContainersNotReady,
                probe,
            ))
        }
        None if ready.reason.as_deref() == Some("ReadinessGatesNotReady") => Some(Cause::for_pod(
            Reason::ContainersNotReady,
            ready.message.clone().unwrap_or_default(),
        )),
        // the other containers have completed
        None => None,
    }
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten()
}

fn find<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    statuses(status).find(|s| s.name == name)
}

fn is_running(input: &BlockerInput<'_>, name: &str) -> bool {
    let state = find(input.status, name).and_then(|s| s.state.as_ref());
    state.is_some_and(|s| s.running.is_some())
}

fn current_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    current_end(status).or_else(|| status.last_state.as_ref()?.terminated.as_ref())
}

/// Returns the probe that killed a container during the run with this end.
fn killed_by_probe(
    input: &BlockerInput<'_>,
    name: &str,
    end: &ContainerStateTerminated,
) -> Option<ProbeKind> {
    let (from, until) = (end.started_at.as_ref()?.0, end.finished_at.as_ref()?.0);
    // times of a status have whole seconds
    let until = until.saturating_add(Duration::from_secs(1)).ok()?;
    let mut kills = input.events.iter().filter(|event| {
        event.reason == Reason::Killing
            && event.container.as_deref() == Some(name)
            && (from..=until).contains(&event.last)
    });
    kills.find_map(|event| event.probe)
}

fn end_text(input: &BlockerInput<'_>, name: &str, end: &ContainerStateTerminated) -> String {
    let reason = end.reason.as_deref().unwrap_or("Error");
    let text = format!("it ended with exit code {} ({reason})", end.exit_code);
    let text = match killed_by_probe(input, name, end) {
        Some(probe) => {
            let probe = probe.as_str().to_ascii_lowercase();
            format!("its {probe} probe failed and {text}")
        }
        None => text,
    };
    match end.message.as_deref().map(str::trim) {
        Some(message) if !message.is_empty() => format!("{text}: {message}"),
        _ => text,
    }
}

fn terminated_reason(text: Option<&String>) -> Reason {
    let known = [
        Reason::OomKilled,
        Reason::ContainerStatusUnknown,
        Reason::DeadlineExceeded,
        Reason::Completed,
    ];
    known
        .into_iter()
        .find(|r| text.is_some_and(|t| t == r.as_str()))
        .unwrap_or(Reason::Error)
}
