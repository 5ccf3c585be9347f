//! Limits concurrent pod starts, first come first served.
//!
//! The runtime serves concurrent starts round robin: if all pods of a burst start together, the
//! median pod is ready only near the end. With a few at a time the last pod is ready at the same
//! time and the median in half of it. A pod that holds its slot longer than [`SLOT_TIMEOUT`] (a
//! pull, a hung call) loses it and continues, so hung pods do not block healthy ones. The timeout
//! grows with the calls in flight, because a slow runtime would start all pods together otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_cri::RuntimeLoad;
use windlass_metrics::Metrics;

/// A healthy start takes 0.1 s alone and about 0.3 s under load.
const SLOT_TIMEOUT: Duration = Duration::from_secs(2);

/// Hands out start slots.
#[derive(Clone, Debug)]
pub struct StartLimiter {
    slots: Arc<Semaphore>,
    metrics: Metrics,
    load: RuntimeLoad,
    capacity: usize,
}

/// A start slot, held until dropped or until its timeout.
#[derive(Debug)]
pub struct StartSlot {
    hold: tokio::task::AbortHandle,
}

impl Drop for StartSlot {
    fn drop(&mut self) {
        // the task owns the permit
        self.hold.abort();
    }
}

/// Counts a slot as in use until dropped.
struct InUse(
    Metrics,
    #[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit,
);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.workers.start_slots_in_use.dec();
    }
}

impl StartLimiter {
    /// Creates a limiter of `capacity` concurrent starts on a runtime with this load.
    pub fn new(capacity: usize, load: RuntimeLoad, metrics: Metrics) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(capacity.max(1))),
            metrics,
            load,
            capacity,
        }
    }

    /// Maximum number of concurrent starts.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Waits for a slot, in order of arrival.
    pub async fn acquire(&self) -> Option<StartSlot> {
        // the semaphore is never closed
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        self.metrics.workers.start_slots_in_use.inc();
        let in_use = InUse(self.metrics.clone(), permit);
        let load = self.load.clone();
        let hold = tokio::spawn(async move {
            let _in_use = in_use;
            tokio::time::sleep(SLOT_TIMEOUT).await;
            // the starts that hold a slot wait for the calls in flight
            tokio::time::sleep(load.expected_delay()).await;
        });
        Some(StartSlot {
            hold: hold.abort_handle(),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiters_are_served_in_order_and_slow_start_loses_its_slot() {
        let start_limiter =
            StartLimiter::new(2, RuntimeLoad::default(), Metrics::new().expect("metrics"));
        let begin = Instant::now();
        let slow = start_limiter.acquire().await;
        let quick = start_limiter.acquire().await;
        assert_eq!(
            start_limiter.metrics.workers.start_slots_in_use.get() as u32,
            2
        );
        let third = tokio::spawn({
            let start_limiter = start_limiter.clone();
            async move { start_limiter.acquire().await }
        });
        drop(quick);
        let third = third.await.expect("no panic");
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let fourth = start_limiter.acquire().await;
        assert_eq!(
            begin.elapsed(),
            SLOT_TIMEOUT,
            "freed by the timeout, not by the holders"
        );
        drop((slow, third, fourth));
    }
}
