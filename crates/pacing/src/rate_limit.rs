//! A token bucket: callers over the rate wait in order of arrival.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Admits `qps` callers per second, and up to `burst` together after an idle period.
#[derive(Debug)]
pub struct RateLimit {
    qps: f64,
    burst: f64,
    /// Tokens, and when they were counted. The first waiter holds the lock until its token is
    /// available; a waiter that is dropped leaves the queue and uses no token.
    state: Mutex<Option<(f64, Instant)>>,
}

impl RateLimit {
    /// A full bucket; `None` (no limit) if `qps` is 0 or less. A `burst` of 0 counts as 1.
    pub fn new(qps: f64, burst: u32) -> Option<Self> {
        (qps > 0.0).then(|| Self {
            qps,
            burst: f64::from(burst.max(1)),
            state: Mutex::new(None),
        })
    }

    /// Waits for a token and takes it.
    pub async fn take(&self) {
        let mut state = self.state.lock().await;
        let missing = 1.0 - self.tokens(*state, Instant::now());
        if missing > 0.0 {
            let wait = Duration::try_from_secs_f64(missing / self.qps);
            tokio::time::sleep(wait.unwrap_or(Duration::MAX)).await;
        }
        let now = Instant::now();
        *state = Some(((self.tokens(*state, now) - 1.0).max(0.0), now));
    }

    /// Takes a token if one is available and no caller waits for it.
    pub fn try_take(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let now = Instant::now();
        let tokens = self.tokens(*state, now);
        let available = tokens >= 1.0;
        if available {
            *state = Some((tokens - 1.0, now));
        }
        available
    }

    fn tokens(&self, state: Option<(f64, Instant)>, now: Instant) -> f64 {
        let (tokens, since) = state.unwrap_or((self.burst, now));
        let earned = now.saturating_duration_since(since).as_secs_f64() * self.qps;
        (tokens + earned).min(self.burst)
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
    async fn tokens_are_earned_over_time_up_to_the_burst() {
        let limit = RateLimit::new(5.0, 2).expect("a limit");
        assert_eq!(waits(&limit, 4, 100).await, [0, 0, 2, 4]);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(waits(&limit, 3, 100).await, [0, 0, 2]);
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
