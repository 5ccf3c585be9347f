//! What must happen to make the runtime match a pod (upstream `computePodActions`).
//!
//! The pod as asked is compared with the pod as found; the answer is a value that the runtime
//! crate carries out and that an empty comparison turns into `nothing`. Whether a pod may run at
//! all (admission, deletion, deadline) is decided before. A sidecar holds back what comes after
//! it until it runs and its startup probe has passed; an ephemeral container is started once.
//!
//! Three rules go beyond upstream. Init containers count only if they ran in the current sandbox,
//! so that a new sandbox reruns them without anyone having to purge the old ones first. And a
//! container that was created but never started (the agent died in between) is removed before
//! its successor is created, which keeps its attempt and restart count. And a container that
//! fails a probe and is not to be restarted is killed alone, with the probe's own grace period
//! and words, before the pod is found to be done.

mod ephemeral;
mod reset;
mod restart;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::Container;
use windlass_types::pod::RestartPolicy;
use windlass_types::{
    ContainerId, ContainerState, ObservedContainer, ObservedPod, Pod, PodExt, PodProbeResults,
    ProbeKind, Reason, SandboxId, Timestamp,
};

use windlass_types::pod::is_sidecar;
use windlass_units::hash::container_hash;

use crate::backoff::{BackoffPolicy, BackoffTable, restart_key};
use crate::probe::probe_grace;

pub use ephemeral::{as_container, ephemeral_containers, find_container};
pub use reset::{ContainerToReset, restarts_all_containers};
pub use restart::{SandboxDecision, restarts_after_exit, sandbox_decision, should_be_started};
pub(crate) use restart::{never_restarts, policy_of};

/// Everything the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct ActionsInput<'a> {
    /// The pod as asked.
    pub pod: &'a Pod,
    /// The pod as found.
    pub observed: &'a ObservedPod,
    /// Delays in force.
    pub backoff: &'a BackoffTable,
    /// What the probes say.
    pub probe_results: &'a PodProbeResults,
    /// Policy of the restart delays.
    pub policy: BackoffPolicy,
    /// The present.
    pub now: Timestamp,
}

/// What to do, in this order: kill, sandbox, ephemeral containers, init container, containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodActions {
    /// Kill every container and the sandbox first.
    pub kill_pod: bool,
    /// Then create a sandbox.
    pub create_sandbox: bool,
    /// The sandbox to use; `None` if one is to be created or the pod only gets killed.
    pub sandbox_id: Option<SandboxId>,
    /// Attempt of the sandbox to be created.
    pub attempt: u32,
    /// Containers to stop; empty if the whole pod is killed.
    pub containers_to_kill: Vec<ContainerToKill>,
    /// Containers to stop at once and to remove, so that the pod begins anew in its sandbox; the
    /// ones whose exits ask for it come last. Nothing else is done in the same pass.
    pub containers_to_reset: Vec<ContainerToReset>,
    /// Ephemeral containers to start, in spec order.
    pub ephemeral_to_start: Vec<ContainerToStart>,
    /// Init containers to start, in order (one, or restartable ones before it).
    pub init_to_start: Vec<ContainerToStart>,
    /// App containers to start, in spec order.
    pub containers_to_start: Vec<ContainerToStart>,
    /// Containers whose restart is delayed.
    pub backing_off: Vec<DelayedRestart>,
}

/// A container to stop and why.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToKill {
    /// Which instance.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// The text of the `Killing` event.
    pub message: String,
    /// Grace period override, for a probe that has its own.
    pub grace: Option<Duration>,
    /// True if it was created but never started: there is nothing to stop, the instance is to
    /// be removed so that its successor can take its name and attempt.
    pub remove: bool,
}

/// Which list of the pod spec a container is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerKind {
    /// `spec.initContainers`.
    Init,
    /// `spec.containers`.
    App,
    /// `spec.ephemeralContainers`.
    Ephemeral,
}

impl ContainerKind {
    /// Label of upstream's metrics of container starts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init_container",
            Self::App => "container",
            Self::Ephemeral => "ephemeral_container",
        }
    }
}

/// A container to create and start.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToStart {
    /// Name in the pod spec.
    pub name: String,
    /// Index in its list.
    pub index: usize,
    /// Its list.
    pub kind: ContainerKind,
    /// Restart count of the new instance, equal to its attempt; `None` if the runtime knows
    /// no earlier instance, so that the executor recovers it from the log directory.
    pub restart_count: Option<u32>,
    /// True if this start follows a failure and must be counted in the back-off table.
    pub restart: bool,
}

/// A container whose restart is delayed.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayedRestart {
    /// Name in the pod spec.
    pub name: String,
    /// When the delay ends.
    pub until: Timestamp,
    /// The delay in force.
    pub delay: Duration,
    /// `CrashLoopBackOff`.
    pub reason: Reason,
}

impl PodActions {
    /// True if nothing is to be done now.
    pub fn is_empty(&self) -> bool {
        !self.kill_pod
            && !self.create_sandbox
            && self.containers_to_kill.is_empty()
            && self.containers_to_reset.is_empty()
            && !self.starts_something()
    }

    /// True if a sandbox or a container is to be created.
    pub fn starts_something(&self) -> bool {
        self.create_sandbox
            || !self.ephemeral_to_start.is_empty()
            || !self.init_to_start.is_empty()
            || !self.containers_to_start.is_empty()
    }
}

impl fmt::Display for PodActions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.kill_pod {
            words.push("kill-pod".to_owned());
        }
        if self.create_sandbox {
            words.push(format!("sandbox#{}", self.attempt));
        }
        for kill in &self.containers_to_kill {
            let verb = if kill.remove { "remove" } else { "kill" };
            words.push(format!("{verb}({})", kill.name));
        }
        for reset in &self.containers_to_reset {
            words.push(format!("reset({})", reset.name));
        }
        for (word, list) in [
            ("ephemeral", &self.ephemeral_to_start),
            ("init", &self.init_to_start),
            ("start", &self.containers_to_start),
        ] {
            for c in list {
                let count = c.restart_count.map_or("?".to_owned(), |n| n.to_string());
                words.push(format!("{word}({}#{count})", c.name));
            }
        }
        for b in &self.backing_off {
            words.push(format!("wait({} {}s)", b.name, b.delay.as_secs()));
        }
        if words.is_empty() {
            words.push("nothing".to_owned());
        }
        f.write_str(&words.join(" "))
    }
}

/// Compares the pod as asked with the pod as found.
pub fn compute_pod_actions(input: ActionsInput<'_>) -> PodActions {
    let mut decision = Decision {
        input,
        actions: PodActions::default(),
        reset_waits: false,
    };
    if decision.resets() {
        return decision.actions;
    }
    match sandbox_decision(input.pod, input.observed) {
        SandboxDecision::Create { attempt } => decision.with_new_sandbox(attempt),
        SandboxDecision::Keep(id, attempt) => decision.in_sandbox(id, attempt),
    }
    decision.actions
}

/// How far the init containers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initialization {
    /// The app containers may run.
    Done,
    /// Something is running, starting or waiting.
    Underway,
    /// One failed for good: so does the pod.
    Failed,
}

/// The actions while they are being put together.
struct Decision<'a> {
    input: ActionsInput<'a>,
    actions: PodActions,
    /// All containers are to be restarted, but the one that asks for it is in its back-off.
    reset_waits: bool,
}

/// Why a container that runs must not go on as it is.
enum KillCause {
    Changed,
    Failed(ProbeKind),
}

impl<'a> Decision<'a> {
    /// The sandbox is missing or useless: kill what is left and begin again, unless everything
    /// is done or may not run twice.
    fn with_new_sandbox(&mut self, attempt: u32) {
        let ActionsInput { pod, observed, .. } = self.input;
        let has_run = observed
            .containers
            .iter()
            .any(|c| c.state != ContainerState::Created);
        if never_restarts(pod) && has_run {
            return self.only_kill();
        }
        let to_start: Vec<usize> = pod
            .containers()
            .iter()
            .enumerate()
            .filter(|(_, c)| self.starts_in_new_sandbox(c))
            .map(|(i, _)| i)
            .collect();
        if to_start.is_empty() {
            return self.only_kill();
        }
        self.actions.kill_pod = !observed.sandboxes.is_empty() || is_alive(observed);
        self.actions.create_sandbox = true;
        self.actions.attempt = attempt;
        if !pod.init_containers().is_empty() {
            return self.start_init(0);
        }
        for index in to_start {
            self.start_app(index);
        }
    }

    /// A running container is about to be killed with its sandbox, which is a failure of it.
    fn starts_in_new_sandbox(&self, container: &Container) -> bool {
        match self.input.observed.latest(&container.name) {
            Some(latest) if latest.state == ContainerState::Running => {
                restarts_after_exit(self.input.pod, container, KILLED)
            }
            latest => should_be_started(self.input.pod, container, latest),
        }
    }

    /// The sandbox serves: look at the containers.
    fn in_sandbox(&mut self, sandbox: SandboxId, attempt: u32) {
        self.actions.attempt = attempt;
        self.kill_strays(&sandbox);
        let goes_on = match self.init_containers(&sandbox) {
            Initialization::Done => self.app_containers(&sandbox),
            Initialization::Underway => true,
            Initialization::Failed => false,
        };
        if goes_on || self.reset_waits {
            self.start_ephemeral();
            self.actions.sandbox_id = Some(sandbox);
        } else {
            // Neither sidecars nor debuggers keep a pod alive whose work is done.
            self.only_kill();
        }
    }

    /// Live instances that are not the current one of a container of this pod: of a container
    /// that is no longer in the spec, in an old sandbox, or with a newer instance.
    fn kill_strays(&mut self, sandbox: &SandboxId) {
        let ActionsInput { pod, observed, .. } = self.input;
        for instance in observed.running() {
            let name = &instance.name;
            let message = if !is_in_spec(pod, name) {
                format!("Container {name} is no longer part of the pod")
            } else if instance.sandbox_id != *sandbox {
                format!("Container {name} runs in an outdated sandbox")
            } else if observed.latest(name).is_some_and(|l| l.id != instance.id) {
                format!("Container {name} has a newer instance")
            } else {
                continue;
            };
            self.kill(instance, message);
        }
    }

    /// Walks from the last init container to the first: completed ones may have been removed
    /// from the runtime, so the last one that is known tells how far the pod is.
    fn init_containers(&mut self, sandbox: &SandboxId) -> Initialization {
        let ActionsInput { pod, observed, .. } = self.input;
        let specs = pod.init_containers();
        if specs.is_empty() {
            return Initialization::Done;
        }
        let mut done = pod.containers().iter().any(|c| {
            observed
                .instances(&c.name)
                .any(|i| i.sandbox_id == *sandbox)
        });
        let mut later_known = done;
        let mut to_start = Vec::new();
        for (index, spec) in specs.iter().enumerate().rev() {
            let instance = observed
                .instances(&spec.name)
                .find(|i| i.sandbox_id == *sandbox);
            let Some(instance) = instance else {
                if later_known && is_sidecar(spec) {
                    to_start.push(index);
                }
                continue;
            };
            if later_known && !is_sidecar(spec) {
                if instance.state.may_run() {
                    let name = &spec.name;
                    self.kill(instance, format!("Init container {name} is past its turn"));
                }
                continue;
            }
            let completed = match instance.state {
                ContainerState::Created => {
                    to_start.push(index);
                    false
                }
                ContainerState::Running if !is_sidecar(spec) => false,
                ContainerState::Running => match self.kill_cause(spec, instance) {
                    Some(cause) => {
                        let name = &spec.name;
                        let (message, grace) = match cause {
                            KillCause::Changed => (
                                format!(
                                    "Init container {name} definition changed, will be restarted"
                                ),
                                None,
                            ),
                            KillCause::Failed(kind) => (
                                format!("Init container {name} failed {} probe", lower(kind)),
                                probe_grace(spec, kind),
                            ),
                        };
                        self.kill_within(instance, message, grace);
                        to_start.push(index);
                        false
                    }
                    None => self.is_started(spec, instance),
                },
                ContainerState::Exited if is_sidecar(spec) => {
                    to_start.push(index);
                    false
                }
                ContainerState::Exited if instance.exit_code == 0 => true,
                ContainerState::Exited => {
                    if !restarts_after_exit(pod, spec, instance.exit_code) {
                        return Initialization::Failed;
                    }
                    to_start.push(index);
                    false
                }
                ContainerState::Unknown => {
                    if !is_sidecar(spec) && !restarts_after_exit(pod, spec, KILLED) {
                        return Initialization::Failed;
                    }
                    self.kill(
                        instance,
                        "Init container is in \"unknown\" state, try killing it before restart"
                            .to_owned(),
                    );
                    to_start.push(index);
                    false
                }
            };
            if completed && !later_known {
                if index + 1 == specs.len() {
                    done = true;
                } else {
                    to_start.push(index + 1);
                }
            }
            later_known = true;
        }
        if !later_known {
            to_start.push(0);
        }
        for index in to_start.into_iter().rev() {
            self.start_init(index);
        }
        if done {
            Initialization::Done
        } else {
            Initialization::Underway
        }
    }

    /// Returns false if every app container is done and none is to be started.
    fn app_containers(&mut self, sandbox: &SandboxId) -> bool {
        let ActionsInput { pod, observed, .. } = self.input;
        let mut wanted = false;
        for (index, spec) in pod.containers().iter().enumerate() {
            let name = &spec.name;
            let start = match observed.latest(name) {
                Some(latest) if latest.state == ContainerState::Running => {
                    if latest.sandbox_id != *sandbox {
                        restarts_after_exit(pod, spec, KILLED)
                    } else {
                        // what is killed and not restarted ends the pod when it has ended
                        wanted = true;
                        self.running_app(spec, latest)
                    }
                }
                latest => {
                    if let Some(latest) = latest.filter(|l| l.state == ContainerState::Unknown) {
                        // It may well be running: two instances must never run side by side.
                        self.kill(
                            latest,
                            "Container is in \"unknown\" state, try killing it before restart"
                                .to_owned(),
                        );
                    }
                    should_be_started(pod, spec, latest)
                }
            };
            if start {
                wanted = true;
                self.start_app(index);
            }
        }
        wanted
    }

    /// Looks at an app container that runs; true if it is to be killed and started again.
    fn running_app(&mut self, spec: &Container, instance: &ObservedContainer) -> bool {
        let name = &spec.name;
        let (why, grace, restart) = match self.kill_cause(spec, instance) {
            None => return false,
            Some(KillCause::Changed) => (format!("Container {name} definition changed"), None, true),
            Some(KillCause::Failed(kind)) => (
                format!("Container {name} failed {} probe", lower(kind)),
                probe_grace(spec, kind),
                policy_of(self.input.pod, spec) != RestartPolicy::Never,
            ),
        };
        let end = if restart { ", will be restarted" } else { "" };
        self.kill_within(instance, format!("{why}{end}"), grace);
        restart
    }

    /// What is wrong with an instance that runs.
    fn kill_cause(&self, spec: &Container, instance: &ObservedContainer) -> Option<KillCause> {
        if is_changed(spec, instance) {
            return Some(KillCause::Changed);
        }
        let probe_results = self.input.probe_results;
        [
            (ProbeKind::Liveness, &spec.liveness_probe),
            (ProbeKind::Startup, &spec.startup_probe),
        ]
        .into_iter()
        .filter(|(_, probe)| probe.is_some())
        .map(|(kind, _)| kind)
        .find(|kind| probe_results.result(*kind, &spec.name, &instance.id) == Some(false))
        .map(KillCause::Failed)
    }

    /// True if what comes after a sidecar may start: it runs, and its startup probe has passed.
    fn is_started(&self, spec: &Container, instance: &ObservedContainer) -> bool {
        let probe_results = self.input.probe_results;
        spec.startup_probe.is_none()
            || probe_results.result(ProbeKind::Startup, &spec.name, &instance.id) == Some(true)
    }

    /// Nothing is to run (any more): stop what does.
    fn only_kill(&mut self) {
        self.actions = PodActions {
            kill_pod: is_alive(self.input.observed),
            attempt: self.actions.attempt,
            ..PodActions::default()
        };
    }

    fn start_init(&mut self, index: usize) {
        let pod = self.input.pod;
        let spec = &pod.init_containers()[index];
        if let Some(start) = self.start(spec, index, ContainerKind::Init) {
            self.actions.init_to_start.push(start);
        }
    }

    fn start_app(&mut self, index: usize) {
        let pod = self.input.pod;
        if let Some(start) = self.start(&pod.containers()[index], index, ContainerKind::App) {
            self.actions.containers_to_start.push(start);
        }
    }

    /// A start, unless the container's restart is still delayed.
    fn start(
        &mut self,
        spec: &Container,
        index: usize,
        kind: ContainerKind,
    ) -> Option<ContainerToStart> {
        let observed = self.input.observed;
        let last_dead = observed
            .instances(&spec.name)
            .find(|i| i.state == ContainerState::Exited);
        if last_dead.is_some_and(|dead| self.is_backing_off(spec, dead)) {
            return None;
        }
        // In a new sandbox a leftover is not worth a call of its own: its successor takes the
        // next attempt, and the leftover is collected with the old sandbox.
        let replace = !self.actions.create_sandbox;
        if replace {
            for instance in observed.instances(&spec.name) {
                if instance.state == ContainerState::Created {
                    let message = format!("Container {} was never started", spec.name);
                    self.kill(instance, message);
                }
            }
        }
        Some(ContainerToStart {
            name: spec.name.clone(),
            index,
            kind,
            restart_count: next_restart_count(observed, &spec.name, replace),
            restart: last_dead.is_some(),
        })
    }

    /// True, and noted, if the delay after the end of this instance is not over.
    fn is_backing_off(&mut self, spec: &Container, dead: &ObservedContainer) -> bool {
        let ActionsInput {
            pod,
            backoff,
            policy,
            now,
            ..
        } = self.input;
        let key = restart_key(pod, spec);
        let died = dead.finished_at.unwrap_or(dead.created_at);
        let Some(until) = backoff.until(&key, died, policy, now) else {
            return false;
        };
        if !self.actions.backing_off.iter().any(|b| b.name == spec.name) {
            self.actions.backing_off.push(DelayedRestart {
                name: spec.name.clone(),
                until,
                delay: backoff.delay(&key).unwrap_or_default(),
                reason: Reason::CrashLoopBackOff,
            });
        }
        true
    }

    fn kill(&mut self, instance: &ObservedContainer, message: String) {
        self.kill_within(instance, message, None);
    }

    fn kill_within(
        &mut self,
        instance: &ObservedContainer,
        message: String,
        grace: Option<Duration>,
    ) {
        let kills = &mut self.actions.containers_to_kill;
        if kills.iter().any(|k| k.id == instance.id) {
            return;
        }
        kills.push(ContainerToKill {
            id: instance.id.clone(),
            name: instance.name.clone(),
            message,
            grace,
            remove: instance.state == ContainerState::Created,
        });
    }
}

/// A probe's name within a sentence.
fn lower(kind: ProbeKind) -> &'static str {
    match kind {
        ProbeKind::Liveness => "liveness",
        ProbeKind::Readiness => "readiness",
        ProbeKind::Startup => "startup",
    }
}

/// Exit code of a process that was killed.
const KILLED: i32 = 137;

/// One more than the highest known, or the same again if that instance never ran and is
/// replaced.
fn next_restart_count(observed: &ObservedPod, name: &str, replace: bool) -> Option<u32> {
    let highest = observed
        .instances(name)
        .max_by_key(|i| (i.restart_count, i.state != ContainerState::Created))?;
    Some(match highest.state {
        ContainerState::Created if replace => highest.restart_count,
        _ => highest.restart_count + 1,
    })
}

/// True if the runtime has something of the pod to stop. A container that was never started
/// needs no stopping, and a sandbox that is not ready is stopped already.
fn is_alive(observed: &ObservedPod) -> bool {
    observed.sandboxes.iter().any(|s| s.ready) || observed.running().next().is_some()
}

/// True if name or image differ from what the instance was created with. An instance without a
/// hash is left alone: in doubt nothing is restarted.
fn is_changed(spec: &Container, instance: &ObservedContainer) -> bool {
    instance.hash.is_some_and(|h| h != container_hash(spec))
}

fn is_in_spec(pod: &Pod, name: &str) -> bool {
    pod.containers().iter().any(|c| c.name == name)
        || pod.init_containers().iter().any(|c| c.name == name)
        || ephemeral_containers(pod).iter().any(|c| c.name == name)
}
