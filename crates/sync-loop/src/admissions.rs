//! The admitted pods and their requests. Pure.
//!
//! A pod is admitted once. A pod that is in the checkpoint, runs, or has a start time at the API
//! server is not checked again: an agent restart rejects no pod.
//!
//! A critical pod that lacks only resources preempts others. It waits until they have ended, and so
//! does a pod that fits only without them. A waiting pod has no worker, and its requests count; a
//! preempted pod counts until it has ended.

mod allocations;
mod overrides;
mod preemptions;
mod resize;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_actors::{AllocationScope, KillPod};
use windlass_node_rules::admission::{
    AdmissionInput, AdmissionPolicy, Insufficient, NodeLoad, Pressure, Rejection, admit,
    admit_before_resources,
};
use windlass_node_rules::preemption::{
    PREEMPTING, PreemptionError, PreemptionPlan, plan_preemption, preempted,
};
use windlass_store::AdmittedPod;
use windlass_types::corev1::Node;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{AllocatedResources, Pod, PodExt, PodUid, SharedPod};

use crate::desired::DesiredPods;
use crate::dispatch::{Dispatch, preempt};
pub use preemptions::EndedVictim;
use preemptions::{Preemptions, Victim};

pub(crate) use overrides::{Override, take_override};

/// Reason of a critical pod for which no other pods can be preempted (upstream
/// `UnexpectedAdmissionError`).
const UNEXPECTED: &str = "UnexpectedAdmissionError";

/// Input of an admission besides the pod.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionContext<'a> {
    /// The Node object, or the one that the agent would register.
    pub node: &'a Node,
    /// Limits of host and configuration.
    pub policy: &'a AdmissionPolicy,
    /// The desired pods, which a critical pod may preempt.
    pub desired: &'a DesiredPods,
    /// The runtime supports `supplementalGroupsPolicy: Strict`; `None` if unknown.
    pub strict_groups: Option<bool>,
    /// Pressure conditions of the node.
    pub pressure: Pressure,
    /// The host is about to shut down.
    pub shutting_down: bool,
    /// The pods are from the checkpoint.
    pub restored: bool,
    /// The runtime has containers or sandboxes of the pod.
    pub runs: bool,
    /// Pods that need an allocation before they run.
    pub scope: &'a AllocationScope,
}

/// Decision about a new pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The pod runs.
    Admit,
    /// The pod fails.
    Reject(Rejection),
    /// The pod waits until these pods have ended.
    Preempt(PreemptionPlan),
    /// The pod waits until pods have ended that another pod preempted.
    Wait,
    /// The pod waits for its CPUs, memory nodes and devices.
    Allocate,
    /// The managers of CPUs, memory nodes and devices reject the pod, else this rejection counts.
    RejectAfterResources(Rejection),
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit => f.write_str("admit"),
            Self::Reject(rejection) => write!(f, "reject({})", rejection.reason),
            Self::Preempt(plan) => plan.fmt(f),
            Self::Wait => f.write_str("wait"),
            Self::Allocate => f.write_str("allocate"),
            Self::RejectAfterResources(rejection) => {
                write!(f, "allocate-reject({})", rejection.reason)
            }
        }
    }
}

/// Result of the admission of one dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// The pod of a decision.
    pub decided: Option<(SharedPod, Decision)>,
    /// The updates of workers, in order.
    pub dispatches: Vec<Dispatch>,
}

impl Admission {
    fn unchanged(dispatch: Dispatch) -> Self {
        Self {
            decided: None,
            dispatches: vec![dispatch],
        }
    }

    fn decided(pod: SharedPod, decision: Decision, dispatches: Vec<Dispatch>) -> Self {
        Self {
            decided: Some((pod, decision)),
            dispatches,
        }
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decision = self
            .decided
            .iter()
            .map(|(_, decision)| decision.to_string());
        let dispatches = self.dispatches.iter().map(Dispatch::to_string);
        let words: Vec<String> = decision.chain(dispatches).collect();
        f.write_str(&words.join(" "))
    }
}

/// Change to the checkpoints of admitted pods and of their resources.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CheckpointChange {
    /// Record the newest version of an admitted pod and its allocated resources.
    Record(AdmittedPod),
    /// Record only the allocated resources, of a static pod: its manifest outlives the agent.
    RecordResources(PodUid, AllocatedResources),
    /// Remove a deleted or finished pod.
    Forget(PodUid),
    /// No change.
    None,
}

impl fmt::Display for CheckpointChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(admitted) => write!(f, "record({})", admitted.pod.uid()),
            Self::RecordResources(uid, _) => write!(f, "record-resources({uid})"),
            Self::Forget(uid) => write!(f, "forget({uid})"),
            Self::None => f.write_str("none"),
        }
    }
}

/// The admitted pods.
#[derive(Debug, Default)]
pub struct AdmittedPodSet {
    /// Requests of the admitted, waiting and preempted pods.
    load: NodeLoad,
    admitted: BTreeSet<PodUid>,
    rejected: BTreeSet<PodUid>,
    preemptions: Preemptions,
    /// Pods that have no allocation yet; they have no worker. Those that will be rejected do not
    /// count.
    allocating: BTreeMap<PodUid, SharedPod>,
    /// Terminal phases of the admitted pods that the node terminates.
    overrides: BTreeMap<PodUid, Override>,
}

impl AdmittedPodSet {
    /// Admits the pod of a dispatch, rejects it, or lets it wait.
    pub fn admit_dispatch(
        &mut self,
        dispatch: Dispatch,
        context: AdmissionContext<'_>,
    ) -> Admission {
        match &dispatch {
            Dispatch::Run(pod) => return self.admit(SharedPod::clone(pod), context),
            Dispatch::Terminate(pod) => {
                // it uses no resources
                let uid = pod.uid();
                self.preemptions.terminated(&uid);
                self.allocating.remove(&uid);
                self.load.remove(&uid);
            }
            Dispatch::Delete(pod) => self.stop_waiting(&pod.uid()),
            Dispatch::Remove(uid) => {
                self.stop_waiting(uid);
                // a preempted pod counts until it has ended
                if !self.preemptions.is_victim(uid) {
                    self.load.remove(uid);
                }
                self.admitted.remove(uid);
                self.rejected.remove(uid);
                self.overrides.remove(uid);
            }
            Dispatch::Kill(uid, kill) => {
                if let Some(cause) = &kill.phase_override {
                    let termination = Override {
                        cause: cause.clone(),
                        grace: kill.grace,
                    };
                    return self.terminate(uid.clone(), termination, dispatch);
                }
            }
            Dispatch::Sync(_) | Dispatch::Reject(..) => {}
        }
        Admission::unchanged(dispatch)
    }

    /// Records a restored pod that the node was terminating.
    pub(crate) fn restore_override(&mut self, uid: PodUid, termination: Override) {
        self.overrides.insert(uid, termination);
    }

    /// True while pods wait or preempted pods have not ended.
    pub(crate) fn is_preempting(&self) -> bool {
        !self.preemptions.is_empty()
    }

    /// Removes the preempted pods that have ended, or have not ended in time.
    pub(crate) fn end_victims(&mut self, has_ended: impl Fn(&PodUid) -> bool) -> Vec<EndedVictim> {
        let ended = self.preemptions.end_victims(has_ended);
        for victim in &ended {
            self.load.remove(&victim.uid);
        }
        ended
    }

    /// Decides again about the waiting pods, critical ones first.
    pub(crate) fn readmit(&mut self, context: AdmissionContext<'_>) -> Vec<Admission> {
        let mut admissions = Vec::new();
        for pod in self.preemptions.waiting() {
            let admission = self.decide(pod, context);
            let waits = matches!(admission.decided, Some((_, Decision::Wait)));
            if !waits {
                admissions.push(admission);
            }
        }
        admissions
    }

    /// True for a pod that waits for preempted pods or an allocation: it has no worker.
    pub(crate) fn is_waiting(&self, uid: &PodUid) -> bool {
        self.preemptions.is_waiting(uid) || self.allocating.contains_key(uid)
    }

    /// Returns the pods that waiting pods wait for.
    pub(crate) fn victims(&self) -> impl Iterator<Item = &PodUid> {
        self.preemptions.victims()
    }

    /// True for an admitted pod.
    pub(crate) fn is_admitted(&self, uid: &PodUid) -> bool {
        self.admitted.contains(uid)
    }

    /// Returns the checkpoint change for an admitted dispatch.
    pub(crate) fn checkpoint_change(
        &self,
        dispatch: &Dispatch,
        desired: &DesiredPods,
    ) -> CheckpointChange {
        let pod = match dispatch {
            Dispatch::Terminate(pod) => return CheckpointChange::Forget(pod.uid()),
            Dispatch::Remove(uid) => return CheckpointChange::Forget(uid.clone()),
            Dispatch::Run(pod) | Dispatch::Delete(pod) => Some(pod),
            Dispatch::Kill(uid, kill) if kill.phase_override.is_some() => desired.get(uid),
            Dispatch::Sync(_) | Dispatch::Reject(..) | Dispatch::Kill(..) => None,
        };
        let is_recorded = |pod: &&SharedPod| self.is_admitted(&pod.uid());
        let Some(pod) = pod.filter(is_recorded) else {
            return CheckpointChange::None;
        };
        let uid = pod.uid();
        let allocated = AllocatedResources::from_pod(pod);
        if pod.is_static() {
            return CheckpointChange::RecordResources(uid, allocated);
        }
        let live = desired.live(&uid).unwrap_or(pod);
        CheckpointChange::Record(AdmittedPod {
            pod: match self.overrides.get(&uid) {
                Some(termination) => overrides::with_override(live, termination),
                None => SharedPod::clone(live),
            },
            allocated,
        })
    }

    /// True for a pod that can be resized: admitted, and not terminated by the node.
    pub(crate) fn can_resize(&self, uid: &PodUid) -> bool {
        self.is_admitted(uid) && !self.overrides.contains_key(uid)
    }

    /// Counts a pod again after a change of its status; true if it frees resources.
    pub(crate) fn count_again(&mut self, pod: &Pod) -> bool {
        self.load.update(pod)
    }

    fn admit(&mut self, pod: SharedPod, context: AdmissionContext<'_>) -> Admission {
        let uid = pod.uid();
        if self.rejected.contains(&uid) {
            // its worker has terminated it already
            return Admission::unchanged(Dispatch::Run(pod));
        }
        if let Some(termination) = self.overrides.get(&uid).cloned() {
            return self.keep_terminating(pod, termination);
        }
        if self.update_allocating(&pod) || self.preemptions.update_waiting(&pod) {
            self.load.update(&pod);
            return Admission {
                decided: None,
                dispatches: Vec::new(),
            };
        }
        let before =
            self.admitted.contains(&uid) || context.restored || context.runs || was_started(&pod);
        let before = before && !mutated(Mutation::RestartRejectsPods);
        if before || check(&pod, &self.load, context).is_ok() {
            return self.run(pod, context.scope);
        }
        self.decide(pod, context)
    }

    /// Terminates a restored pod whose termination a previous agent run began.
    fn keep_terminating(&mut self, pod: SharedPod, termination: Override) -> Admission {
        let uid = pod.uid();
        let Override { cause, grace } = termination;
        if !self.admitted.insert(uid.clone()) {
            // its worker terminates it already
            return Admission::unchanged(Dispatch::Run(pod));
        }
        if cause.reason == PREEMPTING {
            self.load.add(&pod);
            self.preemptions
                .add_victim(uid.clone(), Victim::new(&pod, None));
        }
        let kill = grace.map(|_| {
            let kill = KillPod {
                grace,
                reason: cause.message.clone(),
                removed: false,
                orphan: None,
                phase_override: Some(cause.clone()),
            };
            Dispatch::Kill(uid, kill)
        });
        let mut dispatches = vec![Dispatch::Reject(pod, cause)];
        // the spec at the API server may have a longer grace period
        dispatches.extend(kill);
        Admission {
            decided: None,
            dispatches,
        }
    }

    fn run(&mut self, pod: SharedPod, scope: &AllocationScope) -> Admission {
        self.load.add(&pod);
        if !self.is_admitted(&pod.uid()) && scope.covers(&pod) {
            self.allocating.insert(pod.uid(), SharedPod::clone(&pod));
            return Admission::decided(pod, Decision::Allocate, Vec::new());
        }
        self.dispatch_run(pod)
    }

    fn dispatch_run(&mut self, pod: SharedPod) -> Admission {
        let dispatches = vec![Dispatch::Run(SharedPod::clone(&pod))];
        match self.admitted.insert(pod.uid()) {
            true => Admission::decided(pod, Decision::Admit, dispatches),
            false => Admission {
                decided: None,
                dispatches,
            },
        }
    }

    /// Decides about a new or waiting pod that does not fit beside all others. Waiting pods that are
    /// behind it do not count.
    fn decide(&mut self, pod: SharedPod, context: AdmissionContext<'_>) -> Admission {
        let mut load = self.load.clone();
        for behind in self.preemptions.waiting_behind(&pod) {
            load.remove(&behind);
        }
        let Err(rejection) = check(&pod, &load, context) else {
            self.preemptions.stop_waiting(&pod.uid());
            return self.run(pod, context.scope);
        };
        for victim in self.preemptions.victims() {
            load.remove(victim);
        }
        let lacking = match check(&pod, &load, context) {
            Ok(()) => {
                self.wait(&pod);
                return Admission::decided(pod, Decision::Wait, Vec::new());
            }
            Err(rejection) => rejection.lacking,
        };
        if lacking.is_empty() {
            return self.reject_after_resources(pod, rejection, context);
        }
        match self.plan(&pod, &load, &lacking, context.desired) {
            Ok(plan) => self.preempt(pod, plan, context.desired),
            Err(error) => self.reject_after_resources(pod, no_victims(&error), context),
        }
    }

    /// Rejects a pod, after the managers of its resources have decided about it. Upstream's have an
    /// admission handler between sysctls and predicates, and count each pod that reaches it.
    fn reject_after_resources(
        &mut self,
        pod: SharedPod,
        rejection: Rejection,
        context: AdmissionContext<'_>,
    ) -> Admission {
        let is_earlier = admit_before_resources(input(&pod, &self.load, context)).is_err();
        if is_earlier || !context.scope.covers(&pod) {
            return self.reject(pod, rejection);
        }
        let uid = pod.uid();
        self.stop_waiting(&uid);
        self.allocating.insert(uid, SharedPod::clone(&pod));
        Admission::decided(pod, Decision::RejectAfterResources(rejection), Vec::new())
    }

    /// Chooses the pods to preempt beside those that do not count in `load`.
    fn plan(
        &self,
        pod: &Pod,
        load: &NodeLoad,
        lacking: &[Insufficient],
        desired: &DesiredPods,
    ) -> Result<PreemptionPlan, PreemptionError> {
        let running = desired.pods().filter(|other| {
            let uid = other.uid();
            load.contains(&uid) && uid != pod.uid() && !self.preemptions.is_waiting(&uid)
        });
        plan_preemption(pod, running.map(|other| &**other), lacking)
    }

    fn preempt(
        &mut self,
        pod: SharedPod,
        plan: PreemptionPlan,
        desired: &DesiredPods,
    ) -> Admission {
        self.wait(&pod);
        let dispatches = self.preempt_all(&plan, desired);
        Admission::decided(pod, Decision::Preempt(plan), dispatches)
    }

    fn preempt_all(&mut self, plan: &PreemptionPlan, desired: &DesiredPods) -> Vec<Dispatch> {
        let mut dispatches = Vec::new();
        for uid in &plan.victims {
            if let Some(dispatch) = self.reject_allocating(uid, &preempted()) {
                dispatches.push(dispatch);
                continue;
            }
            if let Some(victim) = desired.get(uid) {
                let signal = plan.signal.clone();
                let victim = Victim::new(victim, Some(signal));
                self.preemptions.add_victim(uid.clone(), victim);
            }
            self.overridden(
                uid,
                Override {
                    cause: preempted(),
                    grace: None,
                },
            );
            dispatches.push(preempt(uid.clone()));
        }
        dispatches
    }

    fn wait(&mut self, pod: &SharedPod) {
        self.load.add(pod);
        self.preemptions.wait(pod);
    }

    fn reject(&mut self, pod: SharedPod, rejection: Rejection) -> Admission {
        let uid = pod.uid();
        self.stop_waiting(&uid);
        self.rejected.insert(uid);
        let dispatch = Dispatch::Reject(SharedPod::clone(&pod), rejection.clone().into());
        Admission::decided(pod, Decision::Reject(rejection), vec![dispatch])
    }

    /// Records the cause of a termination; a waiting pod is rejected, because it has no worker.
    fn terminate(&mut self, uid: PodUid, termination: Override, dispatch: Dispatch) -> Admission {
        if let Some(dispatch) = self.reject_allocating(&uid, &termination.cause) {
            return Admission::unchanged(dispatch);
        }
        if let Some(pod) = self.preemptions.stop_waiting(&uid) {
            self.load.remove(&uid);
            self.rejected.insert(uid);
            return Admission::unchanged(Dispatch::Reject(pod, termination.cause));
        }
        self.overridden(&uid, termination);
        Admission::unchanged(dispatch)
    }

    fn stop_waiting(&mut self, uid: &PodUid) {
        let waited = self.preemptions.stop_waiting(uid).is_some();
        if self.allocating.remove(uid).is_some() || waited {
            self.load.remove(uid);
        }
    }

    /// Keeps the first cause.
    fn overridden(&mut self, uid: &PodUid, termination: Override) {
        if self.is_admitted(uid) {
            self.overrides.entry(uid.clone()).or_insert(termination);
        }
    }
}

fn check(pod: &Pod, load: &NodeLoad, context: AdmissionContext<'_>) -> Result<(), Rejection> {
    let node = node_for(pod, context);
    let context = AdmissionContext {
        node: &node,
        ..context
    };
    admit(input(pod, load, context))
}

/// Returns the node without the resources of device plugins that a pod requests: they are not
/// compared, their allocation decides.
fn node_for<'a>(pod: &Pod, context: AdmissionContext<'a>) -> Cow<'a, Node> {
    let requested: Vec<_> = context.scope.requested(pod).collect();
    let mut node = Cow::Borrowed(context.node);
    if !requested.is_empty() {
        let status = node.to_mut().status.as_mut();
        if let Some(list) = status.and_then(|status| status.allocatable.as_mut()) {
            list.retain(|name, _| !requested.contains(&name.as_str()));
        }
    }
    node
}

fn input<'a>(
    pod: &'a Pod,
    load: &'a NodeLoad,
    context: AdmissionContext<'a>,
) -> AdmissionInput<'a> {
    AdmissionInput {
        pod,
        node: context.node,
        load,
        policy: context.policy,
        strict_groups: context.strict_groups,
        pressure: context.pressure,
        shutting_down: context.shutting_down,
    }
}

fn no_victims(error: &PreemptionError) -> Rejection {
    let message = format!(
        "Unexpected error while attempting to recover from admission failure: preemption: error \
         finding a set of pods to preempt: {error}"
    );
    Rejection::new(UNEXPECTED, message)
}

/// True if the API status has a start time.
fn was_started(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    !pod.is_static() && status.is_some_and(|status| status.start_time.is_some())
}
