//! A figure that takes time: kept, and brought up to date in the background while somebody asks.
//!
//! *invariant* one is at it at a time; who asks waits for a bounded time and then has what there
//! is · *bound* one task and one value.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

/// How old a figure may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgeLimits {
    /// Up to this age it is told as it is.
    pub(crate) fresh: Duration,
    /// Up to this age it is told if no newer one is there in time.
    pub(crate) stale: Duration,
    /// How long a newer one is waited for.
    pub(crate) patience: Duration,
}

/// The figure. Clones share it.
pub(crate) struct RefreshingCache<T>(Arc<Inner<T>>);

struct Inner<T> {
    ages: AgeLimits,
    latest: Mutex<Option<(Arc<T>, Instant)>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<T> Clone for RefreshingCache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for RefreshingCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshingCache")
            .field("ages", &self.0.ages)
            .finish()
    }
}

impl<T: Send + Sync + 'static> RefreshingCache<T> {
    /// Nothing is known.
    pub(crate) fn new(ages: AgeLimits) -> Self {
        Self(Arc::new(Inner {
            ages,
            latest: Mutex::new(None),
            turn: Arc::default(),
        }))
    }

    /// The figure, made anew by `make` if it is not fresh. `None` if there is none that is young
    /// enough, also if `make` has none.
    pub(crate) async fn get<F>(&self, make: impl FnOnce() -> F) -> Option<Arc<T>>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let ages = self.0.ages;
        if let Some(latest) = self.younger_than(ages.fresh) {
            return Some(latest);
        }
        match Arc::clone(&self.0.turn).try_lock_owned() {
            Ok(turn) => {
                let (made, this) = (make(), self.clone());
                // it goes on when nobody waits any more: the next one finds what it brings
                let task = tokio::spawn(async move {
                    if let Some(made) = made.await {
                        *this.lock() = Some((Arc::new(made), Instant::now()));
                    }
                    drop(turn);
                });
                drop(timeout(ages.patience, task).await);
            }
            Err(_) => drop(timeout(ages.patience, self.0.turn.lock()).await),
        }
        self.younger_than(ages.stale)
    }

    /// What was made last, however old.
    pub(crate) fn latest(&self) -> Option<Arc<T>> {
        let latest = self.lock();
        latest.as_ref().map(|(value, _)| Arc::clone(value))
    }

    fn younger_than(&self, age: Duration) -> Option<Arc<T>> {
        let latest = self.lock();
        let (value, made) = latest.as_ref()?;
        (made.elapsed() <= age).then(|| Arc::clone(value))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Arc<T>, Instant)>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const AGES: AgeLimits = AgeLimits {
        fresh: Duration::from_secs(10),
        stale: Duration::from_secs(60),
        patience: Duration::from_secs(2),
    };

    #[tokio::test(start_paused = true)]
    async fn what_is_fresh_is_not_made_anew() {
        let figure = RefreshingCache::new(AGES);
        assert_eq!(figure.get(|| ready(Some(1))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(figure.get(|| ready(Some(2))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(figure.get(|| ready(Some(3))).await.as_deref(), Some(&3));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_costs_patience_and_in_the_end_the_figure() {
        let figure = RefreshingCache::new(AGES);
        assert_eq!(figure.get(|| ready(Some(1))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(11)).await;
        let begin = Instant::now();
        assert_eq!(
            figure.get(pending::<Option<i32>>).await.as_deref(),
            Some(&1)
        );
        assert_eq!(begin.elapsed().as_secs(), 2);
        // the one that hangs is still at it: nobody else begins
        let second = figure.get(|| ready(Some(3))).await;
        assert_eq!(second.as_deref(), Some(&1));
        assert_eq!(begin.elapsed().as_secs(), 4);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(figure.get(|| ready(Some(4))).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_comes_late_is_there_for_the_next() {
        let figure = RefreshingCache::new(AGES);
        let late = || async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Some(7)
        };
        assert_eq!(figure.get(late).await, None);
        tokio::time::advance(Duration::from_secs(4)).await;
        tokio::task::yield_now().await;
        assert_eq!(figure.get(|| ready(Some(8))).await.as_deref(), Some(&7));
    }
}
