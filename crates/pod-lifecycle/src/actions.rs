//! The actions that make the runtime match a pod (upstream `computePodActions`).
//!
//! Compares the desired with the observed pod; the runtime crate executes the actions. Admission,
//! deletion and deadline are decided before. Containers after a sidecar wait until it runs and its
//! startup probe succeeds. An ephemeral container starts once.
//!
//! Three rules differ from upstream. Init containers count only if they ran in the current sandbox,
//! so that a new sandbox reruns them. A container that was created but never started is removed
//! before its next instance, which keeps its attempt and restart count. A container that fails a
//! probe and is not restarted is killed alone, with the probe grace period, before the pod
//! terminates.

mod ephemeral;
mod kill;
mod reset;
mod resize;
mod restart;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::Container;
use windlass_types::pod::RestartPolicy;
use windlass_types::{
    ContainerState, ObservedContainer, ObservedPod, Pod, PodExt, PodProbeResults, ProbeKind,
    Reason, SandboxId, Timestamp,
};

use windlass_types::mutation::{Mutation, mutated};
use windlass_types::pod::is_sidecar;
use windlass_units::hash::container_hash;

use crate::backoff::{BackoffPolicy, BackoffTable, restart_key};
use crate::probe::probe_grace_period;

pub use ephemeral::{as_container, ephemeral_containers, find_container};
pub use kill::{ContainerToKill, KillCause};
pub use reset::{ContainerToReset, restarts_all_containers};
pub use restart::{SandboxDecision, restarts_after_exit, sandbox_decision, should_be_started};
pub(crate) use restart::{never_restarts, policy_of};

/// Input of [`compute_pod_actions`].
#[derive(Clone, Copy, Debug)]
pub struct ActionsInput<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// The observed pod.
    pub observed: &'a ObservedPod,
    /// Current back-offs.
    pub backoff: &'a BackoffTable,
    /// Probe results.
    pub probe_results: &'a PodProbeResults,
    /// Restart back-off policy.
    pub policy: BackoffPolicy,
    /// The current time.
    pub now: Timestamp,
}

/// Actions in their order: kill, sandbox, ephemeral containers, init containers, app containers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodActions {
    /// Kill all containers and the sandbox.
    pub kill_pod: bool,
    /// Create a sandbox.
    pub create_sandbox: bool,
    /// The sandbox to use; `None` if one is created or the pod is only killed.
    pub sandbox_id: Option<SandboxId>,
    /// Attempt of the sandbox to create.
    pub attempt: u32,
    /// Containers to stop or remove; empty if the whole pod is killed.
    pub containers_to_kill: Vec<ContainerToKill>,
    /// Containers to kill and remove for a restart of all containers; those whose exits cause it
    /// are last. Excludes all other actions.
    pub containers_to_reset: Vec<ContainerToReset>,
    /// Ephemeral containers to start, in spec order.
    pub ephemeral_to_start: Vec<ContainerToStart>,
    /// Init containers to start, in order: one, and sidecars before it.
    pub init_to_start: Vec<ContainerToStart>,
    /// App containers to start, in spec order.
    pub containers_to_start: Vec<ContainerToStart>,
    /// Restarts that are in back-off.
    pub backing_off: Vec<DelayedRestart>,
}

windlass_types::text_enum! {
    /// List of the pod spec that has a container. Its text is the label in upstream's metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ContainerKind {
        /// `spec.initContainers`.
        Init = "init_container",
        /// `spec.containers`.
        App = "container",
        /// `spec.ephemeralContainers`.
        Ephemeral = "ephemeral_container",
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
    /// Restart count and attempt of the new instance; `None` if the executor must recover it from
    /// the log directory.
    pub restart_count: Option<u32>,
    /// True for a restart, which counts in the back-off table.
    pub restart: bool,
}

/// A container restart in back-off.
#[derive(Clone, Debug, PartialEq)]
pub struct DelayedRestart {
    /// Name in the pod spec.
    pub name: String,
    /// End of the delay.
    pub until: Timestamp,
    /// Current delay.
    pub delay: Duration,
    /// `CrashLoopBackOff`.
    pub reason: Reason,
}

impl PodActions {
    /// True without an action.
    pub fn is_empty(&self) -> bool {
        !self.kill_pod
            && !self.create_sandbox
            && self.containers_to_kill.is_empty()
            && self.containers_to_reset.is_empty()
            && !self.starts_something()
    }

    /// The containers to start.
    pub fn starts_mut(&mut self) -> impl Iterator<Item = &mut ContainerToStart> {
        self.ephemeral_to_start
            .iter_mut()
            .chain(&mut self.init_to_start)
            .chain(&mut self.containers_to_start)
    }

    /// Starts only these of the containers to start.
    pub fn retain_starts(&mut self, wanted: impl Fn(&ContainerToStart) -> bool) {
        self.ephemeral_to_start.retain(&wanted);
        self.init_to_start.retain(&wanted);
        self.containers_to_start.retain(&wanted);
    }

    /// True if a sandbox or container is created.
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

/// Compares the desired with the observed pod.
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

/// Progress of the init containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initialization {
    /// App containers may run.
    Done,
    /// An init container runs, starts or waits.
    InProgress,
    /// One failed without a restart.
    Failed,
}

struct Decision<'a> {
    input: ActionsInput<'a>,
    actions: PodActions,
    /// A restart of all containers waits for a back-off.
    reset_waits: bool,
}

impl<'a> Decision<'a> {
    /// Replaces a missing or unusable sandbox, unless no container may run again.
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

    /// A running container is killed with its sandbox, which counts as a failure.
    fn starts_in_new_sandbox(&self, container: &Container) -> bool {
        match self.input.observed.latest(&container.name) {
            Some(latest) if latest.state == ContainerState::Running => {
                restarts_after_exit(self.input.pod, container, KILLED)
            }
            latest => should_be_started(self.input.pod, container, latest),
        }
    }

    /// Decides on the containers in the current sandbox.
    fn in_sandbox(&mut self, sandbox: SandboxId, attempt: u32) {
        self.actions.attempt = attempt;
        self.kill_outdated(&sandbox);
        let runs = match self.init_containers(&sandbox) {
            Initialization::Done => self.app_containers(&sandbox),
            Initialization::InProgress => true,
            Initialization::Failed => false,
        };
        if runs || self.reset_waits {
            self.start_ephemeral();
            self.actions.sandbox_id = Some(sandbox);
        } else {
            // sidecars and ephemeral containers do not keep a pod running
            self.only_kill();
        }
    }

    /// Kills running instances that are not in the spec, are in an old sandbox, or have a newer
    /// instance.
    fn kill_outdated(&mut self, sandbox: &SandboxId) {
        let ActionsInput { pod, observed, .. } = self.input;
        for instance in observed.running() {
            let name = &instance.name;
            let cause = if !is_in_spec(pod, name) {
                KillCause::NotInSpec
            } else if instance.sandbox_id != *sandbox {
                KillCause::OutdatedSandbox
            } else if observed.latest(name).is_some_and(|l| l.id != instance.id) {
                KillCause::NewerInstance
            } else {
                continue;
            };
            self.kill(instance, cause);
        }
    }

    /// Walks from the last init container to the first; the last known one determines the progress,
    /// because completed ones may have been removed.
    fn init_containers(&mut self, sandbox: &SandboxId) -> Initialization {
        let ActionsInput { pod, observed, .. } = self.input;
        let specs = pod.init_containers();
        if specs.is_empty() {
            return Initialization::Done;
        }
        let mut done = pod.containers().iter().any(|c| {
            observed
                .instances(&c.name)
                .any(|i| i.sandbox_id == *sandbox || mutated(Mutation::AppStartsBeforeInit))
        });
        let mut later_known = done && !mutated(Mutation::InitContainersRerun);
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
                    self.kill_init(instance, KillCause::Initialized);
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
                        let mut message = cause.message("Init container", &spec.name);
                        if cause == KillCause::SpecChanged {
                            message.push_str(RESTARTED);
                        }
                        let grace = cause
                            .probe()
                            .and_then(|kind| probe_grace_period(spec, kind));
                        self.kill_with(instance, cause, message, grace);
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
                    self.kill_init(instance, KillCause::UnknownState);
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
            Initialization::InProgress
        }
    }

    /// Returns false if all app containers have exited and none is started.
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
                        // a killed container without a restart terminates the pod after its exit
                        wanted = true;
                        self.running_app(spec, latest)
                    }
                }
                latest => {
                    if let Some(latest) = latest.filter(|l| l.state == ContainerState::Unknown) {
                        // it may run: two instances must not run concurrently
                        self.kill(latest, KillCause::UnknownState);
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

    /// Kills a running app container if necessary; true if it is restarted.
    fn running_app(&mut self, spec: &Container, instance: &ObservedContainer) -> bool {
        let Some(cause) = self.kill_cause(spec, instance) else {
            return false;
        };
        let probe = cause.probe();
        let restart = probe.is_none() || policy_of(self.input.pod, spec) != RestartPolicy::Never;
        let mut message = cause.message("Container", &spec.name);
        if restart && cause != KillCause::Resized {
            message.push_str(RESTARTED);
        }
        let grace = probe.and_then(|kind| probe_grace_period(spec, kind));
        self.kill_with(instance, cause, message, grace);
        restart
    }

    fn kill_cause(&self, spec: &Container, instance: &ObservedContainer) -> Option<KillCause> {
        // the checkpoint may be older than the instance: an edit that could not be written to it
        let is_confirmed = !self.input.pod.is_restored();
        if is_confirmed && is_changed(spec, instance) {
            return Some(KillCause::SpecChanged);
        }
        let probe_results = self.input.probe_results;
        let failed_probe = [
            (ProbeKind::Liveness, &spec.liveness_probe),
            (ProbeKind::Startup, &spec.startup_probe),
        ]
        .into_iter()
        .filter(|(_, probe)| probe.is_some())
        .map(|(kind, _)| kind)
        .find(|kind| probe_results.result(*kind, &spec.name, &instance.id) == Some(false))
        .map(KillCause::ProbeFailed);
        let resized = || self.restarts_to_resize(spec, instance);
        failed_probe.or_else(|| resized().then_some(KillCause::Resized))
    }

    /// True for a running sidecar whose startup probe has succeeded.
    fn is_started(&self, spec: &Container, instance: &ObservedContainer) -> bool {
        let probe_results = self.input.probe_results;
        spec.startup_probe.is_none()
            || probe_results.result(ProbeKind::Startup, &spec.name, &instance.id) == Some(true)
    }

    /// Replaces all actions by the kill of the pod, if something runs.
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

    /// Returns the start of a container, unless it is in back-off.
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
        // with a new sandbox a created instance is removed by garbage collection
        let replace = !self.actions.create_sandbox;
        if replace {
            for instance in observed.instances(&spec.name) {
                if instance.state == ContainerState::Created {
                    self.kill(instance, KillCause::NeverStarted);
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

    /// True, and recorded, if the instance is in back-off.
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
}

/// Suffix of the `Killing` event of a container that is restarted.
const RESTARTED: &str = ", will be restarted";

/// Exit code of a killed process.
const KILLED: i32 = 137;

/// Returns the highest known restart count plus one, or unchanged if that instance never ran and is
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

/// True if a container runs or a sandbox is ready.
fn is_alive(observed: &ObservedPod) -> bool {
    observed.sandboxes.iter().any(|s| s.ready) || observed.running().next().is_some()
}

/// True if the instance was created from another name or image; false without a hash.
fn is_changed(spec: &Container, instance: &ObservedContainer) -> bool {
    let upgraded = u32::from(mutated(Mutation::HashChangesWithVersion));
    instance
        .hash
        .is_some_and(|h| h != container_hash(spec) ^ upgraded)
}

fn is_in_spec(pod: &Pod, name: &str) -> bool {
    pod.containers().iter().any(|c| c.name == name)
        || pod.init_containers().iter().any(|c| c.name == name)
        || ephemeral_containers(pod).iter().any(|c| c.name == name)
}
