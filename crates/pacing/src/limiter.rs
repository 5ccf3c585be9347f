//! A limiter whose permits expire, sooner where the work is fast and later where it is slow.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::run_with_permit;

/// No permit is held for longer than this, however slow the work is.
const MAX_TERM: Duration = Duration::from_secs(5);

/// How long a permit is held at most, learned from the work that ends and the permits that expire.
///
/// Work that takes much longer than the rest hangs, and must not keep its permit. Work that is slow
/// because all of it is slow keeps it: handing out more permits would make it slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    min: Duration,
    current: Duration,
}

impl Term {
    fn new(min: Duration) -> Self {
        Self { min, current: min }
    }

    /// A permit of this term expired before its work ended. Several that expire together count once.
    fn expired(&mut self, term: Duration) {
        if term >= self.current {
            self.current = (term * 2).min(MAX_TERM);
        }
    }

    /// Work ended while it held its permit. What ends later says nothing: it may have hung.
    fn ended(&mut self, took: Duration) {
        self.current = (took * 2).clamp(self.min, MAX_TERM);
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.current.as_millis())
    }
}

/// At most `width` concurrent pieces of work, in the order in which they asked.
///
/// A permit expires when its work takes longer than twice what the work before it took, and at
/// least `min_term`: work that hangs does not block the rest. While nothing ends, each expiry
/// doubles that time, up to 5 s, so that a peer that is slow as a whole is not flooded.
#[derive(Debug)]
pub struct Limiter {
    permits: Semaphore,
    term: Mutex<Term>,
}

impl Limiter {
    /// A limiter of `width` permits that are held for at least `min_term`.
    pub fn new(width: usize, min_term: Duration) -> Self {
        Self {
            permits: Semaphore::new(width),
            term: Mutex::new(Term::new(min_term)),
        }
    }

    /// Runs `work` once there is a permit for it.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let permit = self.permits.acquire().await;
        let started = Instant::now();
        let term = self.lock().current;
        let held = ExpiringPermit {
            limiter: self,
            _permit: permit,
            started,
            term,
        };
        let result = run_with_permit(held, term, work).await;
        let took = started.elapsed();
        if took < term {
            self.lock().ended(took);
        }
        result
    }

    /// Runs `work`, of which only the first `term` counts, once there is a permit for it.
    pub async fn run_for<T>(&self, term: Duration, work: impl Future<Output = T>) -> T {
        run_with_permit(self.permits.acquire().await, term, work).await
    }

    fn lock(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A permit that reports its expiry when it is dropped after its term.
struct ExpiringPermit<'a, P> {
    limiter: &'a Limiter,
    _permit: P,
    started: Instant,
    term: Duration,
}

impl<P> Drop for ExpiringPermit<'_, P> {
    fn drop(&mut self) {
        if self.started.elapsed() >= self.term {
            self.limiter.lock().expired(self.term);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// `e` is an expiry, a number is work that ended after so many milliseconds.
    fn check(events: &str, expected: &str) {
        let mut term = Term::new(500 * MS);
        for event in events.split_whitespace() {
            match event.parse::<u32>() {
                Ok(took) => term.ended(MS * took),
                Err(_) => term.expired(term.current),
            }
        }
        assert_eq!(term.to_string(), expected, "{events}");
    }

    #[test]
    fn term_follows_work_and_doubles_with_each_expiry() {
        check("", "500 ms");
        check("10 20", "500 ms");
        check("e", "1000 ms");
        check("e e e", "4000 ms");
        check("e e e e e e e e", "5000 ms");
        check("e e e 2000", "4000 ms");
        check("e e e 10", "500 ms");
        check("60000", "5000 ms");
    }

    /// The most pieces of work of `takes` that were in progress at once, of 100 that asked.
    async fn most_in_progress(takes: Duration) -> usize {
        let limiter = Limiter::new(4, 100 * MS);
        let in_progress = Mutex::new((0_usize, 0_usize));
        let work = || async {
            {
                let mut counts = in_progress.lock().unwrap_or_else(PoisonError::into_inner);
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            sleep(takes).await;
            let mut counts = in_progress.lock().unwrap_or_else(PoisonError::into_inner);
            counts.0 -= 1;
        };
        join_all((0..100).map(|_| limiter.run(work()))).await;
        let counts = in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        counts.1
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_stays_limited() {
        assert_eq!(most_in_progress(50 * MS).await, 4);
        // four more after 100, 300, 700, 1500 and 3100 ms; then the first four end
        assert_eq!(most_in_progress(5000 * MS).await, 24);
    }

    #[tokio::test(start_paused = true)]
    async fn hung_work_does_not_block_the_rest() {
        let limiter = Limiter::new(4, 100 * MS);
        let hung = join_all((0..8).map(|_| limiter.run(std::future::pending::<()>())));
        let healthy = async {
            let begun = Instant::now();
            limiter.run(sleep(MS)).await;
            begun.elapsed()
        };
        tokio::select! {
            _ = hung => unreachable!("it never ends"),
            took = healthy => assert!(took < 3000 * MS, "{took:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn run_for_frees_the_permit_after_its_term() {
        let limiter = Limiter::new(1, 100 * MS);
        let begun = Instant::now();
        let long = limiter.run_for(200 * MS, sleep(5000 * MS));
        let next = async {
            limiter.run_for(200 * MS, async {}).await;
            begun.elapsed()
        };
        let ((), waited) = futures::future::join(long, next).await;
        assert_eq!(waited, 200 * MS);
    }
}
