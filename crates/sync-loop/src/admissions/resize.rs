//! Allocation of changed sizes beside the other pods. Pure.

use windlass_node_rules::preemption::PreemptionPlan;
use windlass_node_rules::resize::{ResizeDecision, decide_resize};
use windlass_types::SharedPod;

use super::{AdmissionContext, AdmittedPodSet, check, input, no_victims, node_for};
use crate::dispatch::Dispatch;

/// Decision about a resize, and the pods that a critical pod preempts for it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resize {
    /// The decision.
    pub decision: ResizeDecision,
    /// The preempted pods.
    pub preemption: Option<PreemptionPlan>,
    /// The updates of their workers.
    pub dispatches: Vec<Dispatch>,
}

impl AdmittedPodSet {
    /// Decides about the resize of an admitted pod. While a critical pod waits for the end of others,
    /// the resources of its spec count.
    pub(crate) fn resize(
        &mut self,
        live: &SharedPod,
        allocated: &SharedPod,
        context: AdmissionContext<'_>,
    ) -> Resize {
        let node = node_for(live, context);
        let context = AdmissionContext {
            node: &node,
            ..context
        };
        let decision = decide_resize(input(live, &self.load, context), allocated);
        let mut resize = Resize {
            decision,
            preemption: None,
            dispatches: Vec::new(),
        };
        match &resize.decision {
            ResizeDecision::Allocate => self.load.add(live),
            ResizeDecision::Deferred(rejection) if !rejection.lacking.is_empty() => {
                self.preempt_for_resize(live, &mut resize, context);
            }
            _ => self.load.add(allocated),
        }
        resize
    }

    fn preempt_for_resize(
        &mut self,
        live: &SharedPod,
        resize: &mut Resize,
        context: AdmissionContext<'_>,
    ) {
        let mut load = self.load.clone();
        for victim in self.preemptions.victims() {
            load.remove(victim);
        }
        if let Err(rejection) = check(live, &load, context) {
            match self.plan(live, &load, &rejection.lacking, context.desired) {
                Ok(plan) => {
                    resize.dispatches = self.preempt_all(&plan, context.desired);
                    resize.preemption = Some(plan);
                }
                Err(error) => {
                    resize.decision = ResizeDecision::Deferred(no_victims(&error));
                    return;
                }
            }
        }
        self.load.add(live);
    }
}
