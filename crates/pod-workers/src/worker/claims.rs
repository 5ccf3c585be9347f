//! Resource claims in the jobs of a worker.

use std::time::Duration;

use windlass_pod_lifecycle::actions::PodActions;
use windlass_runtime::StartFailure;
use windlass_runtime_config::port::{ClaimsError, ContainerClaims};
use windlass_timelines::RecordOutcome;
use windlass_types::view::EventType;
use windlass_types::{Pod, PodExt, PodUid, Reason, SharedPod};

use super::WorkerDeps;
use super::jobs::{JobError, ended, waits};

/// Back-off after claims could not be prepared; the registration of a driver ends it. Upstream
/// retries with the next periodic sync, after a minute.
const CLAIMS_BACKOFF: Duration = Duration::from_secs(5);

impl From<ClaimsError> for JobError {
    fn from(error: ClaimsError) -> Self {
        Self {
            message: error.message,
            retry: error.retry,
        }
    }
}

/// Devices of the containers; empty for a pod without claims.
pub(super) fn claim_devices(deps: &WorkerDeps, pod: &Pod) -> ContainerClaims {
    let claims = deps.claims.as_ref();
    claims.map(|it| it.devices(pod)).unwrap_or_default()
}

/// Prepares the claims of a pod before its sandbox and containers; returns their devices.
pub(super) async fn prepare_claims(
    deps: &WorkerDeps,
    pod: &SharedPod,
    actions: &PodActions,
) -> Result<ContainerClaims, StartFailure> {
    let Some(claims) = deps
        .claims
        .as_ref()
        .filter(|it| !it.devices(pod).is_empty())
    else {
        return Ok(ContainerClaims::default());
    };
    let record = waits(deps, &pod.uid(), "resource claims", true);
    let prepared = claims.prepare(pod, actions.create_sandbox).await;
    ended(record, RecordOutcome::from_result(&prepared));
    let failed = |error: ClaimsError| {
        let reason = Reason::FailedPrepareDynamicResources;
        let message = format!("Failed to prepare dynamic resources: {error}");
        let events = &deps.events;
        events.record(pod, None, EventType::Warning, reason, &message);
        StartFailure {
            container: None,
            reason,
            message,
            retry: error.retry,
            retry_at: deps.clock.now().checked_add(CLAIMS_BACKOFF).ok(),
        }
    };
    prepared.map_err(failed)?;
    Ok(claims.devices(pod))
}

/// Unprepares the claims of a stopped pod.
pub(super) async fn unprepare_claims(deps: &WorkerDeps, uid: &PodUid) -> Result<(), JobError> {
    match &deps.claims {
        Some(claims) => Ok(claims.unprepare(uid).await?),
        None => Ok(()),
    }
}
