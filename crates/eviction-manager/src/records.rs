//! Writes the last evictions to their state file.

use std::sync::Arc;
use std::time::Duration;

use windlass_eviction::EvictionRecord;
use windlass_stats::SingleFlightIo;
use windlass_store::EvictionFile;

/// Time for a write: the next eviction waits for it, and for its pod half a minute.
const SAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Writes on at most one thread; failures are logged.
pub(crate) async fn save(
    file: Option<Arc<SingleFlightIo<EvictionFile, ()>>>,
    records: Vec<EvictionRecord>,
) {
    let Some(file) = file else { return };
    let write = move |file: &mut EvictionFile| file.save(&records);
    match file.run(SAVE_TIMEOUT, write).await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::warn!(%error, "evictions not written"),
        None => tracing::warn!("evictions not written in time"),
    }
}
