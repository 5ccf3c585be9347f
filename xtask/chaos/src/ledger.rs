//! What the pods lost: a pure record of every status that the agent published.
//!
//! A pod that is steady may never become unready and never restart, unless the run itself killed
//! something of it. A task runs once.

use std::collections::BTreeMap;
use std::fmt;

use windlass_testbed::pod_watch::{ContainerView, PodTable, PodView};

use crate::instances::Expected;

/// What is promised of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Stays ready, without a restart.
    Steady,
    /// Fails and is restarted with back-off.
    CrashLoop,
    /// Succeeds without a restart.
    Task,
    /// Nothing: the run breaks its volumes.
    None,
}

/// What a pod lost, or seems to have lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// A container restarted that the run did not kill.
    Restart,
    /// A restart count is lower than before.
    CountWentBack,
    /// A ready pod became unready.
    ReadyFlip,
    /// A pod failed.
    Failed,
    /// An agent that has just started shows a pod on its local socket that it has not observed yet,
    /// and says so.
    NotObserved,
}

impl Loss {
    /// Whether it is a broken promise: a status before the first observation promises nothing.
    pub(crate) fn counts(self) -> bool {
        self != Self::NotObserved
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restart => "restart",
            Self::CountWentBack => "restart count went back",
            Self::ReadyFlip => "ready flip",
            Self::Failed => "failed pod",
            Self::NotObserved => "shown before it was observed",
        })
    }
}

/// Record of the pods by their name in the manifest.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pods: BTreeMap<String, Record>,
}

#[derive(Debug)]
struct Record {
    promise: Promise,
    /// UID of the pod that is observed; a later one is another pod.
    uid: String,
    was_ready: bool,
    /// IDs of its containers when the run killed something of it. The excuse ends when it is ready
    /// with another container.
    excused: Option<BTreeMap<String, String>>,
    /// ID and restart count by container.
    containers: BTreeMap<String, (String, u64)>,
}

impl Ledger {
    pub(crate) fn add(&mut self, name: &str, promise: Promise) {
        let record = Record {
            promise,
            uid: String::new(),
            was_ready: false,
            excused: None,
            containers: BTreeMap::new(),
        };
        self.pods.insert(name.to_owned(), record);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.pods.remove(name);
    }

    /// The run kills something of the pod.
    pub(crate) fn excuse(&mut self, name: &str) {
        if let Some(record) = self.pods.get_mut(name) {
            let containers = record.containers.iter();
            let ids = containers.map(|(name, (id, _))| (name.clone(), id.clone()));
            record.excused = Some(ids.collect());
        }
    }

    /// What is expected of the containers of a pod.
    pub(crate) fn expected(&self, name: &str) -> Expected {
        match self.pods.get(name) {
            Some(record) if record.promise == Promise::CrashLoop => Expected::CrashLoop,
            Some(record) if record.promise == Promise::None || record.excused.is_some() => {
                Expected::Anything
            }
            Some(_) => Expected::Steady,
            // deleted by the run
            None => Expected::Anything,
        }
    }

    /// Whether the pod exists in this run and is not deleted.
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.pods.contains_key(name)
    }

    /// Whether the pod is not yet ready after a kill by the run, or unknown.
    pub(crate) fn is_excused(&self, name: &str) -> bool {
        self.pods
            .get(name)
            .is_none_or(|record| record.promise != Promise::Steady || record.excused.is_some())
    }

    /// Whether all pods that promise it are ready.
    pub(crate) fn in_service(&self, table: &PodTable) -> bool {
        let mut steady = self.pods.iter();
        table.connected
            && steady.all(|(name, record)| {
                record.promise != Promise::Steady || table.pod(name).is_some_and(|pod| pod.ready)
            })
    }

    /// Names of the pods with this promise.
    pub(crate) fn names(&self, promise: Promise) -> Vec<String> {
        let of = self
            .pods
            .iter()
            .filter(|(_, record)| record.promise == promise);
        of.map(|(name, _)| name.clone()).collect()
    }

    /// Compares a published table with the record and returns what was lost, with its pod.
    pub(crate) fn observe(&mut self, table: &PodTable) -> Vec<(Loss, String)> {
        let mut losses = Vec::new();
        if !table.connected {
            return losses;
        }
        for (name, record) in &mut self.pods {
            let Some(pod) = table.pod(name) else { continue };
            for (loss, detail) in record.observe(pod) {
                losses.push((loss, format!("{name}: {detail}")));
            }
        }
        losses
    }
}

impl Record {
    fn observe(&mut self, pod: &PodView) -> Vec<(Loss, String)> {
        let mut losses = Vec::new();
        if self.promise == Promise::None {
            return losses;
        }
        if self.uid != pod.uid {
            // replaced: the old one was removed by the run
            self.uid.clone_from(&pod.uid);
            self.was_ready = false;
            self.containers.clear();
        }
        if pod.stale {
            return vec![(Loss::NotObserved, pod.status().to_owned())];
        }
        if pod.phase == "Failed" {
            losses.push((Loss::Failed, format!("phase Failed, {}", pod.status())));
        }
        let all = pod.init_containers.iter().chain(&pod.containers);
        for container in all {
            losses.extend(self.observe_container(container));
        }
        if self.promise == Promise::Steady {
            if self.was_ready && !pod.ready && self.excused.is_none() {
                losses.push((Loss::ReadyFlip, pod.status().to_owned()));
            }
            self.was_ready = pod.ready;
            if pod.ready
                && self
                    .excused
                    .as_ref()
                    .is_some_and(|ids| is_replaced(pod, ids))
            {
                self.excused = None;
            }
        }
        losses
    }

    fn observe_container(&mut self, now: &ContainerView) -> Option<(Loss, String)> {
        let before = self.containers.get(&now.name).cloned();
        let (old_id, old_count) = before.unwrap_or_default();
        let excused = self.excused.is_some() || self.promise == Promise::CrashLoop;
        let name = &now.name;
        let loss = if now.restarts < old_count {
            let detail = format!("{name} from {old_count} to {} restarts", now.restarts);
            Some((Loss::CountWentBack, detail))
        } else {
            (!excused && now.restarts > old_count).then(|| {
                let detail = format!("{name} has {} restarts, {}", now.restarts, now.reason);
                (Loss::Restart, detail)
            })
        };
        let id = if now.id.is_empty() {
            old_id
        } else {
            now.id.clone()
        };
        self.containers.insert(now.name.clone(), (id, now.restarts));
        loss
    }
}

/// Whether a container has another ID than at the time of the excuse.
fn is_replaced(pod: &PodView, ids: &BTreeMap<String, String>) -> bool {
    let mut all = pod.init_containers.iter().chain(&pod.containers);
    all.any(|container| {
        ids.get(&container.name)
            .is_some_and(|id| *id != container.id)
    })
}

#[cfg(test)]
mod tests;
