//! Permits with a maximum hold time.

use std::time::Duration;

/// Runs `work` and drops `permit` when the work ends, or after `max_hold` if it takes longer.
pub async fn run_with_permit<T, P>(
    permit: P,
    max_hold: Duration,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(max_hold, &mut work).await {
        Ok(result) => result,
        Err(_) => {
            drop(permit);
            work.await
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join;
    use tokio::sync::Semaphore;
    use tokio::time::{Instant, sleep};

    use super::*;

    const MAX_HOLD: Duration = Duration::from_secs(2);

    /// Two calls share one permit, and the first takes `takes` seconds. Expects when the second
    /// gets the permit and when the first ends, in seconds.
    async fn check(takes: u64, expected: (u64, u64)) {
        let permits = Semaphore::new(1);
        let begun = Instant::now();
        let first = async {
            let work = sleep(Duration::from_secs(takes));
            run_with_permit(permits.acquire().await, MAX_HOLD, work).await;
            begun.elapsed().as_secs()
        };
        let second = async {
            let work = async { begun.elapsed().as_secs() };
            run_with_permit(permits.acquire().await, MAX_HOLD, work).await
        };
        let (ended, got) = join(first, second).await;
        assert_eq!((got, ended), expected, "{takes} s");
    }

    #[tokio::test(start_paused = true)]
    async fn permit_is_freed_when_work_ends_or_max_hold_passes() {
        check(0, (0, 0)).await;
        check(1, (1, 1)).await;
        check(60, (2, 60)).await;
    }
}
