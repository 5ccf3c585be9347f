//! Invariants of the node: its condition Ready and its lease.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Invariant;
use crate::observation::{Event, Observation};
use crate::view::View;

/// Time after a fault in which the node may follow it: relists, checks and back-offs.
const AFTER_FAULT: Duration = Duration::from_secs(300);
/// Duration of the lease: without a renewal the node is lost.
const LEASE: Duration = Duration::from_secs(40);

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(NodeStaysReady::default()),
        Box::new(LeaseOnTime::default()),
    ]
}

/// Faults of one group: those in effect, and when the last one began or ended.
#[derive(Debug, Default)]
struct Faults {
    active: BTreeSet<String>,
    last: Option<Duration>,
}

impl Faults {
    /// Follows the faults whose text fits.
    fn follow(&mut self, observation: &Observation, fits: impl Fn(&str) -> bool) {
        match &observation.event {
            Event::FaultBegan(text) if fits(text) => {
                self.active.insert(text.clone());
            }
            Event::FaultEnded(text) if fits(text) => {
                self.active.remove(text);
            }
            _ => return,
        }
        self.last = Some(observation.at);
    }

    /// Returns true if a fault is in effect, or was within a time.
    fn is_recent(&self, now: Duration, within: Duration) -> bool {
        let is_near = |last: Duration| now.saturating_sub(last) < within;
        !self.active.is_empty() || self.last.is_some_and(is_near)
    }
}

/// Faults in which the runtime as a whole does not respond, or lists nothing.
fn is_of_whole_runtime(text: &str) -> bool {
    let mut words = text.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("runtime-restart"), ..) => true,
        (Some("runtime"), Some("down" | "no-network"), _) => true,
        (Some("runtime"), _, Some(target)) => {
            target.starts_with("list-c") || target == "list-sandboxes"
        }
        _ => false,
    }
}

#[derive(Debug, Default)]
struct NodeStaysReady {
    faults: Faults,
    was_ready: bool,
}

impl Invariant for NodeStaysReady {
    fn name(&self) -> &'static str {
        "node-stays-ready"
    }

    fn sentence(&self) -> &'static str {
        "A ready node stays ready while its runtime responds, also when calls of one pod hang or \
         the agent restarts."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        self.faults.follow(observation, is_of_whole_runtime);
        let Event::Node { ready, is_deleted } = &observation.event else {
            return Ok(());
        };
        let is_ready = ready == "True" && !is_deleted;
        let was_ready = std::mem::replace(&mut self.was_ready, is_ready);
        let is_lost = was_ready && !is_ready && !is_deleted;
        let is_reboot = view
            .rebooted
            .is_some_and(|at| view.now.saturating_sub(at) < AFTER_FAULT);
        if !is_lost || is_reboot || self.faults.is_recent(view.now, AFTER_FAULT) {
            return Ok(());
        }
        Err(format!("its condition Ready is {ready}"))
    }
}

/// Faults of requests for the lease.
fn is_of_lease(text: &str) -> bool {
    let mut words = text.split(' ');
    words.next() == Some("api")
        && words
            .nth(1)
            .is_some_and(|to| ["any", "lease"].contains(&to))
}

#[derive(Debug, Default)]
struct LeaseOnTime {
    faults: Faults,
    renewed: Duration,
}

impl Invariant for LeaseOnTime {
    fn name(&self) -> &'static str {
        "lease-on-time"
    }

    fn sentence(&self) -> &'static str {
        "The lease is renewed on time, whatever other requests fail or hang."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        self.faults.follow(observation, is_of_lease);
        match observation.event {
            Event::Lease => self.renewed = observation.at,
            Event::Tick if !self.faults.is_recent(view.now, LEASE) => {
                let Some(agent) = view.agent_since else {
                    return Ok(());
                };
                let late = view.now.saturating_sub(self.renewed.max(agent));
                if late > LEASE {
                    return Err(format!("it was not renewed for {} s", late.as_secs()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
