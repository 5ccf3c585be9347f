//! The state of the world that the observations so far amount to.
//!
//! Facts of pods and containers that ended are kept for [`RETENTION`], so that a run of any length
//! has a bounded view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_testing::DiskFault;
use windlass_testing::fake_runtime::{RuntimeChange, RuntimeChangeKind};
use windlass_types::{Pod, PodExt, PodUid, names};

use crate::observation::{Event, Observation, is_ready, is_terminal, phase};
use crate::step::{ApiFault, PodKind, Step, parse_pod};

/// Time for which facts of removed pods and containers are kept: longer than any back-off.
const RETENTION: Duration = Duration::from_secs(3600);

/// Time after a fault of the disk by which the agent has repeated writes that failed.
const WRITE_LAG: Duration = Duration::from_secs(11);

/// Time after which a slow request has taken effect.
const REQUEST_LAG: Duration = Duration::from_secs(6);
/// Time for which faults that ended are kept.
const FAULT_RETENTION: Duration = Duration::from_secs(60);

/// Facts of one container instance.
#[derive(Clone, Debug)]
pub struct ContainerFacts {
    /// ID.
    pub id: String,
    /// Pod UID.
    pub uid: PodUid,
    /// `namespace/pod`.
    pub pod: String,
    /// Name in the pod.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// Paths of its devices.
    pub devices: Vec<String>,
    /// When it started.
    pub started: Duration,
    /// Time and grace period of the first request to stop it.
    pub stop_requested: Option<(Duration, Duration)>,
    /// When it ended, and the exit code.
    pub ended: Option<(Duration, i32)>,
}

/// Facts of one pod of the API server.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// The newest version.
    pub pod: Arc<Pod>,
    /// Kind, if the plan created it; mirror pods have none.
    pub kind: Option<PodKind>,
    /// True for a mirror pod.
    pub is_mirror: bool,
    /// When it was created.
    pub created: Duration,
    /// When a user last deleted or changed it, or a fault hit it.
    pub disturbed: Option<Duration>,
    /// When a user last changed it, a fault hit it, or the last fault of its server ends: not set by a
    /// deletion.
    pub harmed: Option<Duration>,
    /// When a user first deleted it.
    pub deleted: Option<Duration>,
    /// True if a user removed it without a grace period.
    pub is_forced: bool,
    /// When the phase became terminal.
    pub terminal: Option<Duration>,
    /// Since when the condition Ready has its value.
    pub ready_since: Duration,
    /// When the object was removed.
    pub removed: Option<Duration>,
    /// When it first ran a container.
    pub first_run: Option<Duration>,
}

impl PodFacts {
    /// Returns true if the condition Ready is true.
    pub fn is_ready(&self) -> bool {
        is_ready(&self.pod)
    }

    /// Returns true if a user requested the deletion, or the object no longer exists.
    pub fn is_deleted(&self) -> bool {
        self.removed.is_some() || self.pod.metadata.deletion_timestamp.is_some()
    }
}

/// Facts of one static pod, by its UID.
#[derive(Clone, Debug)]
pub struct StaticFacts {
    /// `namespace/pod`.
    pub pod: String,
    /// When its manifest was removed or replaced.
    pub removed: Option<Duration>,
}

/// The world after some observations.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Time of the newest observation.
    pub now: Duration,
    /// Since when the agent runs; `None` while it does not.
    pub agent_since: Option<Duration>,
    /// Number of agent runs.
    pub agent_runs: u32,
    /// When the agent was last killed.
    pub killed: Option<Duration>,
    /// Container instances by ID.
    pub containers: BTreeMap<String, ContainerFacts>,
    /// Pods of the API server by UID.
    pub pods: BTreeMap<PodUid, PodFacts>,
    /// Static pods by UID.
    pub statics: BTreeMap<PodUid, StaticFacts>,
    /// Faults in effect.
    pub faults: BTreeSet<String>,
    /// Faults that ended within [`FAULT_RETENTION`].
    ended: BTreeMap<String, Duration>,
    /// Time of the last fault, end of a fault, kill or start.
    pub disturbed: Duration,
    /// When the host last rebooted.
    pub rebooted: Option<Duration>,
    /// When the last kill or reboot lost writes of state files.
    pub lost_writes: Option<Duration>,
    /// The next reboot loses writes that succeeded.
    is_undurable: bool,
    /// When memory or the disk last ran short.
    pub pressure: Option<Duration>,
    /// When watches last fell silent: they remain so until they time out.
    pub silenced: Option<Duration>,
    /// When the wall clock of the node was last set.
    pub clock_set: Option<Duration>,
}

impl View {
    /// Returns true if the wall clock of the node was set at or after `time`.
    pub(crate) fn is_clock_set_since(&self, time: Duration) -> bool {
        self.clock_set.is_some_and(|at| at >= time)
    }

    /// Applies an observation.
    pub fn apply(&mut self, observation: &Observation) {
        self.now = observation.at;
        match &observation.event {
            Event::Step(step) => self.step(step),
            Event::FaultBegan(fault) => {
                self.faults.insert(fault.clone());
                self.disturbed = self.now;
            }
            Event::StaticAdded(uid, pod) => {
                self.static_removed(pod);
                let facts = StaticFacts {
                    pod: pod.clone(),
                    removed: None,
                };
                self.statics.insert(uid.clone(), facts);
            }
            Event::StaticRemoved(pod) => self.static_removed(pod),
            Event::FaultEnded(fault) => {
                self.faults.remove(fault);
                self.ended.insert(fault.clone(), self.now);
                self.disturbed = self.now;
            }
            Event::AgentStarted => {
                self.agent_since = Some(self.now);
                self.agent_runs += 1;
                self.disturbed = self.now;
            }
            Event::AgentKilled => {
                self.agent_since = None;
                self.killed = Some(self.now);
                self.lose_writes();
                self.disturbed = self.now;
            }
            Event::Runtime(change) => self.runtime(change),
            Event::Pod { pod, is_deleted } => self.pod(pod, *is_deleted),
            Event::Tick => self.prune(),
            Event::Request { .. }
            | Event::Probe { .. }
            | Event::Volumes(_)
            | Event::Node { .. }
            | Event::Lease => {}
        }
    }

    /// Returns true if a fault whose text begins so is in effect, or ended not longer than `within` ago.
    pub(crate) fn has_fault(&self, text: &str, within: Duration) -> bool {
        let mut faults = self.faults.iter();
        let mut ended = self.ended.iter();
        let is_recent = |end: &Duration| self.now.saturating_sub(*end) <= within;
        faults.any(|fault| fault.starts_with(text))
            || ended.any(|(fault, end)| fault.starts_with(text) && is_recent(end))
    }

    /// Returns true if a request of a killed agent may take effect now.
    pub(crate) fn may_see_late_request(&self) -> bool {
        let is_recent = |at: Duration| self.now.saturating_sub(at) <= REQUEST_LAG;
        self.killed.is_some_and(is_recent) && self.has_fault("api slow", REQUEST_LAG)
    }

    /// What the agent could not write, and had no time to write since, is lost.
    fn lose_writes(&mut self) {
        if self.has_fault("disk ", WRITE_LAG) {
            self.lost_writes = Some(self.now);
        }
    }

    /// Returns since when the agent has been running without any fault, if it is.
    pub fn calm_since(&self) -> Option<Duration> {
        let is_calm = self.agent_since.is_some() && self.faults.is_empty();
        is_calm.then_some(self.disturbed)
    }

    /// Returns for how long the agent has been running without any fault.
    pub fn calm_for(&self) -> Duration {
        let since = self.calm_since();
        since.map_or(Duration::ZERO, |since| self.now.saturating_sub(since))
    }

    /// Returns the running containers of a pod.
    pub fn running(&self, uid: &PodUid) -> impl Iterator<Item = &ContainerFacts> {
        let containers = self.containers.values();
        containers.filter(move |c| c.uid == *uid && c.ended.is_none())
    }

    /// Returns the pod with this name that exists in the API server.
    pub fn pod_named(&self, name: &str) -> Option<(&PodUid, &PodFacts)> {
        let mut pods = self.pods.iter();
        pods.find(|(_, facts)| facts.removed.is_none() && facts.pod.name() == name)
    }

    fn step(&mut self, step: &Step) {
        let name = match step {
            Step::Delete(kind, number, _)
            | Step::Edit(kind, number)
            | Step::Resize(kind, number, _)
            | Step::Respond(kind, number, ..)
            | Step::Exit(kind, number, _)
            | Step::Oom(kind, number)
            | Step::SandboxEnd(kind, number) => Some(format!("{kind}-{number}")),
            Step::DeleteMirror(name) => Some(name.clone()),
            _ => None,
        };
        let now = self.now;
        if let Some(name) = name {
            for facts in self.pods.values_mut() {
                if facts.pod.name() == name && facts.removed.is_none() {
                    facts.disturbed = Some(now);
                    match step {
                        Step::Delete(_, _, grace) => {
                            facts.deleted.get_or_insert(now);
                            facts.is_forced |= *grace == Some(0);
                        }
                        Step::DeleteMirror(_) => {
                            facts.deleted.get_or_insert(now);
                        }
                        Step::Respond(.., time) => facts.harmed = Some(now + *time),
                        _ => facts.harmed = Some(now),
                    }
                }
            }
        }
        if matches!(step, Step::Api(ApiFault::SilentWatches, ..)) {
            self.silenced = Some(now);
        }
        match step {
            Step::Api(..)
            | Step::Runtime(..)
            | Step::RuntimeRestart(_)
            | Step::Volume(..)
            | Step::Device(..) => self.disturbed = now,
            Step::Clock(_) => {
                self.clock_set = Some(now);
                self.disturbed = now;
            }
            Step::Disk(DiskFault::Lost | DiskFault::Torn, _) => self.is_undurable = true,
            Step::Pressure(..) => self.pressure = Some(now),
            Step::Reboot(_) => {
                self.rebooted = Some(now);
                self.disturbed = now;
                if std::mem::take(&mut self.is_undurable) {
                    self.lost_writes = Some(now);
                }
                self.lose_writes();
            }
            _ => {}
        }
    }

    fn static_removed(&mut self, pod: &str) {
        let now = self.now;
        for facts in self.statics.values_mut() {
            if facts.pod == pod && facts.removed.is_none() {
                facts.removed = Some(now);
            }
        }
    }

    fn runtime(&mut self, change: &RuntimeChange) {
        let now = self.now;
        match change.kind {
            RuntimeChangeKind::Started => {
                let (pod, name, attempt) = split_subject(&change.subject);
                let facts = ContainerFacts {
                    id: change.id.clone(),
                    uid: change.uid.clone(),
                    pod,
                    name,
                    attempt,
                    devices: change.devices.clone(),
                    started: now,
                    stop_requested: None,
                    ended: None,
                };
                self.containers.insert(change.id.clone(), facts);
                if let Some(pod) = self.pods.get_mut(&change.uid) {
                    pod.first_run.get_or_insert(now);
                }
            }
            RuntimeChangeKind::StopRequested(grace) => {
                if let Some(container) = self.containers.get_mut(&change.id) {
                    container.stop_requested.get_or_insert((now, grace));
                }
            }
            RuntimeChangeKind::Ended(code) => {
                if let Some(container) = self.containers.get_mut(&change.id) {
                    container.ended.get_or_insert((now, code));
                }
            }
            RuntimeChangeKind::Removed
            | RuntimeChangeKind::SandboxStarted
            | RuntimeChangeKind::SandboxEnded => {}
        }
    }

    fn pod(&mut self, pod: &Arc<Pod>, is_deleted: bool) {
        let now = self.now;
        let known = self.pods.entry(pod.uid()).or_insert_with(|| PodFacts {
            pod: pod.clone(),
            kind: parse_pod(pod.name()).map(|(kind, _)| kind),
            is_mirror: pod.annotation(names::ANN_CONFIG_MIRROR).is_some(),
            created: now,
            disturbed: None,
            harmed: None,
            deleted: None,
            is_forced: false,
            terminal: None,
            ready_since: now,
            removed: None,
            first_run: None,
        });
        if is_ready(&known.pod) != is_ready(pod) {
            known.ready_since = now;
        }
        if is_terminal(phase(pod)) {
            known.terminal.get_or_insert(now);
        }
        known.pod = pod.clone();
        if is_deleted {
            known.removed.get_or_insert(now);
        }
    }

    /// Removes facts of pods and containers that ended long ago.
    fn prune(&mut self) {
        let now = self.now;
        self.ended
            .retain(|_, end| now.saturating_sub(*end) <= FAULT_RETENTION);
        let Some(limit) = self.now.checked_sub(RETENTION) else {
            return;
        };
        let is_old = |at: Option<Duration>| at.is_some_and(|at| at < limit);
        self.containers
            .retain(|_, c| !is_old(c.ended.map(|(at, _)| at)));
        self.pods.retain(|_, pod| !is_old(pod.removed));
        let containers = &self.containers;
        self.statics.retain(|uid, facts| {
            !is_old(facts.removed) || containers.values().any(|c| c.uid == *uid)
        });
    }
}

/// Pod, name and attempt of `namespace/pod/name#attempt`.
fn split_subject(subject: &str) -> (String, String, u32) {
    let (pod, container) = subject.rsplit_once('/').unwrap_or((subject, ""));
    let (name, attempt) = container.split_once('#').unwrap_or((container, "0"));
    (
        pod.to_owned(),
        name.to_owned(),
        attempt.parse().unwrap_or(0),
    )
}
