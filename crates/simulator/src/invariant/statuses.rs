//! Invariants of statuses: nothing in them goes back.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_testing::EPOCH;
use windlass_types::{Pod, PodExt, PodUid, Timestamp};

use super::Invariant;
use crate::observation::{Event, Observation, is_ready, phase};
use crate::step::PodKind;
use crate::view::View;

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(RestartCounts::default()),
        Box::new(StatusGoesForward::default()),
        Box::new(ReadyIsProbed::default()),
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
        "A restart count in the API server never decreases, except by a late request."
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
        let apps = status.and_then(|s| s.container_statuses.as_ref());
        let init = status.and_then(|s| s.init_container_statuses.as_ref());
        let known = self.0.entry(uid).or_default();
        for status in apps.into_iter().chain(init).flatten() {
            let new = status.restart_count;
            let was = known.insert(status.name.clone(), new).unwrap_or(0);
            if new < was && !view.may_see_late_request() {
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
    /// When the start time was first seen.
    since: Duration,
    generation: i64,
}

impl Reported {
    /// True if the start time is of a request of a previous agent run that took effect in this one: this
    /// run may have sent its own before.
    fn is_of_late_request(&self, view: &View) -> bool {
        let Some(agent) = view.agent_since.filter(|agent| self.since >= *agent) else {
            return false;
        };
        let is_older = self.started < Some(EPOCH + agent);
        is_older || view.clock_set.is_some()
    }
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
        let was = self.0.entry(uid.clone()).or_default();
        let started = started.map(|time| time.0);
        let new = Reported {
            phase: phase(pod).to_owned(),
            since: match was.started == started {
                true => was.since,
                false => observation.at,
            },
            started,
            generation: status.and_then(|s| s.observed_generation).unwrap_or(0),
        };
        let facts = view.pods.get(&uid);
        let is_hit = facts.is_none_or(|facts| facts.harmed.is_some() || facts.is_mirror);
        let may_restart = is_hit || view.rebooted.is_some();
        let name = pod.name();
        let is_restarted = was.started.is_some() && was.started != new.started;
        let text = if is_restarted && !was.is_of_late_request(view) {
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

/// Time in which a probe that succeeded before its server failed is published.
const RESULT_LAG: Duration = Duration::from_secs(5);
/// Time after a fault of the API server by which it has the newest status.
const API_LAG: Duration = Duration::from_secs(30);

/// A server that fails every probe.
#[derive(Debug)]
struct FailingServer {
    since: Duration,
    /// Address of the pod.
    address: Option<String>,
}

/// Failing servers by pod name, and which pods are ready.
#[derive(Debug, Default)]
struct ReadyIsProbed {
    failing: BTreeMap<String, FailingServer>,
    ready: BTreeMap<PodUid, bool>,
}

impl ReadyIsProbed {
    /// Reads the text of a fault that began or ended: `respond POD RESPONSE SECONDS`.
    fn fault(&mut self, text: &str, begins: bool, view: &View) {
        let Some(text) = text.strip_prefix("respond ") else {
            return;
        };
        let mut words = text.split(' ');
        let (name, response) = (words.next().unwrap_or_default(), words.next());
        // the end of one fault ends those that overlap
        if !begins || !matches!(response, Some("error" | "refused" | "hung")) {
            self.failing.remove(name);
            return;
        }
        let facts = view.pod_named(name).map(|(_, facts)| facts);
        let server = FailingServer {
            since: view.now,
            address: facts.and_then(|facts| address(&facts.pod)),
        };
        self.failing.entry(name.to_owned()).or_insert(server);
    }

    fn is_failing(&self, pod: &Pod, view: &View) -> bool {
        let Some(server) = self.failing.get(pod.name()) else {
            return false;
        };
        let facts = view.pods.get(&pod.uid());
        let is_probed = facts.is_some_and(|facts| facts.kind == Some(PodKind::Web));
        let is_settled = view.now >= server.since + RESULT_LAG;
        let is_late = view.has_fault("api ", API_LAG);
        // its last result could not be written
        let is_lost = view.lost_writes.is_some_and(|at| at >= server.since);
        is_probed && is_settled && server.address == address(pod) && !is_late && !is_lost
    }
}

fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

impl Invariant for ReadyIsProbed {
    fn name(&self) -> &'static str {
        "ready-is-probed"
    }

    fn sentence(&self) -> &'static str {
        "A pod does not become ready while its readiness probe fails: by no agent restart, and by no \
         old result."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let (pod, is_deleted) = match &observation.event {
            Event::FaultBegan(text) => {
                self.fault(text, true, view);
                return Ok(());
            }
            Event::FaultEnded(text) => {
                self.fault(text, false, view);
                return Ok(());
            }
            Event::Pod { pod, is_deleted } => (pod, *is_deleted),
            _ => return Ok(()),
        };
        let uid = pod.uid();
        if is_deleted {
            self.ready.remove(&uid);
            return Ok(());
        }
        let is_ready = is_ready(pod);
        let was_ready = self.ready.insert(uid, is_ready).unwrap_or(false);
        match is_ready && !was_ready && self.is_failing(pod, view) {
            true => Err(format!("{} is ready, and its probe fails", pod.name())),
            false => Ok(()),
        }
    }
}
