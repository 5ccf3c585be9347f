//! What is told of a claim whose file system has grown on the node.

use serde_json::{Map, Value, json};
use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};

use super::claim::storage;
use crate::quantity::{Quantity, QuantityFormat};

/// Conditions of a claim that say that it is about to grow, or why it does not.
const RESIZING: [&str; 4] = [
    "FileSystemResizePending",
    "Resizing",
    "ControllerResizeError",
    "NodeResizeError",
];

/// A merge patch of the claim's status that says that it has `bytes` now; `None` if it says so
/// already, or says more (upstream `MarkNodeExpansionFinishedWithRecovery`).
///
/// It names the version of the claim that it was made for: the conditions of others stay.
pub fn grown_claim(
    claim: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
    bytes: u64,
) -> Option<Value> {
    let status = claim.status.as_ref();
    if storage(status.and_then(|status| status.capacity.as_ref())) >= bytes {
        return None;
    }
    let mut patch = Map::new();
    let capacity = capacity(volume, bytes);
    patch.insert("capacity".to_owned(), json!({ "storage": capacity }));
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
    let metadata = &claim.metadata;
    Some(json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": patch,
    }))
}

/// As the PersistentVolume writes it, if it is that much.
fn capacity(volume: Option<&PersistentVolume>, bytes: u64) -> String {
    let list = volume.and_then(|volume| volume.spec.as_ref()?.capacity.as_ref());
    let written = list.and_then(|list| list.get("storage"));
    match written {
        Some(written) if storage(list) == bytes => written.0.clone(),
        _ => {
            let units = i64::try_from(bytes).unwrap_or(i64::MAX);
            Quantity::from_units(units, QuantityFormat::BinarySi).to_string()
        }
    }
}
