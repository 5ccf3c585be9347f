//! Invariants of statuses: nothing in them goes back.

use std::collections::BTreeMap;

use windlass_types::{PodExt, PodUid, Timestamp};

use super::Invariant;
use crate::observation::{Event, Observation, phase};
use crate::view::View;

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(RestartCounts::default()),
        Box::new(StatusGoesForward::default()),
    ]
}

/// Restart counts by pod and container.
#[derive(Debug, Default)]
struct RestartCounts(BTreeMap<PodUid, BTreeMap<String, i32>>);

impl Invariant for RestartCounts {
    fn name(&self) -> &'static str {
        "restart-counts"
    }

    fn sentence(&self) -> &'static str {
        "A restart count in the API server never decreases."
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
        let status = pod.status.as_ref();
        let apps = status.and_then(|s| s.container_statuses.as_ref());
        let init = status.and_then(|s| s.init_container_statuses.as_ref());
        let known = self.0.entry(uid).or_default();
        for status in apps.into_iter().chain(init).flatten() {
            let new = status.restart_count;
            let was = known.insert(status.name.clone(), new).unwrap_or(0);
            if new < was {
                let (pod, name) = (pod.name(), &status.name);
                return Err(format!("{pod}/{name} had {was} restarts, now {new}"));
            }
        }
        Ok(())
    }
}

/// Phase, start time and observed generation of a pod.
#[derive(Debug, Default)]
struct Reported {
    phase: String,
    started: Option<Timestamp>,
    generation: i64,
}

#[derive(Debug, Default)]
struct StatusGoesForward(BTreeMap<PodUid, Reported>);

impl Invariant for StatusGoesForward {
    fn name(&self) -> &'static str {
        "status-goes-forward"
    }

    fn sentence(&self) -> &'static str {
        "A status does not go back in time: its start time stays, its observed generation grows, \
         and Running becomes Pending only after a reboot or a lost sandbox."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Pod { pod, is_deleted } = &observation.event else {
            return Ok(());
        };
        let uid = pod.uid();
        if *is_deleted {
            self.0.remove(&uid);
            return Ok(());
        }
        let status = pod.status.as_ref();
        let started = status.and_then(|status| status.start_time.as_ref());
        let new = Reported {
            phase: phase(pod).to_owned(),
            started: started.map(|time| time.0),
            generation: status.and_then(|s| s.observed_generation).unwrap_or(0),
        };
        let facts = view.pods.get(&uid);
        let is_hit = facts.is_none_or(|facts| facts.harmed.is_some() || facts.is_mirror);
        let may_restart = is_hit || view.rebooted.is_some();
        let was = self.0.entry(uid).or_default();
        let name = pod.name();
        let text = if was.started.is_some() && was.started != new.started {
            Some(format!(
                "{name} started at {:?}, now {:?}",
                was.started, new.started
            ))
        } else if new.generation < was.generation {
            let (was, new) = (was.generation, new.generation);
            Some(format!("{name} had observed generation {was}, now {new}"))
        } else if was.phase == "Running" && new.phase == "Pending" && !may_restart {
            Some(format!("{name} went from Running to Pending"))
        } else {
            None
        };
        *was = new;
        text.map_or(Ok(()), Err)
    }
}
