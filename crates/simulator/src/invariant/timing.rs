//! Invariants of time: grace periods, readiness, deletions and probes.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_testing::fake_runtime::RuntimeChangeKind;
use windlass_types::{Pod, PodExt, PodUid};

use super::Invariant;
use crate::observation::{Event, Observation, is_terminal, phase};
use crate::step::PodKind;
use crate::view::{PodFacts, View};

/// Time by which a grace period may be cut short: requests have whole seconds.
const GRACE_CUT: Duration = Duration::from_secs(1);
/// Time by which a grace period may be exceeded without a fault: retries, and the check's interval.
const GRACE_EXCESS: Duration = Duration::from_secs(30);
/// Time after which the API server must have the readiness of a calm node.
const READY_LAG: Duration = Duration::from_secs(60);
/// Time after the grace period in which a deleted pod's object is removed on a calm node: volumes
/// and directories are retried with a back-off of up to two minutes.
const DELETION_LAG: Duration = Duration::from_secs(180);
/// Bound of the time of a watch: a silent one is noticed when it ends.
const WATCH_TIMEOUT: Duration = Duration::from_secs(600);
/// Period of probes in a plan.
const PROBE_PERIOD: Duration = Duration::from_secs(5);
/// Time by which an attempt may be late, with its timeout of 1 s and the check's interval.
const PROBE_LAG: Duration = Duration::from_secs(7);

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(GraceIsKept),
        Box::new(GraceIsLimited),
        Box::new(ReadyIsCurrent),
        Box::new(DeletionEnds),
        Box::new(ProbesOnTime::default()),
    ]
}

#[derive(Debug)]
struct GraceIsKept;

impl Invariant for GraceIsKept {
    fn name(&self) -> &'static str {
        "grace-is-kept"
    }

    fn sentence(&self) -> &'static str {
        "A container that ignores SIGTERM is not killed before its grace period is over, also not \
         by a new agent run."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Runtime(change) = &observation.event else {
            return Ok(());
        };
        if !matches!(change.kind, RuntimeChangeKind::Ended(_)) {
            return Ok(());
        }
        let Some(container) = view.containers.get(&change.id) else {
            return Ok(());
        };
        let Some(facts) = view.pods.get(&container.uid) else {
            return Ok(());
        };
        let is_reboot = view.rebooted == Some(view.now);
        let is_exempt =
            facts.harmed.is_some() || facts.is_forced || view.pressure.is_some() || is_reboot;
        if container.name != PodKind::Stubborn.as_str() || is_exempt {
            return Ok(());
        }
        let of_deletion = facts.pod.metadata.deletion_grace_period_seconds;
        let of_deletion = of_deletion.and_then(|s| u64::try_from(s).ok());
        let of_deletion = of_deletion.map(Duration::from_secs);
        // if each stop failed, its sandbox is stopped after the grace period of the deletion
        let deleted = || Some((facts.deleted?, of_deletion?));
        let Some((requested, grace)) = container.stop_requested.or_else(deleted) else {
            return Err(format!("{} ended without a stop", change.subject));
        };
        // the next agent run continues a stop until the deletionTimestamp, also one that began late; the
        // clock of the node may be ahead of it
        let is_resumed = view.killed.is_some_and(|at| at >= requested);
        let is_over = deleted().is_some_and(|(at, grace)| view.now + GRACE_CUT >= at + grace);
        if is_resumed && (is_over || view.clock_set.is_some()) {
            return Ok(());
        }
        // a later deletion may shorten it
        let grace = grace.min(of_deletion.unwrap_or(grace));
        let waited = observation.at.saturating_sub(requested);
        match waited + GRACE_CUT >= grace {
            true => Ok(()),
            false => Err(format!(
                "{} was killed after {:.1} s of {} s",
                change.subject,
                waited.as_secs_f64(),
                grace.as_secs()
            )),
        }
    }
}

#[derive(Debug)]
struct GraceIsLimited;

impl Invariant for GraceIsLimited {
    fn name(&self) -> &'static str {
        "grace-is-limited"
    }

    fn sentence(&self) -> &'static str {
        "Without a fault a container does not run longer than its grace period after a stop request."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        if !matches!(observation.event, Event::Tick) {
            return Ok(());
        }
        let calm = view.calm_for();
        let late = view.containers.values().find(|container| {
            let requested = container
                .stop_requested
                .filter(|_| container.ended.is_none());
            requested.is_some_and(|(at, grace)| {
                let limit = grace + GRACE_EXCESS;
                calm > limit && view.now.saturating_sub(at) > limit
            })
        });
        late.map_or(Ok(()), |c| {
            let (requested, grace) = c.stop_requested.unwrap_or_default();
            Err(format!(
                "{} of {} runs {} s after a stop request with {} s",
                c.name,
                c.pod,
                view.now.saturating_sub(requested).as_secs(),
                grace.as_secs()
            ))
        })
    }
}

#[derive(Debug)]
struct ReadyIsCurrent;

impl ReadyIsCurrent {
    fn check_pod(uid: &PodUid, facts: &PodFacts, view: &View) -> Result<(), String> {
        let is_steady = |since: Duration| view.now.saturating_sub(since) > READY_LAG;
        let is_hit = facts.disturbed.is_some_and(|at| !is_steady(at));
        if facts.is_mirror || facts.is_deleted() || facts.terminal.is_some() || is_hit {
            return Ok(());
        }
        let name = facts.pod.name();
        let mut running = 0;
        let mut newest = Duration::ZERO;
        for container in view.running(uid) {
            running += 1;
            newest = newest.max(container.started);
        }
        let of_pod = view.containers.values().filter(|c| c.uid == *uid);
        let last_end = of_pod.filter_map(|c| Some(c.ended?.0)).max();
        let last_end = last_end.unwrap_or_default();
        if running == 0 && facts.is_ready() && is_steady(last_end) {
            return Err(format!("{name} is ready and no container runs"));
        }
        // only pods whose containers run from the start are ready when all of them run
        let kinds = [PodKind::Web, PodKind::Stubborn, PodKind::Host, PodKind::Hog];
        let is_plain = facts.kind.is_some_and(|kind| kinds.contains(&kind));
        let is_served = facts.harmed.is_none();
        if is_plain && is_served && running == 1 && !facts.is_ready() && is_steady(newest) {
            return Err(format!("{name} runs and is not ready"));
        }
        Ok(())
    }
}

impl Invariant for ReadyIsCurrent {
    fn name(&self) -> &'static str {
        "ready-is-current"
    }

    fn sentence(&self) -> &'static str {
        "A minute after the last fault, the Ready condition in the API server is that of the \
         containers."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        if !matches!(observation.event, Event::Tick) || view.calm_for() <= READY_LAG {
            return Ok(());
        }
        let mut pods = view.pods.iter();
        pods.try_for_each(|(uid, facts)| Self::check_pod(uid, facts, view))
    }
}

#[derive(Debug)]
struct DeletionEnds;

impl Invariant for DeletionEnds {
    fn name(&self) -> &'static str {
        "deletion-ends"
    }

    fn sentence(&self) -> &'static str {
        "Without a fault the object of a deleted pod is removed soon after its grace period."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        if !matches!(observation.event, Event::Tick) {
            return Ok(());
        }
        let is_silent = |at: Duration| view.now.saturating_sub(at) < WATCH_TIMEOUT + DELETION_LAG;
        if view.silenced.is_some_and(is_silent) {
            return Ok(());
        }
        let calm = view.calm_for();
        let late = view.pods.values().find(|facts| {
            let seconds = facts
                .pod
                .metadata
                .deletion_grace_period_seconds
                .unwrap_or(0);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            let limit = grace + DELETION_LAG;
            let since = facts.deleted.filter(|_| facts.removed.is_none());
            since.is_some_and(|at| calm > limit && view.now.saturating_sub(at) > limit)
        });
        late.map_or(Ok(()), |facts| {
            let (name, phase) = (facts.pod.name(), phase(&facts.pod));
            Err(format!("{name} ({phase}) was deleted and is still there"))
        })
    }
}

/// Time of the last attempt by address.
#[derive(Debug, Default)]
struct ProbesOnTime(BTreeMap<String, Duration>);

impl ProbesOnTime {
    fn check_pod(&self, uid: &PodUid, facts: &PodFacts, view: &View) -> Result<(), String> {
        let limit = PROBE_PERIOD + PROBE_LAG;
        let is_probed = matches!(facts.kind, Some(PodKind::Web | PodKind::Live));
        if !is_probed || facts.is_deleted() || is_terminal(phase(&facts.pod)) {
            return Ok(());
        }
        let Some(ip) = ip(&facts.pod) else {
            return Ok(());
        };
        let mut running = view.running(uid);
        let Some(container) = running.next().filter(|c| c.stop_requested.is_none()) else {
            return Ok(());
        };
        // until then its address is that of the previous sandbox
        if !reports(&facts.pod, &container.id) {
            return Ok(());
        }
        // a liveness probe that failed is on hold until the container is replaced, as upstream
        let may_be_on_hold = facts.kind == Some(PodKind::Live)
            && facts.harmed.is_some_and(|at| at >= container.started);
        // an eviction that waits for the runtime is not in the status
        let is_short = view.pressure.is_some_and(|at| at >= container.started);
        let may_be_evicted = is_short && !facts.is_ready();
        let Some(agent) = view.agent_since else {
            return Ok(());
        };
        if may_be_on_hold || may_be_evicted {
            return Ok(());
        }
        let last = self.0.get(ip).copied().unwrap_or_default();
        // probes that have begun continue whatever happens; before, the runtime may report nothing
        let has_begun = last >= container.started.max(agent);
        let expected_since = match (has_begun, view.calm_since()) {
            (true, _) => last,
            (false, Some(calm)) => calm.max(container.started).max(agent),
            (false, None) => return Ok(()),
        };
        match view.now.saturating_sub(expected_since) > limit {
            true => Err(format!(
                "{} was last probed {} s ago",
                facts.pod.name(),
                view.now.saturating_sub(last).as_secs()
            )),
            false => Ok(()),
        }
    }
}

/// True if the status has this instance of a container.
fn reports(pod: &Pod, id: &str) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let mut ids = statuses
        .into_iter()
        .flatten()
        .filter_map(|status| status.container_id.as_deref());
    ids.any(|reported| reported.ends_with(id))
}

fn ip(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

impl Invariant for ProbesOnTime {
    fn name(&self) -> &'static str {
        "probes-on-time"
    }

    fn sentence(&self) -> &'static str {
        "The probes of a pod are on time, whatever hangs elsewhere."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        match &observation.event {
            Event::Probe { host, .. } => {
                self.0.insert(host.clone(), observation.at);
            }
            Event::Pod {
                pod,
                is_deleted: true,
            } => {
                if let Some(ip) = ip(pod) {
                    self.0.remove(ip);
                }
            }
            Event::Tick => {
                let mut pods = view.pods.iter();
                return pods.try_for_each(|(uid, facts)| self.check_pod(uid, facts, view));
            }
            _ => {}
        }
        Ok(())
    }
}
