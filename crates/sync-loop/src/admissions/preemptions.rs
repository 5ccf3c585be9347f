//! Preempted pods that have not ended, and pods that wait for their end.

use std::collections::BTreeMap;

use windlass_pod_inputs::resources::is_critical;
use windlass_types::{PodExt, PodUid, SharedPod};

/// Default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: u32 = 30;
/// Minimum time for the end of a preempted pod, as upstream `killPodNow`.
const MIN_SECONDS: u32 = 10;

/// A preempted pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    /// Resource that the critical pod lacked; `None` if a previous agent run preempted the pod.
    signal: Option<String>,
    /// Ticks of a second until the waiting pods no longer wait for it.
    ticks: u32,
}

impl Victim {
    /// Upstream waits 1.5 times the grace period, at least 10 s.
    pub(super) fn new(pod: &SharedPod, signal: Option<String>) -> Self {
        let grace = PodExt::spec(&**pod).termination_grace_period_seconds;
        let grace = grace.and_then(|seconds| u32::try_from(seconds).ok());
        let grace = grace.unwrap_or(DEFAULT_GRACE_SECONDS);
        Self {
            signal,
            ticks: grace.saturating_add(grace / 2).max(MIN_SECONDS),
        }
    }
}

/// A preempted pod for which no pod waits any longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedVictim {
    /// The pod.
    pub uid: PodUid,
    /// Resource that the critical pod lacked; `None` if a previous agent run preempted the pod.
    pub signal: Option<String>,
    /// False if it has not ended in time.
    pub ended: bool,
}

/// Critical pods are first, then the order of arrival counts.
type Position = (bool, u64);

#[derive(Debug, Default)]
pub(super) struct Preemptions {
    victims: BTreeMap<PodUid, Victim>,
    /// Victims with a terminal phase at the API server, not reported yet.
    ended: Vec<EndedVictim>,
    waiting: BTreeMap<Position, SharedPod>,
    arrivals: u64,
}

impl Preemptions {
    pub(super) fn is_empty(&self) -> bool {
        self.victims.is_empty() && self.ended.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn victims(&self) -> impl Iterator<Item = &PodUid> {
        self.victims.keys()
    }

    pub(super) fn is_victim(&self, uid: &PodUid) -> bool {
        self.victims.contains_key(uid)
    }

    pub(super) fn add_victim(&mut self, uid: PodUid, victim: Victim) {
        self.victims.entry(uid).or_insert(victim);
    }

    /// Counts one tick and removes the victims that have ended or ran out of time.
    pub(super) fn end_victims(&mut self, has_ended: impl Fn(&PodUid) -> bool) -> Vec<EndedVictim> {
        let mut gone = std::mem::take(&mut self.ended);
        self.victims.retain(|uid, victim| {
            let ended = has_ended(uid);
            victim.ticks = victim.ticks.saturating_sub(1);
            let stays = !ended && victim.ticks > 0;
            if !stays {
                gone.push(EndedVictim {
                    uid: uid.clone(),
                    signal: victim.signal.take(),
                    ended,
                });
            }
            stays
        });
        gone
    }

    /// Handles a pod with a terminal phase at the API server.
    pub(super) fn terminated(&mut self, uid: &PodUid) {
        self.stop_waiting(uid);
        if let Some(victim) = self.victims.remove(uid) {
            self.ended.push(EndedVictim {
                uid: uid.clone(),
                signal: victim.signal,
                ended: true,
            });
        }
    }

    /// Adds a pod; a waiting one keeps its position.
    pub(super) fn wait(&mut self, pod: &SharedPod) {
        if !self.update_waiting(pod) {
            self.arrivals += 1;
            let position = (!is_critical(pod), self.arrivals);
            self.waiting.insert(position, SharedPod::clone(pod));
        }
    }

    pub(super) fn is_waiting(&self, uid: &PodUid) -> bool {
        self.waiting.values().any(|pod| pod.uid() == *uid)
    }

    /// Returns the waiting pods in order.
    pub(super) fn waiting(&self) -> Vec<SharedPod> {
        self.waiting.values().cloned().collect()
    }

    /// Returns the waiting pods behind a pod, which waits or would be the last of its kind.
    pub(super) fn waiting_behind(&self, pod: &SharedPod) -> Vec<PodUid> {
        let uid = pod.uid();
        let own = self.waiting.iter().find(|(_, other)| other.uid() == uid);
        let own = own.map_or((!is_critical(pod), u64::MAX), |(position, _)| *position);
        let behind = self.waiting.iter().filter(|(position, _)| **position > own);
        behind.map(|(_, other)| other.uid()).collect()
    }

    /// Replaces the object of a waiting pod; false if it does not wait.
    pub(super) fn update_waiting(&mut self, pod: &SharedPod) -> bool {
        let uid = pod.uid();
        let slot = self.waiting.values_mut().find(|other| other.uid() == uid);
        slot.map(|slot| *slot = SharedPod::clone(pod)).is_some()
    }

    pub(super) fn stop_waiting(&mut self, uid: &PodUid) -> Option<SharedPod> {
        let found = self.waiting.iter().find(|(_, pod)| pod.uid() == *uid);
        let position = found.map(|(position, _)| *position)?;
        self.waiting.remove(&position)
    }
}
