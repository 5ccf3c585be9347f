//! What a node does about a claim that is to grow, and what it tells of that.
//!
//! The rules are those of upstream's `NodeExpander`. A resizer of today says in the claim how far
//! the growth is and waits for the node's word; an old one only makes the PersistentVolume larger.

use std::fmt;

use serde_json::{Map, Value, json};
use windlass_types::corev1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use windlass_types::{ExpansionDecision, ExpansionError, ExpansionTask, Timestamp, api_time};

use super::PvcSize;
use super::pvc::storage;
use windlass_units::quantity::{Quantity, QuantityFormat};

/// `allocatedResourceStatuses` of a claim that waits for the node.
const PENDING: &str = "NodeResizePending";
/// The same while the node grows it.
const IN_PROGRESS: &str = "NodeResizeInProgress";
/// The same when the node found that it never will.
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// Condition of a claim that the node failed to grow.
const ERROR: &str = "NodeResizeError";
/// Conditions of a claim that say that it is about to grow, or why it does not.
const RESIZING: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    ERROR,
];
/// Access mode of a volume that several nodes may write to.
const MANY: &str = "ReadWriteMany";
/// Annotation of a claim whose nodes have nothing to do when it grows.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// What is to be done about a claim whose PersistentVolume has `capacity` bytes. `failed_before`:
/// the driver refused to grow the volume on this node before.
pub fn expansion_decision(
    pvc: &PersistentVolumeClaim,
    capacity: u64,
    failed_before: bool,
) -> ExpansionDecision {
    let status = pvc.status.as_ref();
    let known = storage(status.and_then(|status| status.capacity.as_ref()));
    let allocated = status.and_then(|status| status.allocated_resources.as_ref());
    let stage = stage(pvc);
    if stage.is_none() && allocated.is_none() {
        return ExpansionDecision::Expand(ExpansionTask {
            bytes: capacity,
            reported: known >= capacity,
            tracked: false,
            final_attempt: false,
        });
    }
    let bytes = storage(allocated);
    let asked = pvc.spec.as_ref().and_then(|s| s.resources.as_ref());
    let asked = storage(asked.and_then(|resources| resources.requests.as_ref()));
    let reported = known >= bytes && stage.is_none();
    let task = ExpansionTask {
        bytes,
        reported,
        tracked: true,
        final_attempt: failed_before && asked != bytes,
    };
    match stage {
        Some(PENDING | IN_PROGRESS) => ExpansionDecision::Expand(task),
        None if reported && expands_on_each_node(pvc) => ExpansionDecision::Expand(task),
        None if reported => ExpansionDecision::AlreadyExpanded(bytes),
        _ => ExpansionDecision::Deferred,
    }
}

/// How far the growth of a claim is, if its resizer says so.
fn stage(pvc: &PersistentVolumeClaim) -> Option<&str> {
    let statuses = pvc.status.as_ref()?.allocated_resource_statuses.as_ref();
    let stage = statuses?.get("storage").map(String::as_str);
    stage.filter(|stage| !stage.is_empty())
}

fn expands_on_each_node(pvc: &PersistentVolumeClaim) -> bool {
    let modes = pvc.spec.as_ref().and_then(|s| s.access_modes.as_ref());
    let annotations = pvc.metadata.annotations.as_ref();
    modes.is_some_and(|modes| modes.iter().any(|mode| mode == MANY))
        && !annotations.is_some_and(|all| all.contains_key(NOT_REQUIRED))
}

/// What follows from a growth that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpansionFailure {
    /// The claim is told: whether the growth is infeasible.
    pub infeasible: Option<bool>,
    /// How the step ends.
    pub outcome: FailureOutcome,
}

/// How a growth ends that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// Well: there was nothing to do on the node.
    NothingToDo,
    /// It is not tried again while the volume is in use on this node.
    SkippedInUse,
    /// In failure; `refused`: the driver said so itself.
    Failed {
        /// See above.
        rejected: bool,
    },
}

impl fmt::Display for ExpansionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = match self.infeasible {
            Some(true) => "infeasible, ",
            Some(false) => "error, ",
            None => "",
        };
        let end = match self.outcome {
            FailureOutcome::NothingToDo => "done",
            FailureOutcome::SkippedInUse => "left",
            FailureOutcome::Failed { rejected: true } => "rejected",
            FailureOutcome::Failed { rejected: false } => "failed",
        };
        write!(f, "{told}{end}")
    }
}

/// What follows from `fault`. Upstream tells the claim of each failure but that of a driver that is
/// away, and counts a call whose end nobody knows among those that were refused; here only a
/// refusal makes the last try infeasible.
pub fn expansion_failure(task: &ExpansionTask, error: ExpansionError) -> ExpansionFailure {
    let rejected = !matches!(error, ExpansionError::Away | ExpansionError::Uncertain);
    let infeasible = error == ExpansionError::Infeasible || (rejected && task.final_attempt);
    let told = task.tracked && error != ExpansionError::Away;
    let (told, end) = match error {
        ExpansionError::Unsupported if task.reported || !task.tracked => {
            (None, FailureOutcome::NothingToDo)
        }
        ExpansionError::InUse => (told.then_some(infeasible), FailureOutcome::SkippedInUse),
        _ => (told.then_some(infeasible), FailureOutcome::Failed { rejected }),
    };
    ExpansionFailure {
        infeasible,
        outcome,
    }
}

/// The claim of a volume, for events.
pub(crate) fn pvc_reference(namespace: &str, size: &PvcSize) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(size.pvc.clone()),
        uid: Some(size.uid.clone()),
        ..ObjectReference::default()
    }
}

/// A merge patch of the claim's status that says that the node is at work; `None` if it says so
/// already (upstream `MarkNodeExpansionInProgress`).
pub fn resize_started_patch(pvc: &PersistentVolumeClaim) -> Option<Value> {
    if stage(pvc) == Some(IN_PROGRESS) {
        return None;
    }
    Some(json!({
        "metadata": version(pvc),
        "status": { "allocatedResourceStatuses": { "storage": IN_PROGRESS } },
    }))
}

/// A strategic merge patch of the claim's status that says why it did not grow; `None` if it says
/// nothing new. A condition that is there keeps its first words, as upstream.
pub fn resize_failed_patch(
    pvc: &PersistentVolumeClaim,
    infeasible: bool,
    cause: &str,
    now: Timestamp,
) -> Option<Value> {
    let mut patch = Map::new();
    if infeasible && stage(pvc) != Some(INFEASIBLE) {
        let status = json!({ "storage": INFEASIBLE });
        patch.insert("allocatedResourceStatuses".to_owned(), status);
    }
    let conditions = pvc.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    if !conditions.any(|one| one.type_ == ERROR && one.status == "True") {
        let condition = json!({
            "type": ERROR,
            "status": "True",
            "lastTransitionTime": api_time(now),
            "message": format!("failed to expand pvc with {cause}"),
        });
        patch.insert("conditions".to_owned(), json!([condition]));
    }
    (!patch.is_empty()).then(|| {
        let uid = &pvc.metadata.uid;
        json!({ "metadata": { "uid": uid }, "status": patch })
    })
}

/// Only the claim as it was read is patched: what others said meanwhile stays.
fn version(pvc: &PersistentVolumeClaim) -> Value {
    let metadata = &pvc.metadata;
    json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version })
}

/// A merge patch of the claim's status that says that it has `bytes` now; `None` if it says so
/// already, or says more (upstream `MarkNodeExpansionFinishedWithRecovery`).
///
/// It names the version of the claim that it was made for: the conditions of others stay.
pub fn resize_finished_patch(
    pvc: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    bytes: u64,
) -> Option<Value> {
    let status = pvc.status.as_ref();
    let known = storage(status.and_then(|status| status.capacity.as_ref()));
    if known >= bytes && stage(pvc).is_none() {
        return None;
    }
    let mut patch = Map::new();
    if known < bytes {
        let capacity = capacity(pvc, volume, bytes);
        patch.insert("capacity".to_owned(), json!({ "storage": capacity }));
    }
    let statuses = status.and_then(|status| status.allocated_resource_statuses.as_ref());
    if statuses.is_some_and(|all| all.contains_key("storage")) {
        let cleared = json!({ "storage": null });
        patch.insert("allocatedResourceStatuses".to_owned(), cleared);
    }
    if let Some(conditions) = status.and_then(|status| status.conditions.as_ref()) {
        let others = conditions.iter();
        let others = others.filter(|one| !RESIZING.contains(&one.type_.as_str()));
        let others: Vec<_> = others.collect();
        if others.len() < conditions.len() {
            patch.insert("conditions".to_owned(), json!(others));
        }
    }
    Some(json!({ "metadata": version(pvc), "status": patch }))
}

/// As the resizer or the PersistentVolume writes it, if it is that much.
fn capacity(
    pvc: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    bytes: u64,
) -> String {
    let status = pvc.status.as_ref();
    let lists = [
        status.and_then(|status| status.allocated_resources.as_ref()),
        volume.and_then(|volume| volume.spec.as_ref()?.capacity.as_ref()),
    ];
    let same = lists.into_iter().filter(|list| storage(*list) == bytes);
    let written = same.flatten().find_map(|list| list.get("storage"));
    match written {
        Some(written) => written.0.clone(),
        None => {
            let units = i64::try_from(bytes).unwrap_or(i64::MAX);
            Quantity::from_units(units, QuantityFormat::BinarySi).to_string()
        }
    }
}
