//! Which touches explain a blocker, and when a start is over.

use windlass_types::corev1::PodStatus;
use windlass_types::explain::{RecordKind, RecordState, TimelineRecord};

/// So many touches are shown with a blocker.
const SHOWN: usize = 6;

/// The touches that led to the present state, in order: what is under way, what failed, what the
/// worker decided, what verdicts changed; the newest of them. What went well on the way and what was
/// reported of it is left out.
pub fn led_to(touches: &[TimelineRecord]) -> Vec<TimelineRecord> {
    let tells = |touch: &&TimelineRecord| {
        touch.state != RecordState::Succeeded
            || matches!(
                touch.kind,
                RecordKind::Admission | RecordKind::Sync | RecordKind::Probe
            )
    };
    let mut led: Vec<TimelineRecord> = touches.iter().filter(tells).cloned().collect();
    led.drain(..led.len().saturating_sub(SHOWN));
    led
}

/// How the start of a pod ended, if its status says that it did: the pod is ready or has succeeded,
/// or failed for this reason.
pub fn start_end(status: &PodStatus) -> Option<Result<(), &str>> {
    match status.phase.as_deref() {
        Some("Succeeded") => Some(Ok(())),
        Some("Failed") => Some(Err(status.reason.as_deref().unwrap_or("Failed"))),
        _ => {
            let mut conditions = status.conditions.iter().flatten();
            let ready = conditions.any(|c| c.type_ == "Ready" && c.status == "True");
            ready.then_some(Ok(()))
        }
    }
}
