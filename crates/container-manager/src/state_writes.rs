//! Begin and end of the writes of the state files, for which the health port waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// Time after which a first write that hangs delays the agent no longer.
const FIRST_WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which the shutdown leaves a write that hangs: below the five seconds that it has.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// The writes of the state files. Clones share it.
#[derive(Clone, Debug)]
pub struct StateWrites {
    /// Of the one write in progress; closed when no write may begin any more.
    permit: Arc<Semaphore>,
    first_ended: Arc<watch::Sender<bool>>,
}

/// A write in progress, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct StateWrite {
    permit: Option<OwnedSemaphorePermit>,
    first_ended: Arc<watch::Sender<bool>>,
}

impl Default for StateWrites {
    /// No write has begun.
    fn default() -> Self {
        Self {
            permit: Arc::new(Semaphore::new(1)),
            first_ended: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl StateWrites {
    /// Begins a write; `None` during another one, and after [`Self::stop`].
    pub fn begin(&self) -> Option<StateWrite> {
        let permit = Arc::clone(&self.permit).try_acquire_owned().ok()?;
        Some(StateWrite {
            permit: Some(permit),
            first_ended: Arc::clone(&self.first_ended),
        })
    }

    /// Waits until the first write has succeeded or failed, at most ten seconds.
    pub async fn first_ended(&self) {
        let mut first = self.first_ended.subscribe();
        if timeout(FIRST_WRITE_TIMEOUT, first.wait_for(|ended| *ended))
            .await
            .is_err()
        {
            tracing::warn!("first write of the state files of resources still in progress");
        }
    }

    /// Waits for the write in progress, at most three seconds. No write begins afterwards.
    pub async fn stop(&self) {
        if timeout(LAST_WRITE_TIMEOUT, self.permit.acquire())
            .await
            .is_err()
        {
            tracing::warn!("last write of the state files of resources still in progress");
        }
        self.permit.close();
    }
}

impl Drop for StateWrite {
    fn drop(&mut self) {
        // before the notification: its reader may begin the next write
        drop(self.permit.take());
        self.first_ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_write_is_awaited_and_may_hang() {
        let (writes, began) = (StateWrites::default(), Instant::now());
        writes.first_ended().await;
        assert_eq!(began.elapsed(), FIRST_WRITE_TIMEOUT, "it hangs");
        let write = writes.begin().expect("the first");
        assert!(writes.begin().is_none(), "one at a time");
        let (first, began) = (writes.clone(), Instant::now());
        let ended = tokio::spawn(async move { first.first_ended().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!ended.is_finished());
        drop(write);
        ended.await.expect("no panic");
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        // the second is not awaited
        let _write = writes.begin().expect("the second");
        writes.first_ended().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn stop_waits_for_the_last_write_which_may_hang() {
        for (takes, waits) in [(1, 1), (60, 3)] {
            let (writes, began) = (StateWrites::default(), Instant::now());
            let write = writes.begin().expect("the last");
            let stopped = writes.stop();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(takes)).await;
                drop(write);
            });
            stopped.await;
            assert_eq!(began.elapsed(), Duration::from_secs(waits), "{takes}");
            assert!(writes.begin().is_none(), "no write begins");
            tokio::time::sleep(Duration::from_secs(takes)).await;
            assert!(writes.begin().is_none(), "also after the last one");
            writes.stop().await;
        }
    }
}
