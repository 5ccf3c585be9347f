//! Invariants of containers, sandboxes, devices and volumes.

use std::collections::BTreeMap;

use windlass_testing::fake_runtime::{RuntimeChange, RuntimeChangeKind};
use windlass_types::PodUid;

use super::Invariant;
use crate::observation::{Event, Observation};
use crate::view::{ContainerFacts, View};

/// Name of init containers that end.
const INIT: &str = "first";

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(OneInstance),
        Box::new(OneSandbox::default()),
        Box::new(OneStaticPod),
        Box::new(OneDeviceOwner),
        Box::new(InitRunsOnce),
        Box::new(VolumesInUse),
    ]
}

/// The start of a container, if the observation is one.
fn started<'a>(
    observation: &'a Observation,
    view: &'a View,
) -> Option<(&'a RuntimeChange, &'a ContainerFacts)> {
    match &observation.event {
        Event::Runtime(change) if change.kind == RuntimeChangeKind::Started => {
            Some((change, view.containers.get(&change.id)?))
        }
        _ => None,
    }
}

/// Containers that run, except one.
fn others<'a>(view: &'a View, id: &'a str) -> impl Iterator<Item = &'a ContainerFacts> {
    let containers = view.containers.values();
    containers.filter(move |c| c.id != id && c.ended.is_none())
}

#[derive(Debug)]
struct OneInstance;

impl Invariant for OneInstance {
    fn name(&self) -> &'static str {
        "one-instance"
    }

    fn sentence(&self) -> &'static str {
        "Two instances of a container never run together."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Some((change, new)) = started(observation, view) else {
            return Ok(());
        };
        let mut others = others(view, &change.id);
        match others.find(|c| c.uid == new.uid && c.name == new.name) {
            None => Ok(()),
            Some(other) => Err(format!(
                "{} started while attempt {} was running",
                change.subject, other.attempt
            )),
        }
    }
}

/// The ready sandbox of each pod.
#[derive(Debug, Default)]
struct OneSandbox(BTreeMap<PodUid, String>);

impl Invariant for OneSandbox {
    fn name(&self) -> &'static str {
        "one-sandbox"
    }

    fn sentence(&self) -> &'static str {
        "A pod has one ready sandbox: one whose response was lost is used."
    }

    fn check(&mut self, observation: &Observation, _: &View) -> Result<(), String> {
        let Event::Runtime(change) = &observation.event else {
            return Ok(());
        };
        match change.kind {
            RuntimeChangeKind::SandboxStarted => {
                let old = self.0.insert(change.uid.clone(), change.id.clone());
                old.map_or(Ok(()), |old| Err(format!("{change}, {old} is ready")))
            }
            RuntimeChangeKind::SandboxEnded | RuntimeChangeKind::Removed => {
                self.0.retain(|_, id| *id != change.id);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct OneStaticPod;

impl Invariant for OneStaticPod {
    fn name(&self) -> &'static str {
        "one-static-pod"
    }

    fn sentence(&self) -> &'static str {
        "Two static pods of one full name never run together."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Some((change, new)) = started(observation, view) else {
            return Ok(());
        };
        if !view.statics.contains_key(&new.uid) {
            return Ok(());
        }
        let mut others = others(view, &change.id);
        let twin = others
            .find(|c| c.pod == new.pod && c.uid != new.uid && view.statics.contains_key(&c.uid));
        match twin {
            None => Ok(()),
            Some(twin) => Err(format!(
                "{} of {} started while {} of {} was running",
                change.subject, new.uid, twin.name, twin.uid
            )),
        }
    }
}

#[derive(Debug)]
struct OneDeviceOwner;

impl Invariant for OneDeviceOwner {
    fn name(&self) -> &'static str {
        "one-device-owner"
    }

    fn sentence(&self) -> &'static str {
        "A device belongs to the running containers of one pod only."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Some((change, new)) = started(observation, view) else {
            return Ok(());
        };
        let mut others = others(view, &change.id);
        let owner = others.find(|c| {
            let is_shared = c.devices.iter().any(|device| new.devices.contains(device));
            c.uid != new.uid && is_shared
        });
        match owner {
            None => Ok(()),
            Some(owner) => Err(format!(
                "{} started with {} of {}",
                change.subject,
                new.devices.join(" "),
                owner.pod
            )),
        }
    }
}

#[derive(Debug)]
struct InitRunsOnce;

impl Invariant for InitRunsOnce {
    fn name(&self) -> &'static str {
        "init-runs-once"
    }

    fn sentence(&self) -> &'static str {
        "An init container does not run again while the containers after it run."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Some((change, new)) = started(observation, view) else {
            return Ok(());
        };
        if new.name != INIT {
            return Ok(());
        }
        let mut others = others(view, &change.id);
        match others.find(|c| c.uid == new.uid && c.name != INIT) {
            None => Ok(()),
            Some(app) => Err(format!(
                "{} started while {} was running",
                change.subject, app.name
            )),
        }
    }
}

#[derive(Debug)]
struct VolumesInUse;

impl Invariant for VolumesInUse {
    fn name(&self) -> &'static str {
        "volumes-in-use"
    }

    fn sentence(&self) -> &'static str {
        "No volume is torn down under a running container, and none is used before it is mounted."
    }

    fn check(&mut self, observation: &Observation, _: &View) -> Result<(), String> {
        match &observation.event {
            Event::Volumes(text) => Err(text.clone()),
            _ => Ok(()),
        }
    }
}
