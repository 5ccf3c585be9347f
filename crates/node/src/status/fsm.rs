//! What NodeStatus does next. Time is the agent's uptime, on a clock that is never set.
//!
//! One request that writes is under way at a time; what changes meanwhile is told when it has
//! ended. Whatever fails is tried again by a timer: registration after a back-off, an update
//! with the next tick.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windlass_actors::RuntimeState;
use windlass_node_rules::node_conditions::{NodeEvent, NodeHealth, RUNTIME_SILENCE, RuntimeHealth};
use windlass_node_rules::node_object::{
    MachineFacts, NodeObjectInput, NodeReport, NodeStatusPlan, RuntimeFacts, plan_node_status,
    updated_node,
};
use windlass_types::Timestamp;
use windlass_types::corev1::Node;
use windlass_types::{Reason, view::EventType};

use super::NodeStatusSettings;
use crate::csi_node::CsiNodeStanding;
use crate::jitter;

/// How often version, features and images of the runtime, and the machine, are read at most.
const FACTS_PERIOD: Duration = Duration::from_secs(30);
/// How long the first reading may hold the first report up: half of the 2 s in which a node is
/// to be ready after its runtime.
const FIRST_FACTS_DEADLINE: Duration = Duration::from_secs(1);
/// How long a later reading may take.
const FACTS_DEADLINE: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// It is time to report.
    Tick,
    /// It is time to register again.
    RetryRegistration,
    /// The API server has this object, or none.
    Read(Option<Box<Node>>),
    /// The object is gone; its last state.
    Deleted(Box<Node>),
    /// The runtime's state changed.
    Runtime(RuntimeState),
    /// The machine is about to shut down, or not any more.
    ShuttingDown(bool),
    /// Attached devices that pods use, or are about to.
    VolumesInUse(Vec<String>),
    /// How the CSINode object is.
    CsiNode(CsiNodeStanding),
    /// What could be read of machine and runtime in time.
    Facts(Box<Facts>),
    /// Registration ended.
    Registered(Result<Box<Written>, String>),
    /// An update ended.
    Updated(Result<Box<Written>, UpdateError>),
}

/// What could be read; the rest stays as it was.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The machine.
    pub machine: Option<MachineFacts>,
    /// The runtime.
    pub runtime: RuntimeFacts,
}

/// What the API server took.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as it is now.
    pub node: Node,
    /// Events that are due because of it.
    pub events: Vec<NodeEvent>,
    /// Whether something was written, and more than heartbeats.
    pub wrote: Wrote,
    /// The object did not exist before.
    pub created: bool,
}

/// How much was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// Nothing: the object was as it should be.
    Nothing,
    /// Heartbeats only.
    Heartbeat,
    /// A change.
    Change,
}

impl Wrote {
    /// What a patch writes.
    pub fn of(changed: bool) -> Self {
        if changed {
            Self::Change
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

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// Create the object or take over the one that exists.
    Register(Report),
    /// Patch the object's status.
    Update(Update),
    /// Register again after a pause.
    RetryIn(Duration),
    /// Read machine and runtime.
    ReadFacts {
        /// What is not there after this time is left out.
        deadline: Duration,
    },
    /// Tell the others.
    Publish(Option<Arc<Node>>),
    /// Record an event.
    Record(NodeEvent),
}

/// A patch of the object's status.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// Strategic merge patch.
    pub patch: Value,
    /// What it changes.
    pub wrote: Wrote,
    /// Events that are due when it is done.
    pub events: Vec<NodeEvent>,
    /// What to make another patch of, should this one fail.
    pub report: Report,
}

/// Everything a Node object is made of, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The machine.
    pub machine: Arc<MachineFacts>,
    /// The runtime.
    pub runtime: Arc<RuntimeFacts>,
    /// What the conditions are made of.
    pub health: NodeHealth,
    /// Attached devices that pods use, once somebody said so.
    pub volumes_in_use: Option<Arc<[String]>>,
}

impl Report {
    /// As the pure functions take it.
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
            now,
        }
    }
}

/// The state of NodeStatus.
#[derive(Debug)]
pub(crate) struct NodeStatusFsm {
    settings: NodeStatusSettings,
    /// The newest object that was seen.
    node: Option<Arc<Node>>,
    registered: bool,
    failures: u32,
    /// Registration failed and its back-off runs.
    pausing: bool,
    /// A request that writes is under way.
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
    volumes_in_use: Option<Arc<[String]>>,
    csi_node: CsiNodeStanding,
    reported_at: Option<Duration>,
    report_after: Duration,
    reports: u64,
    ticks: u64,
    unschedulable: bool,
}

impl NodeStatusFsm {
    /// Before anything was heard; the effects begin the work.
    pub(crate) fn begin(settings: NodeStatusSettings) -> (Self, Vec<Effect>) {
        let this = Self {
            report_after: settings.report_frequency,
            settings,
            node: None,
            registered: false,
            failures: 0,
            pausing: false,
            writing: false,
            dirty: false,
            machine: None,
            facts: Arc::default(),
            reading: true,
            read_again: false,
            read_at: Some(Duration::ZERO),
            runtime: RuntimeWatch::default(),
            shutting_down: false,
            volumes_in_use: None,
            csi_node: CsiNodeStanding::default(),
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
            deadline: FIRST_FACTS_DEADLINE,
        };
        (this, vec![Effect::Record(starting), read])
    }

    /// Until the next [`Input::Tick`].
    pub(crate) fn next_tick(&mut self) -> Duration {
        self.ticks += 1;
        let fraction = jitter::fraction(&self.settings.node.name, "status", self.ticks);
        jitter::lengthened(self.settings.update_frequency, 0.04, fraction)
    }

    /// Takes an input at `uptime`; `now` is the wall clock's time.
    pub(crate) fn handle(&mut self, input: Input, uptime: Duration, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Tick => {
                let due = self.read_at.is_none_or(|at| uptime >= at + FACTS_PERIOD);
                if due && !self.reading {
                    self.read(FACTS_DEADLINE, uptime, &mut effects);
                }
                self.write(uptime, now, &mut effects);
            }
            Input::RetryRegistration => {
                self.pausing = false;
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
                self.runtime.heard(state, uptime);
                if answered && self.facts.version.is_none() {
                    // the first report of a ready runtime names its version
                    self.read_again |= self.reading;
                    if !self.reading {
                        self.read(FIRST_FACTS_DEADLINE, uptime, &mut effects);
                    }
                } else {
                    self.write(uptime, now, &mut effects);
                }
            }
            Input::ShuttingDown(shutting_down) => {
                self.shutting_down = shutting_down;
                self.write(uptime, now, &mut effects);
            }
            Input::CsiNode(standing) => {
                self.csi_node = standing;
                self.write(uptime, now, &mut effects);
            }
            Input::VolumesInUse(devices) => {
                self.volumes_in_use = Some(devices.into());
                self.write(uptime, now, &mut effects);
            }
            Input::Facts(facts) => {
                self.reading = false;
                self.learn(*facts);
                if std::mem::take(&mut self.read_again) && self.facts.version.is_none() {
                    self.read(FIRST_FACTS_DEADLINE, uptime, &mut effects);
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
                self.pausing = true;
                effects.push(Effect::RetryIn(jitter::retry_pause(self.failures)));
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

    /// Only for what changed meanwhile: a server that takes a patch and keeps something else is
    /// asked again with the next tick, not at once and for ever.
    fn write_if_dirty(&mut self, uptime: Duration, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.dirty {
            self.write(uptime, now, effects);
        }
    }

    /// Registers or reports, if nothing is under way and there is something to say.
    fn write(&mut self, uptime: Duration, now: Timestamp, effects: &mut Vec<Effect>) {
        // a node is not registered before its machine was looked at
        let Some(machine) = self.machine.clone() else {
            return;
        };
        if self.writing || self.pausing {
            self.dirty = true;
            return;
        }
        self.dirty = false;
        let report = Report {
            machine,
            runtime: Arc::clone(&self.facts),
            health: NodeHealth {
                runtime: self.runtime.health(uptime),
                pleg_error: self.runtime.pleg_error.clone(),
                network_error: self.runtime.network_error.clone(),
                storage_error: self.csi_node.error(),
                shutting_down: self.shutting_down,
                ..NodeHealth::default()
            },
            volumes_in_use: self.volumes_in_use.clone(),
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
        let NodeReport { node, events } = updated_node(&old, &report.input(&self.settings, now));
        let plan = plan_node_status(&old, &node, since, self.report_after);
        if let NodeStatusPlan::Patch { changed, patch } = plan {
            self.writing = true;
            effects.push(Effect::Update(Update {
                patch,
                wrote: Wrote::of(changed),
                events,
                report,
            }));
        }
    }

    fn read(&mut self, deadline: Duration, uptime: Duration, effects: &mut Vec<Effect>) {
        self.reading = true;
        self.read_at = Some(uptime);
        effects.push(Effect::ReadFacts { deadline });
    }

    fn learn(&mut self, facts: Facts) {
        let machine = facts.machine.map(Arc::new);
        // a machine that does not answer is still a node, though not a ready one
        let unknown = || Arc::new(crate::machine::known_without_reading());
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

    fn written(&mut self, written: Written, uptime: Duration, effects: &mut Vec<Effect>) {
        match written.wrote {
            Wrote::Nothing => {}
            Wrote::Heartbeat => {
                self.reported_at = Some(uptime);
                self.report_after = self.settings.report_frequency;
            }
            Wrote::Change => {
                self.reported_at = Some(uptime);
                self.reports += 1;
                // upstream's ±50 %: nodes that changed together do not report together for ever
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

/// How the runtime is, from the states its check reported.
#[derive(Debug)]
struct RuntimeWatch {
    last: RuntimeHealth,
    network_error: Option<String>,
    pleg_error: Option<String>,
    silent_since: Option<Duration>,
}

impl Default for RuntimeWatch {
    fn default() -> Self {
        Self {
            last: RuntimeHealth::NotCheckedYet,
            network_error: None,
            pleg_error: None,
            silent_since: Some(Duration::ZERO),
        }
    }
}

impl RuntimeWatch {
    fn heard(&mut self, state: RuntimeState, uptime: Duration) {
        self.pleg_error = state.pleg_error;
        if !state.answered {
            self.silent_since.get_or_insert(uptime);
            return;
        }
        self.silent_since = None;
        self.network_error = state.network_error;
        self.last = match state.runtime_error {
            None => RuntimeHealth::Ready,
            Some(words) => RuntimeHealth::NotReady(words),
        };
    }

    fn health(&self, uptime: Duration) -> RuntimeHealth {
        match self.silent_since {
            Some(since) if uptime.saturating_sub(since) >= RUNTIME_SILENCE => RuntimeHealth::Down,
            _ => self.last.clone(),
        }
    }
}

/// True if `node` is an earlier state of the object `known`.
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
            Self::Update(update) if update.wrote == Wrote::Change => f.write_str("update"),
            Self::Update(_) => f.write_str("heartbeat"),
            Self::RetryIn(pause) => write!(f, "retry in {pause:?}"),
            Self::ReadFacts { deadline } => write!(f, "read facts in {deadline:?}"),
            Self::Publish(Some(_)) => f.write_str("publish"),
            Self::Publish(None) => f.write_str("publish none"),
            Self::Record(event) => write!(f, "record {}", event.reason),
        }
    }
}
