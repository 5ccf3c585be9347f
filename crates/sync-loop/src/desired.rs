//! The desired pods (upstream pod manager) and the updates of workers for changes.

use std::collections::{BTreeMap, BTreeSet};

use windlass_node_rules::resize::{PendingReason, PendingResize, ResizePolicy, is_resized};
use windlass_pod_inputs::resources::qos_class;
use windlass_types::corev1::{PodExtendedResourceClaimStatus, PodResourceClaimStatus};
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{
    AllocatedResources, Phase, Pod, PodExt, PodFullName, PodOp, PodSource, PodUid, PodUpdate,
    SharedPod,
};

use crate::dispatch::Dispatch;

/// Desired pods by UID, and the sources that have delivered.
///
/// Everything that is done for a pod follows its allocated version: the last spec, with the
/// resources that the node has allocated.
#[derive(Debug, Default)]
pub struct DesiredPods {
    pods: BTreeMap<PodUid, DesiredPod>,
    /// Allocations of previous agent runs to pods that are not desired yet.
    restored: BTreeMap<PodUid, AllocatedResources>,
    policy: ResizePolicy,
    delivered: BTreeSet<PodSource>,
}

#[derive(Debug)]
struct DesiredPod {
    /// As its source has it.
    live: SharedPod,
    /// With the allocated resources, and the condition of a resize that is not allocated.
    allocated: SharedPod,
}

impl DesiredPods {
    /// Creates an empty set with the allocations of the checkpoint.
    pub fn new(policy: ResizePolicy, restored: BTreeMap<PodUid, AllocatedResources>) -> Self {
        Self {
            restored,
            policy,
            ..Self::default()
        }
    }

    /// Returns the UIDs of all desired pods.
    pub fn uids(&self) -> BTreeSet<PodUid> {
        self.pods.keys().cloned().collect()
    }

    /// Returns the UIDs of the static pods.
    pub fn static_uids(&self) -> BTreeSet<PodUid> {
        let statics = self.pods.iter().filter(|(_, pod)| pod.live.is_static());
        statics.map(|(uid, _)| uid.clone()).collect()
    }

    /// Returns all desired pods, with their allocated resources.
    pub fn pods(&self) -> impl Iterator<Item = &SharedPod> + Clone {
        self.pods.values().map(|pod| &pod.allocated)
    }

    /// Returns one desired pod, with its allocated resources.
    pub fn get(&self, uid: &PodUid) -> Option<&SharedPod> {
        self.pods.get(uid).map(|pod| &pod.allocated)
    }

    /// Returns one desired pod as its source has it.
    pub(crate) fn live(&self, uid: &PodUid) -> Option<&SharedPod> {
        self.pods.get(uid).map(|pod| &pod.live)
    }

    /// True if the pod waits for other resources than those that are allocated.
    pub(crate) fn is_resized(&self, uid: &PodUid) -> bool {
        let pod = self.pods.get(uid);
        pod.is_some_and(|pod| is_resized(&pod.live, &pod.allocated, self.policy))
    }

    /// Returns the pods whose resize is not allocated, with the reason.
    pub(crate) fn pending_resizes(&self) -> impl Iterator<Item = (&SharedPod, PendingReason)> {
        self.pods.values().filter_map(|pod| {
            let pending = PendingResize::from_pod(&pod.allocated)?;
            Some((&pod.live, pending.reason))
        })
    }

    /// Allocates the resources of the spec; returns the pod.
    pub(crate) fn allocate(&mut self, uid: &PodUid) -> Option<SharedPod> {
        let pod = self.pods.get_mut(uid)?;
        pod.allocated = without_condition(&pod.live);
        Some(SharedPod::clone(&pod.allocated))
    }

    /// Sets the condition of a resize; returns the pod if it changed.
    pub(crate) fn set_pending(
        &mut self,
        uid: &PodUid,
        pending: &PendingResize,
    ) -> Option<SharedPod> {
        let pod = self.pods.get_mut(uid)?;
        let changed = PendingResize::set(Some(pending), &mut pod.allocated);
        changed.then(|| SharedPod::clone(&pod.allocated))
    }

    /// True when all sources are ready.
    pub fn sources_ready(&self, configured: &BTreeSet<PodSource>) -> bool {
        configured.is_subset(&self.delivered)
    }

    /// True when all sources of static pods are ready.
    pub(crate) fn static_sources_ready(&self, configured: &BTreeSet<PodSource>) -> bool {
        let mut statics = configured.iter().filter(|s| **s != PodSource::Api);
        statics.all(|source| self.delivered.contains(source))
    }

    /// Returns the full names of the static pods.
    pub(crate) fn static_names(&self) -> BTreeSet<PodFullName> {
        let statics = self.pods().filter(|pod| pod.is_static());
        statics.map(|pod| pod.full_name()).collect()
    }

    /// Applies a change and returns the updates of workers in order.
    pub fn apply(&mut self, update: PodUpdate) -> Vec<Dispatch> {
        let PodUpdate { op, source, pods } = update;
        if op != PodOp::Restore {
            // the checkpoint does not make the source ready
            self.delivered.insert(source);
        }
        match op {
            // oldest first, as upstream; a restored pod is an addition
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
                .filter_map(|pod| self.reconcile(pod))
                .collect(),
            PodOp::Set => self.set(source, pods),
        }
    }

    /// Replaces a pod and returns its allocated version. A pod without an allocation is allocated
    /// what its status says, a new one what it requests.
    fn insert(&mut self, live: SharedPod) -> SharedPod {
        let uid = live.uid();
        let is_current = |it: &PendingResize| it.generation == live.metadata.generation;
        let at_api_server = PendingResize::from_pod(&live);
        let (resources, pending) = match self.pods.get(&uid) {
            Some(previous) => {
                let own = PendingResize::from_pod(&previous.allocated);
                let at_api_server = at_api_server.filter(is_current);
                let pending = match previous.live.is_restored() {
                    // the checkpoint may be older than what an agent reported last
                    true => at_api_server.or(own.filter(is_current)),
                    false => own.or(at_api_server),
                };
                (AllocatedResources::from_pod(&previous.allocated), pending)
            }
            None => (
                self.restored
                    .remove(&uid)
                    // the manifest of a static pod says what it gets
                    .filter(|_| !live.is_static())
                    .unwrap_or_else(|| reported(&live)),
                at_api_server,
            ),
        };
        let mut allocated = resources.apply(&live);
        if is_resized(&live, &allocated, self.policy) {
            PendingResize::set(pending.as_ref(), &mut allocated);
        } else {
            allocated = without_condition(&live);
        }
        let pod = DesiredPod {
            live,
            allocated: SharedPod::clone(&allocated),
        };
        self.pods.insert(uid, pod);
        allocated
    }

    fn run(&mut self, pod: SharedPod) -> Dispatch {
        let pod = self.insert(pod);
        if pod.metadata.deletion_timestamp.is_some() {
            Dispatch::Delete(pod)
        } else if is_terminal(&pod) {
            Dispatch::Terminate(pod)
        } else {
            Dispatch::Run(pod)
        }
    }

    /// Handles a status change at the API server, mostly by this agent. The worker is updated only
    /// for a terminal phase, a changed readiness gate or changed resource claims.
    fn reconcile(&mut self, pod: SharedPod) -> Option<Dispatch> {
        let before = self.live(&pod.uid());
        let is_changed = |old: &SharedPod| {
            readiness_gates(old) != readiness_gates(&pod) || claims(old) != claims(&pod)
        };
        let changed = before.is_none_or(is_changed);
        if is_terminal(&pod) {
            return Some(Dispatch::Terminate(self.insert(pod)));
        }
        let dispatch = self.run(pod);
        changed.then_some(dispatch)
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Dispatch> {
        self.pods.remove(uid).map(|_| Dispatch::Remove(uid.clone()))
    }

    /// Replaces all pods of one source; removals come first.
    fn set(&mut self, source: PodSource, pods: Vec<SharedPod>) -> Vec<Dispatch> {
        let kept: BTreeSet<_> = pods.iter().map(|pod| pod.uid()).collect();
        let gone: Vec<_> = self
            .pods
            .iter()
            .filter(|(uid, pod)| PodExt::source(&*pod.live) == source && !kept.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        let mut dispatches: Vec<_> = gone.iter().filter_map(|uid| self.remove(uid)).collect();
        for pod in pods {
            if self.live(&pod.uid()).is_none_or(|known| *known != pod) {
                dispatches.push(self.run(pod));
            }
        }
        dispatches
    }
}

/// Returns the allocated resources of a pod without a record of them: those in its status, unless
/// they are of a resize in progress and give no pod of its QoS class.
fn reported(live: &SharedPod) -> AllocatedResources {
    let resources = AllocatedResources::from_status(live);
    if qos_class(&resources.apply(live)) == qos_class(live) {
        return resources;
    }
    AllocatedResources::from_pod(live)
}

/// Returns a pod whose resources are allocated.
fn without_condition(live: &SharedPod) -> SharedPod {
    let mut pod = SharedPod::clone(live);
    PendingResize::set(None, &mut pod);
    pod
}

/// True for a pod with a terminal phase at the API server.
fn is_terminal(pod: &Pod) -> bool {
    !pod.is_static()
        && pod.status.as_ref().is_some_and(Phase::is_terminal_in)
        && !mutated(Mutation::TerminatedPodRunsAgain)
}

/// Returns the names of the claims that controllers and the scheduler generated.
fn claims(
    pod: &Pod,
) -> (
    Option<&Vec<PodResourceClaimStatus>>,
    Option<&PodExtendedResourceClaimStatus>,
) {
    let status = pod.status.as_ref();
    (
        status.and_then(|it| it.resource_claim_statuses.as_ref()),
        status.and_then(|it| it.extended_resource_claim_status.as_ref()),
    )
}

/// Returns the conditions of the readiness gates with their status.
fn readiness_gates(pod: &Pod) -> Vec<(&str, Option<&str>)> {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
    let status = |name: &str| {
        let conditions = conditions.unwrap_or_default().iter();
        conditions
            .filter(|c| c.type_ == name)
            .map(|c| c.status.as_str())
            .next()
    };
    let gates = PodExt::spec(pod).readiness_gates.iter().flatten();
    gates
        .map(|gate| (gate.condition_type.as_str(), status(&gate.condition_type)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use windlass_types::corev1::{PodCondition, PodReadinessGate, PodSpec, PodStatus};
    use windlass_types::names;

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
    fn each_operation_dispatches_worker_updates() {
        check(&[
            (PodOp::Restore, "a", "run(a)"),
            (PodOp::Add, "a b", "run(a) run(b)"),
            (PodOp::Update, "a", "run(a)"),
            (PodOp::Delete, "a!", "delete(a)"),
            (PodOp::Reconcile, "b", ""),
            (PodOp::Remove, "a c", "remove(a)"),
            (PodOp::Set, "b d", "run(d)"),
            (PodOp::Set, "d", "remove(b)"),
            (PodOp::Set, "", "remove(d)"),
        ]);
    }

    /// A pod of the API server in `phase`, with a readiness gate that is `gate`.
    fn api_pod(uid: &str, phase: &str, gate: &str) -> SharedPod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.into());
        pod.spec = Some(PodSpec {
            readiness_gates: Some(vec![PodReadinessGate {
                condition_type: "lb".into(),
            }]),
            ..PodSpec::default()
        });
        pod.status = Some(PodStatus {
            phase: Some(phase.into()),
            conditions: Some(vec![PodCondition {
                type_: "lb".into(),
                status: gate.into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        });
        Arc::new(pod)
    }

    #[test]
    fn status_change_reaches_worker_only_if_relevant() {
        let mut desired = DesiredPods::default();
        let mut check = |op, phase: &str, gate: &str, expected: &str| {
            let pods = vec![api_pod("a", phase, gate)];
            let source = PodSource::Api;
            let dispatches = desired.apply(PodUpdate { op, source, pods });
            let line: Vec<_> = dispatches.iter().map(Dispatch::to_string).collect();
            assert_eq!(line.join(" "), expected, "{op} {phase} {gate}");
        };
        check(PodOp::Add, "Pending", "False", "run(a)");
        check(PodOp::Reconcile, "Running", "False", "");
        check(PodOp::Reconcile, "Running", "True", "run(a)");
        check(PodOp::Reconcile, "Succeeded", "True", "terminate(a)");
        check(PodOp::Add, "Failed", "False", "terminate(a)");
        let mut pod = Pod::clone(&api_pod("a", "Pending", "True"));
        let claim = json!([{ "name": "gpu", "resourceClaimName": "a-gpu" }]);
        let status = pod.status.get_or_insert_default();
        status.resource_claim_statuses = serde_json::from_value(claim).expect("claims");
        let dispatches = desired.apply(PodUpdate {
            op: PodOp::Reconcile,
            source: PodSource::Api,
            pods: vec![Arc::new(pod)],
        });
        assert_eq!(dispatches.len(), 1, "a generated claim");
    }

    #[test]
    fn changed_resources_are_not_dispatched_until_allocated() {
        let pod = |cpu: &str, label: &str| {
            let pod = json!({
                "metadata": {"uid": "a", "labels": {"app": label}},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
            });
            Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
        };
        let allocated = AllocatedResources::from_pod(&pod("1", ""));
        let mut restored =
            DesiredPods::new(ResizePolicy::default(), [("a".into(), allocated)].into());
        let mut new = DesiredPods::default();
        let mut check = |op, live: &SharedPod, expected: &SharedPod| {
            for desired in [&mut restored, &mut new] {
                let (source, pods) = (PodSource::Api, vec![live.clone()]);
                let dispatches = desired.apply(PodUpdate { op, source, pods });
                assert_eq!(dispatches, [Dispatch::Run(expected.clone())], "{op}");
                assert_eq!(desired.get(&"a".into()), Some(expected));
                assert_eq!(desired.live(&"a".into()), Some(live));
            }
        };
        check(PodOp::Add, &pod("1", "x"), &pod("1", "x"));
        check(PodOp::Update, &pod("2", "y"), &pod("1", "y"));
        check(PodOp::Set, &pod("3", "z"), &pod("1", "z"));
    }

    #[test]
    fn additions_are_ordered_by_creation() {
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
    fn checkpoint_does_not_make_source_ready() {
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
