//! Expansion of a PVC on the node: decision and status patches, as in upstream's `NodeExpander`.
//!
//! A current resizer tracks the progress in the PVC status and waits for the node; an old one only
//! enlarges the PersistentVolume.

use std::fmt;

use serde_json::{Map, Value, json};
use windlass_types::corev1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use windlass_types::{ExpansionDecision, ExpansionError, ExpansionTask, Timestamp, api_time};

use super::PvcSize;
use super::pvc::storage;
use windlass_units::quantity::{Quantity, QuantityFormat};

/// `allocatedResourceStatuses` of a PVC that waits for the node.
const PENDING: &str = "NodeResizePending";
/// `allocatedResourceStatuses` during the expansion on the node.
const IN_PROGRESS: &str = "NodeResizeInProgress";
/// `allocatedResourceStatuses` after an infeasible expansion.
const INFEASIBLE: &str = "NodeResizeInfeasible";
/// Condition of a PVC after a failed expansion on the node.
const ERROR: &str = "NodeResizeError";
/// Conditions that a finished expansion removes.
const RESIZING: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    ERROR,
];
const MANY: &str = "ReadWriteMany";
/// Annotation of a PVC without expansion on the node.
const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";

/// Decides on the expansion of a PVC whose PersistentVolume has `capacity` bytes. `failed_before`:
/// the driver rejected an expansion on this node before.
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
    let requested = pvc.spec.as_ref().and_then(|s| s.resources.as_ref());
    let requested = storage(requested.and_then(|resources| resources.requests.as_ref()));
    let reported = known >= bytes && stage.is_none();
    let task = ExpansionTask {
        bytes,
        reported,
        tracked: true,
        final_attempt: failed_before && requested != bytes,
    };
    match stage {
        Some(PENDING | IN_PROGRESS) => ExpansionDecision::Expand(task),
        None if reported && expands_on_each_node(pvc) => ExpansionDecision::Expand(task),
        None if reported => ExpansionDecision::AlreadyExpanded(bytes),
        _ => ExpansionDecision::Deferred,
    }
}

/// Returns the progress that a current resizer tracks.
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

/// Consequences of a failed expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpansionFailure {
    /// Written to the PVC status: whether the size is infeasible; `None` writes nothing.
    pub infeasible: Option<bool>,
    /// Outcome of the step.
    pub outcome: FailureOutcome,
}

/// Outcome of a failed expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutcome {
    /// Success: nothing to do on the node.
    NothingToDo,
    /// No retry while the volume is in use on this node.
    SkippedInUse,
    /// The step fails.
    Failed {
        /// The driver returned the error.
        rejected: bool,
    },
}

impl fmt::Display for ExpansionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match self.infeasible {
            Some(true) => "infeasible, ",
            Some(false) => "error, ",
            None => "",
        };
        let outcome = match self.outcome {
            FailureOutcome::NothingToDo => "nothing to do",
            FailureOutcome::SkippedInUse => "skipped",
            FailureOutcome::Failed { rejected: true } => "rejected",
            FailureOutcome::Failed { rejected: false } => "failed",
        };
        write!(f, "{status}{outcome}")
    }
}

/// Returns the consequences of `error`. Only an error of the driver makes the final attempt
/// infeasible; upstream also counts calls with an unknown result.
pub fn expansion_failure(task: &ExpansionTask, error: ExpansionError) -> ExpansionFailure {
    let rejected = !matches!(error, ExpansionError::Away | ExpansionError::Uncertain);
    let infeasible = error == ExpansionError::Infeasible || (rejected && task.final_attempt);
    let is_reported = task.tracked && error != ExpansionError::Away;
    let (infeasible, outcome) = match error {
        ExpansionError::Unsupported if task.reported || !task.tracked => {
            (None, FailureOutcome::NothingToDo)
        }
        ExpansionError::InUse => (
            is_reported.then_some(infeasible),
            FailureOutcome::SkippedInUse,
        ),
        _ => (
            is_reported.then_some(infeasible),
            FailureOutcome::Failed { rejected },
        ),
    };
    ExpansionFailure {
        infeasible,
        outcome,
    }
}

/// Returns the reference of a PVC for its events.
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

/// Returns a merge patch of the PVC status for the start of an expansion; `None` without a change
/// (upstream `MarkNodeExpansionInProgress`).
pub fn resize_started_patch(pvc: &PersistentVolumeClaim) -> Option<Value> {
    if stage(pvc) == Some(IN_PROGRESS) {
        return None;
    }
    Some(json!({
        "metadata": version(pvc),
        "status": { "allocatedResourceStatuses": { "storage": IN_PROGRESS } },
    }))
}

/// Returns a strategic merge patch of the PVC status for a failed expansion; `None` without a
/// change. An existing condition keeps its message, as upstream.
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

/// Returns the metadata that makes a patch conflict with concurrent changes.
fn version(pvc: &PersistentVolumeClaim) -> Value {
    let metadata = &pvc.metadata;
    json!({ "uid": metadata.uid, "resourceVersion": metadata.resource_version })
}

/// Returns a merge patch of the PVC status for a finished expansion to `bytes`; `None` without a
/// change (upstream `MarkNodeExpansionFinishedWithRecovery`).
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

/// Returns the capacity as the resizer or the PersistentVolume writes it, if it is the same amount.
fn capacity(pvc: &PersistentVolumeClaim, volume: Option<&PersistentVolume>, bytes: u64) -> String {
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
