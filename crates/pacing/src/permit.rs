//! Places that are leased, not owned.

use std::time::Duration;

/// Runs `work`, which gives up its `place` (what frees it when dropped, as a semaphore's permit
/// does) when it has ended, or after `term` if it takes longer.
pub async fn run_with_permit<T, P>(place: P, term: Duration, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    match tokio::time::timeout(term, &mut work).await {
        Ok(result) => result,
        Err(_) => {
            drop(place);
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

    const TERM: Duration = Duration::from_secs(2);

    /// Two take the only place, the first for `takes`. When the second got it, and when the first
    /// was through, in seconds.
    async fn check(takes: u64, expected: (u64, u64)) {
        let places = Semaphore::new(1);
        let begun = Instant::now();
        let first = async {
            let work = sleep(Duration::from_secs(takes));
            run_with_permit(places.acquire().await, TERM, work).await;
            begun.elapsed().as_secs()
        };
        let second = async {
            let work = async { begun.elapsed().as_secs() };
            run_with_permit(places.acquire().await, TERM, work).await
        };
        let (through, got) = join(first, second).await;
        assert_eq!((got, through), expected, "{takes} s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_has_the_place_when_the_work_has_ended_or_its_term_is_over() {
        check(0, (0, 0)).await;
        check(1, (1, 1)).await;
        check(60, (2, 60)).await;
    }
}
