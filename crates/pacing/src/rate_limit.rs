//! A token bucket: callers over the rate wait in order of arrival.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lets `qps` callers a second through, `burst` at once after a quiet time.
#[derive(Debug)]
pub struct RateLimit {
    qps: f64,
    burst: f64,
    /// Tokens, and when they were counted. The first in the queue holds it until its token is
    /// there; whoever gives up leaves the queue and has cost nothing.
    state: Mutex<Option<(f64, Instant)>>,
}

impl RateLimit {
    /// A full bucket; `None` if `qps` is 0 or less, which is no limit. A `burst` of 0 counts as 1.
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

    /// Takes a token if there is one and nobody waits for it.
    pub fn try_take(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let now = Instant::now();
        let tokens = self.tokens(*state, now);
        let there = tokens >= 1.0;
        if there {
            *state = Some((tokens - 1.0, now));
        }
        there
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

    /// How long each of so many callers waits, in units of so many milliseconds.
    async fn waits(limit: &RateLimit, callers: usize, unit: u128) -> Vec<u128> {
        let began = Instant::now();
        let takes = (0..callers).map(|_| async {
            limit.take().await;
            // a timer ends at the next full millisecond, and what it is late is made up for
            began.elapsed().as_millis() / unit
        });
        join_all(takes).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_the_rest_waits_in_order() {
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
    async fn callers_that_give_up_cost_the_others_nothing() {
        let limit = RateLimit::new(1.0, 1).expect("a limit");
        limit.take().await;
        let given_up = (0..100).map(|_| {
            let patience = Duration::from_millis(10);
            tokio::time::timeout(patience, limit.take())
        });
        assert!(join_all(given_up).await.iter().all(Result::is_err));
        let began = Instant::now();
        limit.take().await;
        assert!(began.elapsed() <= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_gets_what_is_there() {
        let limit = RateLimit::new(10.0, 3).expect("a limit");
        let takes = |count| (0..count).filter(|_| limit.try_take()).count();
        assert_eq!(takes(5), 3);
        tokio::time::advance(Duration::from_millis(99)).await;
        assert_eq!(takes(1), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(takes(5), 1);
        let waits = limit.take();
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        assert!(!limit.try_take());
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert!(RateLimit::new(0.0, 0).is_none());
        assert!(RateLimit::new(0.0, 3).is_none());
        assert!(RateLimit::new(-1.0, 3).is_none());
    }
}
