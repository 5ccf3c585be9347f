//! Invariants of pods in the API server.

use std::collections::BTreeMap;

use windlass_testing::fake_runtime::RuntimeChangeKind;
use windlass_types::{PodExt, PodUid};

use super::Invariant;
use crate::observation::{Event, Observation, is_terminal, phase};
use crate::view::View;

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(TerminalPhase::default()),
        Box::new(TerminalRuns),
        Box::new(ObjectAfterContainers),
    ]
}

#[derive(Debug, Default)]
struct TerminalPhase(BTreeMap<PodUid, String>);

impl Invariant for TerminalPhase {
    fn name(&self) -> &'static str {
        "terminal-phase"
    }

    fn sentence(&self) -> &'static str {
        "A pod never leaves a terminal phase."
    }

    fn check(&mut self, observation: &Observation, _: &View) -> Result<(), String> {
        let Event::Pod { pod, is_deleted } = &observation.event else {
            return Ok(());
        };
        let uid = pod.uid();
        if *is_deleted {
            self.0.remove(&uid);
            return Ok(());
        }
        let new = phase(pod);
        match self.0.get(&uid) {
            Some(was) if was != new => Err(format!("{} went from {was} to {new}", pod.name())),
            Some(_) => Ok(()),
            None => {
                if is_terminal(new) {
                    self.0.insert(uid, new.to_owned());
                }
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
struct TerminalRuns;

impl Invariant for TerminalRuns {
    fn name(&self) -> &'static str {
        "ended-pod-stays-ended"
    }

    fn sentence(&self) -> &'static str {
        "No container of a pod starts or runs once the pod is rejected, failed or succeeded."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let uid = match &observation.event {
            Event::Pod { pod, .. } => pod.uid(),
            Event::Runtime(change) if change.kind == RuntimeChangeKind::Started => {
                change.uid.clone()
            }
            _ => return Ok(()),
        };
        let Some(facts) = view.pods.get(&uid) else {
            return Ok(());
        };
        if facts.is_mirror || facts.terminal.is_none() {
            return Ok(());
        }
        match view.running(&uid).next() {
            None => Ok(()),
            Some(container) => Err(format!(
                "{} of {} runs, the pod is {}",
                container.name,
                facts.pod.name(),
                phase(&facts.pod)
            )),
        }
    }
}

#[derive(Debug)]
struct ObjectAfterContainers;

impl Invariant for ObjectAfterContainers {
    fn name(&self) -> &'static str {
        "object-after-containers"
    }

    fn sentence(&self) -> &'static str {
        "The object of a deleted pod is removed only after its containers ended, except by force."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Pod {
            pod,
            is_deleted: true,
        } = &observation.event
        else {
            return Ok(());
        };
        let uid = pod.uid();
        let Some(facts) = view.pods.get(&uid) else {
            return Ok(());
        };
        if facts.is_mirror || facts.is_forced {
            return Ok(());
        }
        match view.running(&uid).next() {
            None => Ok(()),
            Some(container) => Err(format!(
                "{} was removed while {} was running",
                pod.name(),
                container.name
            )),
        }
    }
}
