//! A limiter whose permits expire after a time that follows the duration of the work.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::run_with_permit;

/// Maximum hold time of a permit.
const MAX_TERM: Duration = Duration::from_secs(5);

/// Maximum hold time of a permit, adapted to completed work and expired permits.
///
/// Work that takes much longer than the rest has hung and loses its permit. If all work is slow,
/// the term grows instead, because more concurrent work would be slower still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    min: Duration,
    current: Duration,
}

impl Term {
    fn new(min: Duration) -> Self {
        Self { min, current: min }
    }

    /// Records that a permit expired before its work ended. Permits that expire together count
    /// once.
    fn expired(&mut self, term: Duration) {
        if term >= self.current {
            self.current = (term * 2).min(MAX_TERM);
        }
    }

    /// Records work that ended while it held its permit.
    fn ended(&mut self, took: Duration) {
        self.current = (took * 2).clamp(self.min, MAX_TERM);
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.current.as_millis())
    }
}

/// Runs at most `capacity` pieces of work concurrently, in order of arrival.
///
/// A permit expires after twice the duration of the previous work, but not before `min_term`, so
/// hung work does not block the rest. While no work ends, each expiry doubles that time, up to 5 s,
/// so that a slow peer is not overloaded.
#[derive(Debug)]
pub struct Limiter {
    permits: Semaphore,
    term: Mutex<Term>,
}

impl Limiter {
    /// A limiter with `capacity` permits that expire after `min_term` at the earliest.
    pub fn new(capacity: usize, min_term: Duration) -> Self {
        Self {
            permits: Semaphore::new(capacity),
            term: Mutex::new(Term::new(min_term)),
        }
    }

    /// Runs `work` once a permit is free.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let permit = self.permits.acquire().await;
        let started = Instant::now();
        let term = self.term.lock().current;
        let held = ExpiringPermit {
            limiter: self,
            _permit: permit,
            started,
            term,
        };
        let result = run_with_permit(held, term, work).await;
        let took = started.elapsed();
        if took < term {
            self.term.lock().ended(took);
        }
        result
    }

    /// Runs `work` once a permit is free, and holds the permit for at most `term`.
    pub async fn run_for<T>(&self, term: Duration, work: impl Future<Output = T>) -> T {
        run_with_permit(self.permits.acquire().await, term, work).await
    }
}

/// Reports an expiry if it is dropped after its term.
struct ExpiringPermit<'a, P> {
    limiter: &'a Limiter,
    _permit: P,
    started: Instant,
    term: Duration,
}

impl<P> Drop for ExpiringPermit<'_, P> {
    fn drop(&mut self) {
        if self.started.elapsed() >= self.term {
            self.limiter.term.lock().expired(self.term);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// `e` is an expiry; a number is work that ended after that many milliseconds.
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

    /// Maximum concurrency of 100 pieces of work that take `takes` each.
    async fn max_concurrency(takes: Duration) -> usize {
        let limiter = Limiter::new(4, 100 * MS);
        let in_progress = Mutex::new((0_usize, 0_usize));
        let work = || async {
            {
                let mut counts = in_progress.lock();
                counts.0 += 1;
                counts.1 = counts.1.max(counts.0);
            }
            sleep(takes).await;
            let mut counts = in_progress.lock();
            counts.0 -= 1;
        };
        join_all((0..100).map(|_| limiter.run(work()))).await;
        let counts = in_progress.lock();
        counts.1
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_stays_limited() {
        assert_eq!(max_concurrency(50 * MS).await, 4);
        // four more after 100, 300, 700, 1500 and 3100 ms; then the first four end
        assert_eq!(max_concurrency(5000 * MS).await, 24);
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
