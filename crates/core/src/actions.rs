//! What must happen to make the runtime match a pod (upstream `computePodActions`).

use std::fmt;
use std::time::Duration;

use windlass_types::{ContainerId, ObservedPod, Pod, Reason, SandboxId, Timestamp};

use crate::backoff::{BackoffPolicy, BackoffTable};

/// Everything the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct ActionsInput<'a> {
    /// The pod as asked.
    pub pod: &'a Pod,
    /// The pod as found.
    pub observed: &'a ObservedPod,
    /// Delays in force.
    pub backoff: &'a BackoffTable,
    /// Policy of the restart delays.
    pub policy: BackoffPolicy,
    /// The present.
    pub now: Timestamp,
}

/// What to do, in this order: kill, sandbox, init container, containers.
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
    /// Containers to stop.
    pub containers_to_kill: Vec<ContainerToKill>,
    /// Init containers to start, in order (one, or restartable ones before it).
    pub init_to_start: Vec<ContainerToStart>,
    /// App containers to start, in spec order.
    pub containers_to_start: Vec<ContainerToStart>,
    /// Containers whose restart is delayed.
    pub backing_off: Vec<BackingOff>,
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
}

/// A container to create and start.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerToStart {
    /// Name in the pod spec.
    pub name: String,
    /// Index in `spec.initContainers` or `spec.containers`.
    pub index: usize,
    /// True for `spec.initContainers`.
    pub init: bool,
    /// Restart count of the new instance, equal to its attempt; `None` if the runtime knows
    /// no earlier instance, so that the executor recovers it from the log directory.
    pub restart_count: Option<u32>,
    /// True if this start follows a failure and must be counted in the back-off table.
    pub restart: bool,
}

/// A container whose restart is delayed.
#[derive(Clone, Debug, PartialEq)]
pub struct BackingOff {
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
            && self.init_to_start.is_empty()
            && self.containers_to_start.is_empty()
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
            words.push(format!("kill({})", kill.name));
        }
        for (word, list) in [
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
pub fn compute_pod_actions(_input: ActionsInput<'_>) -> PodActions {
    PodActions::default()
}
