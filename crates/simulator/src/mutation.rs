//! Mutations: defects planted at the edge of the agent, to check that an invariant finds them.
//!
//! A mutation acts between the agent and the fakes, as a defect of the agent would. It is not part
//! of a plan, so a plan can be run with and without it.

use std::fmt;

use windlass_testing::NodeSim;
use windlass_types::Pod;

use crate::observation::{Event, Observation, is_terminal, phase};

/// A planted defect.
pub trait Mutation: fmt::Debug {
    /// Short name, in words with hyphens.
    fn name(&self) -> &'static str;

    /// The defect, in one sentence.
    fn sentence(&self) -> &'static str;

    /// Name of the invariant that finds it.
    fn invariant(&self) -> &'static str;

    /// Acts before an agent run starts.
    fn before_start(&mut self, _sim: &NodeSim) {}

    /// Acts after an observation.
    fn after(&mut self, _observation: &Observation, _sim: &NodeSim) {}
}

/// Returns all mutations.
pub fn all() -> Vec<Box<dyn Mutation>> {
    vec![Box::new(TerminalPhaseIsLeft)]
}

/// Returns the mutation with a name.
pub(crate) fn named(name: &str) -> Option<Box<dyn Mutation>> {
    all().into_iter().find(|mutation| mutation.name() == name)
}

#[derive(Debug)]
struct TerminalPhaseIsLeft;

impl Mutation for TerminalPhaseIsLeft {
    fn name(&self) -> &'static str {
        "terminal-phase-is-left"
    }

    fn sentence(&self) -> &'static str {
        "A pod that succeeded is reported as Running again."
    }

    fn invariant(&self) -> &'static str {
        "terminal-phase"
    }

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        use windlass_types::PodExt as _;
        let Event::Pod {
            pod,
            is_deleted: false,
        } = &observation.event
        else {
            return;
        };
        let exists = sim.api.get::<Pod>(Some(pod.namespace()), pod.name());
        if is_terminal(phase(pod)) && exists.is_some() {
            sim.api
                .modify::<Pod>(Some(pod.namespace()), pod.name(), |pod| {
                    pod.status.get_or_insert_default().phase = Some("Running".to_owned());
                });
        }
    }
}
