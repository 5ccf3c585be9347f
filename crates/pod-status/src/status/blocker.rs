//! The one thing that keeps a pod from what was asked: the most upstream cause wins.
//!
//! Order: the pod is being stopped · it failed · something of the whole pod (runtime, sandbox,
//! volumes) · an image · creating a container · starting it · a crash loop · an init container at
//! work or a sidecar that has not started · a container about to start · a container that ended for
//! good · readiness.

use std::time::Duration;

use windlass_types::corev1::{ContainerStateTerminated, ContainerStatus, PodStatus};
use windlass_types::view::{Blocker, PodEvent};
use windlass_types::{Pod, PodExt, ProbeKind, Reason, Timestamp};

use super::Failures;
use windlass_pod_lifecycle::actions::{DelayedRestart, restarts_after_exit};
use windlass_types::Phase;
use windlass_types::pod::is_sidecar;
use windlass_units::duration::go_duration;

/// A container's readiness probe fails, or has said nothing yet.
const NOT_READY: &str = "its readiness probe does not pass";
/// A container's startup probe has not succeeded.
const NOT_STARTED: &str = "its startup probe has not passed yet";

/// Everything the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct BlockerInput<'a> {
    /// The pod as asked.
    pub pod: &'a Pod,
    /// Its status, as [`super::generate_status`] made it.
    pub status: &'a PodStatus,
    /// What went wrong in the last sync.
    pub failures: &'a Failures,
    /// Restarts that are delayed.
    pub backing_off: &'a [DelayedRestart],
    /// What happened to the pod lately, oldest first: which probe had a container killed is only there.
    pub events: &'a [PodEvent],
    /// When the pod is synced next without anything else happening.
    pub next_sync: Option<Timestamp>,
    /// The blocker reported before.
    pub previous: Option<&'a Blocker>,
    /// The present.
    pub now: Timestamp,
}

/// A blocker before it is known since when.
struct Cause {
    reason: Reason,
    container: Option<String>,
    message: String,
    next_retry: Option<Timestamp>,
}

impl Cause {
    fn of_pod(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            container: None,
            message: message.into(),
            next_retry: None,
        }
    }

    fn of(container: &str, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            container: Some(container.to_owned()),
            ..Self::of_pod(reason, message)
        }
    }

    fn retried_at(self, next_retry: Option<Timestamp>) -> Self {
        Self { next_retry, ..self }
    }
}

/// The current blocker; `None` if the pod is what was asked.
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
        since,
        next_retry: cause.next_retry,
    })
}

/// Who goes on with what holds a pod up, or has to. With [`Blocker::next_retry`] it is the answer to
/// "who retries it, and when?".
pub fn waiting_for(blocker: &Blocker) -> &'static str {
    match blocker.reason {
        Reason::RuntimeCallHung => "the container runtime, by answering; the agent goes on asking",
        _ if blocker.next_retry.is_some() => "the agent, by itself",
        Reason::Terminating => "the agent, when what it stops has ended",
        Reason::WaitingForStartSlot => "the agent, when other pods have started",
        Reason::WaitingForPodTermination => "the agent, when the predecessor has stopped",
        Reason::WaitingForApiServer => "the agent, when the API server answers",
        Reason::ContainerCreating => "the agent, in the sync that is under way",
        Reason::PodInitializing => "the init container, when it ends or has started",
        Reason::ContainersNotReady => match &blocker.container {
            Some(_) => "the container, when its probe passes",
            None => "whoever sets the pod's readiness gates",
        },
        _ => "whoever made the pod: nothing happens by itself",
    }
}

/// What the probe that a blocker names complained of last, of this instance of its container. It is
/// looked up by who shows the blocker: complaints come and go without anything being decided.
pub fn last_probe_failure<'a>(
    blocker: &Blocker,
    status: &PodStatus,
    events: &'a [PodEvent],
) -> Option<&'a str> {
    let kind = match blocker.message.as_str() {
        NOT_READY => ProbeKind::Readiness,
        NOT_STARTED => ProbeKind::Startup,
        _ => return None,
    };
    let name = blocker.container.as_deref()?;
    let running = find(status, name)?.state.as_ref()?.running.as_ref();
    let since = running?.started_at.as_ref().map(|t| t.0);
    let complaint = events.iter().rev().find_map(|event| {
        let about = event.reason == Reason::Unhealthy
            && event.container.as_deref() == Some(name)
            && since.is_none_or(|since| since <= event.last);
        let text = event.message.strip_prefix(kind.as_str())?;
        let text = text.strip_prefix(" probe ")?;
        about.then(|| text.strip_prefix("failed: ").unwrap_or(text).trim())
    });
    complaint.filter(|text| !text.is_empty())
}

fn cause(input: &BlockerInput<'_>) -> Option<Cause> {
    let phase = input.status.phase.as_deref().and_then(Phase::parse);
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
            ..Cause::of_pod(*reason, message.clone()).retried_at(input.next_sync)
        },
        None => Cause::of_pod(Reason::Terminating, "the pod is being stopped"),
    }
}

/// A failed pod: the reason it was given, else the container that failed it.
fn failed(input: &BlockerInput<'_>) -> Cause {
    if let Some(text) = &input.status.reason {
        let reason = terminated_reason(Some(text));
        let message = match input.status.message.as_deref() {
            Some("") | None => text.clone(),
            Some(message) if reason.as_str() == text => message.to_owned(),
            Some(message) => format!("{text}: {message}"),
        };
        return Cause::of_pod(reason, message);
    }
    let mut ends = statuses(input.status).filter_map(|s| Some((s, last_end(s)?)));
    match ends.find(|(_, end)| end.exit_code != 0) {
        Some((status, end)) => Cause::of(
            &status.name,
            terminated_reason(end.reason.as_ref()),
            format!("the pod failed: {}", end_text(input, &status.name, end)),
        ),
        None => Cause::of_pod(Reason::Error, "the pod was stopped before it completed"),
    }
}

/// What went wrong in the last sync, the earliest step first.
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
        Cause::of_pod(*reason, message.clone())
    } else {
        Cause::of(name, *reason, message.clone())
    };
    Some(cause.retried_at(input.next_sync))
}

/// The step of a container's start that a reason belongs to.
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
        Cause::of(
            &wait.name,
            wait.reason,
            format!("restarts are {delay} apart{last}"),
        )
        .retried_at(Some(wait.until)),
    )
}

/// An init container that others wait for: it runs, or it is a sidecar that has not started.
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
            return Some(Cause::of(&c.name, Reason::PodInitializing, text));
        }
        let status = find(input.status, &c.name)?;
        let waits = status.started != Some(true) && some_wait(input);
        waits.then(|| Cause::of(&c.name, Reason::PodInitializing, NOT_STARTED))
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
        let cause = Cause::of(name, Reason::ContainerCreating, "about to be created");
        return Some(cause.retried_at(input.next_sync));
    };
    Some(restarting(input, name, &end_text(input, name, end)))
}

/// A container whose restart is next.
fn restarting(input: &BlockerInput<'_>, name: &str, end: &str) -> Cause {
    let text = format!("about to start again: {end}");
    Cause::of(name, Reason::ContainerCreating, text).retried_at(input.next_sync)
}

/// An app container or sidecar that ended badly while others go on.
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
            Cause::of(&c.name, reason, text)
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
            let text = match status.started {
                Some(true) => NOT_READY,
                _ => NOT_STARTED,
            };
            Some(Cause::of(&status.name, Reason::ContainersNotReady, text))
        }
        None if ready.reason.as_deref() == Some("ReadinessGatesNotReady") => Some(Cause::of_pod(
            Reason::ContainersNotReady,
            ready.message.clone().unwrap_or_default(),
        )),
        // What is not ready has completed, as its restart policy lets it.
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

/// The probe that had a container killed during the run that ended so.
fn killed_by_probe(
    input: &BlockerInput<'_>,
    name: &str,
    end: &ContainerStateTerminated,
) -> Option<&'static str> {
    let (from, until) = (end.started_at.as_ref()?.0, end.finished_at.as_ref()?.0);
    // times of a status have whole seconds
    let until = until.saturating_add(Duration::from_secs(1)).ok()?;
    let mut kills = input.events.iter().filter(|event| {
        event.reason == Reason::Killing
            && event.container.as_deref() == Some(name)
            && (from..=until).contains(&event.last)
    });
    kills.find_map(|event| {
        let probes = ["liveness", "startup"];
        let mut probes = probes.into_iter();
        probes.find(|probe| event.message.contains(&format!("failed {probe} probe")))
    })
}

fn end_text(input: &BlockerInput<'_>, name: &str, end: &ContainerStateTerminated) -> String {
    let reason = end.reason.as_deref().unwrap_or("Error");
    let text = format!("it ended with exit code {} ({reason})", end.exit_code);
    let text = match killed_by_probe(input, name, end) {
        Some(probe) => format!("its {probe} probe failed and {text}"),
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
