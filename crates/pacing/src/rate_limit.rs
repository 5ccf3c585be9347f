//! A rate limit: callers over the rate wait in order of arrival.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass_units::token_bucket::TokenBucket;

/// Admits `qps` callers per second, and up to `burst` together after an idle period.
#[derive(Debug)]
pub struct RateLimit {
    created_at: Instant,
    /// The first waiter holds the lock until its token is available; a waiter that is dropped leaves
    /// the queue and uses no token.
    bucket: Mutex<TokenBucket>,
}

impl RateLimit {
    /// A full bucket; `None` (no limit) if `qps` is 0 or less. A `burst` of 0 counts as 1.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        (qps > 0.0).then(|| {
            let interval = Duration::try_from_secs_f64(qps.recip()).unwrap_or(Duration::MAX);
            Self {
                created_at: Instant::now(),
                bucket: Mutex::new(TokenBucket::new(burst, interval)),
            }
        })
    }

    /// Waits for a token and takes it.
    pub async fn take(&self) {
        let mut bucket = self.bucket.lock().await;
        while !bucket.try_take(self.created_at.elapsed()) {
            tokio::time::sleep(bucket.wait(self.created_at.elapsed())).await;
        }
    }

    /// Takes a token if one is available and no caller waits for it.
    pub fn try_take(&self) -> bool {
        let bucket = self.bucket.try_lock();
        bucket.is_ok_and(|mut bucket| bucket.try_take(self.created_at.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// Wait of each of `callers` callers, in units of `unit` milliseconds.
    async fn waits(limit: &RateLimit, callers: usize, unit: u128) -> Vec<u128> {
        let began = Instant::now();
        let takes = (0..callers).map(|_| async {
            limit.take().await;
            // a timer fires at the next full millisecond; the delay is not added up
            began.elapsed().as_millis() / unit
        });
        join_all(takes).await
    }

    #[tokio::test(start_paused = true)]
    async fn burst_passes_and_further_callers_wait_in_order() {
        let limit = RateLimit::new(10.0, 3).expect("a limit");
        assert_eq!(waits(&limit, 6, 10).await, [0, 0, 0, 10, 20, 30]);
        tokio::time::advance(Duration::from_secs(60)).await;
        let began = Instant::now();
        limit.take().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_uses_no_token() {
        let limit = RateLimit::new(1.0, 1).expect("a limit");
        limit.take().await;
        let dropped = (0..100).map(|_| {
            let timeout = Duration::from_millis(10);
            tokio::time::timeout(timeout, limit.take())
        });
        assert!(join_all(dropped).await.iter().all(Result::is_err));
        let began = Instant::now();
        limit.take().await;
        assert!(began.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn try_take_takes_only_available_tokens() {
        let limit = RateLimit::new(10.0, 3).expect("a limit");
        let takes = |count| (0..count).filter(|_| limit.try_take()).count();
        assert_eq!(takes(5), 3);
        tokio::time::advance(Duration::from_millis(99)).await;
        assert_eq!(takes(1), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(takes(5), 1);
        let waiting = limit.take();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(!limit.try_take());
    }

    #[test]
    fn zero_qps_means_no_limit() {
        assert!(RateLimit::new(0.0, 0).is_none());
        assert!(RateLimit::new(0.0, 3).is_none());
        assert!(RateLimit::new(-1.0, 3).is_none());
    }
}
