//! The set of desired pods (upstream's pod manager) and what a change asks of the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_types::{PodExt, PodOp, PodSource, PodUid, PodUpdate, SharedPod};

/// What a config change asks of one worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Dispatch {
    /// Run this pod.
    Run(SharedPod),
    /// Look at the pod again.
    Sync(PodUid),
    /// Delete gracefully: the pod carries a deletion mark.
    Delete(SharedPod),
    /// The pod vanished from its source.
    Remove(PodUid),
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(pod) => write!(f, "run({})", pod.uid()),
            Self::Sync(uid) => write!(f, "sync({uid})"),
            Self::Delete(pod) => write!(f, "delete({})", pod.uid()),
            Self::Remove(uid) => write!(f, "remove({uid})"),
        }
    }
}

/// Desired pods by UID, and which sources have spoken.
#[derive(Debug, Default)]
pub struct DesiredPods {
    pods: BTreeMap<PodUid, SharedPod>,
    seen: BTreeSet<PodSource>,
}

impl DesiredPods {
    /// The UIDs of all desired pods.
    pub fn uids(&self) -> BTreeSet<PodUid> {
        self.pods.keys().cloned().collect()
    }

    /// All desired pods.
    pub fn pods(&self) -> impl Iterator<Item = &SharedPod> {
        self.pods.values()
    }

    /// One desired pod.
    pub fn get(&self, uid: &PodUid) -> Option<&SharedPod> {
        self.pods.get(uid)
    }

    /// True once every configured source has delivered.
    pub fn sources_ready(&self, configured: &BTreeSet<PodSource>) -> bool {
        configured.is_subset(&self.seen)
    }

    /// Takes a change in and says what it asks of the workers, in order.
    pub fn apply(&mut self, update: PodUpdate) -> Vec<Dispatch> {
        let PodUpdate { op, source, pods } = update;
        if op != PodOp::Restore {
            // a checkpoint is what a source said once, not what it says now
            self.seen.insert(source);
        }
        match op {
            // oldest first, as upstream does on ADD; a restored pod is an addition that was
            // admitted before
            PodOp::Add | PodOp::Restore => {
                let mut pods = pods;
                pods.sort_by(|a, b| {
                    let key = |p: &SharedPod| p.metadata.creation_timestamp.as_ref().map(|t| t.0);
                    key(a).cmp(&key(b))
                });
                pods.into_iter().map(|pod| self.run(pod)).collect()
            }
            PodOp::Update | PodOp::Delete => pods.into_iter().map(|pod| self.run(pod)).collect(),
            PodOp::Remove => pods
                .iter()
                .filter_map(|pod| self.remove(&pod.uid()))
                .collect(),
            PodOp::Reconcile => pods
                .into_iter()
                .map(|pod| {
                    let uid = pod.uid();
                    self.pods.insert(uid.clone(), pod);
                    Dispatch::Sync(uid)
                })
                .collect(),
            PodOp::Set => self.set(source, pods),
        }
    }

    fn run(&mut self, pod: SharedPod) -> Dispatch {
        self.pods.insert(pod.uid(), SharedPod::clone(&pod));
        if pod.metadata.deletion_timestamp.is_some() {
            Dispatch::Delete(pod)
        } else {
            Dispatch::Run(pod)
        }
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Dispatch> {
        self.pods.remove(uid).map(|_| Dispatch::Remove(uid.clone()))
    }

    /// The complete set of one source: what it no longer has is removed first.
    fn set(&mut self, source: PodSource, pods: Vec<SharedPod>) -> Vec<Dispatch> {
        let kept: BTreeSet<_> = pods.iter().map(|pod| pod.uid()).collect();
        let gone: Vec<_> = self
            .pods
            .iter()
            .filter(|(uid, pod)| PodExt::source(&***pod) == source && !kept.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        let mut dispatches: Vec<_> = gone.iter().filter_map(|uid| self.remove(uid)).collect();
        for pod in pods {
            if self.pods.get(&pod.uid()).is_none_or(|known| *known != pod) {
                dispatches.push(self.run(pod));
            }
        }
        dispatches
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_types::{Pod, names};

    use super::*;

    fn pod(uid: &str) -> SharedPod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.trim_end_matches('!').into());
        pod.metadata.annotations =
            Some([(names::ANN_CONFIG_SOURCE.to_owned(), "file".to_owned())].into());
        if uid.ends_with('!') {
            pod.metadata.deletion_timestamp = Some(windlass_types::metav1::Time(
                windlass_types::Timestamp::UNIX_EPOCH,
            ));
        }
        Arc::new(pod)
    }

    fn check(script: &[(PodOp, &str, &str)]) {
        let mut desired = DesiredPods::default();
        for (op, uids, expected) in script {
            let pods = uids.split_whitespace().map(pod).collect();
            let update = PodUpdate {
                op: *op,
                source: PodSource::File,
                pods,
            };
            let line: Vec<_> = desired
                .apply(update)
                .iter()
                .map(Dispatch::to_string)
                .collect();
            assert_eq!(line.join(" "), *expected, "{op} {uids}");
        }
    }

    #[test]
    fn every_operation_asks_the_right_thing_of_the_workers() {
        check(&[
            (PodOp::Restore, "a", "run(a)"),
            (PodOp::Add, "a b", "run(a) run(b)"),
            (PodOp::Update, "a", "run(a)"),
            (PodOp::Delete, "a!", "delete(a)"),
            (PodOp::Reconcile, "b", "sync(b)"),
            (PodOp::Remove, "a c", "remove(a)"),
            (PodOp::Set, "b d", "run(d)"),
            (PodOp::Set, "d", "remove(b)"),
            (PodOp::Set, "", "remove(d)"),
        ]);
    }

    #[test]
    fn additions_run_in_the_order_of_their_creation() {
        let created = |uid: &str, second| {
            let mut pod = Arc::unwrap_or_clone(pod(uid));
            pod.metadata.creation_timestamp = windlass_types::Timestamp::from_second(second)
                .ok()
                .map(windlass_types::metav1::Time);
            Arc::new(pod)
        };
        let dispatches = DesiredPods::default().apply(PodUpdate {
            op: PodOp::Add,
            source: PodSource::File,
            pods: vec![created("new", 20), created("old", 10), pod("static")],
        });
        let line: Vec<_> = dispatches.iter().map(Dispatch::to_string).collect();
        assert_eq!(line, ["run(static)", "run(old)", "run(new)"]);
    }

    #[test]
    fn a_checkpoint_does_not_make_its_source_ready() {
        let configured = BTreeSet::from([PodSource::File]);
        let mut desired = DesiredPods::default();
        let update = |op| PodUpdate {
            op,
            source: PodSource::File,
            pods: Vec::new(),
        };
        desired.apply(update(PodOp::Restore));
        assert!(!desired.sources_ready(&configured));
        desired.apply(update(PodOp::Add));
        assert!(desired.sources_ready(&configured));
    }
}
