//! Registry of pods with a worker, pods blocked on the termination of another, and pods to restart.
//!
//! Two static pods with the same full name but different UIDs never run together: the newer waits,
//! in order of arrival. A pod that is desired again while it terminates gets a new worker once the
//! old one has finished, and continues with its containers. One that is desired again later starts
//! without them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use windlass_actors::{KillPod, PodWorkerState, PodWorkerStatus, UpdatePod, WorkerStateChanged};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{PodExt, PodFullName, PodUid, SharedPod};

/// Action of the registry.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryEffect {
    /// Start a worker for a desired pod.
    StartWorker(PodUid, SharedPod),
    /// Start a worker that terminates a pod: deleted while the agent was down, rejected, or in a
    /// terminal phase.
    StartTerminatingWorker(PodUid, SharedPod, KillPod),
    /// Start a worker that terminates an orphaned pod.
    StartOrphanWorker(PodUid, KillPod),
    /// Send the update to its worker.
    Forward(PodUid, UpdatePod),
    /// Publish the pod as blocked on the termination of another with the same full name.
    Queue {
        /// The waiting pod.
        uid: PodUid,
        /// Its object.
        pod: SharedPod,
        /// The pod that it waits for.
        behind: PodUid,
    },
    /// Remove the dead containers of a removed pod from the runtime.
    RemoveContainers(PodUid),
    /// Remove all state of the pod.
    Remove(PodUid),
}

impl fmt::Display for RegistryEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartWorker(uid, _) => write!(f, "start({uid})"),
            Self::StartTerminatingWorker(uid, _, _) => write!(f, "start-terminating({uid})"),
            Self::StartOrphanWorker(uid, _) => write!(f, "start-orphan({uid})"),
            Self::Forward(uid, update) => {
                let run = if update.run.is_some() { " run" } else { "" };
                let kill = if update.kill.is_some() { " kill" } else { "" };
                write!(f, "forward({uid}{run}{kill})")
            }
            Self::Queue { uid, behind, .. } => write!(f, "queue({uid} behind {behind})"),
            Self::RemoveContainers(uid) => write!(f, "remove-containers({uid})"),
            Self::Remove(uid) => write!(f, "remove({uid})"),
        }
    }
}

#[derive(Debug)]
struct Worker {
    status: PodWorkerStatus,
    /// Full name of a static pod.
    name: Option<PodFullName>,
    finished: bool,
    removed: bool,
    /// The dead containers are being removed.
    removes_containers: bool,
    restart: Option<SharedPod>,
}

impl Worker {
    /// Creates a worker that runs a pod.
    fn running(pod: &SharedPod) -> Self {
        Self {
            status: PodWorkerStatus {
                state: PodWorkerState::SyncPod,
                is_static: Some(pod.is_static()),
            },
            name: pod.is_static().then(|| pod.full_name()),
            finished: false,
            removed: false,
            removes_containers: false,
            restart: None,
        }
    }

    /// Creates a worker that terminates a pod; `None` for an orphaned one. It does not block others
    /// with the same full name.
    fn terminating(pod: Option<&SharedPod>) -> Self {
        Self {
            status: PodWorkerStatus {
                state: PodWorkerState::TerminatingPod,
                is_static: pod.map(|pod| pod.is_static()),
            },
            name: None,
            finished: false,
            removed: pod.is_none(),
            removes_containers: false,
            restart: None,
        }
    }
}

/// All workers and waiting pods.
#[derive(Debug, Default)]
pub struct Registry {
    workers: BTreeMap<PodUid, Worker>,
    /// Worker of each static pod, by full name.
    holders: BTreeMap<PodFullName, PodUid>,
    waiting: BTreeMap<PodFullName, VecDeque<SharedPod>>,
}

impl Registry {
    /// Returns the status of all workers, finished ones included, and of pods that wait for one.
    pub fn statuses(&self) -> BTreeMap<PodUid, PodWorkerStatus> {
        let workers = self.workers.iter();
        let workers = workers.map(|(uid, worker)| (uid.clone(), worker.status));
        let waiting = self.waiting.values().flatten().map(|pod| {
            let status = PodWorkerStatus {
                state: PodWorkerState::SyncPod,
                is_static: Some(pod.is_static()),
            };
            (pod.uid(), status)
        });
        workers.chain(waiting).collect()
    }

    /// Handles an update from the SyncLoop.
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
            worker.restart = None;
        }
        if worker.removed {
            // the last update applies
            let wanted = update.run.take();
            let wanted = wanted.filter(|_| !mutated(Mutation::StaticPodNotRestarted));
            worker.restart = match &update.kill {
                Some(_) if !update.run_after_kill => None,
                _ => wanted.or_else(|| worker.restart.take()),
            };
        }
        if worker.finished {
            return if worker.removed {
                self.remove_containers(uid)
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
            // removed and desired again; an update of a rejected or deleted pod does not start it
            (Some(pod), Some(kill)) if update.run_after_kill && kill.removed => self.admit(pod),
            (_, Some(kill)) if kill.orphan.is_some() => {
                self.workers.insert(uid.clone(), Worker::terminating(None));
                vec![RegistryEffect::StartOrphanWorker(uid.clone(), kill)]
            }
            // it never runs here, so it does not wait for others with the same full name
            (Some(pod), Some(kill)) if !kill.removed => {
                let worker = Worker::terminating(Some(&pod));
                self.workers.insert(uid.clone(), worker);
                vec![RegistryEffect::StartTerminatingWorker(
                    uid.clone(),
                    pod,
                    kill,
                )]
            }
            // added and removed in one update: other components know the pod
            (Some(_), Some(_)) => vec![RegistryEffect::Remove(uid.clone())],
            _ => Vec::new(),
        }
    }

    fn admit(&mut self, pod: SharedPod) -> Vec<RegistryEffect> {
        let uid = pod.uid();
        let worker = Worker::running(&pod);
        if let Some(name) = &worker.name {
            let holder = self.holders.get(name);
            if let Some(behind) = holder.filter(|_| !mutated(Mutation::StaticPodsOverlap)) {
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
        self.workers.insert(uid.clone(), worker);
        vec![RegistryEffect::StartWorker(uid, pod)]
    }

    /// Handles the state of a worker. A finished worker has terminated its pod and cleaned up its
    /// resources.
    pub fn state_changed(
        &mut self,
        uid: &PodUid,
        changed: WorkerStateChanged,
    ) -> Vec<RegistryEffect> {
        let Some(worker) = self.workers.get_mut(uid) else {
            return Vec::new();
        };
        worker.status.state = changed.state;
        if !changed.finished {
            return Vec::new();
        }
        worker.finished = true;
        if worker.removed {
            self.remove_containers(uid)
        } else {
            self.pass_on_name(uid)
        }
    }

    /// Removes the dead containers of a finished worker. A pod that is already desired again
    /// continues with them, as upstream: it has been restarted. A pod of the API server never returns
    /// with the same UID: its containers are left to housekeeping.
    fn remove_containers(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let Some(worker) = self.workers.get_mut(uid) else {
            return Vec::new();
        };
        if worker.removes_containers {
            return Vec::new();
        }
        if worker.status.is_static == Some(false) || worker.restart.is_some() {
            return self.end(uid);
        }
        worker.removes_containers = true;
        let mut effects = vec![RegistryEffect::RemoveContainers(uid.clone())];
        effects.extend(self.pass_on_name(uid));
        effects
    }

    /// Handles the end of [`RegistryEffect::RemoveContainers`].
    pub(crate) fn containers_removed(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let worker = self.workers.get(uid);
        match worker.is_some_and(|worker| worker.removes_containers) {
            true => self.end(uid),
            false => Vec::new(),
        }
    }

    /// Removes a finished worker; its pod may restart, and the next with its full name may start.
    fn end(&mut self, uid: &PodUid) -> Vec<RegistryEffect> {
        let mut effects = vec![RegistryEffect::Remove(uid.clone())];
        let restart = self
            .workers
            .get_mut(uid)
            .and_then(|worker| worker.restart.take());
        effects.extend(self.pass_on_name(uid));
        self.workers.remove(uid);
        if let Some(pod) = restart {
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
        // the rest of the queue waits for this one
        next.map(|pod| self.admit(pod)).unwrap_or_default()
    }

    fn waiting_name(&self, uid: &PodUid) -> Option<PodFullName> {
        self.waiting
            .iter()
            .find(|(_, queue)| queue.iter().any(|pod| pod.uid() == *uid))
            .map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests;
