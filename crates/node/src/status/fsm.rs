//! Decides what NodeStatus does next. Time is the agent's uptime, from the monotonic clock.
//!
//! At most one status update is in progress; changes in the meantime are reported when it ends.
//! Failures are retried by a timer: a registration after a back-off, an update with the next tick.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_actors::{Pressure, RuntimeState};
use windlass_node_rules::node_conditions::{
    NodeEvent, NodeHealth, RUNTIME_DOWN_THRESHOLD, RuntimeHealth,
};
use windlass_node_rules::node_object::{
    MachineFacts, NodeObjectInput, NodeReport, NodeStatusPlan, RuntimeFacts, plan_node_status,
    updated_node,
};
use windlass_types::corev1::Node;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{PluginResources, Timestamp};
use windlass_types::{Reason, view::EventType};

use super::NodeStatusSettings;
use crate::csi_node::CsiNodeStatus;
use crate::hung_pods::HungPodsMessage;
use crate::jitter;

/// Minimum interval between reads of the facts of runtime and host.
const FACTS_PERIOD: Duration = Duration::from_secs(30);
/// Timeout of the first read: half of the 2 s within which a node becomes ready after its runtime.
const FIRST_FACTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of later reads.
const FACTS_TIMEOUT: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Report interval elapsed.
    Tick,
    /// Back-off of a registration elapsed.
    RetryRegistration,
    /// The API server has this object, or `None`.
    Read(Option<Box<Node>>),
    /// The object was deleted; its last state.
    Deleted(Box<Node>),
    /// The runtime's state changed.
    Runtime(RuntimeState),
    /// The host is shutting down, or the shutdown was cancelled.
    ShuttingDown(bool),
    /// The node was read.
    Pressure(Pressure),
    /// Attached devices that pods use or will use.
    VolumesInUse(Vec<String>),
    /// Resources of device plugins.
    PluginResources(Arc<PluginResources>),
    /// The state of the CSINode object changed.
    CsiNode(CsiNodeStatus),
    /// The text about pods with hung operations changed.
    HungPods(HungPodsMessage),
    /// Facts of host and runtime that were read in time.
    Facts(Box<Facts>),
    /// A registration ended.
    Registered(Result<Box<UpdateResult>, String>),
    /// An update ended.
    Updated(Result<Box<UpdateResult>, UpdateError>),
}

/// Facts that were read; missing ones keep their value.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Facts of the host.
    pub machine: Option<MachineFacts>,
    /// Facts of the runtime.
    pub runtime: RuntimeFacts,
}

/// Result of an accepted update.
#[derive(Clone, Debug)]
pub struct UpdateResult {
    /// The object after the update.
    pub node: Node,
    /// Events to record.
    pub events: Vec<NodeEvent>,
    /// What was written.
    pub scope: PatchScope,
    /// The object did not exist before.
    pub created: bool,
}

/// Scope of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchScope {
    /// Nothing: the object was up to date.
    None,
    /// Heartbeats only.
    Heartbeat,
    /// A status change.
    Status,
}

impl PatchScope {
    /// Returns the scope of a patch.
    pub fn new(changed: bool) -> Self {
        if changed {
            Self::Status
        } else {
            Self::Heartbeat
        }
    }
}

/// Why an update failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// There is no such node.
    NotFound,
    /// Anything else.
    Failed(String),
}

#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Create the object or adopt an existing one.
    Register(Report),
    /// Patch the object's status.
    Update(Update),
    /// Register again after a back-off.
    RetryIn(Duration),
    /// Read facts of host and runtime.
    ReadFacts {
        /// Facts that are not read by then are omitted.
        deadline: Duration,
    },
    Publish(Option<Arc<Node>>),
    Record(NodeEvent),
}

/// A patch of the object's status.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// Strategic merge patch.
    pub patch: Value,
    /// What it changes.
    pub scope: PatchScope,
    /// Events to record after the patch.
    pub events: Vec<NodeEvent>,
    /// Input for another patch if this one fails.
    pub report: Report,
}

/// Input of a Node object, at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Facts of the host.
    pub machine: Arc<MachineFacts>,
    /// Facts of the runtime.
    pub runtime: Arc<RuntimeFacts>,
    /// Input of the conditions.
    pub health: NodeHealth,
    /// Attached devices that pods use, once known.
    pub volumes_in_use: Option<Arc<[String]>>,
    /// Resources of device plugins.
    pub plugin_resources: Arc<PluginResources>,
}

impl Report {
    /// Returns the input of the pure functions.
    pub(crate) fn input<'a>(
        &'a self,
        settings: &'a NodeStatusSettings,
        now: Timestamp,
    ) -> NodeObjectInput<'a> {
        NodeObjectInput {
            settings: &settings.node,
            machine: &self.machine,
            runtime: &self.runtime,
            health: &self.health,
            volumes_in_use: self.volumes_in_use.as_deref(),
            plugin_resources: &self.plugin_resources,
            now,
        }
    }
}

/// A plan that kept the object: its input, without the time.
#[derive(Debug)]
pub(super) struct KeptPlan {
    pub(super) node: Arc<Node>,
    pub(super) report: Report,
}

/// Returns true if a plan may differ from one that kept the object. Equal input differs in the
/// heartbeat times only, which are written when they are due.
pub(super) fn may_differ(
    kept: Option<&KeptPlan>,
    node: &Arc<Node>,
    report: &Report,
    is_due: bool,
) -> bool {
    let is_same = |kept: &KeptPlan| Arc::ptr_eq(&kept.node, node) && kept.report == *report;
    is_due || !kept.is_some_and(is_same)
}

#[derive(Debug)]
pub(crate) struct NodeStatusFsm {
    settings: NodeStatusSettings,
    node: Option<Arc<Node>>,
    /// The last plan, if it kept the object.
    kept: Option<KeptPlan>,
    registered: bool,
    failures: u32,
    /// Registration failed and its back-off has not elapsed.
    backing_off: bool,
    /// A status update is in progress.
    writing: bool,
    /// Something changed meanwhile.
    dirty: bool,
    machine: Option<Arc<MachineFacts>>,
    facts: Arc<RuntimeFacts>,
    reading: bool,
    read_again: bool,
    read_at: Option<Duration>,
    runtime: RuntimeWatch,
    shutting_down: bool,
    pressure: Option<Pressure>,
    volumes_in_use: Option<Arc<[String]>>,
    plugin_resources: Arc<PluginResources>,
    csi_node: CsiNodeStatus,
    hung_pods: HungPodsMessage,
    reported_at: Option<Duration>,
    report_after: Duration,
    reports: u64,
    ticks: u64,
    unschedulable: bool,
}

impl NodeStatusFsm {
    /// Returns the initial state and the first effects.
    pub(crate) fn begin(settings: NodeStatusSettings) -> (Self, Vec<Effect>) {
        let this = Self {
            report_after: settings.report_frequency,
            settings,
            node: None,
            kept: None,
            registered: false,
            failures: 0,
            backing_off: false,
            writing: false,
            dirty: false,
            machine: None,
            facts: Arc::default(),
            reading: true,
            read_again: false,
            read_at: Some(Duration::ZERO),
            runtime: RuntimeWatch::default(),
            shutting_down: false,
            pressure: None,
            volumes_in_use: None,
            plugin_resources: Arc::default(),
            csi_node: CsiNodeStatus::default(),
            hung_pods: None,
            reported_at: None,
            reports: 0,
            ticks: 0,
            unschedulable: false,
        };
        let starting = NodeEvent {
            event_type: EventType::Normal,
            reason: Reason::Starting,
            message: "Starting kubelet.".to_owned(),
        };
        let read = Effect::ReadFacts {
            deadline: FIRST_FACTS_TIMEOUT,
        };
        (this, vec![Effect::Record(starting), read])
    }

    /// Returns the time until the next [`Input::Tick`].
    pub(crate) fn next_tick(&mut self) -> Duration {
        self.ticks += 1;
        let fraction = jitter::fraction(&self.settings.node.name, "status", self.ticks);
        jitter::lengthened(self.settings.update_frequency, 0.04, fraction)
    }

    /// Handles an input at `uptime`; `now` is the wall clock's time.
    pub(crate) fn handle(&mut self, input: Input, uptime: Duration, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Tick => {
                let due = self.read_at.is_none_or(|at| uptime >= at + FACTS_PERIOD);
                if due && !self.reading {
                    self.read(FACTS_TIMEOUT, uptime, &mut effects);
                }
                self.write(uptime, now, &mut effects);
            }
            Input::RetryRegistration => {
                self.backing_off = false;
                self.write(uptime, now, &mut effects);
            }
            Input::Read(Some(node)) => self.seen(*node, &mut effects),
            Input::Read(None) => self.gone(uptime, now, &mut effects),
            Input::Deleted(node) => {
                let uid = |node: &Node| node.metadata.uid.clone();
                if self
                    .node
                    .as_ref()
                    .is_none_or(|ours| uid(ours) == uid(&node))
                {
                    self.gone(uptime, now, &mut effects);
                }
            }
            Input::Runtime(state) => {
                let answered = state.answered;
                self.runtime.update(state, uptime);
                if answered && self.facts.version.is_none() {
                    // the first report of a ready runtime contains its version
                    self.read_again |= self.reading;
                    if !self.reading {
                        self.read(FIRST_FACTS_TIMEOUT, uptime, &mut effects);
                    }
                } else {
                    self.write(uptime, now, &mut effects);
                }
            }
            Input::ShuttingDown(shutting_down) => {
                self.shutting_down = shutting_down;
                self.write(uptime, now, &mut effects);
            }
            Input::Pressure(pressure) => {
                self.pressure = Some(pressure);
                self.write(uptime, now, &mut effects);
            }
            Input::CsiNode(status) => {
                self.csi_node = status;
                self.write(uptime, now, &mut effects);
            }
            Input::HungPods(message) => {
                self.hung_pods = message;
                self.write(uptime, now, &mut effects);
            }
            Input::VolumesInUse(devices) => {
                self.volumes_in_use = Some(devices.into());
                self.write(uptime, now, &mut effects);
            }
            Input::PluginResources(resources) => {
                self.plugin_resources = resources;
                self.write(uptime, now, &mut effects);
            }
            Input::Facts(facts) => {
                self.reading = false;
                self.learn(*facts);
                if std::mem::take(&mut self.read_again) && self.facts.version.is_none() {
                    self.read(FIRST_FACTS_TIMEOUT, uptime, &mut effects);
                }
                self.write(uptime, now, &mut effects);
            }
            Input::Registered(Ok(written)) => {
                self.writing = false;
                self.failures = 0;
                self.registered = true;
                self.written(*written, uptime, &mut effects);
                self.write_if_dirty(uptime, now, &mut effects);
            }
            Input::Registered(Err(_)) => {
                self.writing = false;
                self.failures += 1;
                self.backing_off = true;
                effects.push(Effect::RetryIn(jitter::retry_backoff(self.failures)));
            }
            Input::Updated(Ok(written)) => {
                self.writing = false;
                self.written(*written, uptime, &mut effects);
                self.write_if_dirty(uptime, now, &mut effects);
            }
            Input::Updated(Err(UpdateError::NotFound)) => {
                self.writing = false;
                self.gone(uptime, now, &mut effects);
            }
            Input::Updated(Err(UpdateError::Failed(_))) => self.writing = false,
        }
        effects
    }

    /// Writes only changes made meanwhile: if the API server modifies a patch, the next one waits
    /// for the next tick.
    fn write_if_dirty(&mut self, uptime: Duration, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.dirty {
            self.write(uptime, now, effects);
        }
    }

    /// Registers or reports if no update is in progress and something changed.
    fn write(&mut self, uptime: Duration, now: Timestamp, effects: &mut Vec<Effect>) {
        // registration requires the facts of the host
        let Some(machine) = self.machine.clone() else {
            return;
        };
        if self.writing || self.backing_off {
            self.dirty = true;
            return;
        }
        self.dirty = false;
        let pressure = self.pressure.unwrap_or_default();
        let report = Report {
            machine,
            runtime: Arc::clone(&self.facts),
            health: NodeHealth {
                runtime: self.runtime.health(uptime),
                pleg_error: self.runtime.pleg_error.clone(),
                network_error: self.runtime.network_error.clone(),
                storage_error: self.csi_node.error(),
                shutting_down: self.shutting_down,
                memory_pressure: pressure.memory,
                disk_pressure: pressure.disk,
                pid_pressure: pressure.pid,
                keeps_pressure: self.pressure.is_none(),
                hung_pods: self.hung_pods.as_deref().map(str::to_owned),
            },
            volumes_in_use: self.volumes_in_use.clone(),
            plugin_resources: Arc::clone(&self.plugin_resources),
        };
        if self.settings.register && !self.registered {
            self.writing = true;
            effects.push(Effect::Register(report));
            return;
        }
        let Some(old) = self.node.clone() else {
            return;
        };
        let since = self.reported_at.map(|at| uptime.saturating_sub(at));
        let is_due = since.is_none_or(|since| since >= self.report_after);
        if !may_differ(self.kept.as_ref(), &old, &report, is_due) {
            return;
        }
        let NodeReport { node, events } = updated_node(&old, &report.input(&self.settings, now));
        match plan_node_status(&old, &node, since, self.report_after) {
            NodeStatusPlan::Patch { changed, patch } => {
                self.kept = None;
                self.writing = true;
                effects.push(Effect::Update(Update {
                    patch,
                    scope: PatchScope::new(changed),
                    events,
                    report,
                }));
            }
            NodeStatusPlan::Keep => self.kept = Some(KeptPlan { node: old, report }),
        }
    }

    fn read(&mut self, deadline: Duration, uptime: Duration, effects: &mut Vec<Effect>) {
        self.reading = true;
        self.read_at = Some(uptime);
        effects.push(Effect::ReadFacts { deadline });
    }

    fn learn(&mut self, facts: Facts) {
        let machine = facts.machine.map(Arc::new);
        // a host whose facts are unreadable is still a node, though not a ready one
        let unknown = || Arc::new(crate::machine::platform_facts());
        self.machine = machine
            .or_else(|| self.machine.take())
            .or_else(|| Some(unknown()));
        let old = &self.facts;
        let new = facts.runtime;
        self.facts = Arc::new(RuntimeFacts {
            version: new.version.or_else(|| old.version.clone()),
            handlers: new.handlers.or_else(|| old.handlers.clone()),
            supplemental_groups_policy: new
                .supplemental_groups_policy
                .or(old.supplemental_groups_policy),
            images: new.images.or_else(|| old.images.clone()),
        });
    }

    fn written(&mut self, written: UpdateResult, uptime: Duration, effects: &mut Vec<Effect>) {
        match written.scope {
            PatchScope::None => {}
            PatchScope::Heartbeat => {
                self.reported_at = Some(uptime);
                self.report_after = self.settings.report_frequency;
            }
            PatchScope::Status => {
                self.reported_at = Some(uptime);
                self.reports += 1;
                // upstream's ±50 %: desynchronizes nodes that changed together
                let fraction = jitter::fraction(&self.settings.node.name, "report", self.reports);
                self.report_after = self.settings.report_frequency.mul_f64(0.5 + fraction);
            }
        }
        self.seen(written.node, effects);
        effects.extend(written.events.into_iter().map(Effect::Record));
    }

    fn seen(&mut self, node: Node, effects: &mut Vec<Effect>) {
        if self.node.as_ref().is_some_and(|known| older(&node, known)) {
            return;
        }
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable);
        let unschedulable = unschedulable.unwrap_or(false);
        if std::mem::replace(&mut self.unschedulable, unschedulable) != unschedulable {
            let reason = if unschedulable {
                Reason::NodeNotSchedulable
            } else {
                Reason::NodeSchedulable
            };
            let event = NodeEvent::status(&self.settings.node.name, reason);
            effects.push(Effect::Record(event));
        }
        let node = Arc::new(node);
        self.node = Some(Arc::clone(&node));
        effects.push(Effect::Publish(Some(node)));
    }

    fn gone(&mut self, uptime: Duration, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.node.take().is_some() {
            effects.push(Effect::Publish(None));
        }
        if self.registered {
            self.registered = false;
            self.reported_at = None;
            self.write(uptime, now, effects);
        }
    }
}

/// Health of the runtime, from the reported states.
#[derive(Debug)]
struct RuntimeWatch {
    last: RuntimeHealth,
    network_error: Option<String>,
    pleg_error: Option<String>,
    unreachable_since: Option<Duration>,
}

impl Default for RuntimeWatch {
    fn default() -> Self {
        Self {
            last: match mutated(Mutation::NodeNotReadyAtRestart) {
                true => RuntimeHealth::NotReady("runtime not checked yet".to_owned()),
                false => RuntimeHealth::NotCheckedYet,
            },
            network_error: None,
            pleg_error: None,
            unreachable_since: Some(Duration::ZERO),
        }
    }
}

impl RuntimeWatch {
    fn update(&mut self, state: RuntimeState, uptime: Duration) {
        self.pleg_error = state.pleg_error;
        if !state.answered {
            self.unreachable_since.get_or_insert(uptime);
            return;
        }
        self.unreachable_since = None;
        self.network_error = state.network_error;
        self.last = match state.runtime_error {
            None => RuntimeHealth::Ready,
            Some(words) => RuntimeHealth::NotReady(words),
        };
    }

    fn health(&self, uptime: Duration) -> RuntimeHealth {
        match self.unreachable_since {
            Some(since) if uptime.saturating_sub(since) >= RUNTIME_DOWN_THRESHOLD => {
                RuntimeHealth::Down
            }
            _ => self.last.clone(),
        }
    }
}

/// Returns whether `node` is an older version of the object `known`.
fn older(node: &Node, known: &Node) -> bool {
    let version = |node: &Node| -> Option<u64> {
        let version = node.metadata.resource_version.as_ref();
        version.and_then(|version| version.parse().ok())
    };
    let same = node.metadata.uid == known.metadata.uid;
    same && matches!((version(node), version(known)), (Some(a), Some(b)) if a < b)
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(_) => f.write_str("register"),
            Self::Update(update) if update.scope == PatchScope::Status => f.write_str("update"),
            Self::Update(_) => f.write_str("heartbeat"),
            Self::RetryIn(pause) => write!(f, "retry in {pause:?}"),
            Self::ReadFacts { deadline } => write!(f, "read facts in {deadline:?}"),
            Self::Publish(Some(_)) => f.write_str("publish"),
            Self::Publish(None) => f.write_str("publish none"),
            Self::Record(event) => write!(f, "record {}", event.reason),
        }
    }
}
