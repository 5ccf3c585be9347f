//! PLEG relists: their differences as events, and the observed state of a pod.
//!
//! [`diff`] is upstream `generateEvents`, with at most two events per container or sandbox.
//! [`observe`] orders the details of a pod as the decisions require, [`forget_cut_off_starts`] removes
//! what a kill of the agent left in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_types::cri::{ContainerDetail, ContainerSummary, SandboxDetail, SandboxSummary};
use windlass_types::{
    ContainerState, ObservedContainer, ObservedPod, ObservedSandbox, PodLifecycleEvent,
    PodLifecycleEventKind, PodUid, Timestamp,
};
use windlass_units::duration::go_duration;

/// Maximum age of the last relist of a healthy PLEG (upstream `relistThreshold`).
pub const RELIST_THRESHOLD: Duration = Duration::from_secs(180);

/// Age of the last relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelistAge {
    /// No relist since the start, for this long.
    Never(Duration),
    /// Time since the last relist.
    Last(Duration),
}

impl RelistAge {
    /// Returns upstream's error text of an unhealthy PLEG.
    pub fn error(self) -> Option<String> {
        match self {
            Self::Never(age) if age > RELIST_THRESHOLD => {
                Some("pleg has yet to be successful".to_owned())
            }
            // whole minutes, so that the text rarely changes
            Self::Last(age) if age > RELIST_THRESHOLD => Some(format!(
                "pleg was last seen active {} ago; threshold is 3m0s",
                go_duration(Duration::from_secs(age.as_secs() / 60 * 60))
            )),
            Self::Never(_) | Self::Last(_) => None,
        }
    }
}

/// State of a container or sandbox in a relist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlegState {
    /// Container running or sandbox ready.
    Running,
    /// Container exited or sandbox not ready.
    Exited,
    /// Container created or in a state the runtime does not know.
    Unknown,
    /// Not listed.
    Gone,
}

/// State of each container and sandbox of a pod, by ID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PodSummary {
    namespace: String,
    name: String,
    states: BTreeMap<String, PlegState>,
}

/// All pods of a relist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimePods {
    pods: BTreeMap<PodUid, PodSummary>,
    owners: BTreeMap<String, PodUid>,
}

impl RuntimePods {
    /// Groups listed sandboxes and containers by pod. Omits those without a pod UID.
    pub fn new(sandboxes: Vec<SandboxSummary>, containers: Vec<ContainerSummary>) -> Self {
        let mut this = Self::default();
        for s in sandboxes {
            let state = if s.ready {
                PlegState::Running
            } else {
                PlegState::Exited
            };
            this.insert(&s.uid, s.id.as_str(), state);
            if let Some(pod) = this.pods.get_mut(&s.uid) {
                pod.namespace = s.namespace;
                pod.name = s.name;
            }
        }
        for c in containers {
            let state = match c.state {
                ContainerState::Running => PlegState::Running,
                ContainerState::Exited => PlegState::Exited,
                ContainerState::Created | ContainerState::Unknown => PlegState::Unknown,
            };
            this.insert(&c.uid, c.id.as_str(), state);
        }
        this
    }

    fn insert(&mut self, uid: &PodUid, id: &str, state: PlegState) {
        if uid.as_str().is_empty() {
            return;
        }
        self.pods
            .entry(uid.clone())
            .or_default()
            .states
            .insert(id.to_owned(), state);
        self.owners.insert(id.to_owned(), uid.clone());
    }

    /// Returns the UIDs of all pods.
    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.pods.keys()
    }

    /// True if a container or sandbox of the pod was listed.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Returns the pod of a container or sandbox.
    pub fn owner(&self, id: &str) -> Option<PodUid> {
        self.owners.get(id).cloned()
    }

    /// Returns the IDs of the pod's running containers and ready sandboxes.
    pub fn alive_ids(&self, uid: &PodUid) -> BTreeSet<String> {
        let states = self
            .pods
            .get(uid)
            .map(|pod| pod.states.iter())
            .into_iter()
            .flatten();
        states
            .filter(|(_, s)| **s == PlegState::Running)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Returns the pods that differ in `newer`.
    pub fn changed_pods(&self, newer: &Self) -> Vec<PodUid> {
        let all: BTreeSet<_> = self.pods.keys().chain(newer.pods.keys()).collect();
        all.into_iter()
            .filter(|uid| self.pods.get(uid) != newer.pods.get(uid))
            .cloned()
            .collect()
    }

    /// Returns the part of one pod.
    pub fn only(&self, uid: &PodUid) -> Self {
        let mut this = Self::default();
        this.replace(uid, self.clone_pod(uid));
        this
    }

    fn clone_pod(&self, uid: &PodUid) -> Self {
        let mut this = Self::default();
        if let Some(pod) = self.pods.get(uid) {
            for id in pod.states.keys() {
                this.owners.insert(id.clone(), uid.clone());
            }
            this.pods.insert(uid.clone(), pod.clone());
        }
        this
    }

    /// Replaces one pod by its part of `newer`.
    pub fn replace(&mut self, uid: &PodUid, newer: Self) {
        if let Some(old) = self.pods.remove(uid) {
            for id in old.states.keys() {
                self.owners.remove(id);
            }
        }
        if let Some(pod) = newer
            .pods
            .into_iter()
            .find_map(|(u, pod)| (u == *uid).then_some(pod))
        {
            for id in pod.states.keys() {
                self.owners.insert(id.clone(), uid.clone());
            }
            self.pods.insert(uid.clone(), pod);
        }
    }
}

/// Returns the events between two relists, ordered by UID and ID.
pub fn diff(old: &RuntimePods, new: &RuntimePods) -> Vec<PodLifecycleEvent> {
    let mut events = Vec::new();
    for uid in old.changed_pods(new) {
        let before = old.pods.get(&uid).map(|pod| &pod.states);
        let after = new.pods.get(&uid).map(|pod| &pod.states);
        let ids: BTreeSet<&String> = before
            .into_iter()
            .chain(after)
            .flat_map(|states| states.keys())
            .collect();
        for id in ids {
            let state = |states: Option<&BTreeMap<String, PlegState>>| {
                states
                    .and_then(|s| s.get(id))
                    .copied()
                    .unwrap_or(PlegState::Gone)
            };
            for kind in kinds(state(before), state(after)) {
                events.push(PodLifecycleEvent {
                    uid: uid.clone(),
                    kind: *kind,
                    id: id.clone(),
                });
            }
        }
    }
    events
}

fn kinds(old: PlegState, new: PlegState) -> &'static [PodLifecycleEventKind] {
    use PodLifecycleEventKind::{
        ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted,
    };
    match (old, new) {
        (a, b) if a == b => &[],
        (_, PlegState::Running) => &[ContainerStarted],
        (_, PlegState::Exited) => &[ContainerDied],
        (_, PlegState::Unknown) => &[ContainerChanged],
        (PlegState::Exited, PlegState::Gone) => &[ContainerRemoved],
        (_, PlegState::Gone) => &[ContainerDied, ContainerRemoved],
    }
}

/// Exit code and reason with which containerd ends a container whose start failed.
const START_FAILED: (i32, &str) = (128, "StartError");
/// Go's text for a call whose caller has gone away.
const CANCELLED: &str = "context canceled";
/// Texts of a call cancelled while containerd executes the shim's `start` command, which is killed.
const KILLED_SHIM_START: [&str; 2] = ["failed to start shim", "signal: killed"];

/// True for an instance that never ran because its start was cut off.
///
/// Only the text distinguishes it from a start that failed, such as that of a missing command:
/// containerd gives both the same code, reason and times. The agent has no state that does: a run
/// that was killed leaves no time of its end, and a file for each start in progress would cost each
/// start a write. A runtime with another text costs what a failed start costs: a restart,
/// a back-off, and with `restartPolicy: Never` the end of the container. CRI-O needs no rule: it
/// ignores that the caller has gone away and completes the start.
fn is_cut_off(instance: &ObservedContainer) -> bool {
    instance.state == ContainerState::Exited
        && instance.started_at.is_none()
        && (instance.exit_code, instance.reason.as_str()) == START_FAILED
        && (instance.message.contains(CANCELLED)
            || KILLED_SHIM_START
                .iter()
                .all(|text| instance.message.contains(text)))
}

/// Shows the instances that never ran, because a previous agent run was killed while it started
/// them, as created: they are replaced without a restart and without back-off. The runtime shows
/// them as exited; the time of that is kept. An instance of this agent run counts as failed: a
/// runtime that cuts off every start is not flooded.
pub fn forget_cut_off_starts(pod: &mut ObservedPod, agent_started: Timestamp) {
    let containers = pod.containers.iter_mut();
    for instance in containers.filter(|it| it.created_at < agent_started && is_cut_off(it)) {
        instance.state = ContainerState::Created;
        instance.exit_code = 0;
        instance.reason.clear();
        instance.message.clear();
    }
}

/// Returns the observed state of a pod: sandboxes and containers newest first, addresses from the
/// newest ready sandbox.
///
/// The newest has the highest attempt or restart count: creation times go back when the wall clock
/// is set back, for example at a boot, and the new sandbox would be replaced again and again.
pub fn observe(
    uid: &PodUid,
    mut sandboxes: Vec<SandboxDetail>,
    containers: Vec<ContainerDetail>,
    observed_at: Timestamp,
) -> ObservedPod {
    sandboxes.sort_by(|a, b| {
        let key = |s: &SandboxDetail| (s.summary.attempt, s.summary.created_at);
        key(b)
            .cmp(&key(a))
            .then_with(|| a.summary.id.cmp(&b.summary.id))
    });
    let mut containers: Vec<_> = containers.into_iter().map(|c| c.observed).collect();
    containers.sort_by(|a, b| {
        (b.restart_count, b.created_at)
            .cmp(&(a.restart_count, a.created_at))
            .then_with(|| a.id.cmp(&b.id))
    });
    let first = sandboxes.first().map(|s| &s.summary);
    ObservedPod {
        uid: uid.clone(),
        name: first.map(|s| s.name.clone()).unwrap_or_default(),
        namespace: first.map(|s| s.namespace.clone()).unwrap_or_default(),
        ips: sandboxes
            .iter()
            .find(|s| s.summary.ready)
            .map(|s| s.ips.clone())
            .unwrap_or_default(),
        sandboxes: sandboxes
            .into_iter()
            .map(|s| ObservedSandbox {
                id: s.summary.id,
                attempt: s.summary.attempt,
                ready: s.summary.ready,
                created_at: s.summary.created_at,
                host_network: s.host_network,
                ips: s.ips,
            })
            .collect(),
        containers,
        observed_at: Some(observed_at),
    }
}

#[cfg(test)]
mod tests;
