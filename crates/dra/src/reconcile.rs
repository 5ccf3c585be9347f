//! Releases claims of pods that ended while no agent ran.
//!
//! Upstream compares every 60 s. Here each pod worker releases its own pod, so that one pass after
//! the start is left; it is repeated only while a driver fails or is missing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::SourcesReady;
use windlass_runtime_config::port::PodClaims;
use windlass_types::PodUid;

use crate::manager::DraClaims;

/// Interval between two attempts (upstream `defaultReconcilePeriod`).
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Releases the claims of pods for which `is_gone` is true, once all sources are ready; ends when
/// there are no more.
pub async fn run_reconciliation(
    claims: Arc<DraClaims>,
    mut sources_ready: watch::Receiver<SourcesReady>,
    is_gone: impl Fn(&PodUid) -> bool + Send,
) {
    if claims.pods().is_empty() || sources_ready.wait_for(|ready| ready.0).await.is_err() {
        return;
    }
    let mut changes = claims.drivers().subscribe();
    loop {
        let mut failed = false;
        for uid in claims.pods().into_iter().filter(&is_gone) {
            if let Err(error) = claims.unprepare(&uid).await {
                tracing::warn!(pod = %uid, %error, "claims of a pod that has ended not released");
                failed = true;
            }
        }
        if !failed {
            return;
        }
        // either makes another attempt useful
        let _ = tokio::time::timeout(RETRY_INTERVAL, changes.changed()).await;
    }
}
