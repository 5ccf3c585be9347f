//! Selection of the records relevant to a blocker, and the outcome of a start.

use windlass_types::Phase;
use windlass_types::corev1::PodStatus;
use windlass_types::explain::{RecordKind, RecordState, TimelineRecord};

/// Maximum number of records shown with a blocker.
const MAX_RECORDS: usize = 6;

/// Returns the newest records relevant to the current state: running or not successful operations,
/// admission, syncs and changed probe results.
pub fn relevant_records(records: &[TimelineRecord]) -> Vec<TimelineRecord> {
    let is_relevant = |record: &&TimelineRecord| {
        record.state != RecordState::Succeeded
            || matches!(
                record.kind,
                RecordKind::Admission | RecordKind::Sync | RecordKind::Probe
            )
    };
    let mut relevant: Vec<TimelineRecord> = records.iter().filter(is_relevant).cloned().collect();
    relevant.drain(..relevant.len().saturating_sub(MAX_RECORDS));
    relevant
}

/// Returns the outcome of the start of a pod: success if it is ready or Succeeded, else the reason
/// of its failure; `None` before.
pub fn start_outcome(status: &PodStatus) -> Option<Result<(), &str>> {
    match Phase::from_status(status) {
        Some(Phase::Succeeded) => Some(Ok(())),
        Some(Phase::Failed) => Some(Err(status.reason.as_deref().unwrap_or("Failed"))),
        _ => {
            let mut conditions = status.conditions.iter().flatten();
            let ready = conditions.any(|c| c.type_ == "Ready" && c.status == "True");
            ready.then_some(Ok(()))
        }
    }
}
