//! Names the pods with hung operations: publishes the text for the ready condition, records events
//! of the node, counts operations by kind.
//!
//! *owns* which pods are named · *invariant* nothing wakes it while no operation hangs · *bound* the
//! limits of [`HungPodNames`] · *restart* what still hangs is listed and named again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use windlass_hung_operations::{HungOperation, HungOperations, OperationKind};
use windlass_metrics::Metrics;
use windlass_node_rules::hung_pods::{HungPod, HungPodNames};
use windlass_status::PodStatusStore;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, PodExt, PodUid, Reason};

/// What the message calls operations that no pod waits for.
const NODE: &str = "node";

/// Text about pods with hung operations for the ready condition; `None` without one.
pub type HungPodsMessage = Option<Arc<str>>;

/// Dependencies of [`run_hung_pods`].
#[derive(Debug)]
pub struct HungPodsDeps {
    /// What hangs.
    pub hung: HungOperations,
    /// Names of the pods.
    pub status_store: PodStatusStore,
    /// Records events of the node.
    pub events: Arc<dyn EventRecorder>,
    /// Metrics.
    pub metrics: Metrics,
    /// Publishes the text for the ready condition.
    pub message: watch::Sender<HungPodsMessage>,
}

/// Names pods until the agent stops.
pub async fn run_hung_pods(deps: HungPodsDeps) {
    let began = Instant::now();
    let mut names = HungPodNames::default();
    let mut known = Vec::new();
    let (mut changes, mut pods) = (deps.hung.subscribe(), deps.status_store.changes());
    loop {
        changes.mark_unchanged();
        pods.mark_unchanged();
        let listed = deps.listed();
        deps.count(&listed, &known);
        let naming = names.update(&deps.hung_pods(&listed), began.elapsed());
        for message in naming.events {
            let reason = Reason::PodOperationHung;
            deps.events
                .record_node(EventType::Warning, reason, &message);
        }
        if let Some(message) = naming.message {
            deps.message.send_replace(message.map(Arc::from));
        }
        let wait = naming.wait.map(|wait| Instant::now() + wait);
        let wake = wait.into_iter().chain(deps.hung.next_expiry()).min();
        let is_listed = !listed.is_empty();
        known = listed;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            // names appear and pods go
            _ = pods.changed(), if is_listed => {}
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
    }
}

/// True for operations that no other module logs.
fn is_logged(hung: &HungOperation) -> bool {
    hung.operation.kind != OperationKind::RuntimeCall
}

impl HungPodsDeps {
    /// What hangs, without what was left by pods that are gone.
    fn listed(&self) -> Vec<HungOperation> {
        let mut listed = self.hung.list();
        let uids = listed.iter().filter_map(|it| it.operation.pod.as_ref());
        let gone = uids.filter(|uid| self.status_store.get(uid).is_none());
        let gone: Vec<PodUid> = gone.cloned().collect();
        if !gone.is_empty() {
            gone.iter().for_each(|uid| self.hung.forget(uid));
            listed = self.hung.list();
        }
        listed
    }

    fn count(&self, listed: &[HungOperation], known: &[HungOperation]) {
        let node = &self.metrics.node;
        for kind in OperationKind::ALL {
            let count = listed.iter().filter(|it| it.operation.kind == kind).count();
            let gauge = node.hung_operations.with_label_values(&[kind.as_str()]);
            gauge.set(count as f64);
        }
        for new in listed.iter().filter(|it| !known.contains(it)) {
            let kind = new.operation.kind;
            if kind.may_be_slow() {
                tracing::info!(%kind, pod = self.name(new), operation = %new, "operation takes long");
            } else if is_logged(new) {
                tracing::warn!(%kind, pod = self.name(new), operation = %new, "operation hung");
            }
            let total = &node.hung_operations_total;
            total.with_label_values(&[kind.as_str()]).inc();
        }
        let ended = known
            .iter()
            .filter(|it| is_logged(it) && !listed.contains(it));
        for ended in ended {
            let kind = ended.operation.kind;
            let message = match kind.may_be_slow() {
                true => "operation ended",
                false => "operation no longer hung",
            };
            tracing::info!(%kind, pod = self.name(ended), operation = %ended, "{message}");
        }
    }

    /// The pods, that with the oldest operation first.
    fn hung_pods(&self, listed: &[HungOperation]) -> Vec<HungPod> {
        let mut found: Vec<HungPod> = Vec::new();
        let mut index: BTreeMap<Option<&PodUid>, usize> = BTreeMap::new();
        for hung in listed {
            let has_event = !hung.operation.kind.may_be_slow();
            let at = *index
                .entry(hung.operation.pod.as_ref())
                .or_insert(found.len());
            match found.get_mut(at) {
                Some(pod) => {
                    pod.others += 1;
                    pod.has_event |= has_event;
                }
                None => found.push(HungPod {
                    pod: self.name(hung),
                    operation: hung.to_string(),
                    others: 0,
                    has_event,
                }),
            }
        }
        found
    }

    fn name(&self, hung: &HungOperation) -> String {
        let Some(uid) = &hung.operation.pod else {
            return NODE.to_owned();
        };
        match self.status_store.get(uid) {
            Some(entry) => format!("{}/{}", entry.pod.namespace(), entry.pod.name()),
            None => uid.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
