//! Starts a bounded number of pods at a time, first come first served.
//!
//! A burst of pods started all at once makes every one of them slow: the runtime serves them
//! round robin and the median pod is ready only near the end. Started a few at a time the last
//! one is ready at the same moment and the median in half of it. A slot is a pace, not a lock:
//! a pod that holds it longer than [`SLOT_TIMEOUT`] (a pull, a hung call) loses it to the next in line
//! and continues without, so hung pods cannot block healthy ones. The lease is longer while the runtime
//! is busy with other calls: without that, a slow runtime would have to start all pods at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_cri::RuntimeLoad;
use windlass_metrics::Metrics;

/// A healthy start takes 0.1 s alone and about 0.3 s in company.
const SLOT_TIMEOUT: Duration = Duration::from_secs(2);

/// Hands out start slots.
#[derive(Clone, Debug)]
pub struct StartLimiter {
    slots: Arc<Semaphore>,
    metrics: Metrics,
    load: RuntimeLoad,
    capacity: usize,
}

/// Holds a start slot until dropped or until its lease ends.
#[derive(Debug)]
pub struct StartSlot {
    lease: tokio::task::AbortHandle,
}

impl Drop for StartSlot {
    fn drop(&mut self) {
        // the task owns the permit: ending it gives the slot back
        self.lease.abort();
    }
}

/// Counts a slot as in use for as long as it lives.
struct InUse(
    Metrics,
    #[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit,
);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.start_slots_in_use.dec();
    }
}

impl StartLimiter {
    /// A start_limiter for `capacity` pods at a time on a runtime with this load.
    pub fn new(capacity: usize, load: RuntimeLoad, metrics: Metrics) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(capacity.max(1))),
            metrics,
            load,
            capacity,
        }
    }

    /// How many pods start at a time.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Waits for a slot; waiters are served in the order in which they asked.
    pub async fn acquire(&self) -> Option<StartSlot> {
        // the semaphore is never closed
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        self.metrics.workers.start_slots_in_use.inc();
        let in_use = InUse(self.metrics.clone(), permit);
        let load = self.load.clone();
        let lease = tokio::spawn(async move {
            let _in_use = in_use;
            tokio::time::sleep(SLOT_TIMEOUT).await;
            // the starts that hold a slot wait for what is in flight by now
            tokio::time::sleep(load.expected_delay()).await;
        });
        Some(StartSlot {
            lease: lease.abort_handle(),
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
            "freed by the leases, not by the holders"
        );
        drop((slow, third, fourth));
    }
}
