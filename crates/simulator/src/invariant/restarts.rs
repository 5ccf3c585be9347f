//! Invariants of stops and restarts: what runs and is desired continues, back-off only grows.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_testing::fake_runtime::RuntimeChangeKind;
use windlass_types::{PodExt, PodUid};

use super::Invariant;
use crate::observation::{Event, Observation, is_ready, phase, reason};
use crate::step::{PodKind, Step};
use crate::view::{ContainerFacts, View};

/// Active deadline of pods that have one, less the rounding of the start time to seconds.
const DEADLINE: Duration = Duration::from_secs(58);
/// First back-off that is not zero, and its maximum.
const BACKOFF: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(300)];
/// Run time after which the back-off begins again.
const BACKOFF_RESET: Duration = Duration::from_secs(600);
/// Part of a back-off that may be missing, because of rounding to seconds.
const BACKOFF_TOLERANCE: Duration = Duration::from_millis(1100);

pub(super) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(UnprovokedStop),
        Box::new(ReadyFlap::default()),
        Box::new(AdmittedStays),
        Box::new(BackoffGrows::default()),
        Box::new(OneEviction::default()),
    ]
}

/// Why a running container may be stopped, or lose its readiness, without a defect.
fn provocation(view: &View, uid: &PodUid) -> Option<&'static str> {
    if let Some(facts) = view.statics.get(uid) {
        return match facts.removed {
            Some(_) => Some("its manifest was removed"),
            None => view.pressure.map(|_| "resources ran short"),
        };
    }
    let Some(facts) = view.pods.get(uid) else {
        return Some("it is not desired");
    };
    let is_deadline = facts.kind == Some(PodKind::Deadline);
    match () {
        () if facts.is_deleted() => Some("it is deleted"),
        () if facts.terminal.is_some() => Some("it ended"),
        () if facts.harmed.is_some() => Some("it was changed or hit by a fault"),
        () if view.pressure.is_some() => Some("resources ran short"),
        // the wall clock measures the deadline
        () if is_deadline && view.is_clock_set_since(facts.created) => {
            Some("its deadline may be over")
        }
        () if is_deadline && view.now.saturating_sub(facts.created) >= DEADLINE => {
            Some("its deadline is over")
        }
        () => None,
    }
}

#[derive(Debug)]
struct UnprovokedStop;

impl Invariant for UnprovokedStop {
    fn name(&self) -> &'static str {
        "no-unprovoked-stop"
    }

    fn sentence(&self) -> &'static str {
        "A running container of a desired, unchanged pod is not stopped, whatever else fails or \
         restarts."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Runtime(change) = &observation.event else {
            return Ok(());
        };
        let is_stop = match change.kind {
            RuntimeChangeKind::StopRequested(_) => true,
            RuntimeChangeKind::SandboxEnded => {
                let is_reboot = view.rebooted == Some(view.now);
                !is_reboot && view.running(&change.uid).next().is_some()
            }
            _ => false,
        };
        match is_stop && provocation(view, &change.uid).is_none() {
            true => Err(format!("{change}")),
            false => Ok(()),
        }
    }
}

/// Readiness by pod, as far as it was true.
#[derive(Debug, Default)]
struct ReadyFlap(BTreeMap<PodUid, bool>);

impl Invariant for ReadyFlap {
    fn name(&self) -> &'static str {
        "no-ready-flap"
    }

    fn sentence(&self) -> &'static str {
        "A ready pod whose containers run does not become unready because the agent, the runtime \
         or the API server fails or restarts."
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
        let is_ready = is_ready(pod);
        let was_ready = self.0.insert(uid.clone(), is_ready).unwrap_or(false);
        if is_ready || !was_ready {
            return Ok(());
        }
        let is_mirror = view.pods.get(&uid).is_some_and(|facts| facts.is_mirror);
        if is_mirror || provocation(view, &uid).is_some() || view.may_see_late_request() {
            return Ok(());
        }
        // a container that ended by itself
        let of_pod = view.containers.values().filter(|c| c.uid == uid);
        let has_ended = of_pod
            .clone()
            .any(|c| c.ended.is_some() && c.name != "first");
        match has_ended || of_pod.count() == 0 {
            true => Ok(()),
            false => Err(format!("{} ({uid}) is not ready any more", pod.name())),
        }
    }
}

#[derive(Debug)]
struct AdmittedStays;

impl Invariant for AdmittedStays {
    fn name(&self) -> &'static str {
        "admitted-stays-admitted"
    }

    fn sentence(&self) -> &'static str {
        "A pod that ran is not rejected later, also not by a new agent run."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Pod { pod, .. } = &observation.event else {
            return Ok(());
        };
        let Some(facts) = view.pods.get(&pod.uid()) else {
            return Ok(());
        };
        let text = reason(pod);
        let is_rejected =
            phase(pod) == "Failed" && !matches!(text, "" | "Evicted" | "DeadlineExceeded");
        // after a reboot a device may be missing, and without the file every pod is new
        let lost_device = facts.kind == Some(PodKind::Device) && view.rebooted.is_some();
        let lost_file = view.lost_writes.is_some();
        if !is_rejected || facts.first_run.is_none() || lost_device || lost_file {
            return Ok(());
        }
        Err(format!("{} ran and is rejected: {text}", pod.name()))
    }
}

/// Crashes of a container.
#[derive(Debug, Default)]
struct Crashes {
    restarts: u32,
    restarted: Option<Duration>,
    ended: Option<Duration>,
}

#[derive(Debug, Default)]
struct BackoffGrows {
    pods: BTreeMap<PodUid, Crashes>,
}

impl BackoffGrows {
    fn ended(&mut self, container: &ContainerFacts, at: Duration) {
        let crashes = self.pods.entry(container.uid.clone()).or_default();
        crashes.ended = Some(at);
        if at.saturating_sub(container.started) >= BACKOFF_RESET {
            crashes.restarts = 0;
        }
    }

    fn started(&mut self, container: &ContainerFacts) -> Result<(), String> {
        let crashes = self.pods.entry(container.uid.clone()).or_default();
        let Some(ended) = crashes.ended else {
            return Ok(());
        };
        // as upstream: also while the agent does not run
        let before = crashes.restarted.replace(container.started);
        if before.is_some_and(|at| container.started.saturating_sub(at) >= BACKOFF_RESET) {
            crashes.restarts = 0;
        }
        crashes.restarts += 1;
        let [first, max] = BACKOFF;
        // the first restart is immediate
        let backoff = match crashes.restarts {
            0 | 1 => Duration::ZERO,
            n => first.saturating_mul(1 << (n - 2).min(10)).min(max),
        };
        let waited = container.started.saturating_sub(ended);
        match waited + BACKOFF_TOLERANCE >= backoff {
            true => Ok(()),
            false => Err(format!(
                "restart {} of {} after {:.1} s, the back-off was {} s",
                crashes.restarts,
                container.pod,
                waited.as_secs_f64(),
                backoff.as_secs()
            )),
        }
    }
}

impl Invariant for BackoffGrows {
    fn name(&self) -> &'static str {
        "back-off-grows"
    }

    fn sentence(&self) -> &'static str {
        "The back-off of a crashing container only grows, also over agent restarts."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        match &observation.event {
            Event::Pod {
                pod,
                is_deleted: true,
            } => {
                self.pods.remove(&pod.uid());
            }
            // a container without remains is started at once, as by the Go kubelet
            Event::Step(Step::LoseRemains(kind, number)) => {
                if let Some((uid, _)) = view.pod_named(&format!("{kind}-{number}")) {
                    self.pods.remove(uid);
                }
            }
            Event::Runtime(change) => {
                let Some(container) = view.containers.get(&change.id) else {
                    return Ok(());
                };
                let facts = view.pods.get(&container.uid);
                let is_crash = container.name == PodKind::Crash.as_str();
                if !is_crash || facts.is_none_or(|facts| facts.harmed.is_some()) {
                    return Ok(());
                }
                // the wall clock measures the back-off, and files remember it
                let is_exempt = view.clock_set.is_some() || view.lost_writes.is_some();
                match change.kind {
                    RuntimeChangeKind::Ended(_) => self.ended(container, observation.at),
                    RuntimeChangeKind::Started => {
                        let checked = self.started(container);
                        return if is_exempt { Ok(()) } else { checked };
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Evicted pods: when the first stop was requested, and when the last container ended.
#[derive(Debug, Default)]
struct OneEviction(BTreeMap<PodUid, (Duration, Duration)>);

impl Invariant for OneEviction {
    fn name(&self) -> &'static str {
        "one-eviction"
    }

    fn sentence(&self) -> &'static str {
        "One pod is evicted at a time: the next one is stopped after the previous one has ended."
    }

    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String> {
        let Event::Pod { pod, is_deleted } = &observation.event else {
            return Ok(());
        };
        let uid = pod.uid();
        let facts = view.pods.get(&uid);
        // then its containers may be stopped for another reason
        let is_touched =
            facts.is_some_and(|facts| facts.deleted.is_some() || facts.harmed.is_some());
        if *is_deleted || reason(pod) != "Evicted" || self.0.contains_key(&uid) || is_touched {
            return Ok(());
        }
        // previous instances were stopped for other reasons
        let of_pod = view.containers.values().filter(|c| c.uid == uid);
        let is_last = |c: &&ContainerFacts| {
            let mut others = of_pod.clone().filter(|other| other.name == c.name);
            others.all(|other| other.started <= c.started)
        };
        let last = of_pod.clone().filter(is_last);
        let stopped = last.clone().filter_map(|c| Some(c.stop_requested?.0)).min();
        let ended = last.filter_map(|c| Some(c.ended?.0)).max();
        let (Some(stopped), Some(ended)) = (stopped, ended) else {
            return Ok(());
        };
        let other = self.0.iter().find(|(_, (s, e))| stopped < *e && *s < ended);
        let text = other.map(|(other, _)| {
            format!("{uid} was stopped while the evicted pod {other} was running")
        });
        self.0.insert(uid, (stopped, ended));
        text.map_or(Ok(()), Err)
    }
}
