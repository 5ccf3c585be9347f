//! Topology hints: which NUMA nodes could serve a container.

use std::collections::BTreeMap;

use windlass_topology::NumaSet;

/// One possible placement of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// NUMA nodes; `None` is any.
    pub nodes: Option<NumaSet>,
    /// The placement needs as few nodes as the resource can have.
    pub preferred: bool,
}

/// The possible placements of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceHints {
    /// The provider has no preference (upstream `nil`).
    Any,
    /// These placements; an empty list means that none is possible.
    Of(Vec<Hint>),
}

/// Hints of one provider (CPU, memory or device manager) for a container or pod, by resource name.
/// Empty means no preference.
pub type ProviderHints = BTreeMap<String, ResourceHints>;

/// Why a pod is not admitted by a manager.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotAdmitted {
    /// `status.reason` of the pod: `TopologyAffinityError`, `SMTAlignmentError`,
    /// `UnexpectedAdmissionError`, …
    pub reason: String,
    /// Text, as upstream.
    pub message: String,
}

impl NotAdmitted {
    /// A failed allocation (upstream `UnexpectedAdmissionError`).
    pub fn unexpected(cause: impl std::fmt::Display) -> Self {
        Self {
            reason: "UnexpectedAdmissionError".to_owned(),
            message: format!("Allocate failed due to {cause}, which is unexpected"),
        }
    }
}
