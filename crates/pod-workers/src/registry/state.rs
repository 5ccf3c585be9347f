//! Which pod has a worker, which waits behind one of the same name, which is to come back.
//!
//! Two instances of one static pod (same namespace and name, another UID) never run at once:
//! the newer waits in order of arrival. A pod that is asked for again while it is being
//! removed comes back as a new worker once the old one has finished.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use windlass_actors::{KillPod, PodWorkerState, UpdatePod};
use windlass_types::{PodExt, PodFullName, PodUid, SharedPod};

/// What the registry wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryEffect {
    /// Start a worker for a desired pod.
    StartWorker(PodUid, SharedPod),
    /// Start a worker for a pod that is only to be ended: deleted while the agent was away,
    /// rejected, or already in a terminal phase.
    StartTerminatingWorker(PodUid, SharedPod, KillPod),
    /// Start a worker that stops a pod without a configuration.
    StartOrphanWorker(PodUid, KillPod),
    /// Tell a worker.
    Forward(PodUid, UpdatePod),
    /// Show the pod as waiting for another of the same name.
    Queue {
        /// The pod that waits.
        uid: PodUid,
        /// Its object.
        pod: SharedPod,
        /// The one it waits for.
        behind: PodUid,
    },
    /// Nothing is left of the pod here.
    Remove(PodUid),
}

impl fmt::Display for RegistryEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartWorker(uid, _) => write!(f, "spawn({uid})"),
            Self::StartTerminatingWorker(uid, _, _) => write!(f, "spawn-ending({uid})"),
            Self::StartOrphanWorker(uid, _) => write!(f, "spawn-orphan({uid})"),
            Self::Forward(uid, update) => {
                let run = if update.run.is_some() { " run" } else { "" };
                let kill = if update.kill.is_some() { " kill" } else { "" };
                write!(f, "forward({uid}{run}{kill})")
            }
            Self::Queue { uid, behind, .. } => write!(f, "hold({uid} behind {behind})"),
            Self::Remove(uid) => write!(f, "forget({uid})"),
        }
    }
}

#[derive(Debug)]
struct Worker {
    name: Option<PodFullName>,
    finished: bool,
    removed: bool,
    comeback: Option<SharedPod>,
}

impl Worker {
    /// A worker that holds no name against others.
    fn nameless(removed: bool) -> Self {
        Self {
            name: None,
            finished: false,
            removed,
            comeback: None,
        }
    }
}

/// All workers and everyone who waits.
#[derive(Debug, Default)]
pub struct Registry {
    workers: BTreeMap<PodUid, Worker>,
    /// Which worker holds the name of a static pod.
    holders: BTreeMap<PodFullName, PodUid>,
    waiting: BTreeMap<PodFullName, VecDeque<SharedPod>>,
}

impl Registry {
    /// UIDs of all workers, finished ones included.
    pub fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.workers.keys()
    }

    /// Pods that wait for another of their name.
    pub fn waiting(&self) -> impl Iterator<Item = &SharedPod> {
        self.waiting.values().flatten()
    }

    /// True once the worker has finished.
    pub fn is_finished(&self, uid: &PodUid) -> bool {
        self.workers.get(uid).is_some_and(|worker| worker.finished)
    }

    /// Takes what the SyncLoop says of one pod.
    pub fn update(&mut self, uid: &PodUid, update: UpdatePod) -> Vec<RegistryEffect> {
        if self.workers.contains_key(uid) {
            self.update_worker(uid, update)
        } else if let Some(name) = self.waiting_name(uid) {
            self.update_waiting(uid, &name, update)
        } else {
            self.update_unknown(uid, update)
        }
    }

    fn update_worker(&mut self, uid: &PodUid, mut update: UpdatePod) -> Vec<RegistryEffect> {
        let Some(worker) = self.workers.get_mut(uid) else {
            return Vec::new();
        };
        if update.kill.as_ref().is_some_and(|kill| kill.removed) {
            worker.removed = true;
            worker.comeback = None;
        }
        if worker.removed {
            // whichever came last has the last word
            let wanted = update.run.take();
            worker.comeback = match &update.kill {
                Some(_) if !update.run_after_kill => None,
                _ => wanted.or_else(|| worker.comeback.take()),
            };
        }
        if worker.finished {
            return if worker.removed {
                self.end(uid)
            } else {
                Vec::new()
            };
        }
        vec![RegistryEffect::Forward(uid.clone(), update)]
    }

    fn update_waiting(
        &mut self,
        uid: &PodUid,
        name: &PodFullName,
        update: UpdatePod,
    ) -> Vec<RegistryEffect> {
        let Some(queue) = self.waiting.get_mut(name) else {
            return Vec::new();
        };
        if update.kill.is_some() && !update.run_after_kill {
            queue.retain(|pod| pod.uid() != *uid);
            return vec![RegistryEffect::Remove(uid.clone())];
        }
        if let (Some(pod), Some(slot)) =
            (update.run, queue.iter_mut().find(|pod| pod.uid() == *uid))
        {
            *slot = pod;
        }
        Vec::new()
    }

    fn update_unknown(&mut self, uid: &PodUid, update: UpdatePod) -> Vec<RegistryEffect> {
        match (update.run, update.kill) {
            (Some(pod), None) => self.admit(pod),
            // it went and came back; a pod that was refused or deleted is only news of itself
            (Some(pod), Some(kill)) if update.run_after_kill && kill.removed => self.admit(pod),
            (_, Some(kill)) if kill.orphan.is_some() => {
                self.workers.insert(uid.clone(), Worker::nameless(true));
                vec![RegistryEffect::StartOrphanWorker(uid.clone(), kill)]
            }
            // it never runs here, so it waits for no other pod of its name
            (Some(pod), Some(kill)) if !kill.removed => {
                self.workers.insert(uid.clone(), Worker::nameless(false));
                vec![RegistryEffect::StartTerminatingWorker(
                    uid.clone(),
                    pod,
                    kill,
                )]
            }
            // it came and went before anybody looked: others have heard of it
            (Some(_), Some(_)) => vec![RegistryEffect::Remove(uid.clone())],
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, pod: SharedPod) -> Vec<RegistryEffect> {
        let uid = pod.uid();
        let name = pod.is_static().then(|| pod.full_name());
        if let Some(name) = &name {
            if let Some(behind) = self.holders.get(name) {
                let effect = RegistryEffect::Queue {
                    uid,
                    pod: pod.clone(),
                    behind: behind.clone(),
                };
                self.waiting.entry(name.clone()).or_default().push_back(pod);
                return vec![effect];
            }
            self.holders.insert(name.clone(), uid.clone());
        }
        let worker = Worker {
            name,
            finished: false,
            removed: false,
            comeback: None,
        };
        self.workers.insert(uid.clone(), worker);
        vec![RegistryEffect::StartWorker(uid, pod)]
    }

    /// A worker has finished: its pod is stopped and released.
    pub fn finished(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let Some(worker) = self.workers.get_mut(uid) else {
            return Vec::new();
        };
        worker.finished = true;
        if worker.removed {
            self.end(uid)
        } else {
            self.pass_on_name(uid)
        }
    }

    /// Drops a finished worker; its pod may come back, and the next of its name may start.
    fn end(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let mut effects = vec![RegistryEffect::Remove(uid.clone())];
        let comeback = self
            .workers
            .get_mut(uid)
            .and_then(|worker| worker.comeback.take());
        effects.extend(self.pass_on_name(uid));
        self.workers.remove(uid);
        if let Some(pod) = comeback {
            effects.extend(self.admit(pod));
        }
        effects
    }

    fn pass_on_name(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let name = self.workers.get(uid).and_then(|worker| worker.name.clone());
        let Some(name) = name.filter(|name| self.holders.get(name) == Some(uid)) else {
            return Vec::new();
        };
        self.holders.remove(&name);
        let next = self.waiting.get_mut(&name).and_then(VecDeque::pop_front);
        if self.waiting.get(&name).is_some_and(VecDeque::is_empty) {
            self.waiting.remove(&name);
        }
        // the rest of the queue goes on waiting, now behind this one
        next.map(|pod| self.admit(pod)).unwrap_or_default()
    }

    fn waiting_name(&self, uid: &PodUid) -> Option<PodFullName> {
        self.waiting
            .iter()
            .find(|(_, queue)| queue.iter().any(|pod| pod.uid() == *uid))
            .map(|(name, _)| name.clone())
    }

    /// The phase that the registry itself knows: finished workers are `Terminated`.
    pub fn phase_of(&self, uid: &PodUid, of_worker: PodWorkerState) -> PodWorkerState {
        if self.is_finished(uid) {
            PodWorkerState::TerminatedPod
        } else {
            of_worker
        }
    }
}

#[cfg(test)]
mod tests;
